"""Python parsed and never run, without the warnings that are about its own escapes and comparisons."""

from __future__ import annotations

import ast
import warnings
from typing import Literal, overload


@overload
def parse_python(code: str | bytes) -> ast.Module: ...
@overload
def parse_python(code: str | bytes, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(code: str | bytes, mode: str = "exec") -> ast.AST:
    """Parse a file, or with ``eval`` one expression.

    Raises:
        SyntaxError: it is no Python.
        ValueError: it holds NUL bytes, or thousands of digits.
        RecursionError, MemoryError: it is nested too deeply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code, mode=mode)
