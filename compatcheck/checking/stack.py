"""Whether an environment holds a training stack, a package that a rule or a program's record is about; which runs have none."""

from __future__ import annotations

from compatcheck.core.source import Skipped, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.checking.shared import Shared
    from compatcheck.core.environment import Environment
    from compatcheck.core.selection import Choice
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


def holds_stack(environment: Environment | None, rules: RuleSet) -> bool:
    """Tell whether rules could be checked on an environment; one of other packages only is none that a run trains in."""
    if environment is None:
        return False
    if not rules.packages.isdisjoint(environment.packages):
        return True
    from compatcheck.rules.programs import programs  # noqa: PLC0415 (only where no rule is about any package)

    return any(
        name in environment.packages
        for program in programs().values()
        for name in (*program.packages, *program.engines)
    )


def find_bare(subjects: Iterable[Subject], shared: Shared) -> Iterator[Skipped]:
    """Say of which runs no rule could be checked: those that are paired with no environment that holds a stack.

    A model alone is no run, and what is given for all subjects is of none by itself.
    """
    from compatcheck.rules.programs import find_program  # noqa: PLC0415 (only for files)

    given = {document.source.path for document in shared.documents}
    places: dict[tuple[str, ...], list[Subject]] = {}
    for subject in subjects:
        own = [one for one in subject.as_read if find_program(one.reader).kind != "model"]
        own.sort(key=lambda one: find_program(one.reader).kind == "library")  # a file that a run names takes part in it
        stated = [one for one in own if one.source.path not in given]
        if len(stated) < len(own) and all(find_program(one.reader).kind == "library" for one in stated):
            continue  # what is given names the rest
        run = tuple(dict.fromkeys(one.source.path for one in stated))
        if run:
            places.setdefault(run, []).append(subject)
    for (path, *_), paired in places.items():
        if not any(holds_stack(subject.environment, shared.rules) for subject in paired):
            lists = [subject.environment.origin for subject in paired if subject.environment is not None]
            known = f"no package of a training stack stands in {lists[0]}" if lists else "no package of it is known"
            hint = "name the list, lock or image it runs with, or make both a run of the policy"
            yield Skipped(Source(path), f"a run that no rule could be checked on: {known}", hint)


def name_unselected(environment: Environment | None, rules: RuleSet) -> tuple[str, ...]:
    """Say which extras and groups are not selected, and which packages that rules are about may be there with them."""
    brought: dict[Choice, list[str]] = {}
    for package in () if environment is None else environment.packages.values():
        if package.is_optional and package.name in rules.packages:
            for choice in package.brought_by[:1]:
                brought.setdefault(choice, []).append(f"{package.name} {package.version or package.specifier}".strip())
    return tuple(
        f"{choice} not selected: {', '.join(names)} may be there; --{choice}" for choice, names in brought.items()
    )
