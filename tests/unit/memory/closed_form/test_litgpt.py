"""LitGPT's blocks, adapters and loss against tensors that its own code keeps."""

import pytest

from compatcheck.memory.closed_form.activations import activations, setting
from compatcheck.memory.closed_form.adapters import kept_per_token
from compatcheck.memory.closed_form.estimate import training_phases
from compatcheck.memory.closed_form.layers import find_recipe, saved
from compatcheck.memory.closed_form.logits import logits

SMALL = {
    "training__framework": "litgpt", "training__peft": "lora", "training__lora_rank": 8, "training__lora_dropout": 0.05,
    "model__hidden_size": 1024, "model__num_hidden_layers": 3, "training__micro_batch_size": 1, "training__sequence_length": 512,
    "model__attn_implementation": "sdpa",
}  # fmt: skip
LLAMA = {"model__num_attention_heads": 8, "model__num_key_value_heads": 8, "model__intermediate_size": 2752}
PHI = {
    "model__model_type": "phi", "model__hidden_act": "gelu_pytorch_tanh", "model__num_attention_heads": 16,
    "model__num_key_value_heads": 16, "model__intermediate_size": 4096,
}  # fmt: skip
NEOX = {
    "model__model_type": "gpt_neox", "model__hidden_act": "gelu", "model__num_attention_heads": 8,
    "model__num_key_value_heads": 8, "model__intermediate_size": 4096,
}  # fmt: skip
SEPARATE, FUSED = ("q_proj", "v_proj"), ("query_key_value",)


# litgpt 0.5.13 and torch 2.13.0 on a CPU: storages that autograd keeps of a further block, weights left out, queries and values
# adapted; a CPU's dropout mask is as wide as its input, a GPU's one byte
@pytest.mark.parametrize(
    ("model", "targets", "measured"), [(LLAMA, SEPARATE, 45304), (PHI, SEPARATE, 30852), (NEOX, FUSED, 30824)]
)
def test_a_block_keeps_what_was_measured(make_run, model, targets, measured):
    run = make_run(**{**SMALL, **model, "training__lora_target_modules": targets})
    parts = saved(find_recipe(run.model.model_type, run.model.activation, run.code), setting(run))
    mask = run.model.hidden  # the second byte of each element of a CPU's
    each = parts.norms + parts.inputs + parts.attention + parts.mlp + kept_per_token(run) + mask
    assert each == pytest.approx(measured, rel=0.002)


def test_its_gelu_is_one_kernel_whatever_the_model_is_called_with():
    assert find_recipe("phi", "", "litgpt").mlp == find_recipe("phi", "gelu_new", "litgpt").mlp == 2
    assert find_recipe("phi").mlp > 2


def test_an_adapter_of_all_three_projections_is_not_put_between_zeros(make_run):
    two = make_run(**{**SMALL, **LLAMA, "training__lora_target_modules": SEPARATE})
    three = make_run(**{**SMALL, **LLAMA, "training__lora_target_modules": ("q_proj", "k_proj", "v_proj")})
    assert kept_per_token(two) - kept_per_token(three) == 2 * 2 * 1024 - 2 * 8


# litgpt 0.5.13 on a CPU, 16-bit logits cast to float32 as Fabric does: live bytes for each logit while the loss is
# differentiated, 128 tokens of a sequence at a time with adapters, all at once without
@pytest.mark.parametrize(
    ("peft", "micro_batch", "length", "model_type", "measured"),
    [("lora", 1, 1024, "llama", 9), ("lora", 2, 512, "llama", 10), ("lora", 4, 256, "llama", 12),
     ("lora", 1, 512, "gemma2", 12), (None, 1, 1024, "llama", 12), (None, 4, 256, "llama", 12), (None, 2, 512, "gemma2", 14)],
)  # fmt: skip
def test_the_loss_keeps_float32_logits_and_log_probabilities(make_run, peft, micro_batch, length, model_type, measured):
    (part,) = logits(
        make_run(**{
            **SMALL, **LLAMA, "training__loss_implementation": "chunked", "training__peft": peft,
            "training__micro_batch_size": micro_batch, "training__sequence_length": length,
            "model__model_type": model_type, "program__casts_logits": True,
        }),
        backward=True,
    )  # fmt: skip
    assert part.size.expected == measured * micro_batch * length * 32000


