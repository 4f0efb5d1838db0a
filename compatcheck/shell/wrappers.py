"""Commands that start another command: where the inner one begins, what reads it, and which variables reach it.

``wrappers.txt`` lists them and explains its columns; `open_wrapper` takes one off, whatever it is.
"""

from __future__ import annotations

import os
import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_text
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_LAYERS = 12
"""Wrappers and launchers in front of one program; scripts have up to four."""


_SERVES = lazy_compile(r"(?:.*/)?vllm-openai(?:-[\w-]+)?(?::[\w.+-]+)?(?:@sha256:[0-9a-f]+)?", re.ASCII)
"""Images that start ``vllm serve`` with the words behind them: ENTRYPOINT of vLLM's docker/Dockerfile, its module until 0.11."""
_GIVEN = lazy_compile(r"-.*|[\w.-]+/[\w.-]+", re.DOTALL)
"""What such an image is given: an option, or a model of the hub; anything else is a command of its own."""


def serves_itself(image: str, given: str) -> bool:
    """Tell whether an image is started with words of its server, the first of which is ``given``."""
    return _SERVES.fullmatch(image) is not None and _GIVEN.fullmatch(given) is not None


class Shown(NamedTuple):
    """A word as far as it is known."""

    text: str
    """Its text; where a part is not known, as the script spells it."""
    known: bool = True


class Wrapper(NamedTuple):
    """One row of the table."""

    row: str
    """First name of its row."""
    names: tuple[str, ...]
    """The program, and the sub-commands behind it."""
    traits: Mapping[str, frozenset[str]]
    """What the row says, by column."""
    skip: int
    inner: str

    def says(self, trait: str) -> bool:
        """Tell whether a column without a value stands in the row."""
        return trait in self.traits

    def lists(self, trait: str, name: str) -> bool:
        """Tell whether a column lists an option."""
        return name in self.traits.get(trait, ())

    def takes_value(self, name: str) -> bool:
        """Tell whether an option is followed by its value."""
        if any(
            name in self.traits.get(trait, ())
            for trait in ("valued", "text", "pass", "enters", "unset", "marks", "pairs")
        ):
            return True
        return "switches" in self.traits and not self.lists("switches", name) and name not in {"-h", "--help"}


class Part(NamedTuple):
    """A word of a command from an offset on: the value of an option."""

    place: int
    offset: int = 0


class Layer(NamedTuple):
    """A wrapper in front of a command."""

    wrapper: Wrapper
    start: int
    """Where the inner command begins: its first word, or the script or text for a shell."""
    options: tuple[tuple[str, Part | None], ...]
    """Its own options, each with its value."""
    text: Part | None = None
    """The word that is text for a shell."""
    is_module: bool = False
    """Whether what follows is the name of a Python module."""
    cleared: bool = False
    """Whether variables of this shell do not reach the inner command."""

    def given(self, trait: str) -> Iterator[Part]:
        """Yield the values of the options that a column lists."""
        return (part for name, part in self.options if part is not None and self.wrapper.lists(trait, name))

    def passed(self) -> Iterator[Part]:
        """Yield the places where a variable is passed: ``-e A=1``, and ``A=1`` in front of a command."""
        yield from self.given("pass")
        yield from (part for name, part in self.options if not name and part is not None)


def open_wrapper(words: Sequence[Shown]) -> Layer | None:
    """Take the first wrapper off a command; None where it is none."""
    for wrapper in _read_table().get(os.path.basename(words[0].text) if words and words[0].known else "", ()):
        layer = _Opening(wrapper, words).read()
        if layer is not None:
            return layer
    return None


@lru_cache(maxsize=1)
def _read_table() -> dict[str, list[Wrapper]]:
    table: dict[str, list[Wrapper]] = {}
    lines = [line.split() for line in read_text(__file__, "wrappers").splitlines() if line and not line.startswith("#")]
    for commands, *columns in lines:
        pairs = (column.partition("=")[::2] for column in columns)
        traits = {name: frozenset(value.split(",")) - {""} for name, value in pairs}
        skip = int(next(iter(traits.get("skip", ())), "0"))
        inner = next(iter(traits.get("inner", ())), "words")
        for command in commands.split(","):
            names = tuple(command.split("+"))
            table.setdefault(names[0], []).append(Wrapper(commands.partition(",")[0], names, traits, skip, inner))
    return table


