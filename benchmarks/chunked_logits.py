"""Print bytes per logit at the peak of losses that take the logits in chunks of tokens, forward and with backward, on a CPU.

SkyRL on FSDP (skyrl/backends/skyrl_train/utils/torch_utils.py, workers/model_wrapper.py at a9564572): log-probabilities by
flash-attn's kernel, whose gradient takes the place of the logits, and in training the entropy of one chunk after the other, its
log-softmax in float32 as autocast takes it; without a coefficient under ``no_grad``. On Megatron
(distributed/megatron/model_utils.py, ChunkedDistributedLogprob, after NeMo-Aligner's): the model's wrapper has cast the logits to
float32 (Float16Module, megatron/core/transformer/module.py), and in backward there is a float32 gradient of all.

AReaL (areal/utils/functional/vocab_parallel.py at 4aef98d8) slices the logits: a chunk's log-probabilities and entropy are
compiled, and keep its slice alone; where ranks split the vocabulary they are a function that keeps a float32 softmax. The
gradient of a slice is as large as all logits. Kernels are replaced by what they allocate; that the compiled function keeps no
more than its slice was seen of torch 2.13 on a CPU (``grad_fn.saved_tensors``).

torchtune's LinearCrossEntropyLoss (torchtune/modules/loss/cross_entropy_loss.py at 0.7.0) multiplies one chunk of hidden states
after the other by the head; the graph keeps float32 log-probabilities of all.

Usage: python benchmarks/chunked_logits.py  (needs torch)
"""

# ruff: noqa: ANN401 (signatures are torch's own)
from __future__ import annotations

from typing import Any

import torch
from policy_logits import HIDDEN, Kernel, Peak

TOKENS, VOCAB = 256, 20000
CASES = (
    "FSDP, entropy without gradient",
    "FSDP, entropy with gradient",
    "FSDP, no entropy",
    "Megatron",
    "AReaL on FSDP",
    "AReaL on FSDP, vocabulary split",
    "AReaL on Megatron",
    "AReaL on Megatron, vocabulary split",
    "torchtune, head in the loss",
)


class Chunked(torch.autograd.Function):
    """Log-probabilities of chunks, and their gradient in float32."""

    @staticmethod
    def forward(context: Any, logits: torch.Tensor, chunk: int) -> torch.Tensor:
        """Keep the logits."""
        context.save_for_backward(logits)
        context.chunk = chunk
        return torch.cat([torch.log_softmax(part.float(), -1)[:, 0].clone() for part in logits.split(chunk)])

    @staticmethod
    def backward(context: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Fill a float32 gradient of all tokens, chunk by chunk."""
        (logits,) = context.saved_tensors
        whole = torch.empty(logits.shape, dtype=torch.float32)
        for index, part in enumerate(logits.split(context.chunk)):
            place = slice(index * context.chunk, index * context.chunk + len(part))
            whole[place] = torch.log_softmax(part.float(), -1).exp_().neg_().mul_(grads[0][place].unsqueeze(-1))
        return whole, None


class Softmax(torch.autograd.Function):
    """Log-probabilities and entropy of a float32 chunk, of which the softmax is kept."""

    @staticmethod
    def forward(context: Any, logits: torch.Tensor) -> torch.Tensor:
        """Keep the softmax."""
        shifted = logits - logits.max(-1, keepdim=True).values
        chances = shifted.exp()
        chances.div_(chances.sum(-1, keepdim=True))
        found = (chances * logits).sum(-1)
        context.save_for_backward(chances)
        return found

    @staticmethod
    def backward(context: Any, *grads: torch.Tensor) -> torch.Tensor:
        """Make the gradient of the entropy, then that of the log-probabilities."""
        (chances,) = context.saved_tensors
        found: torch.Tensor = chances * grads[0].unsqueeze(-1)
        found.sub_(torch.xlogy(chances, chances))
        found.sub_(chances * grads[0].unsqueeze(-1))
        return found


def take_entropy(logits: torch.Tensor, chunk: int) -> torch.Tensor:
    """Sum the entropies of all chunks."""
    found = torch.zeros(())
    for start in range(0, len(logits), chunk):
        log = torch.log_softmax(logits[start : start + chunk].float(), -1)
        found = found - (log.exp() * log).sum()
    return found


def take_loss(hidden: torch.Tensor, head: torch.Tensor, chunk: int) -> torch.Tensor:
    """Sum the cross-entropies of all chunks of hidden states."""

    def of_one(part: torch.Tensor) -> torch.Tensor:
        logits = part @ head.t()
        labels = torch.zeros(len(part), dtype=torch.long)
        return torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")

    found = torch.zeros(())
    for part in hidden.split(chunk):
        found = found + of_one(part)
    return found


def measure(case: str, chunk: int, *, trains: bool) -> float:
    """Return bytes per logit of all tokens at the peak."""
    hidden = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    with Peak() as peak, torch.set_grad_enabled(trains):
        if case.startswith("torchtune"):
            found = take_loss(hidden, head, chunk)
            if trains:
                found.backward()
            return peak.peak / (TOKENS * VOCAB)
        logits = hidden @ head.t()
        if "Megatron" in case:
            logits = logits.float()
        if case.startswith("AReaL"):
            parts = (logits[start : start + chunk] for start in range(0, TOKENS, chunk))
            whole = "split" not in case
            found = torch.cat(
                [Kernel.apply(part, False) if whole else Softmax.apply(part.float()) for part in parts]
            ).sum()
        elif case == "Megatron":
            logits.div_(1.0)
            found = Chunked.apply(logits, chunk).sum()
        else:
            logits.div_(1.0)
            found = Kernel.apply(logits, "with gradient" not in case).sum()
            if trains and "no entropy" not in case:
                with torch.set_grad_enabled("with gradient" in case):
                    entropy = take_entropy(logits, chunk)
                found = found + (entropy if "with gradient" in case else 0)
        if trains:
            found.backward()
    return peak.peak / (TOKENS * VOCAB)


def main() -> None:
    """Print the table."""
    print(f"{'':38}{'chunk':>7}{'score':>8}{'train':>8}")
    for case in CASES:
        for parts in (1, 8, 32):
            found = [measure(case, TOKENS // parts, trains=trains) for trains in (False, True)]
            print(f"{case:38}{f'1/{parts}':>7}{found[0]:8.2f}{found[1]:8.2f}")


if __name__ == "__main__":
    main()
