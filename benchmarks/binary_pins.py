"""Write the table of what torch's companions are built with, as the configured package index has their releases.

    python benchmarks/binary_pins.py > rows.yaml        # 172 releases, a few minutes

Goes into ``rules/_tables/torch-minor-of-binaries.yaml``: one row for each release that requires one release of torch exactly.
"""

from __future__ import annotations

import re
import sys

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from compatcheck.core.errors import InputError
from compatcheck.services.releases import fetch_releases, read_requirements

FIRST = {"torchvision": "0.14", "torchaudio": "0.13", "xformers": "0.0.20", "vllm": "0.3"}
"""Distribution → oldest release that is listed: those beside torch 1.13 and newer."""


def pinned_minor(lines: tuple[str, ...]) -> str | None:
    """Return the minor release of torch that requirements pin, None where they allow more than one release."""
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name.lower() == "torch":
            match = re.fullmatch(r"==(\d+\.\d+)(?:\.\d+)*(?:\+\w+)?", str(requirement.specifier))
            return match[1] if match is not None else None
    return None


def main() -> None:
    """Print the rows."""
    for package, first in FIRST.items():
        for release in fetch_releases(package):
            if release.prerelease or Version(release.version) < Version(first):
                continue
            try:
                minor = pinned_minor(read_requirements(package, release.version))
            except InputError as error:
                sys.stderr.write(f"{package} {release.version}: {error.message}\n")
                continue
            if minor is not None:
                sys.stdout.write(f'  - [{package}, "{release.version}", "{minor}"]\n')


if __name__ == "__main__":
    main()
