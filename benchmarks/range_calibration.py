"""Choose the range of what no formula itemises on all sources of peaks but one, and hold it against that one.

    python benchmarks/range_calibration.py [CASES.yaml]

The rule: the narrowest whole percents below and above (the smallest sum, then the smallest below) with which four of five
peaks of each source lie in the range. Sources are those of `fixtures/estimates/peaks`, each peak by the first quantity that
was measured, and those of CASES.yaml that are not among them. Output: for each source the pair that the others ask for, and
how many of its own peaks lie inside then; last the pair of all of them (`LESS`, `MORE` of
compatcheck/memory/closed_form/reserve.py).
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from measured_peaks import COUNTS, Measured, open_measured, read_peaks
from memory_cases import Result, evaluate, evaluate_measured

from compatcheck.checking.fit import price
from compatcheck.memory.closed_form import reserve
from compatcheck.rules.strict_yaml import load_strict

if TYPE_CHECKING:
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject

INSIDE = 0.8
"""Share of the peaks of a source that shall lie in the range."""
PERCENTS = range(21)
TWICE = {"peft comparison", "torchtitan benchmark"}
"""Sources of reports that are among the measured ones, with their newest runs."""
Outside = dict[str, dict[int, list[bool]]]


def measure(cases: list[dict[str, object]]) -> tuple[Outside, Outside]:
    """Tell of each peak whether it lies below, and above, of the range with so many percent."""
    below: Outside = defaultdict(lambda: defaultdict(list))
    above: Outside = defaultdict(lambda: defaultdict(list))
    runs = [(run, open_measured(run)) for run in read_peaks() if set(COUNTS) & set(run.counted)]
    for percent in PERCENTS:
        reserve.LESS = reserve.MORE = percent / 100
        for result in _results(runs, cases):
            if result.reported is not None and result.size is not None:
                below[result.source][percent].append(result.reported < result.size.low)
                above[result.source][percent].append(result.reported > result.size.high)
    return below, above


def _results(
    runs: list[tuple[Measured, tuple[Subject, list[Finding]]]], cases: list[dict[str, object]]
) -> list[Result]:
    measured = [next(iter(evaluate_measured(run, price(*opened)))) for run, opened in runs]
    reported = [found for case in cases if isinstance(found := evaluate(case), Result) and found.source not in TWICE]
    return [*(one for one in measured if not one.doubt or "longest" in one.doubt), *reported]


def choose(below: Outside, above: Outside, without: str | None = None) -> tuple[int, int]:
    """Return the narrowest percents below and above with which enough of each source but one lies inside."""
    sources = [source for source in below if source != without]

    def suits(less: int, more: int) -> bool:
        return all(inside(below, above, source, (less, more)) >= INSIDE for source in sources)

    pairs = sorted((less + more, less, more) for less in PERCENTS for more in PERCENTS if suits(less, more))
    return pairs[0][1:] if pairs else (PERCENTS[-1], PERCENTS[-1])


def inside(below: Outside, above: Outside, source: str, pair: tuple[int, int]) -> float:
    """Return the share of a source's peaks inside of the range with a pair of percents."""
    less, more = pair
    return 1 - (sum(below[source][less]) + sum(above[source][more])) / len(below[source][less])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="?")
    path = parser.parse_args().cases
    below, above = measure(load_strict(path)[0]["cases"] if path is not None else [])
    print("| left out | peaks | chosen without it | inside then |\n|---|---:|---:|---:|")
    shares = []
    for source in below:
        pair = choose(below, above, source)
        shares.append(inside(below, above, source, pair))
        print(f"| {source} | {len(below[source][0])} | -{pair[0]} % / +{pair[1]} % | {shares[-1]:.0%} |")
    pair = choose(below, above)
    held = sum(share >= INSIDE for share in shares)
    peaks = [(len(below[source][0]), share) for source, share in zip(below, shares, strict=True)]
    whole = sum(count * share for count, share in peaks) / sum(count for count, _ in peaks)
    print(f"| all peaks | {sum(count for count, _ in peaks)} | | {whole:.0%} |")
    print(f"| sources of which {INSIDE:.0%} are inside | {held} of {len(shares)} | | |")
    print(f"| mean over the sources | {len(shares)} | | {statistics.mean(shares):.0%} |")
    print(f"| none | | -{pair[0]} % / +{pair[1]} % | |")


if __name__ == "__main__":
    main()
