import pytest

from compatcheck.memory.closed_form.adapters import count_adapters, kept_per_token, target_shapes


def test_lora_parameters_are_rank_times_inputs_plus_outputs(make_run):
    model = make_run().model
    assert count_adapters(model, 8, ("q_proj", "v_proj")) == 32 * 8 * 2 * (4096 + 4096)
    assert count_adapters(model, 8, ("down_proj",)) == 32 * 8 * (11008 + 4096)


def test_qwens_own_names_cover_both_output_projections(make_run):
    # rank 64 of Qwen-7B: c_attn, both projections called c_proj, and the two halves of its MLP
    model = make_run(model__vocab_size=151936).model
    assert count_adapters(model, 64, ("c_attn", "c_proj", "w1", "w2")) == 143_130_624


def test_all_linear_is_seven_layers(make_run):
    assert len(target_shapes(make_run().model, ("all-linear",))) == 7


def test_dora_adds_a_magnitude_per_output(make_run):
    model = make_run().model
    assert count_adapters(model, 8, ("q_proj",), decomposed=True) - count_adapters(model, 8, ("q_proj",)) == 32 * 4096


@pytest.mark.parametrize(
    ("changes", "kept"),
    [  # derived in the docstring of the probe peft_lora_forward and measured there
        ({"packages": {"peft": "0.11.1"}}, 2 * (3 * 4096 + 11008) + 2 * 7 * 8),
        ({"packages": {"peft": "0.12.0"}}, 4 * (6 * 4096 + 11008) + 4 * 7 * 8),
        (
            {"packages": {"peft": "0.12.0"}, "training__mixed_precision": "bf16"},
            6 * (6 * 4096 + 11008) + 6 * 7 * 8,
        ),
    ],
)
def test_adapters_keep_what_the_probe_measured(make_run, changes, kept):
    run = make_run(
        training__peft="lora",
        training__lora_rank=8,
        training__lora_target_modules=("all-linear",),
        model__load_dtype="bfloat16",
        **changes,
    )
    assert kept_per_token(run) == kept


def test_full_fine_tuning_has_no_adapters(make_run):
    run = make_run()
    assert run.adapters == 0
    assert kept_per_token(run) == 0
