"""What a verdict rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.checking.fit import price
from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Source
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.core.estimate import Estimate

MODEL = {
    "model.model_type": "llama", "model.hidden_size": 4096, "model.num_hidden_layers": 32, "model.num_attention_heads": 32,
    "model.num_key_value_heads": 8, "model.intermediate_size": 14336, "model.vocab_size": 128256,
    "model.parameters": 8030261248, "model.parameters_in_blocks": 6979584000, "training.micro_batch_size": 8,
    "training.sequence_length": 8192, "hardware.memory_bytes": 80 << 30, "hardware.world_size": 1,
}  # fmt: skip


def priced(*unread: str) -> Estimate:
    statements = tuple(Statement(fact, fact, value) for fact, value in MODEL.items())
    document = Document("native", Source("c.yaml"), statements, tuple((key, None) for key in unread))
    return price(resolve("s", rules=open_rules(()), environment=None, documents=(document,)))


def test_no_verdict_rests_on_what_a_key_that_was_not_understood_may_set() -> None:
    assert priced().verdict.outcome == "does_not_fit"
    found = priced("gradient_chekpointing")
    assert found.verdict.outcome == "marginal"
    assert "if they are" in (found.verdict.condition or "")
    (said,) = [one.reason for one in found.assumptions if one.fact == "training.gradient_checkpointing"]
    assert said == "off; gradient_chekpointing was not read and may set it"
