"""Print bytes per logit at the peak of the loss of TRL's GKD, in forward and over the step, on a CPU.

The operations are those of generalized_jsd_loss in trl/trainer/gkd_trainer.py (v0.22.2; in v1.0.0
trl/experimental/gkd has the same):
logits of student and teacher divided by the temperature, their log-probabilities, for a coefficient between 0 and 1 the mixture
of both and its divergence from each, else one divergence; then what the labels keep of it. All tokens are taken as completion.

Usage: python benchmarks/distillation_logits.py  (needs torch)
"""

from __future__ import annotations

import torch
from policy_logits import BATCH, HIDDEN, LENGTH, VOCAB, Peak
from torch.nn.functional import kl_div, log_softmax


def diverge(student: torch.Tensor, teacher: torch.Tensor, share: float) -> torch.Tensor:
    """Return the generalised divergence with a coefficient."""
    student = student / 1.0
    teacher = teacher / 1.0
    ours, theirs = log_softmax(student, dim=-1), log_softmax(teacher, dim=-1)
    if share == 0:
        found = kl_div(ours, theirs, reduction="none", log_target=True)
    elif share == 1:
        found = kl_div(theirs, ours, reduction="none", log_target=True)
    else:
        beta = torch.tensor(share, dtype=ours.dtype)
        both = [ours + torch.log(1 - beta), theirs + torch.log(beta)]
        mixture = torch.logsumexp(torch.stack(both), dim=0)
        del both
        of_teacher = kl_div(mixture, theirs, reduction="none", log_target=True)
        of_student = kl_div(mixture, ours, reduction="none", log_target=True)
        found = beta * of_teacher + (1 - beta) * of_student
    mask = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    found = found[mask]
    return found.sum() / mask.sum()


def measure(share: float, *, cast: bool) -> tuple[float, float]:
    """Return bytes per logit at the peak of forward and of backward, with logits in 16 bits or cast to float32."""
    hidden = torch.randn(BATCH, LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    count = BATCH * LENGTH * VOCAB
    dtype = torch.float32 if cast else torch.bfloat16
    with Peak() as peak:
        student = (hidden @ head.t()).to(dtype)
        with torch.no_grad():
            teacher = (hidden @ head.t()).to(dtype)
        found = diverge(student, teacher, share)
        forward, peak.peak = peak.peak, peak.live
        found.backward()
    return forward / count, peak.peak / count


def main() -> None:
    """Print the table."""
    print(f"{'':24}{'forward':>8}{'backward':>9}")
    for cast in (False, True):
        for share in (0.5, 0.0, 1.0):
            forward, backward = measure(share, cast=cast)
            print(f"{'float32' if cast else '16-bit'} logits, beta {share:<4}{forward:8.2f}{backward:9.2f}")


if __name__ == "__main__":
    main()
