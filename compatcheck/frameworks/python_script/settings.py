"""Files of Python whose names are a configuration (mmengine): what they are assigned, statement by statement, by ``ast`` alone.

Literals, arithmetic, ``dict(…)`` and names assigned before are followed, and what is changed in place: ``model["x"] = …``,
``del model["x"]``, ``model.update(…)``; what is imported is its dotted name. Anything else keeps its words and has no value.
Nothing is imported, nothing is run.
"""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.python_script.literals import NoLiteralError, compute, convert, negate
from compatcheck.frameworks.python_script.nodes import dotted_name, words_of
from compatcheck.frameworks.text import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.files import Files

Held = Argument | dict[str, "Held"]
_MAX_DEPTH = 60
_MOST_VALUES = 10_000


_MOST_BASES = 8
"""Files over one another that are followed."""
BASE = "_base_"
"""Names the files that a file is laid over; where it is there in the end, one of them could not be read."""


def read_settings(text: str, path: str, files: Files = LOCAL, *, above: int = 0) -> dict[str, Held]:
    """Return what the names of a module are assigned in the end, mappings by key, with what it inherits.

    Args:
        text: of the file.
        path: of the file, beside which the files lie that it is laid over.
        files: the tree it lies in.
        above: how many files are laid over this one.

    Raises:
        InputError: it is no Python this release can parse.
    """
    module = _Module(path, files, above)
    for node in parse_script(text, path).body:
        module.take(node)
    names = {name: held for name, held in module.names.items() if name not in module.imported}
    given = names.get(BASE)
    if not isinstance(given, Argument) or given.why is not None:
        return names
    listed = given.value if isinstance(given.value, list) else [given.value]
    bases = [module.load(name) for name in listed]
    if any(one is None for one in bases):
        return names | {BASE: given._replace(why=f"names {', '.join(map(str, listed))}, which could not be read")}
    inherited: dict[str, Held] = {}
    for one in bases:
        inherited |= one or {}
    del names[BASE]
    return _merge(inherited, names)


def _merge(base: dict[str, Held], over: dict[str, Held]) -> dict[str, Held]:
    """Lay a mapping over another as mmengine does (config.py _merge_a_into_b)."""
    result = dict(base)
    for key, held in over.items():
        below = result.get(key)
        if not isinstance(held, dict):
            result[key] = held
            continue
        deletes, own = held.get("_delete_"), {name: one for name, one in held.items() if name != "_delete_"}
        replaces = not isinstance(below, dict) or (isinstance(deletes, Argument) and bool(deletes.value))
        result[key] = own if replaces or not isinstance(below, dict) else _merge(below, own)
    return result


class _Inherited(dict[str, "Held"]):
    """A mapping of a base: mmengine's ``ConfigDict``, whose ``update`` lays mappings over one another."""


def _without_lines(held: Held) -> Held:
    """Leave out lines, which are those of another file."""
    if isinstance(held, dict):
        return _Inherited({key: _without_lines(one) for key, one in held.items()})
    return held._replace(line=None)


def _update(owner: dict[str, Held], other: dict[str, Held]) -> None:
    """Change a mapping as its ``update`` does (mmengine 0.10.7 config.py ConfigDict.update; else Python's)."""
    for key, held in other.items():
        below = owner.get(key)
        if isinstance(owner, _Inherited) and isinstance(below, dict) and isinstance(held, dict):
            _update(below, held)
        else:
            owner[key] = held


