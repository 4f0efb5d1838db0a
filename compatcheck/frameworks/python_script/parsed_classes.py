"""Classes whose fields a script's parser fills, wherever they stand in the project: ``HfArgumentParser((Model, Arguments))``.

So are its trainers that stand in other modules.

A class is followed through ``from x import y`` to the file that defines it, and so are its bases; nothing is imported.
"""

from __future__ import annotations

import ast
from itertools import islice
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.python_script.handed_on import find_module
from compatcheck.frameworks.python_script.nodes import PARSERS, dotted_name, targets_of
from compatcheck.frameworks.python_script.objects import OF_TRAINERS, import_lines
from compatcheck.frameworks.text import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.core.files import Files

_MOST_CLASSES, _MOST_FILES, _MOST_BASES, _MOST_MODULES = 40, 6, 8, 40
"""Classes of one parser, files that a name is followed through, classes beneath one, and modules that are looked at."""


class ParsedClass(NamedTuple):
    """A class with those that it is built on."""

    name: str
    """As the parser is given it."""
    nodes: tuple[tuple[str, ast.ClassDef], ...]
    """It and its bases that lie here, each with its file, the outermost first; none where it is a library's."""
    roots: frozenset[str]
    """Names of classes of libraries that it, or what it is built on, is or derives from."""


def find_parsed_classes(tree: ast.Module, path: str, files: Files) -> tuple[ParsedClass, ...]:
    """Return the classes that the parsers of a script are given."""
    names = islice(dict.fromkeys(_names(tree)), _MOST_CLASSES)
    return tuple(_follow(name, tree, path, files) for name in names)


def find_trainer_classes(tree: ast.Module, path: str, files: Files) -> tuple[ParsedClass, ...]:
    """Return the classes of trainers that a script makes and that stand in other modules of the project."""
    own = {node.name for node in nodes_of(tree) if isinstance(node, ast.ClassDef)}
    named = (dotted_name(node) for node in nodes_of(tree) if isinstance(node, ast.Name | ast.Attribute))
    names = dict.fromkeys(name for name in named if name.endswith("Trainer") and name not in own)
    found = (_follow(name, tree, path, files) for name in islice(names, _MOST_CLASSES))
    return tuple(one for one in found if one.nodes)


def find_imported(path: str, files: Files) -> Iterator[ast.Module]:
    """Yield a script and the modules here that it imports, by way of others too; of many the nearest ones."""
    pending, seen = [path], {files.resolve(path)}
    while pending:
        of = pending.pop(0)
        tree = parse_module(of, files)
        if tree is None:
            continue
        yield tree
        for _, name in import_lines(tree):
            for module in (name, name.rpartition(".")[0]):  # `from a import b`: of a, or a module in it
                file = find_module(of, module, files) if module.strip(".") else None
                if file is not None and len(seen) < _MOST_MODULES and (real := files.resolve(file)) not in seen:
                    seen.add(real)
                    pending.append(file)


def _names(tree: ast.Module) -> Iterator[str]:
    nodes = nodes_of(tree)
    assigned = {
        target.id: value
        for node in nodes
        for targets, value in [targets_of(node)]
        for target in targets
        if isinstance(target, ast.Name) and isinstance(value, ast.Tuple | ast.List)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] in PARSERS:
            for given in node.args[:1]:
                held = assigned.get(given.id, given) if isinstance(given, ast.Name) else given
                yield from (
                    dotted_name(one) for one in getattr(held, "elts", [held]) if not isinstance(one, ast.Starred)
                )


def _follow(name: str, tree: ast.Module, path: str, files: Files) -> ParsedClass:
    nodes: list[tuple[str, ast.ClassDef]] = []
    roots: set[str] = set()
    pending: list[tuple[str, ast.Module, str]] = [(name, tree, path)]
    while pending and len(nodes) < _MOST_BASES:
        found = _find(*pending.pop(), files, taken=[node for _, node in nodes])
        if isinstance(found, str):
            roots.add(found)
            continue
        node, where, of = found
        nodes.append((of, node))
        pending += [(dotted_name(base), where, of) for base in node.bases]
    return ParsedClass(name.rpartition(".")[2], tuple(reversed(nodes)), frozenset(roots))


def _find(
    name: str, tree: ast.Module, path: str, files: Files, depth: int = 0, *, taken: Iterable[ast.ClassDef] = ()
) -> tuple[ast.ClassDef, ast.Module, str] | str:
    """Return a class, the module it stands in and its file; its name in a library where it is not here."""
    owner, _, last = name.rpartition(".")
    for node in reversed([*_statements(tree)]):
        if isinstance(node, ast.ClassDef) and node.name == name and node not in taken:
            return node, tree, path
        for item in node.names if isinstance(node, ast.ImportFrom | ast.Import) else ():
            if (item.asname or item.name) != (owner or name):
                continue
            module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            module = ".".join(filter(None, (module, item.name))) if owner else module
            is_followed = module.strip(".") and module.partition(".")[0] not in OF_TRAINERS and depth < _MOST_FILES
            file = find_module(path, module, files) if is_followed else None
            other = None if file is None else parse_module(file, files)
            wanted = last if owner else item.name
            return wanted if file is None or other is None else _find(wanted, other, file, files, depth + 1)
    return last


def _statements(tree: ast.Module) -> Iterable[ast.stmt]:
    """Return what stands at the left edge, and in what is tried there."""
    for node in tree.body:
        yield node
        yield from getattr(node, "body", ()) if isinstance(node, ast.Try | ast.If) else ()


def parse_module(path: str, files: Files) -> ast.Module | None:
    """Parse a module of a project; None where it cannot be."""
    try:
        return parse_script(read_text(path, files), path)
    except (InputError, RecursionError):
        return None
