"""Static types of expressions over the vocabulary, so that a rule with a slip never ships."""

from __future__ import annotations

import ast

from compatcheck.core.errors import RuleError
from compatcheck.core.markers import canonical_name
from compatcheck.core.units import canonical_dtype
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier
from compatcheck.rules.syntax import dotted_name, functions, parse_tree
from compatcheck.rules.values import allowed_values
from compatcheck.rules.vocabulary import nearest, vocabulary

BOOL, NUMBER, TEXT, VERSION, SET, DTYPE, ANY, NONE = "bool", "number", "text", "version", "set", "dtype", "any", "none"

_TYPE_BY_TERM = {"int": NUMBER, "float": NUMBER, "bytes": NUMBER, "str": TEXT}
"""Types of the vocabulary that go by another name here."""
_NUMERIC = {"min", "max", "ceil", "pow2_ceil"}
_RESULTS = {"env": TEXT, "table": ANY, **dict.fromkeys({"dtype_bytes", "moments", *_NUMERIC}, NUMBER)}
"""What functions return that do not answer yes or no."""
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_expression(text: str, wanted: str) -> list[str]:
    """Return what is wrong with an expression, empty when it is well typed."""
    try:
        node = parse_tree(text)
    except RuleError as error:
        return [error.message]
    problems: list[str] = []
    found = _type(node, problems)
    accepted = {wanted, ANY} | ({SET} if wanted == BOOL else set())
    if not problems and found not in accepted:
        problems.append(f"`{text}` is a {found}, expected a {wanted}")
    return problems


