"""CUDA, cuDNN, NCCL, cuBLAS and triton: what a stack runs on, from wheels, conda records and torch's version file."""

from __future__ import annotations

import re

from compatcheck.core.environment import Package
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Source
from compatcheck.core.units import parse_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.collectors.python.conda_records import CondaPackage
    from compatcheck.collectors.python.version_files import VersionFile

_WHEELS = {
    "cuda": ("nvidia-cuda-runtime", "cuda-toolkit"),
    "cudnn": ("nvidia-cudnn",),
    "nccl": ("nvidia-nccl",),
    "cublas": ("nvidia-cublas",),
}
"""Component → distributions that ship it, each without suffix or with ``-cu11``, ``-cu12``, ``-cu13``."""

_SUFFIXES = (("", None), ("-cu13", 13), ("-cu12", 12), ("-cu11", 11), ("-cu110", 11), ("-cu117", 11), ("-cu116", 11))
_TRITON = (
    "triton",
    "pytorch-triton",
    "pytorch-triton-rocm",
    "triton-rocm",
    "pytorch-triton-xpu",
    "triton-windows",
    "triton-nightly",
)
CONDA_COMPONENTS = {
    "cuda": ("cuda-cudart", "cudatoolkit", "pytorch-cuda", "cuda-version"),
    "cudnn": ("cudnn", "libcudnn"),
    "nccl": ("nccl",),
    "cublas": ("libcublas",),
}
"""Component → conda packages, the most exact first."""

_LABEL = lazy_compile(r"\+(cpu|xpu|cu(\d+)(\d)|rocm[\d.]*)", needs=("+",))
_BUILD_CUDA = r"cuda_?(\d+)\.(\d+)|cuda(\d\d)(\d)"
CONDA_FORGE = "runtime.torch_of_conda_forge"
_BUILD_CUDNN = r"cudnn(\d+(?:\.\d+)+)"


class TorchBuild(NamedTuple):
    """What torch was built for."""

    build: str | None
    """``cpu``, ``cuda``, ``rocm``, ``xpu``; None when nothing says so."""
    cuda: str | None
    """``12.8``; None for any other build."""
    source: Source


def read_torch_build(package: Package, file: VersionFile | None, conda: Mapping[str, CondaPackage]) -> TorchBuild:
    """Tell what torch was built for, from its version file, else its local version label, else conda's build string."""
    if file is not None and "cuda" in file.values:
        cuda = file.values["cuda"]
        if isinstance(cuda, str):
            return TorchBuild("cuda", cuda if cuda[:1].isdecimal() else None, Source(file.path, key="cuda"))
        for key, build in (("hip", "rocm"), ("rocm", "rocm"), ("xpu", "xpu")):
            if isinstance(file.values.get(key), str):
                return TorchBuild(build, None, Source(file.path, key=key))
        # Up to 2.5 the file has no word on XPU; the label has.
        build = "xpu" if "+xpu" in (file.version or "") else "cpu"
        return TorchBuild(build, None, Source(file.path, key="cuda"))
    for version in (package.version, file.version if file is not None else None):
        match = _LABEL.search(version or "")
        if match is not None:
            if match[2]:
                return TorchBuild("cuda", f"{match[2]}.{match[3]}", package.source)
            return TorchBuild(match[1][:4] if match[1].startswith("rocm") else match[1], None, package.source)
    record = conda.get("pytorch")
    if record is not None:
        stated, cuda = read_build_string(record.build)
        if cuda is not None or stated == "cpu":
            return TorchBuild(stated, cuda, record.source)
    return TorchBuild(None, None, package.source)


def find_conda_forge(torch: Package, conda: Mapping[str, CondaPackage]) -> Source | None:
    """Return the record by which torch is conda-forge's: its build strings begin with ``cuda126``, those of others do not.

    The channel pytorch has ``py3.11_cuda12.4_…``, the channel defaults ``gpu_cuda124…``:
    https://github.com/conda-forge/pytorch-cpu-feedstock recipe/meta.yaml.
    """
    for name in ("pytorch", "pytorch-gpu"):
        record = conda.get(name)
        if record is not None and re.match(r"cuda\d", record.build) and torch.version in {None, record.version}:
            return record.source
    return None


