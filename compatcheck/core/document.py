"""What a configuration file says, key by key, before anything is merged, defaulted or derived."""

from __future__ import annotations

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.textfile import MAX_DEPTH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from compatcheck.core.source import Skipped, Source

ROLES = ("actor", "critic", "reference", "reward", "rollout", "teacher")
"""What a model is for in reinforcement learning, the trained policy first; a teacher scores in an engine of its own."""


SECTION = "#"
"""Parts a kind of reference from the section that the named file is of it: ``hf_trainer#fsdp_config``."""
MISSING = "missing"
"""Reader of a file that is named and could not be read: what it would decide is open."""


class Auto:
    """The value ``auto`` of a DeepSpeed or accelerate file: to be filled in by the program that owns it."""

    def __repr__(self) -> str:
        """Show as the word that stands in the file."""
        return "auto"


AUTO = Auto()

LEFT_OUT = " (left out)"
"""Ends the key of a statement that rests on that key not being there."""


SPREADING = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""Device maps by which one process spreads a model over all devices that it sees (accelerate)."""


DEFAULTS = "defaults"
"""Key of what a file composes from, in files of Hydra and others like them."""
HIDDEN = "…"
"""Stands for a key that is not said: its file lies outside of what was named."""
BENEATH = "beneath"
"""Kind of a reference to a file in the sources of a program that says what it has for keys left out, where it is there."""
CODE = "code"
"""Kind of a reference to the program's own code, which says what it builds of a run, where it is there."""


class Statement(NamedTuple):
    """One key of a document, translated to the vocabulary where it has a meaning there."""

    fact: str | None
    """Vocabulary name, or None when the key is known to have no bearing on memory."""
    key: str
    """Key as the file writes it, dotted: ``zero_optimization.offload_optimizer.device``."""
    value: object
    """Converted value, ``AUTO``, or the raw value when ``fact`` is None."""
    role: str | None = None
    """One of ``ROLES`` when it is about that model alone; None when it holds for all of them."""
    without: tuple[str, ...] = ()
    """Keys that it takes to be left out; `LEFT_OUT` behind its own key says the same of that one."""
    asks: tuple[str, ...] = ()
    """Keys whose values decide it beside its own: where one of them is not known, it is not either."""


class Unresolved(NamedTuple):
    """A key that is there with a value nobody can tell from the file: ``trainer.nnodes=$N_NODES``."""

    fact: str | None
    """What it would decide, None when it has no bearing on memory or would only name another file."""
    key: str
    why: str
    """What the value depends on, in words."""
    role: str | None = None
    written: str | None = None
    """The value as it is spelled, with what is known filled in, where that may tell something: ``$HOME/models/Qwen2.5-7B``."""
    follows: bool = False
    """Whether no key decides it and no default does: it follows from other facts where these are known."""
    without: tuple[str, ...] = ()
    """Keys that have to be left out, for it decides nothing where one is given: something else does."""


TAKEN_AS_EMPTY = "assumed: no arguments are given"
"""Ends what is said of a gap that is taken as empty."""
TAKEN_AS_IDLE = "assumed: it changes nothing"
"""Ends what is said of code that may replace anything a program does."""


NOT_UNDERSTOOD = "is not understood"
"""Why of a key that no reader knows."""


class Gap(NamedTuple):
    """A part of what a program is given that was not read: no key that it may set is known to be left out."""

    source: Source
    why: str
    """What it may do, in words: ``may hold any option``."""
    key: str | None = None
    """Key that nobody understood; None where it may set any key: a list of words, a file."""
    added: bool = False
    """Whether the key is one that its program's configuration did not have, and so no other name of one that it has."""
    assumed: bool = False
    """Whether it is taken as empty: defaults stand, and a verdict that says no does not rest on them."""
    facts: frozenset[str] | None = None
    """What alone it may set, where that is known: an object that a function is given carries no more."""
    anew: bool = False
    """Whether it sets arguments, whatever the command line gives them; which, nobody can tell."""


