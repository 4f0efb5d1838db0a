"""Trainings that a program of Python starts in a process of its own, which is not read: told by the words of its calls."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.python_tree import nodes_of
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.launch_script.launchers import is_launcher, names_launcher
from compatcheck.frameworks.launch_script.unread_launches import Trials, find_in_comments, find_in_line
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.python_script.nodes import dotted_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGINS = re.compile(
    r"\s*(?:[\w./~-]*/)?(?:\$X |[A-Z_]+=\S|cd |export |env |nohup |srun |torchrun|accelerate|deepspeed|python|[a-z]+(?:-cli)?[ ])"
)
"""What a text that is no message begins with."""
_SAYS_ONLY = re.compile(
    r"(?:^|\.)(?:print|add_argument|ArgumentParser|debug|info|warning|error|exception|write|\w+Error|\w*Exception)$"
)
_ELASTIC = re.compile(r"(?:^|\.)distributed\.(?:run|launch)\.(?:main|parse_args)$")
_MOST_CHARACTERS = 65_536
"""Of one command."""
_MOST_IN_ALL = 1 << 22


def find_in_python(path: str, text: str) -> Skipped | None:
    """Say that a program of Python starts a training in a process of its own; None where no call of it does."""
    if not names_launcher(text):
        return None
    if (found := find_in_comments(path, text)) is not None:
        return found
    try:
        tree, left = parse_script(text, path), Trials()
        for line, number in _Commands(tree).find():
            if names_launcher(line) and (found := find_in_line(line, path, number, left)):
                return found
    except (InputError, RecursionError):
        return None  # its reader says what is wrong where its name tells that it trains
    except OverflowError:
        reason = f"puts more than {_MOST_IN_ALL >> 20} MiB of text together; whether it starts a training is not read"
        return Skipped(Source(path), reason, "name the launch script itself")
    return None


class _Commands:
    """Texts and lists of words in a program, with what is added to them behind their names."""

    def __init__(self, tree: ast.Module) -> None:
        self._nodes = sorted((one for one in nodes_of(tree) if hasattr(one, "lineno")), key=_place)
        self._said = {
            id(inner)
            for node in self._nodes
            if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr))
            or (isinstance(node, ast.Call) and _SAYS_ONLY.search(dotted_name(node.func)) is not None)
            for inner in ast.walk(node)
        }
        self._modules = {
            item.asname or item.name: f"{node.module}.{item.name}" if isinstance(node, ast.ImportFrom) else item.name
            for node in self._nodes
            if isinstance(node, ast.ImportFrom | ast.Import)
            for item in node.names
        }
        self._held: dict[str, str] = {}
        self._size = 0

    def find(self) -> Iterator[tuple[str, int]]:
        """Yield what may be a command, with its line.

        Raises:
            OverflowError: there is more text than is put together.
        """
        for node in self._nodes:
            if id(node) not in self._said:
                yield from ((line, node.lineno) for line in self._lines(node))

    def _lines(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._held[name] = self._text(value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                yield from self._add(name, value, "" if _is_text(value) else " ")
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[value]):
                yield from self._add(name, value, " ")
            case ast.Call(keywords=keywords) if any(_is_program(one.value) for one in keywords):
                given = [self._text(one.value) for one in keywords]
                options = (text for text in given if text.startswith("--"))
                yield " ".join(["python", next(text for text in given if text.endswith(".py")), *options])
            case ast.Call(func=func, args=args) if args:
                called = self._name(func)
                line = self._join(args)
                name = "torchrun" if _ELASTIC.search(called) else called.rpartition(".")[2]
                yield f"{name} {line}" if is_launcher(name) else line if _BEGINS.match(line) else ""
            case ast.List() | ast.Tuple():
                yield self._text(node)
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp():
                line = self._text(node)
                yield line if _BEGINS.match(line) else ""

    def _add(self, name: str, value: ast.expr, between: str) -> Iterator[str]:
        if name in self._held:
            self._held[name] = line = self._take(f"{self._held[name]}{between}{self._text(value)}")
            yield line if _BEGINS.match(line) else ""

    def _name(self, func: ast.expr) -> str:
        name = dotted_name(func)
        first, dot, rest = name.partition(".")
        return f"{self._modules.get(first, first)}{dot}{rest}"

    def _join(self, nodes: list[ast.expr]) -> str:
        return self._take(" ".join(map(self._text, nodes)))

    def _text(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str() | int() | float() as value):
                return self._take(str(value))
            case ast.JoinedStr(values=parts):
                return self._take("".join(map(self._text, parts)))
            case ast.FormattedValue(value=value):
                return self._text(value)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return self._join(parts)
            case ast.Dict(keys=keys, values=values):
                named = ((key, value) for key, value in zip(keys, values, strict=True) if key is not None)
                return self._take(" ".join(f"--{self._text(key)} {self._text(value)}" for key, value in named))
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                between = "" if _is_text(left) or _is_text(right) else " "
                return self._take(f"{self._text(left)}{between}{self._text(right)}")
            case ast.Starred(value=value) | ast.Call(func=ast.Attribute(attr="split" | "join"), args=[value]):
                return self._text(value)
            case ast.Name(id=name) if name in self._held:
                return self._take(self._held[name])
        return "$X"

    def _take(self, text: str) -> str:
        self._size += len(text)
        if self._size > _MOST_IN_ALL:
            raise OverflowError
        return text[:_MOST_CHARACTERS]


def _place(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]  # of those that have a place


def _is_program(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".py")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
