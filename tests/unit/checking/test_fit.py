"""What a verdict rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking.fit import price
from compatcheck.core.document import TAKEN_AS_EMPTY, TAKEN_AS_IDLE, Document, Gap, Statement, Unresolved
from compatcheck.core.source import Source
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.estimate import Estimate

MODEL = {
    "model.model_type": "llama", "model.hidden_size": 4096, "model.num_hidden_layers": 32, "model.num_attention_heads": 32,
    "model.num_key_value_heads": 8, "model.intermediate_size": 14336, "model.vocab_size": 128256,
    "model.parameters": 8030261248, "model.parameters_in_blocks": 6979584000, "training.micro_batch_size": 8,
    "training.sequence_length": 8192, "hardware.memory_bytes": 80 << 30, "hardware.world_size": 1,
}  # fmt: skip


STATED = {
    "training.sharding": "none", "training.peft": None, "training.param_dtype": "bfloat16", "training.optimizer": "adamw",
    "training.offload_optimizer": None, "training.offload_param": None, "training.optimizer_in_backward": False,
    "model.quantization": None,
}  # fmt: skip
"""What decides that 8 billion parameters with their states are more than a device has."""


def priced(*unread: str, stated: Mapping[str, object] = MODEL, gaps: tuple[Gap, ...] = ()) -> Estimate:
    statements = tuple(Statement(fact if "." in fact else None, fact, value) for fact, value in stated.items())
    document = Document("native", Source("c.yaml"), statements, tuple((key, None) for key in unread), gaps=gaps)
    return price(resolve("s", rules=open_rules(()), environment=None, documents=(document,)))


def test_no_verdict_rests_on_what_a_key_that_was_not_understood_may_set() -> None:
    assert priced().verdict.outcome == "does_not_fit"
    found = priced("gradient_chekpointing")
    assert found.verdict.outcome == "marginal"
    assert "the cheapest that gradient_chekpointing, not read, may set" in str(found.verdict.condition)
    (said,) = [one.reason for one in found.assumptions if one.fact == "training.gradient_checkpointing"]
    assert said == "off; gradient_chekpointing was not read and may set it"


def test_nothing_surely_fits_by_the_default_of_a_size_that_an_unread_key_may_set() -> None:
    small = {**MODEL, **STATED, "model.parameters": 10**9, "training.gradient_checkpointing": True}
    del small["training.micro_batch_size"]
    assert priced(stated=small).verdict.outcome == "fits"
    found = priced("batch_sise", stated=small).verdict
    assert found.outcome == "marginal"
    assert "it rests on training.micro_batch_size = 1" in str(found.condition)
    assert priced("batch_sise", stated={**small, "training.micro_batch_size": 1}).verdict.outcome == "fits"


def test_what_does_not_fit_whatever_was_not_read_does_not_fit() -> None:
    rest = {**MODEL, **STATED}
    assert priced("gradient_chekpointing", stated=rest).verdict.outcome == "marginal"  # of the activations alone
    states = {**rest, "training.micro_batch_size": 1, "training.sequence_length": 128, "model.parameters": 80302612480}
    assert priced("gradient_chekpointing", stated=states).verdict.outcome == "does_not_fit"


@pytest.mark.parametrize("key", ["logging.report", "data.shuffle_seed", "wandb_project"])
def test_a_key_about_something_else_leaves_a_verdict_alone(key: str) -> None:
    found = priced(key)
    assert found.verdict.outcome == "does_not_fit"
    assert found.assumptions == priced().assumptions


def test_arguments_that_a_script_may_be_given_leave_its_defaults_open() -> None:
    arguments = Gap(Source("run.sh"), f'passes on "$@"; {TAKEN_AS_EMPTY}', None, assumed=True)
    assert priced(gaps=(arguments,)).verdict.outcome == "marginal"
    states = {**MODEL, **STATED, "model.parameters": 80302612480}
    assert priced(stated=states, gaps=(arguments,)).verdict.outcome == "does_not_fit"


def test_batches_up_to_an_unknown_number_of_tokens_are_not_taken_as_one_sequence() -> None:
    stated = {fact: value for fact, value in MODEL.items() if fact != "training.micro_batch_size"}
    statements = tuple(Statement(fact if "." in fact else None, fact, value) for fact, value in stated.items())
    limit = Unresolved("training.micro_batch_tokens", "data.max_token_len_per_gpu", "depends on $1")
    document = Document("native", Source("c.yaml"), statements, unresolved=(limit,))
    found = price(resolve("s", rules=open_rules(()), environment=None, documents=(document,)))
    assert (found.phases, found.needs) == ((), ("training.micro_batch_tokens",))


def test_an_engine_of_which_nobody_knows_whether_it_sleeps_refuses_no_run() -> None:
    stated = MODEL | STATED | SMALL | {
        "training.framework": "verl", "training.trainer": "grpo", "rollout.engine": "vllm", "rollout.colocated": True,
        "rollout.gpu_memory_utilization": 0.89, "rollout.tensor_parallel": 1, "training.sharding": "fsdp",
        "training.max_prompt_length": 1024, "training.max_response_length": 1024,
        "model.attn_implementation": "flash_attention_2", "training.activation_offloading": False,
        "training.loss_implementation": "cross_entropy",
    }  # fmt: skip
    statements = tuple(Statement(fact, fact, value, "actor") for fact, value in stated.items())
    unread = (("actor_rollout_ref.rollout.of_tomorrow", None),)
    document = Document("verl", Source("train.sh"), statements, unread)
    verdict = price(resolve("s", rules=open_rules(()), environment=None, documents=(document,))).verdict
    assert verdict.outcome == "marginal"
    assert "of_tomorrow, not read, may set" in str(verdict.condition)


SMALL = {
    "hardware.world_size": 8, "training.micro_batch_size": 1, "training.sequence_length": 2048,
    "training.gradient_checkpointing": True,
}  # fmt: skip


def test_a_recipe_without_the_file_of_its_launcher_is_not_refused() -> None:
    stated = {name: value for name, value in (MODEL | STATED).items() if name != "training.sharding"}
    stated["training.optimizer_implementation"] = "foreach"
    statements = tuple(Statement(fact, fact, value) for fact, value in (stated | SMALL).items())
    recipe = Document("open_instruct", Source("sft.yaml"), statements)
    other = recipe._replace(reader="hf_trainer")
    outcomes = [
        price(resolve("s", rules=open_rules(()), environment=None, documents=(document,))).verdict
        for document in (recipe, other)
    ]
    assert [verdict.outcome for verdict in outcomes] == ["marginal", "does_not_fit"]
    assert "the file of accelerate launch, not read" in str(outcomes[0].condition)


def test_a_head_of_few_labels_makes_no_logits() -> None:
    whole = {**MODEL, **STATED, "training.peft": "lora", "training.lora_rank": 8}
    names = [
        {part.name for phase in priced(stated=facts).phases for part in phase.components}
        for facts in (whole, {**whole, "program.makes_logits": False})
    ]
    assert "logits and loss" in names[0] - names[1]


def test_what_a_key_leaves_open_of_what_is_trained_is_asked_for() -> None:
    trained, stated = "model.trainable_parameters", MODEL | STATED
    statements = tuple(Statement(fact if "." in fact else None, fact, value) for fact, value in stated.items())
    document = Document("native", Source("c.yaml"), statements, unresolved=(Unresolved(trained, "frozen", "?"),))
    found = price(resolve("s", rules=open_rules(()), documents=(document,)))
    assert (found.needs, found.phases) == ((trained,), ())
    assert priced(stated=stated).phases


def test_no_verdict_rests_on_a_fact_that_is_set_to_something_nobody_knows() -> None:
    statements = tuple(Statement(fact, fact, value) for fact, value in MODEL.items())
    opened = Unresolved("training.loss_implementation", "my_loss", "decides it in a way that was not read")
    document = Document("native", Source("c.yaml"), statements, unresolved=(opened,))
    found = price(resolve("s", rules=open_rules(()), environment=None, documents=(document,)))
    assert found.verdict.outcome == "marginal"
    assert "the cheapest that my_loss, not read, may set" in str(found.verdict.condition)


def test_a_key_that_may_change_anything_widens_the_range_on_both_sides() -> None:
    gap = Gap(Source("c.yaml", key="use_kernels"), f"may change what the run needs; {TAKEN_AS_IDLE}", assumed=True)
    plain = priced()
    found = priced(stated={**MODEL, "use_kernels": True}, gaps=(gap,))
    assert "use kernels" in [one.name for one in found.unmodelled]
    assert found.needed.expected == plain.needed.expected
    assert found.needed.low < plain.needed.low < plain.needed.high < found.needed.high


def test_no_run_is_refused_whose_trainer_tries_smaller_batches() -> None:
    large = {**MODEL, **STATED, "model.parameters": 10**9, "training.micro_batch_size": 512}
    assert priced(stated=large).verdict.outcome == "does_not_fit"
    found = priced(stated={**large, "training.auto_find_batch_size": True}).verdict
    assert found.outcome == "marginal"
    assert str(found.condition).startswith("the trainer tries smaller batches")
    none_fits = {**MODEL, **STATED, "training.auto_find_batch_size": True, "training.sequence_length": 131072}
    assert priced(stated=none_fits).verdict.outcome == "does_not_fit"
