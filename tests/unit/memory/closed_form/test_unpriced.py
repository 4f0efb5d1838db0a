"""Features without a formula are named and widen the range, and change nothing that is expected."""

import pytest

from compatcheck.memory.closed_form.estimate import estimate_run
from compatcheck.memory.closed_form.unpriced import bound_tower, count_expert_adapters, features
from compatcheck.rules.locate import open_rules


def peak(run):
    """Return the size of backward, which has all kinds of components, and what is named."""
    found = estimate_run(run)
    size = next(phase.needed for phase in found.phases if phase.name == "backward")
    return size, [left.name for left in found.unmodelled]


@pytest.mark.parametrize("word", sorted(features()))
def test_a_feature_is_named_and_widens_the_range(make_run, word):
    plain, _ = peak(make_run(training__micro_batch_size=32))
    wide, names = peak(make_run(training__micro_batch_size=32, training__unpriced=(word,)))
    feature = features()[word]
    assert feature.name in names
    assert wide.expected == plain.expected
    assert (wide.high > plain.high) == (feature.direction != "less")
    assert (wide.low < plain.low) == (feature.direction != "more")


def test_a_word_that_nobody_knows_widens_like_an_unknown_block(make_run):
    wide, names = peak(make_run(training__micro_batch_size=32, training__unpriced=("something_new",)))
    assert "something new" in names
    assert wide.high > peak(make_run(training__micro_batch_size=32))[0].high


SPARSE = {
    "model__model_type": "qwen3_moe",
    "model__num_experts": 8,
    "model__moe_intermediate_size": 768,
    "training__peft": "lora",
    "training__lora_rank": 8,
}


@pytest.mark.parametrize(
    ("targets", "model_type", "release", "named"),
    [
        (("all-linear",), "qwen3_moe", None, True),
        (("q_proj", "down_proj"), "qwen3_moe", "4.57.1", True),
        (("all-linear",), "qwen3_moe", "5.0.0", False),
        (("all-linear",), "gpt_oss", "4.57.1", False),
        (("q_proj", "v_proj"), "qwen3_moe", None, False),
    ],
)
def test_experts_that_may_have_adapters_of_their_own_widen_the_range(make_run, targets, model_type, release, named):
    facts = {**SPARSE, "model__model_type": model_type, "training__lora_target_modules": targets}
    run = make_run({} if release is None else {"transformers": release}, **facts)
    # 3 matrices of 32 blocks and 8 experts, each with rank x (inputs + outputs)
    assert count_expert_adapters(run) == (32 * 8 * 3 * 8 * (4096 + 768) if named else 0)
    assert ("adapters of experts" in peak(run)[1]) is named
    step = next(phase for phase in estimate_run(run).phases if phase.name == "step")
    sizes = [part.size.high for part in step.components if part.name == "adapters of experts"]
    assert bool(sizes) is named
    assert not named or sizes[0] == pytest.approx(16 * count_expert_adapters(run), rel=0.3)


def test_each_setting_of_the_table_turns_on_a_feature_that_is_known():
    table = open_rules().section("tables/unpriced-settings")
    assert {feature for keys in table.values() for feature in keys.values()} <= features().keys()


QUANTISED = {**SPARSE, "model__quantization": "nf4", "training__lora_target_modules": ("q_proj",)}
BOTH = {"transformers": "5.0.0", "bitsandbytes": "0.49.0"}


@pytest.mark.parametrize(
    ("changed", "releases", "open_"),
    [
        ({}, {}, True),
        ({}, {"transformers": "5.0.0"}, True),  # nf4 needs bitsandbytes, whether somebody lists it or not
        ({}, BOTH, False),  # a rule decides
        ({}, {"transformers": "4.57.1"}, False),
        ({"model__quantization": "gptq"}, {}, False),
        ({"program__quantises_experts": True}, {}, False),
        ({"program__runs_transformers": False}, {}, False),
    ],
)
def test_experts_that_bitsandbytes_may_pass_by_widen_the_range(make_run, changed, releases, open_):
    run = make_run(releases, **{**QUANTISED, **changed})
    size, names = peak(run)
    assert ("experts that are not quantised" in names) is open_
    beyond = size.high - peak(run._replace(experts_open=False))[0].high
    assert beyond == pytest.approx((2 - 0.5625) * run.model.expert if open_ else 0, rel=0.1)
    assert size.expected == peak(run._replace(experts_open=False))[0].expected


WITH_TOWER = {
    "model__parameters": 7_414_415_616,
    "model__parameters_in_blocks": 6_476_267_520,
    "training__micro_batch_size": 4,
}
TOWERED = {**WITH_TOWER, "model__vision_parameters": 676_000_000}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_tower_that_is_trained_widens_the_range_by_what_its_blocks_keep(make_run, checkpointing):
    run = make_run(**TOWERED, training__gradient_checkpointing=checkpointing)
    plain = make_run(**WITH_TOWER, training__gradient_checkpointing=checkpointing)
    size, names = peak(run)
    assert "activations of vision and audio towers" in names
    # 32 blocks of 1,280 values keep 17 each of a patch, or their input alone and one block's
    patches = 4 * run.tokens
    kept = 2 * 1280 * patches * (32 + 17 if checkpointing else 32 * 17)
    assert bound_tower(run) == pytest.approx(kept, rel=0.2)
    assert size.high - peak(plain)[0].high >= bound_tower(run)
    assert size.expected == pytest.approx(peak(plain)[0].expected, rel=0.001)


def test_a_frozen_tower_has_one_block_at_work(make_run):
    frozen = make_run(**TOWERED, model__trainable_parameters=6_738_415_616)
    adapted = make_run(
        **TOWERED, training__peft="lora", training__lora_target_modules=("q_proj",), program__adapts_towers=False
    )
    for run in (frozen, adapted):
        assert bound_tower(run) == pytest.approx(2 * 17 * 1280 * 4 * run.tokens, rel=0.1)
