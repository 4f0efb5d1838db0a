import json

import pytest

from compatcheck.lab.probes.catalog import label_smoothing
from compatcheck.memory.closed_form.logits import hole, is_loss_read, kept_outputs, logits, per_logit, sequences
from compatcheck.memory.closed_form.parameters import parameters
from tests import ROOT


@pytest.mark.parametrize(
    ("transformers", "model_type", "batch", "forward", "backward"),
    [
        ("5.23.0", "llama", 2, 10, 12),
        ("4.49.0", "gpt2", 2, 10, 12),
        ("4.48.3", "llama", 2, 14, 12),
        ("4.48.2", "gpt2", 2, 6, 6),
        ("4.45.2", "llama", 2, 12, 12),
        ("4.45.2", "llama", 1, 8, 12),
        ("4.46.1", "llama", 1, 10, 12),
        ("5.0.0", "gemma2", 2, 12, 14),
        ("4.45.2", "llava_onevision", 2, 12, 12),
        ("4.51.3", "llava_onevision", 2, 6, 6),
        ("4.52.1", "llava_onevision", 2, 10, 12),
        ("5.24.0", "qwen2_audio", 2, 6, 6),
    ],
)
def test_bytes_per_logit_follow_the_release(make_run, transformers, model_type, batch, forward, backward):
    run = make_run({"transformers": transformers}, model__model_type=model_type, training__micro_batch_size=batch)
    assert per_logit(run) == (forward, backward)


def test_a_loss_in_sixteen_bits_is_taken_in_float32_under_autocast(make_run):
    changes = {"model__model_type": "qwen", "training__mixed_precision": "bf16", "model__load_dtype": "bfloat16"}
    assert per_logit(make_run(**changes)).backward == 12
    zero = {"training__zero_stage": 2, "hardware__world_size": 1}
    assert per_logit(make_run(**changes, **zero)).backward == 6


def test_an_unknown_release_widens_the_range(make_run):
    (known,) = logits(make_run({"transformers": "5.0.0"}), backward=True)
    (unknown,) = logits(make_run(), backward=True)
    assert known.size.low == known.size.high == unknown.size.expected == 12 * 2048 * 32000
    assert unknown.size.low < unknown.size.expected < unknown.size.high


def test_dpo_runs_two_sequences_and_its_own_loss(make_run):
    run = make_run({"trl": "0.29.0"}, training__trainer="dpo")
    assert sequences(run) == 2
    assert logits(run, backward=True)[0].size.expected == 11 * 2 * 2048 * 32000


def test_a_fused_loss_holds_one_chunk_of_logits_and_two_gradients(make_run):
    run = make_run(training__use_liger_kernel=True)
    # eight chunks (32000 / 4096, rounded up) of 256 tokens
    assert logits(run, backward=True)[0].size.expected == 2 * (256 * 32000 + 2048 * 4096 + 32000 * 4096)
    assert hole(run) == 0


def test_torchtunes_chunks_keep_sixteen_bit_logits_of_all(make_run):
    run = make_run(training__loss_implementation="chunked", training__framework="torchtune", training__compile=True)
    assert logits(run, backward=True)[0].size.expected == pytest.approx(2.25 * 2048 * 32000)


@pytest.mark.parametrize(("backward", "each"), [(False, 4.75), (True, 5.0)])
def test_where_torchtunes_loss_has_the_head_sixteen_bit_logits_are_of_one_chunk(make_run, backward, each):
    facts = {"training__loss_implementation": "chunked", "training__framework": "torchtune"}
    run = make_run(**facts, training__loss_type="LinearCrossEntropyLoss")
    assert logits(run, backward=backward)[0].size.expected == pytest.approx(each * 2048 * 32000)
    assert logits(make_run(**facts), backward=backward)[0].size.expected == pytest.approx(7 * 2048 * 32000)


