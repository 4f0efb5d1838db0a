"""The numbers of a run that sizes of tensors are made of, taken from its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Fact

_PAIRED = {"dpo", "orpo", "cpo", "reward"}
"""Trainers that put the chosen and the rejected answer of a pair into one batch."""


class Amount(NamedTuple):
    """A number and the facts it came from."""

    value: int
    words: str
    """How a formula calls it."""
    facts: tuple[str, ...]


class Dimensions:
    """Numbers by name; a name that is not known gives None."""

    def __init__(self, facts: Mapping[str, Fact], *, serving: bool | None = None) -> None:
        """Take the facts of a run.

        Args:
            facts: by name.
            serving: whether it happened inside a serving engine, which shards as the rollout does; None when nothing tells.
        """
        self.facts = facts
        self.serving = serving

    def number(self, name: str) -> int | None:
        """Return a positive whole number, None when it is unknown or zero."""
        fact = self.facts.get(name)
        value = None if fact is None else fact.value
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def model(self, name: str) -> int | None:
        """Return a dimension of the model."""
        return self.number(f"model.{name}")

    def text(self, name: str) -> str | None:
        """Return a fact that is a word."""
        fact = self.facts.get(name)
        return fact.value if fact is not None and isinstance(fact.value, str) else None

    @property
    def known(self) -> bool:
        """Whether anything about the model is known that a tensor's size could be computed from."""
        return any(self.model(name) is not None for name in ("hidden_size", "vocab_size", "parameters"))

    @property
    def head_dim(self) -> int | None:
        """Width of one head."""
        hidden, heads = self.model("hidden_size"), self.model("num_attention_heads")
        return self.model("head_dim") or (hidden // heads if hidden and heads else None)

    def batches(self) -> list[Amount]:
        """Return the sequences a forward pass may hold."""
        found: dict[int, Amount] = {}
        for name in ("training.micro_batch_size", "training.eval_batch_size", "rollout.log_prob_micro_batch_size"):
            value = self.number(name)
            if value is None:
                continue
            words = name.partition(".")[2]
            found.setdefault(value, Amount(value, words, (name,)))
            if name == "training.micro_batch_size" and self.text("training.trainer") in _PAIRED:
                found.setdefault(2 * value, Amount(2 * value, f"2 × {words}", (name, "training.trainer")))
        return list(found.values())

    def lengths(self) -> list[Amount]:
        """Return the lengths of sequences a configuration states; of which context parallelism leaves a rank a part."""
        found: dict[int, Amount] = {}
        ranks = self.number("training.context_parallel") or 1
        for name in ("training.sequence_length", "training.max_prompt_length", "training.max_response_length"):
            value = self.number(name)
            if value is None:
                continue
            words = name.partition(".")[2]
            found.setdefault(value, Amount(value, words, (name,)))
            if ranks > 1 and value % ranks == 0:
                part = Amount(value // ranks, f"{words} / context_parallel", (name, "training.context_parallel"))
                found.setdefault(part.value, part)
        return list(found.values())

    def tensor_parallel(self) -> list[int]:
        """Return the numbers of ranks a tensor may be split over, 1 first."""
        names = ("training", "rollout") if self.serving is None else ("rollout",) if self.serving else ("training",)
        ranks = {self.number(f"{name}.tensor_parallel") for name in names}
        return [1, *sorted(count for count in ranks if count is not None and count > 1)]

    @property
    def longest(self) -> int:
        """Most tokens a sequence is believed to have: what the configuration states, else what the model was built for."""
        lengths = [amount.value for amount in self.lengths()]
        return max(lengths, default=0) or self.model("max_position_embeddings") or 131072
