"""Python parsed and never run, without the warnings that are about its own escapes and comparisons."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Literal, overload

from compatcheck.core.encodings import is_text_encoding
from compatcheck.core.integers import may_be_long, refuse_long
from compatcheck.core.pattern import lazy_compile

if TYPE_CHECKING:
    import ast

_IMPORTED = lazy_compile(r"\b(?:from|import)\b[\s\\.,\w]*")
_CODING = lazy_compile(
    rb"(?:[^\r\n]*(?:\r\n?|\n))?[ \t\f]*#[^\r\n]*?coding[:=][ \t]*([-\w.]+?)(?:-(?:unix|dos|mac))?(?![-\w.])"
)
"""A declared encoding, in the first two lines (PEP 263)."""
_MOST_PARTS = 500
"""Of the name of a module: CPython's parser joins the parts anew for each, 3 s for 60,000 and minutes for a megabyte of them."""
_MOST_WORDS = 200_000
"""Words and signs, those of comments and texts too; of 31 public training repositories no file has more than 65,695. A tree may
take a kilobyte for each."""
_MOST_FILLED_IN = 5_000
"""Opening braces of one line that holds a formatted text: CPython before 3.12 looks for the place of each from its beginning."""
_FORMATTED = lazy_compile(r"\b[bru]?f[bru]?['\"]", re.IGNORECASE)
_WORD = lazy_compile(r"\w+|[^\w\s]")


@overload
def parse_python(code: str | bytes) -> ast.Module: ...
@overload
def parse_python(code: str | bytes, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(code: str | bytes, mode: str = "exec") -> ast.AST:
    """Parse a file, or with ``eval`` one expression.

    Raises:
        SyntaxError: it is no Python.
        ValueError: it holds NUL bytes, an integer of thousands of digits, or so much that its tree would fill the memory.
        RecursionError, MemoryError: it is nested too deeply.
    """
    declared = None if isinstance(code, str) else _CODING.match(code)
    if declared is not None and not is_text_encoding(name := declared[1].decode("ascii", "replace")):
        raise SyntaxError(f"declares the encoding {name!r}, which is not read")
    text = code if isinstance(code, str) else code.decode("latin-1")
    if any(found.group().count(".") > _MOST_PARTS for found in _IMPORTED.finditer(text)):
        raise RecursionError(f"the name of a module has more than {_MOST_PARTS} parts")
    if len(text) > _MOST_WORDS and sum(1 for _ in _WORD.finditer(text)) > _MOST_WORDS:
        raise ValueError(f"it holds more than {_MOST_WORDS:,} words and signs")
    if text.count("{") > _MOST_FILLED_IN and any(
        line.count("{") > _MOST_FILLED_IN and _FORMATTED.search(line) for line in text.splitlines()
    ):
        raise ValueError(f"a line of it has more than {_MOST_FILLED_IN:,} opening braces")
    import ast  # noqa: PLC0415 (many commands come across no Python)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(code, mode=mode)
    if may_be_long(text):
        for node in ast.walk(tree):
            refuse_long(getattr(node, "value", None))
    return tree
