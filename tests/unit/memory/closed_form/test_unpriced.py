"""Features without a formula are named and widen the range, and change nothing that is expected."""

import pytest

from compatcheck.memory.closed_form.estimate import estimate_run
from compatcheck.memory.closed_form.unpriced import count_expert_adapters, features
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
