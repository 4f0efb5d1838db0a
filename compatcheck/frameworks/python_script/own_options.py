"""Options that a script defines with ``argparse``: what its command gives them, else their defaults.

Only what the standard library alone decides is told: one parser, options with literals, types and actions that it has itself.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.frameworks.python_script.calls import dotted_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_UNTOLD = frozenset({"add_subparsers", "set_defaults", "parse_known_args", "parse_intermixed_args"})
"""Methods of a parser beside which a definition alone does not tell what an option holds."""
_TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "": str}
_MARKS = ("parser", "group")


class OwnOptions(NamedTuple):
    """What the options of a script hold."""

    namespaces: frozenset[str]
    """Names of objects whose attributes the options are: ``args``."""
    values: Mapping[str, object]
    """By attribute, those that are known."""
    line: int
    """Where they are parsed."""


def find_own_options(nodes: Iterable[ast.AST], passed: Mapping[str, Any] | None) -> OwnOptions | None:
    """Find the options of a script; None where they are not told.

    Args:
        nodes: all of the script.
        passed: options that its command gives, by name, each with ``value`` and why it is not known, ``why``; None where the
            command may give any.
    """
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    named = [(dotted_name(call.func), call) for call in calls]
    parsers = [call for name, call in named if name.rpartition(".")[2] == "ArgumentParser"]
    parses = [call for name, call in named if name.rpartition(".")[2] == "parse_args"]
    plain = parsers and parses and not any(word.arg == "parents" for word in parsers[0].keywords)
    untold = any(name.rpartition(".")[2] in _UNTOLD for name, _ in named)
    if passed is None or len(parsers) != 1 or not plain or untold or any(one.args or one.keywords for one in parses):
        return None
    values: dict[str, object] = {}
    defined: set[str] = set()
    for name, call in named:
        owner, _, method = name.rpartition(".")
        if method == "add_argument" and any(mark in owner for mark in _MARKS):
            values.update(_read_definition(call, passed, defined))
    for given in passed.keys() - defined:  # argparse takes the beginning of a name for it
        values = {key: value for key, value in values.items() if not key.startswith(given)}
    return OwnOptions(frozenset(_namespaces(nodes)), values, parses[0].lineno)


def _read_definition(call: ast.Call, passed: Mapping[str, Any], defined: set[str]) -> Iterator[tuple[str, object]]:
    """Yield what one option holds where that is told, and note its names."""
    flags = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    long = [flag[2:].replace("-", "_") for flag in flags if flag.startswith("--")]
    words = {word.arg: word.value for word in call.keywords if word.arg}
    defined.update(long)
    told = len(flags) == len(call.args) and long and len(words) == len(call.keywords)
    if not told or "const" in words:
        return
    destination = _constant(words["dest"]) if "dest" in words else long[0]
    action = str(_constant(words.get("action", ast.Constant("store"))))
    kind = _TYPES.get(dotted_name(words["type"]) if "type" in words else "")
    given = next((passed[name] for name in reversed(long) if name in passed), None)
    if action in {"store_true", "store_false"}:
        default = _constant(words["default"]) if "default" in words else action == "store_false"
        value = default if given is None else action == "store_true"
        if isinstance(value, bool):
            yield str(destination), value
    elif action == "store" and kind is not None:
        try:
            value = _default(words, kind) if given is None else _given(given, kind, many="nargs" in words)
        except (TypeError, ValueError):
            return
        yield str(destination), value


def _default(words: Mapping[str, ast.expr], kind: type) -> object:
    """Return the default of an option; a text is converted as one of the command is.

    Raises:
        ValueError: it is no literal, or the option must be given.
    """
    if isinstance(words.get("required"), ast.Constant) and _constant(words["required"]) is True:
        msg = "must be given"
        raise ValueError(msg)
    value = ast.literal_eval(words["default"]) if "default" in words else None
    return kind(value) if isinstance(value, str) else value


def _given(argument: Any, kind: type, *, many: bool) -> object:  # noqa: ANN401 (of a command line)
    if argument.why is not None or isinstance(argument.value, bool):
        msg = "is not known"
        raise ValueError(msg)
    words = argument.value if isinstance(argument.value, list) else [argument.value]
    values = [kind(str(word)) for word in words]
    if not many and len(values) > 1:
        msg = "takes one word"
        raise ValueError(msg)
    return values if many else values[0]


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _namespaces(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of what a parser returns: bound to it, to what an own function returns of it, or given on to one."""
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    found: set[str] = set()
    makers: set[str] = set()

    def is_one(node: ast.AST | None) -> bool:
        if isinstance(node, ast.Call):
            name = dotted_name(node.func)
            return name.endswith(".parse_args") or name in makers
        return isinstance(node, ast.Name) and node.id in found

    for _ in functions:  # a function may stand behind the one that calls it
        for node in nodes:
            if isinstance(node, ast.Assign) and is_one(node.value):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                names = [one.arg for one in functions[node.func.id].args.args]
                found |= {name for name, value in zip(names, node.args, strict=False) if is_one(value)}
                found |= {word.arg for word in node.keywords if word.arg and is_one(word.value)}
        for name, function in functions.items():
            returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
            if returned and all(map(is_one, returned)):
                makers.add(name)
    return found
