"""Compare the closed form with measured peaks, and with public reports of peaks and of runs that fitted or did not.

    python benchmarks/memory_cases.py [CASES.yaml] [--all] [--source NAME]

First the runs whose peak a script measured (`fixtures/estimates/peaks`, `measured_peaks.py`), priced from a facts file as
`compatcheck estimate` does. Then reports: CASES.yaml lists them (model dimensions, hardware, framework, configuration, outcome,
source). Each is translated to facts by the framework it is of; what a report leaves out is taken from the scripts its source
names, or assumed as `estimate` assumes it. A report whose needed settings are not stated is not evaluated and says why. Like is
compared with like: what a report calls allocated, reserved or memory of the GPU with the estimate's peak of that kind, GB as
10**9 and GiB as 2**30 bytes.

Output: for each source the median error, the 95th percentile, the share of peaks inside low..high, the median width of that
range, what was called fits, marginal or does_not_fit; then the same over the sources; then every case whose error is large, and
every case that was not evaluated. docs/memory-model.md discusses the result.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measured_peaks import COUNTS, Measured, estimate_measured, judge_subject, read_peaks
from memory_reports import translate, write_script

from compatcheck import __version__
from compatcheck.checking import Request, gather
from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.core.units import GIB
from compatcheck.memory.closed_form.estimate import estimate
from compatcheck.resolution.defaults import apply_traits
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.locate import open_rules
from compatcheck.rules.strict_yaml import load_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.estimate import Estimate, Size

LARGE_ERROR = 0.25
UNITS = {"GB": 10**9, "GiB": GIB, "bytes": 1}


class Result(NamedTuple):
    """One report beside the estimate."""

    case: str
    source: str
    reported: float | None
    size: Size | None
    outcome: str
    verdict: str
    doubt: str
    estimate: Estimate | None = None
    """All of it, for `--json`."""
    fresh: bool = False
    """Its source was gathered after the model was frozen."""
    worded: bool = False
    """The estimate has a formula for all that the run has."""

    @property
    def error(self) -> float | None:
        """Signed relative error of the expected peak."""
        if self.reported is None or self.size is None:
            return None
        return self.size.expected / self.reported - 1


def evaluate_script(case: Mapping[str, Any]) -> Result | str:
    """Judge a report's launch command as `compatcheck estimate` judges a script: all of its roles, with what rules find."""
    with tempfile.TemporaryDirectory() as directory:
        script, releases = Path(directory) / "train.sh", Path(directory) / "requirements.txt"
        script.write_text(write_script(case))
        pins = {"torch": "2.4.0", "transformers": "4.47.1", "vllm": "0.6.3"}
        if "deepspeed" in case["config"]:  # of the release of OpenRLHF of those days
            deepspeed = str(case["config"]["deepspeed"]).replace("*", "3")
            pins = {"deepspeed": deepspeed, "transformers": "4.48.2", "vllm": "0.7.2"}
        releases.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        settings = (f"hardware.memory_bytes={case['hardware']['mem_gib']}GiB",)
        request = Request(paths=(str(script), str(releases)), settings=settings, here=False)
        (subject,) = gather(request, open_rules(), {}).subjects
    found = judge_subject(subject)
    if not found.phases:
        return f"needs {', '.join(found.needs)}"
    doubt = f"confidence {case['confidence'].partition(' ')[0]}"
    result, verdict = str(case["outcome"]["result"]), found.verdict.outcome
    return Result(case["id"], _source(case), None, found.device, result, verdict, doubt, found)


def evaluate_measured(run: Measured, found: Estimate) -> Iterator[Result]:
    """Hold a measured run against its estimate: one result for each quantity that was measured, the first with its outcome."""
    for index, name in enumerate([name for name in COUNTS if name in run.counted] or [""]):
        size = _peak(found, name) if name else None
        # one run is one outcome, however many of its quantities were measured
        outcome, verdict = (run.outcome, found.verdict.outcome) if index == 0 else ("", "")
        source = f"{run.source}, {name.replace('_', ' ')}" if name else run.source
        yield Result(
            run.name,
            source,
            run.counted.get(name),
            size,
            outcome,
            verdict,
            run.apart,
            fresh=bool(run.frozen),
            worded=not found.unmodelled,
        )


