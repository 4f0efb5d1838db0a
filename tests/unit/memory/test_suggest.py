from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from compatcheck.core.effects import CHANGES_TRAINING, EFFECTS, MORE_HARDWARE, SAME_RESULT, SLOWER
from compatcheck.core.errors import UsageError
from compatcheck.core.estimate import Component, Estimate, Phase, Verdict, exactly
from compatcheck.core.facts import Fact, Facts, Value
from compatcheck.memory.largest_settings import find_wall
from compatcheck.memory.suggest import candidates, overlay

GIB = 2**30
LIMIT = 80 * GIB


def make_facts(**values: Value) -> Facts:
    names = {name.replace("__", "."): value for name, value in values.items()}
    return Facts({name: Fact(name, value, "set") for name, value in names.items()})


def price(roles: Mapping[str, Facts]) -> Estimate:
    """Price a toy run: 160 GiB of state over the ranks, 1 GiB per 1,024 tokens, a tenth with checkpointing."""
    facts = {name: fact.value for name, fact in roles["train"].items()}
    number = {name: value for name, value in facts.items() if isinstance(value, int)}
    ranks = number.get("hardware.world_size", 1) if facts.get("training.zero_stage") == 3 else 1
    state = 160 * GIB // ranks
    tokens = number["training.micro_batch_size"] * number["training.sequence_length"]
    activations = tokens * GIB // 1024 // (10 if facts.get("training.gradient_checkpointing") else 1)
    parts = (
        Component("state", "parameters", exactly(state), "", ""),
        Component("activations", "activations", exactly(activations), "", ""),
    )
    size = state + activations
    return Estimate(
        "closed_form",
        (Phase("backward", "train", parts),),
        Verdict("fits" if size <= LIMIT else "does_not_fit", LIMIT, LIMIT - size),
    )


RUN = make_facts(
    training__sharding="zero",
    training__zero_stage=3,
    hardware__world_size=8,
    hardware__nodes=1,
    training__micro_batch_size=8,
    training__gradient_accumulation_steps=2,
    training__sequence_length=16384,
    training__gradient_checkpointing=False,
)


def price_of(run: Facts) -> Callable[[Mapping[str, Value]], Estimate]:
    return lambda changed: price({"train": overlay(run, changed)})


def test_a_smaller_batch_keeps_the_global_batch() -> None:
    (half, one) = [change for change in candidates({"train": RUN}) if change.words.startswith("micro batch")]
    for change in (half, one):
        micro, steps = change.facts["training.micro_batch_size"], change.facts["training.gradient_accumulation_steps"]
        assert isinstance(micro, int)
        assert isinstance(steps, int)
        assert micro * steps == 16


def test_a_smaller_batch_of_evaluation_is_proposed_where_the_run_evaluates() -> None:
    run = overlay(RUN, {"training.evaluates": True, "training.eval_batch_size": 8})
    (one,) = [change for change in candidates({"train": run}) if change.words.startswith("evaluation batch")]
    assert (one.words, dict(one.facts)) == ("evaluation batch 8 → 1", {"training.eval_batch_size": 1})
    for changed in ({"training.evaluates": False}, {"training.eval_batch_size": 1}):
        found = [change.words for change in candidates({"train": overlay(run, changed)})]
        assert not [words for words in found if words.startswith("evaluation")]


def test_every_change_says_what_it_costs() -> None:
    run = overlay(RUN, {"training.zero_stage": 2, "model.attn_implementation": "eager"})
    effects = {change.words: change.effect for change in candidates({"train": run})}
    assert set(effects.values()) <= set(EFFECTS)
    assert effects["sdpa attention"] == SAME_RESULT
    assert effects["gradient checkpointing"] == effects["ZeRO-2 → ZeRO-3"] == SLOWER
    assert effects["sequences of 8,192"] == CHANGES_TRAINING
    assert effects["1 → 2 nodes, accumulate 2 → 1"] == MORE_HARDWARE


@pytest.mark.parametrize(
    ("steps", "micro", "words"),
    [
        (4, 8, "accumulate 4 → 2"),
        (1, 8, "micro batch 8 → 4"),
        (1, 1, "changes training, too: the global batch is 2 times"),
    ],
)
def test_more_nodes_keep_the_global_batch_or_say_that_they_change_training(steps: int, micro: int, words: str) -> None:
    changed = {"training.gradient_accumulation_steps": steps, "training.micro_batch_size": micro}
    run = overlay(RUN, changed)
    change = next(one for one in candidates({"train": run}) if one.words.startswith("1 → 2 nodes"))
    assert words in f"{change.words} {change.note}"
    after = {**changed, **change.facts}
    kept = after["training.gradient_accumulation_steps"] * after["training.micro_batch_size"] * 2 == steps * micro
    assert kept is not bool(change.note)


def test_more_nodes_share_a_batch_that_is_one_of_all_ranks() -> None:
    run = make_facts(
        training__sharding="fsdp", hardware__world_size=8, hardware__nodes=1, rollout__global_batch_size=512
    )
    (change, _) = [one for one in candidates({"actor": run}) if one.words.endswith("nodes")]
    assert change.note == "the same batch, spread over more ranks"


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({"training.fsdp_version": 2}, 1),
        ({"training.fsdp_version": 1}, 0),
        ({"training.fsdp_version": 1, "training.gradient_accumulation_steps": 1}, 1),
        ({"training.fsdp_version": 1, "program.accumulates_without_sync": True}, 1),
        ({"training.fsdp_version": 1, "program.accumulates_without_sync": False}, 0),
    ],
)
def test_fsdp_offloads_where_gradients_of_several_micro_batches_add_up(changed: dict[str, Value], count: int) -> None:
    run = overlay(make_facts(training__sharding="fsdp", hardware__world_size=8), changed)
    assert [change.words for change in candidates({"actor": run})].count("FSDP CPU offload") == count


