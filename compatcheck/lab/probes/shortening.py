"""A program without what its run does not use: definitions nobody reaches, docstrings, annotations, comments.

A reproduction for maintainers should be read in a minute. What measures is written once, for every probe and back end; of that,
one run needs a part.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def shorten(source: str, roots: Iterable[str] = ()) -> str:
    """Return a program, or a module of which only some names are used, without what is not reached.

    Args:
        source: Python.
        roots: names that are used from outside, beside what runs at the top.
    """
    tree = ast.parse(source)
    _Stripper().visit(tree)
    wanted = set(roots)
    running = [statement for statement in tree.body if not _names(statement)]
    for statement in running:
        wanted |= _used(statement)
    defined = [(statement, _names(statement)) for statement in tree.body]
    while True:
        before = len(wanted)
        for statement, names in defined:
            if names & wanted:
                wanted |= _used(statement, wanted)
        if len(wanted) == before:
            break
    kept: list[ast.stmt] = []
    for statement, names in defined:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            statement.names = [one for one in statement.names if (one.asname or one.name).partition(".")[0] in wanted]
            kept += [statement] if statement.names else []
        elif not names or names & wanted:
            if isinstance(statement, ast.ClassDef):
                statement.body = [one for one in statement.body if _is_wanted(one, wanted)] or [ast.Pass()]
            kept.append(statement)
    tree.body = kept
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Stripper(ast.NodeTransformer):
    """Takes out what only readers and type checkers use."""

    def visit(self, node: ast.AST) -> ast.AST:
        """Go through everything, the innermost first."""
        self.generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            left = [one for one in body if not _is_said(one)]
            node.body = left or ([] if isinstance(node, ast.Module) else [ast.Pass()])  # type: ignore[attr-defined]
        match node:
            case ast.FunctionDef():
                node.returns = None
            case ast.arg():
                node.annotation = None
            case ast.AnnAssign(value=value) if value is not None:
                return ast.Assign([node.target], value)
        return node


def _is_said(statement: ast.stmt) -> bool:
    """Tell whether a statement does nothing: a text, a bare annotation, an import for type checkers or of annotations."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())) | ast.AnnAssign(value=None):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.ImportFrom(module="__future__"):
            return True
    return False


def _names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement at the top defines; none for one that runs."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(one.asname or one.name).partition(".")[0] for one in names}
    return set()


def _used(statement: ast.stmt, wanted: set[str] | None = None) -> set[str]:
    """Return the names and attributes that a statement uses; of a class, those of the methods that are wanted."""
    if isinstance(statement, ast.ClassDef) and wanted is not None:
        inner = [one for one in statement.body if _is_wanted(one, wanted)]
        return {name for one in (*statement.bases, *inner) for name in _used_below(one)}
    return _used_below(statement)


def _used_below(node: ast.AST) -> set[str]:
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _is_wanted(statement: ast.stmt, wanted: set[str]) -> bool:
    """Tell whether a part of a class is used; what Python calls itself is."""
    if not isinstance(statement, ast.FunctionDef):
        return True
    return statement.name in wanted or statement.name.startswith("__")
