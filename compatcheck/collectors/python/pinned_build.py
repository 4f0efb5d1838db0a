"""What torch is built for where only its release is known: from a lock, a requirement file, an image's build file.

The label of the release (``+cu128``) tells it, the index it comes from does, and so do CUDA's own wheels beside it. A
release that is pinned without any of these is the public wheel of that release, and brings the libraries that wheel requires.
"""

from __future__ import annotations

from functools import lru_cache

from compatcheck.collectors.python.components import TorchBuild, find_components, read_torch_build
from compatcheck.core.environment import Package
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.versions import parse_version, plain_release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.core.environment import Environment
    from compatcheck.core.source import Source

_NVIDIA = lazy_compile(r"\.nv(\d\d\.\d\d)$", needs=(".nv",))
_INDEX = lazy_compile(r"/whl/(?:\w+/)?(cpu|xpu|cu(\d+)(\d)|rocm[\d.]*)(?:/|$)", needs=("/whl/",))
"""Builds have an index of their own each: https://download.pytorch.org/whl/cu128."""

SEVERAL_BUILDS = "several indexes"
"""Stands for the index of a torch that extras or platforms choose between builds for."""

_CUDA_WHEELS = ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")
"""Distributions that follow CUDA's own numbers and that torch requires exactly."""

_LIBRARIES = ("nvidia-cublas", "nvidia-cudnn", "nvidia-nccl")
"""Beginnings of the names of the distributions that torch loads libraries from, beside CUDA's runtime."""

_OTHER_DEVICES = ("torch-npu", "torch-mlu", "torch-musa", "torch-xla", "habana-torch-plugin")
"""Distributions that bring another kind of device to torch: which torch they run on is then another matter."""

_PUBLIC = "public wheel of torch "
"""Begins the key of what only the release of torch told."""

NGC_TABLE = "ngc-pytorch"
"""The table of NVIDIA's container by release; its torch carries the release as its label, ``.nv25.10``."""

PUBLIC_WHEELS = "torch-public-cuda"
"""The table of what the public wheel of each release is built for."""


def with_build(environment: Environment) -> Environment:
    """Add what torch is built for and the components it loads, as far as releases and their origins tell.

    What a collector has already read stands; a torch of any release tells only by the index it comes from, and one that may not
    be there tells nothing.
    """
    certain = {name: package for name, package in environment.packages.items() if not package.is_optional}
    torch = certain.get("torch")
    if torch is None or "runtime.torch_build" in environment.facts:
        return environment
    if torch.version is None and read_index(torch.details.get("index", "")) is None:
        return environment
    build = _read_build(torch, environment._replace(packages=certain))
    if build.build is None:
        return environment
    facts = {
        "runtime.torch_build": (build.build, build.source),
        "runtime.torch_cuda": (build.cuda, build.source),
        **environment.facts,
    }
    brought = {
        name: Package(name, version, build.source)
        for name, version in (_brought_wheels(torch.version or "") if _is_public(build.source) else ())
        if name not in environment.packages
    }
    components, notes = find_components({**brought, **certain}, {}, build)
    return environment._replace(
        facts=facts,
        components={**components, **environment.components},
        notes=(*environment.notes, *notes),
    )


def rebuild(environment: Environment) -> Environment:
    """Read the build anew for another release of torch, where its release alone had told it; a range tells none."""
    found = environment.facts.get("runtime.torch_build")
    if found is None or not _is_public(found[1]):
        return environment
    names = ("runtime.torch_build", "runtime.torch_cuda")
    facts = {name: fact for name, fact in environment.facts.items() if name not in names}
    components = {name: one for name, one in environment.components.items() if not _is_public(one.source)}
    return with_build(environment._replace(facts=facts, components=components))


def _is_public(source: Source) -> bool:
    """Tell whether only the release of torch told it."""
    return (source.key or "").startswith(_PUBLIC)


def _read_build(torch: Package, environment: Environment) -> TorchBuild:
    labelled = read_torch_build(torch, None, {})
    if labelled.build is not None:
        return labelled
    container = _NVIDIA.search(torch.version or "")
    row = None if container is None else ngc_release(container[1])
    if (
        container is not None
        and row is not None
        and torch.version == f"{row[0]}.nv{container[1]}"
        and row[1] is not None
    ):
        return TorchBuild("cuda", row[1], torch.source)
    index = read_index(torch.details.get("index", ""))
    if index is not None:
        return TorchBuild(*index, torch.source)
    for name in _CUDA_WHEELS:
        wheel = environment.packages.get(name)
        parts = (wheel.version or "").split(".") if wheel is not None else []
        if wheel is not None and len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
            return TorchBuild("cuda", f"{parts[0]}.{parts[1]}", wheel.source)
    if any(name in environment.packages for name in _OTHER_DEVICES):
        return TorchBuild(None, None, torch.source)
    if environment.complete or torch.details.get("direct_url") or torch.details.get("index") == SEVERAL_BUILDS:
        return TorchBuild(None, None, torch.source)  # a lock without CUDA's wheels is not one of the public wheel
    cuda = public_cuda(torch.version or "")
    source = torch.source._replace(key=f"{_PUBLIC}{torch.version}")
    return TorchBuild(None if cuda is None else "cuda", cuda, source)


def ngc_release(release: str) -> tuple[str, str | None] | None:
    """Return torch and CUDA of a release of NVIDIA's container, ``25.10``; None where it is not known."""
    from compatcheck.rules.locate import open_builtin  # noqa: PLC0415 (only for NVIDIA's containers)

    row = (open_builtin().section(f"tables/{NGC_TABLE}") or {}).get(release)
    return (str(row[0]), row[1]) if isinstance(row, list) else None


def read_index(address: str) -> tuple[str, str | None] | None:
    """Return the build and the CUDA version of the wheels that an index or a page of links offers; None for any other."""
    match = _INDEX.search(address)
    if match is None:
        return None
    if match[2]:
        return "cuda", f"{match[2]}.{match[3]}"
    return ("rocm" if match[1].startswith("rocm") else match[1]), None


@lru_cache(maxsize=256)
def _brought_wheels(release: str) -> tuple[tuple[str, str], ...]:
    """Return the wheels of NVIDIA's libraries that the public wheel of a release requires exactly, each with its version."""
    from compatcheck.rules.locate import open_builtin  # noqa: PLC0415 (only where nothing else tells)

    rows = open_builtin().section("pins/torch") or ()
    requires: dict[str, str] = next((row[1] for row in rows if release in row[0]), {})
    pins = ((name, specifier.removeprefix("==")) for name, specifier in requires.items() if name.startswith(_LIBRARIES))
    return tuple((name, version) for name, version in pins if plain_release(version) or parse_version(version))


@lru_cache(maxsize=256)  # `fix` asks for one release after the other, many times
def public_cuda(release: str) -> str | None:
    """Return the CUDA that the public wheel of a release is built for; None of a labelled release and where it is not known."""
    version = parse_version(release)
    if version is None or version.local or version.is_prerelease:
        return None
    from compatcheck.rules.locate import open_builtin  # noqa: PLC0415 (only where nothing else tells)

    table = open_builtin().section(f"tables/{PUBLIC_WHEELS}") or {}
    cuda = table.get(".".join(map(str, version.release[:2])))
    return cuda if isinstance(cuda, str) else None
