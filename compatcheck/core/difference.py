"""What changes between two environments, or two states of a lock file, for one and the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Fact
    from compatcheck.core.report import Finding, Report

_Read = TypeVar("_Read")
ENTERED, LEFT, STAYED = "entered", "left", "stayed"

DEFAULT_ORIGINS = ("reader-default", "library-default")
"""Origins of values that nobody wrote: they change with a release."""


class PackageChange(NamedTuple):
    """A package whose release differs."""

    name: str
    before: str | None
    """Version, else the specifier it is required with (``""`` allows every release); None where it is not named."""
    after: str | None
    known: bool
    """Whether rules are about it."""


class FindingChange(NamedTuple):
    """One rule for one role on both sides; at least one of them has a finding."""

    before: Finding | None
    after: Finding | None

    @property
    def kind(self) -> str:
        """``entered``, ``left`` or ``stayed``."""
        return ENTERED if self.before is None else LEFT if self.after is None else STAYED

    @property
    def finding(self) -> Finding:
        """The finding as it stands after the change, else as it stood before."""
        found = self.after or self.before
        assert found is not None  # noqa: S101 (see the class)
        return found

    @property
    def newly_fails(self) -> bool:
        """Whether it counts against ``--fail-on`` after the change and did not before: entered, became certain, or grew."""
        return self.after is not None and self.after.fails and not (self.before is not None and self.before.fails)

    def _pair(self, read: Callable[[Finding], _Read]) -> tuple[_Read, _Read] | None:
        """Return what is read of both sides where it differs."""
        if self.before is None or self.after is None:
            return None
        pair = read(self.before), read(self.after)
        return None if pair[0] == pair[1] else pair

    @property
    def statuses(self) -> tuple[str, str] | None:
        """Status before and after where they differ, such as ``possible`` and ``affected``."""
        return self._pair(lambda finding: finding.status)

    @property
    def severities(self) -> tuple[str, str] | None:
        """Severity before and after where they differ."""
        return self._pair(lambda finding: finding.severity)

    @property
    def waived(self) -> tuple[bool, bool] | None:
        """Whether it is waived before and after where that differs: a waiver can end with a release."""
        return self._pair(lambda finding: finding.suppressed is not None)

    @property
    def changed(self) -> bool:
        """Whether it stands on both sides, and not alike."""
        alike = (self.statuses, self.severities, self.waived, self.sizes) == (None,) * 4
        return self.kind == STAYED and (self.newly_fails or not alike)

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Expected bytes before and after where both are known and differ."""
        before, after = self._pair(lambda finding: finding.impact and finding.impact.expected_bytes) or (None, None)
        return None if before is None or after is None else (before, after)


class FactChange(NamedTuple):
    """A fact with another value."""

    role: str
    before: Fact
    after: Fact

    @property
    def flipped(self) -> bool:
        """Whether it is a default that the other release has otherwise: nobody wrote the value on either side."""
        return self.before.origin in DEFAULT_ORIGINS and self.after.origin in DEFAULT_ORIGINS


class Difference(NamedTuple):
    """Everything reporters need of a comparison."""

    names: tuple[str, str]
    """What was compared, as the person named it."""
    before: Report
    """The report about the first side; it has one subject."""
    after: Report
    packages: tuple[PackageChange, ...]
    """By name."""
    findings: tuple[FindingChange, ...]
    """What newly fails first, then entered, stayed, left; each worst first."""
    facts: tuple[FactChange, ...]
    """By name; flipped defaults and what else differs."""
    exit_code: int
    seconds: float = 0.0
    peaks: tuple[Estimate, Estimate] | None = None
    """Estimates of the same run under both; None where no run is described."""

    def of_kind(self, kind: str) -> tuple[FindingChange, ...]:
        """Return the findings that ``entered``, ``left`` or ``stayed``."""
        return tuple(change for change in self.findings if change.kind == kind)
