"""What is installed, locked or required: distributions, components and damage, read from metadata."""

from __future__ import annotations

from compatcheck.core.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.hardware import Hardware
    from compatcheck.core.selection import Choice
    from compatcheck.core.source import Skipped, Source


TOGETHER = "resolved_with"
"""Detail of a package: the command that installs it, one resolution for all that it names."""


UNLIKE, UNEQUAL = "unlike_other_nodes", "unequal_to_other_nodes"
"""Kind of damage of an environment that is not that of the other nodes of its job."""


DEVELOPMENT = "development"
"""Detail of a package whose sources call themselves a development version: which one."""


class Package(NamedTuple):
    """One distribution or component of an environment, pinned or ranged."""

    name: str
    """Canonical name (PEP 503): ``flash-attn``; components are ``cuda``, ``cudnn``, ``nccl``, ``cublas``, ``driver``."""
    version: str | None
    """Version as written by its metadata, local label included; None when only a range is known."""
    source: Source
    specifier: str | None = None
    """PEP 440 specifier set as required, when ``version`` is None; ``""`` allows every release."""
    details: Mapping[str, str] = {}
    """More that the input says about it: ``editable``, ``installer``, ``direct_url``; credentials removed."""
    is_optional: bool = False
    """Whether it may as well not be there: a constraint allows it, an extra or group that nobody selected would bring it, or a
    step that may not run installs it."""
    brought_by: tuple[Choice, ...] = ()
    """The unselected extras and groups that would bring it, each by itself."""


class Damage(NamedTuple):
    """Something wrong with the environment itself, shown as a finding."""

    kind: str
    """``duplicated`` (two dist-infos of one distribution), ``mismatched`` (metadata, the name of its
    directory and version file disagree), ``pip_over_conda``,
    ``contradictory`` (requirements that no release satisfies), ``built_for_another_torch``, ``refused_by_pins``,
    ``unlike_other_nodes`` (`UNLIKE`), ``unequal_to_other_nodes`` (`UNEQUAL`)."""
    package: str
    detail: str
    """The two versions, in words."""
    sources: tuple[Source, ...]
    statements: tuple[str, ...] = ()
    """What each source says, where they contradict each other."""


class Environment(NamedTuple):
    """One set of packages that would be imported together."""

    origin: str
    """What was inspected, in words a person recognises: ``/venv/bin/python``, ``requirements.txt``."""
    packages: Mapping[str, Package]
    """Distributions by canonical name."""
    complete: bool
    """Whether a package that is not listed is absent (installed environment, lock, image) or unknown
    (requirements file)."""
    python: str | None = None
    """Version of the interpreter, ``3.11.7``."""
    components: Mapping[str, Package] = {}
    """``cuda``, ``cudnn``, ``nccl``, ``cublas``, ``triton``, ``driver``: what the stack runs on, whatever ships it."""
    facts: Mapping[str, tuple[object, Source]] = {}
    """Further vocabulary facts the metadata states, such as ``runtime.cxx11_abi``."""
    variables: Mapping[str, str] | None = None
    """Environment variables of the process or declared ones; None when not known."""
    variables_complete: bool = False
    """Whether a variable that is not listed is known to be unset."""
    variables_source: Source | None = None
    hardware: Hardware | None = None
    """Devices and driver the input itself speaks of, as a pasted report does."""
    damage: tuple[Damage, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks such as ``.pth`` lines that would run code and were not followed."""
    offered: frozenset[Choice] = frozenset()
    """Extras and groups that can be selected of it."""
    to_resolve: bool = False
    """Whether an installer is still to find releases that satisfy all of it, and what they require of each other; what is
    installed, locked or in an image was settled in one way or another."""
    unlisted: tuple[str, ...] = ()
    """Packages that a program of the run imports and that are not listed: it runs from a checkout, of any release."""
