"""What single nodes of a script say: names, what is assigned to what, and their words."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_MAX_TEXT = 60
PARSERS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
"""Classes that make objects of arguments from a command line; the last is the alignment handbook's."""
_PARSES = ("parse_args_", "parse_dict", "parse_json", "parse_yaml")
"""How methods of HfArgumentParser and TrlParser begin that make objects of arguments."""


def targets_of(node: ast.AST) -> tuple[list[ast.expr], ast.expr | None]:
    """Return what a statement assigns to, and what; no value for a statement that is no plain assignment."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return targets, value
        case ast.AnnAssign(target=target, value=value):
            return [target], value
    return [], None


def defaults_of(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the fields of a dataclass that have a default, each with it; what ``field`` is given counts."""
    for statement in node.body:
        targets, value = targets_of(statement)
        for name in (target.id for target in targets if isinstance(target, ast.Name)):
            match value:
                case ast.Call(keywords=words) if dotted_name(value.func).rpartition(".")[2] == "field":
                    given = {word.arg: word.value for word in words}
                    if "default" in given:
                        yield name, given["default"]
                    elif "default_factory" in given:
                        made = given["default_factory"]
                        yield name, made.body if isinstance(made, ast.Lambda) else made
                case ast.expr():
                    yield name, value


def assigned_by(node: ast.AST) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    """Yield what attributes of objects a statement or a call sets by their names: object, attribute, value.

    An object whose attributes are replaced in a copy counts as the object itself.
    """
    match node:
        case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=str(name)), value]):
            yield owner, name, value
        case ast.Call(func=ast.Attribute(value=owner, attr="update"), args=[ast.Dict(keys=keys, values=values)]):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield owner, key.value, value
        case ast.Call(args=[owner], keywords=words) if dotted_name(node.func).rpartition(".")[2] in _COPIES:
            yield from ((owner, word.arg, word.value) for word in words if word.arg is not None)
        case ast.AugAssign(target=target, op=operator, value=value):
            computed = ast.copy_location(ast.BinOp(target, operator, value), node)
            yield from ((owner, name, computed) for owner, name, _ in _assigned(target, computed))
        case _:
            targets, given = targets_of(node)
            yield from (one for target in targets if given is not None for one in _assigned(target, given))


_COPIES = {"replace", "evolve"}
"""Functions that copy an object with other attributes: ``dataclasses.replace``."""


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    match target, value:
        case ast.Attribute(value=owner, attr=name), _:
            yield owner, name, value
        case ast.Subscript(value=mapping, slice=ast.Constant(value=str(name))), _:
            held = _of_attributes(mapping)
            yield from () if held is None else ((held, name, value),)
        case ast.Tuple(elts=targets) | ast.List(elts=targets), _:
            values = getattr(value, "elts", ())
            plain = len(values) == len(targets) and not any(isinstance(one, ast.Starred) for one in (*targets, *values))
            for index, one in enumerate(targets):
                yield from _assigned(one, values[index] if plain else value)


def _of_attributes(node: ast.AST) -> ast.expr | None:
    """Return the object whose attributes a mapping is: ``vars(args)``."""
    match node:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return owner
    return None


def parses(node: ast.expr) -> bool:
    """Tell whether an expression makes objects of arguments from a command line or a file."""
    if not isinstance(node, ast.Call):
        return False
    name = dotted_name(node.func)
    return name.rpartition(".")[2].startswith(_PARSES) or (name == "parser.parse" and not node.args)


def is_one(node: ast.AST, names: Collection[str]) -> bool:
    """Tell whether an expression is one of some objects, or the mapping of its attributes."""
    owner = _of_attributes(node)
    if owner is not None:
        return is_one(owner, names)
    return isinstance(node, ast.Name | ast.Attribute) and dotted_name(node) in names


def joined_by(node: ast.Call) -> list[ast.expr]:
    """Return the objects whose attributes a call joins and gives nothing beside: ``Namespace(**vars(one), **vars(other))``."""
    if dotted_name(node.func).rpartition(".")[2] != "Namespace" or node.args:
        return []
    owners = [_of_attributes(word.value) if word.arg is None else None for word in node.keywords]
    return [one for one in owners if one is not None] if None not in owners else []


def dotted_name(node: ast.AST) -> str:
    """Return names joined by dots; what is called or indexed on the way is empty."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def words_of(node: ast.AST) -> str:
    """Return an expression as it is written, cut where it is long."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        return "an expression"
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
