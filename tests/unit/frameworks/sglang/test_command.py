"""Commands that start SGLang as a server."""

from tests.unit.frameworks.launch_script.written_commands import documents, facts


def test_a_server_is_an_engine_with_its_model() -> None:
    command = "python -m sglang.launch_server --model-path org/model --tp 2 --mem-fraction-static 0.8"
    (document,) = documents(command)
    assert document.reader == "sglang"
    assert [reference[:2] for reference in document.references] == [("model", "org/model")]
    assert facts(document) == {
        "rollout.engine": "sglang",
        "program.serves": True,
        "rollout.gpu_memory_utilization": 0.8,
        "rollout.tensor_parallel": 2,
    }
