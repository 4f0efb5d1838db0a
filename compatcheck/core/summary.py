"""What a report comes to, in words and counts that every format shares."""

from __future__ import annotations

from compatcheck.core.columns import measure
from compatcheck.core.document import TAKEN_AS_EMPTY, TAKEN_AS_IDLE
from compatcheck.core.facts import TRAITS, Fact, Value
from compatcheck.core.language import translate
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.report import SEVERITIES, Finding, FindingImpact, Report, SubjectReport, severity_rank
from compatcheck.core.units import GIB, MIB, TIB, format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from compatcheck.core.estimate import Estimate, Size
    from compatcheck.core.source import Source

NO_DEFAULTS = "defaults of what it may set are not assumed"
"""Said of a part of a configuration that was not read."""


def gap_text(why: str) -> str:
    """Say why a part of a configuration was not read, and what follows from it."""
    return why if why.endswith((TAKEN_AS_EMPTY, TAKEN_AS_IDLE)) else f"{why}; {NO_DEFAULTS}"


class Summary(NamedTuple):
    """Counts of one report; waived findings stand apart."""

    findings: int
    """Affected and possible ones, waived ones left out."""
    affected: int
    possible: int
    folded: int
    """Of those, the ones that are only counted where a person reads."""
    waived: int
    not_checked: int
    failing: int
    """Findings that count against ``--fail-on``."""
    severities: tuple[tuple[str, int], ...]
    """Affected findings by severity, worst first, empty ones left out."""
    advisories: int | None
    """Security advisories, waived ones left out; None without an audit."""
    not_audited: int | None
    """Packages no answer was given about; None without an audit."""


def summarise(report: Report) -> Summary:
    """Count the findings of a report."""
    open_findings = [finding for finding in report.findings if finding.suppressed is None]
    advisories, not_audited = None, None
    if report.audit is not None:
        from compatcheck.core.advisory import count_open, count_unaudited  # noqa: PLC0415 (with --security)

        advisories, not_audited = count_open(report.audit), count_unaudited(report.audit)
    affected = [finding for finding in open_findings if finding.status == "affected"]
    counts = ((level, sum(finding.severity == level for finding in affected)) for level in reversed(SEVERITIES))
    return Summary(
        findings=len(open_findings),
        affected=len(affected),
        possible=len(open_findings) - len(affected),
        folded=sum(finding.folded for finding in open_findings),
        waived=len(report.findings) - len(open_findings),
        not_checked=len(report.skipped),
        failing=sum(finding.fails for finding in open_findings),
        severities=tuple((level, count) for level, count in counts if count),
        advisories=advisories,
        not_audited=not_audited,
    )


def closing_line(report: Report) -> str:
    """Return the line a report ends with: counts, database, policy, time."""
    summary = summarise(report)
    levels = ", ".join(f"{count} {level}" for level, count in summary.severities)
    if checked_anything(report):
        count = f"{summary.affected} finding{'' if summary.affected == 1 else 's'}"
        parts = [count + (f" ({levels})" if levels else "")]
        left = sum(item.aside and item.status == "affected" and not item.suppressed for item in report.findings)
        parts += [f"{left} of them not counted"] if left else []
        if summary.possible:
            parts.append(f"{summary.possible} possible")
        parts += [f"{report.stood_before} stood before"] if report.stood_before is not None else []
        parts += [f"{summary.waived} waived", f"{summary.not_checked} not checked"]
    else:
        parts = ["nothing was checked", *([f"{summary.not_checked} not read"] if report.skipped else [])]
    if summary.advisories is not None:
        parts.append(f"{summary.advisories} {'advisory' if summary.advisories == 1 else 'advisories'}")
        parts += [f"{summary.not_audited} not audited"] if summary.not_audited else []
    database = f"db {report.database_date} ({report.database_rules} rules, {report.database_id})"
    policy = f" · policy {report.policy}" if report.policy else ""
    return f"compatcheck: {', '.join(parts)} · {database}{policy} · {report.seconds:.2f} s"


def checked_anything(report: Report) -> bool:
    """Tell whether any rule could be checked, for every rule is about a package of a training stack, or an advisory looked up."""
    looked_up = report.audit is not None and bool(report.audit.audited)
    return bool(report.findings) or looked_up or any(subject.is_checkable for subject in report.subjects)


def closing_lines(report: Report, width: int) -> list[str]:
    """Return the closing line, broken between its parts where it is longer than ``width`` characters."""
    lines: list[str] = []
    comma = translate(", ")
    for part in translate(closing_line(report)).split(" · "):
        if lines and measure(f"{lines[-1]} · {part}") <= width:
            lines[-1] += f" · {part}"
            continue
        for index, count in enumerate(part.split(comma)):
            if index and measure(f"{lines[-1]}{comma}{count},") <= width:  # the comma between them and one behind it
                lines[-1] += f"{comma}{count}"
            elif index:
                lines[-1] += comma.rstrip()
                lines.append(f"  {count}")
            else:
                lines.append(f"  {count}" if lines else count)
    return lines


