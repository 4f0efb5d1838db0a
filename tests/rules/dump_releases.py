"""Write what an index lists: releases that ranges in the database are checked against, and what releases require of others.

The index that pip or uv is set up for is asked, and its name never reaches ``rules/_releases`` or ``rules/_pins``:

    PYTHONPATH=. python tests/rules/dump_releases.py releases 2026-11-21 [PACKAGE ...]
    PYTHONPATH=. python tests/rules/dump_releases.py pins 2026-11-21 [PACKAGE ...]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from compatcheck.core.versions import exact_version
from compatcheck.services.releases import Release, fetch_releases, list_files, read_requirements, release_of
from tests import ROOT

PACKAGES = (
    "accelerate",
    "axolotl",
    "bitsandbytes",
    "compressed-tensors",
    "datasets",
    "deepspeed",
    "flash-attn",
    "huggingface-hub",
    "lightning",
    "liger-kernel",
    "llamafactory",
    "megatron-core",
    "ms-swift",
    "numpy",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "openrlhf",
    "optimum",
    "peft",
    "ray",
    "sglang",
    "tensordict",
    "tokenizers",
    "torch",
    "torchao",
    "torchaudio",
    "torchdata",
    "torchtune",
    "torchvision",
    "transformer-engine",
    "transformers",
    "triton",
    "trl",
    "unsloth",
    "unsloth-zoo",
    "verl",
    "vllm",
    "xformers",
)
"""Packages whose releases ``rules/_releases`` keeps."""

HOLDERS = (
    "accelerate",
    "axolotl",
    "bitsandbytes",
    "compressed-tensors",
    "datasets",
    "deepspeed",
    "lightning",
    "liger-kernel",
    "llamafactory",
    "megatron-core",
    "ms-swift",
    "openrlhf",
    "optimum",
    "peft",
    "sglang",
    "tensordict",
    "tokenizers",
    "torch",
    "torchaudio",
    "torchdata",
    "torchtune",
    "torchvision",
    "transformers",
    "trl",
    "unsloth",
    "unsloth-zoo",
    "verl",
    "vllm",
    "xformers",
)
"""Packages whose requirements ``rules/_pins`` keeps."""

FIRST_PINNED = "2022-10-01"
"""Day from which on the requirements of releases are kept: that of torch 1.13."""


def write_snapshot(package: str, directory: Path, date: str) -> Path:
    """Write ``directory/<package>.yaml`` with every release on the index and return its path.

    Args:
        package: distribution name.
        directory: usually ``rules/_releases``.
        date: ISO date of the look-up.
    """
    releases = fetch_releases(package)
    lines = [f"package: {canonicalize_name(package)}", f'date: "{date}"', "releases:"]
    lines += [f'  "{row.version}": ' + (f'"{row.date}"' if row.date else "null") for row in releases]
    for label, chosen in (
        ("prereleases", [row.version for row in releases if row.prerelease]),
        ("yanked", [row.version for row in releases if row.yanked]),
    ):
        lines.append(f"{label}: [" + ", ".join(f'"{version}"' for version in chosen) + "]")
    path = directory / f"{canonicalize_name(package)}.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def pinned(lines: tuple[str, ...], packages: Callable[[str, str], bool]) -> dict[str, str]:
    """Return the specifiers that ``lines`` put on the chosen packages, extras left out: package → specifier.

    Args:
        lines: ``Requires-Dist`` fields.
        packages: is told a package and its specifier.
    """
    return dict(sorted(_read(lines, packages)))


def brought(lines: tuple[str, ...], packages: Callable[[str, str], bool]) -> dict[str, str]:
    """Return the specifiers that extras put on the chosen packages they are named after: ``vllm<=0.12.0; extra == "vllm"``."""
    always = pinned(lines, packages)
    names = {canonicalize_name(name) for line in lines for name in re.findall(r"extra == [\"']([^\"']+)", line)}
    found = {name: dict(_read(lines, packages, name)).get(name) for name in sorted(names - always.keys())}
    return {name: specifier for name, specifier in found.items() if specifier is not None}


def _read(lines: tuple[str, ...], packages: Callable[[str, str], bool], extra: str = "") -> Iterator[tuple[str, str]]:
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        name, specifier = canonicalize_name(requirement.name), str(requirement.specifier)
        here = requirement.marker is None or requirement.marker.evaluate({**_LINUX, "extra": extra})
        if here and specifier and packages(name, specifier):
            yield name, specifier


_LINUX: Mapping[str, str] = {
    "platform_system": "Linux",
    "sys_platform": "linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "python_version": "3.11",
    "python_full_version": "3.11.9",
}


def is_kept(name: str, specifier: str) -> bool:
    """Tell whether a requirement is kept: every range of the stack, and of other packages what one release alone satisfies."""
    return name in PACKAGES or name.startswith(("nvidia-", "cuda-")) or exact_version(specifier) is not None


def write_pins(package: str, directory: Path, date: str) -> Path:
    """Write ``directory/<package>.yaml`` with what each final release requires and return its path.

    Args:
        package: distribution name.
        directory: usually ``rules/_pins``.
        date: ISO date of the look-up.
    """
    releases = [one for one in fetch_releases(package) if not one.prerelease and (one.date or date) >= FIRST_PINNED]
    wheels = {release_of(file.filename, package) for file in list_files(package) if file.filename.endswith(".whl")}
    built = {str(version) for version in wheels}
    with ThreadPoolExecutor(6) as pool:
        stated = list(pool.map(lambda one: read_requirements(package, one.version), releases))
    found = [(pinned(lines, is_kept), brought(lines, is_kept)) for lines in stated]
    lines = [f"package: {canonicalize_name(package)}", f'date: "{date}"', f"source: {_PINS_SOURCE}", "rows:"]
    lines += _rows(zip(releases, found, strict=True), built)
    path = directory / f"{canonicalize_name(package)}.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


_PINS_SOURCE = (
    "Requires-Dist of a Linux x86_64 wheel, else the requirements an sdist records; for CPython 3.11 on Linux"
)


def _rows(found: Iterable[tuple[Release, tuple[dict[str, str], dict[str, str]]]], built: set[str]) -> Iterator[str]:
    """Yield a row for each run of releases that require the same."""
    for ((requires, extras), sdist), group in groupby(found, lambda one: (one[1], one[0].version not in built)):
        yield "  - versions: [" + ", ".join(f'"{release.version}"' for release, _ in group) + "]"
        if sdist:
            yield "    source: sdist"
        yield f"    requires: {_write(requires)}"
        if extras:
            yield f"    extras: {_write(extras)}"


def _write(specifiers: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}: "{specifier}"' for name, specifier in specifiers.items()) + "}"


if __name__ == "__main__":
    what, today, *names = sys.argv[1:]
    write, every = (write_pins, HOLDERS) if what == "pins" else (write_snapshot, PACKAGES)
    for name in names or every:
        print(write(name, ROOT / "rules" / f"_{what}", today), flush=True)
