"""Print bytes per logit at the peak of LLaMA-Factory's DPO, in forward and over the step, on a CPU.

The operations are those of src/llamafactory/train/dpo/trainer.py and train/trainer_utils.py (v0.8.3 to v0.9.5): the policy's
logits in float32, which stay for the metrics; log_softmax of all but the last token; the same for the reference without a
graph; then the loss, whose backward starts when the metrics have let go of the logits. log_softmax on a GPU copies logits that
are not contiguous first (aten/src/ATen/native/cuda/SoftMax.cu, host_softmax), which a CPU does without a tensor of its own:
the copy is made explicit here.

Usage: python benchmarks/preference_logits.py  (needs torch)
"""

from __future__ import annotations

import torch
from policy_logits import BATCH, HIDDEN, LENGTH, VOCAB, Peak


def log_probabilities(hidden: torch.Tensor, head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities of the labels, and the logits."""
    logits = (hidden @ head.t()).to(torch.float32)
    labels = torch.zeros(BATCH, LENGTH - 1, 1, dtype=torch.long)
    chances = logits[:, :-1, :].contiguous().log_softmax(-1)
    return torch.gather(chances, 2, labels).squeeze(2).sum(-1), logits


def loss(hidden: torch.Tensor, head: torch.Tensor, *, reference: bool) -> torch.Tensor:
    """Compute the loss as get_batch_loss_metrics does; the logits end with it."""
    policy, logits = log_probabilities(hidden, head)
    beside: torch.Tensor | float = 0.0
    if reference:
        with torch.no_grad():
            beside = log_probabilities(hidden, head)[0]
    logits.detach().mean()
    return (policy - beside).mean()


def measure(*, reference: bool) -> tuple[float, float]:
    """Return bytes per logit at the peak of forward and of backward."""
    hidden = torch.randn(BATCH, LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    count = BATCH * LENGTH * VOCAB
    with Peak() as peak:
        found = loss(hidden, head, reference=reference)
        forward, peak.peak = peak.peak, peak.live
        found.backward()
    return forward / count, peak.peak / count


def main() -> None:
    """Print the table."""
    print(f"{'':20}{'forward':>8}{'backward':>9}")
    for name, reference in (("with a reference", True), ("without", False)):
        forward, backward = measure(reference=reference)
        print(f"{name:20}{forward:8.2f}{backward:9.2f}")


if __name__ == "__main__":
    main()
