"""What logs account for: lines as the programs' own format strings write them."""

from __future__ import annotations

import pytest

from compatcheck.core.units import GIB, MIB
from compatcheck.oom.account import _LINES, read_account

VLLM = "(EngineCore_DP0 pid=812) INFO 11-02 10:11:12 [gpu_worker.py:298] "
SGLANG = "[2026-01-02 03:04:05 TP0] "
PARTS = {
    VLLM + "Model loading took 14.2488 GiB and 12.512345 seconds": ("vLLM", {"weights": 14.2488}),
    VLLM + "Model loading took 14.25 GiB memory and 12.512345 seconds": ("vLLM", {"weights": 14.25}),
    "INFO 03-04 10:11:12 worker.py:271] model weights take 14.25GiB; non_torch_memory takes 0.15GiB; PyTorch activation peak "
    "memory takes 1.40GiB; the rest of the memory reserved for KV Cache is 55.38GiB.": (
        "vLLM", {"weights": 14.25, "outside torch": 0.15, "activations of the profiled pass": 1.4, "KV cache": 55.38},
    ),
    VLLM + "Available KV cache memory: 52.31 GiB": ("vLLM", {"KV cache": 52.31}),
    VLLM + "Graph capturing finished in 22 secs, took 0.58 GiB": ("vLLM", {"CUDA graphs": 0.58}),
    VLLM + "Free memory on device cuda:0 (78.71/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual "
    "usage is 14.25 GiB for weight, 1.4 GiB for peak activation, 0.15 GiB for non-torch memory, and 0.58 GiB for CUDAGraph memory.": (
        "vLLM", {"weights": 14.25, "activations of the profiled pass": 1.4, "outside torch": 0.15, "CUDA graphs": 0.58},
    ),
    VLLM + "Actual usage is 14.4 GiB for consumed memory (weights + non-torch), 1.4 GiB for peak activation, and 0.58 GiB for "
    "CUDAGraph memory.": (
        "vLLM", {"weights and other libraries": 14.4, "activations of the profiled pass": 1.4, "CUDA graphs": 0.58},
    ),
    SGLANG + "Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=64.11 GB, mem usage=14.27 GB.": (
        "SGLang", {"weights": 14.27},
    ),
    SGLANG + "KV Cache is allocated. #tokens: 912345, K size: 24.36 GB, V size: 24.36 GB": ("SGLang", {"KV cache": 48.72}),
    SGLANG + "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 912345, KV size: 24.36 GB": ("SGLang", {"KV cache": 24.36}),
    SGLANG + "Capture cuda graph end. Time elapsed: 8.12 s. mem usage=0.93 GB. avail mem=9.71 GB.": (
        "SGLang", {"CUDA graphs": 0.93},
    ),
}  # fmt: skip
MOMENTS = {
    VLLM + "Sleep mode freed 61.12 GiB memory, 4.10 GiB memory is still in use.": ("asleep", "used", 4.10 * GIB),
    SGLANG + "Memory pool end. avail mem=9.71 GB": ("memory pool", "free", 9.71 * GIB),
    "[Rank 0] (after 2 iterations) memory (MB) | allocated: 25123.5 | max allocated: 40211.1 | reserved: 42000.0 | max reserved: "
    "42000.0": ("(after N iterations)", "allocated", 25123.5 * MIB),
    "[2026-01-02 03:04:05] memory_utils.py:42 - [Rank 3] Memory-Usage after wake_up (cleared before print): {'gpu': '0', "
    "'total_GB': 79.11, 'free_GB': 60.0, 'used_GB': 19.11, 'allocated_GB': 15.2, 'reserved_GB': 16.4}": (
        "after wake_up", "allocated", 15.2 * GIB,
    ),
    "(WorkerDict pid=901) INFO:After update actor, memory allocated (GB): 24.15, memory reserved (GB): 40.50, device memory "
    "used/total (GB): 52.10/79.15": ("After update actor", "allocated", 24.15 * GIB),
    "(WorkerDict pid=80859) After vllm offload in sharding manager: 20.73 GB / 47.53 GB.": (
        "After vllm offload in sharding manager", "used", 20.73 * GIB,
    ),
    "[2026-01-02 03:04:05,001] [INFO] [utils.py:781:see_memory_usage] After initializing ZeRO optimizer\n"
    "[2026-01-02 03:04:05,002] [INFO] [utils.py:782:see_memory_usage] MA 12.5 GB         Max_MA 13.5 GB         CA 14.0 GB         "
    "Max_CA 14 GB ": ("After initializing ZeRO optimizer", "allocated", 12.5 * GIB),
    "GPU Memory after optimizer offload: 15.20GB allocated, 16.40GB reserved": (
        "after optimizer offload", "allocated", 15.2 * GIB,
    ),
    "[titan] 2026-01-02 03:04:05,001 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 8.1  \x1b[38;2;54;234;195mmemory: 47.25GiB"
    "(59.67%)  \x1b[34mtps: 1,000": ("peak of a step", "reserved", 47.25 * GIB),
    "{'loss': 1.2, 'grad_norm': 0.5, 'memory(GiB)': 22.5, 'epoch': 0.1}": ("peak so far", "reserved", 22.5 * GIB),
    "{'loss': 1.2, 'memory/max_active (GiB)': '20.1', 'memory/max_allocated (GiB)': '21.5'}": (
        "peak so far", "allocated", 21.5 * GIB,
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", PARTS)
def test_what_an_engine_took(line) -> None:
    writer, parts = PARTS[line]
    account = read_account(f"before\n{line}\nafter\n")
    assert {(one.writer, one.part): one.size_bytes for one in account.held} == {
        (writer, part): pytest.approx(size * GIB, abs=1) for part, size in parts.items()
    }
    assert {one.line for one in account.held} == {2}


@pytest.mark.parametrize("text", MOMENTS)
def test_what_a_process_held(text) -> None:
    moment, kind, size = MOMENTS[text]
    (series,) = read_account(f"before\n{text}\nafter\n").series
    assert (series.moment, series.kind, series.first_bytes) == (moment, kind, pytest.approx(size, abs=1))
    assert (series.times, series.grows, series.first_line) == (1, False, 2 + text.count("\n"))


def test_every_form_is_written_by_some_program() -> None:
    texts = [*PARTS, *MOMENTS]
    assert all(any(form.needle in text.lower() for text in texts) for form in _LINES)
    assert len(_LINES) <= len(texts)


def say(sizes: list[float], worker: int = 1) -> str:
    return "".join(
        f"(WorkerDict pid={worker}) After step {number}, memory allocated (GB): {size}, memory reserved (GB): 9.0\n"
        for number, size in enumerate(sizes)
    )


@pytest.mark.parametrize(
    ("sizes", "grows"),
    [
        ([4.1, 11.6, 25.0], True),  # what stayed awake, step by step, in a report of NeMo RL
        ([10.0, 30.0, 10.2], False),
        ([10.0, 10.1, 10.2], False),
        ([10.0, 14.0], False),
    ],
)
def test_what_holds_more_from_time_to_time_grows(sizes, grows) -> None:
    (series,) = read_account(say(sizes)).series
    assert series.grows is grows
    assert (series.times, series.moment) == (len(sizes), "After step N")


def test_of_ranks_the_one_that_grows_most_is_told_and_the_largest_part() -> None:
    loaded = "".join(
        f"(Worker_TP{rank} pid={rank}) Model loading took {7 + rank}.0 GiB and 1.0 seconds\n" for rank in range(3)
    )
    account = read_account(loaded + say([1.0, 2.0], 1) + say([1.0, 9.0], 2))
    assert [one.size_bytes for one in account.held] == [9 * GIB]
    assert [one.last_bytes for one in account.series] == [9 * GIB]


@pytest.mark.parametrize(
    "line",
    [
        "GPU memory is fine",
        "memory: none",
        "Max_MA of the model",
        "loading took 3 GB / day",
        "Memory-Usage high",
        "1 gb / 2",
    ],
)
def test_other_lines_account_for_nothing(line) -> None:
    account = read_account(f"{line}\n")
    assert (account.held, account.series) == ((), ())
