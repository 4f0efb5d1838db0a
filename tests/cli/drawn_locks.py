"""Locks of projects that nobody has."""

from __future__ import annotations

import random
from pathlib import Path

RELEASES = {
    "torch": ("2.6.0", "2.5.1", "2.4.1"),
    "deepspeed": ("0.16.4", "0.16.8", "0.15.4"),
    "transformers": ("4.51.3", "4.49.0", "4.46.3"),
    "trl": ("0.16.0", "0.12.0"),
    "vllm": ("0.8.3", "0.7.3"),
}
PACKAGE = """
[[package]]
name = "{name}"
version = "{version}"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [
    {{ url = "https://files.example/{name}-{version}-py3-none-any.whl", hash = "sha256:00", size = 1 }},
]
"""
BROKEN_EVERY = 20
"""One lock of so many cannot be read."""


def write_locks(folder: Path, count: int, packages: int = 10) -> list[str]:
    """Write locks of uv, each in a folder of its own, and return their paths; a seed makes them the same each time."""
    drawn = random.Random(count)
    paths = []
    for number in range(count):
        path = folder / f"{number:05}" / "uv.lock"
        path.parent.mkdir(parents=True)
        rows = [(name, drawn.choice(versions)) for name, versions in RELEASES.items()]
        rows += [(f"package-{index}", f"1.{drawn.randrange(9)}.0") for index in range(packages)]
        head = 'version = 1\nrequires-python = ">=3.11"\n\n[[package]]\nname = "app"\nversion = "1"\nsource = { virtual = "." }\n'
        needs = "".join(f'    {{ name = "{name}" }},\n' for name, _ in rows)
        body = "".join(PACKAGE.format(name=name, version=version) for name, version in rows)
        broken = number % BROKEN_EVERY == BROKEN_EVERY - 1
        path.write_text("version = [[[" if broken else f"{head}dependencies = [\n{needs}]\n{body}")
        paths.append(str(path))
    return paths
