"""Bytes per logit of losses that work in chunks, as benchmarks/chunked_logits.py prints them."""

import pytest

from compatcheck.memory.closed_form.logits import kept_outputs, logits
from compatcheck.memory.closed_form.policy_logits import per_policy_logit

TOKENS = {"training__micro_batch_size": 1, "training__sequence_length": 1024}
"""One chunk."""
MEGATRON = {"training__sharding": "megatron", "hardware__world_size": 1}
SPLIT = {"training__tensor_parallel": 2, "hardware__world_size": 2}


@pytest.mark.parametrize(
    ("code", "changes", "figures"),
    [
        ("skyrl", {}, (14, 4)),
        ("skyrl", {"training__entropy_coefficient": 0.01}, (14, 22)),
        ("parallel-chunks", MEGATRON, (8, 12)),
        ("areal", {}, (2, 6)),
        ("areal", SPLIT, (18, 18)),
        ("areal", MEGATRON, (6, 12)),
        ("areal", {**MEGATRON, **SPLIT}, (16, 16)),
    ],
)
def test_a_micro_batch_of_one_chunk(make_run, code, changes, figures):
    run = make_run(program__code=code, training__trainer="grpo", **TOKENS, **changes)
    assert tuple(per_policy_logit(run, backward=backward)[0].expected for backward in (False, True)) == figures


@pytest.mark.parametrize(
    ("code", "changes", "figures"),
    [
        ("skyrl", {}, (2 + 12 / 16, 4)),
        ("skyrl", {"training__entropy_coefficient": 0.01}, (10 + 4 / 16, 14 + 8 / 16)),
        ("parallel-chunks", MEGATRON, (6, 8 + 4 / 16)),
        ("areal", {}, (2, 8)),
        ("areal", SPLIT, (6 + 12 / 16, 12)),
        ("areal", MEGATRON, (6, 16)),
        ("areal", {**MEGATRON, **SPLIT}, (8 + 8 / 16, 20)),
    ],
)
def test_of_a_micro_batch_of_many_chunks_one_is_at_work(make_run, code, changes, figures):
    tokens = {**TOKENS, "training__sequence_length": 16 * 1024}
    run = make_run(program__code=code, training__trainer="grpo", **tokens, **changes)
    assert tuple(per_policy_logit(run, backward=backward)[0].expected for backward in (False, True)) == figures


@pytest.mark.parametrize(("code", "scores"), [("skyrl", 2), ("parallel-chunks", 8), ("areal", 2)])
def test_a_reference_scores_and_has_no_entropy(make_run, code, scores):
    run = make_run(program__code=code, training__trainer="grpo", run__role="reference", trains=False, **TOKENS)
    assert per_policy_logit(run, backward=True)[0].expected == scores


def test_they_are_taken_alike_in_supervised_training(make_run):
    run = make_run(program__code="areal", training__trainer="sft", **TOKENS)
    assert logits(run, backward=True)[0].size.expected == 6 * 1024 * 32000


def test_a_loop_that_has_a_name_for_the_logits_keeps_them_while_blocks_are_differentiated(make_run):
    changes = {"program__code": "areal", "training__trainer": "grpo", **TOKENS}
    assert kept_outputs(make_run(**changes, run__outputs_kept=True))[0].size.expected == 2 * 1024 * 32000
    assert kept_outputs(make_run(**changes, run__outputs_kept=False)) == ()
