"""Python scripts that state their requirements themselves (PEP 723): ranges, like those of a ``pyproject.toml``.

https://packaging.python.org/en/latest/specifications/inline-script-metadata/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.core.expected_shapes import as_table, as_text
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import describe_machine
from compatcheck.core.requirement import InvalidRequirementError, Requirement, combine, parse_requirement
from compatcheck.core.selection import DEFAULT, Selection
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import STANDARD_INPUT, echo_value, read_utf8
from compatcheck.core.toml import parse_toml
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment

_OPENING = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_CLOSING = "# ///"
_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_FORM = "write it as 'name', 'name==1.2.3' or 'name>=1.2,<2'"
_MAX_BYTES = 4 * MIB


def read_script(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read the requirements of a script; they are ranges, because running it resolves them anew.

    ``selection`` names the Python it runs on.
    """
    lines = read_utf8(path, files, limit=_MAX_BYTES).replace("\r\n", "\n").split("\n")
    blocks = [(first, last) for kind, first, last in find_blocks(lines) if kind == "script"]
    if len(blocks) != 1:
        message = f"has {len(blocks) or 'no'} block{'s' if blocks else ''} '# /// script' of inline metadata (PEP 723)"
        hint = "keep one block, every line of it starting with '#', closed by '# ///'"
        raise InputError(message, source=Source(path), hint=hint)
    first, last = blocks[0]
    content = [line[2:] if line.startswith("# ") else line[1:] for line in lines[first:last]]
    # Blank lines before it, so that an error of the block names the line of the script.
    data = parse_toml("\n" * first + "\n".join(content), path)
    places: dict[str, int] = {}
    for number, line in enumerate(content, first + 1):
        for match in _QUOTED.finditer(line):
            places.setdefault(match[1] or match[2] or "", number)
    tool = as_table(as_table(data.get("tool")).get("uv"))
    skipped: list[Skipped] = []

    def read(table: Mapping[str, Any], key: str, prefix: str) -> list[Requirement]:
        found = []
        items = table.get(key, [])
        for index, item in enumerate(items if isinstance(items, list) else [items]):
            source = Source(path, f"{prefix}{key}[{index}]", places.get(item) if isinstance(item, str) else None)
            try:
                found.append(parse_requirement(_as_text(item), source))
            except InvalidRequirementError as error:
                skipped.append(Skipped(source, str(error), _FORM, named=True))
        return found

    required = read(data, "dependencies", "")
    constraints = read(tool, "constraint-dependencies", "tool.uv.")
    overrides = read(tool, "override-dependencies", "tool.uv.")
    environment = describe_machine(selection.markers, requires_python=as_text(data.get("requires-python")))
    combined = combine(required, environment, constraints=constraints, overrides=overrides)
    notes = []
    if path != STANDARD_INPUT and files.is_file(path + ".lock"):
        notes.append(f"{path}.lock pins what these ranges allow: check it too")
    return combined.describe(path, skipped=skipped, notes=notes)


def find_blocks(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Find the blocks of inline metadata: (type, index of the first line of its content, index of the line that closes it).

    As the specification's expression has it, a block runs to the last closing line of the comment it stands in.
    """
    index = 0
    while index < len(lines):
        opening = _OPENING.fullmatch(lines[index])
        index += 1
        if opening is None:
            continue
        first, closing = index, None
        while index < len(lines) and (lines[index] == "#" or lines[index].startswith("# ")):
            if lines[index] == _CLOSING:
                closing = index
            index += 1
        if closing is not None and closing > first:
            yield opening[1], first, closing


def _as_text(item: object) -> str:
    if not isinstance(item, str):
        message = f"{echo_value(item)} is not a requirement string"
        raise InvalidRequirementError(message)
    return item
