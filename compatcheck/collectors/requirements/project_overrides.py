"""The overrides of uv that a ``pyproject.toml`` states, and the lists of packages beside it keep.

https://docs.astral.sh/uv/reference/settings/#override-dependencies
"""

from __future__ import annotations

import os

from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_texts
from compatcheck.core.requirement import InvalidRequirementError, parse_requirement
from compatcheck.core.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.environment import Package
    from compatcheck.core.files import Files


def mark_overridden(packages: Mapping[str, Package], folder: str, files: Files) -> dict[str, Package]:
    """Mark the packages of a list that the project in its folder overrides: uv takes them whatever others require of them.

    ``uv pip install`` reads the overrides of the project that it runs in, and what was exported there rests on them.
    """
    named = set(_overridden(os.path.join(folder, "pyproject.toml"), files))
    return {
        name: package._replace(details={**package.details, "override": "yes"}) if name in named else package
        for name, package in packages.items()
    }


def _overridden(path: str, files: Files) -> Iterator[str]:
    if not files.is_file(path):
        return
    from compatcheck.core.toml import read_toml  # noqa: PLC0415 (only where there is such a file)

    try:
        data = read_toml(path, files).data
    except InputError:
        return  # nobody named it
    for text in as_texts(as_table(as_table(data.get("tool")).get("uv")).get("override-dependencies")):
        try:
            yield parse_requirement(text, Source(path)).name
        except InvalidRequirementError:
            continue