def worst_first(finding: Finding) -> tuple[int, tuple[int, ...], str, str]:
    """Order findings over all subjects: what fails the run first, then what is certain, advice, and what is possible.

    Certain ones come by severity and size, possible ones by what they could cost alone: a severity of an unknown size is a guess.
    """
    impact = finding.impact
    worst = (impact.high_bytes or impact.expected_bytes or 0) if impact is not None else 0
    certain, severity = finding.status == "affected", -severity_rank(finding.severity)
    starts = impact is None or impact.effect != "fails_to_start"
    group = 0 if finding.fails else 3 if not certain else 2 if finding.advice else 1
    weight = (
        (severity, -worst)
        if certain
        else (int(starts), -worst, severity, int(finding.kind != "regression"), len(finding.needs))
    )
    return group + 4 * finding.folded, weight, finding.rule_id, finding.subject


MAX_POSSIBLE = 3
"""Possible findings that a person is shown; the rest are counted."""


class Choice(NamedTuple):
    """What a person is shown of the findings of a subject, or of several, and what is only counted."""

    shown: tuple[Finding, ...]
    """Worst first: all that are certain and cost something, then possible ones: all that fail, the worst of the others."""
    rest: str | None
    """What is left out, in words; None where nothing is."""


def choose(findings: Iterable[Finding], *, every: bool = False) -> Choice:
    """Choose what a person reads of findings, waived ones left out.

    Args:
        findings: any order.
        every: whether to show all of them.
    """
    ordered = sorted((finding for finding in findings if finding.suppressed is None), key=worst_first)
    if every:
        return Choice(tuple(ordered), None)
    fails = [finding for finding in ordered if finding.fails and finding.status == "possible"]
    free = [finding for finding in ordered if finding.folded and finding.status == "affected"]
    hidden = [finding for finding in ordered if finding.folded and finding.status == "possible" and not finding.fails]
    open_ones = [
        finding for finding in ordered if not (finding.folded or finding.fails) and finding.status == "possible"
    ]
    waiting = [finding for finding in open_ones if MODEL in finding.needs or _needs_only_machine(finding)]
    possible = [finding for finding in open_ones if finding not in waiting]
    shown = [finding for finding in ordered if not finding.folded and finding.status == "affected"]
    options = sorted({_option(need) for finding in waiting for need in finding.needs})
    counted = [
        (len(hidden), "what no file states, or programs not seen here"),
        (len(possible) - MAX_POSSIBLE, "other facts that are not known"),
        (len(waiting), ", ".join(options)),
    ]
    parts = [(count, what) for count, what in counted if count > 0]
    words = ", ".join(f"{count} on {what}" for count, what in parts)
    if len(parts) == 1:
        count, what = parts[0]
        words = f"{count} more depend{'s' if count == 1 else ''} on {what}"
    elif parts:
        words = f"{sum(count for count, _ in parts)} more depend: {words}"
    said = [words] if parts else []
    cheap = [finding for finding in free if _is_cheap(finding)]
    dear = [finding for finding in free if finding not in cheap]
    beneath = sum(bool(finding.remedies) for finding in dear)
    helpless = len(dear) - beneath
    said += [f"{len(cheap)} cost{'s' if len(cheap) == 1 else ''} less than 1 MiB here"] if cheap else []
    said += [f"{beneath} stay{'s' if beneath == 1 else ''} beneath the peak of the run"] if beneath else []
    said += [f"{helpless} advise{'s' if helpless == 1 else ''} what no setting here does"] if helpless else []
    return Choice((*shown, *fails, *possible[:MAX_POSSIBLE]), "; ".join(said) or None)


def _is_cheap(finding: Finding) -> bool:
    impact = finding.impact
    return impact is not None and impact.high_bytes is not None and impact.high_bytes < MIB


def _needs_only_machine(finding: Finding) -> bool:
    """Tell whether only something about the machine is missing: its devices, driver or variables."""
    machine = ("hardware.", "runtime.torch_cuda", "env ")
    return bool(finding.needs) and all(need.startswith(machine) for need in finding.needs)


MODEL = "model.model_type"
"""Fact that any model's own file states: what waits for it waits for the model."""


def _option(need: str) -> str:
    if need.startswith("env "):
        return "--env-file"
    options = {"model": "--model", "training": "--training"}
    return {"hardware.driver": "--driver", "hardware.nodes": "--nodes"}.get(need) or options.get(
        need.partition(".")[0], "--gpu"
    )


