"""Ranks that cannot be arranged as a run asks."""

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact, Facts
from compatcheck.core.source import Source
from compatcheck.memory.job import estimate_job
from compatcheck.memory.rank_layout import find_contradiction

BASE = {"hardware.world_size": 8, "model.num_attention_heads": 28}


def make_roles(**changes):
    values = {**BASE, **{f"training.{name}": value for name, value in changes.items()}}
    return {"train": Facts({name: Fact(name, value, "set") for name, value in values.items()})}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensor_parallel": 8, "pipeline_parallel": 4}, "multiple of 32 ranks, and there are 8"),
        ({"tensor_parallel": 16}, "multiple of 16 ranks, and there are 8"),
        ({"tensor_parallel": 8}, "28 attention heads cannot be split over 8"),
        ({"context_parallel": 3}, "context 3 parallel needs a multiple of 3"),
        ({"sharding": "fsdp", "zero_stage": 3}, "FSDP and DeepSpeed's ZeRO-3 exclude each other"),
    ],
)
def test_what_no_program_arranges_has_no_estimate_and_a_reason(changes, words):
    roles = make_roles(**changes)
    assert words in find_contradiction(roles)
    found = estimate_job(roles)
    assert found.phases == ()
    assert found.verdict.outcome == "unknown"
    assert words in found.verdict.primary


@pytest.mark.parametrize(
    ("changes", "core", "words"),
    [
        ({"training.expert_parallel": 8}, "0.15.3", None),
        ({"training.expert_parallel": 8, "training.tensor_parallel": 2}, "0.15.3", "without sequence_parallel"),
        ({"training.expert_parallel": 8, "training.pipeline_parallel": 2}, "0.15.3", "a multiple of 16 ranks"),
        (
            {"training.expert_parallel": 8, "training.expert_tensor_parallel": 2},
            "0.15.3",
            "each split over 2 and in as many stages as the rest, need a multiple of 16 ranks, and there are 8",
        ),
        ({"training.expert_parallel": 3}, "0.15.3", "64 experts cannot be split over 3"),
        ({"training.expert_parallel": 3, "model.num_experts": 0}, "0.15.3", None),
        ({"training.expert_parallel": 3, "training.sharding": "fsdp"}, "0.15.3", None),
        ({"model.num_key_value_heads": 4, "training.sequence_parallel": True}, "0.15.3", None),
        (
            {"model.num_key_value_heads": 4, "training.tensor_parallel": 8, "training.sequence_parallel": True},
            "0.15.3",
            "4 heads of keys and values cannot be split over 8",
        ),
        (
            {"model.num_key_value_heads": 4, "training.tensor_parallel": 8, "training.sequence_parallel": True},
            "0.16.0",
            None,
        ),
    ],
)
def test_what_megatron_cannot_split(changes: dict[str, object], core: str, words: str | None) -> None:
    values = {
        "training.sharding": "megatron",
        "training.sequence_parallel": False,
        "model.num_experts": 64,
        "model.num_attention_heads": 32,
        "hardware.world_size": 8,
        **changes,
    }
    facts = Facts({name: Fact(name, value, "set") for name, value in values.items()})
    package = Package("megatron-core", core, Source("requirements.txt"))
    environment = Environment("requirements.txt", {"megatron-core": package}, complete=True)
    found = find_contradiction({"train": facts}, environment)
    assert found is None if words is None else words in (found or "")


@pytest.mark.parametrize(("least", "micro", "ends"), [(2, 1, True), (2, 2, False), (None, 1, False)])
def test_a_micro_batch_below_the_least_that_a_program_takes(least: int | None, micro: int, *, ends: bool) -> None:
    """TRL 0.12.0 to 1.16.0 kto_trainer.py: the divergence is estimated with the other sequences of the batch."""
    values = {"training.micro_batch_size": micro, "program.least_micro_batch": least}
    facts = Facts({name: Fact(name, value, "set") for name, value in values.items() if value is not None})
    assert (find_contradiction({"train": facts}) is not None) is ends


@pytest.mark.parametrize(
    ("within", "micro", "ranks", "steps", "ends"),
    [
        ("micro_batch", 4, 1, None, True),
        ("micro_batch", 4, 2, None, False),
        ("micro_batch", 4, 1, 2, True),
        ("generation_batch", 4, 1, 1, True),
        ("generation_batch", 4, 1, 2, False),
        ("generation_batch", 4, 1, None, False),  # generation_batch_size says otherwise
        (None, 4, 1, 1, False),
    ],
)
def test_completions_that_are_no_whole_groups(
    within: str | None, micro: int, ranks: int, steps: int | None, *, ends: bool
) -> None:
    """TRL 0.17.0 grpo_trainer.py asks it of a micro batch of all ranks, 0.18.0 grpo_config.py of all that is generated."""
    values = {
        "hardware.world_size": ranks, "training.micro_batch_size": micro, "training.num_generations": 8,
        "training.steps_per_generation": steps, "program.fills_groups": within,
    }  # fmt: skip
    facts = Facts({name: Fact(name, value, "set") for name, value in values.items() if value is not None})
    found = find_contradiction({"train": facts})
    assert (found is not None and "no whole groups of 8" in found) is ends


