"""Python parsed and never run, without the warnings that are about its own escapes and comparisons."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Literal, overload
from weakref import WeakKeyDictionary

from compatcheck.core.encodings import is_text_encoding
from compatcheck.core.integers import may_be_long, refuse_long

_IMPORTED = re.compile(r"\b(?:from|import)\b[\s\\.,\w]*")
_CODING = re.compile(
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
_FORMATTED = re.compile(r"\b[bru]?f[bru]?['\"]", re.IGNORECASE)
_WORD = re.compile(r"\w+|[^\w\s]")


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(code, mode=mode)
    if may_be_long(text):
        for node in nodes_of(tree):
            refuse_long(getattr(node, "value", None))
    return tree


_WALKED: WeakKeyDictionary[ast.AST, tuple[ast.AST, ...]] = WeakKeyDictionary()


def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return what stands in a tree, in the order of `ast.walk`; it is gathered once, so that nothing may change it."""
    found = _WALKED.get(tree)
    if found is None:
        nodes = children_of(tree)
        for node in nodes:  # grows on the way
            nodes += children_of(node)
        found = _WALKED[tree] = tuple(nodes)
    return found


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return what `ast.iter_child_nodes` does, in a third of its time, but for whether a name is loaded or stored."""
    found: list[ast.AST] = []
    for name in node._fields:
        if name == "ctx":
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def find_calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """Return the calls of a function, whatever module it is called of."""
    calls = (node for node in nodes_of(tree) if isinstance(node, ast.Call))
    return [call for call in calls if name in (getattr(call.func, "attr", None), getattr(call.func, "id", None))]