def read_build_string(text: str) -> tuple[str | None, str | None]:
    """Tell what conda's build string, or a pattern of it, says torch is built for: (``cuda``, ``12.4``), (``cpu``, None).

    Returns:
        A CUDA version of None beside ``cuda`` is not known; (None, None) when the string says nothing.
    """
    match = re.search(_BUILD_CUDA, text)
    if match is not None:
        return "cuda", f"{match[1] or match[3]}.{match[2] or match[4]}"
    if "cuda" in text or "gpu" in text:
        return "cuda", None
    return ("cpu", None) if "cpu" in text else (None, None)


def find_components(
    packages: Mapping[str, Package], conda: Mapping[str, CondaPackage], torch: TorchBuild | None
) -> tuple[dict[str, Package], list[str]]:
    """Find the components and their versions; one that is not in the result is unknown, not absent.

    A CUDA build of torch loads the wheels of its own CUDA major release; wheels of another are left over, and those
    beside a CPU build are not loaded by it. Builds that carry the libraries inside (conda's pytorch channel, wheels
    before 2.0) do not tell their versions.

    Returns:
        Components by name, and remarks about wheels that were not counted.
    """
    components: dict[str, Package] = {}
    notes = []
    if torch is not None and torch.cuda is not None:
        components["cuda"] = Package("cuda", torch.cuda, torch.source)
    first = torch.cuda.partition(".")[0] if torch is not None and torch.cuda is not None else ""
    major = parse_count(first)  # whatever a version file or a pin says
    wants_cuda = torch is None or torch.build in {"cuda", None}
    from_conda = bool(conda) and (torch is None or "pytorch" in conda or "libtorch" in conda)
    for component in _WHEELS:
        found = _wheels_of(component, packages)
        fitting = [package for of_major, package in found if major is None or of_major in {None, major}]
        if found and not (wants_cuda and fitting):
            reason = (
                f"torch is built for CUDA {torch.cuda}"
                if major is not None and torch is not None
                else "torch is not built for CUDA"
            )
            notes.append(f"{found[0][1].name} {found[0][1].version} is installed and not counted: {reason}")
        elif len({of_major for of_major, _ in found}) > 1 and major is None:
            notes.append(f"several releases of {component} are installed and nothing tells which is loaded")
        elif fitting:
            package = fitting[0]
            components[component] = Package(
                component, package.version, package.source, details={"distribution": package.name}
            )
        elif wants_cuda and from_conda:
            record = next((conda[name] for name in CONDA_COMPONENTS[component] if name in conda), None)
            if record is not None:
                components[component] = Package(
                    component, record.version, record.source, details={"conda": record.name}
                )
    if "pytorch" in conda and wants_cuda and "cudnn" not in components:
        match = re.search(_BUILD_CUDNN, conda["pytorch"].build)
        if match is not None:
            components["cudnn"] = Package("cudnn", match[1], conda["pytorch"].source)
    for name in _TRITON:
        if name in packages:
            components["triton"] = Package(
                "triton", packages[name].version, packages[name].source, details={"distribution": name}
            )
            break
    return components, notes


def _wheels_of(component: str, packages: Mapping[str, Package]) -> list[tuple[int | None, Package]]:
    """List the installed wheels of a component with the CUDA major release each is for, where name or version says."""
    found: list[tuple[int | None, Package]] = []
    for name in _WHEELS[component]:
        for suffix, major in _SUFFIXES:
            package = packages.get(name + suffix)
            if package is None or package.version is None:
                continue
            own = component in {"cuda", "cublas"}  # these follow CUDA's own numbering
            found.append((parse_count(package.version.partition(".")[0]) if major is None and own else major, package))
    return found
