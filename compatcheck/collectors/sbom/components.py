"""The components of an SBOM as environments: grouped by where they are installed, as far as the SBOM says so.

An SBOM of an image holds every Python of it, and copies that packages carry inside themselves, which are never imported under
their own name. Scanners say in which file they found a component: what lies directly in a ``site-packages`` is installed
there, what lies deeper is such a copy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.conda.packages import Record, add_torch, read_records
from compatcheck.collectors.conda.spec import read_channel
from compatcheck.collectors.sbom.purl import Purl, parse_purl
from compatcheck.core.environment import Damage, Environment, Package
from compatcheck.core.errors import InputError, NoEnvironmentError
from compatcheck.core.markers import InvalidMarkerError, canonical_name, describe_machine, evaluate
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import echo
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_COMPONENTS = 500_000
"""Most components of one SBOM."""

_METADATA = re.compile(r"(?P<folder>.*)/[^/]+(?:\.(?:dist|egg)-info|\.egg)(?:/.*)?")
_CONDA_META = re.compile(r"(?P<prefix>.*)/conda-meta/[^/]+\.json")
_LIBRARY = re.compile(
    r"(?P<prefix>.*?)(?:/lib(?:64|32)?/python(?P<python>\d+(?:\.\d+)?)t?)?/(?P<kind>site|dist)-packages"
)
_SYSTEM = ("deb", "rpm", "apk", "alpm")
_SYSTEM_COMPONENTS = (
    ("cuda", re.compile(r"(?:cuda-cudart-\d+-\d+|libcudart\d+(?:\.\d+)?)")),
    ("cudnn", re.compile(r"(?:libcudnn\d+(?:-cuda-\d+)?|nvidia-cudnn)")),
    ("nccl", re.compile(r"libnccl2?")),
    ("cublas", re.compile(r"libcublas-?\d+(?:-\d+)?")),
)
"""Component → its system packages in NVIDIA's and Debian's repositories."""
_VENDOR = re.compile(r"a0\+|\+[\w.]*nv")
"""Builds of torch that load the system's CUDA: those of NVIDIA's containers."""
_PYTHON_PACKAGE = re.compile(r"python3(?:\.\d+)?(?:-minimal)?")
_SHOWN_NAMES = 8
_MAX_ENVIRONMENTS = 200
REMEDY = "make the SBOM anew with the tool that wrote it"


class SbomComponent(NamedTuple):
    """One component of an SBOM, whatever its format."""

    name: str
    version: str | None
    source: Source
    purl: Purl | None = None
    is_python: bool = False
    """Whether a property says that it is a Python package, where there is no package URL."""
    locations: tuple[str, ...] = ()
    """Files in which a scanner found it."""
    marker: str | None = None
    """Environment marker under which it is installed (uv)."""


class _Place(NamedTuple):
    """Where a component lies."""

    prefix: str
    """Prefix of the environment; the file itself for what a manifest or lock lists."""
    kind: str
    """``installed``, ``copy`` or ``listed``."""
    python: str | None = None


class _Group:
    """What belongs to one environment."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.python: str | None = None
        self.components: list[SbomComponent] = []


