"""The hash of what a probe does: its code, without its words and without what only says how it may be run.

A corrected docstring or a further size leaves every measurement as it was, so that evidence must not be orphaned by it.
"""

from __future__ import annotations

import ast
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNMEASURED = frozenset({"CHOICES", "SIZES", "VARIED", "counted", "further_facts", "on_a_gpu", "shares"})
"""Names of a probe's file that no single measurement depends on: what may be asked for, what else is known of the run, how it is
counted, which each measurement says, and which files a run gets, whose code is what is hashed."""
_DIGITS = 12


def hash_code(sources: Iterable[str]) -> str:
    """Return the first twelve digits of the SHA-256 of the syntax trees of Python sources, the same under every Python.

    Comments, layout, texts that stand for themselves (docstrings), definitions of `UNMEASURED` names and imports for type
    checkers (``if TYPE_CHECKING:``) at the top do not count.

    Args:
        sources: texts of the files, in an order that counts.

    Raises:
        SyntaxError: one is not Python.
    """
    digest = hashlib.sha256()
    for source in sources:
        tree = ast.parse(source)
        tree.body = [statement for statement in tree.body if _is_run(statement)]
        digest.update(_describe(tree).encode())
        digest.update(b"\n")
    return digest.hexdigest()[:_DIGITS]


def _is_run(statement: ast.stmt) -> bool:
    """Tell whether a statement at the top takes part in a measurement."""
    if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING":
        return False
    return not _assigned(statement) & UNMEASURED


def _assigned(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    match statement:
        case ast.FunctionDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _describe(value: object) -> str:
    """Write a tree as text; ``ast.dump`` will not do, for its fields differ from one Python to the next."""
    match value:
        case ast.Constant(value=constant):
            return f"{type(constant).__name__} {constant!r}"
        case ast.JoinedStr(values=values):
            # Python 3.12 ends some with an empty text.
            return f"JoinedStr({', '.join(_describe(part) for part in values if not _is_empty(part))})"
        case ast.AST():
            return f"{type(value).__name__}({', '.join(_fields(value))})"
        case list():
            return f"[{', '.join(_describe(item) for item in value if not _is_text(item))}]"
    return repr(value)


def _fields(node: ast.AST) -> Iterator[str]:
    for name, value in ast.iter_fields(node):
        # What is absent or empty is left out: a newer Python's new fields are.
        if value is not None and value != [] and name != "ctx":
            yield f"{name}={_describe(value)}"


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_empty(node: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""
