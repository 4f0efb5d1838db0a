"""Check runs drawn from public training repositories and list what is found, to be read and judged.

    python benchmarks/public_runs.py CHECKOUTS REPORTS [--runs 10] [--gpu A100-80GB] [--only NAME …]

`CHECKOUTS` holds a directory for each repository at a release, with a file `pins.txt` beside its own files: its requirements as
`uv pip compile --exclude-newer DATE` resolves them at the date of that release. From each, launch scripts and recipes are drawn
in an order of their own that is the same every time, and those are kept in whose report more than eight training facts stand. A
JSON report of each goes into `REPORTS`; a table of the `affected` findings at `medium` or above goes to standard output.

    python benchmarks/public_runs.py CHECKOUTS --estimates benchmarks/inputs/launch_runs.txt [--show]

counts instead what `compatcheck estimate FILE --gpu 8xH100-80GB` says of the files in that list as they are shipped, without
pins: `CHECKOUTS` holds each repository at its commit as `OWNER+NAME`; verl-recipe lies in the
directory `recipe` of a checkout of verl. A table by repository goes to standard output.

The number of devices is the script's own where it tells it: a device is named without a number first, and with eight to a node
only where that left the world size unknown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.checking import EstimateOptions, Request, estimate
from compatcheck.core.errors import CompatcheckError
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.rules.database import RuleSet

WORTHY = ("medium", "high", "critical")
LAUNCHES = re.compile(
    r"verl|openrlhf|torchrun|accelerate|deepspeed|swift|llamafactory|axolotl|torchtune|tune run|python"
)
OTHER_WORK = re.compile(
    r"/(tests?|docker|\.github|ci|eval|evaluation|inference|infer|deploy|export|sampler|app|data_preprocess|retrieval|retriever|retrieve|serve)/"
    r"|install|setup|format|lint|process|merge|convert|upload|download|build_|mason|eval"
)
RECIPES = {
    "axolotl": ("examples/**/*.y*ml", ""),
    "lf": ("examples/**/*train*/**/*.yaml", ""),
    "torchtune": ("recipes/configs/**/*.yaml", r"generation|quant"),
    "torchtitan": ("torchtitan/**/*.toml", ""),
    "handbook": ("recipes/**/*.yaml", "accelerate"),
    "open-instruct": ("configs/train_configs/**/*.yaml", ""),
}
"""By the beginning of a checkout's name: where its recipes stand, and what in a path means that one is something else."""

BESIDE = {"handbook": "recipes/accelerate_configs"}
"""Where the launcher's files stand of those whose recipes do not name one."""


def list_candidates(checkout: Path) -> list[Path]:
    """Launch scripts and recipes of a checkout, relative to it, sorted."""

    def belongs(path: Path) -> bool:
        return not OTHER_WORK.search(f"/{path.relative_to(checkout)}")

    scripts = [
        path for path in checkout.rglob("*.sh") if belongs(path) and LAUNCHES.search(path.read_text("utf-8", "replace"))
    ]
    recipes: list[Path] = []
    for name, (pattern, without) in RECIPES.items():
        if checkout.name.startswith(name):
            recipes = [
                p for p in checkout.glob(pattern) if not without or not re.search(without, str(p.relative_to(checkout)))
            ]
    return [path.relative_to(checkout) for path in (*sorted(scripts), *sorted(recipes))]


def name_inputs(checkout: Path, path: Path) -> list[str]:
    """Arguments of `check` for one script or recipe."""
    if path.suffix == ".sh":
        return [str(path)]
    beside = BESIDE.get(checkout.name)
    launcher = "multi_gpu.yaml" if "qlora" in path.name else "deepspeed_zero3.yaml"
    return ["--training", str(path), *(("--training", f"{beside}/{launcher}") if beside else ())]


def check(checkout: Path, inputs: list[str], gpu: str) -> dict | None:
    """The JSON report, or none where nothing could be read."""
    command = [sys.executable, "-m", "compatcheck", "check", "pins.txt", *inputs, "--gpu", gpu, "--format", "json"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=300, check=False)
    try:
        return json.loads(run.stdout) | {"exit_code": run.returncode}
    except json.JSONDecodeError:
        print(f"{checkout.name} {inputs}: exit {run.returncode}: {run.stderr[-200:]}", file=sys.stderr)
        return None


def draw(checkout: Path, reports: Path, runs: int, gpu: str) -> int:
    """Check runs of one checkout until there are enough; return how many."""
    candidates, kept = list_candidates(checkout), 0
    random.Random(f"7 {checkout.name}").shuffle(candidates)  # noqa: S311 (no secret)
    for path in candidates:
        if kept == runs:
            break
        inputs = name_inputs(checkout, path)
        report = check(checkout, inputs, gpu)
        if report is None or not any(
            sum(fact["name"].startswith("training.") for fact in subject["facts"]) > 8 for subject in report["subjects"]
        ):
            continue
        told = any(fact["name"] == "hardware.world_size" for subject in report["subjects"] for fact in subject["facts"])
        if not told:
            report = check(checkout, inputs, f"8x{gpu}") or report
        report["run"] = {"checkout": checkout.name, "path": str(path), "ranks": "told" if told else "eight"}
        (reports / f"{checkout.name}__{str(path).replace('/', '~')}.json").write_text(json.dumps(report))
        kept += 1
    return kept


