"""Types checked against transformers 5.24.0 have the parameters of its classes, and adapters of theirs what peft makes."""

from __future__ import annotations

import pytest
import yaml

from compatcheck.architectures.count import count_parameters
from compatcheck.architectures.dimensions import dimensions
from compatcheck.core.facts import Fact
from compatcheck.resolution.derive import derive
from tests import ROOT

MODELS = yaml.safe_load((ROOT / "rules" / "_models.yaml").read_text("utf-8"))


def _count(name: str, without: str = "", **changed: object):
    config = {**MODELS[name]["config"], **changed}
    return count_parameters({key: value for key, value in config.items() if key != without})


@pytest.mark.parametrize(
    ("name", "total", "expert", "vision"),
    [
        ("granite-4.0-micro", 3_402_836_480, 0, 0),
        ("granite-4.0-h-350m", 340_332_224, 0, 0),
        ("granite-4.0-h-tiny", 6_939_037_248, 6_039_797_760, 0),
        ("granite-4.0-h-small", 32_207_337_984, 27_179_089_920, 0),
        ("falcon-h1-0.5b", 521_411_104, 0, 0),
        ("falcon-h1-7b", 7_585_648_736, 0, 0),
        ("falcon-h1-34b", 33_642_516_224, 0, 0),
        ("trinity-nano", 6_120_003_328, 5_435_817_984, 0),
        ("trinity-large", 398_635_286_016, 391_378_894_848, 0),
        ("internvl3-1b", 938_193_024, 0, 308_495_104),
        ("internvl3-78b", 78_408_318_336, 0, 5_708_504_448),
        ("internvl3.5-8b", 8_528_318_464, 0, 337_583_104),
        ("solar-open-100b", 102_651_793_408, 96_636_764_160, 0),
        ("k-exaone-236b-a23b", 236_571_150_336, 227_096_395_776, 0),
        ("glm-4.5v", 107_710_927_360, 99_656_663_040, 858_681_856),
        ("deepseek-v3.2", 671_877_929_216, 653_908_770_816, 0),
        ("deepseek-v4-flash", 284_332_230_231, 277_025_390_592, 0),
        ("mimo-v2-flash", 308_778_768_832, 302_795_194_368, 0),
        ("kimi-linear-48b-a3b", 49_122_675_072, 47_110_422_528, 0),
        ("mistral-small-4-119b", 119_401_298_944, 115_964_116_992, 428_472_320),
    ],
)
def test_parameters_are_those_of_the_class(name, total, expert, vision) -> None:
    counts = _count(name)
    assert counts is not None
    assert (counts.total, counts.expert, counts.vision) == (total, expert, vision)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("granite-4.0-h-micro", "mamba_n_heads"),
        ("granite-4.0-micro", "shared_intermediate_size"),
        ("granite-4.0-micro", "layer_types"),
        ("falcon-h1-7b", "mamba_d_ssm"),
        ("trinity-mini", "num_dense_layers"),
        ("internvl3-8b", "vision_config"),
        ("internvl3-8b", "text_config"),
        ("solar-open-100b", "n_shared_experts"),
        ("k-exaone-236b-a23b", "num_experts"),
        ("glm-4.5v", "vision_config"),
        ("glm-4.5v", "text_config"),
        ("deepseek-v4-flash", "compress_ratios"),
        ("mimo-v2-flash", "swa_num_key_value_heads"),
        ("kimi-linear-48b-a3b", "linear_attn_config"),
    ],
)
def test_a_file_without_a_dimension_is_not_counted(name, key) -> None:
    assert _count(name, key) is None


def test_layers_of_a_kind_that_nobody_read_are_not_counted() -> None:
    assert _count("granite-4.0-h-350m", layer_types=["mamba"] * 31 + ["other"]) is None
    assert _count("granite-4.0-h-350m", layer_types=["mamba"] * 31) is None
    newer = [
        "linear_attention" if kind == "mamba" else "full_attention"
        for kind in MODELS["granite-4.0-h-tiny"]["config"]["layer_types"]
    ]
    assert _count("granite-4.0-h-tiny", layer_types=newer) == _count("granite-4.0-h-tiny")


def test_the_width_of_an_expert_of_granite_is_told_apart() -> None:
    found = dimensions(MODELS["granite-4.0-h-tiny"]["config"])
    assert found["model.moe_intermediate_size"] == (512, "intermediate_size")
    assert found["model.attention_layers"] == (4, "layer_types")


def test_layers_of_kimi_linear_count_from_one_or_are_named() -> None:
    lists = MODELS["kimi-linear-48b-a3b"]["config"]["linear_attn_config"]
    named = ["full_attention" if i + 1 in lists["full_attn_layers"] else "linear_attention" for i in range(27)]
    assert _count("kimi-linear-48b-a3b", "linear_attn_config", layer_types=named) == _count("kimi-linear-48b-a3b")
    assert _count("kimi-linear-48b-a3b", linear_attn_config={**lists, "full_attn_layers": [4]}) is None
    assert dimensions(MODELS["kimi-linear-48b-a3b"]["config"])["model.attention_layers"] == (7, "linear_attn_config")


def test_weights_whose_experts_are_stored_in_another_way_have_no_one_quantisation() -> None:
    assert "model.quantization" not in dimensions(MODELS["deepseek-v4-flash"]["config"])
    assert dimensions(MODELS["mimo-v2-flash"]["config"])["model.quantization"] == ("fp8", "quantization_config")


def test_the_tower_of_internvl_has_linears() -> None:
    counts = _count("internvl3-8b")
    assert counts is not None
    assert [str(one) for one in counts.tower][-2:] == ["mlp.fc1 24x1024x4096", "mlp.fc2 24x4096x1024"]


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("granite-4.0-micro", 29_491_200),
        ("granite-4.0-1b", 19_005_440),
        ("granite-4.0-350m", 6_651_904),
        ("granite-3.1-2b", 28_180_480),
        ("glm-4-32b-0414", 115_933_184),
        ("seed-coder-8b", 41_943_040),
        ("ministral-8b", 43_646_976),
        ("devstral-small-2505", 92_405_760),
        ("hunyuan-7b", 41_943_040),
        ("hunyuan-4b", 32_440_320),
        ("hunyuan-1.8b", 19_398_656),
        ("hunyuan-0.5b", 9_240_576),
        ("exaone-4.0-1.2b", 15_237_120),
        ("afm-4.5b", 33_619_968),
    ],
)
def test_adapters_are_what_peft_makes_of_the_class(name, trained) -> None:
    """Measured: get_peft_model with rank 16 and all-linear of the class on the meta device."""
    given = {fact: value for fact, (value, _) in dimensions(MODELS[name]["config"]).items()}
    given |= {"training.peft": "lora", "training.lora_rank": 16, "training.lora_target_modules": ("all-linear",)}
    facts = {fact: Fact(fact, value, "stated", ()) for fact, value in given.items()}
    derive(facts)
    assert facts["model.trainable_parameters"].value == trained


@pytest.mark.parametrize("name", ["granite-4.0-h-micro", "falcon-h1-7b", "trinity-mini", "internvl3-8b"])
def test_adapters_of_unequal_blocks_are_not_counted(name) -> None:
    given = {fact: value for fact, (value, _) in dimensions(MODELS[name]["config"]).items()}
    given |= {"training.peft": "lora", "training.lora_rank": 16, "training.lora_target_modules": ("all-linear",)}
    facts = {fact: Fact(fact, value, "stated", ()) for fact, value in given.items()}
    derive(facts)
    assert "model.trainable_parameters" not in facts
