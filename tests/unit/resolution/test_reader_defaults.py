"""Which program's defaults a file gets."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.configs import accelerate, hf_trainer, model, native
from compatcheck.core.document import Document
from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Facts
from compatcheck.core.source import Source
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules(())


def facts_of(rules: RuleSet, documents: list[Document], **versions: str) -> Facts:
    packages = {name: Package(name, version, Source("requirements.txt")) for name, version in versions.items()}
    environment = Environment(origin="requirements.txt", packages=packages, complete=False)
    return resolve("x", rules=rules, environment=environment, documents=documents).roles["train"]


SHORT: dict[str, Any] = {
    "model_name_or_path": "somewhere/else",
    "dataset_name": "mine",
    "learning_rate": 1e-4,
    "lr_scheduler_type": "cosine",
}


def test_a_file_that_trl_or_a_script_may_read_has_no_default_that_trl_changes(rules: RuleSet) -> None:
    documents = list(hf_trainer.read_data(SHORT, "config.yaml"))
    facts = facts_of(rules, documents, trl="1.8.0", transformers="4.56.2", torch="2.8.0")
    assert "training.gradient_checkpointing" not in facts
    assert facts["training.eval_batch_size"].value == 8


def test_without_trl_it_is_the_trainers(rules: RuleSet) -> None:
    documents = list(hf_trainer.read_data(SHORT, "config.yaml"))
    facts = facts_of(rules, documents, transformers="4.56.2", torch="2.8.0")
    assert facts["training.gradient_checkpointing"].value is False


def test_trl_file_that_names_a_model_has_no_adapter_by_default(rules: RuleSet) -> None:
    documents = list(hf_trainer.read_data({**SHORT, "packing": True}, "config.yaml"))
    facts = facts_of(rules, documents, trl="1.8.0", transformers="4.56.2")
    assert facts["training.peft"].value is None
    assert "model.quantization" not in facts


@pytest.mark.parametrize(("transformers", "dtype"), [("4.57.1", None), ("5.0.0", "bfloat16")])
def test_a_model_is_loaded_as_stored_only_from_transformers_5(
    rules: RuleSet, transformers: str, dtype: str | None
) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "vocab_size": 100, "torch_dtype": "bfloat16"}
    documents = [*hf_trainer.read_data(SHORT, "config.yaml"), model.read_data(config, "config.json")]
    facts = facts_of(rules, documents, transformers=transformers)
    assert facts["model.stored_dtype"].value == "bfloat16"
    assert (facts["model.load_dtype"].value if "model.load_dtype" in facts else None) == dtype


@pytest.mark.parametrize("kind", ["MULTI_GPU", "DEEPSPEED"])
def test_fsdp_has_no_version_where_something_else_shards(rules: RuleSet, kind: str, tmp_path: Any) -> None:
    file = tmp_path / "accelerate.yaml"
    file.write_text(
        f"distributed_type: {kind}\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config: {{}}\n"
        + ("deepspeed_config: {zero_stage: 3}\n" if kind == "DEEPSPEED" else "")
    )
    facts = facts_of(rules, [accelerate.read(str(file))], accelerate="1.10.0", transformers="4.56.2")
    assert facts["training.fsdp_version"].value is None
    assert "training.fsdp_sharding_strategy" not in facts


LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "vocab_size": 100}


@pytest.mark.parametrize(
    ("model_type", "transformers", "torch", "attention"),
    [
        ("llama", "4.35.2", None, "eager"),
        ("llama", "4.36.0", "2.1.0", "eager"),
        ("llama", "4.36.0", "2.1.1", "sdpa"),
        ("llama", "4.55.4", None, None),
        ("llama", "4.56.0", None, "sdpa"),
        ("llama", "5.23.0", "2.13.0", "sdpa"),
        ("mixtral", "4.36.2", "2.2.0", "eager"),
        ("mixtral", "4.37.0", "2.2.0", "sdpa"),
        ("gpt_oss", "5.0.0", None, "eager"),
        ("falcon", "4.35.2", None, None),
        ("mamba", "5.0.0", None, None),
        ("qwen2_vl", "4.57.1", "2.8.0", None),
    ],
)
def test_attention_left_open_is_what_the_release_of_transformers_takes(
    rules: RuleSet, model_type: str, transformers: str, torch: str | None, attention: str | None
) -> None:
    document = model.read_data({**LLAMA, "model_type": model_type}, "config.json")
    versions = {"transformers": transformers} | ({} if torch is None else {"torch": torch})
    facts = facts_of(rules, [document], **versions)
    found = facts.get("model.attn_implementation")
    assert (None if found is None else found.value) == attention
    if found is not None:
        assert found.origin == "library-default"
        assert f"default of transformers (transformers {transformers}" in str(found.sources[0])


def test_attention_is_open_without_a_model_or_a_release(rules: RuleSet) -> None:
    documents = list(hf_trainer.read_data(SHORT, "config.yaml"))
    assert "model.attn_implementation" not in facts_of(rules, documents, transformers="4.57.1", torch="2.8.0")
    assert "model.attn_implementation" not in facts_of(rules, [model.read_data(LLAMA, "config.json")], torch="2.8.0")


@pytest.mark.parametrize(
    "said",
    [{"attn_implementation": "kernels-community/flash-attn3"}, {"model_init_kwargs": {"attn_implementation": "paged"}}],
)
def test_attention_that_is_said_in_words_not_known_is_open(rules: RuleSet, said: dict[str, Any]) -> None:
    documents = [*hf_trainer.read_data({**SHORT, **said}, "config.yaml"), model.read_data(LLAMA, "config.json")]
    assert "model.attn_implementation" not in facts_of(rules, documents, transformers="4.57.1", torch="2.8.0")


@pytest.mark.parametrize("framework", ["verl", "torchtune", "megatron"])
def test_attention_is_open_where_a_program_chooses_it(rules: RuleSet, framework: str) -> None:
    stated, _ = native.read_data({"training": {"framework": framework}}, "facts.yaml")
    documents = [stated, model.read_data(LLAMA, "config.json")]
    assert "model.attn_implementation" not in facts_of(rules, documents, transformers="4.57.1", torch="2.8.0")
