"""What the keys of a program mean, as data: key files (``keys.txt``) and lists of names (``names.txt``) beside its readers.

A line of a key file is one meaning of one key, a key with several meanings has several lines; ``#`` starts a comment::

    zero_optimization.stage   training.zero_stage
    use_liger                 training.use_liger_kernel   stated                 role=actor,reference
    load_in_4bit              model.quantization          on:nf4
    strategy                  training.sharding           sharding
    fsdp                      -
    words: sharding  fsdp=fsdp fsdp2=fsdp mcore=megatron

The third word is a conversion: one of `conversions` (``on:nf4`` gives it an argument), words the file itself lists
(another word leaves the fact open, unless ``otherwise=error`` or the like among them says what it is, see `ByWords`), or a
function that the reader hands in. The fact ``-`` keeps a key in the table without a meaning: its reader decides about it. The
fact ``*`` is any: the key names code that may replace what the program does, or asks for something that no fact tells.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from compatcheck.core.data_file import read_file
from compatcheck.core.document import enclosing_keys
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.conversions import COMMON, WITH_ARGUMENT, ByWords, Convert, invert, read_atom, state_nothing


class Key(NamedTuple):
    """What one key of a configuration means."""

    fact: str
    convert: Convert | None = None
    """Turns the file's value into one `parse_value` accepts; None takes it as it is. May raise ValueError."""
    role: str | None = None
    """The model it is about in reinforcement learning; None for all of them."""
    without: tuple[str, ...] = ()
    """Keys that have to be left out for it to mean this."""


ANYTHING = "*"
"""Fact of a key that may change what a run needs in ways that no fact tells."""
SILENT = (Key("training.trainer", state_nothing),)
"""Meaning of a key that states nothing here."""
Table = dict[str, tuple[Key, ...]]
"""Key → its meanings."""


class Expression(str):
    """What a script gives an argument where it is no literal: a call of a class, which the script has to import."""

    __slots__ = ("module",)
    module: str

    def __new__(cls, text: str, module: str) -> Expression:  # noqa: PYI034 (typing has Self from 3.11 on)
        """Take the text and where the class of the call is imported from."""
        made = super().__new__(cls, text)
        made.module = module
        return made

    @property
    def imports(self) -> str:
        """Return the statement that imports the class."""
        return f"from {self.module} import {self.partition('(')[0]}"


def find_keys(
    table: Mapping[str, tuple[Key, ...]], fact: str, value: object, role: str
) -> Iterator[tuple[str, object]]:
    """Yield the keys that can state a fact for a model, each with every value it may have in a file then."""
    for key, meanings in table.items():
        for one in meanings:
            if one.fact == fact and one.role in {None, role}:
                yield from ((key, given) for given in invert(one.convert, value))


def list_facts(table: Mapping[str, tuple[Key, ...]]) -> frozenset[str]:
    """Return every fact that a key of a table may state."""
    return frozenset(one.fact for meanings in table.values() for one in meanings)


class KeyTable(Mapping[str, tuple[Key, ...]]):
    """The key file of a program, read when it is first asked for."""

    def __init__(
        self,
        reader: str,
        name: str = "keys.txt",
        conversions: Mapping[str, Convert] | None = None,
        *,
        beneath: tuple[KeyTable, ...] = (),
        fields: Mapping[str, str | None] | None = None,
    ) -> None:
        """Name a key file.

        Args:
            reader: ``__file__`` of the reader it lies beside.
            name: of the file.
            conversions: functions of the reader's own that the file names.
            beneath: tables of programs this one is built upon; its own lines replace theirs.
            fields: what stands before a field of the model's configuration (`MODEL_FIELDS`) where the program lays it over
                config.json, with the model it is about, None for all: ``model_config.``; its own lines replace these, too.
        """
        self.path = os.path.join(os.path.dirname(reader), name)
        self._conversions = conversions or {}
        self._beneath = beneath
        self._fields = fields or {}

    @cached_property
    def _parsed(self) -> tuple[Table, dict[str, dict[str, object]]]:
        own, words = parse_key_file(read_file(self.path).decode(), self.path, self._conversions)
        table: Table = {}
        for prefix, role in self._fields.items():
            for key, meanings in MODEL_FIELDS.items():
                table[f"{prefix}{key}"] = tuple(one._replace(role=role) for one in meanings)
        for other in self._beneath:
            table.update(other)
        return own | {key: meanings for key, meanings in table.items() if key not in own}, words

    @property
    def words(self) -> Mapping[str, Mapping[str, object]]:
        """The lists of words in the file, by name."""
        return self._parsed[1]

    def __getitem__(self, key: str) -> tuple[Key, ...]:
        return self._parsed[0][key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed[0])

    def __len__(self) -> int:
        return len(self._parsed[0])


