"""What a run found: findings, what they cost, what would decide the open ones, and what was not checked."""

from __future__ import annotations

from compatcheck.core.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.advisory import Audit
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Fact, Value
    from compatcheck.core.fix import Plan
    from compatcheck.core.source import Skipped, Source
    from compatcheck.core.suppression import Suppression

SEVERITIES = ("info", "low", "medium", "high", "critical")
"""Weakest first."""


class FindingImpact(NamedTuple):
    """What a finding costs, for this model and configuration."""

    expected_bytes: int | None
    """Bytes on one rank, node or job (see ``scope``); None when a fact is missing or no formula is known."""
    low_bytes: int | None
    high_bytes: int | None
    effect: str
    memory: str
    scope: str
    phase: str
    needs: tuple[str, ...] = ()
    """Facts that would give the size."""
    formula: str | None = None
    passing_bytes: int | None = None
    """Bytes of ``expected_bytes`` that are there only while one block is computed."""


class FindingRemedy(NamedTuple):
    """One thing to do, ready to paste."""

    text: str
    """In words: ``upgrade deepspeed to 0.16.8``."""
    command: str | None
    """A pip line, a ``--set``, an ``export``; None when there is none."""
    safety: str
    note: str | None = None
    releases: tuple[tuple[str, str], ...] = ()
    """Every package that moves with it, and the release it gets."""
    settings: tuple[tuple[str, Value], ...] = ()
    """Every fact that it states, with its value."""


class FindingReference(NamedTuple):
    """One upstream place."""

    type: str
    url: str
    date: str | None


class MeasuredSeries(NamedTuple):
    """What was measured behind a rule in releases of one package, all else alike: on a small model, which shows the step."""

    package: str
    metric: str
    probe: str
    backend: str
    parameters: Mapping[str, object]
    points: tuple[tuple[str, float], ...]
    """Release and bytes, the oldest first."""


class Finding(NamedTuple):
    """One rule that matches, or may match, one role of one subject."""

    rule_id: str
    subject: str
    role: str
    kind: str
    title: str
    status: str
    """``affected``: every fact is known; ``possible``: ``needs`` would decide it."""
    severity: str
    confidence: str
    message: str
    impact: FindingImpact | None
    needs: tuple[str, ...]
    assumptions: tuple[str, ...]
    facts: tuple[Fact, ...]
    """The facts the decision used, packages included."""
    locations: tuple[Source, ...]
    remedies: tuple[FindingRemedy, ...]
    references: tuple[FindingReference, ...]
    folklore: tuple[tuple[str, str], ...] = ()
    """(rule id, title) of wrong advice about this finding that people repeat."""
    measured_here: Mapping[str, object] | None = None
    suppressed: Suppression | None = None
    fails: bool = False
    """Whether it counts against ``--fail-on``: not waived, at or above it, and certain or under ``--strict``."""
    rating: str | None = None
    """Why it is critical though the run would start without it: what the run needs with it and without, in words; of one that
    is only possible, with what decides it."""
    aside: bool = False
    """Whether its subject's findings are shown and never fail the run."""
    by_release: bool = False
    """Whether a release of a package brought it in: older ones do not have it."""
    advice: bool = False
    """Whether it is certain and fails no run whatever the threshold: no release is at fault and the run has room for it."""
    measured: MeasuredSeries | None = None
    """The step that the rule is about, over releases; None where no release was measured against another."""
    folded: bool = False
    """Whether it is only counted where a person reads: it costs nothing here, or waits for what this run shows no sign of."""

    @property
    def is_about_fit(self) -> bool:
        """Tell whether it says that a run does not fit, or may not."""
        return any(fact.name == "estimate.needed_bytes" for fact in self.facts)


class SubjectReport(NamedTuple):
    """One subject as the report shows it."""

    id: str
    origin: str
    """What was inspected and how it was chosen, in words."""
    python: str | None
    packages: tuple[tuple[str, str | None, str], ...]
    """Name, version (None when ranged), source."""
    facts: tuple[tuple[str, Fact], ...]
    """Role and fact."""
    unread_keys: tuple[tuple[Source, str | None], ...]
    conflicts: tuple[tuple[str, tuple[tuple[Value, Source], ...]], ...]
    unresolved: tuple[tuple[str, Source, str], ...]
    folded: tuple[tuple[str, int], ...]
    """Packages whose version is unknown, with the number of rules that depend on them."""
    notes: tuple[str, ...] = ()
    complete: bool = True
    waiting: int = 0
    """Rules about packages that are there of which nothing else is known."""
    variables: Mapping[str, str] | None = None
    """Environment variables that matter, credentials hidden; None when not known."""
    optional: frozenset[str] = frozenset()
    """Packages that may as well not be there: unselected extras and groups bring them, or constraints allow them."""
    variables_complete: bool = False
    """Whether a variable that is not listed is known to be unset."""
    gaps: tuple[tuple[Source, str], ...] = ()
    """What was not read and may set keys, so that no default of these is taken: place, why."""
    estimate: Estimate | None = None
    """What one device of the run needs, the certain regressions in it; None where no run is described."""
    aside: bool = False
    """Whether its findings are shown and do not fail the run: an environment that an image does not start."""
    target: str | None = None
    """Machine of the policy it is checked for, where there are several."""
    unselected: tuple[str, ...] = ()
    """Extras and groups that are not selected, with the packages that rules are about and that may be there, in words."""
    stacked: bool = True
    """Whether its packages, if any, hold one of a training stack: one that a rule or the record of a program is about."""

    @property
    def is_checkable(self) -> bool:
        """Tell whether rules could be checked: every rule is about a package."""
        return self.stacked and bool(self.packages)


class NextStep(NamedTuple):
    """What would make more of a check."""

    reason: str
    """What lies here or is missing, in words."""
    commands: tuple[str, ...]
    """Ready to paste; a path in capitals is the person's to fill in."""


class Report(NamedTuple):
    """Everything reporters need."""

    version: str
    """Release of compatcheck."""
    database_id: str
    database_date: str
    database_rules: int
    subjects: tuple[SubjectReport, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    exit_code: int
    threshold: str
    """``--fail-on`` as given."""
    strict: bool = False
    waiver_notes: tuple[str, ...] = ()
    """Unused and expired waivers."""
    seconds: float = 0.0
    """Time from reading the options to the finished report."""
    policy: str | None = None
    """Policy file that took part."""
    audit: Audit | None = None
    """Security advisories about the same packages; None without ``--security``."""
    plans: tuple[Plan, ...] = ()
    """What clears the findings that fail, for each group of subjects that share files; not asked of a resolver."""
    stood_before: int | None = None
    """Findings and advisories that an earlier report has, too, and this one leaves out; None without ``--baseline``."""
    next_step: NextStep | None = None
    """What a person can run where little could be checked."""


def severity_rank(severity: str) -> int:
    """Return the position of a severity, 0 for ``info``."""
    return SEVERITIES.index(severity)
