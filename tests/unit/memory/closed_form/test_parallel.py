import pytest

from compatcheck.memory.closed_form.parallel import held, in_flight, kept_share, name_share

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


def test_states_of_experts_are_split_over_the_ranks_that_have_the_same_ones(make_run):
    changes = {
        "model__parameters": BLOCKS * 8,
        "model__parameters_in_blocks": BLOCKS * 7,
        "model__expert_parameters": BLOCKS * 6,
        "training__expert_parallel": 8,
    }
    for world, copies in ((8, 1), (32, 4)):
        run = make_run(hardware__world_size=world, **changes)
        own = held(run)
        kept = kept_share(run, world, trained=True) * own.total
        assert kept == pytest.approx((own.total - own.experts) / world + own.experts / copies)
    adapted = make_run(hardware__world_size=8, training__peft="lora", **changes)
    assert kept_share(adapted, 8, trained=True) == 1 / 8


def test_megatron_splits_an_expert_as_it_splits_the_rest(make_run):
    changes = {
        "model__expert_parameters": BLOCKS // 2,
        "training__expert_parallel": 2,
        "training__tensor_parallel": 4,
        "training__sharding": "megatron",
        "hardware__world_size": 8,
    }
    assert held(make_run(**changes)).experts == pytest.approx(BLOCKS / 2 / 8)
    assert held(make_run(training__expert_tensor_parallel=1, **changes)).experts == pytest.approx(BLOCKS / 2 / 2)


def test_ranks_that_split_matrices_and_no_experts_share_the_state_of_experts(make_run):
    changes = {
        "training__sharding": "megatron",
        "model__expert_parameters": BLOCKS // 2,
        "training__expert_parallel": 8,
        "training__tensor_parallel": 4,
        "hardware__world_size": 16,
    }
    run = make_run(training__expert_tensor_parallel=1, **changes)
    own = held(run)
    assert kept_share(run, 4) * own.total == pytest.approx((own.total - own.experts) / 4 + own.experts / 2)
    assert name_share(run, 4) == " / 4 ranks, experts / 2"


def test_as_many_micro_batches_are_in_flight_as_there_are_stages_at_most(make_run):
    four = {"training__pipeline_parallel": 4, "hardware__world_size": 4}
    assert in_flight(make_run(**four, training__gradient_accumulation_steps=16)) == 4
    assert in_flight(make_run(**four, training__gradient_accumulation_steps=2)) == 2
    assert in_flight(make_run()) == 1


def test_a_tied_head_is_a_weight_of_products_too(make_run):
    own = held(make_run(model__tie_word_embeddings=True))
    assert own.lm_head == 0
    assert own.linear == BLOCKS + 32000 * 4096


def test_a_device_map_gives_each_device_of_a_process_the_same_bytes(make_run):
    whole, spread = held(make_run()), held(make_run(hardware__devices_per_rank=4))
    assert spread.layers == whole.layers / 4
    assert spread.total == pytest.approx(whole.total / 4)
    assert in_flight(make_run(hardware__devices_per_rank=4, training__gradient_accumulation_steps=8)) == 1
