"""Adapters have rank × (inputs + outputs) parameters for each layer they lie beside."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from compatcheck.architectures.adapters import (
    PARALLEL,
    count_adapters,
    count_tower_adapters,
    list_linears,
    measure_frozen_inputs,
    name_linears,
    names_recur,
    target_shapes,
)
from compatcheck.architectures.parts import LinearLayer, read_linear_layer
from compatcheck.architectures.towers import LINEARS, TOWERS
from compatcheck.memory.adapter_counts import usual_targets
from compatcheck.memory.closed_form.layers import RECIPES


class Shape(NamedTuple):
    """Llama-7B's and Qwen-7B's."""

    hidden: int = 4096
    intermediate: int = 11008
    query_width: int = 4096
    key_width: int = 4096
    layers: int = 32
    vocab: int = 32000
    linears: str = "llama"
    gated: bool = True


LLAMA = Shape()
QWEN = LLAMA._replace(linears="qwen")
ALL = ("all-linear",)
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_lora_parameters_are_rank_times_inputs_plus_outputs() -> None:
    assert count_adapters(LLAMA, 8, ("q_proj", "v_proj")) == 32 * 8 * 2 * (4096 + 4096)
    assert count_adapters(LLAMA, 8, ("down_proj",)) == 32 * 8 * (11008 + 4096)


def test_qwens_own_names_cover_both_output_projections() -> None:
    # rank 64 of Qwen-7B: c_attn, both projections called c_proj, and the two halves of its MLP
    assert count_adapters(QWEN, 64, ("c_attn", "c_proj", "w1", "w2")) == 143_130_624
    assert count_adapters(QWEN, 64, ALL) == 143_130_624
    assert count_adapters(QWEN, 64, ("mlp.c_proj",)) == 32 * 64 * (11008 + 4096)


def test_all_linear_is_seven_layers() -> None:
    assert len(target_shapes(LLAMA, ALL)) == 7


def test_dora_adds_a_magnitude_per_output() -> None:
    assert count_adapters(LLAMA, 8, ("q_proj",), decomposed=True) - count_adapters(LLAMA, 8, ("q_proj",)) == 32 * 4096


@pytest.mark.parametrize(
    ("shape", "every", "usual", "seven"),
    [
        # what peft 0.18.1 makes of rank 8 on a meta device: of all linear layers, of its own targets where it has some for the
        # type, of Llama's seven names (0: it refuses them)
        (Shape(3072, 8192, 3072, 3072, 32, linears="phi3"), 12_582_912, None, 4_456_448),
        (Shape(4096, 13696, 4096, 256, 40, linears="glm4"), 23_797_760, None, 13_721_600),
        (Shape(1024, 4096, 1024, 1024, 24, linears="bloom"), 3_145_728, 786_432, 0),
        (Shape(4544, 18176, 4544, 64, 32, linears="falcon"), 16_318_464, 2_359_296, 0),
        (Shape(128, 512, 128, 128, 6, linears="gpt_neox"), 98_304, 24_576, 0),
        (Shape(1600, 6400, 1600, 1600, 48, linears="gpt2"), 9_830_400, 2_457_600, 0),
        (Shape(6144, 24576, 6144, 128, 40, linears="gpt_bigcode"), 27_607_040, 4_014_080, 0),
        (Shape(768, 3072, 768, 768, 12, linears="gpt_neo"), 1_327_104, 294_912, 442_368),
        (Shape(4608, 18432, 4608, 512, 32, linears="starcoder2"), 19_136_512, None, 7_340_032),
        (Shape(4096, 16384, 4096, 4096, 28, linears="gptj"), 16_515_072, 3_670_016, 5_505_024),
        (Shape(4096, 16384, 4096, 4096, 28, linears="codegen"), 14_680_064, 3_670_016, 0),
        (Shape(768, 3072, 768, 768, 12, linears="opt"), 1_327_104, 294_912, 442_368),
        (Shape(2560, 10240, 2560, 2560, 32, linears="phi"), 11_796_480, 9_175_040, 3_932_160),
        (Shape(2048, 8192, 2048, 2048, 24, linears="mpt"), 6_291_456, 1_572_864, 3_932_160),
        (Shape(4096, 21504, 4096, 1024, 32, linears="apertus"), 19_922_944, None, 19_922_944),
        (Shape(2880, 2880, 4096, 512, 24, linears="gpt_oss"), 3_981_312, None, 3_981_312),
        (Shape(4096, 14336, 4096, 1024, 32, linears="mistral"), 20_971_520, 3_407_872, 20_971_520),
    ],
    ids=lambda value: value.linears if isinstance(value, Shape) else "",
)
def test_each_type_has_linear_layers_of_its_own(shape: Shape, every: int, usual: int | None, seven: int) -> None:
    assert count_adapters(shape, 8, ALL) == every
    assert usual is None or count_adapters(shape, 8, usual_targets(shape.linears)) == usual
    assert count_adapters(shape, 8, SEVEN) == seven


@pytest.mark.parametrize(
    ("linears", "method", "targets", "settings", "block"),
    [
        # elements that DeepSpeed's linear keeps and torch's does not, per token and block behind the first, at widths 64 and 160
        ("llama", "lora", ("q_proj", "v_proj"), {}, 224),
        ("llama", "lora", ("q_proj", "v_proj", "up_proj"), {}, 160),
        ("llama", "lora", ("q_proj", "v_proj"), {"eager": True}, 288),
        ("llama", "lora", ALL, {"eager": True}, 0),
        ("llama", "dora", ("q_proj", "v_proj"), {"dropout": True}, 288),
        ("llama", "prompt_tuning", (), {}, 288),
        ("llama", "ia3", ("k_proj", "v_proj", "down_proj"), {}, 288),
        ("llama", "oft", ("q_proj", "v_proj"), {}, 352),
        ("arcee", "lora", ("q_proj", "v_proj"), {"activation": "relu2"}, 224),
        ("opt", "lora", ("q_proj", "v_proj"), {"activation": "relu"}, 64),
        ("cohere", "lora", ("q_proj", "v_proj"), {}, 160),
        ("falcon", "lora", ("query_key_value",), {}, 0),
        ("gpt2", "lora", ("c_attn",), {}, 0),
    ],
)
def test_inputs_that_only_frozen_layers_take(
    linears: str, method: str, targets: tuple[str, ...], settings: dict[str, Any], block: int
) -> None:
    asked = {"dropout": False, "eager": False, "activation": "silu"} | settings
    assert measure_frozen_inputs(Shape(64, 160, 64, 32, 3, linears=linears), method, targets, **asked) == block


def test_types_of_one_norm_are_those_of_the_recipes() -> None:
    listed = {name for name in RECIPES if RECIPES[name].norms == 1 and list_linears(name) is not None}
    assert listed - {"falcon"} == PARALLEL & RECIPES.keys()


def test_fused_layers_of_types_in_repositories_of_their_own() -> None:
    # what xtuner prints of internlm2-7b with rank 64: its head, called output, is among the linear layers
    internlm2 = Shape(4096, 14336, 4096, 1024, 32, 92544, "internlm2")
    assert count_adapters(internlm2, 64, (*ALL, "output")) == 157_179_904
    assert count_adapters(internlm2, 64, ("wqkv", "wo", "w1", "w2", "w3")) == count_adapters(internlm2, 64, ALL)
    baichuan = LLAMA._replace(linears="baichuan")
    assert count_adapters(baichuan, 8, ("W_pack",)) == 32 * 8 * (4096 + 3 * 4096)
    chatglm3 = Shape(4096, 13696, 4096, 256, 28, 65024, "chatglm")
    assert count_adapters(chatglm3, 8, ("query_key_value",)) == 1_949_696  # as its README prints
    plain = chatglm3._replace(gated=False)
    assert count_adapters(chatglm3, 1, ALL) - count_adapters(plain, 1, ALL) == 28 * 13696


def test_a_type_that_nobody_listed_and_models_of_programs_have_llamas_names_and_further_ones() -> None:
    unlisted = LLAMA._replace(linears="nobody_knows")
    assert len(target_shapes(unlisted, ALL)) == 7
    assert target_shapes(unlisted, ("query_key_value", "linear_fc2")) == (
        ("attention", 4096, 3 * 4096),
        ("down", 11008, 4096),
    )
    assert name_linears("phi3", "fsdp", runs_transformers=False) == ""
    megatron = LLAMA._replace(linears=name_linears("phi3", "megatron", runs_transformers=None))
    assert len(target_shapes(megatron, ALL)) == 4
    assert target_shapes(megatron, ("q_proj",)) == (("attention", 4096, 4096),)


TOWER = (
    LinearLayer("attn.qkv", 1280, 3840, 32),
    LinearLayer("attn.proj", 1280, 1280, 32),
    LinearLayer("mlp.down_proj", 3420, 1280, 32),
)


def test_a_tower_has_adapters_where_targets_are_looked_for_there() -> None:
    attention, mlp = 32 * 16 * (5120 + 2560), 32 * 16 * 4700
    assert count_tower_adapters(TOWER, 16, ("vision:all-attention", "vision:all-mlp")) == attention + mlp
    assert count_tower_adapters(TOWER, 16, ("vision:all-mlp", "all-attention")) == mlp
    assert count_tower_adapters(TOWER, 16, ("vision:proj", "q_proj")) == 32 * 16 * 2560
    assert count_tower_adapters(TOWER, 16, ("all-linear", "proj")) == 0
    assert count_tower_adapters(TOWER, 16, ("vision:proj",), decomposed=True) == 32 * (16 * 2560 + 1280)


def test_kinds_of_layers_are_told_apart_whatever_they_are_called() -> None:
    assert count_adapters(QWEN, 64, ("all-attention", "all-mlp")) == 143_130_624
    assert count_adapters(LLAMA, 8, ("all-attention",)) == count_adapters(LLAMA, 8, SEVEN[:4])
    assert count_adapters(LLAMA, 8, ("all-mlp", "vision:q_proj")) == count_adapters(LLAMA, 8, SEVEN[4:])


def test_a_linear_layer_is_what_its_line_says() -> None:
    assert [read_linear_layer(str(one)) for one in TOWER] == [*TOWER]


def test_layers_of_every_tower_for_images_are_listed() -> None:
    assert {name for name in TOWERS if "audio" not in name} == LINEARS.keys()


@pytest.mark.parametrize(
    ("paths", "recur"),
    [
        (["mlp.experts.*.up_proj", "mlp.shared_expert.up_proj"], True),
        (["mlp.experts.*.up_proj", "self_attn.q_proj", "mlp.gate"], False),
        (["mlp.up_proj"], False),
    ],
)
def test_a_shared_expert_is_named_as_the_routed_ones(paths: list[str], recur: object) -> None:
    assert names_recur([LinearLayer(path, 1, 2, 2) for path in paths]) is recur
