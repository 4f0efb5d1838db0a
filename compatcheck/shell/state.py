"""What a script has set so far: variables, arguments, functions, files; copied at a branch and joined after it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_words
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.shell.values import Value, choose, is_many, same, text_of, unknown
from compatcheck.shell.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from compatcheck.shell.statements import Statement

ALWAYS_SET = frozenset(read_words(__file__, "always_set"))
"""Variables that bash, the login or the last command sets: never taken as unset, never known."""

INHERITED = frozenset({"HOME", "LOGNAME", "PATH", "PWD", "SHELL", "USER"})
"""Variables of the login's environment: a script that sets one passes it on without ``export``."""


class Variable(NamedTuple):
    """A variable of the script."""

    value: Value | None = None
    """Its text; None for an array, and for a variable that is surely unset."""
    elements: Versions[int | str, Value] | None = None
    """Elements of an array in the order of their keys."""
    has_unknown_places: bool = False
    """Whether it is an array in which an element may be no element or several."""
    associative: bool = False
    exported: bool = False
    integer: bool = False
    line: int = 1
    """Where it was last set."""

    def copy_elements(self) -> Versions[int | str, Value]:
        """Return its elements to change them; of a text, it alone."""
        if self.elements is not None:
            return self.elements.copy()
        return Versions({} if self.value is None else {0: self.value})


@dataclass(slots=True)
class State:
    """Everything a statement may change."""

    variables: Versions[str, Variable] = field(default_factory=Versions)
    arguments: tuple[Value, ...] | None = None
    """Positional arguments; None while nobody said which there are."""
    functions: Versions[str, tuple[Function | None, ...]] = field(default_factory=Versions)
    """Every definition a name may have; None stands for no definition."""
    files: Versions[str, Value] = field(default_factory=Versions)
    """What the script wrote into files."""
    saved: list[dict[str, Variable | None]] = field(default_factory=list)
    """Per running function, the variables that its local ones hide."""
    status: bool | None = True
    """Whether the last command succeeded."""
    options: frozenset[str] = frozenset()
    """Of ``set``: ``f`` (no file names), ``a`` (export all)."""
    directories: tuple[Value, ...] = ()
    """Where ``popd`` goes back to, the next last."""
    foreign: str | None = None
    """A file that was sourced and may have set any variable the script does not."""

    def copy(self) -> State:
        """Return a state that may change on its own."""
        return replace(
            self,
            variables=self.variables.copy(),
            functions=self.functions.copy(),
            files=self.files.copy(),
            saved=[dict(frame) for frame in self.saved],
        )

    def open_lists(self, path: str, line: int) -> None:
        """Let a file that is not read extend every array, and fill every empty text."""
        for name, variable in self.variables.items():
            if variable.elements is not None and not variable.associative:
                place = max((key for key in variable.elements if isinstance(key, int)), default=-1) + 1
                more = unknown(f"${{{name}[@]}} after {path}", line, many=True)
                elements = variable.copy_elements()
                elements[place] = more
                self.variables[name] = variable._replace(elements=elements, has_unknown_places=True)
            elif variable.value == () and variable.line:
                self.variables[name] = variable._replace(value=unknown(f"${name}", line))

    def hide(self, name: str) -> None:
        """Make a variable local to the running function."""
        if self.saved and name not in self.saved[-1]:
            self.saved[-1][name] = self.variables.get(name)

    def leave(self) -> None:
        """Give back what a function's local variables hid."""
        for name, variable in self.saved.pop().items():
            if variable is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = variable


class Function(NamedTuple):
    """A function that a name may stand for."""

    body: Statement


def join(states: list[State], line: int, *, again: bool = False) -> State:
    """Return what is known after one of several ways was taken; what differs is unknown.

    Args:
        states: after each of the ways.
        line: where they meet.
        again: whether the ways may be taken any number of times, so that what they leave is not all there may be.
    """
    result = states[0]
    for other in states[1:]:
        result = _join(result, other, line, again=again)
    return result


