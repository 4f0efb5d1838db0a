"""Compare what is read from pasted reports with what people wrote down by hand, and with the interpreter that printed them.

    python benchmarks/reports.py cases TEXTS          # fixtures/reports/cases.yaml against TEXTS/ID.txt
    python benchmarks/reports.py printed FOLDER       # FOLDER/NAME.*.txt against FOLDER/NAME.json

The texts of public issues are not kept here: TEXTS has one file for each case. FOLDER holds the output of tools and, for each
environment, a JSON file that the same interpreter wrote: ``{"python": "3.11.7", "packages": {name: version}}``, from
`importlib.metadata`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from compatcheck.collectors.reports.find import decode, find_reports
from compatcheck.collectors.reports.report import is_same
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.environment import Environment

CASES = Path(__file__).parents[1] / "fixtures/reports/cases.yaml"
_FACTS = {
    "torch_cuda": "runtime.torch_cuda",
    "nvcc": "runtime.nvcc",
    "driver_cuda": "hardware.driver_cuda",
}


def describe(environment: Environment) -> dict[str, Any]:
    """Return what is stated, by the names of the cases."""
    stated: dict[str, Any] = {} if environment.python is None else {"python": environment.python}
    if "torch" in environment.packages:
        stated["torch"] = environment.packages["torch"].version
    stated |= {name: environment.facts[fact][0] for name, fact in _FACTS.items() if fact in environment.facts}
    hardware = environment.hardware
    if hardware is not None:
        memory = None if hardware.memory_bytes is None else hardware.memory_bytes // MIB
        devices = {"driver": hardware.driver, "gpu": hardware.gpu, "count": hardware.gpus_per_node, "mib": memory}
        stated |= {name: value for name, value in devices.items() if value is not None}
    return stated


def compare(case: dict[str, Any], environment: Environment, expected: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the outcome of each value: ``right``, ``missing``, ``stated`` where nothing was expected, ``wrong``."""
    stated = describe(environment)
    for name in sorted({*stated, *expected} - {"packages"}):
        outcome = "right"
        if name not in expected:
            outcome = "stated"
        elif name not in stated:
            outcome = "missing"
        elif stated[name] != expected[name]:
            outcome = "wrong"
        if outcome != "right":
            print(f"{case['id']}: {name} {outcome}: {stated.get(name)!r}, expected {expected.get(name)!r}")
        yield name, outcome
    for name, version in expected.get("packages", {}).items():
        package = environment.packages.get(name)
        outcome = "missing" if package is None else "right" if package.version == version else "wrong"
        if outcome != "right":
            print(f"{case['id']}: package {name} {outcome}, expected {version}")
        yield "packages", outcome


def compare_cases(texts: Path) -> Counter[str]:
    """Compare all cases whose text is there."""
    counts: Counter[str] = Counter()
    for case in yaml.safe_load(CASES.read_text(encoding="utf-8")):
        path = texts / f"{case['id']}.txt"
        if not path.is_file():
            counts["texts not there"] += 1
            continue
        found = find_reports(decode(path.read_bytes(), str(path)), case["id"])
        counts["texts"] += 1
        counts["environments right" if len(found) == len(case["expect"]) else "environments wrong"] += 1
        configured = any(entry.accelerate is not None for entry in found)
        counts["configurations right" if configured == case.get("training", False) else "configurations wrong"] += 1
        for entry, expected in zip(found, case["expect"], strict=False):
            for name, outcome in compare(case, entry.environment, expected):
                counts[f"{name} {outcome}"] += 1
    return counts


def compare_printed(folder: Path) -> Counter[str]:
    """Compare printed reports with the interpreters that printed them."""
    counts: Counter[str] = Counter()
    for path in sorted(folder.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        if not text.strip():
            continue
        truth = json.loads((folder / f"{path.name.partition('.')[0]}.json").read_text(encoding="utf-8"))
        found = find_reports(text, path.name)
        counts["texts"] += 1
        counts["one environment" if len(found) == 1 else "other than one environment"] += 1
        for name, package in found[0].environment.packages.items() if found else ():
            installed = truth["packages"].get(name)
            if package.version is None:
                outcome = "absent right" if installed is None else "absent wrong"
            else:
                outcome = "right" if installed is not None and is_same(installed, package.version) else "wrong"
            if outcome.endswith("wrong"):
                print(f"{path.name}: {name} {package.version}, installed is {installed}")
            counts[f"packages {outcome}"] += 1
    return counts


def main() -> None:
    """Run one comparison and print its counts."""
    what, folder = sys.argv[1:]
    counts = {"cases": compare_cases, "printed": compare_printed}[what](Path(folder))
    for name in sorted(counts):
        print(f"{name}: {counts[name]}")


if __name__ == "__main__":
    main()