def evaluate(case: Mapping[str, Any]) -> Result | str:
    """Estimate one case, or say why it was not evaluated."""
    if str(case["framework"]["name"]).startswith(("Search-R1", "Logic-RL", "OpenRLHF")):
        return evaluate_script(case)
    translation = translate(case)
    if isinstance(translation, str):
        return translation
    packages = {name: Package(name, version, Source("case")) for name, version in translation.packages.items()}
    environment = Environment(case["id"], packages, complete=False)
    facts = {name: Fact(name, value, "set") for name, value in translation.facts.items()}
    apply_traits(FactScope(facts, environment, open_rules()), facts)
    found = estimate(facts, environment)
    if found.needs:
        return f"needs {', '.join(found.needs)}"
    outcome = case["outcome"]
    reported = _reported(outcome, case)
    size = None
    if reported is not None:
        size = _peak(found, translation.measure)
        size = type(size)(*(value * translation.devices for value in size))
    return Result(
        case["id"],
        _source(case),
        reported,
        size,
        str(outcome["result"]),
        found.verdict.outcome,
        translation.doubt,
        found,
    )


def _peak(found: Estimate, measure: str) -> Size:
    sizes = {
        "allocated": found.allocated,
        "reserved": found.reserved,
        "device": found.device,
        "device_use": found.device,
    }
    return sizes[measure]


def _reported(outcome: Mapping[str, Any], case: Mapping[str, Any]) -> float | None:
    """Return the reported peak in bytes; a range is its middle, the longest context that fits means a full device."""
    peak = outcome.get("peak")
    if outcome.get("result") == "max_context":
        return float(case["hardware"]["mem_gib"] * GIB)
    if not isinstance(peak, dict):
        return None
    value = peak["value"]
    if isinstance(value, str):
        low, _, high = value.partition("-")
        value = (float(low) + float(high)) / 2
    return float(value) * UNITS[peak["unit"]]


def _source(case: Mapping[str, Any]) -> str:
    url = str(case["source"])
    return next((name for key, name in SOURCES.items() if key in url), url)


SOURCES = {
    "QwenLM/Qwen/": "Qwen README", "MetaMathQA": "peft comparison", "pytorch/torchtune": "torchtune README",
    "pytorch/torchtitan": "torchtitan benchmark", "unsloth": "unsloth README", "peft/blob": "peft guides",
    "Qwen3/issues/300": "Qwen3 issue 300", "Search-R1": "Search-R1", "Logic-RL": "Logic-RL", "OpenRLHF": "OpenRLHF",
    "DeepSpeed": "DeepSpeed tutorial", "vllm": "vLLM issue",
}  # fmt: skip


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="?", help="public reports")
    parser.add_argument("--all", action="store_true", help="print every case")
    parser.add_argument(
        "--json", type=Path, help="write every estimate, as benchmarks/peers/compare.py --ours reads it"
    )
    parser.add_argument("--source", help="only cases of this source")
    given = parser.parse_args()
    runs = list(read_peaks())
    exact = [result for run in runs if not run.unclear for result in evaluate_measured(run, estimate_measured(run))]
    exact = [result for result in exact if not given.source or result.source.startswith(given.source)]
    headline, apart = [one for one in exact if not one.doubt], [one for one in exact if one.doubt]
    fresh = [one for one in exact if one.fresh]
    print("Peaks measured by scripts\n")
    print("\n".join((*_table(headline), "", *_verdicts(headline), "", *_cases(headline, everything=given.all))))
    print("\nMeasured by scripts, with an input that is not published\n")
    print("\n".join((*_table(apart), "", *_cases(apart, everything=given.all))))
    print("\nOutcomes gathered after the model was frozen\n")
    print("\n".join(_verdicts(fresh)))
    print("\nAll outcomes of runs\n")
    print("\n".join(_verdicts(exact)))
    print("\nOutcomes that are told and not counted\n")
    for run in (run for run in runs if run.unclear):
        called = estimate_measured(run).verdict.outcome
        print(f"- {run.name}: reported {run.outcome}, called {called}: {run.unclear}")
    if given.cases is None:
        return
    print("\nPublic reports\n")
    cases = load_strict(given.cases)[0]["cases"]
    results: list[Result] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        if given.source and given.source != _source(case):
            continue
        result = evaluate(case)
        if isinstance(result, str):
            left_out[result].append(case["id"])
        else:
            results.append(result)
    for line in (*_table(results), "", *_verdicts(results), "", *_cases(results, everything=given.all)):
        print(line)
    print("\nAll outcomes\n")
    print("\n".join(_verdicts([*exact, *results])))
    if given.json is not None:
        given.json.write_text(json.dumps(_as_column(results, left_out), indent=1), encoding="utf-8")
    print("\nNot evaluated:")
    for reason, names in left_out.items():
        print(f"- {reason}: {len(names)} ({', '.join(names[:4])}{', …' if len(names) > 4 else ''})")


