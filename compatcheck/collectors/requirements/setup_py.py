"""``setup.py``: the requirements it writes down as literals, read from its syntax tree; it is never run.

What it computes (files it reads, lists it changes, arguments it unpacks) is said as unread.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from compatcheck.collectors.requirements.pyproject import Stated
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name
from compatcheck.core.python_code import parse_python
from compatcheck.core.python_tree import find_calls
from compatcheck.core.requirement import InvalidRequirementError, Requirement, parse_requirement
from compatcheck.core.selection import DEFAULT, Selection
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_bytes
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.environment import Environment

MAX_BYTES = MIB
_FORM = "write it as 'name', 'name==1.2.3' or 'name>=1.2,<2'"
_ELSEWHERE = "check the requirement file, lock or environment of the project"
_MAX_NAMES = 20
"""How many names are followed, one standing for another."""
_MOST_ENTRIES = 50_000
"""Parts of lists that are read of one file: names that stand for two lists each make any number of them."""


def read_setup_py(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read ``install_requires`` and ``extras_require`` of the calls of ``setup()``.

    Lists and names that are bound once, at the top of the file, to a list count. Whether the packages are there that only an
    unselected extra requires is unknown.

    ``selection`` names the extras that are installed, and the Python.
    """
    reading = _Reading(path, _parse(path, files))
    calls = find_calls(reading.tree, "setup")
    required: list[Requirement] = []
    optional: dict[str, list[Requirement]] = {}
    python: str | None = None
    for call in calls:
        for keyword in call.keywords:
            if keyword.arg is None:
                reading.skip(keyword.value, "arguments of setup() are computed", _ELSEWHERE)
            elif keyword.arg == "install_requires":
                required += reading.read_list(keyword.value, keyword.arg)
            elif keyword.arg == "extras_require":
                for extra, items in reading.read_extras(keyword.value):
                    (optional.setdefault(canonical_name(extra), []) if extra else required).extend(items)
            elif keyword.arg == "python_requires" and isinstance(keyword.value, ast.Constant):
                python = keyword.value.value if isinstance(keyword.value.value, str) else None
    extras = {name: tuple(items) for name, items in optional.items()}
    missing = "states no requirements" if calls else "calls no setup()"
    return Stated(tuple(required), extras, {}, python).select(path, selection, reading.skipped, missing=missing)


def _parse(path: str, files: Files) -> ast.Module:
    data = read_bytes(path, files, limit=MAX_BYTES)
    try:
        return parse_python(data)
    except SyntaxError as error:
        message = f"is not Python {error.msg and f'({error.msg})'}".rstrip()
        raise InputError(message, source=Source(path, line=error.lineno), hint=_ELSEWHERE) from None
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"cannot be parsed: {str(error) or 'it is nested too deeply'}"
        raise InputError(message, source=Source(path), hint=_ELSEWHERE) from None


def _with_marker(text: str, marker: str) -> str:
    """Add the marker of an extra to a requirement, which may have one of its own."""
    if not marker:
        return text
    requirement, _, own = text.partition(";")
    return f"{requirement}; ({own}) and ({marker})" if own else f"{requirement}; {marker}"


