"""What stands in the tree of Python code."""

from __future__ import annotations

import ast
from weakref import WeakKeyDictionary

_CHILDREN = "_children"
"""Where a node keeps its children once they are gathered; no field of any node."""
_WALKED: WeakKeyDictionary[ast.AST, tuple[ast.AST, ...]] = WeakKeyDictionary()


def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return what stands in a tree, in the order of `ast.walk`; it is gathered once, so that nothing may change it."""
    found = _WALKED.get(tree)
    if found is None:
        nodes = list(children_of(tree))
        for node in nodes:  # grows on the way
            nodes += children_of(node)
        found = _WALKED[tree] = tuple(nodes)
    return found


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return what `ast.iter_child_nodes` does, but for whether a name is loaded or stored; gathered once, as in `nodes_of`."""
    kept: list[ast.AST] | None = node.__dict__.get(_CHILDREN)
    if kept is not None:
        return kept
    found: list[ast.AST] = []
    node.__dict__[_CHILDREN] = found
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