class _Module:
    """The names of a module, statement by statement."""

    def __init__(self, path: str, files: Files, above: int) -> None:
        self.path = path
        self.files = files
        self.above = above
        self.names: dict[str, Held] = {}
        self.imported: set[str] = set()

    def load(self, name: object) -> dict[str, Held] | None:
        """Read a file beside this one; None where it cannot be."""
        file = os.path.normpath(os.path.join(os.path.dirname(self.path), str(name)))
        if self.above >= _MOST_BASES or not isinstance(name, str) or not self.files.is_file(file):
            return None
        try:
            found = read_settings(read_text(file, self.files), file, self.files, above=self.above + 1)
        except InputError:
            return None
        return {key: _without_lines(held) for key, held in found.items()}

    def _inherit(self, node: ast.With) -> None:
        """Take what ``with read_base(): from .base import *`` brings."""
        for inner in node.body:
            if not isinstance(inner, ast.ImportFrom):
                self._forget(inner)
                continue
            parts = (inner.module or "").replace(".", "/")
            found = self.load("../" * (inner.level - 1) + f"{parts}.py") if inner.level else None
            if found is None:
                why = f"is inherited from {'.' * inner.level}{inner.module}, which could not be read"
                self.names[BASE] = Argument(None, inner.lineno, why)
                continue
            for item in inner.names:
                self.names |= (
                    found
                    if item.name == "*"
                    else {item.asname or item.name: found[item.name]}
                    if item.name in found
                    else {}
                )

    def take(self, node: ast.stmt) -> None:
        """Take one statement."""
        match node:
            case ast.Import(names=items):
                self._import("", items, node.lineno)
            case ast.ImportFrom(module=module, names=items, level=0):
                self._import(f"{module}.", items, node.lineno)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                self._assign(name, value)
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                computed = ast.copy_location(ast.BinOp(ast.Name(name, ast.Load()), operator, value), node)
                self._assign(name, computed)
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=func))]) if dotted_name(func).endswith(
                "read_base"
            ):
                self._inherit(node)
            case ast.If(test=test):
                self._branch(node, self.read(test))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                if not self._change(node):
                    self._forget(node)

    def _change(self, node: ast.stmt) -> bool:
        """Take a change in place; tell whether it was followed."""
        match node:
            case ast.Assign(targets=[ast.Subscript() | ast.Attribute() as target], value=value):
                place = self._place(target)
            case ast.AugAssign(target=ast.Subscript() | ast.Attribute() as target, op=operator, value=other):
                place, value = self._place(target), ast.copy_location(ast.BinOp(target, operator, other), node)
            case ast.Delete(targets=targets):
                return all([*map(self._delete, targets)])
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=changed, attr="update"), args=given, keywords=words)):
                return len(given) < 2 and self._lay_over(changed, given, words)
            case _:
                return False
        if place is None:
            return False
        owner, key = place
        return self._set(owner, {key: self.read(value)}, replaces=True)

    def _place(self, node: ast.expr, depth: int = 0) -> tuple[dict[str, Held], str] | None:
        """Return the mapping and the key that ``a["b"]["c"]``, or ``a.b.c``, stands for."""
        match node:
            case ast.Subscript(value=outer, slice=inner):
                key = self.read(inner, depth + 1)
            case ast.Attribute(value=outer, attr=name):
                key = Argument(name, node.lineno)
            case _:
                return None
        owner = self.read(outer, depth + 1)
        known = isinstance(key, Argument) and key.why is None and isinstance(key.value, str)
        return (owner, str(key.value)) if known and isinstance(owner, dict) else None  # type: ignore[union-attr]  # as tested

    def _delete(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return self.names.pop(node.id, None) is not None
        place = self._place(node)
        return place is not None and place[0].pop(place[1], None) is not None

    def _lay_over(self, owner: ast.expr, given: list[ast.expr], words: list[ast.keyword]) -> bool:
        below = self.read(owner)
        over = [*map(self.read, given), self._read_words(words)]
        if not isinstance(below, dict) or not all(isinstance(one, dict) for one in over):
            return False
        return all(self._set(below, one) for one in over)  # type: ignore[arg-type]  # as tested

    def _set(self, owner: dict[str, Held], over: dict[str, Held], *, replaces: bool = False) -> bool:
        """Change a mapping in place; one that would hold itself, or too much, is not followed."""
        if any(one is owner for one in _containers_in(over)) or _is_large(over):
            return False
        owner.update(over) if replaces else _update(owner, over)
        return True

    def _read_words(self, words: list[ast.keyword]) -> Held:
        call = ast.Call(ast.Name("dict", ast.Load()), [], words)
        return self.read(ast.fix_missing_locations(call) if not words else ast.copy_location(call, words[0].value))

    def _assign(self, name: str, value: ast.expr) -> None:
        held = self.read(value)
        if _is_large(held):
            held = Argument(None, value.lineno, f"holds more than {_MOST_VALUES:,} values")
        self.names[name] = held

    def _import(self, module: str, items: list[ast.alias], line: int) -> None:
        for item in items:
            name = item.asname or (item.name if module else item.name.partition(".")[0])
            self.names[name] = Argument(f"{module}{item.name}" if module or item.asname else name, line)
            self.imported.add(name)

    def _branch(self, node: ast.If, test: Held) -> None:
        if isinstance(test, Argument) and test.why is not None:
            self._forget(node)
            return
        for one in node.body if (test.value if isinstance(test, Argument) else test) else node.orelse:
            self.take(one)

    def _forget(self, node: ast.stmt) -> None:
        """Take names that a statement may change for unknown: it assigns them, enters something or calls their methods."""
        for inner in ast.walk(node):
            match inner:
                case ast.Name(id=name, ctx=ast.Store()):
                    found = [name]
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found = [name]
                case ast.ImportFrom(names=items):
                    found = [*self.names] if any(item.name == "*" for item in items) else [item.name for item in items]
                case ast.Name(id=name, ctx=ast.Del()):
                    found = [name]
                case (
                    ast.Subscript(value=owner, ctx=ast.Store() | ast.Del())
                    | ast.Attribute(value=owner, ctx=ast.Store() | ast.Del())
                    | ast.Call(func=ast.Attribute(value=owner))
                ):
                    found = [_root(owner)]
                case ast.Call(func=ast.Name(), args=given):
                    found = [_root(one) for one in given]
                case _:
                    continue
            for name in found:
                if name and name not in self.imported:
                    self._spoil(name, node.lineno)

    def _spoil(self, name: str, line: int) -> None:
        """Take a name for unknown, and wherever they stand the mappings that it holds."""
        unknown = Argument(None, line, f"is changed in line {line} in a way that is not followed")
        gone = {id(one) for one in _containers_in(self.names.get(name)) if isinstance(one, dict)}
        for one in _containers_in(self.names) if gone else ():
            for key, held in [*(one.items() if isinstance(one, dict) else enumerate(one))]:
                if id(held) in gone:
                    one[key] = unknown  # a key of the one that it is
        self.names[name] = unknown

    def read(self, node: ast.expr, depth: int = 0) -> Held:
        """Return what an expression is; a mapping by key."""
        try:
            return self._read(node, depth)
        except NoLiteralError:
            return Argument(None, node.lineno, f"is {words_of(node)}, which is no literal")

    def _read(self, node: ast.expr, depth: int) -> Held:
        if depth > _MAX_DEPTH:
            raise NoLiteralError
        match node:
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Subscript() | ast.Attribute() if (place := self._place(node, depth)) is not None:
                owner, key = place
                if key not in owner:
                    raise NoLiteralError
                return owner[key]
            case ast.Attribute():
                return Argument(self._dotted(node), node.lineno)
            case ast.Dict(keys=keys, values=values):
                return self._mapping(
                    [
                        (None if key is None else str(self._value(key, depth)), one)
                        for key, one in zip(keys, values, strict=True)
                    ],
                    depth,
                )
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words):
                return self._mapping([(word.arg, word.value) for word in words], depth)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._read(body if self._value(test, depth) else other, depth + 1)
        return Argument(self._literal(node, depth), node.lineno)

    def _literal(self, node: ast.expr, depth: int) -> object:
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return [_open(self.read(item, depth + 1)) for item in items]
            case ast.UnaryOp(op=operator, operand=operand):
                return negate(operator, self._value(operand, depth))
            case ast.BinOp(left=left, op=operator, right=right):
                first, second = self._value(left, depth), self._value(right, depth)
                if isinstance(operator, ast.Add) and isinstance(first, list) and isinstance(second, list):
                    return [*first, *second]
                return compute(operator, first, second)
            case ast.BoolOp(op=operator, values=values):
                found = [self._value(one, depth) for one in values]
                return all(found) if isinstance(operator, ast.And) else any(found)
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return _compare(operator, self._value(left, depth), self._value(right, depth))
            case ast.Call(func=ast.Name(id="int" | "float" | "str" as kind), args=[inner], keywords=[]):
                return convert(kind, self._value(inner, depth))
        raise NoLiteralError

    def _value(self, node: ast.expr, depth: int) -> object:
        """Return a value that is known."""
        found = self._read(node, depth + 1)
        if isinstance(found, Argument) and found.why is not None:
            raise NoLiteralError
        return found.value if isinstance(found, Argument) else found

    def _dotted(self, node: ast.Attribute) -> str:
        """Return the name of something imported: ``transformers.AutoModelForCausalLM.from_pretrained``."""
        root, _, rest = dotted_name(node).partition(".")
        module = self.names.get(root)
        if root not in self.imported or not isinstance(module, Argument):
            raise NoLiteralError
        return f"{module.value}.{rest}"

    def _mapping(self, pairs: list[tuple[str | None, ast.expr]], depth: int) -> dict[str, Held]:
        result: dict[str, Held] = {}
        for key, node in pairs:
            found = self.read(node, depth + 1)
            if key is not None:
                result[key] = found
            elif isinstance(found, dict):
                result |= found
            else:
                raise NoLiteralError
        return result


