"""What a program's folder offers: a reader of its configuration files, of its command lines, or of both.

Both are modules: ``configuration.py`` is a `ConfigurationReader`, ``command.py`` a `CommandReader`. `registry` lists the folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.frameworks.keys import Key
    from compatcheck.frameworks.launch.program import Launch


class Reading(NamedTuple):
    """What one configuration file gave, or one command of a launch script."""

    documents: tuple[Document, ...] = ()
    """The file's own first; none where it is one of the program's files that train nothing."""
    environment: Environment | None = None
    """Packages or variables that a file declares."""
    variables: Mapping[str, str] = {}
    """Environment variables a launch script sets for its command."""
    label: str | None = None
    """Name of this run where one script starts several: ``train.sh:12``."""
    is_launch: bool = False
    """Whether this is a run of its own, a command of a launch script."""
    notes: tuple[str, ...] = ()
    """What the reading of a launch script rests on."""


class ConfigurationReader(Protocol):
    """``configuration.py`` of a program's folder."""

    @property
    def READER(self) -> str:  # noqa: N802 (a constant of the module)
        """Name of the program as documents carry it: owner of the defaults of left-out keys."""

    @property
    def LABEL(self) -> str:  # noqa: N802
        """Name of the program as people write it."""

    @property
    def TABLE(self) -> Mapping[str, tuple[Key, ...]]:  # noqa: N802
        """What its keys mean."""

    def recognise(self, data: Mapping[str, Any]) -> bool:
        """Tell whether a parsed file is one of this program's."""

    def read(self, data: Mapping[str, Any], path: str) -> Reading:
        """Translate a parsed file.

        Raises:
            InputError: nothing in it was understood.
        """


class Composer(Protocol):
    """``configuration.py`` of a program that makes one configuration of a file and of what a command says over it."""

    def compose(self, *documents: Document) -> tuple[Document, ...]:
        """Translate documents as one configuration, from the options that they hold; what comes first wins."""


class CommandReader(Protocol):
    """``command.py`` of a program's folder."""

    def recognise(self, launch: Launch) -> str | None:
        """Tell which of the program's kinds of training a launch starts; empty for one that is known and not read.

        Returns:
            None for other programs.
        """

    def read(self, launch: Launch, kind: str) -> tuple[Document, ...]:
        """Translate a launch of that kind; what its own options say comes first."""
