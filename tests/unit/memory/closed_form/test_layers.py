"""Bytes a block keeps, beside what real blocks kept (torch 2.13.0 on a CPU, bfloat16, bytes per token and block)."""

import pytest

from compatcheck.memory.closed_form.layers import RECIPES, Setting, forward_peak, saved, transient

TINY = Setting(hidden=256, query=256, key=128, heads=4, intermediate=704)


def total(model_type, at, sequence=0):
    parts = saved(RECIPES[model_type], at)
    return parts.norms + parts.inputs + parts.attention + parts.mlp + parts.scores * sequence


@pytest.mark.parametrize(
    ("model_type", "kept"),
    [("llama", 11288), ("qwen3", 13616), ("gemma", 12312), ("phi3", 12568), ("gpt2", 11160), ("olmo2", 15392)],
)
def test_blocks_keep_what_real_ones_kept(model_type, kept):
    at = TINY._replace(key=256) if model_type == "gpt2" else TINY
    assert total(model_type, at) == pytest.approx(kept, rel=0.002)


def test_llama_seven_b_keeps_forty_five_and_a_half_bytes_per_hidden_unit():
    at = Setting(hidden=4096, query=4096, key=4096, heads=32, intermediate=11008)
    assert total("llama", at) == pytest.approx(45.5 * 4096, rel=0.001)


def test_eager_attention_keeps_six_bytes_per_score():
    assert saved(RECIPES["llama"], TINY._replace(attention="eager")).scores == 6 * 4
    assert saved(RECIPES["gemma2"], TINY._replace(attention="eager")).scores == 8 * 4


def test_a_frozen_base_keeps_no_inputs_of_its_linear_layers():
    frozen = saved(RECIPES["llama"], TINY._replace(norms_trained=False, linears_trained=False))
    assert frozen.inputs == 0
    assert frozen.mlp == 6 * 704
    assert frozen.norms == pytest.approx(8 * 256, abs=16)


def test_a_compiled_block_recomputes_norms_and_activated_gate():
    # what the partitioner kept of a compiled block: four tensors of the hidden size, attention's, gate, up and their product
    at = Setting(hidden=256, query=256, key=256, heads=4, intermediate=704, compiled=True)
    assert total("llama", at) == pytest.approx(2 * 4 * 256 + 2 * 4 * 256 + 6 * 704, rel=0.01)


def test_autocast_casts_the_input_of_every_linear_layer():
    at = TINY._replace(residual=4)
    assert saved(RECIPES["llama"], at).inputs == 2 * 256 * 5
    assert saved(RECIPES["llama"], TINY).inputs == 2 * 256 * 2


def test_repeated_keys_and_values_are_as_wide_as_the_queries():
    more = saved(RECIPES["llama"], TINY._replace(repeated=True)).attention - saved(RECIPES["llama"], TINY).attention
    assert more == 2 * 2 * (256 - 128)


def test_eager_backward_needs_two_float32_tensors_of_scores():
    at = TINY._replace(attention="eager")
    assert transient(RECIPES["llama"], at, 4096) == pytest.approx(8 * 4 * 4096 - 8 * 704)
    assert transient(RECIPES["llama"], TINY, 4096) < transient(RECIPES["llama"], at, 4096)


def test_a_forward_that_keeps_nothing_needs_less_than_one_block_keeps():
    assert forward_peak(RECIPES["llama"], TINY, 2048) < total("llama", TINY)
