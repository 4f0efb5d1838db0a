"""DeepSpeed's `estimate_zero3_model_states_mem_needs`: parameters, gradients and optimizer states under ZeRO-3, per device.

It predicts model states and says so: no activations, no buckets, no context. Held against peaks its error is what a person sees
who takes it for the need of the run, not an error of its own claim. Its ZeRO-2 sister has no case among the reports.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.protocol import Inexpressible, Question, answer_all

if TYPE_CHECKING:
    from benchmarks.peers.runs import Run

NAME = "deepspeed"


def express(run: Run) -> Question | Inexpressible:
    """Put a run into its words."""
    if run.shape is None:
        return Inexpressible(run.inexpressible or "no model")
    if run.sharding != "zero3":
        return Inexpressible("ZeRO-2 and ZeRO-3 of DeepSpeed only")
    if run.adapter:
        return Inexpressible("trains all parameters")
    return Question(
        {
            "total_params": run.shape.parameters,
            "largest_layer_params": run.shape.largest_layer,
            "num_gpus_per_node": run.ranks_per_node,
            "num_nodes": run.ranks // run.ranks_per_node,
            "cpu_offload": run.offload_optimizer,
            "cpu_offload_params": run.offload_parameters,
        },
        (*run.besides, "activations"),
    )


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ask it; runs in its interpreter."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs  # noqa: PLC0415 (there only)

    _, device, _ = estimate_zero3_model_states_mem_needs(**inputs)
    return {"allocated": device, "verdict": None}


if __name__ == "__main__":
    answer_all(answer)
