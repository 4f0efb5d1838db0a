"""Compare the packages compatcheck reads in public files of conda with what independent parsers read there.

    python benchmarks/conda_files.py DIRECTORY [--mapping compressed_mapping.json]

DIRECTORY has ``environment``, ``conda-list``, ``explicit``, ``conda-lock`` and ``pixi-lock``, each with public files, fetched
and not committed. Needs conda-lock (its own lock, and conda's own code for specifications and file names, which it carries) and
py-rattler (pixi's locks). conda itself is not on the package index: what it prints in columns is split at blanks here. Every
specification is tried on a grid of versions. The mapping is that of prefix-dev/parselmouth: with it, the distribution of every
conda package is compared too. A Markdown table goes to standard output, what differs to standard error.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from conda_lock._vendor.conda.models.match_spec import MatchSpec
from conda_lock.lockfile import parse_conda_lock_file
from packaging.requirements import InvalidRequirement, Requirement
from rattler import LockFile

from compatcheck.collectors.conda import environment_yml as conda_environment
from compatcheck.collectors.conda import listing as conda_list
from compatcheck.collectors.conda import lock as conda_lock
from compatcheck.collectors.conda import pixi_lock
from compatcheck.collectors.conda.spec import convert_version, parse_match_spec
from compatcheck.collectors.python.conda_names import identify
from compatcheck.collectors.requirements.lines import read_requirement_lines
from compatcheck.core.errors import InputError
from compatcheck.core.markers import canonical_name
from compatcheck.core.versions import InvalidSpecifierError, all_ordered, compile_specifier, parse_version
from compatcheck.core.yaml import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compatcheck.collectors.conda.spec import MatchSpec as Ours

Packages = list[tuple[str, ...]]
GRID = (
    "0.1",
    "0.9",
    "1.0",
    "1.1",
    "1.2.1",
    "1.10",
    "1.20",
    "1.26.4",
    "2.0",
    "2.0.1",
    "2.1",
    "2.1.2",
    "2.5",
    "2.5.1",
    "2.5.10",
    "2.10",
    "3.8",
    "3.9.1",
    "3.10",
    "3.11",
    "3.12",
    "11.8",
    "12.1",
    "2024.1",
)


def of_environment(path: Path) -> tuple[Packages, Packages, set[str]]:
    """Compare what each dependency allows on a grid of versions, and the names of the pip list."""
    file = conda_environment.read_file(str(path))
    ours: Packages = [(spec.name, _channel(spec.channel), spec.build or "", *_allowed(spec)) for spec, _ in file.specs]
    ours += [(item.name, "pip") for item in read_requirement_lines(file.pip, str(path)).requirements]
    theirs: Packages = []
    for item in yaml.safe_load(path.read_text(encoding="utf-8"))["dependencies"]:
        if isinstance(item, str):
            theirs.append(_matched(item))
        else:
            for line in (item or {}).get("pip") or []:
                try:
                    theirs.append((canonical_name(Requirement(line.partition(" #")[0]).name), "pip"))
                except InvalidRequirement:
                    continue  # options, paths and mistakes, which compatcheck reports or follows
    return ours, theirs, {spec.name for spec, _ in file.specs}


def of_specifications(path: Path) -> tuple[Packages, Packages, set[str]]:
    """Compare what each dependency that a lock states allows on a grid of versions."""
    texts = set()
    root = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    for entry in root.get("package") or root.get("packages") or []:
        needed = entry.get("dependencies") or entry.get("depends") or []
        texts |= (
            {f"{name} {version}".strip() for name, version in needed.items()}
            if isinstance(needed, dict)
            else set(needed)
        )
    plain = sorted(text for text in texts if not {"[", ";", "@"} & set(text) and " || " not in text)
    ours: Packages = []
    theirs: Packages = []
    for text in plain:
        try:
            theirs.append(_matched(text))
        except ValueError:
            continue  # of a package of pip, whose conditions conda does not know
        spec = parse_match_spec(text)
        ours.append((spec.name, _channel(spec.channel), spec.build or "", *_allowed(spec)))
    return ours, theirs, set()


def _channel(name: str | None) -> str:
    return (name or "").rpartition("/")[2]


def _versions(text: str) -> list[str]:
    return [*GRID, *re.findall(r"\d+(?:\.\d+)*", text)]


def _allowed(spec: Ours) -> tuple[str, ...]:
    try:
        bounds = compile_specifier(convert_version(spec.version))
    except InvalidSpecifierError:
        return ("no PEP 440",)
    versions = _versions(spec.version or "")
    return tuple(version for version in versions if (parsed := parse_version(version)) and all_ordered(bounds, parsed))


def _matched(text: str) -> tuple[str, ...]:
    spec = MatchSpec(text.partition(" #")[0])
    version, build = spec.get("version"), spec.get("build")
    channel = spec.get("channel")
    bare = MatchSpec(spec.name, version=version) if version is not None else MatchSpec(spec.name)
    numbers = _versions("" if version is None else str(version))
    about = {"name": spec.name, "build": "x", "build_number": 0}
    found = [number for number in numbers if bare.match({**about, "version": number})]
    odd = version is not None and any(
        parse_version(item.rstrip(".")) is None for item in re.findall(r"[^<>=!~,|*\s]+", str(version))
    )
    name = "" if channel is None else _channel(channel.canonical_name)
    return (spec.name, name, "" if build is None else str(build), *(("no PEP 440",) if odd else found))


def of_list(path: Path) -> tuple[Packages, Packages, set[str]]:
    """Compare names, versions and builds of a list or explicit file."""
    listed = conda_list.read_list(str(path))
    ours: Packages = [(record.name, record.version or "", record.build or "") for record in listed.records]
    ours += [(name, item.version or item.specifier or "", "pip") for name, item in listed.pip.items()]
    data = path.read_bytes()
    text = data.decode("utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig")
    theirs: Packages = []
    for line in text.splitlines():
        if line.startswith("# pip "):
            requirement = Requirement(line[6:].partition(" --hash")[0])
            theirs.append((canonical_name(requirement.name), _wheel_version(requirement.url), "pip"))
        if not line.strip() or line.startswith(("#", "@")):
            continue
        if line.startswith(("http://", "https://")):
            spec = MatchSpec(line.split()[0].partition("#")[0])
            theirs.append((spec.name, str(spec.get("version")), str(spec.get("build"))))
            continue
        words = line.replace("=", " ").split() if "=" in line.split()[0] else line.split()
        name, version, build, channel = (*words, "", "", "")[:4]
        if build.startswith(("pypi", "<")) or channel == "pypi":
            theirs.append((canonical_name(name), version if parse_version(version) else "", "pip"))
        else:
            theirs.append((name.lower(), version, build))
    return ours, theirs, {record.name for record in listed.records}


def _wheel_version(url: str | None) -> str:
    file = (url or "").partition("#")[0].rpartition("/")[2].replace("%2B", "+")
    if file.endswith(".whl"):
        return file.split("-")[1]
    return re.sub(r"\.(tar\.gz|zip|tar\.bz2)$", "", file).rpartition("-")[2]


_MANAGERS = {"conda": "conda", "pypi": "pip"}


def of_conda_lock(path: Path) -> tuple[Packages, Packages, set[str]]:
    """Compare every entry for every platform with what conda-lock's own parser reads."""
    entries, _ = conda_lock.list_packages(read_yaml(str(path)))
    ours: Packages = [(platform, _MANAGERS[item.kind], item.name, item.version or "") for platform, _, item in entries]
    lock = parse_conda_lock_file(path)
    theirs: Packages = [(item.platform, item.manager, item.name, item.version) for item in lock.package]
    return ours, theirs, {item.name.lower() for _, _, item in entries if item.kind == "conda"}


