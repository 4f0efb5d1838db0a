"""What changes between two environments, or two states of a lock file, for one and the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Fact
    from compatcheck.core.report import Finding, Report

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

    @property
    def statuses(self) -> tuple[str, str] | None:
        """Status before and after where they differ, such as ``possible`` and ``affected``."""
        if self.before is None or self.after is None or self.before.status == self.after.status:
            return None
        return self.before.status, self.after.status

    @property
    def severities(self) -> tuple[str, str] | None:
        """Severity before and after where they differ."""
        if self.before is None or self.after is None or self.before.severity == self.after.severity:
            return None
        return self.before.severity, self.after.severity

    @property
    def waived(self) -> tuple[bool, bool] | None:
        """Whether it is waived before and after where that differs: a waiver can end with a release."""
        if self.before is None or self.after is None:
            return None
        waived = self.before.suppressed is not None, self.after.suppressed is not None
        return None if waived[0] == waived[1] else waived

    @property
    def changed(self) -> bool:
        """Whether it stands on both sides, and not alike."""
        alike = (self.statuses, self.severities, self.waived, self.sizes) == (None,) * 4
        return self.kind == STAYED and (self.newly_fails or not alike)

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Expected bytes before and after where both are known and differ."""
        if self.before is None or self.after is None or self.before.impact is None or self.after.impact is None:
            return None
        sizes = self.before.impact.expected_bytes, self.after.impact.expected_bytes
        if sizes[0] is None or sizes[1] is None or sizes[0] == sizes[1]:
            return None
        return sizes[0], sizes[1]


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
