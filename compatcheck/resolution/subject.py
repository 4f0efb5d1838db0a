"""A subject: one environment with its model, training configuration and hardware, resolved to facts per role."""

from collections.abc import Mapping

from compatcheck.core.document import Document, Gap
from compatcheck.core.environment import Environment
from compatcheck.core.facts import Facts, Value
from compatcheck.core.hardware import Hardware
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source


class Conflict(NamedTuple):
    """Two inputs that state one fact differently where the programs that read them want them equal."""

    fact: str
    values: tuple[tuple[Value, Source], ...]
    refused: bool = False
    """The program compares them itself and does not start."""


class Subject(NamedTuple):
    """What the engine evaluates rules on."""

    id: str
    """Short name in reports: the environment's origin, or the directory of the configuration."""
    environment: Environment | None
    roles: Mapping[str, Facts]
    """``train`` by default; facts by role."""
    documents: tuple[Document, ...] = ()
    """Without what its releases do not know."""
    as_read: tuple[Document, ...] = ()
    """The same with it: another release may."""
    conflicts: tuple[Conflict, ...] = ()
    unresolved: tuple[tuple[str, Source, str], ...] = ()
    """``auto`` values nobody fills in: fact, place, why."""
    unread: tuple[tuple[Source, str | None], ...] = ()
    """Keys that no reader understood, each with the nearest known key."""
    gaps: tuple[Gap, ...] = ()
    """What may set keys and was not read: defaults of these are not known."""
    skipped: tuple[Skipped, ...] = ()
    hardware: tuple[tuple[Hardware, bool], ...] = ()
    """Devices it was resolved with, each with whether it was declared and not measured."""
    settings: Mapping[str, tuple[Value, Source]] = {}
    """``--set`` values it was resolved with, by fact."""
    usual: Mapping[str, Mapping[str, tuple[Value, str]]] = {}
    """By role, facts that nobody states for certain: what the newest release of the program has, or what holds unless a key that
    nobody understood sets it, with whose it is in words."""
    target: str | None = None
    """Machine of the policy it is checked for, where there are several; it stands in ``id`` as well."""
