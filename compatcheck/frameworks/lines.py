"""Find the line of a key in a configuration file, after the fact: only for facts that end in a finding."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.core.hjson import parse_hjson
from compatcheck.core.textfile import STANDARD_INPUT
from compatcheck.frameworks.text import read_text

if TYPE_CHECKING:
    from compatcheck.core.source import Source


def with_line(source: Source) -> Source:
    """Return the source with its line, when it names a key of a file that can be read."""
    if source.line is not None or source.key is None:
        return source
    lines = _lines(source.path, _stamp(source.path))
    key = source.key
    while key:
        if key in lines:
            return source._replace(line=lines[key])
        key = key.rpartition(".")[0]
    return source


def _stamp(path: str) -> tuple[str, int, int] | None:
    """Tell one state of a file from the next: a relative path means another file in another directory."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return os.path.abspath(path), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _lines(path: str, stamp: tuple[str, int, int] | None) -> dict[str, int]:  # noqa: ARG001 (part of the cache's key)
    if path != STANDARD_INPUT and not path.endswith((".json", ".jsonc", ".hjson", ".yaml", ".yml")):
        return {}
    try:
        text = read_text(path)
        is_yaml = path.endswith((".yaml", ".yml")) or (path == STANDARD_INPUT and not text.lstrip().startswith("{"))
        return _yaml_lines(text) if is_yaml else parse_hjson(text, path)[1]
    except InputError:
        return {}


def _yaml_lines(text: str) -> dict[str, int]:
    import yaml  # noqa: PLC0415 (imported already when the file was read)

    lines: dict[str, int] = {}
    try:
        node: Any = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return lines
    pending: list[tuple[str, Any, int]] = [("", node, 0)]
    while pending:
        prefix, node, depth = pending.pop()
        if node is None or node.id != "mapping" or depth > 64:
            continue
        for key, value in node.value:
            dotted = f"{prefix}{key.value}" if key.id == "scalar" else ""
            lines.setdefault(dotted, key.start_mark.line + 1)
            pending.append((f"{dotted}.", value, depth + 1))
    return lines
