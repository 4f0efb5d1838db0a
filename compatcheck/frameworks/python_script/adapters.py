"""Which configurations of adapters a script gives its model, and whether by that model's own methods or peft's ``PeftModel``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of
from compatcheck.frameworks.python_script.objects import ADAPTER_CONFIGS, given_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.frameworks.python_script.calls import Call, Scope, Script
    from compatcheck.frameworks.python_script.objects import Objects

ASKING = frozenset({
    "add_adapter", "set_adapter", "enable_adapters", "disable_adapters", "active_adapters", "delete_adapter",
    "get_adapter_state_dict", "load_adapter",
})  # fmt: skip
"""Methods of a model that look at peft's release, or have saving look at it.

Source: transformers 5.23.0 integrations/peft.py.
"""
MODEL_OPTIONS = "ModelConfig"
"""TRL's options about the model and its adapters."""
OF_OPTIONS = "get_peft_config"
"""TRL's function that makes a configuration of them (trl 0.9.6 to 1.16.0 trainer/utils.py)."""
_KEYWORDS = ("peft_config", "adapter_config")
_PLACES = {"get_peft_model": 1, "inject_adapter_in_model": 0, "PeftModel": 1, "PeftModelForCausalLM": 1}
"""Where functions and classes take a configuration that is not named (peft 0.21.2)."""
_MOST_STEPS = 8
"""Names that stand for one another."""


def find_used(objects: Objects) -> frozenset[ast.Call] | None:
    """Return the calls that make a configuration of adapters which something is given; None where any may be.

    One that a name keeps and nobody asks for is none where something trains; where a name that is given adapters may stand for
    any, any counts.
    """
    script = objects.script
    if script.names.isdisjoint({*ADAPTER_CONFIGS, OF_OPTIONS}):
        return None
    used: set[ast.Call] = set()
    followed = trains = False
    for node, scope, _ in script.visited:
        wanted = [*_asked_for(node, scope, objects)]
        for value in (*wanted, *(given_to(node) if isinstance(node, ast.Call) else ())):
            found = find_configs(value, scope, objects)
            if found is None and value in wanted:
                return None
            used.update(found or ())
        followed = followed or bool(wanted)
        trains = trains or (isinstance(node, ast.Call) and objects.last_name(node) in objects.trainers)
    return frozenset(used if followed else _kept(objects)) if followed or trains else None


def _asked_for(node: ast.AST, scope: Scope, objects: Objects) -> Iterator[ast.expr]:
    """Yield what stands where a configuration of adapters does."""
    match node:
        case ast.Call():
            words = objects.script.keywords(node, scope)
            yield from (words[key] for key in _KEYWORDS if key in words)
            name = objects.last_name(node)
            place = _PLACES.get(name)
            yield from () if place is None else node.args[place : place + 1]
            if name == "add_adapter":
                yield from (one for one in node.args if not isinstance(one, ast.Constant))
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=key))], value=value) if key in _KEYWORDS:
            yield value


def _kept(objects: Objects) -> Iterator[ast.Call]:
    """Yield the calls whose configurations are used where they stand, or kept by a name that something asks for."""
    script, makes = objects.script, {*ADAPTER_CONFIGS, OF_OPTIONS}
    read = {
        dotted_name(node)
        for node in script.nodes
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    named: dict[ast.AST | None, list[ast.expr]] = {value: targets for targets, value in map(targets_of, script.nodes)}
    for node in script.nodes:
        targets = named.get(node)
        if isinstance(node, ast.Call) and objects.last_name(node) in makes:
            yield from (node,) if targets is None or any(dotted_name(one) in read for one in targets) else ()


def find_configs(node: ast.expr | None, scope: Scope, objects: Objects, depth: int = 0) -> tuple[ast.Call, ...] | None:
    """Return the calls that may make the configuration of adapters which an expression is.

    Returns:
        None where it may be any, and no call where there is none.
    """
    script = objects.script
    chosen: list[ast.expr | None] = [None]
    match node:
        case ast.Constant(value=None):
            return ()
        case ast.Name(id=name):
            chosen = [scope.find(name)]
        case ast.IfExp(test=test, body=one, orelse=other):
            given = script.read(test, scope)
            chosen = [one, other] if given.why is not None else [one if given.value else other]
        case ast.Subscript(value=mapping, slice=ast.Constant(value=key)):
            chosen = [(script.entries(mapping, scope) or {}).get(str(key))]
        case ast.Attribute():
            held = script.held.get(dotted_name(node), ())
            if len(held) == 1:
                value, scope = held[0]
                chosen = [value]
        case ast.Call():
            name = objects.last_name(node)
            function = objects.functions.get(name) if isinstance(node.func, ast.Name) else None
            if name in ADAPTER_CONFIGS or (name == OF_OPTIONS and find_options(node, scope, objects) is not None):
                return (node,)
            if function is not None and function in script.scopes:
                scope = script.scopes[function]
                chosen = [one.value for one in nodes_of(function) if isinstance(one, ast.Return)] or [None]
    found: tuple[ast.Call, ...] = ()
    for value in chosen:
        inner = None if value is None or depth > _MOST_STEPS else find_configs(value, scope, objects, depth + 1)
        if inner is None or (not inner and len(chosen) > 1):  # adapters or none
            return None
        found += inner
    return found


def find_options(node: ast.Call, scope: Scope, objects: Objects) -> ast.Call | None:
    """Return the ``ModelConfig`` of TRL that its function is given, where it is made here; None for one that a parser fills."""
    values = given_to(node)
    made = scope.find(values[0].id) if values and isinstance(values[0], ast.Name) else next(iter(values), None)
    path = (objects.path(made.func) or "") if isinstance(made, ast.Call) else ""
    return (
        made if isinstance(made, ast.Call) and path.startswith("trl.") and path.endswith(f".{MODEL_OPTIONS}") else None
    )


def find_own_adapter(script: Script, objects: Objects) -> Call | None:
    """Return the call that surely gives a model of transformers an adapter.

    Its first argument is the configuration; that of ``PeftModel.add_adapter`` is a name. Models of diffusers have a method
    that looks the same.
    """
    if any(path.partition(".")[0] == "diffusers" for path in objects.imports.values()):
        return None
    for call in script.calls():
        if call.name == "add_adapter" and call.condition is None:
            named = [word.value for word in call.node.keywords if word.arg == "adapter_config"]
            if any(find_configs(one, call.scope, objects) for one in (*call.node.args[:1], *named)):
                return call
    return None


def names_none(script: Script) -> bool:
    """Tell whether no method is named that an adapter of the model's own needs."""
    return ASKING.isdisjoint(script.names)
