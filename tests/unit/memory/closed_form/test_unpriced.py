"""Features without a formula are named and widen the range, and change nothing that is expected."""

import pytest

from compatcheck.memory.closed_form.estimate import estimate_run
from compatcheck.memory.closed_form.unpriced import FEATURES
from compatcheck.rules.locate import open_rules


def peak(run):
    """Return the size of backward, which has all kinds of components, and what is named."""
    found = estimate_run(run)
    size = next(phase.needed for phase in found.phases if phase.name == "backward")
    return size, [left.name for left in found.unmodelled]


@pytest.mark.parametrize("word", sorted(FEATURES))
def test_a_feature_is_named_and_widens_the_range(make_run, word):
    plain, _ = peak(make_run(training__micro_batch_size=32))
    wide, names = peak(make_run(training__micro_batch_size=32, training__unpriced=(word,)))
    feature = FEATURES[word]
    assert feature.name in names
    assert wide.expected == plain.expected
    assert (wide.high > plain.high) == (feature.direction != "less")
    assert (wide.low < plain.low) == (feature.direction != "more")


def test_a_word_that_nobody_knows_widens_like_an_unknown_block(make_run):
    wide, names = peak(make_run(training__micro_batch_size=32, training__unpriced=("something_new",)))
    assert "something new" in names
    assert wide.high > peak(make_run(training__micro_batch_size=32))[0].high


def test_each_setting_of_the_table_turns_on_a_feature_that_is_known():
    table = open_rules().section("tables/unpriced-settings")
    assert {feature for keys in table.values() for feature in keys.values()} <= FEATURES.keys()
