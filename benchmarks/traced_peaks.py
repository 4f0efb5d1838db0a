"""Trace the measured runs that can be traced, and hold what is traced against what was measured.

    python benchmarks/traced_peaks.py --environments DIR [--litgpt CHECKOUT] [--source NAME] [--all]

Runs of `fixtures/estimates/peaks` with a peak of allocated memory whose inputs are published, traced with the transformers and
peft that each names and torch 2.13, in environments built under DIR when missing (the CPU build of torch is found through
``UV_FIND_LINKS`` or ``UV_INDEX``). LitGPT's are traced with the blocks and the step of its own in a checkout at 6178c7cc, as a
person names them with ``--module`` (`inputs/litgpt_lora.py`). Output: for each source how many, the median error, the 95th
percentile; how many cannot be traced, and why; the CPU seconds and the memory of the interpreter that traces.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from environments import TORCH, find_uv, interpreter
from measured_peaks import Measured, open_measured, read_peaks

from compatcheck.core.units import GIB, MIB
from compatcheck.lab.traced.request import OwnSource, Untraceable
from compatcheck.lab.traced.trace import trace

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIGURED = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "vocab_size", "tie_word_embeddings", "hidden_act",
)  # fmt: skip
"""Facts of a model that a configuration of transformers has by the same name."""

INPUTS = Path(__file__).with_name("inputs")
"""What a person names with ``--module``; functions are called as the models of the fixture."""
LITGPT = "litgpt_lora.py"
_RESOURCES = "setuptools==80.9.0"
"""Lightning 2.1 imports ``pkg_resources``, which setuptools has no more from 82 on."""


def build(root: Path, packages: Mapping[str, str], *, litgpt: bool) -> str:
    """Return the interpreter of an environment with the releases that a run names, built if it is missing."""
    wanted = [f"{name}=={packages[name]}" for name in ("transformers", "peft", "lightning") if name in packages]
    wanted = (
        ["lightning==2.6.6"] if litgpt else [*wanted, *(["requests", _RESOURCES] if "lightning" in packages else [])]
    )
    path = root / "-".join(["traced", *(one.replace("==", "-") for one in wanted)])
    if not path.exists():
        uv = find_uv()
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(path)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", interpreter(path), TORCH, *wanted], check=True)
    return interpreter(path)


def trace_measured(run: Measured, root: Path, checkout: Path | None) -> float | str:
    """Return the relative error of a run's traced peak, or why there is none."""
    subject, _ = open_measured(run)
    (facts,) = subject.roles.values()
    said = {name: fact.value for name, fact in facts.items()}
    own = None
    if run.module:
        if run.module == LITGPT and checkout is None:
            return "blocks of its own: its module is needed"
        function = run.model.replace("-", "_").replace(".", "_")
        folder = checkout if run.module == LITGPT else INPUTS
        own = OwnSource(str(INPUTS / run.module), None, function, str(folder))
        said["training.peft"] = None  # the module has its adapters
        said["training.gradient_checkpointing"] = said.get("training.gradient_checkpointing") or said.get(
            "training.fsdp_activation_checkpointing"
        )
    elif said.get("program.own_layers"):
        return "an attention of its own"
    config: dict[str, Any] = {name: said[f"model.{name}"] for name in CONFIGURED if f"model.{name}" in said}
    found = trace(said, config=config, python=build(root, run.packages, litgpt=run.module == LITGPT), own=own)
    if isinstance(found, Untraceable):
        return found.reason
    return found.estimate.allocated.expected / run.counted["allocated"] - 1


def main() -> None:
    """Trace, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--litgpt", type=Path, help="a checkout of LitGPT at 6178c7cc")
    parser.add_argument("--source", default="")
    parser.add_argument("--all", action="store_true", help="print every run")
    given = parser.parse_args()
    root = given.environments.resolve()
    root.mkdir(parents=True, exist_ok=True)
    errors: dict[str, list[float]] = defaultdict(list)
    untraced: Counter[tuple[str, str]] = Counter()
    seconds = []
    for run in read_peaks():
        if run.apart or "allocated" not in run.counted or not run.source.startswith(given.source):
            continue
        before = _children()
        found = trace_measured(run, root, given.litgpt and given.litgpt.resolve())
        if isinstance(found, str):
            untraced[run.source, found] += 1
            continue
        errors[run.source].append(found)
        seconds.append(_children() - before)
        if given.all:
            print(
                f"{run.name}: {run.counted['allocated'] / GIB:.2f} GiB, {found:+.2%}, {seconds[-1]:.1f} s", flush=True
            )
    print("\n| source | traced | median error | 95th percentile | median signed |\n|---|---:|---:|---:|---:|")
    for source, group in errors.items():
        last = sorted(map(abs, group))[math.ceil(0.95 * len(group)) - 1]
        middle = statistics.median(map(abs, group))
        print(f"| {source} | {len(group)} | {middle:.2%} | {last:.2%} | {statistics.median(group):+.2%} |")
    print()
    for (source, reason), count in untraced.items():
        print(f"- {source}: {count} not traced: {reason}")
    if seconds:
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / MIB
        print(
            f"\nCPU seconds of a trace: {statistics.median(seconds):.1f} (most {max(seconds):.1f}); at most {most:,.0f} MiB"
        )


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
