"""Bytes a block keeps, beside what real blocks kept (torch 2.13.0 on a CPU, bfloat16, bytes per token and block)."""

import pytest

from compatcheck.memory.closed_form.layers import RECIPES, Setting, forward_peak, saved, transient

TINY = Setting(hidden=256, query=256, key=128, heads=4, intermediate=704)


def total(model_type, at, sequence=0):
    parts = saved(RECIPES[model_type], at)
    return parts.norms + parts.inputs + parts.attention + parts.mlp + parts.scores * sequence


KEPT = {
    "llama": (11288, 14088),
    "mistral": (11288, 14088),
    "ministral": (11288, 14088),
    "qwen2": (11288, 14088),
    "mixtral": (19068, 21868),
    "granite": (11288, 14088),
    "granitemoe": (19044, 21844),
    "smollm3": (11288, 14088),
    "seed_oss": (11288, 14088),
    "qwen3": (13616, 16416),
    "qwen3_moe": (21380, 24180),
    "hunyuan_v1_dense": (13616, 16416),
    "exaone4": (13616, 16416),
    "olmoe": (21364, 24164),
    "gemma": (12333, 15133),
    "gemma2": (None, 20027),
    "gemma3_text": (19560, 22360),
    "olmo2": (15392, 18192),
    "olmo3": (15392, 18192),
    "olmo": (10272, 13072),
    "phi3": (12568, 14088),
    "phimoe": (17016, 19816),
    "glm": (11928, 14216),
    "glm4": (15008, 17296),
    "arcee": (8472, 11272),
    "cohere": (10783, 13583),
    "cohere2": (10783, 13583),
    "phi": (10132, 12420),
    "stablelm": (9752, 12040),
    "starcoder2": (6424, 9224),
    "gpt_neox": (7960, 9736),
    "falcon": (6616, None),
    "gpt2": (11160, 11912),
    "gpt_bigcode": (6168, None),
    "opt": (5528, 7816),
    "bert": (6936, 7688),
    "distilbert": (6936, 7688),
    "electra": (6936, 7688),
    "roberta": (6936, 7688),
    "xlm-roberta": (6936, 7688),
}
"""Model type → bytes with sdpa, with eager attention: what one more block of transformers 5.23.0 kept on 96 tokens."""
SPARSE = frozenset({"mixtral", "granitemoe", "phimoe", "olmoe", "qwen3_moe"})
KEYS_OF_ALL_HEADS = frozenset({"gpt2", "gpt_neox", "opt", "bert", "distilbert", "electra", "roberta", "xlm-roberta"})


def setting_of(model_type):
    at = TINY._replace(key=256 if model_type in KEYS_OF_ALL_HEADS else 64 if model_type == "gpt_bigcode" else 128)
    return at._replace(intermediate=2 * 704, experts=2) if model_type in SPARSE else at


@pytest.mark.parametrize("model_type", KEPT)
def test_blocks_keep_what_real_ones_kept(model_type):
    at, (fused, eager) = setting_of(model_type), KEPT[model_type]
    if fused is not None:
        assert total(model_type, at) == pytest.approx(fused, rel=0.012)
    if eager is not None:
        at = at._replace(attention="eager", repeated=True)
        assert total(model_type, at, 96) == pytest.approx(eager, rel=0.012)


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


@pytest.mark.parametrize(
    ("changes", "each"),
    [({}, 16), ({"compute": 4, "residual": 4}, 16), ({"float16": True}, 14)],
    ids=["bfloat16", "float32", "float16"],
)
def test_eager_backward_has_four_tensors_of_scores_on_a_gpu(changes, each):
    """Probabilities, their gradient, the product of both, the gradient of the scores (of float16 in 16 bits): aten SoftMax.cu."""
    at = TINY._replace(attention="eager", **changes)

    def alive(length):
        return saved(RECIPES["llama"], at).scores * length + transient(RECIPES["llama"], at, length)

    assert alive(8192) - alive(4096) == pytest.approx(each * at.heads * 4096)


def test_a_forward_that_keeps_nothing_needs_less_than_one_block_keeps():
    assert forward_peak(RECIPES["llama"], TINY, 2048) < total("llama", TINY)
