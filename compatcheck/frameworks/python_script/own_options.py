"""Options that a script defines itself, with ``argparse`` or as fields of classes that ``HfArgumentParser`` fills.

They hold what its command gives them, else their defaults. Only what the parser alone decides is told: one of them, options
with literals, types and actions that it has itself.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.nodes import defaults_of, dotted_name, joined_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_UNTOLD = frozenset({"add_subparsers", "set_defaults", "parse_known_args", "parse_intermixed_args"})
"""Methods of a parser beside which a definition alone does not tell what an option holds."""
_TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "": str}
_BY_ARGPARSE: Mapping[str, type] = {**_TYPES, "bool": bool}
"""Of these a ``bool`` is true for every word, "False" among them, but an empty one."""
_MARKS = ("parser", "group")
_OF_DEEPSPEED: tuple[ast.Call, ...] = tuple(
    ast.parse(f"parser.add_argument({words})", mode="eval").body  # type: ignore[misc]  # calls
    for words in ("'--deepspeed', action='store_true'", "'--deepspeed_config', type=str")
)
"""What ``deepspeed.add_config_arguments`` defines (deepspeed/__init__.py _add_core_arguments() of 0.6.0 and 0.19.5)."""
_ROUNDS = 8
"""Functions that hand on what a parser returns, each to the one before it: longer rows are not made."""
_HF_PARSERS = frozenset({"HfArgumentParser", "TrlParser"})
_FILLS = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})
_HF_UNTOLD = frozenset({"set_defaults", "parse_json_file", "parse_yaml_file", "parse_dict", "ArgumentParser"})
"""What else may fill the classes of a script, or in another way."""
_CONFIG_FILE = "config"
"""Option of TRL's parser that names a file whose values stand in for options left out (trl/scripts/utils.py)."""
_TRUE, _FALSE = {"yes", "true", "t", "y", "1"}, {"no", "false", "f", "n", "0"}
"""Words that HfArgumentParser takes for a truth value (transformers 4.57.6 hf_argparser.py string_to_bool)."""


class OwnOptions(NamedTuple):
    """What the options of a script hold."""

    namespaces: frozenset[str]
    """Names of objects whose attributes the options are: ``args``."""
    values: Mapping[str, object]
    """By attribute, those that are known."""
    line: int
    """Where they are parsed."""


def find_own_options(
    nodes: Iterable[ast.AST],
    passed: Mapping[str, Any] | None,
    *,
    launched: bool = False,
    classes: Mapping[str, Sequence[ast.ClassDef]] | None = None,
) -> OwnOptions | None:
    """Find the options of a script; None where they are not told.

    Args:
        nodes: all of the script.
        passed: options that its command gives, by name, each with ``value`` and why it is not known, ``why``; None where the
            command may give any.
        launched: whether a command that was read starts it: classes that HfArgumentParser fills are told only then.
        classes: the classes that it fills, by the names that it is given, each behind its bases; None: those of the script.
    """
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    named = [(dotted_name(call.func), call) for call in calls]
    if passed is not None and launched and any(name.rpartition(".")[2] in _HF_PARSERS for name, _ in named):
        written = {node.name: (node,) for node in nodes if isinstance(node, ast.ClassDef)}
        return _find_fields(nodes, named, passed, written if classes is None else classes)
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
        elif name == "deepspeed.add_config_arguments":
            for one in _OF_DEEPSPEED:
                values.update(_read_definition(one, passed, defined))
    others = tuple(passed.keys() - defined)  # argparse takes the beginning of a name for it
    values = {key: value for key, value in values.items() if not key.startswith(others)}
    return OwnOptions(frozenset(_namespaces(nodes)), values, parses[0].lineno)


def _find_fields(
    nodes: Iterable[ast.AST],
    named: Iterable[tuple[str, ast.Call]],
    passed: Mapping[str, Any],
    written: Mapping[str, Sequence[ast.ClassDef]],
) -> OwnOptions | None:
    """Find what the fields of a project's own classes hold that HfArgumentParser fills.

    Options of a base that is not here, such as TrainingArguments, are not told; no two classes may have one of the same name.
    """
    of_file = set(_filled_from_a_file(nodes)) if passed else set()
    last = [(name.rpartition(".")[2], call) for name, call in named if id(call) not in of_file]
    parsers = [call for name, call in last if name in _HF_PARSERS]
    filled = [
        node for node in nodes if isinstance(node, ast.Assign) and _is_filling(_take_first(node.value) or node.value)
    ]
    untold = any(name in _HF_UNTOLD for name, _ in last)
    untold |= _CONFIG_FILE in passed and any(name == "TrlParser" for name, _ in last)
    if untold or len(parsers) != 1 or len(parsers[0].args) != 1 or len(filled) != 1 or parsers[0].keywords:
        return None
    asked, targets, first = parsers[0].args[0], filled[0].targets, _take_first(filled[0].value)
    classes, value = getattr(asked, "elts", [asked]), first or filled[0].value
    bound = getattr(targets[0], "elts", targets if first is not None else ())
    names = [one.id for one in bound if isinstance(one, ast.Name)]
    more = [ast.unparse(word) for word in getattr(value, "keywords", ())]
    is_given = getattr(value, "args", ()) or (more and more != ["return_remaining_strings=True"])
    if len(targets) != 1 or not classes or len(classes) + len(more) != len(names) or is_given:
        return None
    lineages = [written.get(one.id, ()) for one in classes if isinstance(one, ast.Name)]
    fields = [
        (field.target.id, ast.unparse(field.annotation), defaults.get(field.target.id))
        for lineage in lineages
        if all(map(_is_plain, lineage))
        for node in lineage
        for defaults in [dict(defaults_of(node))]
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]
    values: dict[str, object] = {}
    for name, annotation, default in fields:
        if f"no_{name}" in passed:
            continue
        try:
            if name in passed:
                values[name] = _fill(passed[name], annotation)
            elif default is not None:
                values[name] = ast.literal_eval(default)
        except (TypeError, ValueError):
            continue
    others = tuple(passed.keys() - {name for name, _, _ in fields})
    values = {key: value for key, value in values.items() if not key.startswith(others)}
    return OwnOptions(frozenset(_namespaces(nodes, names)), values, filled[0].lineno)


