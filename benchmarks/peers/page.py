"""Writes `docs/peers-memory.md`."""

from __future__ import annotations

import fnmatch
import importlib
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.peers.scores import LADDER, choose_like, count_closer, medians_by_group, restrict, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.peers.compare import Column
    from benchmarks.peers.runs import Run
    from benchmarks.peers.scores import Scored

GIB = 2**30
SPOILS = frozenset({"configuration", "outcome", "figure"})
"""Doubts for which a report is left out of the undoubted ones."""

PAGE = """\
# Memory estimates: compatcheck and its peers on public reports

Made by `benchmarks/peers/compare.py` on {date} from {count} public reports with {releases}, each a pinned release in an
environment of its own (`benchmarks/peers/requirements/`). Nothing below is edited by hand. {ours}

Every report is put into the words of each tool as favourably as it allows: exact parameter counts and dimensions, rank and
targets of adapters from the sources' own scripts, the nearest dtype and optimizer, per-rank tokens. What a tool has no input for
is left out of its question (optimizer in backward, chunked loss, float8 …); what it cannot be asked at all is counted apart.

## Summary

Errors are relative to the measured peak of one device. Like is compared with like: peaks that are allocated, reserved or
device use with the tool's own figure for the same, where it has one (torch-preflight, fitcheck-llm); the others have one figure,
held against all. *Of sources* is the median of the medians per source. A verdict is right when a run that fitted is called fits
or marginal, and one that did not is not called fits; tools without verdicts have their total held against the memory of the
card. *Missed* is an out-of-memory run called fits. *Undoubted* leaves out the reports whose run, outcome or figure is doubtful.

{summary}

*Documented inputs only*: without what is asked through a field that no documented input sets (torch-preflight's frozen fraction),
or an input used for what it is not meant for (llm-analysis with an optimizer of zero bytes).

What each predicts: {predicts}

{versus}
## By source

Median error, and how many peaks.

{sources}

## Walls

unsloth's table says at which length of sequence a card is full. Predicted device use at the published longest context, as a
share of the card's memory; these rows have no peak above, and count as runs that fitted:

{walls}

## Not expressible

{inexpressible}

## What the peaks are

{kinds}

Units: PEFT's guides' GB are GiB ("64 GB (80%)" on an 80 GB card). Qwen's table has 162.0 G on two cards of 80 GiB, so its G is
less than a GiB; it is read as 1000 MiB. Were every GB 10^9 bytes ({decimal} of the {peaks}), the medians would be those of the
column *GB = 10^9*.

## Doubtful cases

Found by opening the sources. {spoiled} of {count} reports are doubtful in what ran, in the outcome or in the figure, and are
left out of *undoubted*; the others named here say something else than their field names do.

{doubts}

## Case by case

GiB per device. Measured peak (*a* allocated, *r* reserved, *d* device or not said), then predictions of the like;
✗: the verdict is wrong; ?: called marginal.

<details>
<summary>{count} reports</summary>

{cases}

</details>
"""


_PAIRS = "On the peaks that both answered, by source; where a peer is ahead our number is in bold:"
MEASURED = """
## Peaks that scripts measured

The {count} runs of `fixtures/estimates/peaks` whose inputs are published, each by the first quantity that was measured
(allocated but for torchtitan, whose table is of reserved memory). fitcheck-llm and vramcalc: their own tables, on which
their formulas were made. Median error, and how many peaks:

{sources}

On the peaks that both answered, by source; where a peer is ahead our number is in bold:

{pairs}

{versus}
"""


def write_page(
    columns: Sequence[tuple[Column, list[Scored]]],
    runs: Sequence[Run],
    doubts: Sequence[Mapping[str, Any]],
    *,
    date: str,
) -> str:
    """Write the page.

    Args:
        columns: tools with their scores; ours first if it is there.
        runs: the reports.
        doubts: rows of `doubts.yaml`.
        date: of today.
    """
    peaks = [run.peak for run in runs if run.peak]
    spoiled = _find_spoiled(runs, doubts)
    ours = columns[0][0].tool == "compatcheck"
    return PAGE.format(
        date=date,
        count=len(runs),
        releases=", ".join(column.release for column, _ in columns),
        ours="" if ours else "compatcheck's own column is not in this run (`--ours`).",
        summary=_tabulate_summary(columns, spoiled),
        predicts=_list_predictions(columns),
        versus=_tabulate_versus(columns, runs) if ours else "",
        sources="\n\n".join((_tabulate_sources(columns), _PAIRS, _tabulate_pairs(columns)))
        if ours
        else _tabulate_sources(columns),
        walls=_tabulate_walls(columns, runs),
        inexpressible=_list_inexpressible(columns),
        kinds=_tabulate_kinds(runs),
        decimal=sum(peak.decimal != 1 for peak in peaks),
        peaks=len(peaks),
        spoiled=len(spoiled),
        doubts=_tabulate_doubts(runs, doubts),
        cases=_tabulate_cases(columns, runs),
    )


