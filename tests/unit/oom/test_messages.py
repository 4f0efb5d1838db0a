"""Messages of every era and program are read back from what their own formats print, however they were pasted."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.oom.message import read_messages
from compatcheck.oom.told import find_words
from tests.unit.oom.printed_messages import ERAS, FORMATS, format_size, print_message, print_other

SIZE = st.one_of(st.integers(0, 3 * 2**20), st.integers(0, 2**38)).map(format_size)
SIZES = st.fixed_dictionaries(
    {"asked": SIZE, "total": SIZE, "free": SIZE, "allocated": SIZE, "reserved": SIZE, "unallocated": SIZE},
    optional={
        "allowed": SIZE,
        "process": SIZE,
        "private_pools": SIZE,
        "others": st.lists(st.tuples(st.integers(1, 4194304), SIZE), max_size=9),
    },
)
RELEASES = {
    "1.3": "torch 1.0–1.3", "1.4": "torch 1.4–1.10, or cut off", "1.11": "torch 1.11–2.0", "2.1": "torch 2.1", "2.2": "torch 2.2–2.9",
    "2.3": "torch 2.3", "2.10": "torch 2.10–2.12", "2.13": "torch 2.13 or later", "npu": "torch 1.11–2.0",
}  # fmt: skip
EXAMPLE = {
    "asked": "9.28 GiB", "total": "79.10 GiB", "free": "3.02 GiB", "allocated": "70.00 GiB", "reserved": "74.10 GiB", "unallocated": "4.10 GiB",
    "process": "76.00 GiB", "others": [(17, "1.00 GiB"), (23, "512.00 MiB")],
}  # fmt: skip


def only(log: str):
    (message,) = read_messages(log)
    return message


def check(message, era: str, sizes: dict) -> None:
    new = era in {"2.1", "2.2", "2.3", "2.10", "2.13"}
    names = ["asked", "total", "free", "allocated", "allowed"]
    names += ["unallocated", "process", "private_pools"] if new else ["unallocated" if era == "1.3" else "reserved"]
    for name in names:
        value = getattr(message, name)
        assert (None if value is None else value.text) == sizes.get(name), name
    assert [(number, size.text) for number, size in message.others] == (list(sizes.get("others", ())) if new else [])
    assert message.releases == RELEASES[era]


@given(st.sampled_from(ERAS), SIZES, st.integers(0, 15))
def test_every_era_is_read_back(era, sizes, device) -> None:
    message = only(print_message(era, sizes, device, "NPU" if era == "npu" else "CUDA"))
    check(message, era, sizes)
    assert message.device == (None if era == "2.3" else device)
    assert message.allocator == ("NPU" if era == "npu" else "CUDA")


@given(st.sampled_from(ERAS), st.integers(30, 200))
def test_line_breaks_do_not_matter(era, width) -> None:
    text = print_message(era, EXAMPLE)
    check(only("\n".join(textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False))), era, EXAMPLE)
    check(
        only(
            'Traceback (most recent call last): File "a.py", line 3, in f x() RuntimeError: '
            + text
            + " Process 3 was ended"
        ),
        era,
        EXAMPLE,
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "> ", "> > ", "\x1b[36m(WorkerDict pid=812, ip=10.0.0.7)\x1b[0m ", "(main_task pid=2396241) ", "[rank3]: ", "> [rank3]: ", "[1,7]<stderr>:",
        "2025-03-11T15:31:20.123Z ", "[2024-09-12 00:26:08,683] ", "(VllmWorkerProcess pid=486731) ERROR 03-19 10:55:18 [worker_utils.py:242] ",
        "worker-1: ", "trainer-0  | ", "│ ", "(EngineCore_DP0 pid=12473) ERROR 11-05 12:19:32 [core.py:708] ",
    ],
)  # fmt: skip
def test_prefixes_of_lines_do_not_matter(prefix) -> None:
    lines = ["Traceback (most recent call last):", '  File "/a/torch/optim/adamw.py", line 187, in step', "    adamw("]
    lines += textwrap.wrap("torch.OutOfMemoryError: " + print_message("2.2", EXAMPLE), 90)
    message = only("\n".join(prefix + line for line in lines))
    check(message, "2.2", EXAMPLE)
    assert [(frame.file, frame.line, frame.function, frame.code) for frame in message.frames] == [
        ("/a/torch/optim/adamw.py", 187, "step", "adamw("),
    ]


def test_interleaved_ranks_are_told_apart() -> None:
    logs = []
    for rank in range(3):
        lines = [
            "Traceback (most recent call last):",
            f'  File "/job/rank{rank}.py", line {rank + 1}, in train',
            "    step()",
        ]
        sizes = {**EXAMPLE, "asked": f"{rank + 2}.00 GiB"}
        lines += textwrap.wrap("torch.OutOfMemoryError: " + print_message("2.2", sizes), 60)
        logs.append([f"[rank{rank}]: {line}" for line in lines])
    interleaved = [line for group in zip(*logs, strict=True) for line in group]
    messages = read_messages("\n".join(interleaved))
    assert [(message.stream, message.asked.text, message.frames[0].file) for message in messages] == [
        (f"[rank{rank}]", f"{rank + 2}.00 GiB", f"/job/rank{rank}.py") for rank in range(3)
    ]


def test_equal_messages_count_once_and_keep_the_traceback() -> None:
    text = print_message("2.2", EXAMPLE)
    log = f'{text}\n\nTraceback (most recent call last):\n  File "/a.py", line 1, in f\n    g()\n{text}\n'
    message = only(log)
    assert (message.times, message.line, message.frames[0].function) == (2, 1, "f")


def test_a_message_that_is_cut_off_keeps_what_it_has() -> None:
    text = print_message("1.11", EXAMPLE)
    message = only(text[: text.index("70.00 GiB already")])
    assert (message.asked.text, message.total) == ("9.28 GiB", None)
    assert only("Tried to allocate 20.00 MiB (GPU 0; 1.96 GiB total capacity").asked.text == "20.00 MiB"


@pytest.mark.parametrize(
    ("form", "values", "read"),
    [
        ("cuda-malloc-async", {"device": 0, "allocated": "9.43 GiB", "asked": "640.00 MiB", "total": "11.59 GiB", "free": "7.12 MiB"}, "640.00 MiB"),
        ("mps", {"allocated": "17.60 GB", "other": "1.31 GB", "total": "18.13 GB", "asked": "256.00 MB"}, "256.00 MB"),
        ("torch-warning", {"device": 0, "asked": "612368384 bytes", "free": 442630144, "total": 85017493504}, "612368384 bytes"),
        ("one-exabyte", {}, None),
        ("cpu", {"line": 75, "asked": "4009910272 bytes"}, "4009910272 bytes"),
        ("numpy", {"asked": "2.10 GiB", "shape": "(1000, 512, 1100)", "dtype": "float32"}, "2.10 GiB"),
        ("vllm-kv-cache", {"length": 40960, "asked": "5.62 GiB", "free": "2.52 GiB", "fits": 18336}, "5.62 GiB"),
        ("vllm-utilization", {"free": "31.44", "total": "47.38", "share": "0.95", "demanded": "45.01"}, None),
        ("vllm-sampler", {"requests": 1024}, None),
        ("vllm-cumem", {"line": 62}, None),
        ("nccl", {}, None),
        ("nccl-calloc", {"asked": "6291456 bytes"}, "6291456 bytes"),
        ("bitsandbytes", {"line": 380}, None),
        ("cublas", {}, None),
        ("triton-shared-memory", {"required": 163856, "limit": 101376}, None),
        ("cuda-error", {}, None),
        ("ray-memory-monitor", {"free": "121.50GB", "total": "125.00GB", "share": "0.972"}, None),
        ("killed", {}, None),
        ("nvml-assert", {"line": 830}, None),
        ("nvml-handle", {"line": 15}, None),
        ("mps-buffer", {"asked": "372.53 GiB"}, "372.53 GiB"),
        ("ggml", {"asked": "204800.00 MiB", "device": 0}, "204800.00 MiB"),
        ("ggml-reserve", {"asked": "10345253120", "device": 1}, "10345253120 bytes"),
        ("cuda-malloc-async-short", {}, None),
        ("expandable-segments", {"device": 0, "mapped": 20971520, "free": 12345678, "total": 85017493504}, None),
        ("torch-memory-saver", {}, None),
        ("torch-memory-saver-old", {}, None),
        ("neuron", {"asked": "1073741824"}, "1073741824 bytes"),
        ("neuron-status", {}, None),
        ("cuda-driver", {}, None),
        ("ray-worker-died", {}, None),
        ("ray-worker-died-new", {}, None),
        ("killed-alone", {}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "> ", "(Worker pid=3) "])
def test_forms_of_other_programs_are_read(form, values, read, prefix) -> None:
    message = only("\n".join(prefix + line for line in print_other(form, values).split("\n")))
    assert message.form == _NAMES.get(form, form)
    assert (message.asked and message.asked.text) == read


_NAMES = {
    "nccl-calloc": "nccl",
    "nvml-handle": "nvml-assert",
    "cuda-malloc-async-short": "cuda-malloc-async",
    "torch-memory-saver-old": "torch-memory-saver",
    "neuron-status": "neuron",
    "ggml-reserve": "ggml",
    "cuda-driver": "cuda-error",
    "ray-worker-died-new": "ray-worker-died",
    "killed-alone": "killed",
}


def test_every_printed_form_is_tested() -> None:
    assert len(FORMATS) == 33


def test_both_lines_of_ggml_are_one_message() -> None:
    text = f"{print_other('ggml', {'asked': '9866.00 MiB', 'device': 1})}\n{print_other('ggml-reserve', {'asked': '10345253120', 'device': 1})}"
    assert only(text).asked.text == "9866.00 MiB"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("all well\nRuntimeError: Engine out of device memory in kernel 7", 2),
        ("OOM at step 128 in cross_entropy", 1),
        ("MUSA: failed to allocate 3 GB", 1),
    ],
)
def test_words_about_memory_are_found_where_no_form_is_known(text, line) -> None:
    assert read_messages(text) == ()
    assert find_words(text)[0] == line


def test_a_log_without_such_words_has_none() -> None:
    assert find_words("everything is fine\nmemory: 9.28 GiB") is None


@pytest.mark.parametrize(
    "text",
    [
        "", "everything is fine\n", "Of the allocated memory nothing is known", "RuntimeError: CUDA error: invalid device ordinal",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "killed 9 of 137 mosquitoes", "step 9: loss 1.37", "memory: 9.28 GiB",
    ],
)  # fmt: skip
def test_other_text_holds_no_message(text) -> None:
    assert read_messages(text) == ()


@given(st.text(max_size=400))
def test_any_text_can_be_read(text) -> None:
    read_messages(text)


LEDGER = (
    "worker.py:267] model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; "
    "the rest of the memory reserved for KV Cache"
)
ON_THE_NODE = (
    "Memory on the node (IP: 10.0.0.1, ID: 5f) where the task (task ID: 7, name=head) was running was 1.00GB / 1.05GB (0.95), "
    "which exceeds the memory usage threshold of 0.95"
)
SUMMARY = (
    "| CUDA OOMs: {} | cudaMalloc retries: 2 |\n|====|\n| Metric | Cur Usage | Peak Usage |\n"
    "| Allocated memory | 7 MiB | 9 MiB | 9 MiB |"
)


@pytest.mark.parametrize(
    ("text", "form", "memory"),
    [
        (f"{LEDGER} is -1.05GiB.", "vllm-ledger", "device"),
        ("RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 8 tokens.\nAvailable tokens: 64", "sglang-decode", "none"),
        ("[TP1] Decode out of memory happened. #retracted_reqs: 3, #new_token_ratio: 0.1 -> 0.2", "sglang-retract", "none"),
        ("[TP1] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.1 -> 0.2", "sglang-retract", "none"),
        ("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4096000 (3)MB", "habana", "device"),
        ("OSError: [Errno 12] Cannot allocate memory", "errno-12", "host"),
        (ON_THE_NODE, "ray-memory-monitor", "host"),
        (SUMMARY.format(0), "torch-summary", "none"),
    ],
)  # fmt: skip
def test_messages_of_engines_hosts_and_other_devices(text, form, memory) -> None:
    message = only(text)
    assert (message.form, message.memory) == (form, memory)


def test_a_ledger_that_leaves_room_and_a_summary_with_failures_are_none() -> None:
    assert read_messages(f"{LEDGER} is 1.05GiB.") == ()
    assert read_messages(SUMMARY.format(3)) == ()


def test_a_title_and_the_whole_message_are_one_with_its_numbers() -> None:
    message = only("Tried to allocate 9.28 GiB\n\n" + print_message("2.2", EXAMPLE))
    assert (message.times, message.line, message.total.text) == (2, 1, "79.10 GiB")


def test_a_terminal_that_breaks_words_leaves_the_numbers() -> None:
    text = (
        print_message("2.2", EXAMPLE)
        .replace("by PyTorch", "by P                 yTorch")
        .replace("unallocated", "unalloc     ated")
    )
    message = only(text)
    assert (message.allocated.text, message.unallocated.text) == ("70.00 GiB", "4.10 GiB")
