import pytest

from compatcheck.memory.closed_form.live_parameters import autocast_weights, live_parameters
from compatcheck.memory.closed_form.parameters import parameters

SEVEN = 6738415616
BLOCK = 202383360
OUTSIDE = 2 * 32000 * 4096 + 4096
FSDP = {
    "training__sharding": "fsdp",
    "hardware__world_size": 8,
    "training__param_dtype": "float32",
    "training__mixed_precision": "bf16",
}


def test_fsdp_gathers_two_blocks_and_the_root(make_run):
    (live,) = live_parameters(make_run(**FSDP))
    assert live.size.expected == pytest.approx(2 * (2 * BLOCK + OUTSIDE))
    (in_loss,) = live_parameters(make_run(**FSDP), blocks=False)
    assert in_loss.size.expected == pytest.approx(2 * OUTSIDE)


@pytest.mark.parametrize(
    ("packages", "stated", "ahead"),
    [
        ({"torch": "2.0.1"}, {}, True),
        ({"torch": "2.1.0"}, {}, False),
        ({"torch": "2.0.1", "accelerate": "0.26.0"}, {}, False),
        ({"torch": "2.0.1"}, {"training__fsdp_limit_all_gathers": True}, False),
        ({"torch": "2.5.1"}, {"training__fsdp_limit_all_gathers": False}, True),
        ({"torch": "2.0.1"}, {"training__fsdp_version": 2}, False),
    ],
)
def test_without_its_rate_limiter_fsdp_may_gather_all_blocks(make_run, packages, stated, ahead):
    (live,) = live_parameters(make_run(packages, **{**FSDP, "training__fsdp_version": 1, **stated}))
    assert (live.size.high == 2 * (32 * BLOCK + OUTSIDE)) is ahead
    assert live.size.expected == pytest.approx(2 * (2 * BLOCK + OUTSIDE))


def test_shard_grad_op_gathers_everything(make_run):
    run = make_run(**FSDP, training__fsdp_sharding_strategy="shard_grad_op")
    (live,) = live_parameters(run)
    assert live.size.expected == 2 * SEVEN
    (stays,) = parameters(run)
    assert stays.size.expected == pytest.approx(4 * SEVEN / 8), "shards, beside what is gathered"
    (at_the_first_block,) = live_parameters(run, given_back=True)
    assert at_the_first_block.size.expected == pytest.approx(2 * (2 * BLOCK + OUTSIDE))


def test_zero_three_keeps_up_to_its_limit_of_live_parameters(make_run):
    three = {"training__zero_stage": 3, "hardware__world_size": 8}
    (live,) = live_parameters(make_run(**three))
    assert live.size.expected == 2 * 10**9
    (low,) = live_parameters(make_run(**three, training__max_live_parameters=0))
    assert low.size.expected == 2 * 2 * BLOCK


def test_nothing_is_gathered_where_nothing_is_split(make_run):
    assert live_parameters(make_run()) == ()
    assert live_parameters(make_run(training__zero_stage=2, hardware__world_size=8)) == ()


def test_autocast_copies_every_matrix_once(make_run):
    run = make_run(training__param_dtype="float32", training__mixed_precision="bf16")
    assert autocast_weights(run)[0].size.expected == 2 * (32 * BLOCK + 32000 * 4096)
    assert autocast_weights(make_run()) == ()


def test_the_head_is_there_in_16_bits_until_the_loss_is_differentiated(make_run):
    run = make_run(
        training__param_dtype="float32", model__load_dtype="float32", training__mixed_precision="bf16", training__peft="lora",
        training__gradient_checkpointing=True,
    )  # fmt: skip
    assert autocast_weights(run, "loss")[0].size.expected == 2 * 32000 * 4096
    assert autocast_weights(run, "blocks")[0].size.expected == 2 * BLOCK


def test_fsdp2_has_its_last_block_through_the_loss(make_run):
    def gathered(version):
        run = make_run(
            training__sharding="fsdp", training__fsdp_version=version, training__param_dtype="float32", hardware__world_size=8,
            training__mixed_precision="bf16",
        )  # fmt: skip
        return live_parameters(run, blocks=False)[0].size.expected

    assert gathered(2) - gathered(1) == 2 * BLOCK
