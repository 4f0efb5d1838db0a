"""Bytes that DeepSpeed ZeRO-3 still holds after the backward pass, and parameters it holds gathered during it.

A plain decoder of ``layers`` blocks and an output projection is trained on ``world_size`` ranks. Stage 3 gathers a module's
parameters before its forward and backward and gives them back after; prefetch, reuse and persistence are set to nothing, so
that a healthy release holds one matrix at a time. Hidden states that need a gradient go in instead of tokens: the end of an
embedding's backward is marked by no hook, and releases before 0.19.3 keep it until the step, which is not the question
here.

Prediction. Gradients go into flat partitions that exist since the engine was made, activations are freed as backward
consumes them, and every gathered parameter is given back: what is live after backward is what was live before forward,
``alive_after_backward_bytes`` = 0, with any checkpointing and whether or not a second forward ran under ``no_grad``. While
backward runs, the largest single parameter is the most that is gathered when a gradient is ready: 2 bytes x max(4 x
hidden_size², vocab_size x hidden_size) = ``gathered_in_backward_bytes``. At stage 2 parameters are not sharded and the
gradients of a rank's share are kept until the step, 2 bytes x parameters / world_size; the reduction buffer, one element
per parameter of a block, may be there as well.

A release that forgets parameters keeps 2 bytes x their number on top, whatever the number of ranks: all blocks under
non-reentrant checkpointing in 0.16.0 to 0.16.7 (https://github.com/deepspeedai/DeepSpeed/pull/7258), the whole model
without checkpointing where a forward under ``no_grad`` runs between forward and backward in other releases
(https://github.com/deepspeedai/DeepSpeed/pull/6726). Since 0.19.3 what is left over is released when backward ends, so the
second case shows in ``gathered_in_backward_bytes`` only (https://github.com/deepspeedai/DeepSpeed/pull/8148).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("deepspeed",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 2,
    "zero_stage": 3,
    "checkpointing": "non-reentrant",
    "no_grad_forward": "none",
    "layers": 4,
    "hidden_size": 256,
    "vocab_size": 512,
    "sequence_length": 64,
    "batch": 2,
    "steps": 2,
}
SIZES = ({"layers": 4}, {"layers": 6, "hidden_size": 128, "checkpointing": "none"})
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "zero_stage": (2, 3),
    "checkpointing": ("none", "reentrant", "non-reentrant"),
    "no_grad_forward": ("none", "before", "between"),
}
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2)}
METRIC = "alive_after_backward_bytes"
_LOSSES = 64


def _block(parameters: Mapping[str, Any]) -> int:
    hidden = parameters["hidden_size"]
    return int(16 * hidden * hidden + 2 * hidden)


def _model(parameters: Mapping[str, Any]) -> int:
    return int(_block(parameters) * parameters["layers"] + parameters["vocab_size"] * parameters["hidden_size"])


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return what a healthy release holds after backward, and the most it holds gathered during it."""
    if parameters["zero_stage"] != 3:
        return {"alive_after_backward_bytes": 2 * _model(parameters) // parameters["world_size"]}
    hidden = parameters["hidden_size"]
    return {
        "alive_after_backward_bytes": 0,
        "gathered_in_backward_bytes": 2 * max(4 * hidden * hidden, parameters["vocab_size"] * hidden),
        "kept_parameter_bytes": 0,
        "modules_with_open_counters": 0,
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return the losses that some releases keep for their log; at stage 2 the reduction buffer too, which may be there."""
    return _LOSSES if parameters["zero_stage"] == 3 else 2 * _block(parameters)


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.parameters_in_blocks": _block(parameters) * parameters["layers"],
        "model.parameters": _model(parameters),
        "model.embedding_parameters": 0,
        "model.tie_word_embeddings": False,
        "training.zero_stage": parameters["zero_stage"],
        "training.param_dtype": "bfloat16",
        "training.gradient_checkpointing": parameters["checkpointing"] != "none",
        "training.use_reentrant": parameters["checkpointing"] == "reentrant",
        "hardware.world_size": parameters["world_size"],
        "run.no_grad_forward_between": parameters["no_grad_forward"] == "between",
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train a few steps; the last one counts."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (the name everyone uses)
    import torch.utils.checkpoint
    from torch import nn

    deepspeed = recorder.deepspeed()
    hidden, vocab, length = parameters["hidden_size"], parameters["vocab_size"], parameters["sequence_length"]
    batch, checkpointing, pattern = parameters["batch"], parameters["checkpointing"], parameters["no_grad_forward"]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden, bias=False), nn.LayerNorm(hidden, bias=False)
            self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(hidden, 4 * hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(4 * hidden, hidden, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm1(x)
            q, k, v = (
                layer(h).view(batch, length, 4, hidden // 4).transpose(1, 2) for layer in (self.q, self.k, self.v)
            )
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(attended.transpose(1, 2).reshape(batch, length, hidden))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(parameters["layers"]))
            self.head = nn.Linear(hidden, vocab, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                if checkpointing == "none" or not torch.is_grad_enabled():
                    x = block(x)
                else:
                    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=checkpointing == "reentrant")
            return self.head(x)

    with recorder.phase("load"):
        model = Model().bfloat16()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
        configuration = {
            "train_micro_batch_size_per_gpu": batch,
            "bf16": {"enabled": True},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {
                "stage": parameters["zero_stage"],
                # A model this small would stay gathered for good, and prefetching would blur the count.
                "stage3_param_persistence_threshold": 0,
                "stage3_max_live_parameters": 0,
                "stage3_max_reuse_distance": 0,
                "stage3_prefetch_bucket_size": 0,
                "reduce_bucket_size": _block(parameters),
                "overlap_comm": False,
            },
        }
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)

    weights = list(model.parameters())

    def gathered() -> int:
        return sum(
            getattr(weight, "ds_numel", 0)
            for weight in weights
            if str(getattr(weight, "ds_status", "")).endswith("ZeroParamStatus.AVAILABLE")
        )

    most = 0

    def watch(_: Any) -> None:
        nonlocal most
        most = max(most, gathered())

    for weight in weights:
        weight.register_post_accumulate_grad_hook(watch)
    states = torch.randn(batch, length, hidden, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, vocab, (batch * length,))

    def loss_of_forward() -> Any:
        return F.cross_entropy(engine(states).float().view(-1, vocab), targets)

    for _ in range(parameters["steps"]):
        states.grad, most = None, 0
        before = recorder.live_bytes()
        with recorder.phase("forward"):
            if pattern == "before":
                with torch.no_grad():
                    loss_of_forward()
            loss = loss_of_forward()
            if pattern == "between":
                with torch.no_grad():
                    reference = loss_of_forward()
                loss = loss - reference
                del reference
        with recorder.phase("backward"):
            engine.backward(loss)
            del loss
            states.grad = None
        after, kept = recorder.live_bytes(), gathered()
        counters = sum(1 for module in model.modules() if getattr(module, "ds_grads_remaining", 0) != 0)
        with recorder.phase("step"):
            engine.step()
    recorder.result("alive_after_backward_bytes", after - before)
    if parameters["zero_stage"] == 3:
        recorder.result("gathered_in_backward_bytes", 2 * most)
        recorder.result("kept_parameter_bytes", 2 * kept)
        recorder.result("modules_with_open_counters", counters)
