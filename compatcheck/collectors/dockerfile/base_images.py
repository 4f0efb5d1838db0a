"""What an image holds by its name: ``pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel``.

A tag is a promise of whoever pushed it and can be moved, so what is read here is less certain than metadata, and every
source says "by the tag".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.python.pinned_build import ngc_release
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_REGISTRIES = (
    r"^(?:docker\.io|index\.docker\.io|registry\.hub\.docker\.com|registry-1\.docker\.io|ghcr\.io|"
    r"public\.ecr\.aws/docker)/"
)
_RELEASE = r"\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|a|b)\d+)?"
_PACKED = r"(?P<packed>\d{3})"

_PATTERNS: tuple[str, ...] = (
    rf"(?:pytorch|runpod)/pytorch:(?P<torch>{_RELEASE})(?:-py(?P<python>[\d.]+))?-cuda(?P<cuda>\d+\.\d+)",
    r"pytorch/pytorch:(?P<torch>\d+\.\d+\.\d+)",
    rf"mosaicml/(?:pytorch|llm-foundry|composer):(?P<torch>\d+\.\d+\.\d+)_cu{_PACKED}",
    rf"(?:axolotlai|winglian)/axolotl[\w-]*:.*-py(?P<python>[\d.]+)-cu{_PACKED}-(?P<torch>\d+\.\d+\.\d+)",
    (
        r".*/(?:huggingface-)?pytorch-(?:training|inference)[\w-]*:(?P<torch>\d+\.\d+\.\d+)"
        rf"(?:-transformers(?P<transformers>{_RELEASE}))?-gpu-py\d+-cu{_PACKED}"
    ),
    rf"(?:vllm/vllm-openai|vllm/vllm):v(?P<vllm>{_RELEASE})",
    rf"lmsysorg/sglang:v(?P<sglang>{_RELEASE})(?:-cu{_PACKED})?",
    rf"huggingface/transformers-pytorch-(?:deepspeed-)?(?:latest-)?gpu:(?P<transformers>{_RELEASE})",
    r"rocm/pytorch:(?P<rocm>rocm)?.*pytorch_(?:release_|rocm\S*_)?(?P<torch>\d+\.\d+\.\d+)",
    r"(?P<rocm>rocm)/(?:pytorch|vllm)",
    rf"(?:verlai|hiyouga|whatcanyousee)/verl:.*\bth(?P<torch>\d+\.\d+\.\d+)-cu{_PACKED}(?:-vllm(?P<vllm>\d+\.\d+\.\d+))?",
    r"(?:nvidia|nvcr\.io/nvidia)/cuda:(?P<toolkit>\d+\.\d+)",
    r"nvcr\.io/nvidia/pytorch:(?P<ngc>\d\d\.\d\d)-py3",
    r"(?:library/)?python:(?P<python>3\.\d+(?:\.\d+)?)(?:-|$)",
)
"""Names of images, with what a part of them says. A later row is tried where no earlier one fits."""


class BaseImage(NamedTuple):
    """What the name of an image says about what is in it."""

    packages: Mapping[str, str]
    """Distribution → release."""
    build: str | None = None
    """What torch is built for: ``cuda``, ``rocm``; None where the name does not say."""
    cuda: str | None = None
    """CUDA release torch is built for."""
    compat: str | None = None
    """CUDA release of the forward-compatibility libraries inside."""
    python: str | None = None
    bare: bool = False
    """Whether the name is known to stand for an image without Python packages."""


def read_image_name(reference: str) -> BaseImage | None:
    """Read the name of an image; None when it is of no known form."""
    name = re.sub(_REGISTRIES, "", reference.partition("@")[0].strip())
    for pattern in _PATTERNS:
        match = re.match(pattern, name)
        if match is not None:
            return _read({key: value for key, value in match.groupdict().items() if value})
    return None


def _read(parts: Mapping[str, str]) -> BaseImage:
    packages = {key: parts[key] for key in ("torch", "vllm", "sglang", "transformers") if key in parts}
    cuda, compat = parts.get("cuda"), None
    if "packed" in parts:
        cuda = f"{parts['packed'][:2]}.{parts['packed'][2]}"
    if "ngc" in parts:
        row = ngc_release(parts["ngc"])
        if row is not None:
            torch, cuda = row
            packages["torch"] = f"{torch}.nv{parts['ngc']}"
        compat = (
            cuda  # https://docs.nvidia.com/deeplearning/frameworks/user-guide/ : NVIDIA's containers bring cuda-compat
        )
    if "toolkit" in parts:
        compat = parts["toolkit"]  # NV_CUDA_COMPAT_PACKAGE of nvidia/cuda
    build = "rocm" if "rocm" in parts else "cuda" if cuda is not None else None
    return BaseImage(packages, build, cuda, compat, parts.get("python"), bare="toolkit" in parts or "python" in parts)