def enclosing_keys(key: str) -> Iterator[str]:
    """Yield the keys around a dotted one, the innermost first; of one with more levels than are read, the outer ones."""
    parts = key.split(".", MAX_DEPTH)
    for length in range(len(parts) - 1, 0, -1):
        yield ".".join(parts[:length])


class Document(NamedTuple):
    """One configuration file as its reader understood it."""

    reader: str
    """``hf_trainer``, ``trl``, ``deepspeed``, ``accelerate``, ``model``, ``native``, …; owns the defaults of left-out keys."""
    source: Source
    statements: tuple[Statement, ...]
    unread: tuple[tuple[str, str | None], ...] = ()
    """Keys no one understood, each with the nearest known key."""
    skipped: tuple[Skipped, ...] = ()
    """Files this one names that could not be read."""
    references: tuple[tuple[str, str, str], ...] = ()
    """Other inputs this one names: (kind, path or id, key); kinds are ``model``, ``deepspeed``, ``hf_trainer#fsdp_config``."""
    changed: Mapping[str, str | None] = {}
    """What those among them hold that are written on the way, so that what lies there is not what is read; None is unknown."""
    named: bool = False
    """Whether the person named this file: then a file that it names counts as named by them too."""
    is_command: bool = False
    """Whether it is the command line of a launch script, which wins over the files it names."""
    of_fields: bool = False
    """Whether it is what the fields of a script's own classes hold, which a command and a file of arguments win over."""
    of_code: frozenset[str] | None = None
    """Keys that code sets by itself, which no command line and no file of arguments reaches; None for what is no code."""
    of_others: frozenset[str] = frozenset()
    """Keys that code hands to transformers where it loads the model: no releases of its program say anything of these."""
    calls: Mapping[str, int] = {}
    """Line of the call that would take a key which code does not give; under an empty name, of the one that takes all others.

    Then none of them is an option of the command.
    """
    lines: Mapping[str, int] = {}
    """Line of each key, where the reader knows it; other lines are located lazily."""
    uses: Mapping[str, int] = {}
    """Line of the command that uses a key's value, where the value was written in another one."""
    unresolved: tuple[Unresolved, ...] = ()
    """Keys whose value depends on what the file does not tell; no default applies to them."""
    gaps: tuple[Gap, ...] = ()
    """What was not read beside the keys nobody understood."""
    doubtful: tuple[Statement, ...] = ()
    """What is stated and may be set anew by what was not read: no fact, and the best that an estimate can assume."""
    table: Mapping[str, tuple[Any, ...]] = {}
    """What each key of its program means in this run, as it was read by: `compatcheck.frameworks.keys` inverts it."""
    options: Mapping[str, Any] = {}
    """Arguments by key as they are written, where a command and the file it composes from are read as one (`composition`)."""
    passed: Mapping[str, Any] | None = None
    """Options of a command by name, for a parser in the script that it starts; None where it may give any."""
    own_loop: bool = False
    """Whether it is a script that trains in a loop of its own: no Trainer takes what its command says."""
    own_options: frozenset[str] = frozenset()
    """Options of a script's own that are read where the script takes them, whatever else understands them."""
    beneath: tuple[Document, ...] = ()
    """What the sources of its program, in whose checkout it lies, have for keys left out, where releases differ in it."""
    searched: tuple[str, ...] = ()
    """Directories in which what it composes from is looked for, where it does not lie beside it (``hydra.searchpath``)."""
    added: frozenset[str] = frozenset()
    """Keys that its program takes only where its configuration does not have them: ``+key=value`` of Hydra."""

    def place(self, key: str) -> Source:
        """Return where a key stands; a key inside another one stands where that does."""
        for outer in (key, *enclosing_keys(key)):
            line = self.lines.get(outer)
            if line is not None:
                return self.source._replace(key=key, line=line, used=self.uses.get(outer))
        line = self.calls.get(key.partition(".")[0], self.calls.get(""))
        return self.source._replace(key=key) if line is None else self.source._replace(key=key, line=line)
