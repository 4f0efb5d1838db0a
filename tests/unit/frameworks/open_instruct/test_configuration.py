"""The reader of open-instruct's recipes."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.open_instruct import configuration as open_instruct
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.frameworks.reading import read_file
from tests.unit.frameworks.stated_facts import facts

RECIPE = ROOT / "fixtures/configs/open_instruct/sft.yaml"
SHORT: dict[str, Any] = {
    "model_name_or_path": "m",
    "with_tracking": True,
    "max_seq_length": 2048,
    "use_slow_tokenizer": True,
}


def test_a_recipe_for_supervised_training() -> None:
    document = read_file(open_instruct, str(RECIPE)).documents[0]
    assert document.reader == "open_instruct"
    assert document.references == (("model", "llama-3-8b", "model_name_or_path"),)
    assert document.unread == document.skipped == ()
    assert facts(document) == {
        "model.attn_implementation": "flash_attention_2",
        "training.framework": "accelerate",
        "training.gradient_accumulation_steps": 16,
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": 1,
        "training.sequence_length": 4096,
        "training.trainer": "sft",
    }


def test_preferences_are_told_by_their_keys() -> None:
    found = facts(
        open_instruct.read({**SHORT, "beta": 5, "loss_type": "dpo_norm", "use_lora": True}, "r.yaml").documents[0]
    )
    assert found["training.trainer"] == "dpo"
    assert found["training.loss_type"] == "dpo_norm"
    assert found["training.peft"] == "lora"


def test_a_loss_that_balances_experts_asks_for_router_logits() -> None:
    for given, asked in ((True, True), (False, None)):
        found = facts(open_instruct.read({**SHORT, "load_balancing_loss": given}, "r.yaml").documents[0])
        assert found.get("model.output_router_logits") is asked


@pytest.mark.parametrize(
    ("keys", "optimizer", "implementation"),
    [
        ({}, "adamw", "fused"),
        ({"use_8bit_optimizer": True}, "adamw", "fused"),
        ({"fused_optimizer": False}, "adamw", "foreach"),
        ({"use_qlora": True}, "paged_adamw", None),
        ({"use_qlora": True, "use_8bit_optimizer": True}, "paged_adamw_8bit", None),
        ({"dpo_use_paged_optimizer": True, "use_8bit_optimizer": False}, "paged_adamw", None),
    ],
)
def test_an_optimizer_is_torchs_own_and_fused_unless_it_is_paged(
    keys: dict[str, Any], optimizer: str, implementation: str | None
) -> None:
    document = open_instruct.read({**SHORT, **keys}, "r.yaml").documents[0]
    found = resolve("x", rules=open_rules(()), documents=[document]).roles["train"]
    assert found["training.optimizer"].value == optimizer
    stated = found.get("training.optimizer_implementation")
    assert (stated and stated.value) == implementation
    assert not document.unread


def test_misspelt_keys_and_bad_values() -> None:
    document = open_instruct.read(
        {**SHORT, "gradient_checkpoint": True, "use_lorra": 1, "packing": "some"}, "r.yaml"
    ).documents[0]
    assert document.unread == (("gradient_checkpoint", "gradient_checkpointing"), ("use_lorra", "use_lora"))
    (skipped,) = document.skipped
    assert (skipped.source.path, skipped.source.key, skipped.hint) == ("r.yaml", "packing", "expected true or false")


def test_a_script_of_another_project_is_not_taken_for_one() -> None:
    other = {"model_name_or_path": "m", "with_tracking": True, "checkpointing_steps": "epoch", "block_size": 512}
    assert not open_instruct.recognise(other)
    assert open_instruct.recognise(SHORT)


def test_checkpointing_is_what_transformers_makes_of_it() -> None:
    for release, reentrant in (("4.57.1", True), ("5.3.0", False)):
        packages = {"transformers": Package("transformers", release, Source("requirements.txt"))}
        environment = Environment(origin="requirements.txt", packages=packages, complete=False)
        document = open_instruct.read(SHORT, "r.yaml").documents[0]
        found = resolve("x", rules=open_rules(()), environment=environment, documents=[document]).roles["train"]
        assert found["training.use_reentrant"].value is reentrant
        assert found["training.gradient_checkpointing"].value is False
        assert found["model.load_dtype"].value == "bfloat16"


def test_what_shards_and_offloads_a_preference_run_is_read() -> None:
    keys = {"dpo_loss_type": "dpo_norm", "zero_stage": 3, "offload_optimizer": True, "activation_memory_budget": 0.5}
    document = open_instruct.read({**SHORT, **keys, "optimizer_type": "mine"}, "dpo.yaml").documents[0]
    assert facts(document)["training.zero_stage"] == 3
    assert facts(document)["training.offload_optimizer"] == "cpu"
    assert {entry.fact for entry in document.unresolved} == {"training.gradient_checkpointing", "training.optimizer"}


def test_the_scripts_own_stage_3_keeps_a_second_copy_of_the_weights_unless_told() -> None:
    for keys, ranks in (({"zero_stage": 3}, 8), ({"zero_stage": 3, "zero_hpz_partition_size": 1}, 1), ({}, None)):
        document = open_instruct.read({**SHORT, "beta": 5, **keys}, "r.yaml").documents[0]
        found = resolve("x", rules=open_rules(()), documents=[document]).roles["train"]
        stated = found.get("training.zero_hpz_partition_size")
        assert (stated and stated.value) == ranks
