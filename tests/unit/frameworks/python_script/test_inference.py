"""Scripts that train nothing and start vLLM's engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.frameworks.python_script import read as python_script
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Fact


def _read(directory: Path, text: str) -> tuple[Document, ...]:
    path = directory / "infer.py"
    path.write_text(text, encoding="utf-8")
    return python_script.read(str(path))


def _resolve(directory: Path, text: str, release: str = "0.11.0") -> dict[str, Fact]:
    known = {"vllm": Package("vllm", release, Source("env"))}
    subject = resolve(
        "s",
        rules=open_rules(()),
        environment=Environment("env", known, complete=False),
        documents=_read(directory, text),
        settings={"hardware.gpu": ("H100-80GB", Source("--set"))},
    )
    return dict(subject.roles["train"])


@pytest.mark.parametrize(
    ("start", "given"),
    [
        ("from vllm import LLM", "LLM"),
        ("import vllm", "vllm.LLM"),
        ("from vllm import LLM as Engine", "Engine"),
    ],
)
def test_an_engine_that_a_script_starts_serves_as_the_server_does(tmp_path: Path, start: str, given: str) -> None:
    call = f'{given}("m", gpu_memory_utilization=0.8, tensor_parallel_size=2, dtype="bfloat16", quantization=None)'
    facts = _resolve(tmp_path, f"{start}\nllm = {call}\n")
    wanted = {
        "program.serves": True,
        "rollout.engine": "vllm",
        "rollout.gpu_memory_utilization": 0.8,
        "rollout.tensor_parallel": 2,
        "model.load_dtype": "bfloat16",
        "rollout.max_num_seqs": 1024,
        "rollout.max_num_batched_tokens": 16384,  # the server has 8192
    }
    assert {name: facts[name].value for name in wanted} == wanted
    assert ("model", "m", "model") in _read(tmp_path, f"{start}\nllm = {call}\n")[0].references


def test_a_share_that_an_engine_is_not_given_is_open_where_no_source_was_read(tmp_path: Path) -> None:
    text = "from vllm import LLM\nllm = LLM('m')\n"
    assert _resolve(tmp_path, text)["rollout.gpu_memory_utilization"].value == 0.9
    assert "rollout.gpu_memory_utilization" not in _resolve(tmp_path, text, "0.20.0")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("LLM('m', **options)", "gives LLM arguments that are no literals (`**`)"),
        ("LLM('m')\nLLM('n')", "starts further engines"),
        ("if large:\n    LLM('m')", "starts the engine only if large"),
    ],
)
def test_what_nobody_can_tell_of_an_engine_is_said(tmp_path: Path, text: str, why: str) -> None:
    (document,) = _read(tmp_path, f"from vllm import LLM\n{text}\n")
    assert [gap.why for gap in document.gaps] == [why]


def test_a_class_of_the_same_name_is_no_engine(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="starts no training"):
        _read(tmp_path, "from own import LLM\nLLM('m')\n")


def test_a_command_that_starts_such_a_script_is_one_of_the_engine(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text("from vllm import LLM\nLLM('m', max_model_len=4096)\n", encoding="utf-8")
    (tmp_path / "run.sh").write_text("python infer.py\n", encoding="utf-8")
    (reading,) = read_configurations(str(tmp_path / "run.sh"), named=True)
    documents = follow_references(reading.documents, open_rules(()), {})
    assert ("rollout.max_model_len", 4096) in {
        (one.fact, one.value) for document in documents for one in document.statements
    }
