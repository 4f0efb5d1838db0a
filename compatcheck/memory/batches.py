"""How many sequences a device takes in one forward of each phase, from keys that count them in different ways.

verl's ``*_micro_batch_size`` counts sequences over all ranks, ``*_per_gpu`` those of one; its forks from before 0.2 multiply the
former by ``rollout.n`` (verl/workers/fsdp_workers.py, "normalize config"). ``use_dynamic_bsz`` fills batches up to a number of
tokens instead. A batch is never larger than what a device holds: the split of a smaller share is the share itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Fact, Value

UPDATE = ("training.micro_batch_size", "training.micro_batch_is_global", "training.micro_batch_tokens")
SCORING = (
    "rollout.log_prob_micro_batch_size",
    "rollout.log_prob_micro_batch_is_global",
    "rollout.log_prob_micro_batch_tokens",
)


NOT_MULTIPLIED = frozenset({"critic", "reward"})


class Batch(NamedTuple):
    """What one forward takes on one data-parallel rank."""

    sequences: int
    length: int
    """Tokens of a sequence; of the whole batch where batches are filled by tokens."""
    filled: bool
    """Filled up to a number of tokens."""
    words: str
    """How it follows from the keys; empty where a key says it as it is."""
    key: str = ""
    """The key that sets it, as the person wrote it, without its section."""
    passes: int | None = None
    """Forwards it takes to go through what a device holds; None where that is not known."""
    half: int | None = None
    """Tokens of a filled batch where sequences are half as long as their limit and run out before it is full."""
    least: int | None = None
    """Smallest value of the key that gives this batch, where it is more than a device holds."""
    unbounded: bool = False
    """Nobody says how long sequences get; none is taken to be longer than a filled batch."""

    def as_facts(self) -> dict[str, Value]:
        """Return the batch in the vocabulary's names."""
        facts: dict[str, Value] = {
            "training.micro_batch_size": self.sequences,
            "training.micro_batch_is_global": False,
            "training.sequence_length": self.length,
        }
        if self.passes is not None:
            facts["training.gradient_accumulation_steps"] = self.passes
        if self.filled:
            facts["model.max_position_embeddings"] = None  # no limit on what is strung together
        return facts


def read_batch(
    facts: Mapping[str, Fact], names: tuple[str, str, str], whole: str | None, role: str = "actor"
) -> Batch | None:
    """Work out a batch.

    Args:
        facts: of the role.
        names: `UPDATE` or `SCORING`: facts of the key, of whether it counts all ranks, of the limit in tokens.
        whole: fact that says how many sequences all ranks take together; None where a batch is not cut to a rank's share.
        role: whose facts they are; forks do not multiply the critic's and the reward model's keys.

    Returns:
        None when nothing says how large it is.
    """
    size, is_global, tokens = names
    context = _number(facts, "training.context_parallel") or 1
    length = _number(facts, "training.sequence_length")
    ranks = _data_ranks(facts, context)
    total = None if whole is None else _number(facts, whole)
    share = None if total is None else max(1, -(-total // ranks))
    limit = _number(facts, tokens)
    words = "" if limit is None else f"{_key(facts, tokens)} {limit:,}"
    if limit is not None and length is not None:
        filled = max(limit * context, length)
        if share is not None:
            filled = min(filled, share * length)
        passes = None if share is None else -(-share * length // filled)
        half = filled if share is None else min(filled, max(1, share * length // 2))
        return Batch(1, filled, filled=True, words=words, passes=passes, half=half)
    if limit is not None:  # one sequence alone may be longer; nobody says how long they get
        filled = max(limit * context, _number(facts, "training.max_response_length") or 0)
        return Batch(1, filled, filled=True, words=words, half=max(1, filled // 2), unbounded=True)
    key = _number(facts, size)
    if key is None or length is None:
        return None
    each, words, ranks_of_key, times = key, "", 1, 1
    prompts = facts.get("program.batches_count_prompts")
    fork = prompts is not None and bool(prompts.value)
    flag = facts.get(is_global)
    if (bool(flag.value) if flag is not None else fork) and (ranks > 1 or fork):
        each, ranks_of_key = max(1, key // ranks), ranks
        words = f"{_key(facts, size)} {key:,} counts all ranks: {key:,} // {ranks}"
        n = _number(facts, "rollout.n") or 1
        if fork and n > 1 and role not in NOT_MULTIPLIED:
            each, times = each * n, n
            words += f" × rollout.n {n}"
        words += f" = {each:,}"
    name, least = _key(facts, size), None
    if share is not None and each > share:
        words = f"{words or f'{name} {key:,}'}, more than the {share:,} sequences a device holds"
        each, least = share, -(-share // times) * ranks_of_key
    passes = None if share is None else -(-share // each)
    return Batch(each, length, filled=False, words=words, key=name, passes=passes, least=least)


def _data_ranks(facts: Mapping[str, Fact], context: int) -> int:
    world = _number(facts, "hardware.world_size") or 1
    split = (_number(facts, "training.tensor_parallel") or 1) * (_number(facts, "training.pipeline_parallel") or 1)
    return max(1, world // (context * split))


def _number(facts: Mapping[str, Fact], name: str) -> int | None:
    fact = facts.get(name)
    value = None if fact is None else fact.value
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _key(facts: Mapping[str, Fact], name: str) -> str:
    """Name a setting as the person wrote it, without its section."""
    key = next((source.key for source in facts[name].sources if source.key), None)
    return (key or name).rpartition(".")[2]
