"""Print bytes per logit at the peak of the losses of TRL's online trainers, in forward and over the step, on a CPU.

The operations are those of trl/trainer/online_dpo_trainer.py _forward (log-probabilities of two completions of a prompt at once),
xpo_trainer.py _compute_logprobs (of one completion after the other, both graphs kept) and nash_md_trainer.py (of one completion),
v0.24.0: logits of prompt and completion, of which the completion's part is taken as it lies, and their log-softmax, whole or row
by row (selective_log_softmax); a reference scores each completion without a graph behind the policy.

Usage: python benchmarks/online_logits.py  (needs torch)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from policy_logits import BATCH, HIDDEN, LENGTH, VOCAB, Peak
from torch.nn.functional import log_softmax

SHARES = (1.0, 0.5, 0.25)
"""Of a sequence's tokens, those of its completion."""


def take_whole(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities as Online DPO does, and XPO and Nash-MD up to 0.14."""
    return torch.take_along_dim(log_softmax(logits, dim=-1), index.unsqueeze(-1), dim=2).squeeze(-1)


def take_rows(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities as selective_log_softmax() does."""
    if logits.dtype == torch.float32:
        selected = torch.gather(logits, dim=-1, index=index.unsqueeze(-1)).squeeze(-1)
        return selected - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    rows = zip(logits, index, strict=True)
    return torch.stack([log_softmax(row, dim=-1).gather(-1, label.unsqueeze(-1)).squeeze(-1) for row, label in rows])


Take = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def measure(take: Take, *, passes: int, rows: int, share: float, cast: bool) -> tuple[float, float]:
    """Return bytes per logit at the peak of forward and over the step; logits of all passes are counted.

    Args:
        take: how log-probabilities are taken.
        passes: forward passes whose graphs are kept.
        rows: sequences of one of them.
        share: of a sequence's tokens, those of its completion.
        cast: whether the logits are float32.
    """
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    start = LENGTH - int(share * LENGTH)
    states = [torch.randn(rows, LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True) for _ in range(passes)]
    index = torch.zeros(rows, LENGTH - start, dtype=torch.long)

    def score(state: torch.Tensor) -> torch.Tensor:
        logits = (state @ head.t()).to(torch.float32 if cast else torch.bfloat16)
        return take(logits[:, max(0, start - 1) : LENGTH - 1 + (start == 0)], index).sum()

    count = passes * rows * LENGTH * VOCAB
    with Peak() as peak:
        found = sum(score(state) for state in states)
        with torch.no_grad():
            for state in states:
                score(state)
        forward = peak.peak
        found.backward()
    return forward / count, peak.peak / count


def main() -> None:
    """Print the table."""
    print(f"{'':46}{'forward':>8}{'step':>8}")
    for name, take, passes, rows in (
        ("Online DPO", take_whole, 1, 2 * BATCH),
        ("XPO up to 0.14", take_whole, 2, BATCH),
        ("XPO", take_rows, 2, BATCH),
        ("XPO, one prompt", take_rows, 2, 1),
        ("Nash-MD up to 0.14", take_whole, 1, BATCH),
        ("Nash-MD", take_rows, 1, BATCH),
        ("Nash-MD, one prompt", take_rows, 1, 1),
    ):
        for cast in (False, True):
            for share in SHARES:
                forward, step = measure(take, passes=passes, rows=rows, share=share, cast=cast)
                label = f"{name}, {'float32' if cast else '16-bit'}, {share:.0%} completion"
                print(f"{label:46}{forward:8.2f}{step:8.2f}")


if __name__ == "__main__":
    main()
