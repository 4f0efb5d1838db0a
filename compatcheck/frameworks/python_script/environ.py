"""The environment that a script of Python gives itself: ``os.environ["PYTORCH_CUDA_ALLOC_CONF"] = …`` before it imports torch."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.python_script.nodes import dotted_name
from compatcheck.frameworks.text import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ENVIRON = "environ"


def find_variables(path: str, given: Mapping[str, str], files: Files = LOCAL) -> dict[str, str]:
    """Return the variables that are set whatever happens, over those that the script is given; `setdefault` keeps these.

    Those that are set under a condition, in a function or to no literal are left as they are given.
    """
    try:
        text = read_text(path, files)
        body = parse_script(text, path).body if _ENVIRON in text else []
    except InputError:  # its reader says so
        return dict(given)
    found = dict(given)
    for name, value, keeps in _settings(body):
        found[name] = found.get(name, value) if keeps else value
    return found


def _settings(body: list[ast.stmt]) -> Iterator[tuple[str, str, bool]]:
    """Yield names and values in order, and whether a value that is there stays."""
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=owner, slice=ast.Constant(value=str(name)))], value=value):
                keeps = False
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=owner, attr="setdefault"), args=[ast.Constant(value=str(name)), value]
                )
            ):
                keeps = True
            case _:
                continue
        if (
            dotted_name(owner).rpartition(".")[2] == _ENVIRON
            and isinstance(value, ast.Constant)
            and isinstance(value.value, str)
        ):
            yield name, value.value, keeps