def write_measured(columns: Sequence[tuple[Column, list[Scored]]], runs: Sequence[Run]) -> str:
    """Write what the page says of runs whose peak a script measured."""
    return MEASURED.format(
        count=len(runs),
        sources=_tabulate_sources(columns),
        pairs=_tabulate_pairs(columns),
        versus=_tabulate_versus(columns, runs),
    )


def _tabulate_pairs(columns: Sequence[tuple[Column, list[Scored]]]) -> str:
    """Hold each peer's median error against ours, by source, on the peaks that both answered."""
    (_, own), *others = columns
    lines = ["| source | peer | peaks | its median error | ours |", "|---|---|---:|---:|---:|"]
    for column, scored in others:
        for group in sorted({item.group for item in scored}):
            common = {item.case for item in scored if item.group == group and item.error is not None} & {
                item.case for item in own if item.error is not None
            }
            if common:
                theirs, mine = summarize(restrict(scored, common)), summarize(restrict(own, common))
                behind = (
                    theirs.median_error is not None
                    and mine.median_error is not None
                    and theirs.median_error < mine.median_error
                )
                cells = _percent(theirs.median_error), _percent(mine.median_error)
                text = " | ".join((cells[0], f"**{cells[1]}**" if behind else cells[1]))
                lines.append(f"| {group} | {column.tool} | {len(common)} | {text} |")
    return "\n".join(lines)


def _find_spoiled(runs: Sequence[Run], doubts: Sequence[Mapping[str, Any]]) -> set[str]:
    return {case for row in doubts if row["doubt"] in SPOILS for case in _match(runs, row["cases"])}


def _match(runs: Sequence[Run], patterns: Iterable[str]) -> list[str]:
    """Return the cases that patterns name.

    Raises:
        ValueError: a pattern names none.
    """
    found = []
    for pattern in patterns:
        cases = [run.case for run in runs if fnmatch.fnmatch(run.case, pattern)]
        if not cases:
            raise ValueError(f"doubts.yaml: {pattern!r} names no case; correct the pattern or remove it")
        found += cases
    return found


def _tabulate_summary(columns: Sequence[tuple[Column, list[Scored]]], spoiled: set[str]) -> str:
    heads = (
        "cases",
        "peaks",
        "median error",
        "of sources",
        "GB = 10^9",
        "within 10 %",
        "undoubted peaks",
        "their median",
    )
    judged = ("verdicts", "right", "marginal", "false alarms", "missed, of OOM")
    lines = ["| tool | " + " | ".join((*heads, *judged)) + " |", "|---|" + "---:|" * len((*heads, *judged))]
    for column, scored in columns:
        rows = [(column.tool, scored)]
        documented = [item for item in scored if item.documented]
        if len(documented) < len(scored):
            rows.append((f"{column.tool}, documented inputs only", documented))
        for name, part in rows:
            total = summarize(part)
            clean = summarize([item for item in part if item.case not in spoiled])
            share = f" ({total.right / total.verdicts:.0%})" if total.verdicts else ""
            lines.append(
                f"| {name} | {total.expressible} | {total.peaks} | {_percent(total.median_error)} "
                f"| {_percent(total.median_of_sources)} | {_percent(total.decimal_median_error)} | {total.within_ten_percent} "
                f"| {clean.peaks} | {_percent(clean.median_error)} "
                f"| {total.verdicts} | {total.right}{share} | {total.marginal} | {total.false_alarms} "
                f"| {total.missed} of {total.seen_oom} |"
            )
    return "\n".join(lines)