def test_tensor_parallel_ranks_split_the_vocabulary(make_run):
    run = make_run({"transformers": "5.0.0"}, training__tensor_parallel=4, hardware__world_size=4)
    assert logits(run, backward=True)[0].size.expected == 12 * 2048 * 8000


def test_the_hole_is_one_copy_of_the_sixteen_bit_logits(make_run):
    assert hole(make_run()) == 2 * 2048 * 32000
    assert hole(make_run(training__param_dtype="float32")) == 0


@pytest.mark.parametrize(("loss", "expected"), [("sigmoid", (20, 12)), ("orpo", (12, 12))])
def test_llamafactory_has_a_dpo_of_its_own(make_run, loss, expected):
    run = make_run(training__trainer="dpo", training__framework="llamafactory", training__loss_type=loss)
    found = [logits(run, backward=backward)[0].size.expected for backward in (False, True)]
    assert found == [each * 2 * 2048 * 32000 for each in expected]


def test_the_loss_of_megatron_works_in_one_float32_copy_of_its_share(make_run):
    run = make_run(
        training__sharding="megatron", program__code="megatron", training__tensor_parallel=2, hardware__world_size=2
    )
    whole = 2 * 1024 * 32000 / 2
    assert [logits(run, backward=backward)[0].size.expected for backward in (False, True)] == [6 * whole] * 2


def test_logits_that_a_loop_keeps_are_there_while_blocks_are_differentiated(make_run):
    kept = kept_outputs(make_run(run__outputs_kept=True))
    assert kept[0].size.expected == 2 * 2 * 1024 * 32000
    assert kept_outputs(make_run()) == ()


def test_a_head_without_a_vocabulary_leaves_no_hole(make_run):
    assert hole(make_run()) > 0
    assert hole(make_run(program__makes_logits=False)) == 0


def test_torchtitan_splits_its_loss_over_the_ranks_that_split_the_vocabulary(make_run):
    stated = {"training__framework": "torchtitan", "training__sharding": "fsdp", "training__mixed_precision": "bf16"}
    split = make_run(**stated, training__tensor_parallel=2, hardware__world_size=4)
    share = 2 * 1024 * 32000 / 2
    assert [logits(split, backward=backward)[0].size.expected for backward in (False, True)] == [14 * share, 16 * share]
    whole = make_run(**stated, hardware__world_size=4)
    assert [logits(whole, backward=backward)[0].size.expected for backward in (False, True)] == [20 * share, 24 * share]


def test_the_loss_of_nanotron_takes_a_float32_copy_and_the_same_less_the_largest(make_run):
    run = make_run(training__sharding="megatron", program__code="nanotron", hardware__world_size=1)
    assert [logits(run, backward=backward)[0].size.expected / (2 * 1024 * 32000) for backward in (False, True)] == [
        10,
        6,
    ]


@pytest.mark.parametrize(("tensor", "forward", "backward"), [(1, 8, 12), (4, 12, 12)])
@pytest.mark.parametrize("trainer", ["grpo", "sft"])
def test_nemo_rl_takes_log_probabilities_of_float32_logits_for_every_trainer(
    make_run, trainer, tensor, forward, backward
):
    facts = {"training__tensor_parallel": tensor, "hardware__world_size": tensor, "training__trainer": trainer}
    run = make_run(program__code="nemo-rl", program__casts_logits=True, **facts)
    count = 2048 * 32000 // tensor
    assert logits(run, backward=False)[0].size.expected == forward * count
    assert logits(run, backward=True)[0].size == (backward * count, backward * count, (backward + 4) * count)
    chunked = make_run(program__code="nemo-rl", training__loss_implementation="chunked", **facts)
    assert logits(chunked, backward=True)[0].size.expected < count * 2


