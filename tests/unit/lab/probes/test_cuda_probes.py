"""The probes that need a GPU, as far as a machine without one goes: their arithmetic, their facts, and what they answer here."""

import sys

import pytest

from compatcheck.lab.environments.interpreter import Interpreter
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.probes.runner import make_task, run_tasks
from compatcheck.lab.probes.script import make_script
from compatcheck.rules.vocabulary import vocabulary

MIB = 2**20
NAMES = [name for name in probe_names() if find_probe(name).module.BACKENDS[0] == "cuda"]
TORCH = {
    "__init__.py": """
__version__ = "0"
class Tensor: ...
class UntypedStorage: ...
class nn:
    Parameter = type("Parameter", (), {})
class cuda:
    is_available = staticmethod(lambda: False)
float32 = None
def manual_seed(seed): ...
def set_default_dtype(dtype): ...
def set_num_threads(count): ...
""",
    "utils/__init__.py": "",
    "utils/_pytree.py": "def tree_flatten(value): return [], None\n",
    "utils/_python_dispatch.py": "class TorchDispatchMode: ...\n",
}
"""As much of torch as the worker asks before it gives up."""


def predict(name, **parameters):
    probe = find_probe(name)
    return probe.module.predict(probe.complete(parameters))


def test_there_are_as_many_as_promised():
    assert set(NAMES) >= {
        "allocator_configuration",
        "conv3d_workspace",
        "cublas_workspace",
        "cuda_context",
        "cuda_graphs_pool",
        "expandable_segments_mem_pool",
        "flash_attention_deterministic",
        "module_loading",
        "pinned_memory_rounding",
        "record_stream_hold",
        "sdpa_gqa_mask",
        "sdpa_math_fallback",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_without_a_gpu_is_unsupported_and_not_a_failure(name, tmp_path):
    for file, text in TORCH.items():
        path = tmp_path / "torch" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kept = []
    interpreter = Interpreter(python=sys.executable, paths=(str(tmp_path),))
    run_tasks([make_task(find_probe(name), {}, "cuda")], interpreter, keep=lambda _, one: kept.append(one))
    assert [(one.status, one.reason) for one in kept] == [("unsupported", "torch sees no CUDA device")]


def test_two_ranks_ask_for_two_gpus(tmp_path):
    """NCCL refuses two ranks on one device, in words that do not say so."""
    for file, text in TORCH.items():
        path = tmp_path / "torch" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("lambda: False)", "lambda: True)\n    device_count = staticmethod(lambda: 1)"))
    kept = []
    interpreter = Interpreter(python=sys.executable, paths=(str(tmp_path),))
    run_tasks([make_task(find_probe("ddp_buckets"), {}, "cuda")], interpreter, keep=lambda _, one: kept.append(one))
    reason = "needs 2 GPUs, one for each rank, and torch sees 1"
    assert [(one.status, one.reason) for one in kept] == [("unsupported", reason)]


@pytest.mark.parametrize("name", NAMES)
def test_every_size_has_a_prediction_for_the_metric_and_known_facts(name):
    probe = find_probe(name)
    assert len(probe.module.SIZES) >= 2
    for size in probe.module.SIZES:
        parameters = probe.complete(size)
        assert probe.module.predict(parameters)[probe.module.METRIC] >= 0
        assert probe.module.tolerance(parameters) >= 0
        unknown = [
            fact for fact in probe.module.facts(parameters) if fact not in vocabulary() and not fact.startswith("env.")
        ]
        assert unknown == []


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_names_a_source_and_claims_no_run(name):
    text = find_probe(name).documentation
    assert "https://" in text
    assert "says whether it was ever run" in " ".join(text.split())


@pytest.mark.parametrize("name", NAMES)
def test_the_script_is_python(name):
    compile(make_script(make_task(find_probe(name), {}, "cuda")), name, "exec")


def test_variables_are_set_before_torch_is_imported():
    script = make_script(make_task(find_probe("allocator_configuration"), {}, "cuda"))
    assert script.index("os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'") < script.index(
        "import torch"
    )


def test_expandable_segments_reserve_the_largest_tensor_and_fixed_ones_the_sum():
    assert predict("allocator_configuration", count=3)["reserved_bytes"] == 80 * MIB
    assert (
        predict("allocator_configuration", count=3, setting="expandable_segments:False")["reserved_bytes"] == 180 * MIB
    )


@pytest.mark.parametrize(
    ("variable", "other"),
    [("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")],
)
def test_one_name_of_the_variable_is_set_and_the_other_taken_away(variable, other):
    probe = find_probe("allocator_configuration")
    assert probe.environ(probe.complete({"variable": variable})) == {variable: "expandable_segments:True", other: None}
    assert probe.alone


