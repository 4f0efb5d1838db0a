"""Conda packages of a file brought together as an environment: distributions, components, Python and torch's build."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.conda.spec import convert_version
from compatcheck.collectors.python.components import (
    CONDA_FORGE,
    TorchBuild,
    find_components,
    find_conda_forge,
    read_build_string,
    read_torch_build,
)
from compatcheck.collectors.python.conda_names import identify
from compatcheck.collectors.python.conda_records import CondaPackage
from compatcheck.collectors.python.distributions import same_version
from compatcheck.core.environment import Damage, Environment, Package
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, contains, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LINUX = ("linux-64", "linux-aarch64")
"""Conda's platforms that a training job runs on."""

_TORCH = ("pytorch", "pytorch-gpu", "pytorch-cpu")
"""The packages that bring torch, the one with its files first; the others are metapackages that require the first."""
_METAPACKAGES = {"pytorch-gpu": ("cuda", None), "pytorch-cpu": ("cpu", None), "cpuonly": ("cpu", None)}
"""Packages that select a build of pytorch: conda-forge/pytorch-cpu-feedstock, and the channel pytorch."""
_REMEDY = "write it as name=1.2.3 or name>=1.2,<2"


class Record(NamedTuple):
    """One conda package as a file states it."""

    name: str
    """Conda's name, lower case."""
    source: Source
    version: str | None = None
    """The one version it is; None where ``condition`` allows several."""
    build: str | None = None
    """Build string or a pattern of it."""
    channel: str | None = None
    condition: str | None = None
    """Version condition as conda writes it; None allows every version."""
    distributions: tuple[str, ...] | None = None
    """Distributions, where the file itself names them (``purls`` of pixi); None where it does not."""


class Assembled(NamedTuple):
    """What the conda packages of one environment come to."""

    packages: dict[str, Package]
    python: str | None
    conda: dict[str, CondaPackage]
    """Records with a version, by conda's name: what components are read from."""
    skipped: tuple[Skipped, ...]


def read_records(records: Iterable[Record]) -> Assembled:
    """Tell distributions from libraries, and translate what is asked of them."""
    packages: dict[str, Package] = {}
    conda: dict[str, CondaPackage] = {}
    skipped: list[Skipped] = []
    python: str | None = None
    for record in records:
        build, source = record.build or "", record.source
        stated = record.version or _leading_version(record.condition)
        if stated is not None or record.name in _METAPACKAGES:
            conda[record.name] = CondaPackage(record.name, stated or "", build, source.path, source.line, source.key)
        if record.name == "python":
            python = stated
            continue
        for name in _distributions_of(record):
            known = packages.get(name)
            if known is not None and (known.details.get("conda") == "pytorch" or record.name in _METAPACKAGES):
                continue
            details = {"conda": record.name}
            if record.channel:
                details["channel"] = record.channel
            version, specifier = record.version, None
            try:
                if version is None:
                    specifier = convert_version(record.condition)
                elif parse_version(version) is None:
                    skipped.append(Skipped(source, f"{version}, the version of {record.name}, is no PEP 440 version"))
                    version, specifier = None, ""
            except InvalidSpecifierError as error:
                skipped.append(Skipped(source, f"{record.name}: {error}", _REMEDY, named=True))
                specifier = ""
            packages[name] = Package(name, version, source, specifier, details)
    return Assembled(packages, python, conda, tuple(skipped))


def _distributions_of(record: Record) -> tuple[str, ...]:
    if record.name in _TORCH:
        return ("torch",)
    if record.distributions is not None:
        return record.distributions
    name = identify(record.name, record.build)
    return () if name is None else (name,)


def _leading_version(condition: str | None) -> str | None:
    """Return the version that a prefix match begins with, as far as it goes: ``12.1`` of ``12.1.*``."""
    match = re.fullmatch(r"={0,2}(\d+\.\d+(?:\.\d+)*)(?:\.?\*)?", condition or "")
    return None if match is None else match[1]


