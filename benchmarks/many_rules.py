"""What ten thousand rules cost `compatcheck env`: CPU time, and memory.

    python benchmarks/many_rules.py --environments DIR [--rounds 15]

takes the environments of `startup.py` (building what is missing). The databases are compiled from this checkout's own
rules, copied under names of packages that do not exist, or under present ones, of which about a third hold the release; the
command is the installed one, told where its database lies, and looks for no remedy (``--fail-on never``). Every variant runs
once per round; what is reported is the difference from the database as it ships.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import environments
from cpu import Run, run
from startup import prepare, seconds

sys.path.insert(0, str(environments.REPOSITORY))

from compatcheck.rules.compile import compile_database, compile_directory
from compatcheck.rules.database import Database
from compatcheck.rules.load import load_rules

if TYPE_CHECKING:
    from compatcheck.rules.rule import Rule

RULES = environments.REPOSITORY / "rules"
COUNT = 10_000

LAUNCHER = """
import sys
import compatcheck.rules.locate as locate
from compatcheck.cli.__main__ import main
locate.COMPILED = sys.argv.pop(1)
try:
    main()
finally:
    sys.stdout.flush()
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            sys.stderr.write(line)
"""
"""Runs the installed command with another database, then writes the peak of its resident memory (Linux)."""

LIMIT_ADDED_MS = 30.0
LIMIT_ABSENT_US = 3.0
LIMIT_PRESENT_US = 10.0
LIMIT_RSS_MB = 40.0
LIMITS_MS = {
    "absent": min(LIMIT_ADDED_MS, LIMIT_ABSENT_US * COUNT / 1000),
    "absent-one-each": min(LIMIT_ADDED_MS, LIMIT_ABSENT_US * COUNT / 1000),
    "mixed": LIMIT_ADDED_MS,
    "present": LIMIT_PRESENT_US * COUNT / 1000,
}
"""What each database may add."""


def copies(rules: list[Rule], count: int, packages: list[str]) -> list[Rule]:
    """Copy rules under other packages: each copy is about one of ``packages``, in its original's ranges."""
    result = []
    for index, (rule, package) in enumerate(zip(itertools.cycle(rules), itertools.cycle(packages), strict=False)):
        if index == count:
            return result
        clauses = tuple(
            dataclasses.replace(clause, packages={package: next(iter(clause.packages.values()))})
            for clause in rule.clauses
        )
        unverified = dict(zip([package], rule.unverified.values(), strict=False))
        result.append(
            dataclasses.replace(rule, id=f"generated/{index}", clauses=clauses, unverified=unverified, former_ids=())
        )
    return result


def write_databases(directory: Path, present: list[str]) -> dict[str, Path]:
    """Write the database as it ships and four with ten thousand rules more.

    Args:
        directory: where they are written.
        present: packages of the environment that no rule of this checkout is about.
    """
    rules = load_rules(RULES)
    about_packages = [rule for rule in rules if rule.status == "active" and _is_about_releases(rule)]
    shipped = Database.open(str(_write(directory / "shipped.jsonl", compile_directory(RULES))))
    sections = {name: shipped.section(name) for name in shipped.sections("")}
    few = [f"absent-package-{index}" for index in range(COUNT // 10)]
    many = [f"absent-package-{index}" for index in range(COUNT)]
    variants = {
        "absent": copies(about_packages, COUNT, few),
        "absent-one-each": copies(about_packages, COUNT, many),
        "mixed": copies(about_packages, COUNT, [*few[: len(few) * 98 // 100], *present][: len(few)]),
        "present": copies(about_packages, COUNT, present),
    }
    paths = {"shipped": directory / "shipped.jsonl"}
    for name, generated in variants.items():
        paths[name] = _write(
            directory / f"{name}.jsonl", compile_database([*rules, *generated], sections, shipped.date)
        )
    return paths


DESCRIPTIONS = {
    "absent": "10,000 rules about 1,000 absent packages",
    "absent-one-each": "10,000 rules about 10,000 absent packages",
    "mixed": "10,000 rules about 1,000 packages, of which 20 are present",
    "present": "10,000 rules about 20 packages, all present",
}


def _is_about_releases(rule: Rule) -> bool:
    specs = [spec for clause in rule.clauses for spec in clause.packages.values()]
    return bool(specs) and all(clause.packages for clause in rule.clauses) and not {"present", "absent"} & set(specs)


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def unruled_packages(target: Path, count: int) -> list[str]:
    """Return packages of the environment that no rule is about, in order of their names."""
    ruled = {name for rule in load_rules(RULES) for clause in rule.clauses for name in clause.packages}
    own = {"compatcheck"}
    names = (
        path.name.split("-")[0].replace("_", "-").lower()
        for path in environments.site_packages(target).glob("*.dist-info")
    )
    return sorted(set(names) - ruled - own)[:count]


def _rss(runs: list[Run]) -> float:
    """Return the largest resident set of these runs, in MB of 10**6 bytes.

    Raises:
        ValueError: a run reported none.
    """
    return max(int(result.output.rsplit(b"VmHWM:", 1)[1].split()[0]) * 1024 / 1e6 for result in runs)


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="environments of startup.py")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--uv", help="uv's binary; found by default")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    root = arguments.environments.resolve()
    own, targets = prepare(root, arguments.uv or environments.find_uv(), sys.executable, again=False)
    target = targets[150]
    paths = write_databases(root, unruled_packages(target, 20))
    command = ["-c", LAUNCHER]
    runs: dict[str, list[Run]] = {name: [] for name in paths}
    for index in range(-1, arguments.rounds):
        for name, path in paths.items():
            program = [
                environments.interpreter(own),
                *command,
                str(path),
                "env",
                "--python",
                environments.interpreter(target),
                *("--fail-on", "never"),
            ]
            result = run(program)
            if index >= 0:
                runs[name].append(result)
    print(table_of(runs, paths))


def table_of(runs: dict[str, list[Run]], paths: dict[str, Path]) -> str:
    """Write what each database adds to the one that ships."""
    base = seconds(runs["shipped"])
    lines = [
        "| database | size, MB | CPU ms, min | adds, ms (of minima) | adds, ms (median) | µs per rule | peak RSS, MB | |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
        f"| as it ships | {_megabytes(paths['shipped']):.1f} | {min(base) * 1000:.0f} | | | | {_rss(runs['shipped']):.1f} | |",
    ]
    for name, description in DESCRIPTIONS.items():
        times = seconds(runs[name])
        added = (min(times) - min(base)) * 1000
        median = statistics.median(ours - theirs for ours, theirs in zip(times, base, strict=True)) * 1000
        per_rule = added * 1000 / COUNT
        rss = _rss(runs[name])
        limit = LIMITS_MS[name]
        verdict = "met" if added <= limit and rss <= LIMIT_RSS_MB else "missed"
        lines.append(
            f"| {description} | {_megabytes(paths[name]):.1f} | {min(times) * 1000:.0f} | {added:.1f} | {median:.1f} "
            f"| {per_rule:.2f} | {rss:.1f} | {verdict} |"
        )
    return "\n".join(lines)


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


if __name__ == "__main__":
    main()
