import pytest

from compatcheck.memory.closed_form.activations import activations, components, setting


def test_a_checkpointed_block_keeps_its_input_only(make_run):
    found = activations(make_run(training__gradient_checkpointing=True))
    assert found.kept.expected == 2 * 4096 * 2048 * 32
    assert found.block.expected > 0


def test_checkpointing_that_the_layers_ignore_keeps_all_they_save(make_run):
    ignored = make_run(training__gradient_checkpointing=True, program__ignores_checkpointing=True)
    assert activations(ignored).kept == activations(make_run(training__gradient_checkpointing=False)).kept


def test_offloaded_checkpoints_leave_two_on_the_device(make_run):
    run = make_run(training__gradient_checkpointing=True, training__activation_offloading=True)
    assert activations(run).kept.expected == 2 * 2 * 4096 * 2048


def test_where_one_block_of_so_many_is_checkpointed_the_others_keep_all_they_save(make_run):
    blocks = make_run().model.layers
    every, none = activations(make_run(training__gradient_checkpointing=True)), activations(make_run())
    third = activations(make_run(training__gradient_checkpointing=True, training__checkpoint_every=3))
    of_each, in_full = every.kept.expected / blocks, none.kept.expected / blocks
    checkpointed = blocks // 3
    assert third.kept.expected == pytest.approx(checkpointed * of_each + (blocks - checkpointed) * in_full)
    assert third.block == every.block


@pytest.mark.parametrize(("trainer", "each"), [("sft", 1), ("dpo", 2), ("online_dpo", 2), ("xpo", 2), ("nash_md", 1)])
def test_trainers_of_pairs_keep_what_two_sequences_save(make_run, trainer, each):
    run = make_run(training__gradient_checkpointing=True, training__trainer=trainer)
    assert activations(run).kept.expected == each * 2 * 4096 * 2048 * 32


def test_xpo_differentiates_one_pass_after_the_other(make_run):
    pair, passes = (
        activations(make_run(training__gradient_checkpointing=True, training__trainer=trainer))
        for trainer in ("online_dpo", "xpo")
    )
    assert passes.block.expected * 2 == pair.block.expected
    assert passes.transient.expected * 2 == pair.transient.expected


def test_without_checkpointing_every_block_counts(make_run):
    found = activations(make_run())
    assert found.kept.expected == pytest.approx(45.5 * 4096 * 2048 * 32, rel=0.001)
    assert found.block.expected == 0


def test_context_ranks_share_tokens_and_pipeline_stages_share_blocks(make_run):
    whole = activations(make_run()).kept.expected
    assert activations(make_run(training__context_parallel=4, hardware__world_size=4)).kept.expected == whole / 4
    stages = {"training__pipeline_parallel": 4, "hardware__world_size": 4}
    one = make_run(**stages, training__gradient_accumulation_steps=1)
    assert activations(one).kept.expected == whole / 4


def test_a_pipeline_keeps_as_many_micro_batches_as_stages_but_the_last_stage_one(make_run):
    run = make_run(training__pipeline_parallel=4, hardware__world_size=4)
    found, last = activations(run), activations(run, last_stage=True)
    assert found.kept.expected == 4 * last.kept.expected
    assert "4 micro batches in flight" in found.words
    assert "in flight" not in last.words


@pytest.mark.parametrize(
    ("attention", "transformers", "mask", "repeated"),
    [
        ("eager", "5.0.0", "none", True),
        ("sdpa", "4.53.3", "none", True),
        ("sdpa", "4.54.0", "none", False),
        ("sdpa", "4.54.0", "padding", True),
        ("flash_attention_2", "4.40.0", "padding", False),
    ],
)
def test_keys_are_repeated_as_the_release_does_it(make_run, attention, transformers, mask, repeated):
    run = make_run({"transformers": transformers}, model__attn_implementation=attention, run__attention_mask=mask)
    assert setting(run).repeated is repeated


def test_a_scoring_role_keeps_nothing(make_run):
    run = make_run(trains=False)
    found = activations(run)
    assert found.kept.high == 0
    assert components(run, found, block="forward")[0].name == "one block in forward"


def test_torchtitan_keeps_the_inputs_of_split_matrices_as_they_were_gathered(make_run):
    stated = {
        "training__sharding": "fsdp",
        "training__tensor_parallel": 4,
        "training__sequence_parallel": True,
        "hardware__world_size": 8,
    }
    gathered = activations(make_run(training__framework="torchtitan", **stated))
    split = activations(make_run(training__framework="custom", **stated))
    run = make_run(training__framework="torchtitan", **stated)
    inputs = 2 * 2 * run.model.hidden  # of attention and MLP, in 16 bits
    assert gathered.kept.expected - split.kept.expected == int(inputs * 3 / 4) * run.tokens * run.model.layers
    assert gathered.transient.expected > split.transient.expected


def test_half_of_the_blocks_have_the_positions_of_an_encoder(make_run):
    """Whisper's encoder has 1,500 frames of a sequence, however many tokens its decoder is given."""
    run = make_run(training__sequence_length=500, training__gradient_checkpointing=True)
    heard = run._replace(model=run.model._replace(encoder_positions=1500))
    alone, both = activations(run), activations(heard)
    assert both.kept.expected == pytest.approx(2 * alone.kept.expected, rel=0.01)
    assert both.block.expected == pytest.approx(3 * alone.block.expected, rel=0.01)
    assert both.outside == alone.outside
