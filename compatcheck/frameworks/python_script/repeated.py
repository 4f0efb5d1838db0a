"""Whether a script builds engines one after another in one process, and whether around one model."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def builds_again(tree: ast.Module, function: str) -> bool | None:
    """Tell whether what a function builds is built again after it was given up; None where that is not plain.

    It is where a loop both calls the function and gives up what it made (``destroy()``, ``del``): a loop alone may build what
    lives side by side. It is not where the only call stands outside of loops, by itself or in a function that is called once.
    """
    places = list(_places(tree, "", None))
    calls = [(place, loop) for node, place, loop in places if _is_call(node, function)]
    made = {name for node, _, _ in places if isinstance(node, ast.Assign) for name in _made_by(node, function)}
    given_up = [loop for node, _, loop in places if loop is not None and _gives_up(node, made)]
    if any(loop in given_up for _, loop in calls):
        return True
    if len(calls) != 1 or calls[0][1] is not None:
        return None
    name = calls[0][0]
    named = [node for node, _, _ in places if name and _last_name(node) == name]
    once = [(place, loop) for node, place, loop in places if name and _is_call(node, name)] == [("", None)]
    return False if not name or (once and len(named) == 1) else None


def keeps_model(tree: ast.Module, function: str) -> bool | None:
    """Tell whether what a function builds in a loop is built around one model all the time; None where that is not plain.

    It is where nothing in the loop binds the model's name. It is not where the loop loads the model, or gives up its name, and
    keeps it nowhere else.
    """
    calls = [(node, loop) for node, _, loop in _places(tree, "", None) if loop is not None and _is_call(node, function)]
    if len(calls) != 1 or not isinstance(calls[0][0], ast.Call):
        return None
    call, inside = calls[0][0], list(ast.walk(calls[0][1]))
    model = next((word.value for word in call.keywords if word.arg == "model"), next(iter(call.args), None))
    if not isinstance(model, ast.Name):
        return False if _loads(model) else None
    uses = [node for node in inside if isinstance(node, ast.Name) and node.id == model.id]
    if all(isinstance(node.ctx, ast.Load) for node in uses):
        return True
    loaded = (targets for targets, value in map(targets_of, inside) if _loads(value))
    gone = any(_is_name(one, model.id) for targets in loaded for one in targets)
    gone = gone or any(isinstance(node.ctx, ast.Del) for node in uses)
    given = (node.args for node in inside if isinstance(node, ast.Call) and _last_name(node.func) in _KEEPS)
    kept = any(_is_name(one, model.id) for arguments in given for one in arguments)
    return False if gone and not kept else None


_KEEPS = frozenset({"append", "add", "extend", "insert", "put", "setdefault"})
"""Methods by which a container keeps what it is given."""
_LOADS = frozenset({"from_pretrained", "from_config"})


def _loads(node: ast.AST | None) -> bool:
    """Tell whether an expression makes a model: it loads one, or makes one of a class."""
    name = _last_name(node.func) if isinstance(node, ast.Call) else ""
    return name in _LOADS or name[:1].isupper()


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _places(node: ast.AST, function: str, loop: ast.AST | None) -> Iterator[tuple[ast.AST, str, ast.AST | None]]:
    """Yield every node with the function it stands in and the outermost loop around it."""
    for child in ast.iter_child_nodes(node):
        yield child, function, loop
        inner = getattr(child, "name", "<lambda>") if isinstance(child, _FUNCTIONS) else function
        yield from _places(child, inner, loop or (child if isinstance(child, _LOOPS) else None))


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func) == name


def _made_by(node: ast.Assign, function: str) -> Iterator[str]:
    """Yield the names of what a call of a function gave."""
    if _is_call(node.value, function) or (
        isinstance(node.value, ast.Subscript) and _is_call(node.value.value, function)
    ):
        yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _gives_up(node: ast.AST, made: set[str]) -> bool:
    if isinstance(node, ast.Delete):
        return any(isinstance(target, ast.Name) and target.id in made for target in node.targets)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "destroy":
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id in made
