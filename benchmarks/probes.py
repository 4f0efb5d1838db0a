"""What measuring costs: CPU seconds of the whole process tree, beside importing what is measured.

    python benchmarks/probes.py PYTHON

PYTHON is an interpreter with torch. Each row is run three times and the least is taken; the ratio is to the same interpreter
importing torch alone. `cold` rows build their environment in an empty cache first (packages may come from the installer's).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

ROWS = (
    ("a transformers step of a bisection, warm", ["logits_and_loss", "--with", "transformers==4.57.6"], False),
    ("a DeepSpeed ZeRO-3 step on two ranks, warm", ["zero3_release", "--with", "deepspeed==0.16.8"], False),
    ("the same, its environment built first", ["zero3_release", "--with", "deepspeed==0.16.8"], True),
    ("the newest DeepSpeed, built first", ["zero3_release", "--with", "deepspeed==0.19.8"], True),
    (
        "a 7B model on fake tensors: forward, backward, step",
        ["training_step", "--backend", "fake", "--with", "transformers==5.23.0", "--param", "model_type=llama"],
        False,
    ),
)
SEVEN_B = (
    *("hidden_size=4096", "layers=32", "heads=32", "kv_heads=32", "intermediate_size=11008", "vocab_size=32000"),
    *("batch=1", "sequence=4096"),
)
ROUNDS = 3


def measure(command: list[str], cache: str) -> tuple[float, int]:
    """Return CPU seconds of a command and all it started, and the largest resident set among them, in bytes."""
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)"
    )
    environ = {**os.environ, "COMPATCHECK_CACHE": cache}
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, env=environ, check=True
    )
    seconds, resident = done.stdout.split()
    return float(seconds), int(resident)


def main() -> None:
    """Print the table."""
    python = sys.argv[1]
    resource.getrusage(resource.RUSAGE_CHILDREN)
    base = min(measure([python, "-c", "import torch"], "")[0] for _ in range(ROUNDS))
    print(f"| what | CPU seconds | of `import torch` ({base:.1f} s) | largest process |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as shared:
        for title, arguments, cold in ROWS:
            extra = [text for size in SEVEN_B for text in ("--param", size)] if "7B" in title else []
            command = [
                sys.executable,
                "-m",
                "compatcheck",
                "probe",
                "run",
                *arguments,
                *extra,
                "--python",
                python,
                "--no-store",
            ]
            runs = []
            if not cold:
                measure(command, shared)
            for _ in range(ROUNDS):
                with tempfile.TemporaryDirectory() as empty:
                    runs.append(measure(command, empty if cold else shared))
            seconds, resident = min(runs)
            print(f"| {title} | {seconds:.1f} | {seconds / base:.1f} | {resident / 2**20:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
