"""Which of the configurations that a script makes something is given: of adapters, of a quantization, of a Trainer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of
from compatcheck.frameworks.python_script.objects import given_to

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from compatcheck.frameworks.python_script.calls import Scope
    from compatcheck.frameworks.python_script.objects import Objects

_MOST_STEPS = 8
"""Names that stand for one another."""


class Family(NamedTuple):
    """Configurations of one sort."""

    makers: Collection[str]
    """Classes and functions that make one."""
    keywords: tuple[str, ...]
    """Arguments under which one is handed over."""
    places: Mapping[str, int]
    """Calls that take one which is not named, and where."""
    takers: Collection[str] = ()
    """Calls beside those of a Trainer that would take one: then what nothing is given is none."""
    of_trainers: bool = False
    """Whether calls of trainers alone have those arguments: others have some of the same name."""
    is_told: Callable[[ast.Call, Scope, Objects], bool] = lambda *_: True
    """Whether it can be told what a call of a maker makes."""


def find_used(family: Family, objects: Objects) -> Mapping[ast.Call, int] | None:
    """Return the calls that make a configuration which something is given, and the last line of that; None where any may be.

    One that a name keeps and nobody asks for is none where something would take it; where what is handed over may stand for
    any, any counts.
    """
    script = objects.script
    if script.names.isdisjoint(family.makers):
        return None
    used: dict[ast.Call, int] = {}
    followed = takes = False
    for node, scope, _ in script.visited:
        wanted = [*_asked_for(node, scope, objects, family)]
        if None in wanted:
            return None
        for value in (*wanted, *(given_to(node) if isinstance(node, ast.Call) else ())):
            found = find_made(value, scope, objects, family)
            if found is None and value in wanted:
                return None
            made = (one for one in found or () if objects.last_name(one) in family.makers)
            used.update((one, max(used.get(one, 0), node.lineno)) for one in made)
        followed = followed or bool(wanted)
        takes = takes or (isinstance(node, ast.Call) and _takes(node, objects, family))
    kept = used if followed else {one: one.lineno for one in _kept(objects, family)}
    return kept if followed or takes else None


def _takes(call: ast.Call, objects: Objects, family: Family) -> bool:
    name = objects.last_name(call)
    return name in objects.trainers or name in family.takers


def _asked_for(node: ast.AST, scope: Scope, objects: Objects, family: Family) -> Iterator[ast.expr | None]:
    """Yield what stands where a configuration does; None for what may be among arguments that are no literals."""
    script, keys = objects.script, family.keywords
    match node:
        case ast.Call():
            name, words = objects.last_name(node), script.keywords(node, scope)
            takes, place = _takes(node, objects, family), family.places.get(name, len(node.args))
            named = [words[key] for key in keys if key in words] if takes or not family.of_trainers else []
            placed = [one for one in node.args[place : place + 1] if not isinstance(one, ast.Constant)]
            if name == "add_adapter" and not placed:
                placed = [one for one in node.args if not isinstance(one, ast.Constant)]
            yield from (*named, *placed)
            spread = (word.value for word in node.keywords if word.arg is None)
            if takes and not named and not placed and any(script.entries(one, scope) is None for one in spread):
                yield None
            for one in () if family.of_trainers else (*node.args, *(word.value for word in node.keywords)):
                yield from _entered(one, keys)
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=key))], value=value) if (
            key in keys and not family.of_trainers
        ):
            yield value
        case ast.Assign(targets=[ast.Attribute(attr=key)], value=value) if key in keys:
            yield value
        case ast.Assign(value=value) if not family.of_trainers:
            yield from _entered(value, keys)


def _entered(node: ast.expr, keys: tuple[str, ...]) -> Iterator[ast.expr]:
    """Yield what a mapping that is written out holds under some keys."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in keys:
                yield value


def _kept(objects: Objects, family: Family) -> Iterator[ast.Call]:
    """Yield the calls whose configurations are used where they stand, or kept by a name that something asks for."""
    script = objects.script
    names = [node for node in script.nodes if isinstance(node, ast.Name | ast.Attribute)]
    changed = {id(node.value) for node in names if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    read = {dotted_name(node) for node in names if isinstance(node.ctx, ast.Load) and id(node) not in changed}
    named: dict[ast.AST | None, list[ast.expr]] = {value: targets for targets, value in map(targets_of, script.nodes)}
    for node in script.nodes:
        targets = named.get(node)
        if isinstance(node, ast.Call) and objects.last_name(node) in family.makers:
            yield from (node,) if targets is None or any(dotted_name(one) in read for one in targets) else ()


def find_made(
    node: ast.expr | None, scope: Scope, objects: Objects, family: Family, depth: int = 0
) -> tuple[ast.Call, ...] | None:
    """Return the calls that may make the configuration which an expression is, of classes of the family or of others.

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
            is_class = name.endswith("Config") and name not in objects.classes
            if (name in family.makers and family.is_told(node, scope, objects)) or is_class:
                return (node,)
            if function is not None and function in script.scopes:
                scope = script.scopes[function]
                chosen = [one.value for one in nodes_of(function) if isinstance(one, ast.Return)] or [None]
    found: tuple[ast.Call, ...] = ()
    for value in chosen:
        inner = None if value is None or depth > _MOST_STEPS else find_made(value, scope, objects, family, depth + 1)
        if inner is None or (not inner and len(chosen) > 1):  # one or none
            return None
        found += inner
    return found
