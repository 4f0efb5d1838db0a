"""TRL's bytes per logit are those that its releases were measured with."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from compatcheck.lab.measurement_files import read_measurements
from compatcheck.memory.closed_form.estimate import training_phases
from compatcheck.memory.closed_form.logits import divergence_logits, hole, logits, sequences
from compatcheck.memory.closed_form.reference import teacher_parameters
from compatcheck.memory.closed_form.trl_logits import fused_divergence, trl_logits

MEASUREMENTS = Path(__file__).parents[4] / "fixtures" / "measurements"
PROBES = ("trl_dpo_loss", "trl_grpo_loss")
TRL = {"training__framework": "trl", "training__use_liger_kernel": False}
BF16 = {"training__mixed_precision": "bf16", "model__load_dtype": "float32", "training__param_dtype": "float32"}
KERNEL = "1.14."
"""Releases whose losses are a kernel on a GPU; the measurement on a CPU is the high bound."""


def _rows():
    for probe in PROBES:
        first, *rest = map(json.loads, (MEASUREMENTS / probe / "releases.jsonl").read_text().splitlines())
        assert first["common"]["probe"] == probe
        for row in rest:
            parameters = row["parameters"]
            if parameters["growing"] == "completion":
                parts = (probe, parameters["trainer"], row["versions"]["trl"], parameters["dtype"])
                count = parameters.get("pairs") or parameters["batch"]
                yield pytest.param(probe, row, id="-".join(map(str, (*parts, count))))


def _find(make_run, probe, parameters, versions):
    facts = import_module(f"compatcheck.lab.probes.catalog.{probe}").facts(parameters)
    stored = {"training.param_dtype": facts["model.load_dtype"], "training.sequence_length": 1024}
    if probe == "trl_grpo_loss":
        stored["training.sequence_length"] = stored["training.max_response_length"] = 640
    changes = {name.replace(".", "__"): value for name, value in (facts | stored).items()}
    changes["training__loss_type"] = "kto" if facts["training.trainer"] == "kto" else ""
    return trl_logits(make_run(versions, **changes))


@pytest.mark.parametrize(
    "one",
    [one for probe in PROBES for one in read_measurements(str(MEASUREMENTS / probe / "launched.jsonl"))],
    ids=lambda one: f"{one.probe}-{one.parameters['trainer']}-{one.versions['trl']}-{one.parameters['dtype']}",
)
def test_a_release_takes_what_was_measured_around_its_kernels(make_run, one):
    found = _find(make_run, one.probe, one.parameters, {"trl": one.versions["trl"]})
    assert found.expected == one.results["step_bytes_per_logit"]


@pytest.mark.parametrize(("probe", "row"), list(_rows()))
def test_a_release_takes_what_was_measured(make_run, probe, row):
    found = _find(make_run, probe, row["parameters"], row["versions"])
    measured = row["results"]["step_bytes_per_logit"]
    if row["versions"]["trl"].startswith(KERNEL):
        assert found.expected <= measured <= found.high
    else:
        assert found.expected == pytest.approx(measured, abs=0.002)


@pytest.mark.parametrize(
    ("trainer", "release", "each"),
    [
        ("dpo", "0.28.0", (5, 12)),
        ("dpo", "0.29.0", (11, 18)),
        ("dpo", "1.6.0", (8, 12)),
        ("grpo", "0.29.0", (4, 12)),
        ("grpo", "1.0.0", (8, 16)),
        ("grpo", "1.10.0", (6, 12)),
        ("rloo", "1.0.0", (8, 16)),
        ("kto", "0.22.0", (8, 16)),
        ("orpo", "0.28.0", (6, 14)),
    ],
)
@pytest.mark.parametrize(
    ("setting", "wide"),
    [
        ({**BF16}, True),
        ({**BF16, "training__mixed_precision": "fp16"}, True),
        ({**BF16, "model__load_dtype": "bfloat16", "training__param_dtype": "bfloat16"}, True),
        ({**BF16, "training__sharding": "ddp", "hardware__world_size": 8}, True),
        ({**BF16, "training__sharding": "fsdp", "training__fsdp_version": 1, "hardware__world_size": 8}, True),
        ({**BF16, "training__peft": "lora", "training__param_dtype": "bfloat16"}, True),
        ({"training__mixed_precision": "no", "training__param_dtype": "float32"}, True),
        ({**BF16, "training__sharding": "fsdp", "training__fsdp_version": 2, "hardware__world_size": 8}, False),
        ({**BF16, "training__sharding": "zero", "training__zero_stage": 2, "hardware__world_size": 8}, False),
        ({**BF16, "training__sharding": "ddp", "training__zero_stage": 0, "hardware__world_size": 8}, False),
        ({**BF16, "training__keep_fp32_outputs": False}, False),
        ({"training__mixed_precision": "no", "training__param_dtype": "bfloat16"}, False),
    ],
)
def test_accelerate_hands_the_loss_float32_logits_but_under_deepspeed_and_fsdp2(
    make_run, trainer, release, each, setting, wide
):
    packages = {"trl": release, "transformers": "4.56.1", "accelerate": "1.12.0"}
    run = make_run(packages, **TRL, **setting, training__trainer=trainer)
    assert trl_logits(run).expected == each[wide]


@pytest.mark.parametrize(("accelerate", "bytes_each"), [("1.5.2", 2), ("1.6.0", 4), ("1.7.0", 4), ("1.8.0", 2)])
def test_two_releases_of_accelerate_wrap_fsdp2(make_run, accelerate, bytes_each):
    sharded = {"training__sharding": "fsdp", "training__fsdp_version": 2, "hardware__world_size": 8}
    run = make_run({"accelerate": accelerate}, **TRL, **BF16, **sharded, training__trainer="dpo")
    assert run.precision.logits == bytes_each


@pytest.mark.parametrize(
    ("model_type", "transformers", "bytes_each"),
    [("llama", "4.45.2", 4), ("gpt2", "4.45.2", 2), ("llama", "4.46.1", 2)],
)
def test_old_models_cast_their_logits_themselves(make_run, model_type, transformers, bytes_each):
    run = make_run({"transformers": transformers}, **TRL, training__trainer="dpo", model__model_type=model_type)
    assert run.precision.logits == bytes_each


def test_a_program_casts_logits_by_itself_under_deepspeed_too(make_run):
    sharded = {"training__sharding": "zero", "training__zero_stage": 3, "hardware__world_size": 8}
    packages = {"llamafactory": "0.9.2"}
    run = make_run(packages, **sharded, training__framework="llamafactory", training__trainer="kto")
    assert run.precision.logits == 4
    assert logits(run, backward=False)[0].size.expected == 20 * 2048 * 32000


def test_precomputed_log_probabilities_need_no_logits_of_the_reference(make_run):
    dpo = {**TRL, "training__trainer": "dpo", "training__precompute_ref_log_probs": True}
    assert trl_logits(make_run({"trl": "0.28.0"}, **dpo)).expected == 5
    assert trl_logits(make_run({"trl": "0.29.0"}, **dpo)).expected == 7
    assert trl_logits(make_run({"trl": "1.6.0"}, **dpo)).expected == 6
    assert trl_logits(make_run({"trl": "0.29.0"}, **dpo, **BF16)).expected == 12


def test_the_mismatched_batch_of_kto_is_there_for_its_own_loss_alone(make_run):
    kto = {**TRL, "training__trainer": "kto"}
    assert trl_logits(make_run({"trl": "0.16.1"}, **kto, training__loss_type="kto")).expected == 10
    assert trl_logits(make_run({"trl": "0.16.1"}, **kto, training__loss_type="apo_zero_unpaired")).expected == 8


@pytest.mark.parametrize(
    ("release", "setting", "batch", "each"),
    [("0.24.0", {}, 8, 6), ("1.4.0", {}, 8, 8), ("1.9.0", {}, 8, 6), ("1.9.0", BF16, 8, 12), ("1.9.0", BF16, 1, 16)],
)
def test_dft_takes_log_probabilities_row_by_row(make_run, release, setting, batch, each):
    dft = {
        **TRL,
        **setting,
        "training__trainer": "sft",
        "training__loss_type": "dft",
        "training__micro_batch_size": batch,
    }
    packages = {"trl": release, "transformers": "4.57.6", "accelerate": "1.12.0"}
    assert logits(make_run(packages, **dft), backward=True)[0].size.expected == each * batch * 1024 * 32000
    assert trl_logits(make_run(packages, **{**dft, "training__loss_type": "nll"})) is None


@pytest.mark.parametrize("trainer", ["kto", "bco"])
def test_unpaired_samples_are_one_sequence_each(make_run, trainer):
    assert sequences(make_run(training__trainer=trainer)) == 1


def test_a_teacher_has_parameters_of_its_own(make_run):
    gkd = {**TRL, "training__trainer": "gkd", "training__teacher_parameters": 10**9}
    (alone,) = teacher_parameters(make_run(**gkd))
    (shared,) = teacher_parameters(
        make_run(**gkd, training__zero_stage=3, training__sharding="zero", hardware__world_size=4)
    )
    assert (alone.size.low, alone.size.high, 4 * shared.size.high) == (2 * 10**9, 4 * 10**9, alone.size.high)
    assert teacher_parameters(make_run(**{**gkd, "training__trainer": "sft"})) == ()


def test_distillation_takes_both_models_log_probabilities(make_run):
    gkd = {**TRL, "training__trainer": "gkd", "training__teacher_parameters": 10**9}
    assert trl_logits(make_run(**gkd)) == (18, 34, 34)
    assert trl_logits(make_run(**gkd, **BF16)).expected == 68


def test_an_unknown_release_holds_all_that_make_logits(make_run):
    low, expected, high = trl_logits(make_run(**TRL, **BF16, training__trainer="grpo"))
    assert (low, expected, high) == (8, 12, 16)


def test_prompts_of_policy_trainers_have_no_logits(make_run):
    run = make_run({"trl": "1.0.0"}, **TRL, **BF16, training__trainer="grpo", training__max_response_length=256)
    assert logits(run, backward=True)[0].size.expected == 16 * 2 * 256 * 32000
    assert hole(run) == 2 * 2 * 256 * 32000


def test_a_loss_without_logits_leaves_no_hole(make_run):
    assert hole(make_run({"trl": "1.16.0"}, **TRL, **BF16, training__trainer="dpo")) == 0


def test_scoring_holds_the_quotient_beside_the_logits(make_run):
    grpo = {**TRL, "training__trainer": "grpo"}
    (half,) = logits(make_run({"trl": "0.29.0"}, trains=False, **grpo), backward=False)
    (single,) = logits(make_run({"trl": "0.29.0"}, trains=False, **grpo, **BF16), backward=False)
    assert (half.size.expected, single.size.expected) == (4 * 2048 * 32000, 8 * 2048 * 32000)


def test_log_probabilities_of_a_loss_nobody_read_are_as_wide_as_its_logits(make_run):
    unread = {**TRL, "training__trainer": "ppo"}
    assert logits(make_run(**unread), backward=True)[0].size.expected == 12 * 2048 * 32000
    assert logits(make_run(**unread, **BF16), backward=True)[0].size.expected == 16 * 2048 * 32000


@pytest.mark.parametrize(
    ("trainer", "release", "batch", "share", "each"),
    [  # benchmarks/online_logits.py, bytes per logit of 16-bit and of float32 logits
        ("online_dpo", "0.24.0", 4, 1, (6, 12)),
        ("online_dpo", "1.16.0", 4, 0.5, (4, 8)),
        ("online_dpo", "0.11.0", 4, 0.25, (3, 7)),
        ("xpo", "0.14.0", 4, 1, (4, 8)),
        ("xpo", "0.14.0", 4, 0.25, (1.75, 4)),
        ("xpo", "0.15.0", 4, 1, (3.25, 10)),
        ("xpo", "1.13.0", 4, 0.5, (2.125, 7)),
        ("xpo", "0.24.0", 1, 0.5, (2.5, 7)),
        ("nash_md", "0.12.2", 4, 0.5, (4, 8)),
        ("nash_md", "0.24.0", 4, 1, (4.5, 16)),
        ("nash_md", "0.24.0", 1, 0.25, (3, 10)),
    ],
)
def test_online_trainers_take_what_was_measured(make_run, trainer, release, batch, share, each):
    facts = {
        **TRL, "training__trainer": trainer, "training__micro_batch_size": batch,
        "training__sequence_length": 1024, "training__max_response_length": int(1024 * share),
    }  # fmt: skip
    found = [trl_logits(make_run({"trl": release}, **facts, **more)).expected for more in ({}, BF16)]
    assert tuple(found) == pytest.approx(each, abs=0.001)


def test_a_reference_scores_one_completion_of_xpo_after_the_other(make_run):
    def score(trainer):
        facts = {**TRL, "training__trainer": trainer, "training__micro_batch_size": 4}
        return logits(make_run({"trl": "0.14.0"}, trains=False, **facts), backward=False)[0].size.expected

    assert score("xpo") * 2 == score("online_dpo") == 4 * 8 * 1024 * 32000


def test_outputs_that_a_loop_keeps_are_float32_where_accelerate_casts_them(make_run):
    loop = {"training__framework": "accelerate", "run__outputs_kept": True, "training__param_dtype": "bfloat16"}
    plain, cast = (
        logits(make_run({"transformers": "5.0.0"}, **loop, training__mixed_precision=mixed), backward=True)[0]
        for mixed in ("no", "bf16")
    )
    assert (plain.size.expected, cast.size.expected) == (14 * 2048 * 32000, 16 * 2048 * 32000)


@pytest.mark.parametrize("liger", [False, True])
@pytest.mark.parametrize("trainer", ["sft", "dpo", "kto", "grpo", "rloo"])
def test_heads_of_newer_releases_work_on_tiles(make_run, trainer, liger):
    """Counted with benchmarks/tiled_logits.py on a CPU, to 0.3 %; the shapes are this run's."""
    facts = {
        **TRL,
        "training__trainer": trainer,
        "training__use_liger_kernel": liger,
        "training__loss_implementation": "fused_linear",
    }
    run = make_run({"trl": "1.16.0"}, **facts, training__micro_batch_size=8)
    tokens = run.tokens * sequences(run)
    hidden, vocab = run.model.hidden, run.model.vocab
    (forward,), (backward,) = (logits(run, backward=later) for later in (False, True))
    tile = 2 * 4096 * 32768
    assert tokens > 4096
    assert forward.size.expected == tile + 2 * tokens * hidden
    assert backward.size.expected == tile + (2 + 4 + 2) * tokens * hidden + (4 + 2) * vocab * hidden
    frozen = make_run({"trl": "1.16.0"}, **facts, training__micro_batch_size=8, training__peft="lora")
    assert logits(frozen, backward=True)[0].size.expected == tile + (2 + 4 + 2) * tokens * hidden
    older = make_run({"trl": "1.14.2"}, **facts, training__micro_batch_size=8)
    assert logits(older, backward=True)[0].name == "logits, fused loss"  # Liger's


