"""The report as one page: verdict, memory in figures, plan, findings and environment; without a network and without a script."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from compatcheck.core import summary
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, UsageError
from compatcheck.core.estimate import OUTCOMES, say_outcome
from compatcheck.core.fix import NOT_NEEDED, VERSION, install_command
from compatcheck.core.headline import ending, find_worst, headline, missing_text, reason_text
from compatcheck.core.language import translate
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.reporters import estimate as estimates
from compatcheck.reporters import plan as planned
from compatcheck.reporters.figure import STYLE, Bar, Part, draw_bars, draw_steps, make_bar, tell_bytes
from compatcheck.reporters.fingerprint import fingerprint
from compatcheck.reporters.text import severity_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compatcheck.core.estimate import Estimate, Phase, Size
    from compatcheck.core.estimate_report import Doubts, EstimateReport
    from compatcheck.core.fix import Change
    from compatcheck.core.report import Finding, Report, SubjectReport
    from compatcheck.core.suggestions import Suggestion

_OPENED = 3
"""Findings, and runs, that are unfolded when the page opens."""
_PRINTED = 20
"""Findings, the worst first, that are unfolded on paper; the others there are those that a person has unfolded."""


class _Row(NamedTuple):
    """One component over the phases of a run."""

    label: str
    sizes: tuple[int, ...]
    """Expected bytes in each phase, 0 where it is not resident."""


class _State(NamedTuple):
    """What a run needs as it is, or after changes."""

    label: str
    needed: Size
    outcome: str
    bar: Bar
    price: str = ""
    """What the changes cost the person."""
    how: tuple[str, ...] = ()
    """What has to be written, and what must be known to."""


class _Run(NamedTuple):
    """One subject's memory, with its figures."""

    id: str
    title: str
    estimate: Estimate
    figure: str
    rows: tuple[_Row, ...]
    states: tuple[_State, ...]
    comparison: str
    """Figure of the states; empty where there is but one."""
    walls: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()


class _Group(NamedTuple):
    """Findings under one heading, rule by rule."""

    title: str
    rules: tuple[tuple[str, tuple[Finding, ...]], ...]
    number: int


def check_page() -> None:
    """Check that a page can be written, before anything is read.

    Raises:
        UsageError: Jinja2 is missing.
    """
    from importlib.util import find_spec  # noqa: PLC0415 (only where a page is asked for)

    if find_spec("jinja2") is None:
        from compatcheck.core.installation import tell_remedy  # noqa: PLC0415 (only where it is missing)

        raise UsageError("--format html needs Jinja2", hint=tell_remedy("Jinja2"))


def format_report(report: Report) -> str:
    """Format a report as an HTML page.

    Raises:
        UsageError: Jinja2 is missing.
    """
    check_page()
    return str(_open_template().render(_NOTHING | _describe(report)))


def format_estimates(reports: Sequence[EstimateReport]) -> str:
    """Format estimates as an HTML page.

    Raises:
        UsageError: Jinja2 is missing.
    """
    check_page()
    return str(_open_template().render(_NOTHING | _describe_estimates(reports)))