def of_pixi(path: Path) -> tuple[Packages, Packages, set[str]]:
    """Compare every package of every environment on every platform with what rattler's parser reads."""
    file = read_yaml(str(path))
    ours: Packages = []
    names = set()
    for environment in pixi_lock.list_environments(file):
        for package in environment.packages:
            location = package.location or ""
            built = package.kind == "pypi" and "://" not in location and not location.endswith(".whl")
            version = "?" if built else package.version or "?"
            ours.append((environment.name, environment.platform, package.name, _normal(version)))
            names |= {package.name.lower()} if package.kind == "conda" else set()
    theirs: Packages = []
    for name, found in LockFile.from_path(path).environments():
        for platform in found.platforms():
            for item in found.packages(platform) or ():
                version = str(item.version) if item.version is not None else "?"
                theirs.append((name, str(platform), item.name, "?" if version.startswith("<") else _normal(version)))
    return ours, theirs, names


def _normal(version: str) -> str:
    """Drop the zeros before a number, as rattler does: 2025.05.20 is 2025.5.20."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", version)


KINDS: dict[str, Callable[[Path], tuple[Packages, Packages, set[str]]]] = {
    "environment": of_environment,
    "conda-list": of_list,
    "explicit": of_list,
    "conda-lock": of_conda_lock,
    "pixi-lock": of_pixi,
    "specifications": of_specifications,
}
PLACES = {"specifications": "conda-lock"}
"""Directory of a kind whose name is another."""


def compare(
    path: Path, read: Callable[[Path], tuple[Packages, Packages, set[str]]]
) -> tuple[Counter[str], set[str], str]:
    """Compare one file; return counts, conda's names in it, and what differs."""
    try:
        ours, theirs, names = read(path)
    except InputError as error:
        return Counter(files=1, refused=1), set(), f"refused: {error}"
    except Exception as error:  # noqa: BLE001 (whatever the other parser raises)
        return Counter(files=1, unreadable=1), set(), f"the other parser: {type(error).__name__}: {str(error)[:200]}"
    left, right = Counter(ours), Counter(theirs)
    missing, added = right - left, left - right
    counts = Counter(
        files=1,
        equal_files=int(not missing and not added),
        packages=sum(right.values()),
        equal=sum((left & right).values()),
        missing=sum(missing.values()),
        added=sum(added.values()),
    )
    difference = "".join(f"\n    missing {item}" for item in missing) + "".join(
        f"\n    added   {item}" for item in added
    )
    return counts, names, difference


