"""Distributions whose compiled code was built for another torch than the one beside them: they stop at import.

A release of torchvision, xformers or vLLM is built with one release of torch and requires it exactly; the wheels of
flash-attn, mamba-ssm and causal-conv1d are built for each torch apart and say so in their label:
``2.7.4.post1+cu12torch2.6cxx11abiFALSE``.
"""

from __future__ import annotations

import re

from compatcheck.core.environment import Damage
from compatcheck.core.versions import compile_specifier, contains, parse_version, read_final_release
from compatcheck.resolution.pins import is_built_alike

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.environment import Package
    from compatcheck.resolution.scope import FactScope
    from compatcheck.rules.database import RuleSet

KIND = "built_for_another_torch"
"""Kind of the damage, and the fact's name behind ``environment.``."""

PINNED = ("torchvision", "torchaudio", "xformers", "vllm")
"""Distributions with a row per release in the table of what they were built with."""

TABLE = "torch-minor-of-binaries"
BUILDS = "builds-by-label"
"""The table of releases of which a build with a label was published."""
_LABEL = r"\+(?:cu(\d+))?torch(\d+\.\d+)(?:\.\d+)?(?:cxx11abi(true|false))?"
_CUDA_LABEL = r"\+cu(\d\d)(\d)"
_COMPARED = {"torchvision": 1, "torchaudio": 2}
"""Distributions that refuse a torch of another CUDA, with how much of its release they compare.

Source: _check_cuda_version() in torchvision/extension.py and in torchaudio/_extension/utils.py (2.0.2 to 2.11.0 alike).
"""
_WITHOUT_CUDA = ("cpu", "rocm", "xpu")
"""Builds of torch without the libraries that compiled code for CUDA is linked with (libtorch_cuda, libc10_cuda)."""
_CUDA_LENGTH = 2
"""Digits of CUDA's major release in a label: ``cu12``, ``cu122``."""


def with_same_build(name: str, version: str | None, releases: Sequence[str], rules: RuleSet) -> Sequence[str]:
    """Return the releases of which a build with the label of an installed one was published; all where nobody knows."""
    label = (version or "").partition("+")[2]
    if not label:
        return releases
    try:
        bounds = compile_specifier(str(rules.look_up(BUILDS, (name, label))))
    except KeyError:
        return releases
    return [release for release in releases if contains(bounds, release) != "no"]


def built_with(name: str, release: str, rules: RuleSet) -> str | None:
    """Return the minor release of torch that a release pins and was built with; None where it pins none or nobody knows."""
    try:
        found = rules.look_up(TABLE, (name, release))
    except KeyError:
        return None
    return found if isinstance(found, str) else None


def find_misfits(scope: FactScope) -> Iterator[Damage]:
    """Compare what is built for one torch with the torch that is there; what is not pinned fits, a resolver sees to it.

    Minor releases are compared: patch releases of torch keep its binary interface in practice. Vendor builds and
    pre-releases are left out, they come with extensions of their own.
    """
    torch = scope.package("torch")
    release = read_final_release(torch.version) if torch is not None and torch.version is not None else None
    if torch is None or release is None:
        return
    minor = ".".join(map(str, release[:2]))
    own, build = scope.value("runtime.torch_cuda"), scope.value("runtime.torch_build")
    for name in PINNED:
        package = scope.package(name)
        wanted = None if package is None else _built_with(package, torch, scope)
        if package is None:
            continue
        if wanted is not None and wanted != minor:
            detail = f"{name} {package.version} is built for torch {wanted}, and torch is {torch.version}"
            yield Damage(KIND, name, detail, (package.source, torch.source))
            continue
        cuda = re.search(_CUDA_LABEL, package.version or "") if name in _COMPARED else None
        if cuda is None:
            continue
        compared = ".".join(cuda.groups()[: _COMPARED[name]])
        if build in _WITHOUT_CUDA and name == "torchvision":
            detail = f"{name} {package.version} is built for CUDA {compared}, and torch {torch.version} without CUDA"
            yield Damage(KIND, name, detail, (package.source, torch.source))
        elif isinstance(own, str) and ".".join(own.split(".")[: _COMPARED[name]]) != compared:
            detail = f"{name} {package.version} is built for CUDA {compared}, and torch for CUDA {own}"
            yield Damage(KIND, name, detail, (package.source, torch.source))
    for package in scope.environment.packages.values() if scope.environment is not None else ():
        yield from _check_label(package, torch, minor, scope)


