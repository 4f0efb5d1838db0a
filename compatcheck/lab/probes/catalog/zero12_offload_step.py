"""Bytes that a step of DeepSpeed ZeRO-1/2 with the optimizer on the host takes on the device for a moment.

An engine with `offload_optimizer` on the CPU is trained around a stack of linear layers, and its step is watched. On CUDA
the rise of the allocator's peak during the step is measured. On a CPU host and device are the same memory and `Tensor.to`
of the device returns its own tensor: there each `Tensor.to` that names the device is made to copy, as it would between two
memories, and the copies alive at once are counted (tensors of one element, norms and flags, aside).

Prediction. The updated float32 partition is cast into a 16-bit buffer on the host and that is copied into the weights in
place: nothing is allocated on the device, ``device_transient_bytes`` = 0. From 0.14.1 to 0.16.9 the float32 partition
itself is copied to the device first, 4 bytes x parameters / world_size
(https://github.com/deepspeedai/DeepSpeed/pull/7309). The host side of the fix, ``host_buffer_bytes`` = 2 bytes x parameters
/ world_size, is what the engine holds under ``param_buffer_of_bit16_for_cpu_offload_groups``. Never run on CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("deepspeed",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "allocator"
DEFAULTS: Mapping[str, Any] = {"world_size": 1, "zero_stage": 2, "layers": 4, "hidden_size": 256}
SIZES = ({"zero_stage": 2}, {"zero_stage": 1, "layers": 6, "hidden_size": 128})
CHOICES: Mapping[str, tuple[Any, ...]] = {"zero_stage": (1, 2)}
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2)}
METRIC = "device_transient_bytes"


def _elements(parameters: Mapping[str, Any]) -> int:
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return nothing on the device, and the host buffer of the releases that are healthy."""
    return {
        "device_transient_bytes": 0,
        "host_buffer_bytes": 2 * _elements(parameters) // parameters["world_size"],
    }


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return room for norms and flags, which CUDA rounds up to 512 bytes each; half of the smallest copy at the most."""
    return min(64 * 1024, 2 * _elements(parameters) // parameters["world_size"])


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    return {
        "model.parameters": _elements(parameters),
        "model.trainable_parameters": _elements(parameters),
        "training.zero_stage": parameters["zero_stage"],
        "training.param_dtype": "bfloat16",
        "training.offload_optimizer": "cpu",
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Train two steps and watch the second."""
    import weakref

    import torch
    from torch import nn
    from torch.overrides import TorchFunctionMode

    deepspeed = recorder.deepspeed()
    hidden = parameters["hidden_size"]
    layers = (nn.Linear(hidden, hidden, bias=False) for _ in range(parameters["layers"]))
    model = nn.Sequential(*layers).bfloat16().to(recorder.device)
    configuration = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": parameters["zero_stage"],
            "reduce_bucket_size": _elements(parameters),
            "overlap_comm": False,
            "offload_optimizer": {"device": "cpu"},
        },
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    with recorder.phase("load"):
        engine, wrapped, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
    accelerator = deepspeed.get_accelerator() if hasattr(deepspeed, "get_accelerator") else None
    name = accelerator.current_device_name() if accelerator is not None else recorder.device
    live, most = 0, 0

    class Transfers(TorchFunctionMode):
        """Makes `Tensor.to(device)` copy, and counts the copies that are alive."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal live, most
            kwargs = dict(kwargs or {})
            wanted = kwargs.get("device", args[1] if len(args) > 1 else None)
            named = isinstance(wanted, (str, torch.device)) and str(wanted) == str(name)
            if func is not torch.Tensor.to or not named or args[0].numel() <= 1:
                return func(*args, **kwargs)
            copied = func(*args, **{**kwargs, "copy": True})
            bytes_ = copied.untyped_storage().nbytes()

            def forget(_: Any = None) -> None:
                nonlocal live
                live -= bytes_

            weakref.finalize(copied.untyped_storage(), forget)
            live += bytes_
            most = max(most, live)
            return copied

    for last in (False, True):
        inputs = torch.randn(2, hidden, dtype=torch.bfloat16, device=recorder.device, requires_grad=True)
        with recorder.phase("backward"):
            engine.backward(engine(inputs).float().sum())
        with recorder.phase("step"):
            if not last or recorder.backend == "cuda":
                _, peak, _ = recorder.measure(engine.step)
            else:
                with Transfers():
                    engine.step()
    recorder.result("device_transient_bytes", most if recorder.backend == "cpu" else max(0, peak))
    buffers = getattr(wrapped, "param_buffer_of_bit16_for_cpu_offload_groups", ())
    recorder.result("host_buffer_bytes", sum(buffer.numel() * buffer.element_size() for buffer in buffers))
