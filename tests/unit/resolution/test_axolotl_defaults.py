"""Defaults of axolotl over its releases, and what they decide about a regression of DeepSpeed."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.axolotl import configuration as axolotl
from compatcheck.frameworks.recognise import follow_references
from compatcheck.matching.engine import match
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT

CONFIGS = ROOT / "fixtures/configs/axolotl"
RULE = "deepspeed/zero3-params-kept-in-backward"
PLAIN = {"base_model": "llama-3-8b", "datasets": [], "num_epochs": 1}
CHECKPOINTS = {**PLAIN, "gradient_checkpointing": True}


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


def environment(**versions: str) -> Environment:
    packages = {name: Package(name, version, Source("env")) for name, version in versions.items()}
    return Environment("env", packages, complete=False)


def subject(rules: RuleSet, data: dict[str, Any], settings: dict[str, Any] | None = None, **versions: str) -> Subject:
    documents = follow_references(axolotl.read(dict(data), str(CONFIGS / "axolotl.yaml")).documents, rules, {})
    given = {name: (value, Source("--set")) for name, value in (settings or {}).items()}
    return resolve("s", rules=rules, environment=environment(**versions), documents=documents, settings=given)


def values(found: Subject) -> dict[str, Any]:
    return {name: fact.value for name, fact in found.roles["train"].items()}


@pytest.mark.parametrize(
    ("release", "keys", "reentrant"),
    [
        ("0.5.0", {}, True),
        ("0.9.2", {}, True),
        ("0.20.0", {}, True),
        ("0.21.0", {}, True),
        ("0.5.2", {"rl": "dpo"}, False),
        ("0.12.0", {"rl": "simpo"}, False),
        ("0.21.0", {"rl": "kto"}, False),
        ("0.9.2", {"gradient_checkpointing_kwargs": {"use_reentrant": False}}, False),
        ("0.9.2", {"unfrozen_parameters": ["lm_head"]}, True),
        ("0.10.0", {"unfrozen_parameters": ["lm_head"]}, False),
        ("0.11.0", {"gradient_checkpointing": "offload"}, True),
        ("0.12.0", {"gradient_checkpointing": "offload"}, False),
        (
            "0.9.2",
            {"gradient_checkpointing": "unsloth", "gradient_checkpointing_kwargs": {"use_reentrant": False}},
            True,
        ),
        ("0.17.0", {"gradient_checkpointing": "offload_disk"}, True),
        ("0.18.0", {"gradient_checkpointing": "offload_disk"}, False),
        ("0.12.0", {"activation_offloading": True}, False),
        ("0.17.0", {"activation_offloading": "legacy"}, True),
        ("0.18.0", {"activation_offloading": "legacy"}, False),
        ("0.18.0", {"activation_offloading": "hidden_states"}, False),
    ],
)
def test_zero_3_regression_by_release(*, rules: RuleSet, release: str, keys: dict[str, Any], reentrant: bool) -> None:
    data = {**CHECKPOINTS, "deepspeed": "zero3.json", **keys}
    settings = {"hardware.world_size": 8}
    found = subject(rules, data, settings, axolotl=release, deepspeed="0.16.4", transformers="4.51.3", torch="2.6.0")
    assert values(found)["training.use_reentrant"] is reentrant
    assert values(found)["training.framework"] == "axolotl"
    statuses = {finding.status for finding in match(found, rules).findings if finding.rule_id == RULE}
    assert statuses == (set() if reentrant else {"affected"})


def test_reentrant_from_0_21_only_under_zero_3(rules: RuleSet) -> None:
    assert values(subject(rules, CHECKPOINTS, axolotl="0.20.0"))["training.use_reentrant"] is True
    assert values(subject(rules, CHECKPOINTS, axolotl="0.21.0"))["training.use_reentrant"] is False


def test_a_release_that_is_not_known_decides_nothing_that_changed(rules: RuleSet) -> None:
    found = values(subject(rules, CHECKPOINTS, transformers="5.5.0"))
    assert "training.use_reentrant" not in found
    assert found["training.micro_batch_size"] == 1


def test_offloading_replaces_recomputation_for_adapters(rules: RuleSet) -> None:
    data = {**CHECKPOINTS, "adapter": "lora", "activation_offloading": True}
    assert values(subject(rules, data, axolotl="0.17.0"))["training.gradient_checkpointing"] is True
    assert values(subject(rules, data, axolotl="0.18.0"))["training.gradient_checkpointing"] is False
    assert "training.gradient_checkpointing" not in values(subject(rules, data, transformers="5.5.0"))


def test_gemma_4_is_checkpointed_without_reentry(rules: RuleSet) -> None:
    settings = {"model.model_type": "gemma4"}
    assert values(subject(rules, CHECKPOINTS, settings, axolotl="0.17.0"))["training.use_reentrant"] is False


@pytest.mark.parametrize(
    ("keys", "versions", "settings", "mixed", "dtype"),
    [
        ({}, {"torch": "2.6.0"}, {}, "bf16", "bfloat16"),
        ({"bf16": "auto"}, {}, {"hardware.compute_capability": 8.0}, "bf16", "bfloat16"),
        ({}, {"torch": "2.1.0"}, {"hardware.compute_capability": 7.5}, "fp16", "float16"),
        ({}, {"torch": "2.1.0"}, {"hardware.gpu": "MI300X"}, "bf16", "bfloat16"),
        ({"fp16": False}, {"torch": "2.1.0"}, {"hardware.compute_capability": 7.5}, "no", "float32"),
        ({"bf16": "auto"}, {}, {}, None, None),
        ({"float16": True}, {"torch": "2.6.0"}, {}, None, None),
    ],
)
def test_precision_left_out_depends_on_the_device(
    *,
    rules: RuleSet,
    keys: dict[str, Any],
    versions: dict[str, str],
    settings: dict[str, Any],
    mixed: str | None,
    dtype: str | None,
) -> None:
    versions = {"axolotl": "0.12.0", "transformers": "4.55.0", **versions}
    found = values(subject(rules, {**PLAIN, **keys}, settings, **versions))
    assert found.get("training.mixed_precision") == mixed
    assert found.get("model.load_dtype") == dtype


def test_what_the_hf_trainer_would_mean_does_not_apply(rules: RuleSet) -> None:
    versions = {"axolotl": "0.18.0", "transformers": "5.14.1", "torch": "2.12.0"}
    found = values(subject(rules, {**PLAIN, "optimizer": "adopt_adamw", "gradient_accumulation_steps": 4}, **versions))
    assert "training.optimizer" not in found
    assert found["training.micro_batch_size"] == 1
    assert found["training.eval_batch_size"] == 1
    assert found["training.eval_accumulation_steps"] == 4
    assert found["training.average_tokens_across_devices"] is False
    assert found["training.use_reentrant"] is True


def test_fsdp_generation_by_release(rules: RuleSet) -> None:
    data = {**PLAIN, "fsdp_config": {"offload_params": True}}
    old = values(subject(rules, data, axolotl="0.12.0", transformers="4.55.0", accelerate="1.10.0"))
    new = values(subject(rules, data, axolotl="0.21.0", transformers="5.20.1", accelerate="1.15.0"))
    assert (old["training.fsdp_version"], new["training.fsdp_version"]) == (1, 2)
    assert old["training.fsdp_sync_module_states"] is True  # the HF Trainer's own default, fsdp being on
    stated = values(subject(rules, {**data, "fsdp_version": 2}, axolotl="0.18.0"))
    assert stated["training.fsdp_version"] == 2
    assert "training.fsdp_version" not in values(subject(rules, data, transformers="5.14.1"))


def test_rollouts(rules: RuleSet) -> None:
    data = {**PLAIN, "rl": "grpo", "trl": {"num_generations": 4}}
    assert values(subject(rules, data, axolotl="0.18.0"))["rollout.engine"] == "hf"
    served = {**data, "trl": {"use_vllm": True}}
    assert values(subject(rules, served, axolotl="0.15.0", trl="0.29.0"))["rollout.mode"] == "server"
    assert values(subject(rules, served, axolotl="0.18.0", trl="1.8.0"))["rollout.mode"] == "server"
    assert values(subject(rules, served, axolotl="0.18.0"))["rollout.gpu_memory_utilization"] == 0.9


def test_fused_adapter_kernels_switched_on_by_the_release(rules: RuleSet) -> None:
    data = {**PLAIN, "adapter": "lora", "lora_dropout": 0}
    assert values(subject(rules, data, axolotl="0.9.2"))["training.lora_kernels"] is False
    assert values(subject(rules, data, axolotl="0.10.0"))["training.lora_kernels"] is True
    assert "training.lora_kernels" not in values(subject(rules, {**data, "lora_dropout": 0.1}, axolotl="0.15.0"))
    assert values(subject(rules, {**data, "lora_dropout": 0.1}, axolotl="0.16.0"))["training.lora_kernels"] is True
    assert "training.lora_kernels" not in values(subject(rules, {**data, "load_in_8bit": True}, axolotl="0.16.0"))
    assert (
        values(subject(rules, {**data, "lora_mlp_kernel": False}, axolotl="0.16.0"))["training.lora_kernels"] is False
    )
