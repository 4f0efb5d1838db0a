"""What a new rule file starts from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_text
from compatcheck.core.errors import UsageError
from compatcheck.core.programs import LED_ASTRAY, is_led_astray

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLACEHOLDER = "TODO"
"""What stands where a new rule has nothing of its own yet, in a value or in the comment behind one."""


def write_skeleton(rule_id: str, root: Path) -> Path:
    """Write the skeleton of a rule into a directory of rules and return its path.

    Raises:
        UsageError: the id is not PACKAGE/SLUG, or the file exists or cannot be written.
    """
    package, _, slug = rule_id.partition("/")
    if not all(part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in (package, slug)):
        raise UsageError(
            f"{rule_id!r} is not PACKAGE/SLUG",
            hint="as deepspeed/zero3-params-kept-in-backward: name the bad pattern, not the fix",
        )
    path = root / package / f"{slug}.yaml"
    if os.path.exists(path):
        raise UsageError(f"{path} exists already")
    if is_led_astray(str(path)):
        raise UsageError(f"{path} is not written: {LED_ASTRAY}", hint="name another directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(read_text(__file__, "skeleton").replace("PACKAGE", package), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="name another directory") from None
    return path


def find_placeholders(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, key and words of each placeholder that a rule file still has from the skeleton."""
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line[:1].isalpha():
            key = line.partition(":")[0]
        if PLACEHOLDER in line:
            yield number, key, line[line.index(PLACEHOLDER) + len(PLACEHOLDER) :].partition('"')[0].strip(" :}")