class _Opening:
    """One wrapper being read."""

    def __init__(self, wrapper: Wrapper, words: Sequence[Shown]) -> None:
        self.wrapper = wrapper
        self.words = words
        self.at = 1
        self.options: list[tuple[str, Part | None]] = []

    def read(self) -> Layer | None:
        wrapper = self.wrapper
        for name in wrapper.names[1:]:
            self._take_options()
            if self.at >= len(self.words) or self.words[self.at] != Shown(name):
                return None
            self.at += 1
        if self._take_options():
            return self._layer(is_module=True)
        if wrapper.says("assign"):
            self._take_assignments()
        for _ in range(wrapper.skip):
            if wrapper.says("image") and self._serves_itself():
                return self._layer()
            self.at += 1
            self._take_options()
        text = next((part for name, part in self.options if part is not None and wrapper.lists("text", name)), None)
        if text is None and any(wrapper.lists("command", name) for name, _ in self.options):
            text = Part(self.at)
            self.at += 1
        behind = next(iter(wrapper.traits.get("behind", ())), None)
        place = None if behind is None else next((n for n, word in enumerate(self.words) if word.text == behind), None)
        if place is not None:
            self.at = place + 1
        return self._layer(text)

    def _serves_itself(self) -> bool:
        image, *given = (word.text for word in self.words[self.at : self.at + 2])
        return (
            bool(given) and serves_itself(image, given[0]) and all(name != "--entrypoint" for name, _ in self.options)
        )

    def _layer(self, text: Part | None = None, *, is_module: bool = False) -> Layer:
        cleared = self.wrapper.says("elsewhere") or any(self.wrapper.lists("clear", name) for name, _ in self.options)
        return Layer(
            self.wrapper, min(self.at, len(self.words)), tuple(self.options), text, is_module=is_module, cleared=cleared
        )

    def _take_options(self) -> bool:
        """Take options up to the next word that is none; tell whether the last of them says that a module follows."""
        while self.at < len(self.words):
            text = self.words[self.at].text
            if text == "--":
                self.at += 1
                return False
            if text[:1] not in {"-", "+"} or (text[0] == "+" and not self.wrapper.takes_value(text)):
                if not self._may_hold_options():
                    return False
                self.at += 1
                continue
            self._take_option(text)
            if self.wrapper.lists("module", self.options[-1][0]):
                return True
        return False

    def _take_option(self, text: str) -> None:
        place = self.at
        self.at += 1
        name, equals, _ = text.partition("=")
        if equals and (text.startswith("--") or self.wrapper.says("long")):
            self.options.append((name, Part(place, len(name) + 1)))
        elif self.wrapper.takes_value(text) and (text.startswith("--") or len(text) == 2 or self._is_long(text)):
            self.options.append((text, self._take_value()))
            if self.wrapper.lists("pairs", text):
                self.at += 1
        elif text.startswith("--") or self._is_long(text):
            self.options.append((text, None))
        else:
            self._take_cluster(text, place)

    def _is_long(self, text: str) -> bool:
        return self.wrapper.says("long") or any(text in options for options in self.wrapper.traits.values())

    def _take_value(self) -> Part | None:
        if self.at >= len(self.words):
            return None
        self.at += 1
        return Part(self.at - 1)

    def _take_cluster(self, text: str, place: int) -> None:
        """Take ``-xvf value`` apart: the first letter that takes a value ends it."""
        if text == "-":
            self.options.append((text, None))
        for n, letter in enumerate(text[1:], 1):
            name = text[0] + letter
            if self.wrapper.takes_value(name):
                rest = text[n + 1 :]
                self.options.append((name, Part(place, n + 1 + rest.startswith("=")) if rest else self._take_value()))
                return
            self.options.append((name, None))

    def _take_assignments(self) -> None:
        while self.at < len(self.words) and re.match(r"[A-Za-z_]\w*=", self.words[self.at].text):
            self.options.append(("", Part(self.at)))
            self.at += 1

    def _may_hold_options(self) -> bool:
        """Tell whether a word that is not known stands between a wrapper and what it surely starts."""
        if self.words[self.at].known or self.words[self.at].text.strip("\"'").endswith(".py"):
            return False
        return self._last_program > self.at + self.wrapper.skip

    @cached_property
    def _last_program(self) -> int:
        """Place of the last word that names what is started; -1 without one."""
        known = ((n, word.text) for n, word in enumerate(self.words) if word.known)
        started = (
            n for n, text in known if text.endswith(".py") or text == "-m" or os.path.basename(text) in _read_table()
        )
        return max(started, default=-1)
