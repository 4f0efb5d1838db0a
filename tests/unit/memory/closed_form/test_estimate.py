"""The estimate as a whole: phases, roles, names, and how it answers to more of everything."""

import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import UsageError
from compatcheck.core.estimate import KINDS
from compatcheck.core.source import Source
from compatcheck.core.units import GIB
from compatcheck.memory.closed_form.estimate import estimate
from tests.unit.memory.traits import with_traits

QWEN_7B = {
    "model.model_type": "qwen2",
    "model.hidden_size": 3584,
    "model.intermediate_size": 18944,
    "model.num_hidden_layers": 28,
    "model.num_attention_heads": 28,
    "model.num_key_value_heads": 4,
    "model.head_dim": 128,
    "model.vocab_size": 152064,
    "model.parameters": 7615616512,
    "model.tie_word_embeddings": False,
    "training.param_dtype": "bfloat16",
    "training.micro_batch_size": 2,
    "training.sequence_length": 2048,
    "hardware.memory_bytes": 80 * GIB,
}


class Bounds:
    """Low, expected and high of device use, ordered where all three are."""

    def __init__(self, facts, changes):
        found = estimate({**facts, **{name.replace("__", "."): value for name, value in changes.items()}})
        assert found.phases, found.needs
        self.size = found.device

    def __ge__(self, other):
        return all(mine >= theirs for mine, theirs in zip(self.size, other.size, strict=True))

    def __le__(self, other):
        return other >= self

    def __repr__(self):
        return repr(self.size)


def needed(facts, **changes):
    return Bounds(facts, changes)


def test_a_training_role_has_four_phases_of_known_kinds():
    found = estimate(QWEN_7B)
    assert [phase.name for phase in found.phases] == ["load", "forward", "backward", "step"]
    for phase in found.phases:
        for part in phase.components:
            assert part.kind in KINDS
            assert part.size.low <= part.size.expected <= part.size.high
            assert part.formula
            assert part.source


def test_a_role_carries_its_name_to_every_component():
    found = estimate(QWEN_7B, role="actor")
    assert {part.role for phase in found.phases for part in phase.components} == {"actor"}


def test_a_role_that_scores_holds_weights_and_one_block_only():
    found = estimate(QWEN_7B, role="reference", trains=False)
    assert [phase.name for phase in found.phases] == ["load", "forward"]
    kinds = {part.kind for phase in found.phases for part in phase.components}
    assert not kinds & {"gradients", "optimizer_states"}
    assert found.allocated.expected < 2 * 7615616512 * 1.2


def test_optimizer_states_that_return_are_on_the_device_for_the_step_alone():
    found = estimate({**QWEN_7B, "training.offload_optimizer": "cpu", "program.states_return_for_step": True})
    kinds = {phase.name: {part.kind for part in phase.components} for phase in found.phases}
    assert "optimizer_states" in kinds["step"]
    assert not any("optimizer_states" in kinds[name] for name in ("load", "forward", "backward"))
    assert "gradients" in kinds["step"]


def test_without_a_length_nothing_is_estimated_and_it_says_what_is_needed():
    facts = {name: value for name, value in QWEN_7B.items() if name != "training.sequence_length"}
    found = estimate(facts)
    assert found.phases == ()
    assert found.needs == ("training.sequence_length",)
    assert found.verdict.outcome == "unknown"
    assert found.device == (0, 0, 0)


def test_zero_three_splits_sixteen_bytes_per_parameter():
    facts = {**QWEN_7B, "training.zero_stage": 3, "hardware.world_size": 8, "training.gradient_checkpointing": True}
    step = next(phase for phase in estimate(facts).phases if phase.name == "step")
    states = sum(
        part.size.expected for part in step.components if part.kind in {"parameters", "gradients", "optimizer_states"}
    )
    assert states == pytest.approx(16 * 7615616512 / 8, rel=1e-6)


def test_other_processes_count_on_the_device_and_nowhere_else():
    plain, crowded = estimate(QWEN_7B), estimate({**QWEN_7B, "run.other_resident_bytes": 10 * GIB})
    assert crowded.device.expected - plain.device.expected == 10 * GIB
    assert crowded.reserved == plain.reserved


def test_an_unknown_architecture_is_taken_as_llama_and_said_so():
    found = estimate({**QWEN_7B, "model.model_type": "mystery"})
    assert [entry.name for entry in found.unmodelled] == ["architecture"]
    known = estimate(QWEN_7B)
    assert found.allocated.high > known.allocated.high
    assert found.allocated.low < known.allocated.low


