"""Calls of a Python script with the literals they are given, by ``ast`` alone: nothing is imported, nothing is run.

A name counts where its own scope, else the module, assigns it exactly once. What is not a literal in the end has no value and
keeps its own words.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


class Given(NamedTuple):
    """What one argument of a call is given."""

    value: object
    """The literal; meaningless when ``why`` is set."""
    line: int
    why: str | None = None
    """Why the value is not known; None when it is."""


class Call(NamedTuple):
    """One call."""

    name: str
    """Last part of what is called, import aliases undone: ``TrainingArguments``, ``from_pretrained``."""
    owner: str
    """What stands in front of it: ``AutoModelForCausalLM``, ``model``; empty for a plain name."""
    positional: tuple[Given, ...]
    keywords: Mapping[str, Given]
    is_open: bool
    """Whether ``**kwargs`` or ``*args`` that are no literals may hold further arguments."""
    line: int
    condition: str | None
    """The test of the innermost branch around it that no literal decides."""


_MAX_DEPTH = 60
_MAX_TEXT = 60
_MAX_NUMBER = 2**63
_DTYPES = {
    "bfloat16", "float16", "float32", "float64", "half", "int8", "float8_e4m3fn",
}  # fmt: skip
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def parse_script(text: str, path: str) -> ast.Module:
    """Parse a script.

    Raises:
        InputError: it is no Python this release can parse.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        msg = f"is no Python that can be parsed: {error.msg}"
        raise InputError(
            msg, source=Source(path, None, error.lineno), hint="is it a script for Python 2, or a template?"
        ) from None
    except (RecursionError, MemoryError, ValueError):
        msg = "is nested too deeply to be a training script"
        raise InputError(msg, source=Source(path), hint="check that this is the file you mean") from None


class _Scope:
    """Names that a function or the module assigns."""

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.values: dict[str, ast.expr | None] = {}
        """By name; None for a name that is assigned twice, or by anything but one plain assignment."""

    def find(self, name: str) -> ast.expr | None:
        """Return what a name is assigned, None when that is not one expression."""
        if name in self.values:
            return self.values[name]
        return None if self.outer is None else self.outer.find(name)

    def assign(self, name: str, value: ast.expr | None) -> None:
        """Note an assignment; a second one makes the name unknown."""
        self.values[name] = None if name in self.values else value


