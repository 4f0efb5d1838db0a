"""Errors a person can act on: what failed, on which input, what to do next."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.core.source import Source

EXIT_CLEAN = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_NOTHING_TO_CHECK = 3
EXIT_UNREADABLE_INPUT = 4
EXIT_INTERNAL_ERROR = 70
EXIT_INTERRUPTED = 130


class CompatcheckError(Exception):
    """Base of every error that is reported to a person instead of raised as a bug."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, source: Source | None = None, hint: str | None = None) -> None:
        """Keep the message, the place it is about and the remedy apart."""
        super().__init__(message)
        self.message = message
        self.source = source
        self.hint = hint

    def __str__(self) -> str:
        """Format as ``place: message``."""
        return self.message if self.source is None else f"{self.source}: {self.message}"


class UsageError(CompatcheckError, ValueError):
    """An option, a policy or a value given on the command line makes no sense."""


class RuleError(CompatcheckError, ValueError):
    """A rule file, table or vocabulary entry is not well formed."""


class InputError(CompatcheckError, ValueError):
    """An input named by the person could not be read or understood."""

    exit_code = EXIT_UNREADABLE_INPUT


class NoEnvironmentError(InputError):
    """An input is whole and holds no environment that is checked: an SBOM of no Python, a lock for other systems.

    It fails no commit, whose files a person did not choose for this check.
    """


class NothingToCheckError(CompatcheckError):
    """The inputs hold no environment and no configuration."""

    exit_code = EXIT_NOTHING_TO_CHECK
