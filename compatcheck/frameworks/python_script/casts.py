"""Casts of what a script trains to float32, before it trains: a loop over parameters, or peft's function for that."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.frameworks.python_script.nodes import dotted_name
from compatcheck.frameworks.python_script.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.frameworks.python_script.calls import Script
    from compatcheck.frameworks.python_script.objects import Objects

BY_PEFT = "cast_mixed_precision_params"
"""What requires a gradient becomes float32, the rest a dtype that is named (peft 0.19.0 utils/other.py)."""
_OVER = frozenset({"parameters", "named_parameters"})
_ASKED = frozenset({"requires_grad", "dtype", "float16", "bfloat16", "half"})
"""What the test may ask for under which a parameter is cast: whatever else it asks may leave out one that is trained."""


def find_float32_cast(script: Script, objects: Objects) -> int | None:
    """Return the line from which all that is trained of the model has float32, where a script surely casts it itself."""
    asked = set()
    for node, scope, condition in script.visited:
        if not isinstance(node, ast.Call) or condition is not None:
            continue
        if objects.last_name(node) == BY_PEFT:
            return node.lineno
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in _OVER and objects.kind(func.value, scope) == Kind.MODEL:
            asked.add(id(node))
    for loop in (one for one in script.nodes if isinstance(one, ast.For)):
        match loop.iter:
            case ast.Call(func=ast.Name(id="filter"), args=[ast.Lambda(args=given, body=test), over]):
                goes = _lets_trained_pass(test, {one.arg for one in given.args})
            case over:
                goes = True
        names = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        if goes and id(over) in asked and _casts(loop.body, dotted_name(names[-1])):
            return loop.lineno
    return None


def _casts(body: Iterable[ast.stmt], name: str) -> bool:
    """Tell whether statements cast a parameter to float32, if it requires a gradient."""
    for statement in body:
        match statement:
            case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test), orelse=inner):
                pass
            case ast.If(test=test, body=inner):
                pass
            case ast.Assign(targets=[ast.Attribute(attr="data") as target], value=value):
                if dotted_name(target.value) == name and _is_float32(value, name):
                    return True
                continue
            case _:
                continue
        if _lets_trained_pass(test, {name}) and _casts(inner, name):
            return True
    return False


def _lets_trained_pass(test: ast.expr, names: set[str]) -> bool:
    """Tell whether a test holds for whatever is trained in 16 bits."""
    nodes = tuple(ast.walk(test))
    attributes = {one.attr for one in nodes if isinstance(one, ast.Attribute)}
    mentioned = {one.id for one in nodes if isinstance(one, ast.Name)}
    is_plain = not any(isinstance(one, ast.Not | ast.NotEq | ast.NotIn | ast.Or) for one in nodes)
    return is_plain and bool(attributes) and attributes <= _ASKED and mentioned <= names | {"torch"}


def _is_float32(value: ast.expr, name: str) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(value=of, attr="float"), args=[], keywords=[]):
            pass
        case (
            ast.Call(func=ast.Attribute(value=of, attr="to"), args=[dtype], keywords=[])
            | ast.Call(
                func=ast.Attribute(value=of, attr="to"), args=[], keywords=[ast.keyword(arg="dtype", value=dtype)]
            )
        ):
            if dotted_name(dtype) not in {"torch.float32", "torch.float"}:
                return False
        case _:
            return False
    return dotted_name(of) in {name, f"{name}.data"}
