"""Estimates of the runs a command is asked about: what each device holds, whether it fits, and what would make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.checking.checks import checks_of, open_criteria
from compatcheck.checking.fit import does_not_run, price
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.report import list_skipped
from compatcheck.checking.stack import name_unselected
from compatcheck.checking.tracer import Untraced
from compatcheck.checking.verdict import Variants
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT, UsageError
from compatcheck.core.estimate import Assumption, total
from compatcheck.core.estimate_report import Doubts, EstimateReport
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.progress import follow
from compatcheck.core.redaction import redact
from compatcheck.core.setting_names import is_about_memory
from compatcheck.core.units import format_bytes
from compatcheck.frameworks.lines import LineFinder
from compatcheck.memory.job import describe_job
from compatcheck.memory.regressions import lay_over, widen, with_phases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.checking.checks import Criteria
    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.checking.tracer import Tracer
    from compatcheck.checking.verdict import Judgement
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Value
    from compatcheck.core.report import Finding
    from compatcheck.core.source import Skipped, Source
    from compatcheck.core.suggestions import Wall
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet


TRACEABLE = (
    "--trace would be exact: a step of the model's class on fake tensors, run by an interpreter with torch (--module: a "
    "module of yours)"
)
"""Said where a run is estimated in closed form and could be traced."""


class EstimateOptions(NamedTuple):
    """What is wanted beside the estimate."""

    model: str | None = None
    """What the person calls the model."""
    suggest: bool = False
    """Whether to rank changes that need less, and to find the smallest hardware that fits."""
    axes: tuple[str, ...] = ()
    """Settings whose largest value that fits is looked for: ``micro_batch_size``, ``sequence_length``."""
    tracer: Tracer | None = None
    """Traces each run instead of estimating it in closed form."""
    can_trace: Callable[[Subject, RuleSet], bool] | None = None
    """Tells whether a run could be traced, without running anything; None says nothing of it."""


class Unestimated(NamedTuple):
    """A subject that has no estimate because a size of it makes no sense."""

    subject: str
    source: Source | None
    reason: str


class Estimates(NamedTuple):
    """The estimates of a command."""

    reports: tuple[EstimateReport, ...]
    failed: tuple[Unestimated, ...]
    skipped: tuple[Skipped, ...]
    """What was not read of the inputs."""
    exit_code: int
    """1 when a run does not fit."""


def estimate(
    asked: Request | Inspection, rules: RuleSet, environ: Mapping[str, str], options: EstimateOptions | None = None
) -> Estimates:
    """Estimate what each device holds, in bytes and phase by phase, from the configuration alone.

    Raises:
        UsageError: there is but one subject, and a size of it makes no sense.
        CompatcheckError: nothing could be read at all.
    """
    inspection = as_inspection(asked)
    criteria = open_criteria(inspection, rules, checks_of(inspection.policy))
    gathered = gather_all(inspection, rules, environ)
    lines = LineFinder(gathered.files)
    reports, failed = _estimate_all(gathered.subjects, criteria, options or EstimateOptions(), lines)
    skipped = list_skipped(gathered, lines)
    unread = bool(failed) or any(entry.named for entry in skipped)
    return Estimates(reports, failed, skipped, _judge(reports, unread=unread))


def _estimate_all(
    subjects: Sequence[Subject], criteria: Criteria, options: EstimateOptions, lines: LineFinder
) -> tuple[tuple[EstimateReport, ...], tuple[Unestimated, ...]]:
    """Estimate every subject; one that makes no sense does not lose the others."""
    reports: list[EstimateReport] = []
    failed: list[Unestimated] = []
    for subject in follow(subjects, "estimating runs"):
        try:
            report = _estimate_one(subject, criteria, options)._replace(doubts=_doubts(subject, lines, criteria.rules))
        except UsageError as error:
            source = error.source or _place(error.message, subject)
            if len(subjects) == 1:
                raise UsageError(error.message, source=source, hint=error.hint) from error
            failed.append(Unestimated(subject.id, source, error.message))
            continue
        reports.append(report._replace(id=subject.id) if len(subjects) > 1 else report)
    return tuple(reports), tuple(failed)


def _place(message: str, subject: Subject) -> Source | None:
    """Return where the fact that an error begins with was stated."""
    name = message.partition(" ")[0]
    found = (facts[name] for facts in subject.roles.values() if name in facts)
    return next((fact.sources[0] for fact in found if fact.sources), None)


def _estimate_one(subject: Subject, criteria: Criteria, options: EstimateOptions) -> EstimateReport:
    rules, variants = criteria.rules, Variants(criteria)
    walls: dict[str, Wall] = {}
    assumed: tuple[Assumption, ...] = ()
    if options.axes:
        subject, assumed = _supply(subject, options.axes, walls, variants, rules)
    verdict = variants(subject)
    found = verdict.estimate or price(subject, verdict.findings)
    found = found._replace(assumptions=(*assumed, *found.assumptions))
    model = None if options.model is None else redact(options.model)
    report = EstimateReport(describe_job(subject.roles, model) or subject.id, found)
    if not found.phases and (options.tracer is None or found.verdict.primary is not None):
        found, bound = _find_bound(found, subject, variants, rules)
        return report._replace(estimate=found, walls=bound)
    if options.tracer is not None:
        report = _trace(report, subject, verdict.findings, rules, options.tracer)
    elif options.can_trace is not None and options.can_trace(subject, rules):
        report = report._replace(details=(TRACEABLE,))
    if not report.estimate.phases:
        return report
    if options.suggest:
        from compatcheck.fixing.suggestions import suggest  # noqa: PLC0415 (only when asked)
        from compatcheck.memory.smallest_hardware import place  # noqa: PLC0415 (only when asked)

        def price_on(devices: Mapping[str, Value]) -> Estimate | None:
            """Price the run on other devices, None where the stack does not run on them."""
            judged = variants.on(devices, subject)
            if judged.estimate is not None and not judged.estimate.phases:
                return judged.estimate  # this many ranks cannot be arranged; others may
            refused = any(one.impact is not None and one.impact.effect == "fails_to_start" for one in _new(judged))
            return None if refused else judged.estimate

        def _new(judged: Judgement) -> list[Finding]:
            known = {one.rule_id for one in verdict.findings}
            return [one for one in judged.findings if one.status == "affected" and one.rule_id not in known]

        suggestions = suggest(subject, rules, variants)
        untold = report.estimate.untold  # a bound below is too much for the device; nothing says what is enough
        placements, why_none = place(subject.roles, price_on, rules) if untold is None else ((), untold)
        report = report._replace(suggestions=suggestions, placements=placements, no_placement=why_none)
    for name in options.axes:
        if name not in walls:
            walls[name] = _find_wall(name, subject, variants, rules)
    return report._replace(walls=tuple(walls[name] for name in options.axes))


def _find_wall(name: str, subject: Subject, variants: Variants, rules: RuleSet, *, curve: bool = True) -> Wall:
    from compatcheck.memory.largest_settings import find_wall  # noqa: PLC0415 (only when asked)
    from compatcheck.resolution.resolve import resolve_with  # noqa: PLC0415 (only when asked)

    def price_with(facts: Mapping[str, Value]) -> Estimate:
        changed = resolve_with(subject, facts, rules)
        return variants(changed).estimate or price(changed)

    return find_wall(name, subject.roles, price_with, curve=curve)


def _find_bound(
    found: Estimate, subject: Subject, variants: Variants, rules: RuleSet
) -> tuple[Estimate, tuple[Wall, ...]]:
    """Find how long sequences may be where nobody states that and nothing else is missing, else say what else is."""
    from compatcheck.resolution.resolve import resolve_with  # noqa: PLC0415 (only where the length is missing)

    fact = "training.sequence_length"
    if found.needs != (fact,):
        return found, ()
    least = variants(resolve_with(subject, {fact: 1}, rules)).estimate
    if least is None or not least.phases:
        return found._replace(needs=(fact, *(() if least is None else least.needs))), ()
    if least.verdict.limit_bytes is None:
        return found, ()
    return found, (_find_wall("sequence_length", subject, variants, rules, curve=False),)


def _supply(
    subject: Subject, axes: Sequence[str], walls: dict[str, Wall], variants: Variants, rules: RuleSet
) -> tuple[Subject, tuple[Assumption, ...]]:
    """State what a run lacks and a sweep looks for: the largest value that fits, whose wall is added to those found."""
    from compatcheck.memory.largest_settings import AXES  # noqa: PLC0415 (only when asked)
    from compatcheck.resolution.resolve import resolve_with  # noqa: PLC0415 (only when asked)

    needs = (variants(subject).estimate or price(subject)).needs
    name = next((name for name in axes if (AXES[name][0],) == needs), None) if set(axes) <= AXES.keys() else None
    if name is None:
        return subject, ()
    wall = walls[name] = _find_wall(name, subject, variants, rules)
    value = wall.fits or wall.step
    reason = "nobody states it; the largest value that fits" if wall.fits else "nobody states it; not even that fits"
    return resolve_with(subject, {wall.fact: value}, rules), (Assumption(wall.fact, value, reason),)


def _doubts(subject: Subject, lines: LineFinder, rules: RuleSet) -> Doubts:
    return Doubts(
        subject.unresolved,
        tuple((conflict.fact, conflict.values) for conflict in subject.conflicts if _matters(conflict.fact)),
        tuple(lines.with_line(source) for source, _ in subject.unread if is_about_memory(source.key or "")),
        tuple((lines.with_line(gap.source), gap.why) for gap in subject.gaps),
        name_unselected(subject.environment, rules),
    )


def _matters(fact: str) -> bool:
    """Tell whether a conflict is about a number of the estimate."""
    return fact.startswith(("model.", "training.", "rollout.", "hardware."))


def _trace(
    report: EstimateReport, subject: Subject, findings: Sequence[Finding], rules: RuleSet, tracer: Tracer
) -> EstimateReport:
    """Put a traced estimate in the place of the other, with what no trace sees, or say why there is none."""
    found = tracer(subject, rules)
    if isinstance(found, Untraced):
        return report._replace(details=(f"not traced: {found.reason}",))
    closed = report.estimate
    untraced = tuple(phase for phase in closed.phases if phase.name == "evaluation")
    same = closed._replace(phases=tuple(phase for phase in closed.phases if phase not in untraced))
    traced = lay_over(found.estimate, (one for one in findings if not _has_run(one.rule_id, found.ran, rules)))
    details = (*_compare(same, traced), *found.details)
    traced = with_phases(traced, untraced)
    possible = tuple(one for one in closed.possible if not _has_run(one.rule_id, found.ran, rules))
    open_one = widen(traced, possible, closed.verdict.condition or "") if possible else traced
    beyond = open_one.needed.high > (traced.verdict.limit_bytes or open_one.needed.high)
    shown = open_one if beyond and traced.verdict.outcome == "fits" else traced
    return report._replace(estimate=shown, timeline=found.timeline, details=details)


def _has_run(rule_id: str, ran: frozenset[str], rules: RuleSet) -> bool:
    """Tell whether what a rule is about was run by a trace, and is memory that tensors without a GPU show."""
    rule = rules.find(rule_id)
    about = rule_id.partition("/")[0] in ran
    return about and rule is not None and bool({"cpu", "fake"} & set(rules.texts(rule).verifiable))


def _compare(closed: Estimate, traced: Estimate) -> tuple[str, ...]:
    """Say what the closed form has where a trace is shown, and in what they differ most."""
    peak = traced.peak_phase
    same = next((phase for phase in closed.phases if peak is not None and phase.name == peak.name), None)
    if peak is None or same is None:
        return ()
    theirs, ours = closed.allocated.expected, traced.allocated.expected
    text = f"shown is the trace; in closed form {format_bytes(theirs)} are allocated, {abs(theirs / ours - 1):.1%} "
    text += "less" if theirs < ours else "more"
    kinds = {part.kind for part in (*peak.components, *same.components)} - {"reserve", "context", "other"}
    sums = {
        kind: [total(part.size for part in phase.components if part.kind == kind).expected for phase in (same, peak)]
        for kind in sorted(kinds)
    }
    kind, (there, here) = max(sums.items(), key=lambda item: abs(item[1][0] - item[1][1]))
    words = kind.replace("_", " ")
    return (
        f"{text}; furthest apart are {words} in {peak.name}: {format_bytes(there)} there, {format_bytes(here)} here",
    )


def _judge(reports: Sequence[EstimateReport], *, unread: bool) -> int:
    if any(does_not_run(report.estimate) for report in reports):
        return EXIT_FINDINGS
    if unread:
        return EXIT_UNREADABLE_INPUT
    return EXIT_CLEAN if any(report.estimate.phases for report in reports) else EXIT_NOTHING_TO_CHECK
