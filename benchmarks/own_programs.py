"""Run the own loops of programs on a CPU, trace what a person names of them with ``--module``, and hold one against the other.

    python benchmarks/own_programs.py --environments DIR --checkouts DIR [--program NAME]

`inputs/own_PROGRAM.py` has for each run a function that is traced and one that runs the program's own loop on real tensors, whose
live bytes are counted (`inputs/count_loop.py`). Both take the kernels of a CPU. DIR of ``--checkouts`` has nanoGPT at 3adf61e, llm-foundry
at 8c8dd48f, llama-recipes at faae2fd8 and litgpt at 2685705; releases that a run needs are installed under that of ``--environments``
(the CPU build of torch is found through ``UV_FIND_LINKS``). Writes `fixtures/estimates/own-programs.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from environments import TORCH, find_uv, interpreter

from compatcheck.lab.traced.request import OwnSource, Untraceable, make_request
from compatcheck.lab.traced.trace import run_program
from compatcheck.rules.strict_yaml import load_strict

if TYPE_CHECKING:
    from collections.abc import Mapping

INPUTS = Path(__file__).with_name("inputs")
ROOT = Path(__file__).parents[1]
FILE = ROOT / "fixtures/estimates/own-programs.json"


class Run(NamedTuple):
    """A run of a program."""

    program: str
    name: str
    """Of the functions: ``build_NAME`` is traced, ``loop_NAME`` is run."""
    sizes: Mapping[str, int]
    settings: Mapping[str, Any]
    """Facts of the run, without the sizes."""
    options: Mapping[str, Any]
    """What the loop takes beside the sizes."""


class Program(NamedTuple):
    """Where a program is, and what it needs."""

    folder: str
    packages: tuple[str, ...]


def read_runs() -> tuple[Mapping[str, Program], list[Run]]:
    """Read `inputs/own_programs.yaml`."""
    found = load_strict(INPUTS / "own_programs.yaml")[0]
    programs = {name: Program(one["folder"], tuple(one["packages"])) for name, one in found["programs"].items()}
    runs = [
        Run(one["program"], one["run"], one["sizes"], one.get("set", {}), one.get("options", {}))
        for one in found["runs"]
    ]
    return programs, runs


def build(root: Path, packages: tuple[str, ...]) -> str:
    """Return the interpreter of an environment with these releases, built if it is missing."""
    path = root / "-".join(["own", *(one.replace("==", "-") for one in packages)])[:120]
    if not path.exists():
        uv, overrides = find_uv(), root / "overrides.txt"
        overrides.write_text(f"{TORCH}\ntorchvision ; python_version < '3'\n", encoding="utf-8")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(path)], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", interpreter(path), "--override", str(overrides)]
        subprocess.run([*install, TORCH, "numpy", *packages], check=True)
    return interpreter(path)


def count(run: Run, python: str, folder: Path) -> int:
    """Run the loop and return the most bytes that were alive."""
    file = INPUTS / f"own_{run.program}.py"
    sizes = json.dumps({**run.sizes, **run.options})
    command = [python, str(INPUTS / "count_loop.py"), str(file), f"loop_{run.name}", sizes]
    ran = subprocess.run(
        command, cwd=folder, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(ran.stderr[-3000:])
    return int(json.loads(ran.stdout.splitlines()[-1])["peak"])


def trace(run: Run, python: str, folder: Path) -> dict[str, int]:
    """Trace what the loop trains, with the kernels of a CPU, and return phase → bytes at its peak."""
    own = OwnSource(str(INPUTS / f"own_{run.program}.py"), None, f"build_{run.name}", str(folder))
    facts = {**{f"training.{name}": value for name, value in run.sizes.items()}, **run.settings}
    request = make_request({"training.optimizer_implementation": "for_loop", **facts}, {}, own)
    assert not isinstance(request, Untraceable), request.reason
    found = run_program([{**request.program, "device": None}], python)
    assert not isinstance(found, Untraceable), found.reason
    assert found[0]["status"] == "ok", found[0]["reason"]
    return {phase["name"]: phase["peak_bytes"] for phase in found[0]["phases"]}


def measure(run: Run, program: Program, given: argparse.Namespace) -> dict[str, Any]:
    """Count and trace a run."""
    python = build(given.environments.resolve(), program.packages)
    folder = given.checkouts.resolve() / program.folder
    phases = trace(run, python, folder)
    counted = count(run, python, folder)
    name, most = max(phases.items(), key=lambda phase: phase[1])
    print(
        f"{run.program} {run.name}: {counted:,} counted, {most:,} traced in {name}, {most / counted - 1:+.3%}",
        flush=True,
    )
    return {**run._asdict(), "counted": counted, "traced": most, "phase": name}


def main() -> None:
    """Measure what is not in the file, or what was asked for, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--program", help="measure its runs again")
    given = parser.parse_args()
    programs, runs = read_runs()
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    rows = [next((row for row in before if run._asdict().items() <= row.items()), None) for run in runs]
    for index, run in enumerate(runs):
        if rows[index] is None or run.program == given.program:
            rows[index] = measure(run, programs[run.program], given)
            lines = [json.dumps(row) for row in rows if row is not None]
            FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
