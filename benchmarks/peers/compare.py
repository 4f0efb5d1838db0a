r"""compatcheck's memory estimate beside those of others, on the public reports of `memory-cases.yaml`.

    python benchmarks/peers/compare.py --cases memory-cases.yaml --environments DIR [--ours OURS.json] \
        [--json RESULTS.json] [--page docs/peers-memory.md]

Every peer is a pinned release in an environment of its own under DIR, built when missing (the CPU build of torch is found through
``UV_FIND_LINKS`` or ``UV_INDEX``). Each report is put into the words of each peer, as favourably as the report allows
(`reading.py`, `adapters/`); what a peer has no words for is counted apart, with the reason.

OURS.json is our own column:

    {"tool": "compatcheck 0.1",
     "cases": {"<id of the case>": {
         "allocated": {"low": BYTES, "expected": BYTES, "high": BYTES} | null,
         "reserved":  … the same, what ``torch.cuda.max_memory_reserved`` would say …,
         "device":    … the same, what nvidia-smi would say …,
         "verdict": "fits" | "marginal" | "does_not_fit" | "unknown",
         "reason": "why there is no estimate" | null}}}

All bytes are of one device. A case that is missing, or has none of the three, is "not expressible". The expected value is
compared; low and high give the share of peaks inside. What is asked where a report has no one configuration: unsloth's rows at
the published longest context of its column for transformers (its 8 GB row, which never fits, at 932 tokens), Qwen3#300's 14B at
16384 tokens. ``--questions FILE`` writes every run as it is asked, for an own column that answers the very same questions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import environments
from benchmarks.peers.measured import describe_ours, read_measured
from benchmarks.peers.page import write_measured, write_page
from benchmarks.peers.protocol import MARK, Inexpressible, Question
from benchmarks.peers.reading import read_run
from benchmarks.peers.scores import Scored, choose_like, is_right, judge, relative_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from benchmarks.peers.runs import Run

HERE = Path(__file__).resolve().parent
ADAPTERS = (
    "ask_torch_preflight",
    "ask_fitcheck",
    "ask_vramcalc",
    "ask_llm_analysis",
    "ask_accelerate",
    "ask_deepspeed",
)
OURS = "compatcheck"
LIMIT_SECONDS = 600.0


class Column(NamedTuple):
    """One tool's answers."""

    tool: str
    release: str
    answers: dict[str, dict[str, Any]]
    """Case → ``allocated``, ``reserved``, ``device``, ``verdict``, ``left_out``."""
    inexpressible: dict[str, str]
    """Case → why it was not asked, or not answered."""
    adapter: str | None = None
    """The module that asks it; None for our own."""


def build(environment: Path, requirements: Path) -> None:
    """Build a peer's environment if it is missing.

    Raises:
        SystemExit: there is no uv.
    """
    if environment.exists():
        return
    uv = shutil.which("uv")
    if uv is None:
        raise SystemExit(f"no uv on PATH to build {environment} with; `pip install uv`")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    variables = {**os.environ, "DS_BUILD_OPS": "0"}
    install = [uv, "pip", "install", "--quiet", "--python", environments.interpreter(environment)]
    peer, *others = requirements.read_text(encoding="utf-8").split()
    if others:
        subprocess.run([*install, *others], check=True)
    # What builds from source (DeepSpeed) imports torch while it does.
    subprocess.run([*install, "--no-build-isolation", peer], check=True, env=variables)


def ask(adapter: ModuleType, runs: Sequence[Run], root: Path) -> Column:
    """Put every run to one peer.

    Raises:
        SystemExit: the peer's process failed as a whole.
    """
    requirements = HERE / "requirements" / f"{adapter.NAME}.txt"
    environment = root / f"peer-{adapter.NAME}"
    build(environment, requirements)
    asked: dict[str, Question] = {}
    inexpressible = {}
    for run in runs:
        question = adapter.express(run)
        if isinstance(question, Inexpressible):
            inexpressible[run.case] = question.reason
        else:
            asked[run.case] = question
    done = subprocess.run(
        [environments.interpreter(environment), str(adapter.__file__)],
        input=json.dumps([question.inputs for question in asked.values()]),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith(MARK)), None)
    if line is None:
        raise SystemExit(f"{adapter.NAME} gave no answers (exit {done.returncode}):\n{done.stderr[-2000:]}")
    answers = {}
    for (case, question), reply in zip(asked.items(), json.loads(line.removeprefix(MARK)), strict=True):
        if "error" in reply:
            inexpressible[case] = f"it raised {reply['error']}"
        else:
            answers[case] = {**reply, "left_out": list(question.left_out), "documented": question.documented}
    release = requirements.read_text(encoding="utf-8").split()[0].replace("==", " ")
    return Column(adapter.NAME, release, answers, inexpressible, adapter.__name__)


