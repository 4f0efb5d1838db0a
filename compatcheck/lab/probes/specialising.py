"""A program of one run: what its parameters decide is decided, and what they leave out is gone.

A probe of whole runs knows many trainers, of which a reproduction needs one. Functions that are only ever called with the
parameters of the run, by their name, are read with their values in place; no other function is touched.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any, cast

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ROUNDS = 8
"""Of deciding: what one function decides may be how another is called."""


def specialise(source: str, name: str, values: Mapping[str, Any]) -> str:
    """Return a program in which the parameters of a run are decided.

    Args:
        source: Python.
        name: the variable that holds them, in every function that takes them.
        values: what it holds.
    """
    tree = ast.parse(source)
    constants = {
        target: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and (target := _single(statement)) and _is_literal(statement.value)
    }
    for _ in range(_ROUNDS):
        before = ast.dump(tree)
        functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
        called = _called_with(tree, functions, name)
        for one in functions:
            if one.name in called:
                decided = _decide(one, _Given(name, values, constants, {other.name for other in functions}))
                # Without its last yield a generator is a plain function.
                if _yields(decided) == _yields(one.body):
                    one.body = decided
        if ast.dump(tree) == before:
            break
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _called_with(tree: ast.Module, functions: Iterable[ast.FunctionDef], name: str) -> set[str]:
    """Return the functions that take a variable, keep it as it is, and are called with it and in no other way."""
    places = {one.name: [argument.arg for argument in one.args.args] for one in functions}
    kept = {
        one.name
        for one in functions
        if name in places[one.name] and not any(_stores(node, name) for node in ast.walk(one))
    }
    plain: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kept:
            index = places[node.func.id].index(name)
            given = node.args[index] if index < len(node.args) else None
            if isinstance(given, ast.Name) and given.id == name:
                plain[id(node.func)] = node.func.id
    others = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in plain}
    return kept - others


class _Given(NamedTuple):
    """What is known of a program before it runs."""

    name: str
    """The variable that holds the parameters."""
    values: Mapping[str, Any]
    constants: Mapping[str, ast.expr]
    """Names at the top that are literals."""
    functions: set[str]


def _decide(function: ast.FunctionDef, given: _Given) -> list[ast.stmt]:
    """Return the body of a function with the values of a run in it."""
    own = _find_constants(function, given.functions)
    local = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    local |= {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
    known = {**{key: value for key, value in given.constants.items() if key not in local}, **own}
    folder = _Folder(given.name, given.values, known)
    folded = cast("ast.Module", folder.visit(copy.deepcopy(ast.Module(body=function.body, type_ignores=[]))))
    loaded = {node.id for node in ast.walk(folded) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    unread = own.keys() - loaded
    body = [one for one in folded.body if not (isinstance(one, ast.Assign) and _single(one) in unread)]
    return body or [ast.Pass()]


def _find_constants(function: ast.FunctionDef, functions: set[str]) -> dict[str, ast.expr]:
    """Return the local names that are given one literal, or one function at the top, and nothing else."""
    stored: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            stored[node.id] = stored.get(node.id, 0) + 1
        if isinstance(node, ast.arg):
            stored[node.arg] = stored.get(node.arg, 0) + 1
    found: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for one, told in pairs:
            plain = isinstance(told, ast.Constant) or (isinstance(told, ast.Name) and told.id in functions - {*stored})
            if isinstance(one, ast.Name) and stored[one.id] == 1 and plain:
                found[one.id] = told
    return found


class _Folder(ast.NodeTransformer):
    """Puts values in place, and takes out what they decide against."""

    def __init__(self, name: str, values: Mapping[str, Any], known: Mapping[str, ast.expr]) -> None:
        self.name = name
        self.values = values
        self.known = known

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 (what takes a node's place)
        """Go through everything; nothing that follows a return is left."""
        found = super().visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(found, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                ends = [index for index, one in enumerate(block) if isinstance(one, ast.Return | ast.Raise)]
                setattr(found, field, block[: ends[0] + 1] if ends else block)
        return found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Leave alone what takes a variable of the same name."""
        return node if any(one.arg == self.name for one in node.args.args) else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Put a literal in place of its name."""
        return self.known.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Put a parameter in place, the start of a literal text, or what is chosen of ``{…}[literal]``."""
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)) if name == self.name:
                value = self.values.get(str(key))
                return ast.Constant(value) if isinstance(value, str | int | float | bool) else node
            case ast.Subscript(
                value=ast.Constant(value=str(text)),
                slice=ast.Slice(lower=None, upper=ast.Constant(value=int(end)), step=None),
            ):
                return ast.Constant(text[:end])
            case ast.Subscript(value=ast.Dict() as chosen, slice=ast.Constant(value=wanted)):
                return _choose(chosen, wanted) or node
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Decide whether literals are equal, one is among others, or a number is the greater one."""
        self.generic_visit(node)
        one, other = _value(node.left), _value(node.comparators[0])
        if len(node.ops) > 1 or one is None or other is None:
            return node
        match node.ops[0]:
            case ast.Eq():
                return ast.Constant(one == other)
            case ast.NotEq():
                return ast.Constant(one != other)
            case ast.In():
                return ast.Constant(one in other)
            case ast.NotIn():
                return ast.Constant(one not in other)
            case ast.Gt() if isinstance(one, int) and isinstance(other, int):
                return ast.Constant(one > other)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Leave out what changes nothing, and what is behind what decides."""
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        left: list[ast.expr] = []
        for one in node.values:
            if not isinstance(one, ast.Constant):
                left.append(one)
            elif bool(one.value) == decides:
                left.append(one)
                break
            elif one is node.values[-1]:
                left.append(one)
        if len(left) == 1:
            return left[0]
        node.values = left
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Turn a literal round."""
        self.generic_visit(node)
        told = isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant)
        return ast.Constant(not cast("ast.Constant", node.operand).value) if told else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Take the branch that is taken."""
        self.generic_visit(node)
        if not isinstance(node.test, ast.Constant):
            return node
        return node.body if node.test.value else node.orelse

    def visit_If(self, node: ast.If) -> Any:  # noqa: ANN401 (statements, or none)
        """Take the branch that is taken."""
        self.generic_visit(node)
        if not isinstance(node.test, ast.Constant):
            node.body = node.body or [ast.Pass()]
            return node
        return node.body if node.test.value else node.orelse

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Take what is chosen of ``{…}.get(literal, other)``."""
        self.generic_visit(node)
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Dict() as chosen, attr="get"), args=[ast.Constant(value=wanted), other]
            ) if _is_decided(chosen):
                return _choose(chosen, wanted) or other
        return node


def _is_decided(chosen: ast.Dict) -> bool:
    return all(isinstance(key, ast.Constant) for key in chosen.keys)


def _choose(chosen: ast.Dict, wanted: object) -> ast.expr | None:
    """Return what a dictionary of literal keys has of one; None where it lacks it, or a key is no literal."""
    if not _is_decided(chosen):
        return None
    pairs = zip(chosen.keys, chosen.values, strict=True)
    return next((value for key, value in pairs if cast("ast.Constant", key).value == wanted), None)


def _value(node: ast.expr) -> Any:  # noqa: ANN401 (a literal)
    """Return what a literal means, with others unpacked in it; None for anything else."""
    if isinstance(node, ast.Tuple | ast.List):
        flat: list[Any] = []
        for one in node.elts:
            inner = _value(one.value if isinstance(one, ast.Starred) else one)
            if inner is None:
                return None
            flat += inner if isinstance(one, ast.Starred) else [inner]
        return tuple(flat)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant | ast.Tuple) and _value(node) is not None


def _single(statement: ast.Assign) -> str | None:
    target = statement.targets[0]
    return target.id if len(statement.targets) == 1 and isinstance(target, ast.Name) else None


def _yields(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for one in body for node in ast.walk(one))


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
