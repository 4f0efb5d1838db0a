"""Commands that start vLLM as a server."""

import pytest

from tests.unit.frameworks.launch_script.written_commands import documents, facts


@pytest.mark.parametrize(
    "start", ["vllm serve org/model", "python -m vllm.entrypoints.openai.api_server --model org/model"]
)
def test_a_server_is_an_engine_with_its_model(start: str) -> None:
    (document,) = documents(f"{start} --gpu-memory-utilization 0.9 --tensor-parallel-size 2 --enforce-eager")
    assert document.reader == "vllm"
    assert [reference[:2] for reference in document.references] == [("model", "org/model")]
    assert facts(document) == {
        "rollout.engine": "vllm",
        "program.serves": True,
        "rollout.gpu_memory_utilization": 0.9,
        "rollout.tensor_parallel": 2,
        "rollout.enforce_eager": True,
    }


@pytest.mark.parametrize(
    ("words", "graphs", "size"),
    [
        ("--max-cudagraph-capture-size 64", None, 64),
        ("--cudagraph-capture-sizes 1 2 16 8", None, 16),
        ("--cuda-graph-sizes 32", None, 32),
        ("""--compilation-config '{"cudagraph_mode": "NONE"}'""", False, None),
        ("""--compilation-config '{"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": [4, 1]}'""", None, 4),
        ("--compilation-config.cudagraph_mode none", False, None),
        ("--compilation-config 3", None, None),
    ],
)
def test_which_graphs_an_engine_captures(words: str, graphs: object, size: int | None) -> None:
    (document,) = documents(f"vllm serve org/model {words}")
    found = facts(document)
    assert (found.get("rollout.cuda_graphs"), found.get("rollout.max_cudagraph_capture_size")) == (graphs, size)
    assert not document.unread


@pytest.mark.parametrize(
    ("start", "word", "kind"),
    [
        ("vllm serve org/model", "modelopt_fp4", "nvfp4"),
        ("vllm serve org/model", "modelopt_mxfp8", "mxfp8"),
        ("python -m sglang.launch_server --model-path org/model", "modelopt_fp8", "fp8"),
        ("python -m sglang.launch_server --model-path org/model", "modelopt_fp4", "nvfp4"),
        ("vllm serve org/model", "modelopt", None),  # the checkpoint says which
    ],
)
def test_words_of_nvidias_model_optimizer_name_what_weights_are_stored_in(
    start: str, word: str, kind: str | None
) -> None:
    (document,) = documents(f"{start} --quantization {word}")
    assert facts(document).get("model.quantization") == kind
    assert ("model.quantization" in {one.fact for one in document.unresolved}) is (kind is None)
