"""Scripts that train nothing and start an inference engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking import Request, check
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


@pytest.mark.parametrize(
    ("start", "given"),
    [
        ("import sglang as sgl", "sgl.Engine"),
        ("from sglang import Engine", "Engine"),
        ("from sglang.srt.entrypoints.engine import Engine", "Engine"),
    ],
)
def test_an_engine_of_sglang_takes_the_options_of_its_server(tmp_path: Path, start: str, given: str) -> None:
    call = f"{given}(model_path='m', tp_size=2, mem_fraction_static=0.7, enable_memory_saver=True)"
    (document,) = _read(tmp_path, f"{start}\nllm = {call}\n")
    stated = {one.fact: one.value for one in document.statements}
    wanted = {
        "program.serves": True,
        "rollout.engine": "sglang",
        "rollout.tensor_parallel": 2,
        "rollout.sleep_mode": True,
    }
    assert wanted.items() <= stated.items()
    assert ("model", "m", "model_path") in document.references


@pytest.mark.parametrize(
    ("release", "share", "tokens"),
    [
        ("0.8.5", 0.9, 16384),
        ("0.9.2", 0.9, 16384),
        ("0.19.1", 0.9, 16384),
        ("0.20.0", 0.92, 16384),
        ("0.33.0", 0.92, 16384),
    ],
)
def test_defaults_of_the_class_are_those_of_its_release(
    tmp_path: Path, release: str, share: float, tokens: int
) -> None:
    facts = _resolve(tmp_path, "from vllm import LLM\nllm = LLM('m')\n", release)
    assert facts["rollout.gpu_memory_utilization"].value == share
    assert facts["rollout.max_num_batched_tokens"].value == tokens


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


MODEL = "Qwen/Qwen2.5-7B-Instruct"


@pytest.mark.parametrize(
    ("script", "command"),
    [
        (f"import vllm\nvllm.LLM('{MODEL}', enable_sleep_mode=True)", f"vllm serve {MODEL} --enable-sleep-mode"),
        (f"import sglang\nsglang.Engine(model_path='{MODEL}')", f"python -m sglang.launch_server --model-path {MODEL}"),
    ],
)
def test_a_script_that_starts_an_engine_gets_the_findings_of_its_server(
    tmp_path: Path, script: str, command: str
) -> None:
    pins = ["vllm==0.15.0", "sglang==0.5.9", "transformers==4.57.6", "torch==2.9.1"]
    found = []
    for name, text in (("infer.py", script), ("run.sh", command)):
        (tmp_path / name[:-3]).mkdir()
        path = tmp_path / name[:-3] / name
        path.write_text(text, encoding="utf-8")
        (path.parent / "requirements.txt").write_text("\n".join(pins), encoding="utf-8")
        report = check(
            Request(paths=(str(path.parent / "requirements.txt"), str(path)), gpu="H100-80GB"), open_rules(()), {}
        )
        found.append({(one.rule_id, one.status, one.severity, one.impact) for one in report.findings})
    assert found[0] == found[1]


def test_a_script_that_trains_beside_one_that_serves_keeps_its_findings(tmp_path: Path) -> None:
    train = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B-Instruct')\n"
    train += "Trainer(model=model, args=TrainingArguments(output_dir='x', per_device_train_batch_size=4)).train()\n"
    texts = {
        "train.py": f"from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n{train}",
        "infer.py": "from vllm import LLM\nLLM('Qwen/Qwen2.5-7B-Instruct')\n",
        "requirements.txt": "vllm==0.9.2\ntransformers==4.52.4\ntorch==2.7.0\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    report = check(Request(paths=tuple(str(tmp_path / name) for name in texts), gpu="H100-80GB"), open_rules(()), {})
    assert "transformers/causal-lm-loss-in-float32" in {one.rule_id for one in report.findings}
