"""Constants that a script imports from modules of its project: ``from config import MODEL_NAME``, with what they hold there."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

from compatcheck.frameworks.python_script.handed_on import find_module
from compatcheck.frameworks.python_script.parsed_classes import parse_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.files import Files

_MOST_LEVELS = 8
"""Expressions and names in one another that are followed."""
_MOST_MODULES = 16
"""Modules of one script that are looked at."""
_MOST_PARTS = 4_096
"""Parts of all expressions of one script that are written out: names may name one another many times over."""


def with_constants(tree: ast.Module, path: str, files: Files) -> ast.Module:
    """Return a script with what it imports by name written out behind the import, where that is a literal there.

    Args:
        tree: the script.
        path: its file.
        files: the tree it lies in.
    """
    body: list[ast.stmt] = []
    looked: set[str] = set()
    budget = iter(range(_MOST_PARTS))
    for node in tree.body:
        body.append(node)
        if not isinstance(node, ast.ImportFrom) or len(looked) >= _MOST_MODULES:
            continue
        file = find_module(path, "." * node.level + (node.module or ""), files) if node.module else None
        other = None if file is None else parse_module(file, files)
        if file is None or other is None:
            continue
        looked.add(file)
        held = _held_by(other)
        for item in node.names:
            value = _written_out(held[item.name], held, node, budget) if item.name in held else None
            if value is not None:
                made = ast.Assign([ast.Name(item.asname or item.name, ast.Store())], value)
                body.append(ast.fix_missing_locations(ast.copy_location(made, node)))
    return ast.Module(body, tree.type_ignores) if looked else tree


def _held_by(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what names at the left edge of a module hold that are bound once in all of it."""
    bound = Counter(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and bound[node.targets[0].id] == 1
    }


def _written_out(
    node: ast.expr, held: Mapping[str, ast.expr], place: ast.stmt, budget: Iterator[int], depth: int = 0
) -> ast.expr | None:
    """Copy an expression of literals and of constants beside it, to another place; None where it is none, or too large."""
    if depth > _MOST_LEVELS or next(budget, None) is None:
        return None

    def copy(one: ast.expr) -> ast.expr | None:
        return _written_out(one, held, place, budget, depth + 1)

    made: ast.expr | None = None
    match node:
        case ast.Constant(value=value):
            made = ast.Constant(value)
        case ast.Name(id=name) if name in held:
            made = copy(held[name])
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            copies = [one for one in map(copy, parts) if one is not None]
            made = ast.List(copies, ast.Load()) if len(copies) == len(parts) else None
        case ast.Dict(keys=keys, values=values):
            names = [one for key in keys if key is not None and (one := copy(key)) is not None]
            given = [one for one in map(copy, values) if one is not None]
            made = ast.Dict([*names], given) if len(names) == len(given) == len(values) else None
        case ast.BinOp(left=left, op=operator, right=right):
            one, other = copy(left), copy(right)
            made = None if one is None or other is None else ast.BinOp(one, operator, other)
        case ast.UnaryOp(op=operator, operand=operand):
            one = copy(operand)
            made = None if one is None else ast.UnaryOp(operator, one)
    return None if made is None else ast.copy_location(made, place)
