"""Each regression said to be in the formulas makes a difference there, between releases or by a setting."""

from __future__ import annotations

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Value
from compatcheck.core.source import Source
from compatcheck.memory.closed_form.estimate import estimate
from compatcheck.memory.regressions import COUNTED
from tests.unit.memory.traits import with_traits

RUN: dict[str, Value] = {
    "model.model_type": "llama", "model.hidden_size": 4096, "model.intermediate_size": 14336,
    "model.num_hidden_layers": 32, "model.num_attention_heads": 32, "model.num_key_value_heads": 8,
    "model.vocab_size": 128256, "model.parameters": 8030261248, "model.attn_implementation": "sdpa",
    "run.attention_mask": "none", "training.param_dtype": "bfloat16", "training.micro_batch_size": 2,
    "training.sequence_length": 8192, "training.max_response_length": 4096, "training.peft": None,
    "training.reference_model": False, "hardware.world_size": 1,
}  # fmt: skip
VERL: dict[str, Value] = {"training.framework": "verl", "training.trainer": "grpo"}
TRL: dict[str, Value] = {"training.framework": "trl"}
FSDP2: dict[str, Value] = {
    "training.framework": "accelerate", "training.sharding": "fsdp", "training.fsdp_version": 2, "hardware.world_size": 8,
    "training.gradient_accumulation_steps": 4,
}  # fmt: skip
MIXED: dict[str, Value] = {
    "training.sharding": "fsdp", "training.fsdp_version": 1, "training.fsdp_use_orig_params": True, "training.peft": "lora",
    "hardware.world_size": 4, "training.gradient_accumulation_steps": 4, "training.sync_each_batch": False,
    "training.gradient_checkpointing": True,
}  # fmt: skip
CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, Value]]] = {
    "accelerate/fsdp2-no-sync-keeps-unsharded-gradients": ({"accelerate": "1.11.0"}, {"accelerate": "1.10.1"}, FSDP2),
    "openrlhf/logsumexp-over-a-whole-sequence": (
        {"openrlhf": "0.5.7"}, {"openrlhf": "0.6.2"}, {"training.framework": "openrlhf", "training.trainer": "dpo"},
    ),
    "torch/foreach-optimizer-two-temporaries": (
        {"torch": "2.0.1"}, {"torch": "2.1.0"}, {"training.optimizer_implementation": "foreach"},
    ),
    "transformers/logits-upcast-without-labels": (
        {"transformers": "4.45.2", "verl": "0.4.0"}, {"transformers": "4.46.0", "verl": "0.4.0"}, VERL,
    ),
    "transformers/loss-shift-copies-logits": ({"transformers": "4.46.0"}, {"transformers": "4.49.0"}, {}),
    "trl/dpo-keeps-reference-logits": (
        {"trl": "1.6.0"}, {"trl": "1.14.0"}, {**TRL, "training.trainer": "dpo"},
    ),
    "trl/grpo-divides-logits-in-place": (
        {"trl": "1.0.0"}, {"trl": "0.29.1"}, {**TRL, "training.trainer": "grpo"},
    ),
    "trl/grpo-entropy-of-whole-rows": (
        {"trl": "0.20.0"}, {"trl": "0.19.1"}, {**TRL, "training.trainer": "grpo"},
    ),
    "trl/kto-copies-shifted-logits": (
        {"trl": "1.6.0"}, {"trl": "1.5.1"}, {**TRL, "training.trainer": "kto"},
    ),
    "trl/kto-keeps-kl-logits": (
        {"trl": "0.16.1"}, {"trl": "0.17.0"}, {**TRL, "training.trainer": "kto", "training.loss_type": "kto"},
    ),
    "verl/no-sync-keeps-unsharded-gradients": (
        {"verl": "0.9.0"}, {"verl": "0.8.0"}, {**FSDP2, **VERL},
    ),
    "verl/entropy-computed-when-unused": (
        {"verl": "0.3.0"}, {"verl": "0.4.0"}, {**VERL, "training.entropy_coefficient": 0.0},
    ),
}  # fmt: skip


def need(releases: dict[str, str], changes: dict[str, Value]) -> list[int]:
    packages = {name: Package(name, release, Source("test")) for name, release in releases.items()}
    found = estimate(with_traits({**RUN, **changes}, packages), Environment("test", packages, complete=False))
    return [phase.needed.expected for phase in found.phases]


@pytest.mark.parametrize("rule", CASES)
def test_a_release_with_the_regression_needs_more(rule: str) -> None:
    bad, good, changes = CASES[rule]
    worse, better = need(bad, changes), need(good, changes)
    assert all(one >= other for one, other in zip(worse, better, strict=True))
    assert worse != better


def test_a_ring_of_openrlhf_needs_more_until_0_7() -> None:
    ring: dict[str, Value] = {
        "training.framework": "openrlhf", "training.trainer": "ppo", "training.context_parallel": 2, "hardware.world_size": 2,
    }  # fmt: skip
    assert need({"openrlhf": "0.6.4"}, ring) == need({"openrlhf": "0.6.1"}, ring) != need({"openrlhf": "0.7.0"}, ring)
    dpo: dict[str, Value] = {**ring, "training.trainer": "dpo"}
    assert need({"openrlhf": "0.6.4"}, dpo) == need({"openrlhf": "0.7.0"}, dpo)


def test_the_release_of_accelerate_decides_where_it_runs() -> None:
    own: dict[str, Value] = {**FSDP2, "training.framework": "verl", "training.trainer": "grpo"}
    old = {"accelerate": "1.10.1"}
    assert need({"verl": "0.9.0", **old}, own)[2] > need({"verl": "0.8.0", **old}, own)[2]
    asked: dict[str, Value] = {**own, "training.sync_each_batch": True}
    assert need({"verl": "0.9.1", **old}, asked) == need({"verl": "0.8.0", **old}, asked)


def test_outputs_that_are_kept_need_more() -> None:
    assert need({}, {"run.outputs_kept": True})[2] > need({}, {})[2]


def test_frozen_parameters_in_the_units_of_trained_ones_need_more() -> None:
    apart = need({}, {**MIXED, "training.fsdp_wraps_frozen_apart": True})
    mixed = need({}, {**MIXED, "training.fsdp_wraps_frozen_apart": False})
    whole = 2 * (8030261248 - 2 * 4096 * 128256)  # 16-bit gradients of all blocks under no_sync
    assert mixed[1] - apart[1] == pytest.approx(whole, rel=0.05)
    unit = whole / 32  # whose inputs its weights keep, and whose gradient is there in pieces and joined
    assert whole <= mixed[2] - apart[2] < whole + 6 * unit
    assert mixed[3] - apart[3] == pytest.approx(whole / 4, rel=0.05)
    synchronised = need({}, {**MIXED, "training.fsdp_wraps_frozen_apart": False, "training.sync_each_batch": True})
    assert synchronised[2] - apart[2] == pytest.approx(whole / 4, rel=0.1)


def test_every_rule_that_is_counted_is_shown_here() -> None:
    others = {"transformers/float32-logits-kept-as-output", "torch/fsdp1-mixes-frozen-and-trainable"}
    assert {*CASES, *others} == COUNTED