MODEL_FIELDS = KeyTable(__file__, "model_fields.txt")
"""Fields of a model's configuration (transformers ``PretrainedConfig`` and its classes) that decide a fact.

``from_pretrained`` sets them from its keywords, and programs from a mapping that they are given.
"""


def parse_key_file(
    text: str, path: str, conversions: Mapping[str, Convert]
) -> tuple[Table, dict[str, dict[str, object]]]:
    """Parse a key file: the meanings of its keys, and the lists of words in it.

    Raises:
        ValueError: naming file and line.
    """
    table: Table = {}
    words: dict[str, dict[str, object]] = {}
    otherwise: dict[str, str] = {}
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.partition("#")[0].split()
        if parts and parts[0] == "words:":
            _read_words(parts, words, otherwise, f"{path}:{number}")
        elif parts:
            rows.append((number, parts))
    listed = {name: ByWords(found, otherwise.get(name, "open")) for name, found in words.items()}
    known: dict[str, Convert] = {**COMMON, **conversions, **listed}
    for number, parts in rows:
        meanings = _read_row(parts, known, f"{path}:{number}")
        table[parts[0]] = (*table.get(parts[0], ()), *meanings)
    return table, words


def _read_words(parts: list[str], words: dict[str, dict[str, object]], otherwise: dict[str, str], place: str) -> None:
    pairs = [part.partition("=") for part in parts[2:]]
    if not pairs or not all(key and value for key, _, value in pairs):
        msg = f"{place}: expected `words: NAME word=value … [otherwise=value]`"
        raise ValueError(msg)
    name = parts[1]
    words.setdefault(name, {}).update({key: read_atom(value) for key, _, value in pairs if key != "otherwise"})
    otherwise.update((name, value) for key, _, value in pairs if key == "otherwise")


def _read_row(parts: list[str], known: Mapping[str, Convert], place: str) -> tuple[Key, ...]:
    roles: tuple[str | None, ...] = (None,)
    rest = parts[1:]
    if rest and rest[-1].startswith("role="):
        roles = tuple(rest.pop().removeprefix("role=").split(","))
    if len(rest) not in (1, 2):
        msg = f"{place}: expected `KEY FACT [CONVERSION] [role=ROLE,…]`"
        raise ValueError(msg)
    if rest[0] == "-":
        return ()
    convert = _find_conversion(rest[1], known, place) if len(rest) > 1 else None
    return tuple(Key(rest[0], convert, role) for role in roles)


def _find_conversion(word: str, known: Mapping[str, Convert], place: str) -> Convert:
    name, colon, argument = word.partition(":")
    if colon and name in WITH_ARGUMENT:
        return WITH_ARGUMENT[name](read_atom(argument))
    if word not in known:
        msg = f"{place}: {word} is no conversion; known: {', '.join(sorted({*known, *WITH_ARGUMENT}))}"
        raise ValueError(msg)
    return known[word]


class Names(Collection[str]):
    """Names that have no bearing on memory by themselves: words of a file, read when it is first asked for.

    ``section.*`` stands for every key of a section, ``#`` starts a comment.
    """

    def __init__(self, reader: str, name: str = "names.txt") -> None:
        """Name a file beside a reader, given by its ``__file__``."""
        self.path = os.path.join(os.path.dirname(reader), name)

    @cached_property
    def _words(self) -> dict[str, None]:
        lines = read_file(self.path).decode().splitlines()
        return dict.fromkeys(word for line in lines for word in line.partition("#")[0].split())

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        words = self._words
        return key in words or any(f"{outer}.*" in words for outer in enclosing_keys(key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)