def _as_column(results: list[Result], left_out: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the column that compare.py sets beside those of others."""
    cases: dict[str, Any] = {}
    for result in results:
        if result.estimate is not None:
            sizes = {name: getattr(result.estimate, name)._asdict() for name in ("allocated", "reserved", "device")}
            cases[result.case] = {**sizes, "verdict": result.verdict, "reason": None}
    for reason, names in left_out.items():
        empty = dict.fromkeys(("allocated", "reserved", "device"))
        cases.update({name: {**empty, "verdict": "unknown", "reason": reason} for name in names})
    return {"tool": f"compatcheck {__version__}", "cases": cases}


def _table(results: list[Result]) -> Iterator[str]:
    yield "| source | peaks | median error | 95th percentile | median signed | inside low..high | median width |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    by_source: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.error is not None:
            by_source[result.source].append(result)
    for source, group in by_source.items():
        yield f"| {source} | {_row(group)} |"
    everything = [result for group in by_source.values() for result in group]
    if everything:
        yield f"| all peaks | {_row(everything)} |"
        middle, last = (statistics.median(map(get, by_source.values())) for get in (_median, _last))
        yield f"| median over the sources | {len(by_source)} | {middle:.1%} | {last:.1%} | | | |"
    worded = {source: [result for result in group if result.worded] for source, group in by_source.items()}
    if any(worded.values()):
        middle, last = (statistics.median(get(group) for group in worded.values() if group) for get in (_median, _last))
        count = sum(map(bool, worded.values()))
        yield f"| the same of runs with a formula for all they have | {count} | {middle:.1%} | {last:.1%} | | | |"


def _row(group: list[Result]) -> str:
    sizes = [
        (result.size, result.reported) for result in group if result.size is not None and result.reported is not None
    ]
    inside = sum(size.low <= reported <= size.high for size, reported in sizes) / len(sizes)
    width = statistics.median((size.high - size.low) / size.expected for size, _ in sizes)
    signed = statistics.median(result.error or 0 for result in group)
    return f"{len(group)} | {_median(group):.1%} | {_last(group):.1%} | {signed:+.1%} | {inside:.0%} | {width:.0%}"


def _median(group: list[Result]) -> float:
    return statistics.median(abs(result.error or 0) for result in group)


def _last(group: list[Result]) -> float:
    """Return the 95th percentile."""
    return sorted(abs(result.error or 0) for result in group)[math.ceil(0.95 * len(group)) - 1]


def _verdicts(results: list[Result]) -> Iterator[str]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for result in results:
        outcome = "oom" if result.outcome == "oom" else "fits"
        counts[outcome, result.verdict] += bool(result.outcome)
    yield "| reported | fits | marginal | does not fit | unknown |"
    yield "|---|---:|---:|---:|---:|"
    for outcome in ("fits", "oom"):
        yield (
            f"| {outcome} | "
            + " | ".join(str(counts[outcome, verdict]) for verdict in ("fits", "marginal", "does_not_fit", "unknown"))
            + " |"
        )


def _cases(results: list[Result], *, everything: bool) -> Iterator[str]:
    yield (
        "Cases with an error above 25 %, outside of low..high, or with a wrong verdict:"
        if not everything
        else "All cases:"
    )
    for result in results:
        wrong = result.verdict == ("fits" if result.outcome == "oom" else "does_not_fit")
        error, size = result.error, result.size
        if error is None or size is None or result.reported is None:
            if everything or wrong:
                sizes = "" if size is None else " .. ".join(f"{part / GIB:.1f}" for part in size) + " GiB, "
                yield f"- {result.case}: {sizes}reported {result.outcome}, called {result.verdict}{_doubt(result)}"
            continue
        outside = not size.low <= result.reported <= size.high
        if everything or outside or wrong or abs(error) > LARGE_ERROR:
            yield (
                f"- {result.case}: reported {result.reported / GIB:.1f}, {size.low / GIB:.1f} .. {size.expected / GIB:.1f} .. "
                f"{size.high / GIB:.1f} GiB, {error:+.0%}, {result.outcome} called {result.verdict}{_doubt(result)}"
            )


def _doubt(result: Result) -> str:
    return f" ({result.doubt})" if result.doubt else ""


if __name__ == "__main__":
    main()