def test_what_it_makes_of_a_quantised_base_was_not_read_and_widens_the_range(make_run):
    def spread(**more):
        kept = activations(make_run(**{**SMALL, **LLAMA, **more})).kept
        return (kept.high - kept.low) / kept.expected

    assert spread(model__quantization="nf4") > 0.7
    assert spread() < 0.1


SHARDED = {
    "training__framework": "litgpt", "training__peft": "lora", "training__lora_rank": 8, "training__lora_dropout": 0.05,
    "training__lora_target_modules": SEPARATE, "training__loss_implementation": "chunked", "training__sharding": "fsdp",
    "training__fsdp_version": 1, "training__fsdp_wraps_frozen_apart": False, "training__gradient_checkpointing": True,
    "training__autocast_adapter_dtype": False, "training__gradient_accumulation_steps": 3, "hardware__world_size": 2,
    "program__casts_logits": True, "program__accumulates_without_sync": True, "run__outputs_kept": True,
    "model__attn_implementation": "sdpa", "model__num_hidden_layers": 4, "model__hidden_size": 512,
    "model__intermediate_size": 1376,
    "model__num_attention_heads": 8, "model__num_key_value_heads": 8, "model__vocab_size": 512,
    "training__micro_batch_size": 1, "training__sequence_length": 256,
}  # fmt: skip


# the loop of finetune/lora.py at 8641822, its FSDPStrategy's units, torch 2.1.0 on a CPU, a process group of two ranks that moves
# nothing: bytes of the second micro batch's backward beyond those between two micro batches, at the end of the last block
def test_a_unit_of_fsdp1_is_there_four_times_when_its_gradient_is_joined(make_run):
    backward = training_phases(make_run(**SHARDED))[2]
    sizes = {part.name: part.size.expected for part in backward.components}
    assert sizes["logits kept as output"] == 4 * 256 * 512  # of the micro batch before until then
    counted = ("gathered parameters", "gradients not yet reduced", "checkpointed activations")
    assert sum(sizes[name] for name in counted) == pytest.approx(27_549_536, rel=0.01)


# the same without checkpointing, hidden 128, intermediate 344: a block keeps 1,744 B a token more than without FSDP
def test_weights_of_a_unit_with_an_adapter_keep_their_inputs(make_run):
    small = {**SHARDED, "model__hidden_size": 128, "model__intermediate_size": 344, "model__num_attention_heads": 4,
             "model__num_key_value_heads": 4}  # fmt: skip
    each = []
    for apart in (False, True):
        run = make_run(**{**small, "training__fsdp_wraps_frozen_apart": apart})
        each.append(sum(saved(find_recipe("llama", "", "litgpt"), setting(run))))
    assert each[0] - each[1] == pytest.approx(1744, rel=0.02)


# the same, of the third micro batch: logits of the second one lie beside what its own forward makes, 256 tokens in two pieces
def test_logits_of_the_micro_batch_before_stay_until_the_next_ones_are_made(make_run):
    def each(length, **more):
        run = make_run(**{**SHARDED, "training__sequence_length": length})
        (part,) = logits(run._replace(**more), backward=False)
        return part.size.expected / (length * 512)

    assert each(1024) == 10
    assert each(1024, first_batch=True) == 9
    assert each(256) == 12


def test_where_the_longest_sequence_comes_first_it_meets_no_gradients(make_run):
    phases = training_phases(make_run(**SHARDED))
    first = training_phases(make_run(**SHARDED, run__longest_first=True))
    for whole, less in zip(phases[1:3], first[1:3], strict=True):
        assert less.needed.expected < whole.needed.expected
        assert less.needed.high == pytest.approx(whole.needed.high, rel=0.02)
    assert first[0] == phases[0]