@pytest.mark.parametrize(
    ("zoo", "free", "chunks"),
    [
        ("2025.11.1", 13, 4),
        ("2025.11.1", 60, 1),
        ("2026.6.7", 5, 8),
        ("2026.7.1", 5, 8),
        ("2026.9.3", 13, 12),
        ("2026.9.4", 60, 20),
        ("2026.10.9", 5, 28),
    ],
)
def test_unsloths_loss_takes_chunks_by_what_is_free(make_run, zoo, free, chunks):
    """The counts are what get_chunk_size() of each release returns."""
    facts = {
        "program__code": "trl", "program__sizes_loss_by_free_memory": True, "training__loss_implementation": "fused_linear",
        "training__trainer": "sft", "training__peft": "lora", "training__lora_rank": 8, "model__vocab_size": 262144,
        "training__micro_batch_size": 16,
    }  # fmt: skip
    held = sum(part.size.expected for part in parameters(make_run(**facts)))
    run = make_run({"unsloth-zoo": zoo}, hardware__memory_bytes=held + free * 2**30, **facts)
    (part,) = logits(run, backward=True)
    chunk, states = -(-16384 // chunks) * 262144, 16384 * 4096
    assert part.size == (2 * (chunk + states), 2 * (chunk + states), 14 * chunk + 2 * states)


def test_prime_rls_head_works_on_pieces_of_tokens_and_words(make_run):
    run = make_run(program__code="prime-rl", training__loss_implementation="fused_linear", model__vocab_size=32000)
    (part,) = logits(run, backward=True)
    gradients = 2 * (2048 * run.model.hidden + 32000 * run.model.hidden)
    assert part.size.low == gradients
    assert part.size.expected == part.size.high == int(22.7 * 2048 * 8192 + gradients)
    assert is_loss_read(run)


def test_prime_rls_loss_over_whole_logits_is_what_its_published_peaks_leave(make_run):
    run = make_run(program__code="prime-rl", training__trainer="grpo", training__loss_implementation="cross_entropy")
    assert logits(run, backward=True)[0].size == tuple(each * 2048 * 32000 for each in (12, 16, 20))
    assert is_loss_read(run)


def test_a_loss_of_a_policy_that_nobody_read_is_not_called_read(make_run):
    assert not is_loss_read(make_run(program__code="nobodys", training__trainer="grpo"))


def _smoothed():
    path = ROOT / "fixtures" / "measurements" / "label_smoothing" / "releases.jsonl"
    first, *rest = map(json.loads, path.read_text().splitlines())
    for row in rest:
        parameters, versions = ({**first["common"][name], **row.get(name, {})} for name in ("parameters", "versions"))
        name = f"{versions['transformers']}-{parameters['dtype']}-{parameters['batch']}"
        yield pytest.param(parameters, versions, row["results"], id=name)


@pytest.mark.parametrize(("parameters", "versions", "results"), list(_smoothed()))
def test_the_label_smoother_takes_what_was_measured(make_run, parameters, versions, results):
    facts = label_smoothing.facts(parameters)
    changes = {name.replace(".", "__"): value for name, value in facts.items()}
    run = make_run(versions, **changes, training__param_dtype=facts["model.load_dtype"])
    # what a CPU alone makes of 16-bit logits: a float32 copy in the sum, and one to add up in
    only_here = 4 if run.precision.logits < 4 else 0
    found = [each + only_here for each in per_logit(run)]
    assert found == pytest.approx([results["forward_bytes_per_logit"], results["backward_bytes_per_logit"]], abs=0.01)


def test_smoothed_logits_of_one_size_leave_no_hole_and_capped_ones_keep_their_tanh(make_run):
    smoothed = {"training__loss_implementation": "smoothed"}
    assert hole(make_run(**smoothed)) == 0
    assert hole(make_run(**smoothed, program__casts_logits=True)) == 2 * 2 * 1024 * 32000
    assert per_logit(make_run(**smoothed, model__model_type="gemma2")) == (10, 10)
    assert kept_outputs(make_run(**smoothed, run__outputs_kept=True))[0].size.expected == 2 * 2 * 1024 * 32000