def size_text(impact: FindingImpact | None) -> str:
    """Say what a finding costs: ``127.5 GiB per rank``, ``does not start``, ``size unknown``."""
    if impact is None:
        return ""
    if impact.effect == "fails_to_start":
        return "does not start"
    expected, low, high = impact.expected_bytes, impact.low_bytes, impact.high_bytes
    if expected is None and (low is None or high is None):
        return "size unknown" if impact.effect == "memory" else impact.effect.replace("_", " ")
    text = "" if expected is None else format_bytes(expected)
    if low is not None and high is not None and (expected is None or high > low * 1.02):
        text = f"{format_bytes(low)} … {format_bytes(high)}"
    where = "" if impact.memory == "device" else f" {impact.memory}"
    return f"{text}{where} per {impact.scope}"


def range_text(size: Size) -> str:
    """Write bytes with the range they are believed to lie in."""
    if size.low == size.high:
        return format_bytes(size.expected)
    if size.high >= TIB:
        return f"{format_bytes(size.expected)} ({format_bytes(size.low)} to {format_bytes(size.high)})"
    return f"{format_bytes(size.expected)} ({size.low / GIB:.1f} to {size.high / GIB:.1f})"


def fit_text(subject: SubjectReport) -> str | None:
    """Say whether a run fits with what was found: ``does not fit: needs 102.6 GiB of 79.6 GiB a device``; None if unknown."""
    estimate = subject.estimate
    if estimate is None or estimate.verdict.limit_bytes is None:
        return None
    from compatcheck.core.estimate import OUTCOMES  # noqa: PLC0415 (only where a run is described)

    words = None if estimate.verdict.outcome == "unknown" else OUTCOMES[estimate.verdict.outcome]
    marginal = estimate.verdict.outcome == "marginal"  # what is expected may be far on either side
    needed = range_text(estimate.needed) if marginal else format_bytes(estimate.needed.expected)
    limit = format_bytes(estimate.verdict.limit_bytes)
    hangs = (
        estimate.possible or estimate.needed.expected > estimate.verdict.limit_bytes
    )  # more than the range decides then
    said = (estimate.verdict.condition if hangs else None) or find_lead(estimate)
    condition = f"; {said}" if said else ""
    return None if words is None else f"{words}: needs {needed} of {limit} a device{condition}"


def find_lead(estimate: Estimate) -> str | None:
    """Return the condition a marginal verdict hangs on, which is said with it; None where it hangs on none."""
    verdict = estimate.verdict
    if verdict.outcome != "marginal":
        return None
    if (verdict.condition or "").startswith((_NOBODY, "nobody read")):
        return verdict.condition
    if any(left.name == "checkpointing" for left in estimate.unmodelled):
        return f"{_NOBODY} whether activations are checkpointed, and it may fit if they are"
    return None


_NOBODY = "nobody says"


def clean_text(subject: SubjectReport) -> str:
    """Say of a subject without findings what was looked at; without a package nothing was."""
    number = sum(not fact.name.startswith(TRAITS) for _, fact in subject.facts)
    facts = f"{number} fact{'' if number == 1 else 's'}"
    count = len(subject.packages)
    if not subject.is_checkable:
        known = (
            f"none of {count} package{'' if count == 1 else 's'} is of a training stack"
            if count
            else "no package is known"
        )
        return f"nothing was checked: {known}" + (f" ({facts} read)" if number else "")
    return f"no known problem among the rules about {count} package{'' if count == 1 else 's'} and {facts}"


def waiting_text(subject: SubjectReport) -> str | None:
    """Say how many rules wait for a configuration, and which options give one; None where one is there, or none waits."""
    configured = any(fact.origin in {"configuration", "script"} for _, fact in subject.facts)
    if not subject.waiting or configured or not subject.is_checkable:
        return None
    model = any(fact.name == MODEL for _, fact in subject.facts)
    options = "--training" if model else "--training and --model"
    return f"{subject.waiting} rule{'s wait' if subject.waiting > 1 else ' waits'} for a configuration: give {options}"


def target_text(facts: Iterable[tuple[str, Fact]]) -> str | None:
    """Say which machine a policy declares, for facts that come from no device here; None where it declares none."""
    stated = {}
    for _, fact in facts:
        declared = [place for place in fact.sources if place.key and ".target" in f".{place.key}"]
        if fact.origin == "declared" and declared:
            stated[fact.name] = (fact.value, declared[0])
    if not stated:
        return None
    values = {name: value for name, (value, _) in stated.items()}
    gpus, gpu = values.get("hardware.gpus_per_node"), values.get("hardware.gpu")
    nodes, driver = values.get("hardware.nodes"), values.get("hardware.driver")
    words = [
        f"{f'{gpus}x' if gpus else ''}{gpu}" if gpu else None,
        f"{nodes} nodes" if isinstance(nodes, int) and nodes > 1 else None,
        f"driver {driver}" if driver else None,
    ]
    place = next(iter(stated.values()))[1]
    return f"{', '.join(filter(None, words))}: declared at {place}, not measured"