def read_ours(document: Mapping[str, Any], runs: Sequence[Run]) -> Column:
    """Read our own column."""
    answers, inexpressible = {}, {}
    for run in runs:
        given = document["cases"].get(run.case) or {}
        sizes = {kind: given[kind] for kind in ("allocated", "reserved", "device") if given.get(kind)}
        if not sizes:
            inexpressible[run.case] = given.get("reason") or "no estimate"
            continue
        answers[run.case] = {
            **{kind: size["expected"] for kind, size in sizes.items()},
            "range": {kind: [size["low"], size["high"]] for kind, size in sizes.items()},
            "verdict": given.get("verdict"),
            "left_out": [],
            "documented": True,
        }
    return Column(OURS, document.get("tool", OURS), answers, inexpressible)


def score(column: Column, runs: Sequence[Run]) -> list[Scored]:
    """Score one tool's answers."""
    scored = []
    for run in runs:
        answer = column.answers.get(run.case)
        if answer is None:
            continue
        total = choose_like(answer, "device")
        verdict = answer.get("verdict") or judge(total, run.device_bytes)
        scored.append(
            Scored(
                run.case,
                run.group,
                _error(answer, run),
                _error(answer, run, decimal=True),
                is_right(verdict, run.outcome),
                run.outcome,
                verdict,
                answer["documented"],
            )
        )
    return scored


def _error(answer: Mapping[str, Any], run: Run, *, decimal: bool = False) -> float | None:
    if run.peak is None:
        return None
    predicted = choose_like(answer, run.peak.kind)
    if predicted is None:
        return None
    scale = run.peak.decimal if decimal else 1.0
    return relative_error(predicted, run.peak.low * scale, run.peak.high * scale)


def tell(columns: Sequence[Column], runs: Sequence[Run]) -> dict[str, Any]:
    """Put everything into one document: case by case, what was asked, answered and measured."""
    scores = {column.tool: {item.case: item for item in score(column, runs)} for column in columns}
    cases = {}
    for run in runs:
        tools: dict[str, Any] = {}
        for column in columns:
            item = scores[column.tool].get(run.case)
            if item is None:
                tools[column.tool] = {"not_expressible": column.inexpressible.get(run.case, "")}
                continue
            answer = column.answers[run.case]
            like = choose_like(answer, run.peak.kind if run.peak else "device")
            tools[column.tool] = {
                "predicted_bytes": like,
                "error": item.error,
                "verdict": item.verdict,
                "right": item.right,
                "left_out": answer["left_out"],
                "documented": answer["documented"],
            }
        cases[run.case] = {"run": _as_plain(run), "tools": tools}
    return {"tools": {column.tool: column.release for column in columns}, "cases": cases}


def _as_plain(run: Run) -> dict[str, Any]:
    plain = run._asdict()
    for name in ("shape", "adapter", "peak"):
        if plain[name] is not None:
            plain[name] = plain[name]._asdict()
    return plain


def _ask_all(runs: Sequence[Run], root: Path) -> list[Column]:
    return [ask(importlib.import_module(f"benchmarks.peers.adapters.{name}"), runs, root) for name in ADAPTERS]


def _compare_measured(root: Path) -> str:
    """Ask everyone about the runs whose peak a script measured."""
    measured = list(read_measured())
    runs = [run for run, _ in measured]
    ours = read_ours({"cases": {run.case: describe_ours(truth) for run, truth in measured}}, runs)
    return write_measured([(column, score(column, runs)) for column in (ours, *_ask_all(runs, root))], runs)


def main() -> None:
    """Ask everyone and write what was answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, required=True, help="the file of public reports")
    parser.add_argument("--environments", type=Path, required=True, help="where environments are built and kept")
    parser.add_argument("--ours", type=Path, help="our own column, as described above")
    parser.add_argument("--questions", type=Path, help="write every run as it is asked, and stop")
    parser.add_argument("--json", type=Path, help="write results case by case")
    parser.add_argument("--page", type=Path, help="write the page")
    arguments = parser.parse_args()
    runs = [read_run(report) for report in yaml.safe_load(arguments.cases.read_text(encoding="utf-8"))["cases"]]
    if arguments.questions:
        arguments.questions.write_text(json.dumps([_as_plain(run) for run in runs], indent=1) + "\n", encoding="utf-8")
        return
    root = arguments.environments.resolve()
    root.mkdir(parents=True, exist_ok=True)
    columns = [read_ours(json.loads(arguments.ours.read_text(encoding="utf-8")), runs)] if arguments.ours else []
    columns += _ask_all(runs, root)
    if arguments.json:
        arguments.json.write_text(json.dumps(tell(columns, runs), indent=1) + "\n", encoding="utf-8")
    doubts = yaml.safe_load((HERE / "doubts.yaml").read_text(encoding="utf-8"))
    page = write_page(
        [(column, score(column, runs)) for column in columns],
        runs,
        doubts,
        date=f"{datetime.now(tz=timezone.utc):%Y-%m-%d}",
    )
    page += _compare_measured(root)
    if arguments.page:
        arguments.page.write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    main()
