"""Blocks of a pasted text, laid over a tree as files of their own: under the names that commands and configurations give them."""

from __future__ import annotations

import os

from compatcheck.collectors.recognise import REPORT_SUFFIXES, recognise_content
from compatcheck.core.errors import InputError
from compatcheck.core.files import Files, Overlay
from compatcheck.core.pasted_text import may_start_program
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.textfile import STANDARD_INPUT, read_bytes
from compatcheck.frameworks.beside import find_beside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.collectors.reports.blocks import Block


def open_blocks(path: str, files: Files) -> tuple[Files, tuple[str, ...] | None]:
    """Lay the blocks of code of a pasted text over a tree, as files of their own.

    Returns:
        The tree, and the names that the blocks have in it; None for what is no text with any.
    """
    if path != STANDARD_INPUT and not path.endswith(REPORT_SUFFIXES):
        return files, None
    try:
        content = read_bytes(path, files)
    except InputError:
        return files, None  # its reader says why
    fenced = b"```" in content or b"~~~" in content
    starts = may_start_program(content)
    if not (fenced or starts or _STATES.search(content) is not None):
        return files, None
    text = content.decode("utf-8", "replace")
    if not (fenced or starts) and _parses(text, path):
        return files, None
    laid, names = lay_blocks(text, path, files)
    return (laid, names) if fenced or names else (files, None)


_STATES = lazy_compile(
    rb"(?m)^(?:[a-z][a-z0-9_]*:|\{|from[ \t]+[\w.]+[ \t]+import[ \t]|import[ \t]+\w)", needs=(b":", b"{", b"import")
)
"""Begins a line of a configuration or of code that may stand between words."""


def _parses(text: str, path: str) -> bool:
    """Tell whether a text as a whole is what a configuration is written in, not one between the words of a letter."""
    from compatcheck.frameworks.deepspeed import syntax  # noqa: PLC0415 (only for pasted texts)
    from compatcheck.frameworks.text import parse_configuration  # noqa: PLC0415 (only for pasted texts)

    try:
        found = syntax.parse(text, path) if text.lstrip()[:1] == "{" else parse_configuration(text, path)
    except InputError:
        return False
    return not isinstance(found, str)


_INSTALLS = lazy_compile(rb"(?m)^[ \t]*(?:[$!%#][ \t]*)?(?:pip3?|conda|mamba)[ \t]+install[ \t][^\n#]*=")
"""Asks for a release at the beginning of a line."""


def holds_inputs(content: bytes) -> bool:
    """Tell whether a text is, or holds between its words, something that can be checked."""
    from compatcheck.collectors.reports.blocks import find_blocks  # noqa: PLC0415 (only for pasted texts)

    text = content.decode("utf-8", "replace")
    whole = recognise_content(content) is not None or _parses(text, STANDARD_INPUT)
    return whole or _INSTALLS.search(content) is not None or bool(find_blocks(text, STANDARD_INPUT))


def lay_blocks(text: str, path: str, files: Files) -> tuple[Files, tuple[str, ...]]:
    """Lay the blocks of code of a text over a tree; return it with the names they have there."""
    from compatcheck.collectors.reports.blocks import find_blocks  # noqa: PLC0415 (only for pasted texts)

    blocks = find_blocks(text, path)
    named = {block.path: name for block in blocks if (name := _find_name(block, blocks, path, files)) is not None}
    laid = {named.get(block.path, block.path): block.content for block in blocks}
    return Overlay(files, laid), tuple(block.path for block in blocks if block.path not in named)


_FILES = {
    suffix: lazy_compile(
        rb"(?m:--[\w-]*(?:deepspeed|config)[\w-]*[= ]+|\btrain\s+|^[ \t]*deepspeed\w*:[ \t]+[\"']?)"
        rb"([\w./-]+\.(?:" + ends + rb"))\b"
    )
    for suffix, ends in ((".yaml", rb"ya?ml"), (".json", rb"h?json"))
}
"""Configurations that commands and configurations name, by the suffix of the blocks that may be one of them."""


def _find_name(block: Block, blocks: Sequence[Block], path: str, files: Files) -> str | None:
    """Return the file that a block without a name is: the only one that other blocks name and that is not here.

    None where another block is of its kind, or another file of the kind is named.
    """
    suffix = os.path.splitext(block.path)[1]
    if suffix not in _FILES or sum(other.path.endswith(suffix) for other in blocks) > 1:
        return None
    names = {name.decode() for other in blocks if other is not block for name in _FILES[suffix].findall(other.content)}
    missing = [found for name in names if not files.exists(found := find_beside(path, name, files))]
    return missing[0] if len(missing) == 1 else None