class Listing:
    """The components of one file, as its reader fills it."""

    def __init__(self, path: str, *, is_complete: bool = False) -> None:
        self.path = path
        self.is_complete = is_complete
        """Whether the SBOM says that it lists everything."""
        self.components: list[SbomComponent] = []
        self.skipped: list[Skipped] = []

    def skip(self, key: str, reason: str) -> None:
        """Note what cannot be read."""
        self.skipped.append(Skipped(Source(self.path, key), reason, REMEDY, named=True))

    def tables(self, key: str, entries: object, one: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the entries of a list that are objects, each with its key."""
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            place = f"{key}[{index}]"
            if isinstance(entry, dict):
                yield place, entry
            else:
                self.skip(place, f"{one} is no object")

    def add(  # noqa: PLR0913 (see `SbomComponent`)
        self,
        name: object,
        version: object,
        source: Source,
        purls: Iterable[object],
        locations: Iterable[object],
        *,
        is_python: bool = False,
        marker: str | None = None,
    ) -> None:
        """Take a component with the first package URL that is one; what has neither URL nor name is none."""
        purl = next((found for text in purls if isinstance(text, str) and (found := parse_purl(text))), None)
        label = purl.name if purl is not None else name
        if not isinstance(label, str) or not label:
            return
        stated = version if isinstance(version, str) and version not in {"", "NOASSERTION", "NONE"} else None
        if purl is not None and purl.version is not None:
            stated = purl.version
        places = tuple(text for text in locations if isinstance(text, str))
        self.components.append(SbomComponent(label, stated, source, purl, is_python, places, marker or None))

    def environments(self) -> tuple[Environment, ...]:
        """Group the components to environments."""
        return build_environments(self.path, self.components, skipped=self.skipped, complete=self.is_complete)


def build_environments(
    path: str, components: Sequence[SbomComponent], *, skipped: Sequence[Skipped] = (), complete: bool = False
) -> tuple[Environment, ...]:
    """Group the components of an SBOM to environments.

    An environment is complete when its components were found in a ``site-packages`` or ``conda-meta``: the scanner listed
    the directory. Without locations it is complete only where the SBOM says so.

    Raises:
        InputError: none of them is a Python package.
    """
    groups: dict[str, _Group] = {}
    copies: list[str] = []
    for component in components:
        if not _is_package(component):
            continue
        place = _locate(component)
        if place.kind == "copy":
            copies.append(component.name)
            continue
        group = groups.setdefault(place.prefix, _Group(place.kind))
        if place.kind == "installed":
            group.kind = "installed"
        if place.python is not None and len(place.python) > len(group.python or ""):
            group.python = place.python
        group.components.append(component)
    if not groups:
        kinds = sorted({component.purl.type for component in components if component.purl is not None})
        count = f"{len(components)} component{'' if len(components) == 1 else 's'}"
        message = f"lists {count}, none of them a Python package" + (
            f": {', '.join(kinds[:_SHOWN_NAMES])}" if kinds else ""
        )
        raise NoEnvironmentError(message, source=Source(path), hint="make an SBOM of the environment or image itself")
    notes = _describe_copies(copies)
    if len(groups) > _MAX_ENVIRONMENTS:
        message = f"holds {len(groups)} environments; at most {_MAX_ENVIRONMENTS} are read"
        raise InputError(message, source=Source(path), hint="check that this is the file you mean")
    system = [item for item in components if item.purl is not None and item.purl.type in (*_SYSTEM, "generic")]
    return tuple(
        _environment(path, prefix, group, system, skipped, notes, several=len(groups) > 1, complete=complete)
        for prefix, group in sorted(groups.items())
    )


def _is_package(component: SbomComponent) -> bool:
    return component.purl.type in {"pypi", "conda"} if component.purl is not None else component.is_python


def _describe_copies(copies: list[str]) -> list[str]:
    if not copies:
        return []
    names = sorted(set(copies))
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    shown = ", ".join(names[:_SHOWN_NAMES]) + more
    return [f"not counted, because packages carry them inside themselves: {shown}"]


def _locate(component: SbomComponent) -> _Place:
    """Tell where a component lies from the first of its files that says so."""
    places = [_place(location.replace("\\", "/")) for location in component.locations]
    for kind in ("installed", "copy", "listed"):
        found = next((place for place in places if place.kind == kind), None)
        if found is not None:
            return found
    return _Place("", "listed")


def _place(location: str) -> _Place:
    location = location if location.startswith("/") else f"/{location}"
    conda = _CONDA_META.fullmatch(location)
    if conda is not None:
        return _Place(conda["prefix"] or "/", "installed")
    metadata = _METADATA.fullmatch(location)
    if metadata is None:  # a lock or manifest; one inside a package is its own affair
        return _Place(location, "copy" if re.search(r"/(?:site|dist)-packages/", location) else "listed")
    folder = metadata["folder"]
    library = _LIBRARY.fullmatch(folder)
    if library is None or "-packages/" in f"{library['prefix']}/":
        # Deeper than a site-packages: a copy inside a package; elsewhere: what pip installed with --target.
        return _Place(folder, "copy" if re.search(r"/(?:site|dist)-packages/", folder) else "installed")
    prefix = library["prefix"]
    if library["kind"] == "dist":
        prefix = prefix.removesuffix("/local")  # Debian's Python looks into /usr/local/lib too
    return _Place(prefix or "/", "installed", library["python"])


def _environment(  # noqa: PLR0913 (what is shared between the environments of one SBOM)
    path: str,
    prefix: str,
    group: _Group,
    system: Sequence[SbomComponent],
    skipped: Sequence[Skipped],
    notes: Sequence[str],
    *,
    several: bool,
    complete: bool,
) -> Environment:
    lost = list(skipped)
    remarks = list(notes)
    damage: list[Damage] = []
    machine = describe_machine({"python_version": group.python} if group.python and "." in group.python else None)
    by_name: dict[str, dict[tuple[str | None, str | None], Package]] = {}
    records: list[Record] = []
    for component in group.components:
        if component.marker is not None:
            try:
                held = [evaluate(component.marker, machine, python) for python in machine.pythons]
            except InvalidMarkerError:
                held = [None]
            if not any(state is not False for state in held):
                continue
        if component.purl is not None and component.purl.type == "conda":
            records.append(_record(component))
            continue
        package = _package(component, lost)
        by_name.setdefault(package.name, {}).setdefault((package.version, package.specifier), package)
    assembled = read_records(records)
    packages = dict(assembled.packages)
    for name, versions in by_name.items():
        found = list(versions.values())
        packages[name] = found[0] if len(found) == 1 else _join(name, found, group, damage, remarks)
    python = assembled.python or _python_of(prefix, group, system)
    environment = Environment(
        _name(path, prefix, group, several=several),
        packages,
        complete=(group.kind == "installed" or complete) and not lost,
        python=python,
        damage=tuple(damage),
        skipped=(*lost, *assembled.skipped),
        notes=tuple(remarks),
    )
    environment = add_torch(environment, assembled.conda, records)
    return _add_system(environment, system)


def _name(path: str, prefix: str, group: _Group, *, several: bool) -> str:
    if not several:
        return path
    return f"{path} ({prefix or 'no location'})" if group.kind == "installed" or prefix else f"{path} (no location)"


def _record(component: SbomComponent) -> Record:
    qualifiers = component.purl.qualifiers if component.purl is not None else {}
    channel = qualifiers.get("channel")
    if channel is not None and "://" in channel:
        channel = read_channel(redact(channel) + "/x/x") or redact(channel)
    return Record(component.name.lower(), component.source, component.version, qualifiers.get("build"), channel)


def _package(component: SbomComponent, skipped: list[Skipped]) -> Package:
    name, version, source = canonical_name(component.name), component.version, component.source
    details: dict[str, str] = {}
    if component.purl is not None:
        for key in ("vcs_url", "download_url"):
            if key in component.purl.qualifiers:
                details["direct_url"] = redact(component.purl.qualifiers[key])
    if version is None:
        return Package(name, None, source, "", details)
    if parse_version(version) is not None:
        return Package(name, version, source, None, details)
    text = version.replace(" ", "")
    try:  # GitHub's export of a dependency graph writes ranges: '>= 2.0,< 3'
        compile_specifier(text)
    except InvalidSpecifierError:
        reason = f"{echo(version)}, the version of {component.name}, is no version"
        skipped.append(Skipped(source, reason, REMEDY, named=True))
        text = ""
    return Package(name, None, source, text, details)


def _join(name: str, found: list[Package], group: _Group, damage: list[Damage], notes: list[str]) -> Package:
    """Bring several versions of one distribution together."""
    stated = [f"=={item.version}" if item.version else item.specifier or "" for item in found]
    named = " and ".join(item.version or item.specifier or "any version" for item in found)
    if group.kind == "installed":
        detail = f"{named} are both recorded in one environment"
        damage.append(Damage("duplicated", name, detail, tuple(item.source for item in found)))
    else:
        notes.append(f"{name}: {named}, which the SBOM does not tell apart by environment")
    specifier = "" if "" in stated else " || ".join(stated)
    return Package(name, None, found[0].source, specifier, found[0].details)


def _python_of(prefix: str, group: _Group, system: Sequence[SbomComponent]) -> str | None:
    """Return the version of the Python an environment belongs to, as exactly as the SBOM tells it."""
    minor = group.python if group.python and "." in group.python else None
    for component in system:
        if component.purl is None or component.version is None:
            continue
        version = re.match(r"\d+\.\d+(?:\.\d+)?", component.version.rpartition(":")[2])
        if version is None or (minor is not None and not f"{version[0]}.".startswith(f"{minor}.")):
            continue
        root = prefix.rstrip("/")
        if component.purl.type == "generic":
            beside = any(location.startswith(f"{root}/bin/") for location in component.locations)
            if component.name in {"python", "cpython"} and beside:
                return version[0]
        elif prefix == "/usr" and _PYTHON_PACKAGE.fullmatch(component.name):
            return version[0]
    return minor


def _add_system(environment: Environment, system: Sequence[SbomComponent]) -> Environment:
    """Add CUDA, cuDNN, NCCL and cuBLAS of system packages, where torch loads those: it brings its own otherwise."""
    found: dict[str, Package] = {}
    for component in system:
        if component.purl is None or component.purl.type not in _SYSTEM or component.version is None:
            continue
        for name, pattern in _SYSTEM_COMPONENTS:
            version = re.match(r"\d+(?:\.\d+)+", component.version.rpartition(":")[2])
            if version is not None and pattern.fullmatch(component.name) and name not in found:
                found[name] = Package(name, version[0], component.source, details={"package": component.name})
    found = {name: package for name, package in found.items() if name not in environment.components}
    if not found:
        return environment
    torch = environment.packages.get("torch")
    if torch is None or (torch.version is not None and _VENDOR.search(torch.version)):
        return environment._replace(components={**environment.components, **found})
    names = ", ".join(f"{item.details['package']} {item.version}" for item in found.values())
    note = f"system packages that torch, which brings its own, does not load were not counted: {names}"
    return environment._replace(notes=(*environment.notes, note))