def _take_first(value: ast.expr) -> ast.expr | None:
    """Return what ``…[0]`` takes the first of: where one class is filled."""
    return value.value if isinstance(value, ast.Subscript) and _constant(value.slice) == 0 else None


def _is_filling(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and dotted_name(value.func).rpartition(".")[2] in _FILLS


def _filled_from_a_file(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield what runs only where the command is one file: ``if len(sys.argv) == 2 and sys.argv[1].endswith(".json")``."""
    for node in nodes:
        match node:
            case ast.If(test=test, body=body) if any(map(_counts_words, getattr(test, "values", [test]))):
                if "endswith" in ast.unparse(test):
                    yield from (id(inner) for one in body for inner in ast.walk(one))


def _counts_words(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Call(func=ast.Name(id="len"))):
            return ast.unparse(test) == "len(sys.argv) == 2"
    return False


def _is_plain(node: ast.ClassDef) -> bool:
    """Tell whether the fields of a class hold what a parser gives them, whatever is done when they are filled."""
    made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in {"__init__", "__post_init__"}]
    return not any(one.name == "__init__" or _hands_on_self(one) for one in made)


def _hands_on_self(function: ast.FunctionDef) -> bool:
    """Tell whether a method may set a field of its object: it does anything else with it than to look at attributes."""
    nodes = list(ast.walk(function))
    looked = {id(one.value) for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)}
    calls = (dotted_name(one.func) for one in nodes if isinstance(one, ast.Call))
    return any(name.startswith(("self.", "super")) for name in calls) or any(
        isinstance(one, ast.Name) and one.id == "self" and id(one) not in looked for one in nodes
    )


def _fill(argument: Any, annotation: str) -> object:  # noqa: ANN401 (of a command line)
    """Return what HfArgumentParser makes of an option.

    Raises:
        ValueError: it is not told.
    """
    kind = annotation.replace("typing.", "").replace(" | None", "").removeprefix("Optional[")
    kind = kind.removesuffix("]") if annotation.find("Optional[") >= 0 else kind
    if kind == "bool" and argument.why is None:
        word = str(argument.value).lower()
        if word in _TRUE | _FALSE:
            return word in _TRUE
    many = kind.startswith(("List[", "list["))
    made = _TYPES.get(kind[len("List[") : -1] if many else kind)
    if made is None:
        msg = "is of another type"
        raise ValueError(msg)
    return _given(argument, made, many=many)


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
    kind = _BY_ARGPARSE.get(dotted_name(words["type"]) if "type" in words else "")
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
    if kind is bool and isinstance(argument.value, bool):
        return True  # "False" is a word like another
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


def _namespaces(nodes: Iterable[ast.AST], names: Iterable[str] = ()) -> set[str]:
    """Return the names of what a parser returns: bound to it, to what an own function returns of it, or given on to one."""
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    found = set(names)
    makers: set[str] = set()
    returned = {
        name: [node.value for node in nodes_of(function) if isinstance(node, ast.Return)]
        for name, function in functions.items()
    }

    def is_one(node: ast.AST | None) -> bool:
        if isinstance(node, ast.Call):
            name = dotted_name(node.func)
            joined = joined_by(node)
            joins = bool(joined) and all(map(is_one, joined))
            return joins or name.endswith(".parse_args") or name in makers
        return isinstance(node, ast.Name) and node.id in found

    for _ in range(_ROUNDS):  # a function may stand behind the one that calls it
        before = len(found) + len(makers)
        for node in nodes:
            if isinstance(node, ast.Assign) and is_one(node.value):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                names = [one.arg for one in functions[node.func.id].args.args]
                found |= {name for name, value in zip(names, node.args, strict=False) if is_one(value)}
                found |= {word.arg for word in node.keywords if word.arg and is_one(word.value)}
        for name, values in returned.items():
            if values and all(map(is_one, values)):
                makers.add(name)
        if len(found) + len(makers) == before:
            break
    return found