def print_table(reports: Path) -> None:
    """Print how many runs there are, and each rule's findings by checkout."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    runs = without = 0
    for file in sorted(reports.glob("*.json")):
        report = json.loads(file.read_text())
        runs += 1
        without += not any(subject.get("estimate") for subject in report["subjects"])
        for finding in report["findings"]:
            if finding["status"] == "affected" and finding["severity"] in WORTHY:
                found[finding["rule_id"]].append((finding["severity"], report["run"]["checkout"]))
    print(f"{runs} runs, {without} of them without an estimate; {sum(map(len, found.values()))} findings\n")
    print("| rule | findings | severities | by checkout |\n|---|---|---|---|")
    for rule, findings in sorted(found.items(), key=lambda item: -len(item[1])):
        severities, checkouts = (
            ", ".join(f"{k} {n}" for k, n in Counter(column).items()) for column in zip(*findings, strict=True)
        )
        print(f"| {rule} | {len(findings)} | {severities} | {checkouts} |")


KINDS = ("figure", "range", "model", "question", "devices", "unread")


def ask(path: str, rules: RuleSet) -> tuple[str, str]:
    """Return how an estimate comes out, and what is asked or said instead: that of the first run of a file without one."""
    request = Request(paths=(path,), gpu="8xH100-80GB", here=False)
    try:
        found = estimate(request, rules, {}, EstimateOptions())
    except CompatcheckError as error:
        return "unread", str(error)
    without = [report for report in found.reports if not report.estimate.phases]
    if not found.reports:
        return "unread", "; ".join([entry.reason for entry in (*found.failed, *found.skipped)][:1])
    lengths = [report for report in without if not report.walls]
    if not lengths:
        return "range" if without or any(report.estimate.at_least for report in found.reports) else "figure", ""
    needs, primary = lengths[0].estimate.needs, lengths[0].estimate.verdict.primary
    if any("options this release does not read" in entry.reason for entry in found.skipped):
        return "unread", next(e.reason for e in found.skipped if "options this release does not read" in e.reason)
    kind = "devices" if not needs else "model" if "model.hidden_size" in needs else "question"
    return kind, ", ".join(needs) or str(primary)


def print_estimates(checkouts: Path, listed: Path, *, show: bool) -> None:
    """Print how the estimates of the files in a list come out, by repository."""
    counts: dict[str, Counter[str]] = {}
    rules, repository = open_rules(()), ""
    for line in listed.read_text("utf-8").splitlines():
        if line.startswith("@ "):
            repository = line.split()[1]
            counts[repository] = Counter()
            os.chdir(checkouts / repository.replace("/", "+"))
        elif line.startswith("-- "):
            counts[repository]["no training"] += 1
        elif line and not line.startswith("#"):
            # the recipes of verl are a submodule of it
            place = Path("recipe", line) if repository.endswith("verl-recipe") else Path(line)
            kind, said = ask(str(place), rules)
            counts[repository][kind] += 1
            if show:
                print(f"{repository} {line}: {kind} {said}", file=sys.stderr)
    head = ("repository", "drawn", "trainings", *KINDS)
    print("| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1))
    for name, row in {**counts, "**all**": sum(counts.values(), Counter())}.items():
        trainings = row.total() - row["no training"]
        print("| " + " | ".join(map(str, (name, row.total(), trainings, *(row[kind] for kind in KINDS)))) + " |")


def main() -> None:
    """Draw, check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("reports", type=Path, nargs="?")
    parser.add_argument("--estimates", type=Path, metavar="LIST")
    parser.add_argument("--show", action="store_true", help="say of each file how its estimate comes out")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--gpu", default="A100-80GB")
    parser.add_argument("--only", nargs="*")
    parser.add_argument(
        "--again", action="store_true", help="check the runs whose reports are there already, and no others"
    )
    options = parser.parse_args()
    if options.estimates is not None:
        print_estimates(options.checkouts.resolve(), options.estimates, show=options.show)
        return
    options.reports.mkdir(parents=True, exist_ok=True)
    checkouts = [
        path
        for path in sorted(options.checkouts.iterdir())
        if (path / "pins.txt").is_file() and (not options.only or path.name in options.only)
    ]
    with ThreadPoolExecutor(2) as pool:
        for checkout, kept in zip(
            checkouts,
            pool.map(lambda path: draw(path, options.reports, options.runs, options.gpu), checkouts),
            strict=True,
        ):
            print(f"{checkout.name}: {kept} runs", file=sys.stderr)
    print_table(options.reports)


if __name__ == "__main__":
    main()