def test_what_every_rank_holds_all_of_is_spread_in_each_way() -> None:
    run = overlay(RUN, {"training.sharding": "ddp"})
    found = {change.words: change for change in candidates({"train": run})}
    assert found["DDP → ZeRO-2 (needs deepspeed)"].effect == SAME_RESULT
    assert found["DDP → ZeRO-3 (needs deepspeed)"].facts == {"training.sharding": "zero", "training.zero_stage": 3}
    assert "DDP → FSDP" in found
    for changed in ({"hardware.world_size": 1}, {"training.sharding": "fsdp"}, {"training.optimizer": "galore"}):
        assert not any(one.words.startswith("DDP") for one in candidates({"train": overlay(run, changed)}))


def test_nothing_is_suggested_that_is_on_already() -> None:
    run = overlay(RUN, {"training.gradient_checkpointing": True, "training.offload_optimizer": "cpu"})
    words = [change.words for change in candidates({"train": run})]
    assert "gradient checkpointing" not in words
    assert "optimizer states on the host" not in words


def test_the_wall_is_exact() -> None:
    wall = find_wall("sequence_length", {"train": RUN}, price_of(RUN))
    assert wall.fits is not None
    assert (wall.fits, wall.fails) == (wall.fits, wall.fits + 1)
    for value, outcome in ((wall.fits, "fits"), (wall.fits + 1, "does_not_fit")):
        assert price({"train": overlay(RUN, {"training.sequence_length": value})}).verdict.outcome == outcome
    assert wall.bytes_per_step == 8 * GIB // 1024


def test_the_run_itself_is_on_the_curve_of_its_wall() -> None:
    run = overlay(RUN, {"training.sequence_length": 2**17})
    wall = find_wall("sequence_length", {"train": run}, price_of(run))
    assert (wall.fits or 0) < 2**15
    assert wall.points[-1] == (2**17, price({"train": run}).needed.expected)


def test_of_nodes_the_wall_is_the_fewest_that_fit() -> None:
    run = overlay(RUN, {"hardware.gpus_per_node": 1, "hardware.world_size": 1, "training.gradient_checkpointing": True})
    wall = find_wall("nodes", {"train": run}, price_of(run))
    assert (wall.fits, wall.fails) == (3, 2)  # 12.8 GiB of activations and 160 / 3 of state
    assert wall.bytes_per_step == 80 * GIB - 160 * GIB
    long = overlay(RUN, {"training.sequence_length": 2**30})
    assert find_wall("nodes", {"train": long}, price_of(long)).fits is None


@pytest.mark.parametrize(("own", "proposed"), [(None, True), (True, True), (False, False)])
def test_liger_is_proposed_where_it_has_a_loss_for_the_trainer(own: bool | None, proposed: bool) -> None:  # noqa: FBT001 (parameters)
    known = {"program.passes_labels": False, "program.runs_trl_trainers": True}
    run = overlay(RUN, known if own is None else {**known, "program.has_liger_loss": own})
    assert any("Liger" in change.words for change in candidates({"train": run})) is proposed


def test_kernels_that_the_model_type_has_not_are_not_proposed() -> None:
    run = overlay(RUN, {"model.attn_implementation": "eager"})
    without = overlay(run, {"program.takes_sdpa": False, "program.takes_flash_attention": False})
    assert sum("attention" in change.words for change in candidates({"train": run})) == 2
    assert not any("attention" in change.words for change in candidates({"train": without}))


def test_a_layer_more_has_parameters() -> None:
    run = make_facts(
        model__num_hidden_layers=10, model__parameters_in_blocks=100, model__parameters=130,
        model__trainable_parameters=130, hardware__memory_bytes=1000,
    )  # fmt: skip

    def by_parameters(changed: Mapping[str, Value]) -> Estimate:
        values = {name: fact.value for name, fact in overlay(run, changed).items()}
        assert values["model.parameters"] == values["model.trainable_parameters"]
        size = values["model.parameters"]
        assert isinstance(size, int)
        parts = (Component("state", "parameters", exactly(size), "", ""),)
        return Estimate(
            "closed_form",
            (Phase("step", "train", parts),),
            Verdict("fits" if size <= 1000 else "does_not_fit", 1000, 1000 - size),
        )

    wall = find_wall("num_hidden_layers", {"train": run}, by_parameters)
    assert (wall.fits, wall.bytes_per_step) == (97, 10)


def test_a_wall_below_the_smallest_value() -> None:
    run = overlay(RUN, {"hardware.world_size": 1})
    wall = find_wall("micro_batch_size", {"train": run}, price_of(run))
    assert wall.fits is None
    assert wall.fails == 1


def test_a_setting_that_cannot_be_swept() -> None:
    with pytest.raises(UsageError, match="sequence_lenght") as error:
        find_wall("sequence_lenght", {"train": RUN}, price_of(RUN))
    assert error.value.hint == "did you mean sequence_length?"
