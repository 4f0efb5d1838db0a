"""What a half-precision Conv3d takes beside its output, and whether it runs through cuDNN.

``shape``: ``volume`` is one video convolution, kernel 3 x 3 x 3 with padding 1, as in video tokenizers and VAEs;
``patches`` is the patch embedding of Qwen2-VL and its successors, where every patch of 3 channels x 2 frames x 14 x
14 is a sample of its own and kernel equals stride.

Prediction. A healthy release gives the convolution to cuDNN: ``bypasses_cudnn`` is 0, by
``torch._C._select_conv_backend``, which is the choice torch itself makes. What cuDNN takes as workspace
(``temporary_bytes``) is its own affair and not predicted. The generic kernel writes every input patch out as a
column, for one sample at a time: input channels x kernel volume x output positions x bytes per element. That is what
the same convolution takes with cuDNN switched off (``temporary_without_cudnn_bytes``), in any release, and what a
release that avoids cuDNN takes without being asked. Counted are the bytes that were requested, before the allocator
rounds them.

Sources: use_cudnn() in https://github.com/pytorch/pytorch/blob/v2.9.1/aten/src/ATen/native/Convolution.cpp (cuDNN
[9.8, 9.15) avoided for 16-bit Conv3d) and slow_conv_dilated_all_cuda_template in
aten/src/ATen/native/cuda/NaiveDilatedConvolution.cu (columns of nInputPlane x kernel rows, reused for each sample);
report: https://github.com/pytorch/pytorch/issues/166643. Derived by reading; `compatcheck probe list` says whether it
was ever run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.lab.probes.worker.recorder import Recorder

PACKAGES = ("torch", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
BACKENDS = ("cuda",)
ACCOUNTING = "storages"
DEFAULTS: Mapping[str, Any] = {
    "shape": "volume",
    "dtype": "bfloat16",
    "batch": 2,
    "channels": 32,
    "frames": 8,
    "edge": 64,
}
SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"dtype": "float16", "frames": 16},
    {"shape": "patches"},
    {"shape": "patches", "dtype": "float16", "batch": 64},
)
CHOICES: Mapping[str, tuple[Any, ...]] = {"shape": ("volume", "patches"), "dtype": ("bfloat16", "float16", "float32")}
METRIC = "bypasses_cudnn"


def _columns(parameters: Mapping[str, Any]) -> int:
    element = 4 if parameters["dtype"] == "float32" else 2
    if parameters["shape"] == "patches":
        return 3 * 2 * 14 * 14 * element
    return int(parameters["channels"] * 27 * parameters["frames"] * parameters["edge"] ** 2 * element)


def predict(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return that cuDNN is used, and the columns of the kernel that stands in for it."""
    return {"bypasses_cudnn": 0, "temporary_without_cudnn_bytes": _columns(parameters)}


def tolerance(parameters: Mapping[str, Any]) -> float:
    """Return nothing: it is a choice, not a size."""
    return 0


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the run in the vocabulary's names."""
    described = {
        "model.has_conv3d": True,
        "training.compute_dtype": parameters["dtype"],
        "run.channels_last_3d": False,
    }
    if parameters["shape"] == "patches":
        described["model.model_type"] = "qwen2_vl"
    return described


def run(parameters: Mapping[str, Any], recorder: Recorder) -> None:
    """Convolve with cuDNN as torch chooses, without it, and in float32."""
    import torch
    import torch.nn.functional as F  # noqa: N812 (the name everyone uses)

    if not torch.backends.cudnn.is_available():
        recorder.unsupported("this torch has no cuDNN")
    batch, channels, frames, edge = (parameters[name] for name in ("batch", "channels", "frames", "edge"))
    if parameters["shape"] == "patches":
        sizes, weights, stride, padding = (batch, 3, 2, 14, 14), (64, 3, 2, 14, 14), (2, 14, 14), (0, 0, 0)
    else:
        sizes, weights = (batch, channels, frames, edge, edge), (channels, channels, 3, 3, 3)
        stride, padding = (1, 1, 1), (1, 1, 1)
    dtype = getattr(torch, parameters["dtype"])
    if "requested_bytes.all.peak" not in torch.cuda.memory_stats():
        recorder.unsupported("this torch does not count requested bytes")

    def requested(which: str) -> int:
        return int(torch.cuda.memory_stats()[f"requested_bytes.all.{which}"])

    def temporary(dtype: Any) -> int:
        sample = torch.randn(sizes, device=recorder.device, dtype=dtype)
        weight = torch.randn(weights, device=recorder.device, dtype=dtype)
        with torch.no_grad():
            # The first call takes what stays: the matrix product's workspace, and that of cuDNN's plan search.
            F.conv3d(sample, weight, None, stride, padding)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = requested("current")
            output = F.conv3d(sample, weight, None, stride, padding)
            taken = requested("peak") - before
        return taken - output.numel() * output.element_size()

    with recorder.phase("forward"):
        taken = temporary(dtype)
    recorder.result("temporary_bytes", taken)
    recorder.result("temporary_float32_bytes", temporary(torch.float32))
    with recorder.phase("forward-without-cudnn"), torch.backends.cudnn.flags(enabled=False):
        without = temporary(dtype)
    recorder.result("temporary_without_cudnn_bytes", without)
    recorder.result("columns_bytes", _columns(parameters))
    select = getattr(torch._C, "_select_conv_backend", None)
    if select is None:
        recorder.note(
            "this torch does not tell the kernel; one that takes exactly the columns is held to be the generic one"
        )
        bypasses = taken == without
    else:
        sample = torch.empty(sizes, device=recorder.device, dtype=dtype)
        weight = torch.empty(weights, device=recorder.device, dtype=dtype)
        options = {"stride": stride, "padding": padding, "dilation": (1, 1, 1), "output_padding": (0, 0, 0)}
        chosen = str(select(sample, weight, transposed=False, groups=1, bias=None, bias_sizes=None, **options))
        recorder.note(f"kernel {chosen.rpartition('.')[2]}")
        bypasses = "Cudnn" not in chosen
    recorder.result("bypasses_cudnn", int(bypasses))
    recorder.note(f"cuDNN {torch.backends.cudnn.version()}")