def join_unless(taken: State, other: State, absent: Iterable[str], names: Container[str], line: int) -> State:
    """Return what is known after a way that is taken unless something is given from outside.

    A text that the other way replaces by what is given is a default: it stays, and rests on nothing being given. What only the
    other way sets is absent where a test or a default asks.

    Args:
        taken: after that way.
        other: after the other.
        absent: what is taken as not given, in words.
        names: the same by name.
        line: where they meet.
    """
    result = join([taken, other], line)
    result.status, result.arguments = taken.status, taken.arguments
    for name, (one, two) in taken.variables.differing(other.variables).items():
        joined = result.variables.get(name)
        if joined is None or joined == one:
            continue
        if one is None and name in names:
            del result.variables[name]
        elif one is None:  # a test or a default of it finds it absent, as it does an argument
            result.variables[name] = joined._replace(value=unknown(f"${name}", line, implicit=True))
        elif name in names or (one.value and text_of(one.value) and two and two.value and text_of(two.value) is None):
            assumes = tuple(absent)
            value = tuple(
                piece._replace(assumes=tuple(dict.fromkeys((*piece.assumes, *assumes)))) for piece in one.value or ()
            )
            result.variables[name] = one._replace(value=value if one.value else one.value)
    return result


def _join(first: State, second: State, line: int, *, again: bool) -> State:
    result = first.copy()
    for name, (one, two) in first.variables.differing(second.variables).items():
        if one is None or two is None or not _same_variable(one, two):
            result.variables[name] = _join_variables(name, one, two, line, again=again)
    for name, ways in first.functions.differing(second.functions).items():
        result.functions[name] = tuple(dict.fromkeys(function for way in ways for function in way or (None,)))
    for path, texts in first.files.differing(second.files).items():
        if texts[0] is None or texts[1] is None or not same(texts[0], texts[1]):
            result.files[path] = unknown(f"content of {path}", line)
    if first.arguments != second.arguments:
        result.arguments = (unknown("$@", line, many=True),)
    for frame, other in zip(result.saved, second.saved, strict=False):
        for name, variable in other.items():
            frame.setdefault(name, variable)
    if first.status != second.status:
        result.status = None
    result.foreign = first.foreign or second.foreign
    if first.directories != second.directories:
        result.directories = ()
    return result


def _same_variable(one: Variable, two: Variable) -> bool:
    if one.exported != two.exported:
        return False
    if one.elements is None or two.elements is None:
        if one.value is None or two.value is None:
            return one.value is two.value and one.elements is two.elements
        return same(one.value, two.value)
    ones, others = one.elements.items(), two.elements.items()
    return len(ones) == len(others) and all(a == b and same(x, y) for (a, x), (b, y) in zip(ones, others, strict=True))


def _join_variables(name: str, one: Variable | None, two: Variable | None, line: int, *, again: bool) -> Variable:
    """Return a variable that differs: of two lists, what they have in common is known."""
    known = [variable for variable in (one, two) if variable is not None]
    exported = any(variable.exported for variable in known)
    line = max((variable.line for variable in known), default=line)
    if not any(variable.elements is not None for variable in known):
        texts = [_text(name, variable, line) for variable in (one, two)]
        hidden = (
            unknown(f"${name}", line) if again else choose(f"${name}", line, ((text,) for text in texts), many=False)
        )
        return Variable(value=hidden, exported=exported, line=line)
    associative = any(variable.associative for variable in known)
    every = f"${{{name}[@]}}"
    if associative or len(known) < 2 or one is None or two is None:
        return Variable(None, Versions({0: unknown(every, line, many=True)}), True, associative, exported, line=line)
    lists = [_elements(variable) for variable in (one, two)]
    shorter = min(map(len, lists))
    start = next((n for n in range(shorter) if not same(lists[0][n], lists[1][n])), shorter)
    if again:
        start = next((n for n in range(start) if is_many(lists[0][n])), start)
        joined = [*lists[0][:start], unknown(every, line, many=True)]
    else:
        rest = shorter - start
        end = next((n for n in range(rest) if not same(lists[0][-1 - n], lists[1][-1 - n])), rest)
        ways = [tuple(values[start : len(values) - end]) for values in lists]
        joined = [*lists[0][:start], choose(every, line, ways, many=True), *lists[0][len(lists[0]) - end :]]
    return Variable(None, Versions(dict(enumerate(joined))), any(map(is_many, joined)), exported=exported, line=line)


def _text(name: str, variable: Variable | None, line: int) -> Value:
    """Return the text of a variable on one way, where it may never have been set."""
    if variable is None:
        return unknown(f"${name}", line, implicit=name not in ALWAYS_SET)
    return variable.value or ()


def _elements(variable: Variable) -> list[Value]:
    if variable.elements is not None:
        return list(variable.elements.values())
    return [] if variable.value is None else [variable.value]
