"""Files of Python whose names are a configuration (mmengine): what they are assigned, statement by statement, by ``ast`` alone.

Literals, arithmetic, ``dict(…)`` and names assigned before are followed; what is imported is its dotted name. Anything else keeps its
words and has no value. Nothing is imported, nothing is run.
"""

from __future__ import annotations

import ast
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.python_script.calls import (
    NoLiteralError,
    compute,
    convert,
    dotted_name,
    negate,
    parse_script,
    words_of,
)


Held = Argument | dict[str, "Held"]
_MAX_DEPTH = 60


def read_settings(text: str, path: str) -> dict[str, Held]:
    """Return what the names of a module are assigned in the end, mappings by key.

    Raises:
        InputError: it is no Python this release can parse.
    """
    module = _Module()
    for node in parse_script(text, path).body:
        module.take(node)
    return {name: held for name, held in module.names.items() if name not in module.imported}


class _Module:
    """The names of a module, statement by statement."""

    def __init__(self) -> None:
        self.names: dict[str, Held] = {}
        self.imported: set[str] = set()

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
                self.names[name] = self.read(value)
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                computed = ast.copy_location(ast.BinOp(ast.Name(name, ast.Load()), operator, value), node)
                self.names[name] = self.read(computed)
            case ast.If(test=test):
                self._branch(node, self.read(test))
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Delete():
                pass
            case _:
                self._forget(node)

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
                case (
                    ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()) | ast.Call(func=ast.Attribute(value=owner))
                ):
                    found = [_root(owner)]
                case _:
                    continue
            for name in found:
                if name not in self.imported:
                    self.names[name] = Argument(
                        None, node.lineno, f"is changed in line {node.lineno} in a way that is not followed"
                    )

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
            case ast.Attribute():
                return Argument(self._dotted(node), node.lineno)
            case ast.Dict(keys=keys, values=values):
                return self._mapping(
                    [(key and self._text(key, depth), one) for key, one in zip(keys, values, strict=True)], depth
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
            case ast.BinOp(left=left, op=ast.Add(), right=right) if isinstance(self._value(left, depth), list):
                more = self._value(right, depth)
                if isinstance(more, list):
                    return [*self._value(left, depth), *more]  # type: ignore[misc]  # as tested
            case ast.BinOp(left=left, op=operator, right=right):
                return compute(operator, self._value(left, depth), self._value(right, depth))
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

    def _text(self, node: ast.expr, depth: int) -> str:
        return str(self._value(node, depth))

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
