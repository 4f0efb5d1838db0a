"""Bytes that DeepSpeed ZeRO-3 holds between forward and backward, beyond the activations.

A stack of ``layers`` square linear layers without biases is run forward on ``world_size`` ranks, with each layer under
non-reentrant checkpointing or without it. What is live at the end of forward and was not before it is measured.

Prediction. Autograd saves each layer's input; the first input is there before. The outputs of all layers are alive, the
last because it is held: 2 bytes x layers x batch x hidden_size = activations. Weights are gathered one at a time and given
back, so nothing else is alive, if DeepSpeed's own linear is installed: it saves the parameter, not the gathered tensor.
torch's own saves the gathered tensor, and 2 bytes x parameters stay until backward. That is so with
``memory_efficient_linear`` false, and before 0.19.4 for every model built outside of ``zero.Init``
(https://github.com/deepspeedai/DeepSpeed/pull/8189). A checkpointed layer saves its input alone, the same activations, and no
weight whichever linear it is.

With ``adapters`` all these layers are frozen, and every second one, the first included, has an adapter of rank 8 beside it: two
trained linear layers more, which keep their inputs. torch's own linear saves no input for a frozen weight, so that the outputs in
front of layers without an adapter are freed. DeepSpeed's own saves every input: 2 bytes x layers // 2 x batch x hidden_size more.

With ``default_window`` the limits on live parameters and reuse distance are left at their defaults, a billion elements
each: a small model is then meant to stay gathered from forward to backward, 2 bytes x parameters.
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
    "zero_init": False,
    "memory_efficient_linear": True,
    "default_window": False,
    "checkpointing": False,
    "adapters": False,
    "layers": 6,
    "hidden_size": 256,
    "batch": 8,
}
SIZES = (
    {"layers": 6},
    {"layers": 4, "hidden_size": 512, "batch": 4},
    {"default_window": True},
    {"checkpointing": True},
    {"adapters": True},
    {"adapters": True, "layers": 4, "hidden_size": 512, "batch": 4},
)
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2)}
METRIC = "alive_after_forward_bytes"
_RANK = 8


def _adapted(parameters: Mapping[str, Any]) -> int:
    # older measurements do not state it
    return (int(parameters["layers"]) + 1) // 2 if parameters.get("adapters") else 0


def _elements(parameters: Mapping[str, Any]) -> int:
    hidden = parameters["hidden_size"]
    return int(parameters["layers"] * hidden**2 + _adapted(parameters) * 2 * hidden * _RANK)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the activations, and the weights where they are meant to stay."""
    adapted, checkpointing = _adapted(parameters), parameters["checkpointing"]
    torchs = not parameters["memory_efficient_linear"] and not checkpointing
    outputs = adapted if adapted and torchs else parameters["layers"]
    halves = 0 if checkpointing else adapted * _RANK
    activations = 2 * parameters["batch"] * (outputs * parameters["hidden_size"] + halves)
    stay = parameters["world_size"] > 1 and (parameters["default_window"] or torchs)
    return {"alive_after_forward_bytes": activations + (2 * _elements(parameters) if stay else 0)}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names; of adapted layers two are a block, one of them without an adapter."""
    adapters = {
        "training.peft": "lora",
        "training.lora_target_modules": ["first"],
        "training.frozen_inputs": parameters["hidden_size"],
        "training.sequence_length": 1,
        "training.micro_batch_size": parameters["batch"],
        "model.num_hidden_layers": parameters["layers"] // 2,
        "model.hidden_size": parameters["hidden_size"],
        "model.num_attention_heads": 1,
        "model.head_dim": parameters["hidden_size"],
        "program.makes_logits": False,
    }
    return {
        **(adapters if parameters.get("adapters") else {}),
        "model.parameters": _elements(parameters),
        "model.parameters_in_blocks": _elements(parameters),
        "model.embedding_parameters": 0,
        "model.tie_word_embeddings": False,
        "training.zero_stage": 3,
        "training.param_dtype": "bfloat16",
        "training.gradient_checkpointing": parameters["checkpointing"],
        "training.use_reentrant": False,
        "training.zero_init": parameters["zero_init"],
        "training.memory_efficient_linear": parameters["memory_efficient_linear"],
        "training.max_reuse_distance": 10**9 if parameters["default_window"] else 0,
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train two steps and measure around the second forward."""
    import contextlib

    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    deepspeed = recorder.deepspeed()
    hidden, checkpointing = parameters["hidden_size"], parameters["checkpointing"]

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(hidden, hidden, bias=False)
            self.first, self.second = nn.Linear(hidden, _RANK, bias=False), nn.Linear(_RANK, hidden, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.base(x) + self.second(self.first(x))
            return found

    def layer(index: int) -> nn.Module:
        if not parameters["adapters"]:
            return nn.Linear(hidden, hidden, bias=False)
        made = Adapted() if index % 2 == 0 else nn.Linear(hidden, hidden, bias=False)
        (made.base if isinstance(made, Adapted) else made).weight.requires_grad_(requires_grad=False)
        return made

    class Stack(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for one in self:
                # Without the state of the random generator, 5 KB for each layer.
                x = checkpoint(one, x, use_reentrant=False, preserve_rng_state=False) if checkpointing else one(x)
            return x

    zero: dict[str, Any] = {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "reduce_bucket_size": _elements(parameters),
        "overlap_comm": False,
        "memory_efficient_linear": parameters["memory_efficient_linear"],
    }
    if not parameters["default_window"]:
        zero.update(stage3_max_live_parameters=0, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0)
    configuration = {
        "train_micro_batch_size_per_gpu": parameters["batch"],
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": zero,
    }
    built: Any = contextlib.nullcontext()
    if parameters["zero_init"]:
        built = deepspeed.zero.Init(config_dict_or_path=configuration, dtype=torch.bfloat16)
    with recorder.phase("load"):
        with built:
            layers = [layer(index) for index in range(parameters["layers"])]
        model = Stack(*layers) if parameters["zero_init"] else Stack(*layers).bfloat16()
        del layers
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4, foreach=False)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
    inputs = torch.randn(parameters["batch"], hidden, dtype=torch.bfloat16, requires_grad=True)
    for _ in range(2):
        inputs.grad = None
        before = recorder.live_bytes()
        with recorder.phase("forward"):
            output = engine(inputs)
        after = recorder.live_bytes()
        with recorder.phase("backward"):
            loss = output.float().sum()
            del output
            engine.backward(loss)
            del loss
        with recorder.phase("step"):
            engine.step()
    recorder.result("alive_after_forward_bytes", after - before)
    installed = "deepspeed" in getattr(nn.functional.linear, "__module__", "")
    recorder.note(f"torch.nn.functional.linear is {'DeepSpeed' if installed else 'torch'}'s own")
