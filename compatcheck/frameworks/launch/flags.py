"""Options of a command line as argparse reads them: ``--name value``, ``--name=value``, switches, lists of words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Gap
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.launch.values import Argument, as_argument, unknown_argument

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from compatcheck.core.command import Word


class Flags(NamedTuple):
    """A command line taken apart."""

    options: dict[str, Argument]
    """By name without dashes, dashes inside it as underscores; the last one of a name counts, as in argparse."""
    positional: tuple[Word, ...]
    unknown: tuple[Word, ...]
    """Words that may hold any option: ``$EXTRA_ARGS`` where an option would stand."""


def parse_flags(
    words: Iterable[Word], *, switches: Collection[str] = (), single: bool = False, lists: Collection[str] = ()
) -> Flags:
    """Take a command line apart.

    Args:
        words: the arguments.
        switches: options that never take a value (``action="store_true"``), where that matters for what follows them.
        single: whether an option takes one word at most, so that further words are positional.
        lists: options that take several all the same.
    """
    taken: dict[str, list[Word]] = {}
    inline: dict[str, Argument] = {}
    places: dict[str, int | None] = {}
    positional: list[Word] = []
    unknown: list[Word] = []
    current: str | None = None
    for word in words:
        name, value = split_flag(word)
        if name is not None:
            places[name] = word.source.line
            inline.pop(name, None)
            taken[name] = []
            current = None if name in switches else name
            if value is not None:
                inline[name] = value
                current = None
        elif _may_be_options(word, after_value=current is None or bool(taken[current])):
            unknown.append(word)
            if current is not None and not taken[current]:
                taken[current].append(word)
            current = None
        elif current is not None:
            taken[current].append(word)
            current = None if single and current not in lists else current
        elif word.text is None:
            unknown += [] if _PATH.match(word.written) else [word]
        else:
            positional.append(word)
    options = {name: inline.get(name) or _value(taken[name], line) for name, line in places.items()}
    return Flags(options, tuple(positional), tuple(unknown))


_LIST = lazy_compile(
    r"arg|opt|flag|extra|param|overrid|config|\[[@*]\]"
    r"|^(?:\$\(|`)(?!(?:.*[\s;&|(])?(?:pwd|dirname|basename|realpath|readlink|mktemp|date|hostname|nproc|wc)\b[^;&|]*"
    r"(?:\|\s*(?:tr\s+-d|xargs)\b[^;&|]*)?$)",
    re.IGNORECASE,
)
"""What the names of variables that hold options have in them, and of those that hold one value have not; arrays, output but that
of a command that prints one value."""
_PATH = lazy_compile(r"^[^-$`]*/|\$(?:\w+|\{\w+\})/")
"""What makes a path of a word: text with a slash in front of what is not known, or a slash behind a variable."""


def _may_be_options(word: Word, *, after_value: bool) -> bool:
    """Tell whether an unknown word may hold options, and not only the value of the option before it."""
    if word.text is not None or not word.many or _PATH.search(word.written) is not None:
        return False
    if word.unresolved and all(one.startswith("$((") for one in word.unresolved):
        return False  # a number
    return after_value or any(map(_LIST.search, word.unresolved))


def split_flag(word: Word) -> tuple[str | None, Argument | None]:
    """Return an option's name and the value behind its equals sign; no name for a word that is no option."""
    text = word.written.strip("\"'") if word.text is None else word.text
    if not text.startswith("--") or text == "--":
        return None, None
    name, equals, value = text[2:].partition("=")
    if "$" in name or "`" in name or not name or " " in name:
        return None, None
    if word.text is None and not equals:
        return None, None
    return name.replace("-", "_"), as_argument(word, value) if equals else None


def _value(words: list[Word], line: int | None) -> Argument:
    if not words:
        return Argument(True, line)
    unknown = next((word for word in words if word.text is None), None)
    if unknown is not None:
        return unknown_argument(unknown, unknown.written if len(words) == 1 else None)
    values = [as_argument(word).value for word in words]
    return Argument(values[0] if len(values) == 1 else values, words[0].source.line, None, words[0].source.used)


def known_values(options: dict[str, Argument]) -> dict[str, object]:
    """Return the options whose value is known."""
    return {name: argument.value for name, argument in options.items() if argument.why is None}


def gaps_of_words(words: Iterable[Word]) -> tuple[Gap, ...]:
    """Return the gaps that unknown words of a command leave."""
    return tuple(Gap(word.source._replace(key=word.written), "may hold any option") for word in words)
