"""What the norms of a decoder layer keep for backward, apart from everything else of the layer.

One layer of a tiny model of ``model_type``, in bfloat16. Each module in it whose class is a norm over ``hidden`` values gets
``rows`` rows that nothing else holds, of a tensor that wants a gradient. Measured is what is live once all of them have run,
outputs included, at once and with twice as many rows; the slope is bytes for each value of one norm's input,
`bytes_per_value`, and of all norms together, `layer_bytes_per_value`.

Prediction: the output in bfloat16, 2, and a layer norm's input, 2, with a mean and a deviation of each row, at most 8 / hidden. A
norm of the root mean square that is written in PyTorch keeps its input as float32, 4, and the normalised values in bfloat16, 2.

Source: torch/nn/functional.py layer_norm and transformers' modeling files, class *RMSNorm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("transformers",)
SHARES = ("tiny_models",)
BACKENDS = ("cpu", "cuda")
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {"model_type": "phimoe", "rows": 64, "hidden": 128}
SIZES: tuple[Mapping[str, Any], ...] = ({}, {"model_type": "stablelm", "hidden": 256})
METRIC = "bytes_per_value"


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return what a layer norm holds."""
    return {"bytes_per_value": 4 + 8 / parameters["hidden"]}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return what rows have beside their values."""
    return 16 / float(parameters["hidden"])


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe one value of the run in the vocabulary's names."""
    return {
        "model.model_type": parameters["model_type"],
        "model.hidden_size": 1,
        "model.num_hidden_layers": 1,
        "model.load_dtype": "bfloat16",
        "training.param_dtype": "bfloat16",
        "training.compute_dtype": "bfloat16",
        "training.micro_batch_size": 1,
        "training.sequence_length": 1,
        "training.gradient_checkpointing": False,
        "training.peft": None,
    }


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Run norms alone, over rows and twice as many."""
    import torch

    models = recorder.load("tiny_models")
    hidden, rows = parameters["hidden"], parameters["rows"]
    model = models.build(parameters["model_type"], recorder, layers=1, hidden=hidden)
    layer = next(module for module in model.modules() if type(module).__name__.endswith("DecoderLayer"))
    norms = [one for one in layer.modules() if "Norm" in type(one).__name__ and one.weight.shape == (hidden,)]
    if not norms:
        recorder.unsupported(f"no norm over {hidden} values in {type(layer).__name__}")
    kept = []
    for count in (rows, 2 * rows):
        inputs = torch.randn(count, hidden, dtype=torch.bfloat16, device=recorder.device).requires_grad_()
        # Adding keeps nothing, so that its result stays where a norm keeps it.
        kept.append(recorder.measure(lambda inputs=inputs: [norm(inputs + 1) for norm in norms])[2])  # type: ignore[misc]  # run at once
    slope = (kept[1] - kept[0]) / (rows * hidden)
    recorder.result("bytes_per_value", slope / len(norms))
    recorder.result("layer_bytes_per_value", slope)
