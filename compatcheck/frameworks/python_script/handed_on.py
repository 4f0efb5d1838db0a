"""Where a script hands its run on: it imports a function of a module that lies here, and calls it.

``from llava.train.train import train`` and ``train(attn_implementation="flash_attention_2")`` is the whole of such a script.
Modules are looked for as files; nothing is imported.
"""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.beside import find_beside
from compatcheck.frameworks.python_script.calls import parse_script

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.core.files import Files
    from compatcheck.frameworks.python_script.calls import Script
    from compatcheck.frameworks.python_script.objects import Objects


class HandedOn(NamedTuple):
    """Functions of one other module that a script starts."""

    path: str
    """File of the module."""
    calls: tuple[str, ...]
    """The calls as Python, in the names of that module; what is no literal is ``...``."""
    lines: frozenset[int]
    """Where the script has them."""


def find_module(path: str, module: str, files: Files) -> str | None:
    """Return the file of a module that a script imports, where it lies here.

    Args:
        path: the script.
        module: dotted name, with a leading dot for each level of a relative import.
        files: the tree it lies in.
    """
    bare = module.lstrip(".")
    above = len(module) - len(bare)
    name = os.path.join(*[os.pardir] * (above - 1), *bare.split("."))
    for file in (f"{name}.py", os.path.join(name, "__init__.py")):
        beside = os.path.normpath(os.path.join(os.path.dirname(path), file))
        found = beside if above or files.is_file(beside) else find_beside(path, file, files)
        if files.is_file(found):
            return found
    return None


def find_handed_on(script: Script, objects: Objects, path: str, files: Files) -> tuple[HandedOn, ...]:
    """Return the modules here whose functions the body of a script calls by itself, each once with all calls of it."""
    places: dict[str, str | None] = {}
    found: dict[str, tuple[str, list[tuple[str, int]]]] = {}  # of a file by any of its names
    own = files.resolve(path)
    for node, scope, _ in script.visited:
        match node:
            case ast.Call(func=func) if scope is script.module:
                module, _, function = (objects.path(func) or "").rpartition(".")
                if module not in places:
                    places[module] = find_module(path, module, files) if module.strip(".") else None
                file = places[module]
                if file is not None and (real := files.resolve(file)) != own:
                    found.setdefault(real, (file, []))[1].append((_write_call(script, node, function), node.lineno))
    return tuple(
        HandedOn(file, tuple(call for call, _ in calls), frozenset(line for _, line in calls))
        for file, calls in found.values()
    )


def _write_call(script: Script, call: ast.Call, function: str) -> str:
    """Write a call for another module, where the names of this one mean nothing."""

    def read(node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Starred):
            return ast.Starred(ast.Constant(...))
        given = script.read(node, script.module)
        value = given.value if given.why is None else ...
        return ast.Constant(value if value is None or isinstance(value, str | int | float) else ...)

    words = [ast.keyword(word.arg, read(word.value)) for word in call.keywords]
    return ast.unparse(ast.Call(ast.Name(function), [read(one) for one in call.args], words))


def parse_started(text: str, path: str, calls: Iterable[str]) -> ast.Module:
    """Parse a module as it runs where another script starts functions of it: what it does as a script itself is left out.

    Raises:
        InputError: it is no Python this release can parse.
    """
    tree = parse_script(text, path)
    last = len(text.splitlines()) + 1
    started = ast.parse("\n".join(calls)).body
    for node in (inner for one in started for inner in ast.walk(one)):
        if isinstance(node, ast.expr | ast.stmt | ast.keyword):
            node.lineno = node.end_lineno = last
    return ast.Module([*(one for one in tree.body if not _is_main(one)), *started], [])


def _is_main(node: ast.stmt) -> bool:
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False
