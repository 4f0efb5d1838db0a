"""Which tensor a size is: named, tied, or not derivable, and never by accident."""

from __future__ import annotations

import random

import pytest

from compatcheck.core.facts import Fact
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.oom.candidates import activations, buffers, per_token, weights
from compatcheck.oom.dimensions import Dimensions
from compatcheck.oom.explain import CHANCE, explain
from compatcheck.oom.message import read_messages
from compatcheck.oom.sizes import segment_size
from compatcheck.oom.solve import simplicity
from compatcheck.rules.locate import open_rules
from tests.unit.oom.printed_messages import format_size, print_message

RULES = open_rules(())
LLAMA = "/env/site-packages/transformers/models/llama/modeling_llama.py"
FLOAT = [(LLAMA, 1213, "forward", "logits = logits.float()")]


def facts_of(name: str, **stated) -> dict[str, Fact]:
    document = find_model(name, RULES, {})
    facts = {statement.fact: Fact(statement.fact, statement.value, "model") for statement in document.statements}
    return {
        **facts,
        **{key.replace("__", "."): Fact(key.replace("__", "."), value, "set") for key, value in stated.items()},
    }


def read(asked: str, facts, frames=(), **sizes):
    lines = ["Traceback (most recent call last):"] if frames else []
    for file, line, function, code in frames:
        lines += [f'  File "{file}", line {line}, in {function}', f"    {code}"]
    (message,) = read_messages("\n".join([*lines, print_message("2.2", {"asked": asked, **sizes})]))
    return explain(message, facts)


def test_logits_of_the_stated_batch_are_named() -> None:
    reading = read("9.28 GiB", facts_of("qwen2.5-7b", training__micro_batch_size=1, training__sequence_length=16384))
    (match,) = reading.matches
    assert reading.outcome == "named"
    assert (match.name, match.shape, match.inferred) == ("fp32 logits", (1, 16384, 152064), ())
    assert set(match.facts) == {"training.micro_batch_size", "training.sequence_length", "model.vocab_size"}


def test_two_vocabularies_differ_in_the_last_digit() -> None:
    stated = {"training__micro_batch_size": 4, "training__sequence_length": 16384}
    qwen3, qwen25 = facts_of("qwen3-8b", **stated), facts_of("qwen2.5-7b", **stated)
    assert read("37.12 GiB", qwen25).outcome == "named"
    assert read("37.09 GiB", qwen3).outcome == "named"
    assert read("37.12 GiB", qwen3).outcome == "not_derivable"
    assert read("37.09 GiB", qwen25).outcome == "not_derivable"


def test_a_traceback_at_the_logits_tells_the_tokens() -> None:
    reading = read("9.28 GiB", facts_of("qwen2.5-7b"), FLOAT)
    (match,) = reading.matches
    assert (reading.outcome, reading.place.part, match.name) == ("named", "loss", "fp32 logits")
    assert match.inferred == ("between 16,371 and 16,387 tokens",)


def test_an_unknown_dtype_is_a_tie() -> None:
    frames = [(LLAMA, 837, "forward", "logits = self.lm_head(hidden_states[:, slice_indices, :])")]
    reading = read("9.28 GiB", facts_of("qwen2.5-7b"), frames)
    assert reading.outcome == "tied"
    assert [match.name for match in reading.matches] == ["fp32 logits", "16-bit logits"]


def test_a_round_number_of_tokens_is_a_tie_and_marked_as_inferred() -> None:
    reading = read("9.28 GiB", facts_of("qwen2.5-7b"))
    assert reading.outcome == "tied"
    assert [match.inferred for match in reading.matches] == [("16,384 tokens",), ("32,768 tokens",)]


def test_stated_bounds_break_the_tie() -> None:
    reading = read("9.28 GiB", facts_of("qwen2.5-7b", training__micro_batch_size=1, training__sequence_length=20000))
    assert (reading.outcome, [match.name for match in reading.matches]) == ("named", ["fp32 logits"])


