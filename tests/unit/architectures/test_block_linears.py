"""Adapters of models whose blocks differ have as many parameters as peft makes of the class on the meta device."""

from __future__ import annotations

import pytest
import yaml

from compatcheck.architectures.block_linears import list_block_linears
from compatcheck.architectures.count import count_parameters, read_keys
from compatcheck.architectures.dimensions import dimensions
from compatcheck.core.facts import Fact
from compatcheck.memory.read_run import read_run
from compatcheck.resolution.derive import derive
from tests import ROOT

MODELS = yaml.safe_load((ROOT / "rules" / "_models.yaml").read_text("utf-8"))
RUN = {
    "training.peft": "lora",
    "training.lora_rank": 16,
    "training.micro_batch_size": 1,
    "training.sequence_length": 1024,
    "training.param_dtype": "bfloat16",
}
ALL, MIXERS = ("all-linear",), ("in_proj",)
USUAL = ("q_proj", "v_proj")
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _facts(name: str, **stated: object) -> dict[str, object]:
    config = MODELS[name]["config"]
    counts = count_parameters(config)
    assert counts is not None
    read = {fact: value for fact, (value, _) in dimensions(config).items()}
    counted = {"model.parameters": counts.total, "model.parameters_in_blocks": counts.in_blocks}
    lines = {"model.block_linears": tuple(map(str, counts.linears))} if counts.linears else {}
    return {**read, **counted, **lines, **RUN, **stated}


def _count(name: str, targets: tuple[str, ...]) -> int:
    run = read_run(_facts(name, **{"training.lora_target_modules": targets})).run
    assert run is not None
    return run.adapters


@pytest.mark.parametrize(
    ("name", "every", "usual", "seven", "mixers"),
    [
        # peft 0.21.2 with transformers 5.24.0; it refuses mixers' outputs of Falcon H1 and Nemotron-H, so all-linear is left out
        ("granite-4.0-h-micro", 28_823_552, 425_984, 851_968, 6_082_560),
        ("granite-4.0-h-tiny", 11_840_512, 327_680, 655_360, 4_598_784),
        ("falcon-h1-1.5b", None, 2_064_384, 11_796_480, 3_360_768),
        ("nemotron-nano-9b-v2", None, 966_656, 18_061_312, 11_722_752),
        ("nemotron-3-nano-30b-a3b", None, 933_888, 6_578_176, 4_781_056),
        ("jamba-reasoning-3b", 27_876_352, 249_856, 14_950_400, 5_324_800),
        ("jamba-v0.1", 38_123_520, 851_968, 15_859_712, 9_175_040),
        ("qwen3-next-80b-a3b", None, 2_457_600, None, 0),
    ],
)
def test_adapters_of_hybrids_are_what_peft_makes(name, every, usual, seven, mixers) -> None:
    for targets, expected in ((ALL, every), (USUAL, usual), (SEVEN, seven), (MIXERS, mixers)):
        assert expected is None or _count(name, targets) == expected, targets


def test_default_targets_of_nemotron_h_are_all_of_attention() -> None:
    run = read_run(_facts("nemotron-nano-9b-v2")).run
    assert run is not None
    assert run.adapters == 1_933_312


@pytest.mark.parametrize(("name", "every"), [("granite-4.0-h-micro", 28_823_552), ("jamba-reasoning-3b", None)])
def test_a_rule_is_told_what_adapters_of_dense_hybrids_train(name, every) -> None:
    facts = {
        fact: Fact(fact, value, "stated", ())
        for fact, value in _facts(name, **{"training.lora_target_modules": ALL}).items()
    }
    derive(facts)
    if every is None:  # of one expert in each layer
        assert "model.trainable_parameters" not in facts
    else:
        assert facts["model.trainable_parameters"].value == every


@pytest.mark.parametrize("name", ["falcon-h1-7b", "nemotron-h-56b", "qwen3.5-4b", "qwen3.5-35b-a3b"])
def test_linear_layers_of_blocks_lie_in_the_blocks(name) -> None:
    counts = count_parameters(MODELS[name]["config"])
    assert counts is not None
    weights = sum(one.blocks * one.inputs * one.outputs for one in counts.linears)
    assert 0.9 < weights / (counts.in_blocks - counts.expert) <= 1


def test_a_type_that_is_not_listed_has_none() -> None:
    for name in ("llama-3-8b", "gemma-3-4b", "deepseek-v3"):
        keys = read_keys(MODELS[name]["config"])
        assert keys is not None
        assert list_block_linears(keys) == ()


def test_experts_behind_a_narrow_stream_are_not_listed() -> None:
    counts = count_parameters(MODELS["nemotron-3-super-120b-a12b"]["config"])
    assert counts is not None
    assert counts.linears == ()