def compare_names(names: Iterable[str], mapping: dict[str, list[str] | None]) -> Counter[str]:
    """Compare the distribution of conda packages with the mapping."""
    counts: Counter[str] = Counter()
    for name in sorted(names):
        if name not in mapping:
            counts["not in the mapping"] += 1
            continue
        found = {canonical_name(item) for item in mapping[name] or ()}
        ours = identify(name)
        same = ours in found if found else ours is None
        counts["equal" if same else "different"] += 1
        if not same:
            print(f"name {name}: {ours}, mapping {sorted(found)}", file=sys.stderr)
    return counts


def main() -> None:
    """Compare every file of a directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mapping", type=Path)
    parser.add_argument("--only", choices=KINDS, help="one kind")
    options = parser.parse_args()
    columns = ("files", "equal_files", "refused", "unreadable", "packages", "equal", "missing", "added")
    print("| kind | files | equal | refused by us | by the other | packages | equal | missing | added |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    names: set[str] = set()
    for kind, read in KINDS.items():
        if options.only not in {None, kind}:
            continue
        total: Counter[str] = Counter()
        for path in sorted(item for item in (options.directory / PLACES.get(kind, kind)).rglob("*") if item.is_file()):
            counts, found, difference = compare(path, read)
            total += counts
            names |= found
            if difference:
                print(f"{path.relative_to(options.directory)}: {difference}", file=sys.stderr)
        print(f"| {kind} | " + " | ".join(str(total[column]) for column in columns) + " |")
    if options.mapping is not None:
        print(f"\nnames: {dict(compare_names(names, json.loads(options.mapping.read_text())))}")


if __name__ == "__main__":
    main()