def _bind(target: ast.expr, value: ast.expr | None, scope: _Scope) -> None:
    if isinstance(target, ast.Name):
        scope.assign(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            _bind(item, None, scope)
    elif isinstance(target, ast.Starred):
        _bind(target.value, None, scope)


def _collect(node: ast.AST, scope: _Scope) -> None:
    """Note the assignments of one scope, those in its branches too, without entering inner scopes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign):
            for target in child.targets:
                _bind(target, child.value if len(child.targets) == 1 else None, scope)
        elif isinstance(child, ast.AnnAssign) and child.value is not None:
            _bind(child.target, child.value, scope)
        elif isinstance(child, ast.AugAssign):
            _bind(child.target, None, scope)
            _bind(child.target, None, scope)
        elif isinstance(child, ast.For | ast.AsyncFor | ast.comprehension):
            _bind(child.target, None, scope)
        elif isinstance(child, ast.withitem) and child.optional_vars is not None:
            _bind(child.optional_vars, None, scope)
        elif isinstance(child, ast.NamedExpr):
            _bind(child.target, None, scope)
        elif isinstance(child, ast.Global | ast.Nonlocal):
            for name in child.names:
                scope.assign(name, None)
        if isinstance(child, _SCOPES):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                scope.assign(child.name, None)
        else:
            _collect(child, scope)


_MUTATORS = {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}


def _changed(tree: ast.Module) -> Iterator[str]:
    """Yield the names whose value is changed in place or from inside a function; what they were assigned tells nothing."""
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if attribute in _MUTATORS:
                yield name


def _inner_scope(node: ast.AST, outer: _Scope) -> _Scope:
    scope = _Scope(outer)
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        for argument in filter(None, every):
            scope.assign(argument.arg, None)
    _collect(node, scope)
    return scope


class Script:
    """A parsed script."""

    def __init__(self, tree: ast.Module) -> None:
        """Note aliases of imports and the module's own names."""
        self.tree = tree
        self.aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                self.aliases.update({item.asname: item.name for item in node.names if item.asname})
        self.module = _Scope(None)
        _collect(tree, self.module)
        self.changed = frozenset(_changed(tree))

    def names(self) -> set[str]:
        """Return every name and attribute the script mentions."""
        found = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        found |= {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}
        return {self.aliases.get(name, name) for name in found}

    def calls(self) -> Iterator[Call]:
        """Yield the calls in the order they are written."""
        yield from sorted(self._visit(self.tree, self.module, None, 0), key=lambda call: call.line)

    def assignments(self) -> Iterator[tuple[str, Given]]:
        """Yield what attributes are assigned, by their dotted names: ``model.config.use_cache = False``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        yield _dotted(target), self.read(node.value, self.module)

    def instances(self, names: Collection[str]) -> set[str]:
        """Return the names that are assigned a call of one of these classes."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                name = _dotted(node.value.func).rpartition(".")[2]
                if self.aliases.get(name, name) in names:
                    found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        return found

    def _visit(self, node: ast.AST, scope: _Scope, condition: str | None, depth: int) -> Iterator[Call]:
        if depth > _MAX_DEPTH * 4:
            return
        if isinstance(node, ast.Call):
            yield self._call(node, scope, condition)
        inner = _inner_scope(node, scope) if isinstance(node, _SCOPES) else scope
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield from self._branches(node, inner, condition, depth)
            return
        for child in ast.iter_child_nodes(node):
            yield from self._visit(child, inner, condition, depth + 1)

    def _branches(
        self, node: ast.If | ast.IfExp | ast.While, scope: _Scope, condition: str | None, depth: int
    ) -> Iterator[Call]:
        yield from self._visit(node.test, scope, condition, depth + 1)
        truth = self._decide(node.test, scope)
        taken = [node.body] if isinstance(node, ast.IfExp) else node.body
        other = [node.orelse] if isinstance(node, ast.IfExp) else node.orelse
        words = _words(node.test)
        for branch, runs, test in ((taken, truth is not False, words), (other, truth is not True, f"not {words}")):
            for child in branch if runs else ():
                yield from self._visit(child, scope, condition if truth is not None else test, depth + 1)

    def _decide(self, test: ast.expr, scope: _Scope) -> bool | None:
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__":
            return True
        found = self.read(test, scope)
        return None if found.why is not None else bool(found.value)

    def _call(self, node: ast.Call, scope: _Scope, condition: str | None) -> Call:
        owner, _, name = _dotted(node.func).rpartition(".")
        keywords: dict[str, Given] = {}
        is_open = any(isinstance(argument, ast.Starred) for argument in node.args)
        for keyword in node.keywords:
            if keyword.arg is not None:
                keywords[keyword.arg] = self.read(keyword.value, scope)
                continue
            inner = self.read(keyword.value, scope)
            if inner.why is None and isinstance(inner.value, dict):
                keywords.update({str(key): Given(value, inner.line) for key, value in inner.value.items()})
            else:
                is_open = True
        plain = tuple(self.read(argument, scope) for argument in node.args if not isinstance(argument, ast.Starred))
        return Call(self.aliases.get(name, name), owner, plain, keywords, is_open, node.lineno, condition)

    def read(self, node: ast.expr, scope: _Scope) -> Given:
        """Return the literal an expression is, or why it is none."""
        try:
            return Given(self._value(node, scope, 0), node.lineno)
        except _NoLiteralError:
            return Given(None, node.lineno, f"is {_words(node)}, which is no literal")

    def _value(self, node: ast.expr, scope: _Scope, depth: int) -> object:
        if depth > _MAX_DEPTH:
            raise _NoLiteralError
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
                return value
            case ast.Name(id=name):
                assigned = None if name in self.changed else scope.find(name)
                if assigned is None:
                    raise _NoLiteralError
                return self._value(assigned, scope, depth + 1)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return [self._value(item, scope, depth + 1) for item in items]
            case ast.Dict():
                return self._mapping(node, scope, depth)
            case ast.Attribute(attr=name) if name in _DTYPES and _dotted(node).startswith("torch."):
                return {"half": "float16"}.get(name, name)
            case ast.UnaryOp(op=operator, operand=operand):
                return _negate(operator, self._value(operand, scope, depth + 1))
            case ast.BinOp(left=left, op=operator, right=right):
                return _compute(operator, self._value(left, scope, depth + 1), self._value(right, scope, depth + 1))
            case ast.Call(func=ast.Name(id="dict"), args=[]) if all(word.arg for word in node.keywords):
                return {str(word.arg): self._value(word.value, scope, depth + 1) for word in node.keywords}
            case ast.Call(func=ast.Name(id="int" | "float" | "str" as kind), args=[inner], keywords=[]):
                return _convert(kind, self._value(inner, scope, depth + 1))
        raise _NoLiteralError

    def _mapping(self, node: ast.Dict, scope: _Scope, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self._value(value, scope, depth + 1)
            if key is not None:
                result[str(self._value(key, scope, depth + 1))] = inner
            elif isinstance(inner, dict):
                result.update(inner)
            else:
                raise _NoLiteralError
        return result


class _NoLiteralError(Exception):
    """An expression is no literal."""


def _negate(operator: ast.unaryop, value: object) -> object:
    if isinstance(operator, ast.USub) and isinstance(value, int | float):
        return -value
    if isinstance(operator, ast.Not):
        return not value
    raise _NoLiteralError


def _compute(operator: ast.operator, left: object, right: object) -> object:
    """Do arithmetic on numbers and join texts, within bounds."""
    if isinstance(operator, ast.Add) and isinstance(left, str) and isinstance(right, str):
        return left + right
    if (
        isinstance(left, bool)
        or isinstance(right, bool)
        or not isinstance(left, int | float)
        or not isinstance(right, int | float)
    ):
        raise _NoLiteralError
    try:
        match operator:
            case ast.Add():
                result: float = left + right
            case ast.Sub():
                result = left - right
            case ast.Mult():
                result = left * right
            case ast.FloorDiv():
                result = left // right
            case ast.Div():
                result = left / right
            case ast.Pow() if abs(right) <= _MAX_DEPTH and abs(left) <= _MAX_NUMBER:
                result = left**right
            case _:
                raise _NoLiteralError
    except (ArithmeticError, ValueError):
        raise _NoLiteralError from None
    if isinstance(result, complex) or abs(result) > _MAX_NUMBER:
        raise _NoLiteralError
    return result


def _convert(kind: str, value: object) -> object:
    if not isinstance(value, str | int | float):
        raise _NoLiteralError
    try:
        return {"int": int, "float": float, "str": str}[kind](value)
    except (ValueError, OverflowError):
        raise _NoLiteralError from None


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def _words(node: ast.AST) -> str:
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        return "an expression"
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
