"""Megatron-LM's command lines: dtypes of its state, and whether the optimizer's is split."""

import pytest

from compatcheck.frameworks.megatron.command import DENSE_LAYERS, read_pattern
from tests.unit.frameworks.launch_script.written_commands import documents, facts, resolved

MAIN = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--seq-length 4096 --micro-batch-size 1 "
)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--bf16", ("bfloat16", "float32", False)),
        ("--bf16 --use-distributed-optimizer", ("bfloat16", "float32", True)),
        ("--bf16 --grad-reduce-in-bf16", ("bfloat16", "bfloat16", False)),
        ("--bf16 --use-precision-aware-optimizer --main-grads-dtype bf16", ("bfloat16", "bfloat16", False)),
        ("--fp16", ("float16", "float16", False)),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", ("float16", "float32", False)),
        ("", ("float32", None, False)),
    ],
)
def test_state_has_the_dtypes_the_options_say(words, found):
    stated = resolved(MAIN + words)
    names = ("training.param_dtype", "training.grad_accum_dtype", "training.distributed_optimizer")
    assert tuple(stated.get(name) for name in names) == found
    assert stated["training.optimizer"] == "adam"


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        ("--recompute-activations", "core_attention"),
        ("--recompute-granularity selective", "core_attention"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full"),
    ],
)
def test_selective_recomputation_redoes_the_attention_core_alone(words, policy):
    document = documents(MAIN + words)[0]
    stated = facts(document)
    assert (stated["training.gradient_checkpointing"], stated["training.checkpointing_policy"]) == (True, policy)
    assert (document.unread, document.skipped) == ((), ())


def test_nothing_is_recomputed_where_nobody_asks_for_it():
    assert resolved(MAIN)["training.gradient_checkpointing"] is False


def test_blocks_recomputed_in_part_are_told():
    words = "--recompute-granularity full --recompute-method block --recompute-num-layers 4"
    assert [entry.source.key for entry in documents(MAIN + words)[0].skipped] == ["--recompute-method"]


def test_master_weights_have_the_dtype_that_is_stated():
    assert facts(documents(MAIN + "--bf16 --main-params-dtype fp16")[0])["training.master_dtype"] == "float16"


def test_two_dtypes_at_once_are_refused():
    assert [entry.source.key for entry in documents(MAIN + "--bf16 --fp16")[0].skipped] == ["--fp16"]
    assert documents(MAIN + "--bf16")[0].skipped == ()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", (False, False, True, None)),
        (
            "--tensor-model-parallel-size 2 --sequence-parallel --swiglu --untie-embeddings-and-output-weights",
            (True, True, False, 10880),
        ),
        ("--swiglu --ffn-hidden-size 14336", (False, True, True, 14336)),
    ],
)
def test_what_is_left_out_is_what_the_program_does_without_it(words, found):
    stated = resolved(MAIN + words)
    names = (
        "training.sequence_parallel", "model.gated_mlp", "model.tie_word_embeddings", "model.intermediate_size",
    )  # fmt: skip
    assert tuple(stated.get(name) for name in names) == found


def test_megatron_describes_its_model() -> None:
    text = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py "
        "--tensor-model-parallel-size 4 --num-layers 32 --hidden-size 4096 --bf16 "
        "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 "
        "--global-batch-size 256 --train-iters 10 --recompute-granularity full"
    )
    document = documents(text)[0]
    found = resolved(text)
    assert document.reader == "megatron"
    assert (found["training.tensor_parallel"], found["training.pipeline_parallel"]) == (4, 1)
    assert (found["model.num_key_value_heads"], found["training.gradient_checkpointing"]) == (32, True)
    assert found["training.sharding"] == "megatron"


def test_what_stands_behind_a_switch_is_not_its_value():
    document = documents(MAIN + "--bf16 $EXTRA_ARGS")[0]
    assert facts(document)["training.mixed_precision"] == "bf16"
    assert [entry.fact for entry in document.unresolved] == []
    assert document.gaps


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", (0, 1, False)),
        ("--num-experts 8 --swiglu --ffn-hidden-size 14336 --log-params-norm", (45_097_156_608, 1, True)),
        ("--num-experts 8 --moe-ffn-hidden-size 1024 --expert-model-parallel-size 4", (2_147_483_648, 4, False)),
        ("--num-experts 8 --swiglu --ffn-hidden-size 14336 --moe-layer-freq 2", (22_548_578_304, 1, False)),
        (
            "--num-experts 8 --swiglu --ffn-hidden-size 14336 --moe-layer-freq ([0]*1+[1]*3)*8",
            (33_822_867_456, 1, False),
        ),
        ("--num-experts 8 --swiglu --ffn-hidden-size 14336 --moe-layer-freq [1]*31", (None, 1, False)),
        ("--num-experts 8", (None, 1, False)),
    ],
)
def test_experts_are_counted_where_every_block_has_them(words, found):
    stated = resolved(MAIN + words)
    names = ("model.expert_parameters", "training.expert_parallel", "training.log_params_norm")
    assert tuple(stated.get(name) for name in names) == found


@pytest.mark.parametrize(
    ("frequency", "said"), [("1", False), ("[1]*32", False), ("[0]*2+[1]*30", True), ("2", True), ("$PATTERN", True)]
)
def test_blocks_without_experts_are_said(frequency: str, *, said: bool) -> None:
    document = documents(f"{MAIN}--num-experts 8 --moe-ffn-hidden-size 1024 --moe-layer-freq {frequency}")[0]
    assert any(entry.key == DENSE_LAYERS for entry in document.statements) is said


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("([1]*3+[0]*1)*2", (1, 1, 1, 0, 1, 1, 1, 0)),  # examples of arguments.py moe_freq_type()
        ("([0]+[1]*3)", (0, 1, 1, 1)),
        ("[1, 0]", (1, 0)),
        ("3", 3),
        ("[1]*99999999", None),
        ("[1]*9999+[1]*9999", None),
        ("__import__('os')", None),
        ("[x for x in y]", None),
        ("[1", None),
    ],
)
def test_a_pattern_of_layers_is_what_python_makes_of_it(text: str, pattern: object) -> None:
    assert read_pattern(text) == pattern
