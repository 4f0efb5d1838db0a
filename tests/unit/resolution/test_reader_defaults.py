"""Which program's defaults a file gets."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.configs import accelerate, hf_trainer, model
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
