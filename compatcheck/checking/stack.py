"""Whether an environment holds a training stack: a package that a rule or the record of a program is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatcheck.core.environment import Environment
    from compatcheck.core.selection import Choice
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