@cache
def _open_template() -> Any:  # noqa: ANN401 (of a package that need not be there)
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 (an extra, and heavy)

    environment = Environment(
        loader=PackageLoader("compatcheck.reporters"),
        autoescape=True,
        finalize=lambda value: translate(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["_"] = translate
    environment.filters |= {
        "size": summary.size_text, "fact": summary.fact_text, "place": summary.place_text, "needs": summary.needs_text,
        "measured": summary.measured_text, "assumed": summary.assumptions_in_words, "clean": summary.clean_text,
        "device": summary.device_text, "target": summary.target_text,
        "phase": estimates.name_phase, "regressions": estimates.regression_lines, "reasons": estimates.reason_lines,
        "assumptions": estimates.assumption_lines, "unmodelled": estimates.unmodelled_lines,
        "change": planned.change_text, "effect": planned.effect_text, "places": planned.list_places,
        "outcome": planned.outcome_text, "resolution": planned.resolution_text, "brings": planned.brings_text,
        "shorten": planned.shorten,
        "bytes": tell_bytes, "fingerprint": fingerprint, "severity": severity_text, "prose": _prose, "link": _link,
        "steps": _draw_measured,
    }  # fmt: skip
    return environment.get_template("report.html")


_NOTHING = {
    "worst": None, "plans": (), "groups": (), "rest": None, "clean": (), "audit": None, "subjects": (), "next_step": None,
    "opened": _OPENED, "printed": _PRINTED, "style": STYLE, "not_needed": NOT_NEEDED, "version": VERSION,
}  # fmt: skip
"""What a page is without."""


def _describe(report: Report) -> dict[str, Any]:
    """Return what the template shows; every word and number in it is one that the other formats have."""
    groups, rest = _group(report)
    worst, found = find_worst(report), {item.subject for item in report.findings}
    several = len(report.subjects) > 1
    return {
        "lines": headline(report),
        "reason": reason_text(report),
        "state": {EXIT_FINDINGS: "bad", EXIT_CLEAN: "good"}.get(report.exit_code, "open"),
        "worst": None if worst is None else fingerprint(worst),
        "runs": [
            _draw_subject(report, subject, index)
            for index, subject in enumerate(sorted(filter(_is_estimated, report.subjects), key=_room))
        ],
        "plans": [
            (plan, planned.plan_title(report, plan), install_command(plan.changes))
            for plan in report.plans
            if plan.changes
        ],
        "groups": groups,
        "rest": rest,
        "clean": [subject for subject in report.subjects if subject.id not in found],
        "left_out": list(_left_out(report)),
        "several": several,
        "subjects": report.subjects,
        "audit": None if report.audit is None else _describe_audit(report),
        "next_step": report.next_step,
        "closing": (summary.closing_line(report), ending(report)),
    }


def _describe_estimates(reports: Sequence[EstimateReport]) -> dict[str, Any]:
    told = [(one, estimates.headline(one) if one.estimate.phases else _no_estimate(one.estimate)) for one in reports]
    named = [f"{one.id or one.subject}: {text}" for one, text in told]
    outcomes = {one.estimate.verdict.outcome for one in reports}
    several = len(reports) != 1
    return {
        "lines": [f"{len(reports)} runs", *named] if several else [told[0][1], reports[0].subject],
        "reason": f"{len(reports)} estimates" if several else named[0],
        "state": "bad" if "does_not_fit" in outcomes else "good" if outcomes == {"fits"} else "open",
        "runs": [
            _draw_estimate(one, text, index, several=several)
            for index, (one, text) in enumerate(told)
            if one.estimate.phases
        ],
        "left_out": [f"{of.id}: {text}" if several else text for of in reports for text in _doubted(of.doubts)],
        "several": several,
        "closing": (),
    }


def _no_estimate(estimate: Estimate) -> str:
    return f"no estimate: {estimate.verdict.primary or f'it needs {missing_text(estimate.needs)}'}"


def _doubted(doubts: Doubts) -> Iterator[str]:
    yield from (f"not read: {place}: {summary.gap_text(why)}" for place, why in doubts.gaps)
    yield from doubts.unselected
    yield from estimates.doubt_lines(doubts)


def _describe_audit(report: Report) -> dict[str, Any]:
    from compatcheck.core.advisory import audit_text, fix_text, fold_advisories, fold_unaudited  # noqa: PLC0415 (with --security)

    assert report.audit is not None  # noqa: S101 (the caller looked)
    return {
        "text": audit_text(report.audit),
        "advisories": [(one, fix_text(one), names) for one, names in fold_advisories(report.audit.advisories)],
        "unaudited": fold_unaudited(report.audit.unaudited),
        "notes": report.audit.notes,
    }


def _is_estimated(subject: SubjectReport) -> bool:
    return subject.estimate is not None and bool(subject.estimate.phases)


def _room(subject: SubjectReport) -> int:
    """Return the bytes that a run leaves on its device, negative where it does not fit: what misses most stands first."""
    assert subject.estimate is not None  # noqa: S101 (the caller looked)
    return (subject.estimate.verdict.limit_bytes or 0) - subject.estimate.needed.expected


def _draw_subject(report: Report, subject: SubjectReport, index: int) -> _Run:
    estimate = subject.estimate
    assert estimate is not None  # noqa: S101 (the caller looked)
    states = []
    for plan in report.plans:
        words = _after_text(plan.changes)
        states += [_make_state(words, one) for name, one in plan.outcomes if name == subject.id and one.phases]
    title = f"{subject.id}: {summary.fit_text(subject) or OUTCOMES[estimate.verdict.outcome]}"
    of = f" of {subject.id}" if len(report.subjects) > 1 else ""
    return _draw_run(_Run(subject.id, title, estimate, "", (), tuple(states), ""), index, of)


def _draw_estimate(report: EstimateReport, text: str, index: int, *, several: bool) -> _Run:
    states = []
    for one in report.suggestions:
        words = _after_text(one.changes)
        bar = Bar(words, (Part("", "whole", one.needed.expected),), one.needed)
        states.append(
            _State(words, one.needed, say_outcome(one.outcome, one.unless), bar, one.effect, tuple(_instruct(one)))
        )
    name = report.id or report.subject
    placements = [": ".join(estimates.placement_texts(place)) for place in report.placements]
    placements += [estimates.no_placement_text(report)] if report.no_placement else []
    title = f"{report.subject}: {text}" if several else report.subject
    run = _Run(
        name,
        title,
        report.estimate,
        "",
        (),
        tuple(states),
        "",
        tuple(map(estimates.wall_text, report.walls)),
        tuple(placements),
    )
    return _draw_run(run, index, f" of {name}" if several else "")


def _after_text(changes: Sequence[Change]) -> str:
    words = " + ".join(planned.change_text(change) for change in changes if not change.follows)
    return f"after {words}" + (" and what follows from it" if any(change.follows for change in changes) else "")


def _instruct(suggestion: Suggestion) -> Iterator[str]:
    for change in suggestion.changes:
        if change.follows or change.note:
            yield f"{planned.change_text(change)}: {change.why}" if change.follows else str(change.note)
        yield from [f"{place}: {text}" for place, text in change.where] or filter(None, [" ".join(change.options)])


def _make_state(label: str, estimate: Estimate) -> _State:
    assert estimate.peak_phase is not None  # noqa: S101 (there are phases)
    words = say_outcome(estimate.verdict.outcome, estimate.verdict.unless)
    return _State(label, estimate.needed, words, make_bar(label, estimate.peak_phase))


def _draw_run(run: _Run, index: int, of: str) -> _Run:
    """Draw a run phase by phase, and beside what it is after changes."""
    estimate = run.estimate
    limit, peak = estimate.verdict.limit_bytes, estimate.peak_phase
    bars = [make_bar(estimates.name_phase(one) + (" (peak)" if one is peak else ""), one) for one in estimate.phases]
    figure = draw_bars(f"memory-{index}", f"Memory of one device by phase{of}", bars, limit).svg
    states = [_make_state("as it is", estimate)]
    if estimate.without is not None and any(one.adds for one in estimate.regressions):
        states.append(_make_state("without the known regressions", estimate.without))
    states += run.states
    title = f"Peak before and after each change{of}"
    comparison = draw_bars(f"change-{index}", title, [one.bar for one in states], limit).svg if states[1:] else ""
    return run._replace(
        figure=figure, rows=tuple(_tabulate(estimate.phases)), states=tuple(states), comparison=comparison
    )


def _tabulate(phases: Iterable[Phase]) -> Iterable[_Row]:
    phases = tuple(phases)
    labels = dict.fromkeys((part.role, part.name, part.kind) for phase in phases for part in phase.components)
    alone = len({role for role, _, _ in labels}) == 1
    for role, name, kind in labels:
        sizes = tuple(
            sum(
                part.size.expected
                for part in phase.components
                if (part.role, part.name, part.kind) == (role, name, kind)
            )
            for phase in phases
        )
        if any(sizes):
            yield _Row(name if alone else f"{role}{translate(': ')}{translate(name)}", sizes)


def _group(report: Report) -> tuple[list[_Group], str | None]:
    """Return findings under headings, and why those of the last one but the waived stand there."""
    choice = summary.choose(report.findings)
    shown = {id(finding) for finding in choice.shown}
    others = [finding for finding in report.findings if id(finding) not in shown]
    waived = [finding for finding in others if finding.suppressed is not None]
    chosen = [
        ("Findings", [item for item in choice.shown if item.status == "affected" and not item.advice]),
        ("Advice", [item for item in choice.shown if item.advice]),
        ("Possible", [item for item in choice.shown if item.status == "possible"]),
        ("Further", sorted((item for item in others if item.suppressed is None), key=summary.worst_first)),
        ("Waived", sorted(waived, key=summary.worst_first)),
    ]
    groups = []
    for title, findings in chosen:
        rules: dict[str, list[Finding]] = {}
        for finding in findings:
            rules.setdefault(finding.rule_id, []).append(finding)
        if findings:
            groups.append(_Group(title, tuple((name, tuple(found)) for name, found in rules.items()), len(findings)))
    return groups, choice.rest


def _draw_measured(finding: Finding) -> str:
    """Draw the step that a finding's rule is about, over releases."""
    series = finding.measured
    assert series is not None  # noqa: S101 (the template looked)
    title = f"{series.metric.replace('_', ' ')} over releases of {series.package}"
    return draw_steps(f"steps-{fingerprint(finding)}", title, series.points).svg


def _left_out(report: Report) -> Iterator[str]:
    """Say what was not read, what is not known and what was passed over, all of it."""
    yield from (f"not read: {entry}" for entry in report.skipped)
    for subject in report.subjects:
        of = f"{subject.id}: " if len(report.subjects) > 1 else ""
        yield from (f"{of}not read: {place}: {summary.gap_text(why)}" for place, why in subject.gaps)
        for name, values in subject.conflicts:
            yield f"{of}conflict: {name}: " + "; ".join(
                f"{summary.value_text(value)} at {source}" for value, source in values
            )
        yield from (f"{of}not known: {name} at {place}: {why}" for name, place, why in subject.unresolved)
        for name, count in subject.folded:
            yield f"{of}{name}: version unknown, {count} rule{'s depend' if count != 1 else ' depends'} on it"
        waiting = summary.waiting_text(subject)
        yield from (f"{of}{text}" for text in (*subject.unselected, *([waiting] if waiting else [])))
        for place, near in subject.unread_keys:
            yield f"{of}no reader knows {place}" + (f": did you mean {near}?" if near else "")
    yield from (f"waiver: {note}" for note in report.waiver_notes)


def _prose(text: str) -> Any:  # noqa: ANN401 (Markup of a package that need not be there)
    """Write the paragraphs of a rule's text, with what Markdown in it is code or strong; all else stays as it is."""
    from markupsafe import Markup, escape  # noqa: PLC0415 (comes with Jinja2)

    marked = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(translate(text))))
    marked = re.sub(r"\*\*([^*\n]+)\*\*", r"<strong>\1</strong>", marked)
    paragraphs = "".join(f"<p>{part}</p>" for part in marked.split("\n\n") if part.strip())
    return Markup(paragraphs)  # noqa: S704 (escaped above)


def _link(url: str | None, text: str | None = None) -> Any:  # noqa: ANN401 (see _prose)
    """Write a link that tells the other side nothing; an address that is none of the web stays a text."""
    from markupsafe import Markup, escape  # noqa: PLC0415 (see _prose)

    if url is None or not url.startswith(("https://", "http://")):
        return escape(translate(text or url or ""))
    return Markup('<a href="{}" rel="noreferrer noopener external">{}</a>').format(url, text or url)
