"""Static bytes per parameter of DeepSpeed ZeRO-3: weights, float32 master copy, optimizer states, gradients, buckets.

Two stacks of square linear layers, one twice as deep as the other, are each given an engine and trained for two steps in
one process; what each leaves alive on a rank is measured with gradients consumed and activations gone. The difference
belongs to the parameters of the deeper half: constants cancel.

Prediction, bytes per parameter of a rank's share (parameters / world_size):

===================  =======  ======  ====  ========  =====
weights              weights  master  Adam  gradient  sum
===================  =======  ======  ====  ========  =====
bfloat16             2        4       8     2         16
float32              4        shared  8     4         16
autocast             4        shared  8     4         16
bfloat16-masters     2        shared  4     2         8
===================  =======  ======  ====  ========  =====

plus one reduction bucket of ``bucket_share`` elements per parameter, in the gradient's dtype (bfloat16 under autocast),
which is not sharded. Weights that already have the master's dtype need no copy of it: only 0.18.2 shares them
(https://github.com/deepspeedai/DeepSpeed/pull/7651; lost in https://github.com/deepspeedai/DeepSpeed/pull/7700, where a
device is compared with a string). Every other release holds 4 bytes x parameters / world_size more (2 with bfloat16
masters). With ``persistent`` no parameter is ever given back: the whole weights, 2 or 4 bytes x parameters, stay beside a
rank's share.
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
    "world_size": 1,
    "weights": "float32",
    "layers": 6,
    "hidden_size": 256,
    "bucket_share": 1,
    "overlap_comm": False,
    "persistent": False,
}
SIZES = ({"weights": "bfloat16"}, {"weights": "bfloat16", "layers": 4, "hidden_size": 512, "bucket_share": 2})
CHOICES: Mapping[str, tuple[Any, ...]] = {"weights": ("bfloat16", "float32", "autocast", "bfloat16-masters")}
VARIED: Mapping[str, tuple[Any, ...]] = {"world_size": (1, 2)}
METRIC = "static_bytes"
_ELEMENT = {"bfloat16": 2, "float32": 4, "autocast": 4, "bfloat16-masters": 2}
_STATES = {"bfloat16": 4 + 8 + 2, "float32": 8 + 4, "autocast": 8 + 4, "bfloat16-masters": 4 + 2}
_BUCKET = {"bfloat16": 2, "float32": 4, "autocast": 2, "bfloat16-masters": 2}


def _elements(parameters: Mapping[str, Any]) -> int:
    """Return the parameters of the shallower stack, which are those that the deeper one has more."""
    return int(parameters["layers"] * parameters["hidden_size"] ** 2)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the bytes that the parameters of the deeper half take on a rank."""
    weights, elements, ranks = parameters["weights"], _elements(parameters), parameters["world_size"]
    static = (_ELEMENT[weights] + _STATES[weights]) * elements // ranks
    static += _BUCKET[weights] * elements * parameters["bucket_share"]
    if parameters["persistent"] and ranks > 1:
        static += _ELEMENT[weights] * elements
    return {"static_bytes": static}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: constants cancel."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    elements = _elements(parameters)
    return {
        "model.parameters": elements,
        "model.trainable_parameters": elements,
        "model.parameters_in_blocks": elements,
        "training.zero_stage": 3,
        "training.param_dtype": "float32" if _ELEMENT[parameters["weights"]] == 4 else "bfloat16",
        "training.reduce_bucket_size": elements * parameters["bucket_share"],
        "training.contiguous_gradients": True,
        "training.overlap_comm": parameters["overlap_comm"],
        "training.offload_optimizer": None,
        "training.offload_param": None,
        "hardware.world_size": parameters["world_size"],
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Build two engines, train each for two steps, and take the difference of what they keep."""
    import torch
    from torch import nn

    deepspeed = recorder.deepspeed()
    hidden, weights = parameters["hidden_size"], parameters["weights"]
    sixteen = _ELEMENT[weights] == 2
    dtype = torch.bfloat16 if sixteen else torch.float32
    settings: dict[str, Any] = {}
    if sixteen:
        settings["bf16"] = {"enabled": True}
    if weights == "bfloat16-masters":
        settings["bf16"].update(bf16_master_weights_and_grads=True, bf16_optimizer_states=True)
        _require(recorder, "bf16_master_weights_and_grads", "deepspeed >= 0.18.3")
    if weights == "autocast":
        settings["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}
        _require(recorder, "torch_autocast", "deepspeed >= 0.17.2")
    # The first product of a shape makes oneDNN keep scratch memory for good.
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=weights == "autocast"):
        warm = nn.Linear(hidden, hidden, bias=False).to(dtype)
        warm(torch.randn(2, hidden, dtype=dtype, requires_grad=True)).float().sum().backward()
    del warm
    kept = []
    grown = []
    for depth in (parameters["layers"], 2 * parameters["layers"]):
        before = recorder.live_bytes()
        model = nn.Sequential(*(nn.Linear(hidden, hidden, bias=False) for _ in range(depth))).to(dtype)
        elements = depth * hidden * hidden
        configuration = {
            "train_micro_batch_size_per_gpu": 2,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            **settings,
            "zero_optimization": {
                "stage": 3,
                "stage3_param_persistence_threshold": 2 * hidden * hidden if parameters["persistent"] else 0,
                "stage3_max_live_parameters": 0,
                "stage3_max_reuse_distance": 0,
                "stage3_prefetch_bucket_size": 0,
                "reduce_bucket_size": elements * parameters["bucket_share"],
                "overlap_comm": parameters["overlap_comm"],
            },
        }
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
        engine, wrapped, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
        with recorder.phase(f"train-{depth}"):
            for _ in range(2):
                inputs = torch.randn(2, hidden, dtype=dtype, requires_grad=True)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=weights == "autocast"):
                    loss = engine(inputs).float().sum()
                engine.backward(loss)
                engine.step()
                del inputs, loss
        grown.append(recorder.live_bytes() - before)
        kept.append(engine)
        flat = zip(wrapped.fp16_partitioned_groups_flat, wrapped.fp32_partitioned_groups_flat)  # noqa: B905 (Python 3.9)
        shared = all(low.data_ptr() == master.data_ptr() for low, master in flat)
    recorder.result("static_bytes", grown[1] - grown[0])
    recorder.result("static_bytes_per_parameter", (grown[1] - grown[0]) / _elements(parameters))
    recorder.note(f"weights and master copy {'share' if shared else 'do not share'} their storage")


def _require(recorder: Recorder, option: str, release: str) -> None:
    """End the probe where DeepSpeed's configuration has no such option."""
    import inspect

    from deepspeed.runtime import config as options

    texts = [inspect.getsource(options)]
    try:
        from deepspeed.runtime import precision_config, torch_autocast

        texts += [inspect.getsource(precision_config), inspect.getsource(torch_autocast)]
    except ImportError:
        pass
    if not any(option in text for text in texts):
        recorder.unsupported(f"needs {release} for {option}")
