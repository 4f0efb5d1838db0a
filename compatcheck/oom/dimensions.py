"""The numbers of a run that sizes of tensors are made of, taken from its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.architectures.remote_code import FUSED_GATE_UP, FUSED_QUERY_KEY_VALUE
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Fact

_PAIRED = {"dpo", "orpo", "cpo", "reward"}
"""Trainers that put the chosen and the rejected answer of a pair into one batch."""


_WIDTHS = {"float32": "fp32", "bfloat16": "16-bit", "float16": "16-bit"}
_QUANTISED = {"int8": "8-bit", "fp8": "8-bit"}
"""Other quantisations pack weights into 4 bits."""


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

    def fuses(self, *, gate_up: bool, serving: bool) -> bool:
        """Tell whether query, key and value (or gate and up) are one weight: in engines, and in the code of some models."""
        gated = self.facts.get("model.gated_mlp")
        if gate_up and gated is not None and gated.value is False:
            return False
        fused = FUSED_GATE_UP if gate_up else FUSED_QUERY_KEY_VALUE
        return serving or self.text("model.model_type") in fused

    def weight_dtypes(self, *, loading: bool, state: bool) -> frozenset[str]:
        """Return the dtypes that a single weight may have, as far as they are stated.

        Args:
            loading: whether it is asked for while the model is loaded.
            state: whether its gradient or a state of the optimizer may be meant, which masters have in float32.
        """
        names = ["model.load_dtype"] if loading else ["training.param_dtype", "model.load_dtype"]
        stated = {
            _WIDTHS[dtype]
            for name in names
            if (dtype := self.text(name)) in _WIDTHS and not self.facts[name].origin.endswith("default")
        }
        casts = ("training.compute_dtype", "training.mixed_precision", "training.master_dtype")
        if stated and not loading:
            mixed = {"bf16": "bfloat16", "fp16": "float16"}
            found = [self.text(name) for name in (casts if state else casts[:2])]
            stated |= {
                _WIDTHS[mixed.get(dtype, dtype)] for dtype in found if dtype and mixed.get(dtype, dtype) in _WIDTHS
            }
            if state and "training.master_dtype" not in self.facts:
                stated.add("fp32")
        quantization = self.facts.get("model.quantization")
        if quantization is not None and isinstance(quantization.value, str):
            packed = {_QUANTISED.get(quantization.value, "4-bit")}
        else:  # a file of a model that states none says nothing of what a program makes of it
            said = quantization is not None and quantization.origin in {"set", "script", "configuration"}
            packed = set() if said else {"8-bit", "4-bit"}
        return frozenset((stated or {"fp32", "16-bit"}) | packed)

    @property
    def quantised(self) -> bool:
        """Whether it is stated that the weights are quantised."""
        return self.text("model.quantization") is not None

    def batches(self) -> list[Amount]:
        """Return the sequences a forward pass may hold."""
        found: dict[int, Amount] = {}
        for name in ("training.micro_batch_size", "training.eval_batch_size", "rollout.log_prob_micro_batch_size"):
            value = self.number(name)
            if value is None:
                continue
            words = name.partition(".")[2]
            whole = f"{name.removesuffix('_size')}_is_global"
            ranks = self.number("hardware.world_size")
            if ranks and value % ranks == 0 and whole in self.facts and self.facts[whole].value:
                facts = (name, "hardware.world_size")
                found.setdefault(value // ranks, Amount(value // ranks, f"({words} / world_size)", facts))
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
        pair = ("training.max_prompt_length", "training.max_response_length")
        prompt, response = map(self.number, pair)
        if prompt and response:
            words = "(max_prompt_length + max_response_length)"
            found.setdefault(prompt + response, Amount(prompt + response, words, pair))
        for amount in list(found.values()) if ranks > 1 else ():
            if amount.value % ranks == 0:
                facts = (*amount.facts, "training.context_parallel")
                part = Amount(amount.value // ranks, f"{amount.words} / context_parallel", facts)
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
