"""Whether the releases of a plan fit together: a resolver is asked once, and where it refuses, for what does fit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.fix import NOT_CHECKED, REFUSED, RESOLVED, VERSION
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import parse_version
from compatcheck.fixing.demand import DEFAULT_PYTHON, Answer, Demand
from compatcheck.fixing.edits.project import any_of, write_requirements
from compatcheck.fixing.search import Search, by_series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.fix import Change
    from compatcheck.fixing.evaluation import Evaluation
    from compatcheck.fixing.files import EditableFiles
    from compatcheck.fixing.levers import Levers
    from compatcheck.fixing.resolver import UvResolver
    from compatcheck.fixing.search import Evaluate, State

MOST_QUESTIONS = 20
"""Questions about combinations of releases after which the next one counts as refused."""


class Questions:
    """What the projects of a group require, as questions to a resolver."""

    def __init__(
        self,
        evaluation: Evaluation,
        levers: Levers,
        files: EditableFiles,
        resolver: UvResolver | None,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        """Keep what is asked about."""
        self.complete = evaluation.complete
        """Adds what has to move along."""
        subjects = evaluation.subjects
        pythons = (subject.environment.python for subject in subjects if subject.environment is not None)
        python = next(filter(None, pythons), None)
        self.python = None if python is None else ".".join(python.split(".")[:2])
        self.levers = levers
        self.files = files
        self.resolver = resolver
        self._announce = announce
        self.asked: dict[tuple[tuple[str, str], ...], Answer] = {}

    @property
    def stopped(self) -> bool:
        """Whether no more is asked."""
        return len(self.asked) >= MOST_QUESTIONS

    def ask(self, wanted: Mapping[str, Sequence[Change]]) -> Answer:
        """Ask whether every project resolves with one of these changes of each package."""
        if self.resolver is None:
            return Answer(NOT_CHECKED)
        values = {name: [change.after for change in changes] for name, changes in wanted.items()}
        key = tuple((name, ",".join(values[name])) for name in sorted(values))
        if key not in self.asked:
            if self.stopped:
                return Answer(REFUSED, f"the resolver was asked {MOST_QUESTIONS} questions, and no more")
            if self._announce is not None:
                number = f"question {len(self.asked) + 1} of at most {MOST_QUESTIONS}"
                self._announce(
                    f"asking uv, {number}: {', '.join(name + _few(values[name]) for name in sorted(values))}"
                )
            self.asked[key] = self._ask(values, self.resolver)
        return self.asked[key]

    def allow(self, changes: Sequence[Change]) -> bool:
        """Tell whether a resolver has nothing against changes, with what has to move along."""
        wanted = {change.name: (change,) for change in self.complete(changes) if change.kind == VERSION}
        return not wanted or self.ask(wanted).verdict != REFUSED

    def _ask(self, wanted: Mapping[str, Sequence[str]], resolver: UvResolver) -> Answer:
        """Ask about each project; what does not resolve as it stands tells nothing."""
        answers = []
        for demand, before in zip(self._demands(wanted), self._demands({}), strict=True):
            answer = resolver.resolve(demand)
            if answer.verdict == RESOLVED:
                answer = answer._replace(detail=f"for CPython {demand.python or DEFAULT_PYTHON} on Linux")
            elif answer.verdict == REFUSED and (base := resolver.resolve(before)).verdict != RESOLVED:
                answer = Answer(NOT_CHECKED, f"the project as it is does not resolve: {base.detail}")
            answers.append(answer)
        order = (REFUSED, NOT_CHECKED, RESOLVED)
        default = Answer(NOT_CHECKED, "no file states what is required")
        worst = min(answers, key=lambda answer: order.index(answer.verdict), default=default)
        return worst._replace(unbuilt=tuple(sorted({name for answer in answers for name in answer.unbuilt})))

    def _demands(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[Demand]:
        releases = self.levers.releases
        ranges = {name: any_of(values, releases.get(name, values)) for name, values in wanted.items()}
        for project in self.files.projects.values():
            requirements = write_requirements(project.requirements, ranges)
            constraints = write_requirements(project.constraints, ranges)
            if project.lock is not None:
                stated = {item.name for item in project.statements}
                requirements += tuple(name + versions for name, versions in ranges.items() if name not in stated)
            if requirements or project.lock is not None:
                yield Demand(requirements, constraints, project.options, self.python or project.python)
        if not self.files.projects:
            packages = self.levers.packages
            own = {name: f"=={one.version.partition('+')[0]}" for name, one in packages.items() if one.version}
            pins = tuple(name + versions for name, versions in {**own, **ranges}.items() if name in own)
            yield Demand(pins, (), (), self.python)


def _few(values: Sequence[str]) -> str:
    return f" {values[0]}" + (f" and {len(values) - 1} more" if len(values) > 1 else "")


class Confirmed(NamedTuple):
    """The best state whose releases fit together, as far as that could be asked."""

    state: State
    refused: tuple[tuple[Change, ...], ...]
    """Better combinations that do not resolve, the best first."""
    smallest: bool
    """Whether no smaller set clears as much, as far as the search tells."""


def search_confirmed(
    changes: Mapping[str, Sequence[Change]],
    evaluate: Evaluate,
    questions: Questions,
) -> Confirmed:
    """Search, and search again without the releases that do not resolve; what has to move along is asked about, too."""
    refused: list[tuple[Change, ...]] = []
    while True:
        search = Search(changes, evaluate)
        found = search.run()
        if questions.allow(found.changes):
            return Confirmed(found, tuple(refused), not refused and search.is_smallest(found))
        refused.append(found.changes)
        wanted = [change.name for change in questions.complete(found.changes) if change.kind == VERSION]
        fitting = {name: search.fitting(found, name) for name in wanted if name in changes}
        other = _resolve_otherwise(found, fitting, search, questions)
        if other is not None:
            return Confirmed(other, tuple(refused), smallest=False)
        alone = [name for name in fitting if questions.ask({name: fitting[name]}).verdict == REFUSED] or [*fitting][-1:]
        changes = {
            lever: [change for change in values if lever not in alone or change not in fitting[lever]]
            for lever, values in changes.items()
        }


def _resolve_otherwise(
    state: State, fitting: Mapping[str, Sequence[Change]], search: Search, questions: Questions
) -> State | None:
    """Return the state with other releases that resolve, or with one more package that the refusal names."""
    found = _narrow(state, fitting, search, questions)
    if found is not None:
        return found
    words = (questions.ask(fitting).detail or "").lower()
    for name in questions.levers.packages:
        if (
            name not in fitting
            and search.levers.get(name)
            and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", words)
        ):
            found = _narrow(state, {**fitting, name: search.fitting(state, name)}, search, questions)
            if found is not None:
                return found
    return None


def _narrow(
    state: State, fitting: Mapping[str, Sequence[Change]], search: Search, questions: Questions
) -> State | None:
    """Return the state with the nearest of these releases that resolve, None where none do.

    One package after the other is held to the nearest of its series that resolves with any release of those behind it; of
    that series the resolver chooses.
    """
    chosen: dict[str, Sequence[Change]] = dict(fitting)
    before = state.failing
    if not all(chosen.values()) or questions.ask(chosen).verdict == REFUSED:
        return None
    for name, fits in fitting.items():
        groups: Iterable[Sequence[Change]] = ([one] for one in fits) if fits[0].ranged else by_series(fits)
        for group in groups:
            if questions.ask({**chosen, name: group}).verdict != REFUSED:
                chosen[name] = group
                break
    pins = questions.ask(chosen).pins
    for name, fits in chosen.items():
        pinned = parse_version(pins.get(name, ""))
        pick = next((one for one in fits if parse_version(one.release or "") == pinned), fits[0])
        state = search.with_change(state, pick)
    return state if state.failing <= before and questions.allow(state.changes) else None