def _built_with(package: Package, torch: Package, scope: FactScope) -> str | None:
    """Return the minor release of torch: what the installed metadata pins, else our table, None where neither tells.

    The table is one of PyPI's wheels. Conda's channels build one release for several of torch, which their solver minds:
    https://github.com/conda-forge/torchvision-feedstock has torchvision 0.20.1 for torch 2.5 and for 2.6.
    """
    own = scope.own_requirement(package.name, "torch")
    if own is not None:
        pin = re.fullmatch(r"===?(\d+\.\d+)(?:\.\d+)*(?:\+\w+)?", str(own.value))
        return pin[1] if pin is not None else None
    if "conda" in package.details or not is_built_alike(package, torch):
        return None
    version = None if package.version is None else parse_version(package.version)
    if version is None:
        return None
    found = scope.look_up(TABLE, (package.name, version.public))
    return found if isinstance(found, str) else None


def _check_label(package: Package, torch: Package, minor: str, scope: FactScope) -> Iterator[Damage]:
    label = read_label(package)
    if label is None:
        return
    cuda, wanted, abi = label
    parts = []
    if wanted != minor and not (_is_settled(wanted) and _is_settled(minor)):
        parts.append(f"torch {wanted}, and torch is {torch.version}")
    torch_cuda = scope.value("runtime.torch_cuda")
    if cuda is not None and isinstance(torch_cuda, str) and torch_cuda.partition(".")[0] != cuda:
        parts.append(f"CUDA {cuda}, and torch is built for CUDA {torch_cuda}")
    own = cxx11_abi(torch, scope)
    if None not in {own, abi} and own is not abi and wanted == minor:
        parts.append(f"the C++11 ABI {str(abi).upper()}, and torch has {str(own).upper()}")
    if parts:
        detail = f"{package.name}'s wheel is built for {'; for '.join(parts)}"
        yield Damage(KIND, package.name, detail, (package.source, torch.source))


def _is_settled(minor: str) -> bool:
    """Tell whether torch's interface has kept what flash-attn uses of it: NeMo-RL runs a wheel for 2.10 on 2.11."""
    return tuple(map(int, minor.split("."))) >= (2, 10)


def read_label(package: Package) -> tuple[str | None, str, bool | None] | None:
    """Return CUDA's major release, torch's minor release and the C++11 ABI that a wheel's name says it is built for."""
    url = package.details.get("direct_url", "").replace("%2B", "+").replace("%2b", "+")
    for text in (package.version or "", url):
        match = re.search(_LABEL, text, re.IGNORECASE) if "+" in text and "torch" in text.lower() else None
        if match is not None:
            cuda = match[1][:_CUDA_LENGTH] if match[1] else None
            return cuda, match[2], None if match[3] is None else match[3].lower() == "true"
    return None


def cxx11_abi(torch: Package, scope: FactScope) -> bool | None:
    """Tell which C++ ABI torch has: what its files say, else by release.

    PyTorch's own Linux wheels have the old one up to 2.6 and the new one from 2.7 on; of 2.6, the build for CUDA 12.6
    has the new one. https://github.com/pytorch/pytorch/releases/tag/v2.6.0 (Highlights)
    Other channels of conda than pytorch's own compile theirs by themselves (conda-forge with the new one, always).
    """
    stated = scope.value("runtime.cxx11_abi")
    if isinstance(stated, bool):
        return stated
    release = read_final_release(torch.version or "")
    by_others = "conda" in torch.details and torch.details.get("channel") != "pytorch"
    if release is None or by_others or scope.value("runtime.torch_build") != "cuda":
        return None
    if release[:2] == (2, 6):
        cuda = scope.value("runtime.torch_cuda")
        return cuda == "12.6" if isinstance(cuda, str) else None
    return release[:2] > (2, 6)