def test_a_loss_over_log_probabilities_that_nobody_read_is_said():
    for framework, said in (("ms_swift", ["log-probabilities"]), ("trl", [])):
        found = estimate(with_traits({**QWEN_7B, "training.trainer": "grpo", "training.framework": framework}))
        assert [entry.name for entry in found.unmodelled] == said


def test_a_vision_tower_is_unmodelled_and_errs_low():
    found = estimate({**QWEN_7B, "model.vision_parameters": 600_000_000})
    assert [(entry.name, entry.direction) for entry in found.unmodelled] == [
        ("activations of vision and audio towers", "more")
    ]


SHARDED = {**QWEN_7B, "training.zero_stage": 3, "hardware.world_size": 8}
CHECKPOINTED = {**QWEN_7B, "training.gradient_checkpointing": True}
EAGER = {**QWEN_7B, "model.attn_implementation": "eager"}
LORA = {**QWEN_7B, "training.peft": "lora", "training.lora_target_modules": ("all-linear",)}
LIGER = {**CHECKPOINTED, "training.use_liger_kernel": True}
FSDP = {
    **CHECKPOINTED,
    "training.sharding": "fsdp",
    "training.param_dtype": "float32",
    "training.mixed_precision": "bf16",
    "hardware.world_size": 8,
}
RUNS = [QWEN_7B, SHARDED, CHECKPOINTED, EAGER, LORA, LIGER, FSDP]
runs = st.sampled_from(RUNS)


@given(runs, st.integers(1, 16), st.integers(1, 65536), st.integers(0, 65536))
def test_more_tokens_never_need_less(facts, micro, length, more):
    fewer = needed(facts, training__micro_batch_size=micro, training__sequence_length=length)
    assert needed(facts, training__micro_batch_size=micro, training__sequence_length=length + more) >= fewer
    assert needed(facts, training__micro_batch_size=micro + 1, training__sequence_length=length) >= fewer


@given(runs, st.integers(1, 200), st.integers(0, 50))
def test_more_layers_never_need_less(facts, layers, more):
    counted = {name: value for name, value in facts.items() if name != "model.parameters"}
    fewer = needed(counted, model__num_hidden_layers=layers)
    assert needed(counted, model__num_hidden_layers=layers + more) >= fewer


@given(runs, st.integers(1, 500_000), st.integers(0, 100_000))
def test_a_larger_vocabulary_never_needs_less(facts, vocab, more):
    counted = {name: value for name, value in facts.items() if name != "model.parameters"}
    assert needed(counted, model__vocab_size=vocab + more) >= needed(counted, model__vocab_size=vocab)


@given(st.sampled_from([SHARDED, FSDP]), st.integers(3, 1024), st.integers(0, 1024))
def test_more_ranks_that_share_parameters_never_need_more(facts, ranks, more):
    fewer = needed(facts, hardware__world_size=ranks)
    assert needed(facts, hardware__world_size=ranks + more) <= fewer


@given(st.sampled_from([QWEN_7B, CHECKPOINTED]), st.integers(1, 8192))
def test_halving_the_dtype_never_needs_more(facts, length):
    # but for eager attention, which converts 16-bit scores to float32
    wide = needed(facts, training__param_dtype="float32", training__sequence_length=length)
    assert needed(facts, training__param_dtype="bfloat16", training__sequence_length=length) <= wide


@given(runs)
def test_checkpointing_and_offload_never_need_more(facts):
    assert needed(facts, training__gradient_checkpointing=True) <= needed(facts)
    sharded = {**facts, "training.sharding": "zero", "training.zero_stage": 2, "hardware.world_size": 8}
    assert needed(sharded, training__offload_optimizer="cpu") <= needed(sharded)


def test_sizes_without_end_are_answered_or_refused_by_name():
    found = estimate({**QWEN_7B, "training.sequence_length": 10**18})
    assert found.verdict.outcome == "does_not_fit"
    with pytest.raises(UsageError, match=r"training\.sequence_length"):
        estimate({**QWEN_7B, "training.sequence_length": 10**19})


