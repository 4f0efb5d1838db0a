"""Whether a script builds engines one after another in one process, and whether around one model."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def builds_again(
    tree: ast.Module, functions: Collection[str], *, lets_go: bool = False, parts: bool = False
) -> bool | None:
    """Tell whether what functions build is built again after it was given up; None where that is not plain.

    It is where a loop both calls one of them and gives up what it made (``destroy()``, ``del``): a loop alone may build what
    lives side by side. It is not where the only call stands outside of loops, by itself or in a function that is called once.

    Args:
        tree: the script.
        functions: what is called, by dotted names.
        lets_go: whether what is made goes with its name: where that is bound anew in a loop, or its function is called again.
        parts: whether several calls make parts of one thing.
    """
    places = list(_places(tree, "", None))
    calls = [(place, loop) for node, place, loop in places if _is_call(node, functions)]
    made = {name for node, _, _ in places if isinstance(node, ast.Assign) for name in _made_by(node, functions)}
    given_up = [(place, loop) for node, place, loop in places if _gives_up(node, made)]
    if lets_go:
        given_up += [
            (place, loop)
            for node, place, loop in places
            if isinstance(node, ast.Assign) and _binds_call(node, functions) and not _keeps_one(tree, made)
        ]
    inside = {loop for _, loop in given_up if loop is not None}
    if any(loop in inside for _, loop in calls):
        return True
    if any(loop is not None for _, loop in calls) or not calls or (len(calls) > 1 and not parts):
        return None
    again = {place: _runs_again(place, places) for place, _ in calls}
    if any(again[place] for place, _ in given_up if place in again):
        return True
    return False if set(again.values()) == {False} else None


def _runs_again(function: str, places: Sequence[_Place], left: int = 4) -> bool | None:
    """Tell whether a function is called more than once; None where something else than the script may call it."""
    if not function:
        return False
    made = [node for node, _, _ in places if isinstance(node, _FUNCTIONS) and getattr(node, "name", "") == function]
    named = sum(_last_name(node) == function for node, _, _ in places)
    calls = [(place, loop) for node, place, loop in places if _is_call(node, {function})]
    if len(calls) != named or not calls or not left or any(getattr(one, "decorator_list", ()) for one in made):
        return None
    if len(calls) > 1 or calls[0][1] is not None:
        return True
    return _runs_again(calls[0][0], places, left - 1)


def _binds_call(node: ast.Assign, functions: Collection[str]) -> bool:
    """Tell whether what is made of a class gets a name, or several things do that are made at once."""
    if not isinstance(node.value, ast.Call) or not _is_call(node.value, functions):
        return False
    return isinstance(node.targets[0], ast.Tuple) or _last_name(node.value.func)[:1].isupper()


def _keeps_one(tree: ast.Module, names: Collection[str]) -> bool:
    """Tell whether a container keeps what one of some names stands for, or a function returns it."""
    for node in nodes_of(tree):
        kept: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and _last_name(node.func) in _KEEPS:
            kept = [*node.args]
        elif isinstance(node, ast.Return):
            kept = list(getattr(node.value, "elts", [node.value]))
        if any(isinstance(one, ast.Name) and one.id in names for one in kept):
            return True
    return False


def keeps_model(tree: ast.Module, functions: Collection[str]) -> bool | None:
    """Tell whether what functions build in a loop is built around one model all the time; None where that is not plain.

    It is where nothing in the loop binds the model's name. It is not where the loop loads the model, or gives up its name, and
    keeps it nowhere else.
    """
    calls = [
        (node, loop) for node, _, loop in _places(tree, "", None) if loop is not None and _is_call(node, functions)
    ]
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


_Place: TypeAlias = "tuple[ast.AST, str, ast.AST | None]"


def _places(node: ast.AST, function: str, loop: ast.AST | None) -> Iterator[_Place]:
    """Yield every node with the function it stands in and the outermost loop around it."""
    for child in ast.iter_child_nodes(node):
        yield child, function, loop
        inner = getattr(child, "name", "<lambda>") if isinstance(child, _FUNCTIONS) else function
        yield from _places(child, inner, loop or (child if isinstance(child, _LOOPS) else None))


def _is_call(node: ast.AST, names: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func) in names


def _made_by(node: ast.Assign, functions: Collection[str]) -> Iterator[str]:
    """Yield the names of what a call of one of some functions gave."""
    if _is_call(node.value, functions) or (
        isinstance(node.value, ast.Subscript) and _is_call(node.value.value, functions)
    ):
        yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _gives_up(node: ast.AST, made: set[str]) -> bool:
    if isinstance(node, ast.Delete):
        return any(isinstance(target, ast.Name) and target.id in made for target in node.targets)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "free_memory":  # of an Accelerator alone, whatever it has prepared
        return True
    return node.func.attr in _ENDS and isinstance(node.func.value, ast.Name) and node.func.value.id in made


_ENDS = frozenset({"clear", "destroy"})
"""Methods that give up what was made: of DeepSpeed's engine, and of accelerate's Accelerator (another name of `free_memory`)."""
