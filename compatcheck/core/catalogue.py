"""A catalogue of messages: ``.po`` files of gettext, looked up by an English sentence whole, or by the template it comes of."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.columns import is_narrow
from compatcheck.core.data_file import read_file
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESCAPED = re.compile(r'\\[n"\\]')
_ESCAPES = {r"\n": "\n", r"\"": '"', r"\\": "\\"}
_NAME = re.compile(r"\{(\w*)\}")
_WORD = re.compile(r"(?<![\w{}])[A-Za-z]+(?![\w{}])")
_LOOSE = ("; ", ": ", " · ", " + ", " → ")
"""What stands between sentences and parts of them, the loosest first."""
_CLOSE = (", ", " × ", " / ")
"""What stands within a sentence, before a note in brackets behind it."""
_FILES = ("messages", "rules")
_NARROW = {"：": ": ", "；": "; ", "，": ", ", "（": " (", "）": ")"}
"""Signs of a language with wide ones → what stands beside a sentence that stayed English."""
_ENGLISH = re.compile(
    r"(?<![\w.`'\"/-])(?:an|the|and|are|is|was|were|has|have|had|not|nor|of|to|by|for|from|in|it|its|that|which|with)(?![\w.`'\"/-])"
)
"""Words of a sentence, and not of names, numbers and commands."""
_IDEOGRAPH, _LATIN = re.compile("[\u4e00-\u9fff]"), re.compile("[A-Za-z0-9]")
_TYPED = {"threshold"}
"""Placeholders for what a person types, and so stays as it is."""


class Entry(NamedTuple):
    """One message with its translation."""

    context: str
    """Id of the rule whose text it is; empty for what the program says."""
    message: str
    """English, with ``{name}`` for what differs."""
    translation: str


_SIZE = r"[\d.,]+ (?:[KMGT]i)?B"
_OWNER = r"(?:\S+ \(block at line \d+\)(?=\.)|\S+'s )?"
"""Begins the name of code in a pasted text, or of a file that a program ships."""
_WHOLE = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*?"
"""Any text in which each bracket that opens closes."""
_KINDS = {
    "count": r"[\d,]+",
    "size": rf"{_SIZE}(?: … {_SIZE})?(?: \([\d.]+[^()]*\))?",
    "text": ".*?",
    "inner": r"[^()]*",
    "plain": r"[^();:,]+",
    "number": r"[+-]?[\d.,]+%?",
    "role": "actor|critic|policy|reference|reward|rollout|teacher|train",
    "version": r"\d\S*",
    "severity": "critical|high|medium|low|info",
    "rule": r"[\w.-]+/[\w.-]+",
    "place": rf"{_OWNER}\S*[./:]\S*(?: \([^()]*\))?",
}
"""What may stand for a placeholder, by its name up to ``_``; for any other one a word."""


class _Template:
    """A sentence with placeholders, that is recognised by what stands between them."""

    def __init__(self, message: str, translation: str) -> None:
        """Keep both; the expression is compiled for the first sentence that has the pieces."""
        parts = _NAME.split(message)
        self.pieces, self.names, self.translation = parts[::2], parts[1::2], translation
        self.has_words = any(sign.isalpha() for sign in "".join(self.pieces))
        self.word = max(_WORD.findall(message), key=len, default="")
        """One that stands by itself in every such sentence."""
        self._patterns: dict[bool, re.Pattern[str]] = {}
        """For texts in which each bracket that opens closes, and for others."""

    def match(self, text: str) -> dict[str, str] | None:
        """Return what stands for each placeholder; None for another sentence."""
        if not text.startswith(self.pieces[0]) or not text.endswith(self.pieces[-1]):
            return None
        if not all(piece in text for piece in self.pieces):
            return None
        whole = _is_whole(text)
        if whole not in self._patterns:
            given = {**_KINDS, "text": _WHOLE} if whole else _KINDS
            kinds = [given.get(name.partition("_")[0], r"\S*?") for name in self.names]
            groups = [f"(?P<{name}>{kind})" for name, kind in zip(self.names, kinds, strict=True)]
            escaped = [re.escape(piece) for piece in self.pieces]
            self._patterns[whole] = re.compile(
                escaped[0] + "".join(map("".join, zip(groups, escaped[1:], strict=True)))
            )
        found = self._patterns[whole].fullmatch(text)
        return None if found is None or (whole and not all(map(_is_whole, found.groups()))) else found.groupdict()


class Catalogue:
    """Translations of one language."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        """Sort the messages into those that are one sentence and templates, the most specific first."""
        self._whole = {entry.message: entry.translation for entry in entries if entry.translation}
        templates = [_Template(*pair) for pair in self._whole.items() if _NAME.search(pair[0])]
        self._templates: dict[str, list[tuple[int, _Template]]] = {}
        """Templates with their rank by a word that only they and few others have; those without any by nothing."""
        for rank, template in enumerate(sorted(templates, key=lambda one: -sum(map(len, one.pieces)))):
            self._templates.setdefault(template.word, []).append((rank, template))

    def translate(self, text: str) -> str:
        """Translate a sentence, and sentences within it; what is not known stays as it is."""
        whole = self._whole.get(text)
        if whole is not None or " " not in text:
            return text if whole is None else whole
        if "\n" in text:
            return "\n\n".join(self.translate(" ".join(part.split())) for part in text.split("\n\n"))
        if ". " in f"{text} " or not is_narrow(
            text
        ):  # prose, that is known whole or not at all; what was translated before
            return text
        words = {"", *_WORD.findall(text)}
        for _, template in sorted(ranked for word in words for ranked in self._templates.get(word, ())):
            values = template.match(text)
            if values is None:
                continue
            said = {name: value if name in _TYPED else self.translate(value) for name, value in values.items()}
            if template.has_words or _tells(values.values(), said.values()):
                parts = _NAME.split(template.translation)
                return _put_together(parts[::2], [said[name] for name in parts[1::2]])
        return self._translate_parts(text)

    def _translate_parts(self, text: str) -> str:
        """Translate the parts of what is no sentence that is known; as it is where none of more than a word is known."""
        if text.startswith(" "):
            return " " * (len(text) - len(text.lstrip())) + self.translate(text.lstrip())
        return (
            self._translate_joined(text, _LOOSE)
            or self._translate_note(text)
            or self._translate_joined(text, _CLOSE)
            or text
        )

    def _translate_joined(self, text: str, joints: tuple[str, ...]) -> str | None:
        """Translate what stands between joints; None where none of it is known."""
        for joint in joints:
            parts = _split(text, joint)
            if joint == ": ":  # what follows may be a sentence with a colon of its own
                parts = [parts[0], *([joint.join(parts[1:])] if parts[1:] else [])]
            if len(parts) > 1:
                said = [self.translate(part) for part in parts]
                if _tells(parts, said):
                    between = [self._whole.get(joint, joint)] * (len(parts) - 1)
                    return _put_together(["", *between, ""], said)
        return None

    def _translate_note(self, text: str) -> str | None:
        """Translate a sentence and what stands in brackets behind it; None where neither is known."""
        start = _find_bracket(text)
        if start > 0 and text[start - 1] == " ":
            outer, inner = text[:start].rstrip(), text[start + 1 : -1]
            said = [self.translate(outer), self.translate(inner)]
            if _tells((outer, inner), said):
                return _put_together(["", self.translate(" ("), self.translate(")")], said)
        return None


def _is_whole(text: str) -> bool:
    """Tell whether each bracket of a text that opens closes in it, the other way round, too, in at most two levels."""
    return re.fullmatch(_WHOLE, text) is not None


def _tells(parts: Iterable[str], said: Iterable[str]) -> bool:
    """Tell whether any part of several words was translated; single words may be names of something else."""
    return any(one != part and " " in part for part, one in zip(parts, said, strict=True))


def _put_together(pieces: list[str], values: list[str]) -> str:
    """Put values between the pieces of a sentence; the signs beside one that stayed English are English."""
    for index, value in enumerate(values):
        if not is_narrow(value) or _ENGLISH.search(value) is None:
            continue
        before, after = pieces[index], pieces[index + 1]
        if before[-1:] in _NARROW:
            pieces[index] = before[:-1] + _NARROW[before[-1]]
        if after[:1] in _NARROW:
            pieces[index + 1] = _NARROW[after[0]] + after[1:]
    said = pieces[0]
    for value, piece in zip(values, pieces[1:], strict=True):
        said = _join(_join(said, value), piece)
    return said


def _join(left: str, right: str) -> str:
    """Join two texts with a blank between a Chinese character and a Latin letter or digit, none between Chinese ones or signs."""
    if right[:1] in _NARROW and left.strip():
        return left.rstrip() + right
    if _IDEOGRAPH.match(right) and left.endswith(" ") and _IDEOGRAPH.match(left[-2:]):
        return left[:-1] + right
    before, after = left[-1:], right[:1]
    apart = (_IDEOGRAPH.match(before) and _LATIN.match(after)) or (_LATIN.match(before) and _IDEOGRAPH.match(after))
    return f"{left} {right}" if apart else left + right


def _split(text: str, joint: str) -> list[str]:
    """Split a text where a joint stands outside of brackets and code."""
    parts, held = [], ""
    for piece in text.split(joint):
        held = f"{held}{joint}{piece}" if held else piece
        if held.count("(") == held.count(")") and held.count("`") % 2 == 0:
            parts.append(held)
            held = ""
    return [text] if held else parts


def _find_bracket(text: str) -> int:
    """Return where the bracket opens that closes at the end of a text; -1 where none does."""
    depth = 0
    for index in range(len(text) - 1, -1, -1) if text.endswith(")") else ():
        depth += (text[index] == ")") - (text[index] == "(")
        if not depth:
            return index
    return -1


@lru_cache(maxsize=1)
def open_catalogue(directory: str) -> Catalogue:
    """Open the catalogue of a directory of ``locale/``."""
    return Catalogue(tuple(entry for name in _FILES for entry in read_entries(directory, name)))


def read_entries(directory: str, name: str) -> tuple[Entry, ...]:
    """Read the entries of ``locale/DIRECTORY/NAME.po``; without its header and what a translator has marked as fuzzy."""
    package = os.path.dirname(os.path.dirname(__file__))
    text = read_file(os.path.join(package, "locale", directory, f"{name}.po")).decode()
    entries = (_read_entry(block) for block in text.split("\n\n"))
    return tuple(entry for entry in entries if entry.message)


def _read_entry(block: str) -> Entry:
    """Read one entry: keywords with strings as in C, which go on over lines of their own."""
    said = {"msgctxt": "", "msgid": "", "msgstr": ""}
    keyword = ""
    for line in block.splitlines():
        if line.startswith("#, ") and "fuzzy" in line:
            return Entry("", "", "")
        named, quote, rest = line.partition('"')
        if quote and not line.startswith("#"):
            keyword = named.strip() or keyword
            said[keyword] += rest.rstrip()[:-1]
    return Entry(*(_ESCAPED.sub(lambda found: _ESCAPES[found[0]], text) for text in said.values()))
