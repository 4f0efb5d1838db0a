"""Adapters have rank × (inputs + outputs) parameters for each layer they lie beside."""

from __future__ import annotations

from typing import NamedTuple

from compatcheck.architectures.adapters import count_adapters, target_shapes


class Shape(NamedTuple):
    """Llama-7B's and Qwen-7B's."""

    hidden: int = 4096
    intermediate: int = 11008
    query_width: int = 4096
    key_width: int = 4096
    layers: int = 32


LLAMA = Shape()


def test_lora_parameters_are_rank_times_inputs_plus_outputs() -> None:
    assert count_adapters(LLAMA, 8, ("q_proj", "v_proj")) == 32 * 8 * 2 * (4096 + 4096)
    assert count_adapters(LLAMA, 8, ("down_proj",)) == 32 * 8 * (11008 + 4096)


def test_qwens_own_names_cover_both_output_projections() -> None:
    # rank 64 of Qwen-7B: c_attn, both projections called c_proj, and the two halves of its MLP
    assert count_adapters(LLAMA, 64, ("c_attn", "c_proj", "w1", "w2")) == 143_130_624


def test_all_linear_is_seven_layers() -> None:
    assert len(target_shapes(LLAMA, ("all-linear",))) == 7


def test_dora_adds_a_magnitude_per_output() -> None:
    assert count_adapters(LLAMA, 8, ("q_proj",), decomposed=True) - count_adapters(LLAMA, 8, ("q_proj",)) == 32 * 4096
