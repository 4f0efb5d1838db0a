"""What a program's code does is told by its own record, also where it runs the loop of another; a critic makes no logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.checking import Request, gather
from compatcheck.frameworks.recognise import read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def value(file: str, role: str, name: str) -> Any:
    readings = read_configurations(str(ROOT / "fixtures/programs" / file), named=True)
    documents = [document for reading in readings for document in reading.documents]
    fact = resolve("run", rules=open_rules(), documents=documents).roles[role].get(name)
    return None if fact is None else fact.value


def test_a_program_that_runs_the_loop_of_another_has_traits_of_its_own() -> None:
    assert value("open-instruct.sh", "train", "training.framework") == "accelerate"
    assert value("open-instruct.sh", "train", "program.passes_labels") is True
    assert value("open-instruct.sh", "train", "program.uses_accelerate") is True
    assert value("deepspeed-chat.sh", "train", "program.never_runs") is not None
    assert value("deepspeed-chat.sh", "train", "program.use_cache") is False


@pytest.mark.parametrize(
    ("model", "own"), [("unsloth/Meta-Llama-3.1-8B", True), ("unsloth/Qwen2.5-VL-7B-Instruct", False)]
)
def test_unsloth_has_layers_of_its_own_for_some_types(tmp_path: Path, model: str, *, own: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from unsloth import FastLanguageModel\nfrom trl import SFTTrainer\n"
        f'model, tokenizer = FastLanguageModel.from_pretrained(model_name="{model}")\n'
        "SFTTrainer(model=model).train()\n",
        encoding="utf-8",
    )
    (subject,) = gather(Request(paths=(str(script),), here=False), open_rules(), {}).subjects
    assert subject.roles["train"]["program.own_layers"].value is own


@pytest.mark.parametrize("file", ["verl.sh", "openrlhf-ppo.sh"])
def test_a_critic_makes_no_logits(file: str) -> None:
    assert value(file, "actor", "program.makes_logits") is True
    assert value(file, "reference", "program.makes_logits") is True
    assert value(file, "critic", "program.makes_logits") is False


def test_a_reward_model_makes_no_logits(tmp_path: Path) -> None:
    facts = tmp_path / "facts.yaml"
    for trainer, makes in (("reward", False), ("prm", False), ("dpo", True)):
        facts.write_text(f"compatcheck: 1\ntraining: {{framework: trl, trainer: {trainer}}}\n", encoding="utf-8")
        assert value(str(facts), "train", "program.makes_logits") is makes


@pytest.mark.parametrize(
    ("lines", "flattened"),
    [
        ("sample_packing: true\nflash_attention: true\n", True),
        ("sample_packing: true\nsdp_attention: true\n", False),
        ("sample_packing: true\nflash_attention: true\nmultipack_real_batches: true\n", None),
        ("sample_packing: false\nflash_attention: true\n", False),
    ],
)
def test_packed_samples_of_axolotl_stand_in_one_row(tmp_path: Path, lines: str, flattened: Any) -> None:
    file = tmp_path / "train.yaml"
    keys = "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 2\nsequence_len: 4096\ndatasets: [{path: x, type: alpaca}]\n"
    file.write_text(keys + lines, encoding="utf-8")
    assert value(str(file), "train", "training.padding_free") is flattened


@pytest.mark.parametrize(("sharding", "on_host", "dtype"), [("fsdp", True, "float32"), ("megatron", False, None)])
def test_keys_of_megatron_decide_where_frozen_models_of_verl_are(
    tmp_path: Path, sharding: str, on_host: object, dtype: object
) -> None:
    facts = tmp_path / "facts.yaml"
    text = f"compatcheck: 1\npackages: {{verl: 0.7.0}}\ntraining: {{framework: verl, sharding: {sharding}}}\n"
    facts.write_text(text, encoding="utf-8")
    (subject,) = gather(Request(paths=(str(facts),), here=False), open_rules(), {}).subjects
    found = subject.roles["train"]
    assert found["program.frozen_on_host"].value is on_host
    assert (found["program.frozen_dtype"].value if dtype else found.get("program.frozen_dtype")) == dtype


@pytest.mark.parametrize("flash", ["true", "false"])
def test_skyrl_on_megatron_has_attention_without_scores_and_names_no_kernel(tmp_path: Path, flash: str) -> None:
    script = tmp_path / "run.sh"
    words = f"trainer.strategy=megatron trainer.flash_attn={flash} trainer.policy.model.path=Qwen/Qwen3-8B"
    script.write_text(f"python -m skyrl.train.entrypoints.main_base {words}\n", encoding="utf-8")
    (subject,) = gather(Request(paths=(str(script),), here=False), open_rules(), {}).subjects
    found = subject.roles["actor"]
    assert "model.attn_implementation" not in found
    assert found["program.attn_implementation"].value == "flash_attention_2"
