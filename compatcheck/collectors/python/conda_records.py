"""Conda's own records: what it installed beside Python packages, and which of its Python packages pip replaced."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from compatcheck.collectors.python.conda_names import find_distribution
from compatcheck.collectors.python.distributions import canonical_name, read_installer, same_version
from compatcheck.core.environment import Damage, Package
from compatcheck.core.files import LOCAL
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.files import Files

_METADATA_DIRECTORY = r'site-packages/([^/"]+?)-(\d[^/"-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info'
_RECORD_CHARACTERS = 64 << 20
"""A record lists every file of its package; those of the largest take some megabytes."""


class CondaPackage(NamedTuple):
    """One package by the name of its record, ``name-version-build.json``, or as a file lists it."""

    name: str
    version: str
    build: str
    path: str
    line: int | None = None
    """Line in a file that lists packages."""
    key: str | None = None

    @property
    def source(self) -> Source:
        """Return the place a person can look at."""
        return Source(self.path, self.key, self.line)


def read_conda_meta(folder: str, files: Files = LOCAL) -> dict[str, CondaPackage]:
    """List the packages of a ``conda-meta`` directory by name; only file names are read.

    Raises:
        OSError: the directory cannot be listed.
    """
    packages = {}
    for name in files.list_names(folder):
        if name.endswith(".json"):
            rest, _, build = name[: -len(".json")].rpartition("-")
            package, dash, version = rest.rpartition("-")
            if dash:
                packages[package] = CondaPackage(package, version, build, os.path.join(folder, name))
    return packages


def find_replaced(
    conda: Mapping[str, CondaPackage],
    packages: Mapping[str, Package],
    copies: Mapping[str, Iterable[Package]],
    files: Files = LOCAL,
) -> list[Damage]:
    """Find Python packages of conda that pip or uv has written over.

    Conda goes on believing in its own version, and its next transaction may mix the files of both.
    """
    damage = []
    for record in conda.values():
        name = find_distribution(record.name) or canonical_name(record.name)
        found = [*copies.get(name, ()), *([packages[name]] if name in packages else ())]
        for package in found:
            if package.version is None or package.version == record.version:
                continue
            installer = read_installer(package.source.path, files)
            if installer in {None, "conda"}:
                continue
            own = _version_in_record(record, name, files)
            if own is None or same_version(own, package.version):
                continue
            detail = f"conda installed {own}, {installer} wrote {package.version} over it"
            damage.append(Damage("pip_over_conda", name, detail, (record.source, package.source)))
            break
    return damage


def _version_in_record(record: CondaPackage, name: str, files: Files) -> str | None:
    """Return the version of the distribution among the files of a conda package, whose name may mean another thing."""
    try:
        text = files.read_text(record.path, _RECORD_CHARACTERS)
    except OSError:
        return None
    for found, version in re.findall(_METADATA_DIRECTORY, text):
        if canonical_name(found) == name:
            return str(version)
    return None
