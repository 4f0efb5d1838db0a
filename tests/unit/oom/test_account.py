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
    "INFO 03-04 10:11:12 model_runner.py:1115] Loading model weights took 14.2487 GB": ("vLLM", {"weights": 14.2487}),
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
    SGLANG + "Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.09GB, ssm_state size: 6.46GB ": (
        "SGLang", {"states of linear attention": 6.55},
    ),
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
    "\x1b[36m(WorkerDict pid=22)\x1b[0m DEBUG:2026-07-23 18:43:23,844:Before rollout offload, memory allocated (GB): "
    "43.125895977020264, memory reserved (GB): 48.9765625": ("Before rollout offload", "allocated", 43.125895977020264 * GIB),
    "(WorkerDict pid=1) WARNING:verl.workers.fsdp_workers:After init, memory allocated (GB): 1.0, memory reserved (GB): 2.0": (
        "After init", "allocated", GIB,
    ),
    "> [Rank 6] (after 10 iterations) memory (MB) | allocated: 24761.02978515625 | max allocated: 65203.93359375 | reserved: 64438.0 "
    "| max reserved: 74306.0": ("(after N iterations)", "allocated", 24761.02978515625 * MIB),
    "{'loss': 0.1, 'memory/max_mem_active(gib)': 14.9, 'memory/max_mem_allocated(gib)': 14.56}": (
        "peak so far", "allocated", 14.56 * GIB,
    ),
    "[2024-01-19 08:21:59,758] [INFO] [axolotl.load_model:625] [PID:6553] [RANK:5] GPU memory usage after adapters: 25.701GB (+0.079GB "
    "cache, +1.045GB misc)": ("after adapters", "allocated", 25.701 * GIB),
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
        ([40.0, 66.9, 66.9, 66.9], False),  # the first step has no optimizer states yet
        ([10.0, 10.0, 10.0, 20.0, 20.0, 20.0], False),  # another run, or longer sequences
        ([20.1, 33.2, 53.6, 53.6, 53.6], False),  # a peak so far, which cannot fall
        ([40.0, 47.0, 40.0, 47.0, 40.0, 47.0], False),  # ranks that nothing tells apart
        ([10.0, 10.4, 10.2, 10.9, 11.2, 11.1, 11.6, 11.9], True),
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


RANKS = {
    "[Rank {rank}] (after 2 iterations) memory (MB) | allocated: {size} | max allocated: 9.0 | reserved: 9.0 | max reserved: 9.0\n",
    "(MegatronPolicyWorker[rank={rank}] pid=41{rank}) GPU Memory before optimizer offload: {size}GB allocated, 9.0GB reserved\n",
    "[2024-01-19 08:21:59,758] [INFO] [axolotl.load_model:625] [PID:6{rank}] [RANK:{rank}] GPU memory usage after load: {size}GB (+1GB)\n",
    "[Rank {rank}] Memory-Usage after wake_up: {{'used_GB': 9.0, 'allocated_GB': {size}, 'reserved_GB': 9.0}}\n",
}


@pytest.mark.parametrize("line", RANKS)
def test_ranks_are_no_moments_of_one_another_and_the_fullest_is_told(line) -> None:
    (series,) = read_account("".join(line.format(rank=rank, size=f"{4000 + 9 * rank}.5") for rank in range(4))).series
    assert (series.times, series.grows, series.first_line) == (1, False, 4)


def test_parts_of_an_engine_are_of_one_start_with_the_line_that_says_them() -> None:
    runs = ((14.25, 50.0, 0.5), (64.25, 5.0, 0.25))
    account = read_account(
        "".join(
            f"{VLLM}Model loading took {weights} GiB and 1 seconds\n{VLLM}Available KV cache memory: {cache} GiB\n"
            f"{VLLM}Graph capturing finished in 2 secs, took {graphs} GiB\n"
            for weights, cache, graphs in runs
        )
    )
    assert [(one.size_bytes / GIB, one.line) for one in account.held] == [(64.25, 4), (5.0, 5), (0.25, 6)]


def test_a_draft_model_of_the_same_process_does_not_hide_what_it_drafts_for() -> None:
    lines = ("type=Main, avail mem=9.0 GB, mem usage=104.25 GB.", "type=Draft, avail mem=8.0 GB, mem usage=2.5 GB.")
    (held,) = read_account("".join(f"{SGLANG}Load weight end. {line}\n" for line in lines)).held
    assert (held.size_bytes, held.line) == (104.25 * GIB, 1)


SEEN = "[2026-01-02 03:04:05,001] [INFO] [utils.py:781:see_memory_usage] "
MA = "MA 12.5 GB         Max_MA 13.5 GB         CA 14.0 GB         Max_CA 14 GB \n"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        (f"{SEEN}before step\nTrain: 33%|###\n\n{SEEN}{MA}", "before step"),
        (f"[default0]:{SEEN}before step\n[default7]:{SEEN}after step\n[default0]:{SEEN}{MA}", "before step"),
        (f"{SEEN}{MA}", ""),
    ],
)
def test_the_moment_of_a_line_is_what_its_own_process_printed(text, moment) -> None:
    (series,) = read_account(text).series
    assert series.moment == moment


def test_layers_are_no_moments_of_one_another() -> None:
    lines = [
        f"(WorkerDict pid=1) After layer {n} of step 3, memory allocated (GB): {n}, memory reserved (GB): 9"
        for n in range(3)
    ]
    assert [one.moment for one in read_account("\n".join(lines)).series] == [
        f"After layer {n} of step N" for n in range(3)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Downloading: 3.5 GB / 16.0 GB.",
        "RAM: 50.1 GB / 500.0 GB.",
        '{"memory/max_allocated_bytes": 123456789012}',
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
