import pytest

from compatcheck.memory.closed_form.adapters import kept_per_token


@pytest.mark.parametrize(
    ("changes", "kept"),
    [  # derived in the docstring of the probe peft_lora_forward and measured there
        ({"packages": {"peft": "0.11.1"}}, 2 * (3 * 4096 + 11008) + 2 * 7 * 8),
        ({"packages": {"peft": "0.12.0"}}, 4 * (6 * 4096 + 11008) + 4 * 7 * 8),
        (
            {"packages": {"peft": "0.12.0"}, "training__mixed_precision": "bf16"},
            2 * (6 * 4096 + 11008) + 2 * 7 * 8,
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


def test_a_quantised_base_under_autocast_shares_its_inputs_with_the_adapters(make_run):
    shared = make_run(
        training__peft="lora", training__lora_rank=8, training__lora_target_modules=("q_proj", "v_proj"),
        model__quantization="nf4", model__load_dtype="bfloat16", training__mixed_precision="bf16",
        program__upcasts_unquantised=False,
    )  # fmt: skip
    assert kept_per_token(shared) == 2 * 4096 + 2 * 2 * 8


def test_full_fine_tuning_has_no_adapters(make_run):
    run = make_run()
    assert run.adapters == 0
    assert kept_per_token(run) == 0


@pytest.mark.parametrize(
    ("release", "dropout", "facts", "each"),
    [  # bytes that one output of an adapted layer of DoRA keeps more than LoRA's, counted on a CPU: see _kept_of_low_rank
        ("0.21.2", 0.0, {}, 4 + 2),
        ("0.21.2", 0.1, {}, 4 + 4),
        ("0.13.2", 0.0, {}, 4 + 4),
        ("0.21.2", 0.1, {"training__mixed_precision": "bf16"}, 2 + 2),
        ("0.21.2", 0.0, {"training__autocast_adapter_dtype": False}, 2 + 2),
    ],
)
def test_the_magnitude_of_dora_keeps_both_results(make_run, release, dropout, facts, each):
    def kept(method):
        return kept_per_token(
            make_run(
                {"peft": release}, training__peft=method, training__lora_rank=8, training__lora_dropout=dropout,
                training__lora_target_modules=("q_proj", "v_proj"), model__load_dtype="bfloat16", **facts,
            )
        )  # fmt: skip

    assert kept("dora") - kept("lora") == each * 2 * 4096


def test_vera_keeps_the_products_with_its_frozen_factors(make_run):
    run = make_run(
        {"peft": "0.21.2"}, training__peft="vera", training__lora_rank=16, model__load_dtype="bfloat16",
        training__lora_target_modules=("q_proj", "v_proj"),
    )  # fmt: skip
    # counted on a CPU: 1,664 B a token where queries are 256 wide and values 128
    assert kept_per_token(run) == 4 * (2 * 16 + 2 * 4096)


def test_the_tokens_of_a_prompt_stand_before_those_of_the_data(make_run):
    told = make_run(training__peft="prompt_tuning", model__trainable_parameters=200 * 4096)
    assert told.sequence == 1024 + 200
    assert make_run(training__peft="prompt_tuning").sequence == 1024
