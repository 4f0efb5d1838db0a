"""CPU time of `compatcheck oom` on logs of a cluster, by their size.

    python benchmarks/logs.py [--megabytes 1 10 50 200] [--rounds 5]

writes logs as Ray and verl write them (every line names a worker, memory or an exit code, one message stands at the end) to a
temporary folder, runs `oom` on each in turn and prints Markdown.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from cpu import run

MESSAGE = """Traceback (most recent call last):
  File "/app/verl/workers/actor/dp_actor.py", line 232, in update_policy
    loss.backward()
  File "/usr/lib/python3.11/site-packages/torch/_tensor.py", line 521, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB.
"""
HEAD = "model.path=Qwen/Qwen2.5-7B-Instruct rollout.tensor_model_parallel_size=2\nvllm==0.8.4\ntorch==2.6.0\n"
LINES = (
    "INFO worker.py:267] memory profiling takes {0:.2f} seconds, worker exit code 0, of total_gpu_memory (79.10GiB)\n",
    "After update actor, memory allocated (GB): {0:.6f}, memory reserved (GB): {0:.6f}, used/total (GB): 61.2/79.1\n",
    "step:{1} - actor/entropy:{0:.6f} - perf/max_memory_allocated_gb:{0:.4f} - timing_s/gen:{0:.3f}\n",
    "{1}%|██████████          | {1}/99999 [00:01<10:00, {0:.2f}s/it]\r",
)


def write_log(path: Path, megabytes: int) -> None:
    """Write a log with one message at its end."""
    drawn = random.Random(megabytes)  # noqa: S311 (text to read, no secret)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(HEAD)
        while file.tell() < megabytes * 2**20:
            for _ in range(1000):
                worker = f"\x1b[36m(WorkerDict pid={drawn.randrange(99999)}, ip=10.0.0.7)\x1b[0m "
                file.write(worker + drawn.choice(LINES).format(drawn.random() * 70, drawn.randrange(99999)))
        file.write(MESSAGE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 10, 50, 200])
    parser.add_argument("--rounds", type=int, default=5)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {size: Path(folder, f"{size}.log") for size in parsed.megabytes}
        for size, path in paths.items():
            write_log(path, size)
        command = str(Path(sys.executable).parent / "compatcheck")
        print("| log | CPU |\n|---|--:|")
        for size, path in paths.items():
            runs = [run([command, "oom", str(path)]) for _ in range(parsed.rounds)]
            print(f"| {size} MiB | {min(one.cpu_seconds for one in runs):.2f} s |")


if __name__ == "__main__":
    main()