def _is_another(known: Package, package: Package) -> bool:
    """Tell whether pip installs none of those that are asked of conda: ``pytorch=2.3.1`` is a prefix to it, not a pin."""
    if package.version and known.version:
        return not same_version(known.version, package.version)
    if package.version:
        return bool(known.specifier) and contains(compile_specifier(known.specifier or ""), package.version) == "no"
    asked = known.version or _leading_version(known.specifier) or ""
    is_release = known.version is not None or asked.count(".") > 1
    return (
        bool(package.specifier) and is_release and contains(compile_specifier(package.specifier or ""), asked) == "no"
    )


def find_written_over(name: str, known: Package, package: Package) -> Damage | None:
    """Return the damage of a package of conda that pip replaces by another release."""
    if not _is_another(known, package):
        return None
    wanted = _leading_version(known.specifier) or known.specifier
    asked = f"installs {known.version}" if known.version else f"is asked for {wanted}"
    detail = f"conda {asked}, pip writes {package.version or package.specifier} over it"
    return Damage("pip_over_conda", name, detail, (known.source, package.source))


def build_environment(  # noqa: PLR0913 (what a file may say beside its packages)
    origin: str,
    records: Sequence[Record],
    *,
    pip: Mapping[str, Package] | None = None,
    complete: bool = False,
    damage: Sequence[Damage] = (),
    skipped: Sequence[Skipped] = (),
    notes: Sequence[str] = (),
) -> Environment:
    """Bring conda packages and those of pip together; pip comes second and writes over what conda installed."""
    assembled = read_records(records)
    packages = dict(assembled.packages)
    damages = list(damage)
    conda = dict(assembled.conda)
    for name, package in (pip or {}).items():
        known = packages.get(name)
        written = None if known is None else find_written_over(name, known, package)
        if written is not None:
            damages.append(written)
        if known is not None and name == "torch":
            conda = {key: item for key, item in conda.items() if key not in (*_TORCH, "pytorch-cuda", "cpuonly")}
        packages[name] = package
    lost = (*skipped, *assembled.skipped)
    environment = Environment(
        origin,
        packages,
        complete=complete,
        python=assembled.python,
        damage=tuple(damages),
        skipped=lost,
        notes=tuple(notes),
    )
    return add_torch(environment, conda, records)


def add_torch(environment: Environment, conda: Mapping[str, CondaPackage], records: Sequence[Record]) -> Environment:
    """Add components and what torch is built for to the packages of an environment."""
    packages = environment.packages
    torch = _read_torch(packages.get("torch"), conda, records)
    components, remarks = find_components(packages, conda, torch)
    facts: dict[str, tuple[object, Source]] = {}
    if torch is not None and torch.build is not None:
        facts["runtime.torch_build"] = (torch.build, torch.source)
        if torch.cuda is not None or torch.build != "cuda":
            facts["runtime.torch_cuda"] = (torch.cuda, torch.source)
        forge = find_conda_forge(packages["torch"], conda)
        if forge is not None:
            facts[CONDA_FORGE] = (True, forge)
    notes = (*environment.notes, *remarks)
    return environment._replace(components=components, facts=facts, notes=notes)


def _read_torch(
    package: Package | None, conda: Mapping[str, CondaPackage], records: Sequence[Record]
) -> TorchBuild | None:
    """Tell what torch is built for: the label of pip's, else conda's build string, else what selects the build."""
    if package is None:
        return None
    torch = read_torch_build(package, None, conda)
    if torch.build is not None or package.details.get("conda") is None:
        return torch
    if "pytorch-cuda" in conda and (conda["pytorch-cuda"].version or "")[:1].isdecimal():
        version = ".".join(str(conda["pytorch-cuda"].version).split(".")[:2])
        return TorchBuild("cuda", version, conda["pytorch-cuda"].source)
    for record in records:
        if record.name in _TORCH and record.build:
            build, cuda = read_build_string(record.build)
            if build is not None:
                return TorchBuild(build, cuda, record.source)
    for name, (build, cuda) in _METAPACKAGES.items():
        if name in conda:
            return TorchBuild(build, cuda, conda[name].source)
    return torch