@pytest.mark.parametrize(
    ("batch", "micro", "ranks", "refuses", "ends"),
    [(16, 4, 8, True, True), (16, 2, 8, True, False), (4, 1, 8, True, True), (16, 4, 8, False, False)],
)
def test_a_batch_that_leaves_a_rank_less_than_a_micro_batch_where_a_program_asserts_one(
    batch: int, micro: int, ranks: int, *, refuses: bool, ends: bool
) -> None:
    """LitGPT 0.5.13 args.py: batch_size() and gradient_accumulation_iters() assert more than nothing."""
    values = {
        "hardware.world_size": ranks, "training.global_batch_size": batch, "training.micro_batch_size": micro,
        "program.refuses_part_batches": refuses,
    }  # fmt: skip
    found = find_contradiction({"train": Facts({name: Fact(name, value, "set") for name, value in values.items()})})
    assert (found is not None) is ends


def test_a_quantised_base_on_several_devices_where_a_program_has_it_on_one() -> None:
    """LitGPT 0.4.0 to 0.5.13 finetune/lora.py setup() raises NotImplementedError."""

    def ask(**changed: object) -> str | None:
        values = {**BASE, "model.quantization": "nf4", "program.quantises_on_one_device": True, **changed}
        return find_contradiction({"train": Facts({name: Fact(name, value, "set") for name, value in values.items()})})

    assert "refuses a quantised base (nf4) on 8 devices" in str(ask())
    assert ask(**{"hardware.world_size": 1}) is None
    assert ask(**{"model.quantization": None}) is None
    assert ask(**{"program.quantises_on_one_device": False}) is None


@pytest.mark.parametrize("changes", [{}, {"tensor_parallel": 4, "pipeline_parallel": 2}, {"context_parallel": 8}])
def test_what_divides_is_priced(changes):
    assert find_contradiction(make_roles(**changes)) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"rollout.tensor_parallel": 8},
            "28 attention heads cannot be split over 8 tensor-parallel ranks of the engine",
        ),
        ({"rollout.engine": "sglang", "rollout.tensor_parallel": 8}, "28 attention heads"),
        ({"rollout.engine": "sglang", "rollout.tensor_parallel": 8, "rollout.data_parallel": 2}, None),
        ({"rollout.engine": "hf", "rollout.tensor_parallel": 8}, None),
        ({"rollout.tensor_parallel": 4}, None),
        ({"rollout.tensor_parallel": 4, "rollout.pipeline_parallel": 4}, "needs at least 16"),
        ({"rollout.tensor_parallel": 4, "rollout.pipeline_parallel": 4, "rollout.colocated": False}, None),
        ({"rollout.tensor_parallel": 4, "hardware.world_size": 6}, None),
        (
            {"rollout.tensor_parallel": 4, "hardware.world_size": 6, "program.engine_shares_process": True},
            "needs a multiple of 4",
        ),
    ],
)
def test_an_engine_is_split_as_its_model_and_the_ranks_allow(changes: dict[str, object], words: str | None) -> None:
    """vLLM's "Total number of attention heads (28) must be divisible by tensor parallel size (8)"; verl's assertion."""
    values = {**BASE, "rollout.engine": "vllm", "rollout.colocated": True, **changes}
    facts = Facts({name: Fact(name, value, "set") for name, value in values.items()})
    for roles in ({"train": facts}, {"actor": facts, "rollout": facts}):
        found = find_contradiction(roles)
        assert found is None if words is None else words in str(found)


def test_without_a_number_of_ranks_nothing_is_refused():
    roles = {"train": Facts({"training.pipeline_parallel": Fact("training.pipeline_parallel", 4, "set")})}
    assert find_contradiction(roles) is None


def over_all_ranks(size):
    return make_roles(micro_batch_size=size, micro_batch_is_global=True)


def test_a_micro_batch_over_all_ranks_is_one_for_each():
    assert "leaves none for each: make it a multiple of 8" in find_contradiction(over_all_ranks(4))
    assert find_contradiction(over_all_ranks(8)) is None


@pytest.mark.parametrize(("version", "refused"), [("0.7.0", True), ("0.8.0", False)])
def test_verl_divides_no_micro_batch_from_0_8_on(version, refused):
    packages = {"verl": Package("verl", version, Source("requirements.txt"))}
    found = find_contradiction(over_all_ranks(4), Environment("requirements.txt", packages, complete=True))
    assert (found is not None) is refused