def _tabulate_versus(columns: Sequence[tuple[Column, list[Scored]]], runs: Sequence[Run]) -> str:
    """Hold our column against each other one, on the cases both answered."""
    (_, own), *others = columns
    lines = [
        "## One against one",
        "",
        "On the cases that both answered. Targets: a third of the best peer's median error; right wherever a peer is.",
        "",
        "| peer | peaks in common | its median error | ours | it is closer | verdicts | right | ours | right there only |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for column, scored in others:
        common = {item.case for item in own} & {item.case for item in scored}
        theirs, mine = restrict(scored, common), restrict(own, common)
        a, b = summarize(theirs), summarize(mine)
        wrong = {item.case for item in mine if item.right is False}
        lost = [item.case for item in theirs if item.right and item.case in wrong]
        lines.append(
            f"| {column.tool} | {a.peaks} | {_percent(a.median_error)} | {_percent(b.median_error)} "
            f"| {count_closer(theirs, mine)} | {a.verdicts} | {a.right} | {b.right} | {', '.join(lost) or '—'} |"
        )
    return "\n".join([*lines, "", _describe_ranges(columns[0][0], runs), "", ""])


def _describe_ranges(column: Column, runs: Sequence[Run]) -> str:
    """Say how many peaks lie in our ranges, and how wide those are."""
    inside, widths = 0, []
    for run in runs:
        ranges = column.answers.get(run.case, {}).get("range", {})
        kind = next((name for name in LADDER[run.peak.kind] if name in ranges), None) if run.peak else None
        if run.peak is None or kind is None:
            continue
        low, high = ranges[kind]
        inside += low <= run.peak.high and high >= run.peak.low
        widths.append((high - low) / ((run.peak.low + run.peak.high) / 2))
    if not widths:
        return "Our column has no ranges."
    share = inside / len(widths)
    return f"Of {len(widths)} peaks, {inside} ({share:.0%}) lie in our low..high; its median width is {median(widths):.0%}."


def _list_predictions(columns: Sequence[tuple[Column, list[Scored]]]) -> str:
    parts = []
    for column, _ in columns:
        if column.adapter is None:
            parts.append("compatcheck: allocated, reserved and device use, each with a range.")
            continue
        text = importlib.import_module(column.adapter).__doc__ or ""
        parts.append(" ".join(text.split()))
    return "\n\n" + "\n".join(f"- {part}" for part in parts)


def _tabulate_sources(columns: Sequence[tuple[Column, list[Scored]]]) -> str:
    medians = [(column.tool, medians_by_group(scored), scored) for column, scored in columns]
    groups = sorted({group for _, table, _ in medians for group in table})
    lines = ["| source | " + " | ".join(name for name, _, _ in medians) + " |", "|---|" + "---:|" * len(medians)]
    for group in groups:
        cells = []
        for _, table, scored in medians:
            number = sum(item.group == group and item.error is not None for item in scored)
            cells.append(f"{_percent(table[group])} ({number})" if group in table else "—")
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _tabulate_walls(columns: Sequence[tuple[Column, list[Scored]]], runs: Sequence[Run]) -> str:
    walls = [run for run in runs if run.case.startswith("unsloth") and run.outcome == "fits"]
    shown = [column for column, _ in columns if any(run.case in column.answers for run in walls)]
    lines = [
        "| card, GiB | longest context | " + " | ".join(column.tool for column in shown) + " |",
        "|---:|---:|" + "---:|" * len(shown),
    ]
    for run in walls:
        cells = []
        for column in shown:
            answer = column.answers.get(run.case)
            value = choose_like(answer, "device") if answer else None
            cells.append("—" if value is None else f"{value / run.device_bytes:.0%}")
        lines.append(f"| {run.device_bytes // GIB} | {run.tokens:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _list_inexpressible(columns: Sequence[tuple[Column, list[Scored]]]) -> str:
    lines = []
    for column, _ in columns:
        reasons = Counter(column.inexpressible.values()).most_common()
        told = "; ".join(f"{reason} ({number})" for reason, number in reasons) or "none"
        lines.append(f"- **{column.tool}**: {len(column.inexpressible)}. {told}.")
    return "\n".join(lines)


def _tabulate_kinds(runs: Sequence[Run]) -> str:
    counts = Counter(
        (run.peak.kind if run.peak.stated else f"not said, compared as {run.peak.kind}", run.group)
        for run in runs
        if run.peak
    )
    lines = ["| quantity | source | peaks |", "|---|---|---:|"]
    lines += [f"| {kind} | {group} | {number} |" for (kind, group), number in sorted(counts.items())]
    lines.append(f"| no peak | all others | {sum(run.peak is None for run in runs)} |")
    return "\n".join(lines)


def _tabulate_doubts(runs: Sequence[Run], doubts: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| cases | how many | doubt | reason | source |", "|---|---:|---|---|---|"]
    for row in doubts:
        names = ", ".join(f"`{pattern}`" for pattern in row["cases"])
        number = len(set(_match(runs, row["cases"])))
        lines.append(f"| {names} | {number} | {row['doubt']} | {row['reason']} | <{row['source']}> |")
    return "\n".join(lines)


def _tabulate_cases(columns: Sequence[tuple[Column, list[Scored]]], runs: Sequence[Run]) -> str:
    lines = [
        "| case | happened | measured | " + " | ".join(column.tool for column, _ in columns) + " |",
        "|---|---|---:|" + "---:|" * len(columns),
    ]
    for run in runs:
        measured = "—"
        if run.peak:
            bounds = [f"{value / GIB:.1f}" for value in dict.fromkeys((run.peak.low, run.peak.high))]
            measured = "–".join(bounds) + f" {run.peak.kind[0]}"
        cells = []
        for column, scored in columns:
            item = next((item for item in scored if item.case == run.case), None)
            answer = column.answers.get(run.case)
            if item is None or answer is None:
                cells.append("—")
                continue
            value = choose_like(answer, run.peak.kind if run.peak else "device")
            error = f" {item.error:+.0%}" if item.error is not None else ""
            mark = " ✗" if item.right is False else " ?" if item.verdict == "marginal" else ""
            cells.append(f"{(value or 0) / GIB:.1f}{error}{mark}")
        lines.append(f"| {run.case} | {run.outcome} | {measured} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.1%}"
