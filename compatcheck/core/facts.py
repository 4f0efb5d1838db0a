"""Facts: the resolved values that rules are evaluated on, each with its origin and every place it came from."""

from types import MappingProxyType

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source

Value = bool | int | float | str | tuple[str, ...] | None
"""A fact's value; tuples are sets of names. None is an explicit "none" (no quantisation), unknown facts are absent."""

ORIGINS = (
    "set",
    "script",
    "configuration",
    "model",
    "installed",
    "declared",
    "reported",
    "measured",
    "derived",
    "reader-default",
    "library-default",
)
"""How a value became known, strongest first: ``--set``, a launch script's command line, a configuration file, the model's
own files, package metadata, a declared option such as ``--gpu``, what a pasted report says of its
machine, a device query, arithmetic on other facts, the default of
the program that reads the configuration, the default of the library beneath it."""


TRAITS = "program."
"""What the names of facts start with that nobody states: what the code of the program that trains does by itself."""


class Fact(NamedTuple):
    """One value under one name of the vocabulary."""

    name: str
    value: Value
    origin: str
    """One of ``ORIGINS``."""
    sources: tuple[Source, ...] = ()
    note: str | None = None
    """How it was derived, in words: ``gpus_per_node × nodes``, ``default of HF Trainer in transformers 4.48.0``."""
    alternatives: tuple[tuple[Value, Source], ...] = ()
    """Values of lower precedence that differ, and where they stand."""


Facts = MappingProxyType[str, Fact]
"""Facts of one role of one subject by vocabulary name; a name that is absent is unknown."""