def device_text(facts: Iterable[tuple[str, Fact]]) -> str | None:
    """Say which device a name without its size was taken for, and with how much memory; None where the name says it."""
    for _, fact in facts:
        key = fact.sources[0].key if fact.name == "hardware.memory_bytes" and fact.sources else None
        if key is not None and " is taken for " in key and isinstance(fact.value, int):
            return f"{key}: {format_bytes(fact.value)} a device is assumed"
    return None


def needs_text(needs: tuple[str, ...]) -> str:
    """Say what would decide a possible finding: the ``--set`` of each fact, then the rest in words."""
    facts = [need for need in needs if "." in need and " " not in need and "[" not in need]
    others = [_row_text(need) for need in needs if need not in facts]
    return ", ".join([f"--set {name}=…" for name in facts] + others)


def _row_text(need: str) -> str:
    """Say which row of a table is missing: ``sdpa-support[qwen2_5_vl]``; anything else stands as it is."""
    table, bracket, keys = need.removesuffix("]").partition("[")
    return f"{keys} in the table {table}" if bracket and need.endswith("]") else need


def measured_text(measured: Mapping[str, Any]) -> str:
    """Say what was measured here, beside what a healthy release would give, and what that shows."""
    value, predicted = measured["value"], measured["predicted"]
    if str(measured["metric"]).endswith("_bytes"):
        value, predicted = format_bytes(value), format_bytes(predicted)
    else:
        value, predicted = f"{value:,.6g}", f"{predicted:,.6g}"
    releases = ", ".join(f"{name} {version}" for name, version in measured["versions"].items() if name != "python")
    when = f" {measured['date']}" if measured["date"] else ""
    outcome = "confirmed" if measured["verdict"] == "bad" else "not confirmed"
    what = f"{measured['probe']} {measured['metric']} {value}, {predicted} in a healthy release"
    return f"here{when} on {measured['backend']} with {releases}: {what}: {outcome}"


def assumptions_in_words(finding: Finding) -> list[str]:
    """Return what a finding takes for granted, without the expressions that rules are written in."""
    said = [assumption for assumption in finding.assumptions if not assumption.startswith("not (")]
    left = len(finding.assumptions) - len(said)
    if left:
        said.append(f"no exception to the rule that the inputs leave open: `compatcheck explain {finding.rule_id}`")
    return said


def value_text(value: Value) -> str:
    """Write a value as a person does."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def fact_text(fact: Fact) -> str:
    """Write a fact: ``deepspeed 0.16.4``, ``training.zero_stage = 3``; bytes with their unit."""
    if "." not in fact.name:
        return f"{fact.name} {value_text(fact.value)}"
    if fact.name.endswith("_bytes") and isinstance(fact.value, int):
        return f"{fact.name} = {format_bytes(fact.value)}"
    if isinstance(fact.value, int) and not isinstance(fact.value, bool) and abs(fact.value) >= 100_000:
        return f"{fact.name} = {fact.value:,}"
    return f"{fact.name} = {value_text(fact.value)}"


def place_text(fact: Fact, base: str = "") -> str:
    """Write where a fact comes from: ``train.yaml:7``, a default and its owner, or how it was derived; without ``base``."""
    if fact.origin == "derived" or not fact.sources:
        return fact.note or fact.origin
    source = fact.sources[0]
    if source.path.startswith("default of"):
        return source.path + (f" {fact.note}" if fact.note else "")
    place = source._replace(path=source.path.removeprefix(base)).place
    if source.key is not None and source.key not in {fact.name, fact.name.partition(".")[2]}:
        place = str(source._replace(path=source.path.removeprefix(base)))
    return f"{place}: {fact.note}" if fact.name.startswith(TRAITS) and fact.note else place


def because_text(fact: Fact) -> str:
    """Write a fact with its place in brackets, whole, and with what a trait means."""
    place = str(fact.sources[0]) if fact.sources else fact.note or fact.origin
    told = f": {fact.note}" if fact.sources and fact.note and fact.name.startswith(TRAITS) else ""
    return f"{fact_text(fact)} ({place}{told})"


def shared_directory(sources: Iterable[Source]) -> str:
    """Return the directory, with its slash, that holds every file among the sources; empty when there is no such one."""
    paths = {source.path for source in sources if "/" in source.path and " " not in source.path}
    directories = {path.rpartition("/")[0] + "/" for path in paths}
    return directories.pop() if len(directories) == 1 else ""