def _containers_in(held: object) -> Iterator[dict[str, Held] | list[object]]:
    """Yield mappings and lists that a value is made of, the outermost first."""
    pending = [held]
    for _ in range(_MOST_VALUES):
        if not pending:
            break
        one = pending.pop()
        one = one.value if isinstance(one, Argument) else one
        if isinstance(one, dict | list):
            yield one
            pending += one.values() if isinstance(one, dict) else one


def _is_large(held: object) -> bool:
    """Tell whether a value holds more than is followed: names that stand for others twice double them."""
    pending, count = [held], 0
    while pending and count <= _MOST_VALUES:
        one = pending.pop()
        one = one.value if isinstance(one, Argument) else one
        count += 1
        if isinstance(one, dict | list):
            pending += one.values() if isinstance(one, dict) else one
    return count > _MOST_VALUES


def _open(held: Held) -> object:
    """Return the value of an item, a mapping by key, or what is said of one that is not known."""
    return held.value if isinstance(held, Argument) and held.why is None else held


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _compare(operator: ast.cmpop, left: object, right: object) -> bool:
    match operator:
        case ast.Eq() | ast.Is():
            return left == right
        case ast.NotEq() | ast.IsNot():
            return left != right
    if isinstance(left, int | float) and isinstance(right, int | float):
        match operator:
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
    raise NoLiteralError
