"""What METADATA itself says, held against the name of its directory: for the few packages that decide something.

Names and versions come from the names of directories, because reading a hundred METADATA files costs more than the whole
check. A directory whose METADATA says otherwise was written by hand, by a broken image layer or by a patched wheel.
"""

from __future__ import annotations

import os

from compatcheck.collectors.python.distributions import canonical_name, read_name_and_version, same_version
from compatcheck.core.environment import Damage, Environment, Package
from compatcheck.core.files import LOCAL
from compatcheck.core.source import Skipped, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.files import Files

_HEAD_CHARACTERS = 512
"""The first three headers are Metadata-Version, Name and Version in what every build back end writes."""


def check_records(
    environment: Environment, names: Iterable[str], folders: Iterable[str], files: Files = LOCAL
) -> Environment:
    """Compare METADATA with the directory's name for some packages and for every component.

    Args:
        environment: what is installed.
        names: of the packages that decide something.
        folders: where packages are installed: one of these that lies there without metadata is imported all the same.
        files: the tree it lies in.

    Returns:
        The environment with what disagrees as damage; METADATA's version is taken, as pip and ``importlib.metadata`` do.
        One of these packages whose release nobody can tell is a part of the environment that was not read, as named.
    """
    names = tuple(names)
    environment = _with_bare(environment, names, tuple(folders), files)
    packages = environment.packages
    wanted = {packages[name].source.path: packages[name] for name in names if name in packages}
    if environment.skipped:
        unknown = {path for path, package in wanted.items() if package.version is None}
        skipped = (entry._replace(named=entry.named or entry.source.path in unknown) for entry in environment.skipped)
        environment = environment._replace(skipped=tuple(skipped))
    chosen = {package.source.path: package for package in environment.components.values()} | wanted
    damage: list[Damage] = []
    corrected: dict[str, str] = {}
    for path, package in chosen.items():
        if path.lower().endswith(".dist-info") and package.version is not None and not _agrees(path, files):
            found = _compare(path, package, files)
            if found is not None:
                damage.append(found[0])
                corrected[path] = found[1]
    if not damage:
        return environment
    return environment._replace(
        packages=_correct(packages, corrected),
        components=_correct(environment.components, corrected),
        damage=(*environment.damage, *damage),
    )


def _with_bare(environment: Environment, names: Iterable[str], folders: Iterable[str], files: Files) -> Environment:
    """Add the packages that have a directory and no metadata: their releases are not known."""
    packages, skipped = dict(environment.packages), list(environment.skipped)
    there = [
        (folder, _list(folder, files)) for folder in folders
    ]  # once: rules may be about thousands of absent packages
    for name in names:
        module = name.replace("-", "_")
        for folder in (
            [folder for folder, names_there in there if module in names_there] if name not in packages else ()
        ):
            path = os.path.join(folder, module)
            if files.is_file(os.path.join(path, "__init__.py")):
                packages[name] = Package(name, None, Source(path), specifier="")
                skipped.append(
                    Skipped(Source(path), f"{name} has no metadata here: its release is not known", _REINSTALL)
                )
                break
    return environment._replace(packages=packages, skipped=tuple(skipped))


def _list(folder: str, files: Files) -> frozenset[str]:
    try:
        return frozenset(files.list_names(folder))
    except OSError:
        return frozenset()  # said already, while the directories were read


_REINSTALL = "reinstall it with pip"


def _agrees(path: str, files: Files) -> bool:
    """Tell whether the first headers are those of the directory's name, written alike; False when that needs a closer look."""
    name, _, version = os.path.basename(path)[: -len(".dist-info")].partition("-")
    try:
        head = files.read_text(f"{path}{os.sep}METADATA", _HEAD_CHARACTERS)
    except OSError:
        return True  # said already, while the directories were read
    start = head.find("\nName: ") + len("\nName: ")
    stated = head[start : head.find("\n", start)].strip()
    return f"\nVersion: {version}\n" in head and canonical_name(stated) == canonical_name(name)


def _compare(path: str, package: Package, files: Files) -> tuple[Damage, str] | None:
    """Describe how METADATA differs from its directory's name, with the version to go by."""
    metadata = f"{path}{os.sep}METADATA"
    try:
        stated = read_name_and_version(metadata, files)
    except OSError:
        return None
    folder = canonical_name(os.path.basename(path).partition("-")[0])
    if stated is None or package.version is None:
        return None
    places = (package.source, Source(metadata))
    if canonical_name(stated[0]) != folder:
        detail = f"its directory is that of {folder}, its METADATA that of {canonical_name(stated[0])}"
        return Damage("mismatched", folder, detail, places), package.version
    if same_version(stated[1], package.version):
        return None
    detail = f"its directory says {package.version}, its METADATA {stated[1]}, which pip reports and is taken"
    return Damage("mismatched", folder, detail, places), stated[1]


def _correct(packages: Mapping[str, Package], corrected: Mapping[str, str]) -> dict[str, Package]:
    return {
        name: package._replace(version=corrected.get(package.source.path, package.version))
        for name, package in packages.items()
    }
