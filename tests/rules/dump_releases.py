"""Write the snapshots of releases that ranges in the database are checked against: ``rules/_releases``, as an index lists them.

The index that pip or uv is set up for is asked, and its name never reaches a snapshot. `pinned` gives a row of ``rules/_pins``:

    PYTHONPATH=. python tests/rules/dump_releases.py 2026-11-21 [PACKAGE ...]
"""

from __future__ import annotations

import re
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from compatcheck.services.releases import fetch_releases
from tests import ROOT

PACKAGES = (
    "accelerate",
    "axolotl",
    "bitsandbytes",
    "datasets",
    "deepspeed",
    "flash-attn",
    "huggingface-hub",
    "lightning",
    "liger-kernel",
    "llamafactory",
    "megatron-core",
    "ms-swift",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "openrlhf",
    "optimum",
    "peft",
    "ray",
    "sglang",
    "tokenizers",
    "torch",
    "torchao",
    "torchtune",
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


def pinned(lines: tuple[str, ...], packages: Callable[[str], bool]) -> dict[str | None, dict[str, str]]:
    """Return the specifiers that ``lines`` put on the chosen packages: extra (None for the base) → package → specifier.

    Requirements whose marker excludes Linux on CPython 3.11 are left out; one without a version gives ``""``.
    """
    found: dict[str | None, dict[str, str]] = {}
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        name = canonicalize_name(requirement.name)
        if not packages(name):
            continue
        specifier = str(requirement.specifier) or (f"@ {_without_host(requirement.url)}" if requirement.url else "")
        extras = re.findall(r"""extra\s*==\s*['"]([^'"]+)['"]""", line)
        for extra in extras or [None]:
            if requirement.marker is None or requirement.marker.evaluate({**_LINUX, "extra": extra or ""}):
                found.setdefault(extra, {})[name] = specifier
    return found


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


def _without_host(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.unquote(parts.path.rsplit("/", 1)[-1])


if __name__ == "__main__":
    for name in sys.argv[2:] or PACKAGES:
        print(write_snapshot(name, ROOT / "rules" / "_releases", sys.argv[1]))
