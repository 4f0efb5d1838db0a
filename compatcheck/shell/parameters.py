"""Parameters of a script: variables, arrays, arguments and the special ones, looked up and set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import parse_count
from compatcheck.shell.limits import MAX_WORDS, LimitError
from compatcheck.shell.patterns import PatternError, remove_prefix, remove_suffix, substitute, translate
from compatcheck.shell.state import ALWAYS_SET, INHERITED, State, Variable
from compatcheck.shell.values import Value, assumptions_of, from_text, is_many, single, unknown
from compatcheck.shell.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


NO_ARGUMENTS = "no arguments are given"


class Found(NamedTuple):
    """What a parameter stands for."""

    values: list[Value]
    """Empty for one that is surely unset."""
    several: bool = False
    """``$@``, ``${a[@]}``: every value is a word of its own."""
    star: bool = False
    """``$*``, ``${a[*]}``: in quotes they are one word."""
    name: str = ""
    is_set: bool = False
    """Whether the script set it."""
    line: int = 0

    @property
    def open(self) -> bool:
        """Tell whether how many values there are is unknown."""
        return any(is_many(value) for value in self.values)


class Parameters:
    """Look up and set parameters in the state the script has reached."""

    def __init__(self, get_state: Callable[[], State], *, slurm: bool) -> None:
        """Take where the state is, and whether the script is a batch job, which surely has ``SLURM_*`` variables."""
        self.get_state = get_state
        self.slurm = slurm
        self._resting: dict[str, dict[str, None]] = {}
        """Variables that may hold a value which rests on something, by that."""

    def find(self, name: str, subscript: str | None, line: int) -> Found:
        """Look a parameter up; the subscript is ``@``, ``*``, an index or a key."""
        state = self.get_state()
        if name in {"@", "*"}:
            several = (
                state.arguments if state.arguments is not None else (unknown("$@", line, many=True, implicit=True),)
            )
            return Found(list(several), several=True, star=name == "*", name=name, is_set=True, line=line)
        if name == "#":
            if state.arguments is None:
                return Found([from_text("0", line, (NO_ARGUMENTS,))], name=name)
            known = not any(map(is_many, state.arguments))
            return Found([from_text(str(len(state.arguments)), line) if known else unknown("$#", line)], name=name)
        if place := parse_count(name):
            return self._argument(place, line)
        if name == "?":
            return Found([from_text("0", line) if state.status else unknown("$?", line)], name=name, is_set=True)
        if not (name[0].isalpha() or name[0] == "_" or name in state.variables):
            return Found([unknown(f"${name}", line)], name=name, is_set=True)
        variable = state.variables.get(name)
        if variable is None:
            return self._never_set(name, subscript, line)
        if subscript in {"@", "*"}:
            values = _all_elements(name, variable, line)
            return Found(values, several=True, star=subscript == "*", name=name, is_set=True, line=variable.line)
        if variable.elements is None and variable.value is None:
            return Found([], name=name, is_set=True)
        return self._element(name, variable, subscript, line)

    def _argument(self, number: int, line: int) -> Found:
        arguments = self.get_state().arguments
        if arguments is None:
            return Found([unknown(f"${number}", line, implicit=True)], name=str(number))
        if any(is_many(value) for value in arguments[:number]):
            return Found([unknown(f"${number}", line)], name=str(number), is_set=True)
        values = [arguments[number - 1]] if number <= len(arguments) else []
        return Found(values, name=str(number), is_set=True)

    def _never_set(self, name: str, subscript: str | None, line: int) -> Found:
        state = self.get_state()
        several = subscript in {"@", "*"}
        surely = name in ALWAYS_SET or (self.slurm and name.startswith("SLURM_")) or state.foreign is not None
        written = f"${name}" if subscript is None else f"${{{name}[{subscript}]}}"
        hidden = unknown(written, line, implicit=not surely, many=several)
        return Found([hidden], several=several, star=subscript == "*", name=name, line=line)

    def _element(self, name: str, variable: Variable, subscript: str | None, line: int) -> Found:
        if variable.elements is None:
            same = subscript is None or (subscript == "0" and variable.value is not None)
            return Found(
                [variable.value or ()] if same or subscript == "-1" else [], name=name, is_set=True, line=variable.line
            )
        if variable.has_unknown_places:
            written = f"${{{name}[{subscript or 0}]}}"
            first = next(iter(variable.elements.values()), None)
            if variable.associative or first is None or is_many(first) or subscript not in {None, "0"}:
                return Found([unknown(written, line)], name=name, is_set=True)
        key: int | str = subscript or "0"
        if not variable.associative:
            key = int(key)
            if key < 0:
                key += max((place for place in variable.elements if isinstance(place, int)), default=-1) + 1
        values = [variable.elements[key]] if key in variable.elements else []
        return Found(values, name=name, is_set=True, line=variable.line)

    def keys(self, name: str, line: int, *, star: bool) -> Found:
        """Return the keys of an array: ``${!a[@]}``."""
        variable = self.get_state().variables.get(name)
        if variable is None or variable.has_unknown_places:
            return Found([unknown(f"${{!{name}[@]}}", line, many=True)], several=True, star=star, name=name, line=line)
        if variable.associative:
            hidden = [unknown(f"${{!{name}[@]}}", line, many=True)] if variable.elements else []  # as above
            return Found(hidden, several=True, star=star, name=name, line=line)
        places = list(variable.elements) if variable.elements is not None else [] if variable.value is None else [0]
        return Found([from_text(str(place), line) for place in places], several=True, star=star, name=name, line=line)

    def count(self, name: str) -> int | None:
        """Return how many elements an associative array has, whatever their order."""
        variable = self.get_state().variables.get(name)
        if variable is None or not variable.associative or variable.has_unknown_places:
            return None
        return len(variable.elements or {})

    def is_associative(self, name: str) -> bool:
        """Tell whether a variable is an array with texts as keys."""
        variable = self.get_state().variables.get(name)
        return variable is not None and variable.associative

    def assign(self, name: str, key: int | str | None, value: Value, line: int) -> None:
        """Set a variable, or an element of an array."""
        state = self.get_state()
        old = state.variables.get(name) or Variable(exported=name in INHERITED or "a" in state.options)
        if key is None and old.elements is None:
            state.variables[name] = old._replace(value=single(value), line=line)
            for assumption in assumptions_of(value):
                self._resting.setdefault(assumption, {})[name] = None
            return
        elements = old.copy_elements()
        if old.has_unknown_places and not old.associative:
            elements = Versions({0: unknown(f"${{{name}[@]}}", line, many=True)})
        else:
            place: int | str = ("0" if old.associative else 0) if key is None else key
            if isinstance(place, int) and place < 0:
                place += int(next(reversed(elements), -1)) + 1
            in_order = old.associative or place in elements or int(place) > int(next(reversed(elements), -1))
            elements[place] = value
            if not in_order:
                elements = Versions(dict(sorted(elements.items(), key=lambda item: int(item[0]))))
        self.set_elements(name, elements, line, opened=old.has_unknown_places or is_many(value))

    def resting_on(self, assumptions: Iterable[str]) -> set[str]:
        """Return the variables whose text may rest on one of these assumptions: the defaults for what is not given."""
        return {name for one in assumptions for name in (one[1:].partition(" ")[0], *self._resting.get(one, ()))}

    def replace_array(self, name: str, elements: Mapping[int, Value], line: int) -> None:
        """Set a whole array."""
        self.set_elements(
            name, Versions(dict[int | str, Value](elements.items())), line, opened=any(map(is_many, elements.values()))
        )

    def set_elements(self, name: str, elements: Versions[int | str, Value], line: int, *, opened: bool) -> None:
        """Give an array these elements; ``opened`` where one of them may be no element or several."""
        if len(elements) > MAX_WORDS:
            raise LimitError(f"an array has more than {MAX_WORDS} elements")
        state = self.get_state()
        old = state.variables.get(name) or Variable(exported=name in INHERITED or "a" in state.options)
        state.variables[name] = old._replace(value=None, elements=elements, has_unknown_places=opened, line=line)


def _all_elements(name: str, variable: Variable, line: int) -> list[Value]:
    if variable.elements is None:
        return [] if variable.value is None else [variable.value]
    if variable.associative and len(variable.elements) > 1:
        return [unknown(f"${{{name}[@]}}", line, many=True)]  # bash gives them in the order of its hash table
    return list(variable.elements.values())


def describe(written: str, names: tuple[str, ...]) -> str:
    """Name a value that is unknown because of one thing by that thing."""
    return names[0] if len(names) == 1 else written


def change(text: str, operator: str, pattern: list[tuple[str, bool]], replacement: str) -> str | None:
    """Apply ``#``, ``%``, ``/``, ``^`` or ``,`` to a text; None for a pattern that is not read."""
    if operator[0] in "^,":
        if pattern:
            return None
        turn = str.upper if operator[0] == "^" else str.lower
        if not text.isascii():
            return None
        return turn(text) if len(operator) == 2 else turn(text[:1]) + text[1:]
    try:
        expression = translate(pattern)
        if operator[0] == "#":
            return remove_prefix(text, expression, longest=operator == "##")
        if operator[0] == "%":
            return remove_suffix(text, expression, longest=operator == "%%")
        return substitute(text, expression, replacement, operator)
    except PatternError:
        return None