def test_columns_of_a_convolution():
    # 32 channels x 27 kernel positions x 8 x 64 x 64 outputs x 2 bytes
    assert predict("conv3d_workspace")["temporary_without_cudnn_bytes"] == 32 * 27 * 8 * 64 * 64 * 2
    # One patch of Qwen2-VL, whatever the batch: rules/_tables/conv3d-patch-columns.yaml has the same number.
    assert predict("conv3d_workspace", shape="patches", batch=64)["temporary_without_cudnn_bytes"] == 2352


@pytest.mark.parametrize(
    ("config", "size"), [(":4096:2:16:8", 8_519_680), (":4096:8", 32 * MIB), (":16:8", 131_072), ("", None)]
)
def test_workspaces_of_cublas(config, size):
    assert predict("cublas_workspace", config=config).get("workspace_bytes") == size


@pytest.mark.parametrize(
    ("parameters", "extra"),
    [
        # B=1, H=32, S=32k, D=128 on 132 multiprocessors: 5 accumulators of 512 MiB instead of one
        ({"heads": 32, "length": 32768, "multiprocessors": 132}, 4 * 512 * MIB),
        ({"heads": 8, "length": 32768, "multiprocessors": 132}, 16 * 128 * MIB),
        ({"heads": 32, "batch": 8, "multiprocessors": 132}, 0),
        ({"heads": 8, "deterministic": False, "multiprocessors": 132}, 0),
        # 1000 tokens are 1024, and from 2.8 a head of 160 is one of 192
        ({"heads": 8, "length": 1000, "head_dim": 160, "multiprocessors": 16}, 4 * 1024 * 8 * 192),
    ],
)
def test_accumulators_of_a_deterministic_backward(parameters, extra):
    assert predict("flash_attention_deterministic", **parameters)["extra_bytes"] == extra


def test_a_prediction_beforehand_does_not_guess_the_device():
    assert predict("flash_attention_deterministic") == {"unexplained_bytes": 0}


@pytest.mark.parametrize(
    ("size", "threshold", "pinned"),
    [(9 * MIB, 0, 16 * MIB), (16 * MIB, 0, 16 * MIB), (33 * MIB, 0, 64 * MIB), (9 * MIB, 1, 9 * MIB), (3000, 1, 4096)],
)
def test_pinned_bytes_are_a_power_of_two(size, threshold, pinned):
    predicted = predict("pinned_memory_rounding", bytes=size, count=2, threshold_mb=threshold)
    assert predicted == {"pinned_bytes": 2 * pinned, "requested_bytes": 2 * size, "rounding_bytes": pinned - size}


def test_graphs_share_a_pool_or_add_up():
    assert predict("cuda_graphs_pool", graphs=5)["graph_pool_bytes"] == 64 * MIB
    assert predict("cuda_graphs_pool", graphs=5, pool="private")["graph_pool_bytes"] == 5 * 64 * MIB


def test_buffers_of_one_collective_are_held_at_a_time():
    assert predict("record_stream_hold")["reserved_bytes"] == 32 * MIB
    assert predict("record_stream_hold", collective="all_gather")["reserved_bytes"] == 64 * MIB
    probe = find_probe("record_stream_hold")
    # What holds them would be seen: all of them are more than prediction and tolerance.
    parameters = probe.complete({})
    assert parameters["count"] * 32 * MIB > predict("record_stream_hold")["reserved_bytes"] + probe.module.tolerance(
        parameters
    )


def test_a_kernel_that_keeps_scores_is_beyond_the_tolerance():
    probe = find_probe("sdpa_gqa_mask")
    for size in probe.module.SIZES:
        parameters = probe.complete(size)
        scores = parameters["batch"] * parameters["heads"] * parameters["length"] ** 2
        assert probe.module.tolerance(parameters) < 2 * scores


@pytest.mark.parametrize("name", ["sdpa_gqa_mask", "sdpa_math_fallback"])
def test_sizes_are_whole_blocks_of_the_cuda_allocator(name):
    # Blocks of whole 2 MiB are counted as they are; others may be counted with up to 1 MiB that was not worth splitting off.
    probe = find_probe(name)
    for size in probe.module.SIZES:
        parameters = probe.complete(size)
        element = 4 if parameters["dtype"] == "float32" else 2
        for heads in {parameters["heads"], parameters.get("kv_heads", parameters["heads"])}:
            rows = parameters["batch"] * heads * parameters["length"] * parameters["head_dim"]
            assert rows * element % (2 * MIB) == 0