def test_nothing_heavy_is_imported():
    script = (
        "import sys; from compatcheck.memory.closed_form.estimate import estimate; "
        "print(sorted({'torch', 'yaml', 'rich', 'click', 'dataclasses'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert found.stdout.strip() == "[]"


def test_no_verdict_of_failure_rests_on_checkpointing_that_nobody_spoke_of():
    long = {**QWEN_7B, "training.sequence_length": 16384, "training.zero_stage": 3, "hardware.world_size": 8}
    silent = estimate(long).verdict
    off = estimate({**long, "training.gradient_checkpointing": False}).verdict
    assert (silent.outcome, off.outcome) == ("marginal", "does_not_fit")
    assert silent.contributing[0] == "activations, unless they are checkpointed"
    assert silent.margin_bytes == off.margin_bytes


def test_no_verdict_of_failure_rests_on_every_micro_batch_reaching_the_limit():
    facts = {**QWEN_7B, "training.zero_stage": 3, "hardware.world_size": 8, "training.micro_batch_size": 8}
    long = {**facts, "training.gradient_checkpointing": True, "training.sequence_length": 8192}
    assert estimate(long).verdict.outcome == "does_not_fit"
    padded = {**long, "program.pads_to_longest": True}
    verdict = estimate(padded).verdict
    assert verdict.outcome == "marginal"
    assert verdict.margin_bytes == estimate(long).verdict.margin_bytes
    fitting = int(re.search(r"up to ([\d,]+) of 8,192 tokens", verdict.condition)[1].replace(",", ""))
    limit = 80 * GIB
    assert (
        max(phase.needed.expected for phase in estimate({**padded, "training.sequence_length": fitting}).phases)
        <= limit
    )
    further = estimate({**padded, "training.sequence_length": fitting + 256})
    assert max(phase.needed.expected for phase in further.phases) > limit
    for known in ({"training.packing": True}, {"training.trainer": "pretrain"}, {"training.micro_batch_size": 512}):
        assert estimate({**padded, **known}).verdict.outcome == "does_not_fit"


def test_nothing_surely_fits_whose_samples_may_be_longer_than_the_limit() -> None:
    facts = {**QWEN_7B, "training.zero_stage": 3, "hardware.world_size": 8, "training.micro_batch_size": 1}
    assert estimate(facts).verdict.outcome == "fits"
    kept = {**facts, "training.keeps_long_rows": True}
    verdict = estimate(kept).verdict
    assert verdict.outcome == "marginal"
    longest = int(re.search(r"the longest has up to ([\d,]+) tokens", verdict.condition)[1].replace(",", ""))
    assert longest > facts["training.sequence_length"]
    assert estimate({**facts, "training.sequence_length": longest}).verdict.outcome == "fits"
    assert estimate({**facts, "training.sequence_length": longest + longest // 32}).verdict.outcome != "fits"
    built_for = {"model.max_position_embeddings": longest - 1}
    assert estimate({**kept, **built_for}).verdict.outcome == "fits", "no sample is longer than the model takes"


def test_sequences_without_padding_are_not_all_at_the_limit() -> None:
    facts = {**QWEN_7B, "training.zero_stage": 3, "hardware.world_size": 8, "training.micro_batch_size": 8}
    long = {**facts, "training.gradient_checkpointing": True, "training.sequence_length": 8192}
    verdict = estimate({**long, "training.use_remove_padding": True}).verdict
    assert verdict.outcome == "marginal"
    assert "it fits where they are on average up to" in verdict.condition


def test_a_marginal_run_of_one_device_names_the_probe_that_measures_it():
    command = estimate({**QWEN_7B, "hardware.memory_bytes": 90 * GIB}).verdict.verify
    assert command.startswith("compatcheck probe run training_step --backend cuda --param model_type=qwen2 ")
    assert "--param sequence=2048" in command
    shared = {**QWEN_7B, "hardware.world_size": 2, "hardware.memory_bytes": 105 * GIB}
    assert estimate(shared).verdict.outcome == "marginal"
    assert estimate(shared).verdict.verify == "compatcheck estimate --trace"
    zero = {**QWEN_7B, "training.zero_stage": 3, "hardware.world_size": 8, "hardware.memory_bytes": 55 * GIB}
    assert estimate(zero).verdict.outcome == "marginal"
    assert estimate(zero).verdict.verify is None


EVALUATED = {
    **QWEN_7B,
    "training.framework": "hf_trainer",
    "training.trainer": "causal_lm",
    "training.micro_batch_size": 1,
    "training.eval_batch_size": 8,
    "training.evaluates": True,
    "training.gradient_checkpointing": True,
    "training.label_smoothing": 0.0,
}


def phase_of(facts, packages=None):
    installed = {name: Package(name, version, Source("test")) for name, version in (packages or {}).items()}
    found = estimate(with_traits(facts, installed), Environment("test", installed, complete=False))
    return next((phase for phase in found.phases if phase.name == "evaluation"), None)


def logits_of(phase):
    return sum(part.size.expected for part in phase.components if part.kind == "logits")


def test_an_evaluation_makes_the_logits_of_its_whole_batch():
    phase = phase_of(EVALUATED)
    kinds = {part.kind for part in phase.components}
    # counted by the probe whole_run on transformers 5.24.0: 10.005 bytes a logit of a bfloat16 model, 8.01 of a float32 one
    assert logits_of(phase) == 10 * 8 * 2048 * 152064
    assert logits_of(phase_of({**EVALUATED, "training.param_dtype": "float32"})) == 8 * 8 * 2048 * 152064
    assert {"parameters", "optimizer_states", "logits"} <= kinds
    assert "gradients" not in kinds  # the step gave them back
    found = estimate(with_traits({**EVALUATED, "training.sequence_length": 16384}))
    assert max(found.phases, key=lambda one: one.needed.expected).name == "evaluation"


def test_an_evaluation_smooths_labels_as_training_does():
    smoothed = {**EVALUATED, "training.label_smoothing": 0.1, "training.loss_implementation": "smoothed"}
    assert logits_of(phase_of(smoothed)) == 8 * 8 * 2048 * 152064


@pytest.mark.parametrize(
    "changed",
    [
        {"training.evaluates": False},
        {"training.framework": "litgpt"},
        {"training.trainer": "dpo"},
        {"training.label_smoothing": 0.1},
    ],
)
def test_only_evaluations_that_take_the_models_own_loss_are_priced(changed):
    assert phase_of({**EVALUATED, **changed}) is None


def test_an_evaluation_that_nobody_read_is_said_where_its_batch_is_larger_than_that_of_training():
    unread = {**EVALUATED, "training.label_smoothing": 0.1}
    assert "evaluation" in {one.name for one in estimate(with_traits(unread)).unmodelled}
    assert "evaluation" not in {one.name for one in estimate(with_traits(EVALUATED)).unmodelled}
    small = {**unread, "training.eval_batch_size": 1}
    assert "evaluation" not in {one.name for one in estimate(with_traits(small)).unmodelled}


@pytest.mark.parametrize(
    ("trainer", "release", "each"),
    # counted by the probe whole_run with transformers 4.53.3, 5.0.0 and 5.20.0: dpo 6.0 of 11.9 bytes a logit, 16.8 of 16.8 and
    # 12.6 of 12.6, kto 12.05 of 15.9, 12.05 of 15.9 and 13.6 of 13.6
    [("dpo", "0.19.1", 0.5), ("dpo", "0.29.1", 1), ("dpo", "1.13.0", 1), ("kto", "0.29.1", 0.75), ("kto", "1.13.0", 1)],
)
def test_trl_evaluates_preferences_by_its_own_loss(trainer, release, each):
    facts = {**EVALUATED, "training.framework": "trl", "training.trainer": trainer, "training.eval_batch_size": 4}
    facts |= {"training.micro_batch_size": 4, "training.loss_type": "sigmoid" if trainer == "dpo" else "kto"}
    packages = {"trl": release, "transformers": "5.0.0"}
    installed = {name: Package(name, version, Source("test")) for name, version in packages.items()}
    found = estimate(with_traits(facts, installed), Environment("test", installed, complete=False))
    phases = {phase.name: logits_of(phase) for phase in found.phases}
    assert phases["forward"] > 2**33
    assert phases["evaluation"] == pytest.approx(each * phases["forward"])


def test_a_fused_loss_skips_the_logits_of_evaluations_where_it_is_asked_to():
    fused = {**EVALUATED, "training.use_liger_kernel": True}
    assert logits_of(phase_of(fused, {"transformers": "5.14.1"})) == 10 * 8 * 2048 * 152064
    assert logits_of(phase_of(fused, {"transformers": "5.15.0"})) < 2**33
    sft = {**fused, "training.framework": "trl", "training.trainer": "sft"}
    assert logits_of(phase_of(sft, {"transformers": "4.57.6", "trl": "0.28.0"})) == 10 * 8 * 2048 * 152064
    assert logits_of(phase_of(sft, {"transformers": "4.57.6", "trl": "0.29.0"})) < 2**33
