"""The environments of an image: one for each place an interpreter imports from, the entry point's first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.image.entrypoint import Start, find_start
from compatcheck.collectors.image.layouts import Place, find_place, find_places, read_environ
from compatcheck.collectors.image.system_packages import lay_under, read_system
from compatcheck.collectors.machine.driver_requirement import read_compat_package
from compatcheck.collectors.machine.variables import attach, collect_variables
from compatcheck.collectors.python.installed import ASK_OWNER, collect_installed
from compatcheck.collectors.python.metadata_check import check_records
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.terminal import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.collectors.image.archive import Image
    from compatcheck.collectors.image.system_packages import System
    from compatcheck.collectors.image.tree import ImageTree
    from compatcheck.core.environment import Environment, Package

CONFIGURATION = "image configuration"
"""Origin of what the image's configuration says."""

MAX_PACKAGES = 100_000
"""Distributions of all environments of an image after which no further one is read."""

_EMPTY = frozenset({"pip", "setuptools", "wheel"})
"""What an environment has that nobody has installed anything into."""


class ImageEnvironment(NamedTuple):
    """One environment of an image."""

    name: str
    """``IMAGE:/opt/venv``."""
    place: Place
    environment: Environment
    is_started: bool
    """Whether it is the one the image starts."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was installed into it."""
        return _EMPTY.issuperset(self.environment.packages) and not self.environment.skipped


class ImageReading(NamedTuple):
    """What an image holds."""

    environments: tuple[ImageEnvironment, ...]
    """The one it starts first, then by path."""
    start: Start
    notes: tuple[str, ...]
    """About the whole image."""
    skipped: tuple[Skipped, ...]


def read_image(image: Image, names: Iterable[str], declared: Mapping[str, str] | None = None) -> ImageReading:
    """Read the environments of an image.

    Args:
        image: the image.
        names: packages whose METADATA is held against the name of its directory (`check_records`).
        declared: variables of the run, where they are known; they lie over the image's, and no others are set.
    """
    if declared is not None:
        image = image._replace(config=image.config._replace(env=(*image.config.env, *declared.items())))
    files, config = image.files, image.config
    names = tuple(names)
    environ = read_environ(config)
    found = find_places(files, config)
    start = find_start(config, files)
    started = find_place(start.executable, found.places, environ, files) if start.executable else None
    system = read_system(files, dict(config.env))
    environments = []
    unread = []
    total = 0
    for place in sorted(found.places, key=lambda place: place is not started):
        if total > MAX_PACKAGES:
            unread.append(place.name)
            continue
        name = f"{image.name}:{escape_name(place.name)}"
        environment = _read_place(place, image, names, system, declared=declared is not None)
        total += len(environment.packages)
        environments.append(ImageEnvironment(name, place, environment._replace(origin=name), place is started))
    if started is None:
        filled = [index for index, entry in enumerate(environments) if not entry.is_empty]
        if len(filled) == 1:
            start = start._replace(reason=f"the only one that holds packages; {start.reason}")
            entry = environments.pop(filled[0])
            environments.insert(0, entry._replace(is_started=True))
    start = start._replace(doubts=(*start.doubts, *_doubt_without_torch(environments)))
    notes = (*image.notes, *found.notes, *system.notes, *_describe_driver(system, dict(config.env)))
    skipped = [_inside(entry, image.name) for entry in system.skipped]
    if unread or not found.is_complete:
        some = f": {', '.join(unread[:3])}" if unread else ""
        reason = f"holds more environments or packages than are looked at{some}"
        skipped.append(Skipped(Source(image.name), reason))
    return ImageReading(tuple(environments), start, notes, (*image.skipped, *skipped))


def _doubt_without_torch(environments: list[ImageEnvironment]) -> list[str]:
    """Say that another environment is the one for training: what is started may only start that one."""
    started = [entry for entry in environments if entry.is_started]
    others = [entry.place.name for entry in environments if "torch" in entry.environment.packages]
    if not started or not others or started[0].place.name in others:
        return []
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return [f"{started[0].place.name} holds no torch, and {others[0]}{more} does"]


