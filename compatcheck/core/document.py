"""What a configuration file says, key by key, before anything is merged, defaulted or derived."""

from typing import NamedTuple

from compatcheck.core.source import Skipped, Source


class Auto:
    """The value ``auto`` of a DeepSpeed or accelerate file: to be filled in by the program that owns it."""

    def __repr__(self) -> str:
        """Show as the word that stands in the file."""
        return "auto"


AUTO = Auto()


class Statement(NamedTuple):
    """One key of a document, translated to the vocabulary where it has a meaning there."""

    fact: str | None
    """Vocabulary name, or None when the key is known to have no bearing on memory."""
    key: str
    """Key as the file writes it, dotted: ``zero_optimization.offload_optimizer.device``."""
    value: object
    """Converted value, ``AUTO``, or the raw value when ``fact`` is None."""


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
    """Other inputs this one names: (kind, path or id, key); kinds are ``model``, ``deepspeed``, ``accelerate``."""
    named: bool = False
    """Whether the person named this file: then a file that it names counts as named by them too."""