def _type(node: ast.expr, problems: list[str]) -> str:  # noqa: PLR0911 (one return per node type)
    match node:
        case ast.Constant():
            return _literal(node.value)
        case ast.Attribute() | ast.Name():
            return _fact(node, problems)
        case ast.BoolOp(values=values):
            for value in values:
                _expect(_type(value, problems), {BOOL, SET, ANY}, value, problems)
            return BOOL
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _expect(_type(operand, problems), {BOOL, SET, ANY}, operand, problems)
            return BOOL
        case ast.UnaryOp(operand=operand):
            _expect(_type(operand, problems), {NUMBER, ANY}, operand, problems)
            return NUMBER
        case ast.BinOp(left=left, right=right):
            for side in (left, right):
                _expect(_type(side, problems), {NUMBER, ANY}, side, problems)
            return NUMBER
        case ast.Compare():
            _check_compare(node, problems)
            return BOOL
        case ast.IfExp(test=test, body=body, orelse=orelse):
            _expect(_type(test, problems), {BOOL, SET, ANY}, test, problems)
            kinds = {_type(body, problems), _type(orelse, problems)} - {NONE}
            if len(kinds - {ANY}) > 1:
                problems.append(f"`{ast.unparse(node)}` is a {' or a '.join(sorted(kinds))}")
            return kinds.pop() if len(kinds) == 1 else ANY
        case ast.Set(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                _type(element, problems)
            return SET
        case ast.Call(func=ast.Name(id=name), args=arguments):
            _check_call(name, arguments, problems)
            expression = functions()[name].expression
            return _type(parse_tree(expression), []) if expression else _RESULTS.get(name, BOOL)
        case _:
            return ANY


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return BOOL
    if value is None:
        return NONE
    return NUMBER if isinstance(value, int | float) else TEXT


def _fact(node: ast.expr, problems: list[str]) -> str:
    name = dotted_name(node) or ast.unparse(node)
    term = vocabulary().get(name)
    if term is None:
        near = nearest(name, list(vocabulary()))
        problems.append(f"unknown fact {name!r}" + (f", did you mean {near!r}?" if near else ""))
        return ANY
    return _TYPE_BY_TERM.get(term.type, term.type)


def _expect(found: str, accepted: set[str], node: ast.expr, problems: list[str]) -> None:
    if found not in accepted:
        problems.append(f"`{ast.unparse(node)}` is a {found}, expected a {min(accepted - {ANY})}")


def _check_compare(node: ast.Compare, problems: list[str]) -> None:
    sides = [node.left, *node.comparators]
    kinds = [_type(side, problems) for side in sides]
    for index, operation in enumerate(node.ops):
        left, right = kinds[index], kinds[index + 1]
        if isinstance(operation, ast.In | ast.NotIn):
            _check_members(sides[index], left, sides[index + 1], problems)
            if right not in {SET, ANY}:
                problems.append(f"`{ast.unparse(sides[index + 1])}` is a {right}, `in` needs a set")
            continue
        if VERSION in {left, right} and isinstance(operation, _ORDERED):
            problems.append(f"`{ast.unparse(node)}` orders versions as text; use version_in()")
        if isinstance(operation, _ORDERED) and not {left, right} <= {NUMBER, ANY}:
            problems.append(f"`{ast.unparse(node)}` orders a {left} and a {right}")
        if not _comparable(left, right):
            problems.append(f"`{ast.unparse(node)}` compares a {left} with a {right}")
        _check_values(sides[index], sides[index + 1], problems)
        _check_values(sides[index + 1], sides[index], problems)


def _comparable(left: str, right: str) -> bool:
    """Tell whether two types can be equal at all."""
    return left == right or bool({left, right} & {NONE, ANY}) or {left, right} <= {TEXT, DTYPE, VERSION}


def _check_members(member: ast.expr, kind: str, container: ast.expr, problems: list[str]) -> None:
    if isinstance(container, ast.Set | ast.Tuple):
        for element in container.elts:
            found = _type(element, [])
            if not _comparable(TEXT if kind == SET else kind, found):
                problems.append(f"`{ast.unparse(member)} in …` compares a {kind} with a {found}")
            _check_values(member, element, problems)


def _check_values(fact: ast.expr, literal: ast.expr, problems: list[str]) -> None:
    """Refuse a comparison with a value the fact can never have."""
    name = dotted_name(fact)
    term = vocabulary().get(name) if name else None
    if term is None or not isinstance(literal, ast.Constant) or literal.value is None:
        if term is not None and isinstance(literal, ast.Constant) and literal.value is None and not term.nullable:
            problems.append(f"{term.name} is never None")
        return
    allowed = allowed_values(term)
    if allowed and str(literal.value) not in allowed:
        problems.append(f"{term.name} is never {literal.value!r}; allowed: {', '.join(allowed)}")
    if term.type == "dtype" and canonical_dtype(str(literal.value)) != literal.value:
        problems.append(f"{literal.value!r} is not how a dtype is written; use {canonical_dtype(str(literal.value))!r}")


def _check_call(name: str, arguments: list[ast.expr], problems: list[str]) -> None:
    if name in {"declared", "stated"}:
        argument = arguments[0]
        named = argument.value if isinstance(argument, ast.Constant) else dotted_name(argument)
        if named not in vocabulary():
            problems.append(f"`{ast.unparse(argument)}` is not a fact's name")
        return
    for argument in arguments:
        found = _type(argument, problems)
        if name in _NUMERIC:
            _expect(found, {NUMBER, ANY}, argument, problems)
    if name == "dtype_bytes":
        _expect(_type(arguments[0], []), {DTYPE, ANY}, arguments[0], problems)
    if name == "version_in":
        _expect(_type(arguments[0], []), {VERSION, ANY}, arguments[0], problems)
        _check_specifier(arguments[1], problems)
    if name in {"installed", "metadata_refutes"}:
        for argument in arguments[:-1]:
            package = argument.value if isinstance(argument, ast.Constant) else None
            if isinstance(package, str) and canonical_name(package) != package:
                problems.append(f"{package!r} is not how a distribution is written; use {canonical_name(package)!r}")
        _check_specifier(arguments[-1], problems)


def _check_specifier(node: ast.expr, problems: list[str]) -> None:
    if not isinstance(node, ast.Constant) or node.value in {"present", "absent"}:
        return
    try:
        compile_specifier(str(node.value))
    except InvalidSpecifierError as error:
        problems.append(str(error))
