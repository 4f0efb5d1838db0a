"""Write which releases of bitsandbytes load a library of their wheels beside a torch that is built for a CUDA release.

Wheels for Linux are taken from the index that pip is set up for, one after another (some 5 GB), and the names in them are read:

    PYTHONPATH=. python tests/rules/dump_bitsandbytes.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from packaging.version import Version

from compatcheck.services.releases import fetch_releases

FIRST = Version("0.41.0")
"""Before it the library was chosen by a runtime that was found on the machine, not by ``torch.version.cuda``."""
NEAREST = Version("0.50.0")
"""From it on the nearest library of the same major release is loaded, before only the very same (``cextension.py``)."""
PLATFORMS = ("manylinux_2_24", "manylinux_2_28")


def read_libraries(release: str, machine: str) -> frozenset[Version]:
    """Return the CUDA releases that a wheel has libraries for, none where there is no wheel."""
    with tempfile.TemporaryDirectory() as directory:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            directory,
        ]
        command += [word for name in PLATFORMS for word in ("--platform", f"{name}_{machine}")]
        subprocess.run([*command, f"bitsandbytes=={release}"], check=False, capture_output=True)
        names = [name for path in Path(directory).glob("*.whl") for name in ZipFile(path).namelist()]
    found = (re.search(r"libbitsandbytes_cuda(\d+)(\d)\.so$", name) for name in names)
    return frozenset(Version(f"{one[1]}.{one[2]}") for one in found if one is not None)


def loads(release: Version, cuda: Version, libraries: frozenset[Version]) -> bool:
    """Tell whether a release finds a library for a CUDA release."""
    return cuda in libraries or (release >= NEAREST and any(one.major == cuda.major for one in libraries))


def write_ranges(held: dict[Version, frozenset[Version]], asked: frozenset[Version]) -> dict[str, str]:
    """Return CUDA release → range of releases that load a library for it; ``==0`` is none of them."""
    ordered, ranges = sorted(held), {}
    for cuda in sorted(asked):
        parts, begun = [], False
        for release in ordered:
            if loads(release, cuda, held[release]) != begun:
                begun = not begun
                parts += [f">={release}"] if begun else [parts.pop() + f",<{release}"]
        ranges[str(cuda)] = " || ".join(parts) or "==0"
    return ranges


def main() -> None:
    """Print rows of ``rules/_tables/bitsandbytes-libraries.yaml``."""
    releases = [
        one.version for one in fetch_releases("bitsandbytes") if not one.prerelease and Version(one.version) >= FIRST
    ]
    for machine in ("x86_64", "aarch64"):
        held = {Version(one): found for one in releases if (found := read_libraries(one, machine))}
        asked = frozenset().union(*held.values(), map(Version, ("11.3", "11.6", "12.7", "13.1")))
        print(machine)
        for cuda, known in write_ranges(held, asked).items():
            print(f'  - ["{cuda}", "{known}"]')


if __name__ == "__main__":
    main()
