"""Print bytes per logit at the peak of what slime, ROLL and nanotron make of logits, forward and backward, on a CPU.

The functions are the programs' own, taken from checkouts (slime 624b824a, ROLL 8eb27cc2, nanotron 2411b022) without importing
them: a group of one rank stands for their parallel state.

Usage: python benchmarks/checkout_losses.py SLIME ROLL NANOTRON  (directories; needs torch)
"""

# ruff: noqa: S102 (the checkouts are named by who runs this)
from __future__ import annotations

import ast
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 (as the sources have it)
from policy_logits import HIDDEN, VOCAB, Peak

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = 256
PARALLEL = types.SimpleNamespace(
    get_tensor_model_parallel_rank=lambda: 0,
    get_tensor_model_parallel_world_size=lambda: 2,
    get_tensor_model_parallel_group=lambda: dist.group.WORLD,
)


def take(path: Path, *names: str) -> dict[str, Any]:
    """Define some classes and functions of a file, and nothing else of it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [
        *ast.parse("from __future__ import annotations").body,
        *(node for node in tree.body if getattr(node, "name", None) in names),
    ]
    found: dict[str, Any] = {"torch": torch, "dist": dist, "F": F, "mpu": PARALLEL}
    exec(compile(tree, str(path), "exec"), found)
    return found


def measure(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *, trains: bool, holds: bool) -> str:
    """Return bytes per logit at the peak of forward, and of backward where the loss trains; the loop may hold the logits."""
    hidden = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with Peak() as peak, torch.set_grad_enabled(trains):
        held = [hidden @ head.t()]
        found = loss(held[0] if holds else held.pop(), torch.randint(0, VOCAB, (TOKENS,))).sum()
        peaks = [peak.peak]
        if trains:
            peak.peak = peak.live
            found.backward()
            peaks.append(peak.peak)
    return "".join(f"{one / TOKENS / VOCAB:10.2f}" for one in peaks)


def main(slime: str, roll: str, nanotron: str) -> None:
    """Print the table."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29631")
    dist.init_process_group("gloo", rank=0, world_size=1)
    group = dist.group.WORLD
    names = ("_VocabParallelLogProbEntropy", "_get_vocab_parallel_rank_size", "_maybe_all_reduce")
    of_slime = take(Path(slime, "slime/utils/ppo_utils.py"), *names)[names[0]].apply
    path = "mcore_adapter/src/mcore_adapter/parallel_functions/vocab_parallel.py"
    names = ("_VocabParallelLogProbs", "_VocabParallelHelper", "VocabUtility")
    of_megatron = take(Path(roll, path), *names)[names[0]].apply
    of_roll = take(Path(roll, "roll/utils/functionals.py"), "log_probs_from_logits", "entropy_from_logits")
    path = "roll/third_party/megatron/tensor_parallel.py"
    torch.compile = lambda **_: lambda function: function  # type: ignore[assignment, misc]
    of_entropy = take(Path(roll, path), "_VocabParallelEntropy")["_VocabParallelEntropy"].apply
    path = "src/nanotron/parallel/tensor_parallel/functional.py"
    of_nanotron = take(Path(nanotron, path), "_ShardedCrossEntropy")["_ShardedCrossEntropy"].apply
    single, entropy = of_roll["log_probs_from_logits"], of_roll["entropy_from_logits"]

    def ask_slime(logits: torch.Tensor, target: torch.Tensor, *, entropy: bool) -> torch.Tensor:
        found: tuple[torch.Tensor, torch.Tensor] = of_slime(logits.float(), target, None, None, entropy, entropy)
        return found[0].squeeze(-1) + found[1] if entropy else found[0]

    def ask_roll(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = of_megatron(logits[None], target[None], False)
        return found + of_entropy(logits[None], False, False)

    cases: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], bool, bool]] = {
        "slime (2 of forward are the caller's)": (lambda x, y: ask_slime(x, y, entropy=False), True, False),
        "slime, entropy (4 of forward: CPU)": (lambda x, y: ask_slime(x, y, entropy=True), True, False),
        "ROLL on Megatron": (lambda x, y: of_megatron(x[None], y[None], False), True, False),
        "ROLL on Megatron, entropy (2 of forward: CPU)": (ask_roll, True, False),
        "ROLL on Megatron, scoring (2: CPU)": (ask_roll, False, False),
        "ROLL on FSDP2": (single, True, True),
        "ROLL on FSDP2, entropy": (lambda x, y: single(x, y) + entropy(x), True, True),
        "ROLL on FSDP2, scoring": (lambda x, y: single(x, y) + entropy(x), False, True),
        "nanotron": (lambda x, y: of_nanotron(x.float()[None], y[None], group), True, False),
    }
    print(f"{'':48}{'forward':>10}{'backward':>10}")
    for name, (loss, trains, holds) in cases.items():
        print(f"{name:48}{measure(loss, trains=trains, holds=holds)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