class _Reading:
    """One file, the names it binds to literals, and what could not be used of it."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        self.skipped: list[Skipped] = []
        self.constants = _constants(tree)
        self.tables: dict[ast.expr, Mapping[str, ast.expr]] = {}
        self.left = _MOST_ENTRIES

    def read_list(self, node: ast.expr, key: str, marker: str = "") -> list[Requirement]:
        """Read a list of requirements, or text with one on each line; say what is computed."""
        found = []
        for entry in self._entries(node, key):
            for line in entry.value.splitlines() if isinstance(entry.value, str) else ():
                text = re.sub(r"(^|\s)#.*$", "", line).strip()
                if text:
                    found += self._read(_with_marker(text, marker), entry)
        return found

    def read_extras(self, node: ast.expr) -> Iterator[tuple[str, list[Requirement]]]:
        """Read a mapping of extras to requirements; ``extra:marker`` holds a marker, and no extra means always."""
        table = self._follow(node)
        if not isinstance(table, ast.Dict):
            self.skip(node, "extras_require is computed", _ELSEWHERE)
            return
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                extra, _, marker = key.value.partition(":")
                yield extra.strip(), self.read_list(value, f"extras_require[{key.value!r}]", marker.strip())
            else:
                self.skip(key or value, "an entry of extras_require is computed", _ELSEWHERE)

    def skip(self, node: ast.expr, reason: str, hint: str) -> None:
        """Note what is not read."""
        self.skipped.append(Skipped(Source(self.path, line=node.lineno), reason, hint, named=True))

    def _read(self, text: str, node: ast.expr) -> list[Requirement]:
        try:
            return [parse_requirement(text.strip(), Source(self.path, line=node.lineno))]
        except InvalidRequirementError as error:
            self.skip(node, str(error), _FORM)
            return []

    def _entries(self, node: ast.expr, key: str) -> Iterator[ast.Constant]:
        """Yield the texts of a list, of lists that are added, or a single text."""
        pending = [(node, False)]
        while pending:
            stated, inside = pending.pop()
            self.left -= 1
            if self.left < 0:
                self.skip(stated, f"{key} and what stands before it have more than {_MOST_ENTRIES:,} parts", _ELSEWHERE)
                return
            found = self._follow(stated)
            if isinstance(found, ast.Constant) and isinstance(found.value, str):
                yield found
            elif inside and isinstance(stated, ast.Starred):
                pending.append((stated.value, False))
            elif inside:
                self.skip(stated, f"an entry of {key} is computed, and nothing is run", "write it as text")
            elif isinstance(found, ast.List | ast.Tuple):
                pending += [(item, True) for item in reversed(found.elts)]
            elif isinstance(found, ast.BinOp) and isinstance(found.op, ast.Add):
                pending += [(found.right, False), (found.left, False)]
            else:
                self.skip(stated, f"{key} is computed, and nothing is run", _ELSEWHERE)

    def _follow(self, node: ast.expr) -> ast.expr:
        """Return what a name stands for, or an entry of a table, as far as that is certain."""
        for _ in range(_MAX_NAMES):
            if isinstance(node, ast.Name) and node.id in self.constants:
                node = self.constants[node.id]
            elif isinstance(node, ast.Subscript) and (entry := self._look_up(node)) is not None:
                node = entry
            else:
                break
        return node

    def _look_up(self, node: ast.Subscript) -> ast.expr | None:
        """Return the requirement ``deps["torch"]`` of a table: one that is written out, or made of a list by the names in it."""
        table, key = self._follow(node.value), node.slice
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        if not isinstance(table, ast.Dict | ast.DictComp):
            return None
        if table not in self.tables:
            self.tables[table] = self._index(table)
        return self.tables[table].get(key.value if isinstance(table, ast.Dict) else canonical_name(key.value))

    def _index(self, table: ast.Dict | ast.DictComp) -> Mapping[str, ast.expr]:
        """Return what a table holds for certain under each key, the last of two alike; of one that is made, by distribution."""
        found: dict[str, ast.expr] = {}
        if isinstance(table, ast.Dict):
            for one, value in zip(table.keys, table.values, strict=True):
                if isinstance(one, ast.Constant):
                    if isinstance(one.value, str):
                        found[one.value] = value
                else:  # another table, or a key that is computed: it may take the place of any entry before it
                    found.clear()
        elif isinstance(table.value, ast.Name) and table.value.id in set(_bound_by(table)):
            sources = (self._follow(each.iter) for each in ast.walk(table) if isinstance(each, ast.comprehension))
            items = next((source.elts for source in sources if isinstance(source, ast.List | ast.Tuple)), [])
            found = {name: item for item in items if (name := _distribution(item)) is not None}
        return found


def _bound_by(table: ast.DictComp) -> Iterator[str]:
    return (node.id for each in table.generators for node in ast.walk(each.target) if isinstance(node, ast.Name))


def _distribution(node: ast.expr) -> str | None:
    """Return which distribution a text requires."""
    text = node.value if isinstance(node, ast.Constant) else None
    match = re.match(r"[\w.-]+", text) if isinstance(text, str) else None
    return None if match is None else canonical_name(match[0])


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the names that are bound once, at the top level, and never changed in place, under this name or another.

    What a function does to a list that it is given is not looked at.
    """
    bound: dict[str, ast.expr] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name):
            bound[target.id] = value
    touched: dict[str, int] = {}
    others: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        for name in _touched(node):
            touched[name] = touched.get(name, 0) + 1
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and isinstance(node.value, ast.Name):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for other in (target.id for target in targets if isinstance(target, ast.Name)):
                others.setdefault(node.value.id, set()).add(other)
                others.setdefault(other, set()).add(node.value.id)
    unsure = [name for name, count in touched.items() if count > 1]
    changed: set[str] = set()
    while unsure:
        name = unsure.pop()
        if name not in changed:
            changed.add(name)
            unsure += others.get(name, ())
    return {name: value for name, value in bound.items() if name not in changed}


def _touched(node: ast.AST) -> Iterator[str]:
    """Yield the names a node binds or may change: assignments, arguments, items, methods, deletions, definitions, patterns."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name):
        changes = isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load)
        yield from (node.value.id,) if changes else ()
    elif isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar
    ):
        yield from (node.name,) if node.name else ()
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
