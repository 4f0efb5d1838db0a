import pytest

from compatcheck.memory.closed_form.parallel import held, in_flight

BLOCKS = 32 * 202383360


def test_tensor_ranks_split_every_matrix(make_run):
    own = held(make_run(training__tensor_parallel=4, hardware__world_size=4))
    assert own.blocks == BLOCKS / 4
    assert own.embedding == own.lm_head == 32000 * 4096 / 4


def test_a_stage_holds_its_blocks_and_one_end(make_run):
    own = held(make_run(training__pipeline_parallel=4, hardware__world_size=4))
    assert (own.layers, own.blocks) == (8, BLOCKS / 4)
    assert own.embedding + own.lm_head == 32000 * 4096


def test_blocks_that_do_not_divide_make_one_stage_larger(make_run):
    assert held(make_run(training__pipeline_parallel=5, hardware__world_size=5)).layers == 7


def test_experts_are_spread_over_their_own_ranks(make_run):
    changes = {
        "model__parameters": BLOCKS * 8,
        "model__parameters_in_blocks": BLOCKS * 7,
        "model__expert_parameters": BLOCKS * 6,
    }
    own = held(make_run(training__expert_parallel=8, hardware__world_size=8, **changes))
    assert own.experts == pytest.approx(BLOCKS * 6 / 8)
    assert own.blocks == BLOCKS


def test_as_many_micro_batches_are_in_flight_as_there_are_stages_at_most(make_run):
    four = {"training__pipeline_parallel": 4, "hardware__world_size": 4}
    assert in_flight(make_run(**four, training__gradient_accumulation_steps=16)) == 4
    assert in_flight(make_run(**four, training__gradient_accumulation_steps=2)) == 2
    assert in_flight(make_run()) == 1


def test_a_tied_head_is_a_weight_of_products_too(make_run):
    own = held(make_run(model__tie_word_embeddings=True))
    assert own.lm_head == 0
    assert own.linear == BLOCKS + 32000 * 4096
