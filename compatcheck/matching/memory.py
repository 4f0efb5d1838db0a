"""What rules came to on a subject before: one that has read nothing that is different now comes to the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.resolution.scope import FactScope

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Fact
    from compatcheck.resolution.gaps import Opened
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_Reads = dict[tuple[int, str], object]
"""Which mapping, and the name there → what stood there; None for nothing."""
_T = TypeVar("_T")


class _Read(NamedTuple):
    """What an answer reads next."""

    name: tuple[int, str]
    """As in `_Reads`."""
    ways: list[tuple[object, _Read | _Answer]]
    """What stood there → what comes behind it."""


class _Answer(NamedTuple):
    """An answer that was given."""

    result: Any


class Memory:
    """Answers about variants of one run, each with what it rests on."""

    def __init__(self) -> None:
        """Remember nothing."""
        self.latest: tuple[Subject, Any] | None = None
        """The last variant, and all that was found of it."""
        self._frames: list[tuple[object, dict[Hashable, _Read | _Answer]]] = []

    def open(
        self,
        frame: object,
        facts: Mapping[str, Fact],
        environment: Environment | None,
        rules: RuleSet,
        opened: Opened | None = None,
    ) -> Recall:
        """Return what is remembered of runs that are alike in all but releases and facts.

        Args:
            frame: what else an answer may rest on, compared whole.
            facts: of one role.
            environment: with its packages.
            rules: the database.
            opened: facts that something not read may state.
        """
        frame = frame, opened
        if environment is not None:
            frame = frame, environment._replace(packages={}, components={}, facts={})
        for known, answers in self._frames:
            if known == frame:
                return Recall(answers, facts, environment, rules, opened)
        self._frames.append((frame, {}))
        return Recall(self._frames[-1][1], facts, environment, rules, opened)


class Recall:
    """The memory beside the facts and packages of one role as they are now."""

    def __init__(
        self,
        answers: dict[Hashable, _Read | _Answer],
        facts: Mapping[str, Fact],
        environment: Environment | None,
        rules: RuleSet,
        opened: Opened | None = None,
    ) -> None:
        self._answers = answers
        self._opened = opened
        self._rules = rules
        self._environment = environment
        self._now: tuple[Mapping[str, object], ...] = (dict(facts), {}, {})
        if environment is not None:
            self._now = (self._now[0], environment.packages, environment.components)

    def ask(self, key: Hashable, answer: Callable[[FactScope], _T]) -> _T:
        """Return an answer that is remembered, where all that it rests on is still so, else a new one.

        What is read next is decided by what was read before, so the answers to one question are the leaves of a tree: finding one
        costs as much as it has read, however many there are.
        """
        path: list[tuple[int, str]] = []
        node = self._answers.get(key)
        ways: list[tuple[object, _Read | _Answer]] | None = None
        while isinstance(node, _Read):
            path.append(node.name)
            ways, there = node.ways, self._look_up(node.name)
            for value, after in ways:  # nearly always the same object
                if value is there:
                    node = after
                    break
            else:
                node = next((after for value, after in ways if value == there), None)
        if node is not None:
            return node.result  # type: ignore[no-any-return]  # as it was given
        reads: _Reads = {}
        result = answer(self._watch(reads))
        names = list(reads)
        if ways is None or names[: len(path)] != path:
            path, ways = [], None
        node = _Answer(result)
        for name in reversed(names[len(path) :]):
            node = _Read(name, [(reads[name], node)])
        if ways is None:
            self._answers[key] = node
        else:
            ways.append((reads[path[-1]], node))
        return result

    def _look_up(self, name: tuple[int, str]) -> object:
        return self._now[name[0]].get(name[1])

    def _watch(self, reads: _Reads) -> FactScope:
        facts, packages, components = (_Watched(mapping, place, reads) for place, mapping in enumerate(self._now))
        environment = self._environment
        if environment is not None:
            environment = environment._replace(packages=packages, components=components, facts={})  # roles have them
        return FactScope(facts, environment, self._rules, self._opened)


class _Watched(Mapping[str, Any]):
    """A mapping that notes what is looked up in it; whoever goes through all of it rests on all of it."""

    def __init__(self, mapping: Mapping[str, object], place: int, reads: _Reads) -> None:
        self._mapping = mapping
        self._place = place
        self._reads = reads

    def __getitem__(self, name: str) -> object:
        self._reads[self._place, name] = self._mapping.get(name)
        return self._mapping[name]

    def get(self, name: str, default: object = None) -> object:
        self._reads[self._place, name] = found = self._mapping.get(name)
        return default if found is None else found

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError  # an answer may rest on single names alone

    def __len__(self) -> int:
        raise NotImplementedError
