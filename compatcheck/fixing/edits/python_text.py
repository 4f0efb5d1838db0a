"""Change one argument of a call in a Python script, or add it, and nothing else in it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.fix import TextEdit
from compatcheck.frameworks.keys import Expression
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.python_script.meanings import keyword_of
from compatcheck.frameworks.python_script.nodes import dotted_name
from compatcheck.resolution.spelling import as_mapping, as_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.facts import Value

_MARK = "\ufeff"
_IMPORTED = r"^from [\w.]+ import .*\b{}\b"


def edit_argument(path: str, text: str, key: str, value: Value, line: int | None) -> Iterator[TextEdit]:
    """Yield the edits that may give an argument a value.

    Args:
        path: the script.
        text: of the script.
        key: of the argument, dotted for an entry of a mapping: ``gradient_checkpointing_kwargs.use_reentrant``.
        value: the new one.
        line: of the call that takes it, where a script does not give it yet; None for one that none is known to take.

    Yields:
        First those that replace a value which stands there, then those that add the argument.
    """
    try:
        nodes = list(ast.walk(parse_script(text.removeprefix(_MARK), path)))
    except InputError:
        return
    # Before Python 3.12 what stands in an f-string has no place of its own.
    placeless = {inner for node in nodes if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and node not in placeless]
    script = _Text(text)
    if isinstance(value, Expression) and not re.search(_IMPORTED.format(value.partition("(")[0]), text, re.MULTILINE):
        return  # two edits that need each other
    outer, _, inner = key.partition(".")
    names = {call: keyword_of(dotted_name(call.func), outer) for call in calls}
    mappings = [node for node in nodes if isinstance(node, ast.Dict) and node not in placeless]
    for entry in (found for mapping in mappings if (found := _entry(mapping, key)) is not None):
        start, end = script.span(entry)
        yield TextEdit(path, start, end, _write(value, text[start:end]))
    for call in calls:
        for keyword in call.keywords:
            if keyword.arg == names[call]:
                given = _entry(keyword.value, inner) if inner else keyword.value
                if given is not None:
                    start, end = script.span(given)
                    yield TextEdit(path, start, end, _write(value, text[start:end]))
                elif isinstance(keyword.value, ast.Dict):
                    mapping, rest = _innermost(keyword.value, inner)
                    last = mapping.values[-1:]
                    at = script.span(last[0])[1] if last else script.span(mapping)[0] + 1
                    yield TextEdit(path, at, at, f"{', ' if last else ''}{as_mapping(rest, _write(value, ''))[1:-1]}")
    for call in calls:
        name = names[call]
        if (
            call.lineno == line
            and name not in {keyword.arg for keyword in call.keywords}
            and not _may_be_given(call, name, nodes)
        ):
            written = as_mapping(inner, _write(value, "")) if inner else _write(value, _torch(outer, text))
            yield from script.add(path, call, f"{name}={written}")


def _may_be_given(call: ast.Call, name: str, nodes: Sequence[ast.AST]) -> bool:
    """Tell whether what a call unpacks may give an argument: given twice, the script ends there."""
    unpacked = [one.value for one in call.keywords if one.arg is None]
    if not unpacked:
        return any(isinstance(one, ast.Starred) for one in call.args)
    named = {one.id for one in unpacked if isinstance(one, ast.Name)}
    written = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id in named for to in node.targets)
    ]
    if not all(map(_is_written_out, (*(one for one in unpacked if not isinstance(one, ast.Name)), *written))):
        return True
    if len(written) != len(named):
        return True
    said = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return name in said or any(isinstance(one, ast.Call) and name in {k.arg for k in one.keywords} for one in written)


def _is_written_out(mapping: ast.expr) -> bool:
    """Tell whether all names of a mapping stand in it."""
    match mapping:
        case ast.Dict(keys=keys):
            return all(isinstance(key, ast.Constant) for key in keys)
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=given):
            return all(one.arg is not None for one in given)
    return False


class _Text:
    """A script, with the places of its nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [int(text.startswith(_MARK)), *(found.end() for found in re.finditer(r"\r\n?|\n", text))]

    def _at(self, line: int, column: int) -> int:
        """Return the character of a place that is counted in bytes."""
        start = self._starts[line - 1]
        return start + len(self._text[start : start + column].encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """Return the first character of a node and the one behind it."""
        assert node.end_lineno is not None  # noqa: S101 (a parser sets both)
        assert node.end_col_offset is not None  # noqa: S101
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def add(self, path: str, call: ast.Call, argument: str) -> Iterator[TextEdit]:
        """Yield the edit that adds an argument behind the last one, on a line of its own where that one has one."""
        given = [*call.args, *call.keywords]
        if any(isinstance(one, ast.GeneratorExp) for one in given):
            return
        if not given:
            at = self.span(call)[1] - 1
            yield TextEdit(path, at, at, argument)
            return
        start, end = max([*map(self.span, call.args), *map(self.span, call.keywords)])
        indent = self._text[self._text.rfind("\n", 0, start) + 1 : start]
        rest = re.compile(r"[ \t]*,[ \t]*(?:#.*)?(?=[\r\n])").match(self._text, end)
        if indent.strip():
            yield TextEdit(path, end, end, f", {argument}")
            return
        newline = "\r\n" if "\r\n" in self._text else "\n"
        if rest is None:
            yield TextEdit(path, end, end, f",{newline}{indent}{argument}")
        else:
            yield TextEdit(path, rest.end(), rest.end(), f"{newline}{indent}{argument},")


def _entry(mapping: ast.expr, key: str) -> ast.expr | None:
    """Return what stands under a key of a mapping that is written out, None where nothing does."""
    name, _, inner = key.partition(".")
    entries: list[tuple[object, ast.expr]] = []
    if isinstance(mapping, ast.Dict):
        keys = (one.value if isinstance(one, ast.Constant) else None for one in mapping.keys)
        entries = list(zip(keys, mapping.values, strict=True))
    elif isinstance(mapping, ast.Call) and dotted_name(mapping.func) == "dict":
        entries = [(one.arg, one.value) for one in mapping.keywords]
    found = next((value for name_, value in entries if name_ == name), None)
    return found if found is None or not inner else _entry(found, inner)


def _innermost(mapping: ast.Dict, key: str) -> tuple[ast.Dict, str]:
    """Return the innermost mapping written out that an entry is missing from, and the rest of its key."""
    name, _, inner = key.partition(".")
    found = _entry(mapping, name) if inner else None
    return _innermost(found, inner) if isinstance(found, ast.Dict) else (mapping, key)


def _torch(key: str, text: str) -> str:
    """Return how a dtype is written in a script that imports torch."""
    return "torch." if key.endswith("dtype") and re.search(r"^import torch\b", text, re.MULTILINE) else ""


def _write(value: Value, written: str) -> str:
    """Write a value as the script wrote the one before: a dtype of torch as such, a text in the quotes it had."""
    if isinstance(value, str) and written.startswith("torch."):
        return f"torch.{value}"
    return repr(value) if isinstance(value, str) and written.startswith("'") else as_python(value)
