"""Print bytes per logit at the peak of verl's log-probabilities and entropy, forward and with backward, on a CPU.

The operations are verl's (verl/workers/actor/dp_actor.py): logits of all tokens, divided in place by the temperature, then
log-probabilities and entropy. What runs as a kernel on a GPU is replaced by what it allocates: flash-attn's cross entropy keeps
the logits and makes a gradient of their size, or none where it works in place; the compiled entropy keeps the logits and makes a
gradient of their size. Without compilation the entropy is computed as it stands, its softmax in float32 as autocast takes it.

Usage: python benchmarks/policy_logits.py  (needs torch)
"""

# ruff: noqa: ANN401, FBT001, SLF001 (signatures are torch's own)
from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

BATCH, LENGTH, VOCAB, HIDDEN, PIECES = 4, 64, 20000, 8, 4
CASES = (
    ("without padding", True, False, False),
    ("without padding, entropy compiled", True, True, True),
    ("without padding, entropy", True, True, False),
    ("padded", False, False, False),
    ("padded, entropy", False, True, False),
)


class Peak(TorchDispatchMode):
    """Follows storages from the operation that makes them to their end."""

    def __init__(self) -> None:
        """Start with nothing alive."""
        super().__init__()
        self.live, self.peak, self.seen = 0, 0, set[int]()

    def see(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a storage the first time it is seen."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.seen:
            self.seen.add(key)
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self.drop, key, size)
        return tensor

    def drop(self, key: int, size: int) -> None:
        """Forget a storage that ended."""
        self.seen.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and see what it returns."""
        return tree_map_only(torch.Tensor, self.see, func(*args, **(kwargs or {})))


class Kernel(torch.autograd.Function):
    """Reads logits and gives a number for each row; its gradient takes their place, or is as large."""

    @staticmethod
    def forward(context: Any, logits: torch.Tensor, inplace: bool) -> torch.Tensor:
        """Keep the logits."""
        context.save_for_backward(logits)
        context.inplace = inplace
        return torch.empty(logits.shape[0])

    @staticmethod
    def backward(context: Any, *_: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Make the gradient."""
        (logits,) = context.saved_tensors
        return logits if context.inplace else torch.empty_like(logits), None


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Compute the entropy as verl/utils/torch_functional.py does."""
    chances = torch.softmax(logits, -1, dtype=torch.float32)
    return torch.logsumexp(logits, -1) - torch.sum(chances * logits, -1)


def loss(hidden: torch.Tensor, head: torch.Tensor, case: tuple[str, bool, bool, bool], share: float, cast: bool) -> Any:
    """Take log-probabilities, and the entropy where the case has one."""
    _, packed, with_entropy, compiled = case
    logits = hidden @ head.t()
    if cast:
        logits = logits.float()
    logits.div_(1.0)
    if not packed:
        logits = logits.view(BATCH, LENGTH, VOCAB)[:, -int(share * LENGTH) - 1 : -1, :]
    found = log_probabilities(logits, inplace=not with_entropy)
    if with_entropy:
        found = found + (Kernel.apply(logits, False) if compiled else entropy(logits)).sum()
    return found


def log_probabilities(logits: torch.Tensor, *, inplace: bool) -> torch.Tensor:
    """Take log-probabilities; what the rows are copied into ends with the call."""
    return Kernel.apply(logits.reshape(-1, VOCAB), inplace).sum()  # type: ignore[no-any-return]


def measure(case: tuple[str, bool, bool, bool], share: float, *, cast: bool, trains: bool) -> float:
    """Return bytes per logit of all tokens at the peak."""
    hidden = torch.randn(BATCH * LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    with Peak() as peak, torch.set_grad_enabled(trains):
        found = loss(hidden, head, case, share, cast)
        if trains:
            found.backward()
    return peak.peak / (BATCH * LENGTH * VOCAB)


class Shared(torch.autograd.Function):
    """Log-probabilities of logits that ranks share, as NeMo RL takes them (nemo_rl/distributed/model_utils.py, 7ea279a)."""

    @staticmethod
    def forward(context: Any, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Keep the softmax."""
        largest = torch.amax(logits, dim=-1, keepdim=True)
        found = logits - largest
        found -= found.exp().sum(-1, keepdim=True).log()
        context.save_for_backward(found.exp())
        return found.gather(-1, rows)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Make the gradient beside it."""
        (softmax,) = context.saved_tensors
        return softmax.neg().mul_(gradients[0]), None


def measure_nemo_rl(*, shared: bool, trains: bool) -> float:
    """Return bytes per logit of NeMo RL's log-probabilities, of float32 logits, at the peak."""
    hidden = torch.randn(BATCH, LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    rows = torch.zeros(BATCH, LENGTH, 1, dtype=torch.int64)
    with Peak() as peak, torch.set_grad_enabled(trains):
        logits = (hidden @ head.t()).float()
        found = Shared.apply(logits, rows) if shared else torch.log_softmax(logits, -1).gather(-1, rows)
        del logits
        if trains:
            found.mean().backward()  # type: ignore[no-untyped-call]
    return peak.peak / (BATCH * LENGTH * VOCAB)


class Pieces(torch.autograd.Function):
    """prime-rl's head in backward: one piece of the words after the other (trainer/models/layers/lm_head.py, 559b447)."""

    @staticmethod
    def forward(context: Any, hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Keep what goes in; pieces of forward are smaller."""
        context.save_for_backward(hidden, head)
        return hidden.sum(-1).float()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Make logits and probabilities again; names of a piece hold it until the next one takes them."""
        hidden, head = context.saved_tensors
        scale = torch.ones(hidden.shape[0], 1)
        of_hidden, of_head = torch.zeros_like(hidden), torch.zeros_like(head)
        for start in range(0, VOCAB, VOCAB // PIECES):
            part = slice(start, start + VOCAB // PIECES)
            product = hidden @ head[part].t()
            logits = product.to(torch.float32) * scale
            chances = torch.exp(logits - scale)
            grown = (-gradients[0]).unsqueeze(-1) * chances
            grown = grown * scale
            of_hidden.add_(grown.to(hidden.dtype) @ head[part])
            of_head[part].add_(grown.to(head.dtype).t() @ hidden)
        return of_hidden, of_head


def measure_prime_rl() -> float:
    """Return bytes per logit of a piece in backward, gradients of hidden states and head apart."""
    hidden = torch.randn(BATCH * LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with Peak() as peak:
        Pieces.apply(hidden, head).mean().backward()
    return (peak.peak - 2 * HIDDEN * (BATCH * LENGTH + VOCAB)) / (BATCH * LENGTH * VOCAB // PIECES)


def main() -> None:
    """Print the table."""
    print(f"{'':36}{'share':>6}{'score':>8}{'train':>8}{'score, cast':>13}{'train, cast':>13}")
    for case in CASES:
        for share in (1.0,) if case[1] else (0.5, 0.98):
            found = [
                measure(case, share, cast=cast, trains=trains) for cast in (False, True) for trains in (False, True)
            ]
            print(f"{case[0]:36}{share:6}{found[0]:8.2f}{found[1]:8.2f}{found[2]:13.2f}{found[3]:13.2f}")
    for shared in (False, True):
        score, train = (measure_nemo_rl(shared=shared, trains=trains) for trains in (False, True))
        print(f"{'NeMo RL, ' + ('shared' if shared else 'whole'):36}{'':22}{score:13.2f}{train:13.2f}")
    print(f"{'prime-rl, a piece':36}{'':35}{measure_prime_rl():13.2f}")


if __name__ == "__main__":
    main()