def _read_place(place: Place, image: Image, names: tuple[str, ...], system: System, *, declared: bool) -> Environment:
    files = image.files
    environment = check_records(collect_installed(place.layout, files=files), names, place.layout.site_packages, files)
    components: Mapping[str, Package] = environment.components
    notes: list[str] = []
    if "torch" in environment.packages:
        components, notes = lay_under(components, system, loads_system=_loads_system(environment, place, files))
        notes += _describe_compiler(environment, system)
    origin = f"{CONFIGURATION} and --env-file" if declared else CONFIGURATION
    variables = collect_variables(dict(image.config.env), Source(origin))
    environment = environment._replace(components=components, notes=(*environment.notes, *notes))
    compat = system.compatibility_driver
    release = None if compat is None else read_compat_package(compat.details.get("system", ""))
    if compat is not None and release is not None:
        environment = environment._replace(facts={**environment.facts, "runtime.cuda_compat": (release, compat.source)})
    if image.skipped:  # what was in them is unknown, not absent
        environment = environment._replace(complete=False)
    # What the image leaves unset whoever starts it may set: `docker run --env`, a manifest.
    return rename(attach(environment, variables, complete=declared), image.name)


def _loads_system(environment: Environment, place: Place, files: ImageTree) -> bool | None:
    """Tell whether torch loads the system's CUDA libraries: it is built for CUDA and neither brings them nor names wheels."""
    if environment.facts.get("runtime.torch_build", ("",))[0] != "cuda" or place.layout.conda_meta:
        return None
    if "cudnn" in environment.components:
        return False
    for folder in place.layout.site_packages:
        try:
            names = files.list_names(f"{folder}/torch/lib")
        except OSError:
            continue
        if any(name.startswith("libcudnn") for name in names):
            return False
    return True


def _describe_compiler(environment: Environment, system: System) -> list[str]:
    compiler = system.components.get("nvcc")
    torch = environment.facts.get("runtime.torch_cuda", (None,))[0]
    if compiler is None or compiler.version is None or not isinstance(torch, str):
        return []
    if compiler.version.split(".")[:2] == torch.split(".")[:2]:
        return []
    return [f"the system's compiler is nvcc {compiler.version}, and torch is built for CUDA {torch}"]


def _describe_driver(system: System, environ: Mapping[str, str]) -> list[str]:
    """Say what the image asks of the driver it will meet."""
    notes = []
    wanted = re.search(r"\bcuda>=(\d+\.\d+)", environ.get("NVIDIA_REQUIRE_CUDA", ""))
    if wanted is not None:
        notes.append(f"starts on drivers that support CUDA {wanted[1]} only (NVIDIA_REQUIRE_CUDA)")
    compat = system.compatibility_driver
    if compat is not None:
        notes.append(f"has cuda-compat {compat.version}: older drivers of data-centre devices can run its CUDA")
    return notes


# --- places inside the image are said as such: this machine has files of the same names ---


def rename(environment: Environment, image: str) -> Environment:
    """Write the image in front of every place in an environment."""

    def move(packages: Mapping[str, Package]) -> dict[str, Package]:
        return {name: package._replace(source=_place(package.source, image)) for name, package in packages.items()}

    return environment._replace(
        packages=move(environment.packages),
        components=move(environment.components),
        facts={name: (value, _place(source, image)) for name, (value, source) in environment.facts.items()},
        damage=tuple(
            damage._replace(sources=tuple(_place(source, image) for source in damage.sources))
            for damage in environment.damage
        ),
        skipped=tuple(_inside(entry, image) for entry in environment.skipped),
    )


def _place(source: Source, image: str) -> Source:
    return source._replace(path=f"{image}:{source.path}") if source.path.startswith("/") else source


def _inside(skipped: Skipped, image: str) -> Skipped:
    """Write the image in front of the place."""
    hint = None if skipped.hint == ASK_OWNER else skipped.hint
    return skipped._replace(source=_place(skipped.source, image), hint=hint)
