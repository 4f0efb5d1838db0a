"""Parameters that DeepSpeed ZeRO-3 keeps gathered during and after the backward pass.

A plain decoder of ``layers`` blocks is trained on ``world_size`` ranks. Stage 3 gathers a module's parameters before its
forward and backward and gives them back after; prefetch, reuse and persistence are set to nothing, so that a healthy release
holds one block at a time.

Prediction. After backward only the embedding is still gathered: its input, the tokens, has no gradient, so no hook marks the end
of its backward, and it stays until the step. `kept_bytes`, 2 bytes for each parameter still available, is therefore
2 x vocab_size x hidden_size. With checkpointing the backward pass runs each block's forward once more, which must not change
that. A release that does not give parameters back after backward keeps 2 bytes x parameters in blocks on top, whatever the
number of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.probes.worker.recorder import Recorder

PACKAGES = ("deepspeed",)
BACKENDS = ("cpu",)
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {
    "world_size": 2,
    "zero_stage": 3,
    "checkpointing": "non-reentrant",
    "no_grad_forward": "none",
    "layers": 12,
    "hidden_size": 256,
    "vocab_size": 512,
    "sequence_length": 64,
    "steps": 3,
}
SIZES = ({"layers": 4}, {"layers": 6, "hidden_size": 128}, {"layers": 4, "checkpointing": "none"})
METRIC = "kept_bytes"


def _block(parameters: Mapping[str, Any]) -> int:
    hidden = parameters["hidden_size"]
    return int(16 * hidden * hidden + 2 * hidden)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes of the embedding."""
    return {"kept_bytes": 2 * parameters["vocab_size"] * parameters["hidden_size"]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return the bytes of one block: the last one gathered may still be there."""
    return 2 * _block(parameters)


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    blocks = _block(parameters) * parameters["layers"]
    return {
        "model.parameters_in_blocks": blocks,
        "model.parameters": blocks + 2 * parameters["vocab_size"] * parameters["hidden_size"],
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
    checkpointing, pattern = parameters["checkpointing"], parameters["no_grad_forward"]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden, bias=False), nn.LayerNorm(hidden, bias=False)
            self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(hidden, 4 * hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(4 * hidden, hidden, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm1(x)
            q, k, v = (layer(h).view(1, length, 4, hidden // 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(attended.transpose(1, 2).reshape(1, length, hidden))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocab, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(parameters["layers"]))
            self.head = nn.Linear(hidden, vocab, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
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
            "train_micro_batch_size_per_gpu": 1,
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
    tokens = torch.randint(0, vocab, (1, length))
    for _ in range(parameters["steps"]):
        most = 0
        before = recorder.live_bytes()
        with recorder.phase("forward"):
            if pattern == "before":
                with torch.no_grad():
                    engine(tokens)
            logits = engine(tokens)
            loss = F.cross_entropy(logits.float().view(-1, vocab), tokens.view(-1))
            if pattern == "between":
                with torch.no_grad():
                    loss = loss - F.cross_entropy(engine(tokens).float().view(-1, vocab), tokens.view(-1))
            del logits
        with recorder.phase("backward"):
            engine.backward(loss)
            del loss
        after, kept = recorder.live_bytes(), gathered()
        counters = sum(1 for module in model.modules() if getattr(module, "ds_grads_remaining", 0) != 0)
        with recorder.phase("step"):
            engine.step()
    recorder.result("gathered_in_backward_bytes", 2 * most)
    recorder.result("kept_bytes", 2 * kept)
    recorder.result("backward_growth_bytes", after - before)
    recorder.result("modules_with_open_counters", counters)