WIDE = {"model__vocab_size": 256_000, "training__micro_batch_size": 8}
LIGER_KTO = {
    "training__framework": "trl",
    "training__trainer": "kto",
    "training__use_liger_kernel": True,
    "training__loss_implementation": "fused_linear",
    "training__gradient_checkpointing": True,
}


@pytest.mark.parametrize(
    ("release", "batch", "each", "beside"),
    [
        ("0.17.0", 4, 6, False),
        ("1.7.0", 1, 8, False),
        ("1.8.0", 4, 6, True),
        ("1.9.0", 4, 2.5, True),
        ("1.13.0", 1, 4, True),
    ],
)
def test_kto_makes_whole_logits_for_its_divergence_under_liger(make_run, release, batch, each, beside):
    run = make_run({"trl": release}, **LIGER_KTO, **BF16, training__micro_batch_size=batch)
    assert fused_divergence(run) == (each, beside)
    (part,) = divergence_logits(run)
    assert part.size.expected == int(each * run.tokens * run.model.vocab)


def test_the_logits_of_the_divergence_are_an_instant_of_forward(make_run):
    def need(release, **more):
        run = make_run({"trl": release}, **(LIGER_KTO | BF16 | WIDE | more))
        (forward,) = (phase for phase in training_phases(run) if phase.name == "forward")
        return {part.name: part.size.expected for part in forward.components}

    before, beside = need("1.7.0"), need("1.8.0")
    assert before["logits of the divergence"] == beside["logits of the divergence"] > 0
    assert "checkpointed activations" not in before
    assert beside["checkpointed activations"] > 0
    for none in (
        need("1.14.0"),
        need("1.8.0", training__loss_type="apo_zero_unpaired"),
        need("1.8.0", training__trainer="dpo"),
    ):
        assert "logits of the divergence" not in none