def test_a_length_that_is_not_round_says_nothing() -> None:
    assert read("9.31 GiB", facts_of("qwen2.5-7b")).outcome == "not_derivable"


@pytest.mark.parametrize("asked", ["2.00 MiB", "20.00 MiB"])
def test_segments_that_stand_for_everything_name_nothing(asked) -> None:
    reading = read(asked, facts_of("qwen2.5-7b", training__micro_batch_size=1, training__sequence_length=512))
    assert (reading.outcome, reading.matches) == ("not_derivable", ())


def test_without_a_model_nothing_is_derivable() -> None:
    reading = read("9.28 GiB", {})
    assert (reading.outcome, reading.needs) == ("not_derivable", ("--model",))


def test_what_cannot_arise_in_the_place_is_not_named() -> None:
    facts = facts_of("qwen2.5-7b", training__micro_batch_size=1, training__sequence_length=16384)
    frames = [("/env/site-packages/torch/optim/adamw.py", 187, "step", "adamw(")]
    reading = read("9.28 GiB", facts, frames)
    assert reading.outcome == "not_derivable"
    assert [match.fits_place for match in reading.matches] == [False]


def test_partitions_are_solved_for_in_an_optimizer_only() -> None:
    facts = facts_of("llama-2-7b")
    frames = [("/env/deepspeed/runtime/zero/stage_1_and_2.py", 700, "initialize_optimizer_states", "torch.zeros(")]
    asked = format_size(segment_size(4 * 6738415616 // 8))
    reading = read(asked, facts, frames)
    assert reading.outcome == "tied"
    assert [(match.dtype, match.inferred) for match in reading.matches] == [
        ("16-bit", ("4 data-parallel ranks",)),
        ("fp32", ("8 data-parallel ranks",)),
    ]
    assert read(asked, facts).outcome == "not_derivable"
    stated = read(asked, {**facts, "hardware.world_size": Fact("hardware.world_size", 8, "set")}, frames)
    assert (stated.outcome, stated.matches[0].inferred) == ("named", ())


@pytest.mark.parametrize(
    ("allocated", "asked", "words"),
    [
        ("58.15 GiB", "23.26 GiB", "2.5 times"),
        ("77.65 GiB", "12.94 GiB", "6 times"),
        ("62.79 GiB", "25.10 GiB", "2.5 times"),
    ],
)
def test_copies_already_made_are_pointed_out(allocated, asked, words) -> None:
    sizes = {"total": "79.15 GiB", "free": "1.00 GiB", "allocated": allocated, "unallocated": "12.00 MiB"}
    assert words in " ".join(read(asked, {}, **sizes).remarks)
    assert read("13.37 GiB", {}, **sizes).remarks == ()


@pytest.mark.parametrize(
    "name", ["llama-2-7b", "llama-3-70b", "qwen2.5-7b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma-2-9b", "gpt2-xl"]
)
def test_a_random_size_is_seldom_named(name) -> None:
    facts = facts_of(name, training__micro_batch_size=2, training__sequence_length=4096, hardware__world_size=8)
    draw = random.Random(7)
    drawn = [int(2 ** draw.uniform(25, 35)) for _ in range(400)]
    named = sum(read(format_size(segment_size(size)), facts).outcome == "named" for size in drawn)
    assert named <= 2 * CHANCE * len(drawn)


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen2.5-7b", "mixtral-8x7b", "gpt2-xl"])
def test_every_candidate_is_found_again_by_its_own_size(name) -> None:
    facts = facts_of(name, training__micro_batch_size=2, training__sequence_length=4096, hardware__world_size=8)
    run = Dimensions(facts)
    tensors = [
        *weights(run, serving=False),
        *buffers(run, deepspeed=False, solve_ranks=False),
        *activations(run, serving=False),
    ]
    for match in (match for tensor in tensors for match in tensor.matches()):
        reading = read(format_size(segment_size(match.size_bytes)), facts)
        if reading.outcome in {"named", "tied"}:
            assert match.size_bytes in {found.size_bytes for found in reading.matches} or match.name in {
                found.name for found in reading.matches
            }
        else:
            assert "segment" in reading.reason or "so would" in reading.reason


def test_candidates_are_those_of_the_architecture() -> None:
    run = Dimensions(
        facts_of(
            "qwen2.5-7b", rollout__tensor_parallel=4, rollout__max_num_seqs=256, rollout__max_num_batched_tokens=8192
        )
    )
    shapes = {(tensor.name, tensor.shape) for tensor in weights(run, serving=True)}
    assert ("fused query, key and value weight", (4608, 3584)) in shapes
    assert ("fused query, key and value weight", (1152, 3584)) in shapes
    assert ("fused gate and up projection weight", (2 * 18944 // 4, 3584)) in shapes
    assert ("embedding or output projection weight", (152064 // 4, 3584)) in shapes
    forward = {(tensor.name, tensor.shape) for tensor in activations(run, serving=True)}
    assert ("logits", (256, 152064)) in forward
    assert ("fused gate and up activation", (8192, 2 * 18944 // 4)) in forward
    assert {kind.name for kind in per_token(run, serving=False)} == {
        "logits",
        "hidden states",
        "MLP activation",
        "keys or values",
    }


def test_simple_numbers() -> None:
    assert [simplicity(number) for number in (16384, 12288, 10000, 131 * 4096)] == [1, 2, 4, 66]


def test_host_and_library_allocations_are_exact() -> None:
    facts = facts_of("qwen2.5-7b", training__eval_samples=100, training__sequence_length=2048)
    log = "\n".join(
        [
            "Traceback (most recent call last):",
            '  File "/env/transformers/trainer_pt_utils.py", line 100, in nested_concat',
            "    return torch_pad_and_concatenate(tensors, new_tensors)",
            f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {100 * 2048 * 152064 * 4} bytes.",
        ]
    )
    (message,) = read_messages(log)
    reading = explain(message, facts)
    assert (reading.outcome, reading.matches[0].name) == ("named", "fp32 logits of the evaluation set")
    assert reading.place.part == "gathered_logits"


def test_half_a_copy_tells_the_dtype_of_a_partition() -> None:
    facts = facts_of("llama-3-70b")
    part = 70553706496 // 16
    asked, allocated = format_size(segment_size(4 * part)), format_size(2 * part + 2 * 4 * part)
    sizes = {"total": "79.15 GiB", "free": "1.00 GiB", "unallocated": "12.00 MiB", "allocated": allocated}
    reading = read(asked, facts, **sizes)
    assert (reading.outcome, reading.matches[0].name) == ("named", "fp32 partition of all parameters over 16 ranks")
    assert reading.matches[0].inferred == ("16 data-parallel ranks",)
    assert read(asked, facts, **{**sizes, "allocated": "31.00 GiB"}).outcome == "not_derivable"


def test_private_pools_and_what_was_held_before_are_pointed_out() -> None:
    sizes = {
        "total": "80.00 GiB",
        "free": "1.00 GiB",
        "allocated": "70.00 GiB",
        "unallocated": "1.00 GiB",
        "private_pools": "9.00 GiB",
    }
    assert "9.00 GiB lie in private pools" in read("3.00 GiB", {}, **sizes).remarks[0]
    assert read("3.00 GiB", {}, **{**sizes, "private_pools": "46.00 MiB"}).remarks == ()
    (message,) = read_messages(
        "Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB)"
    )
    assert "15.94 GiB" in explain(message, {}).remarks[0]


def test_a_shard_is_one_of_the_program_that_asked() -> None:
    facts = facts_of("qwen2.5-7b", rollout__tensor_parallel=2, training__tensor_parallel=4)
    assert Dimensions(facts).tensor_parallel() == [1, 2, 4]
    assert Dimensions(facts, serving=True).tensor_parallel() == [1, 2]
    assert Dimensions(facts, serving=False).tensor_parallel() == [1, 4]
    assert read("9.28 GiB", facts_of("qwen2.5-7b", rollout__tensor_parallel=2), FLOAT).outcome == "named"
