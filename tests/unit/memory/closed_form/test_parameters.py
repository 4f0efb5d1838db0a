import pytest

from compatcheck.memory.closed_form.optimizer_states import moment_bytes
from compatcheck.memory.closed_form.parameters import QUANTISED_BYTES, count_quantised, dequantised, parameters

SEVEN = 6738415616
BLOCKS = 32 * 202383360


def test_three_splits_and_two_does_not(make_run):
    assert parameters(make_run(training__zero_stage=3, hardware__world_size=8))[0].size.expected == 2 * SEVEN / 8
    assert parameters(make_run(training__zero_stage=2, hardware__world_size=8))[0].size.expected == 2 * SEVEN


def test_offloaded_parameters_take_nothing_between_uses(make_run):
    assert parameters(make_run(training__zero_stage=3, hardware__world_size=8, training__offload_param="cpu")) == ()


def test_four_bits_cover_the_blocks_only(make_run):
    run = make_run(model__quantization="nf4", training__peft="qlora", model__load_dtype="bfloat16")
    sizes = {part.name: part.size.expected for part in parameters(run)}
    assert sizes["nf4 parameters"] == 0.5625 * BLOCKS
    assert sizes["parameters"] == 2 * (SEVEN - BLOCKS)


def test_modules_trained_in_full_keep_their_frozen_original(make_run):
    changes = {"training__peft": "lora", "model__load_dtype": "bfloat16"}
    plain = sum(part.size.expected for part in parameters(make_run(**changes)))
    with_head = make_run(**changes, training__lora_modules_to_save=("lm_head",))
    assert sum(part.size.expected for part in parameters(with_head)) - plain == 2 * 32000 * 4096


def test_a_program_that_casts_what_it_trains_has_its_copies_in_that_dtype(make_run):
    changes = {
        "training__peft": "lora",
        "training__sharding": "ddp",
        "hardware__world_size": 8,
        "training__lora_modules_to_save": ("lm_head",),
        "model__load_dtype": "bfloat16",
    }
    run = make_run(**changes, program__trained_dtype="float32")
    copies = [part.size.expected for part in parameters(run) if part.name == "trained copies of modules"]
    assert copies == [4 * 32000 * 4096]
    assert moment_bytes(run) == 2 * 4 * (run.adapters + 32000 * 4096)
    sharded = make_run(
        **{**changes, "training__sharding": "zero"}, training__zero_stage=2, program__trained_dtype="float32"
    )
    assert sharded.copy_bytes == 2


def test_bitsandbytes_unpacks_one_weight_and_gptq_keeps_a_block_of_them(make_run):
    one = dequantised(make_run(model__quantization="nf4"), backward=True)[0].size.expected
    assert one == 2 * 4096 * 3 * 4096
    several = dequantised(make_run(model__quantization="gptq"), backward=True)[0].size.expected
    assert several == pytest.approx(5 * 4096 * 3 * 4096 + 2 * 202383360)
    assert dequantised(make_run(), backward=True) == ()


@pytest.mark.parametrize(
    ("kind", "bits", "block", "scale"), [("nvfp4", 4, 16, 1), ("mxfp8", 8, 32, 1), ("mxfp4", 4, 32, 1)]
)
def test_block_formats_take_their_bits_and_a_scale_for_each_block(kind: str, bits: int, block: int, scale: int) -> None:
    assert QUANTISED_BYTES[kind] == bits / 8 + scale / block


def test_mxfp4_holds_experts_alone():
    assert count_quantised("mxfp4", 10.0, 90.0) == 90.0
    assert count_quantised("nf4", 10.0, 90.0) == 100.0
    assert count_quantised(None, 10.0, 90.0) == 0.0


@pytest.mark.parametrize(
    ("stated", "low", "expected"), [(True, 0.51587, 0.51587), (False, 0.5625, 0.5625), (None, 0.51587, 0.5625)]
)
def test_constants_of_4bit_weights_may_be_quantised_too(make_run, stated, low, expected):
    run = make_run(
        model__quantization="nf4",
        training__peft="lora",
        **({} if stated is None else {"model__double_quantization": stated}),
    )
    size = parameters(run)[0].size
    assert (size.low / run.model.in_blocks, size.expected / run.model.in_blocks) == pytest.approx(
        (low, expected), rel=1e-4
    )
