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
