"""Calls of a Python script with the literals they are given, by ``ast`` alone: nothing is imported, nothing is run.

A name counts where its own scope, else the module, assigns it exactly once, or anew before anything asked for it. What is not
a literal in the end has no value and keeps its own words.
"""

from __future__ import annotations

import ast
import re
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.python_code import parse_python
from compatcheck.core.python_tree import children_of, nodes_of
from compatcheck.core.source import Source
from compatcheck.frameworks.python_script.literals import NoLiteralError, compare, compute, convert, negate
from compatcheck.frameworks.python_script.nodes import (
    assigned_by,
    dotted_name,
    is_one,
    joined_by,
    parses,
    targets_of,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.frameworks.python_script.own_options import OwnOptions

    class _Decide(Protocol):
        """Decides a branch while names are collected."""

        def __call__(self, test: ast.expr, scope: Scope, *, always: bool) -> bool | None:
            """Tell which way it goes, told whether what stands before it has happened in any case, and once."""


class Given(NamedTuple):
    """What one argument of a call is given."""

    value: object
    """The literal; meaningless when ``why`` is set."""
    line: int
    why: str | None = None
    """Why the value is not known; None when it is."""
    names: frozenset[str] = frozenset()
    """Names that a value which is not known is computed from."""
    options: frozenset[str] = frozenset()
    """Options of the script's own that it is computed from."""


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
    node: ast.Call
    scope: Scope
    written: Mapping[str, ast.expr]
    """Expressions of the keywords, those of mappings that are written out among them."""


class Assignment(NamedTuple):
    """What an attribute of an object is set to."""

    owner: ast.expr
    name: str
    value: ast.expr
    given: Given
    condition: str | None
    """The test of the innermost branch around it that no literal decides."""
    node: ast.Call | ast.Assign | ast.AnnAssign | ast.AugAssign
    scope: Scope


_MAX_DEPTH = 60
_NESTED_NAMES = 5
_MOST_STEPS, _MOST_STEPS_IN_ALL = 2_000, 1_000_000
"""Expressions that are followed for one value, and for all of a script: a name that stands for others twice doubles them."""
_MOST_SHARED = 100_000
"""Attributes that are noted of other names of an object: each of a row of names has those of all before it."""
_MOST_NAMED = 500_000
"""Nodes that are looked through for the names in values that are not known: one may stand in thousands of them."""
_DTYPES = {
    "bfloat16", "float16", "float32", "float64", "half", "int8", "float8_e4m3fn",
}  # fmt: skip
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_BRANCHING = (ast.If, ast.IfExp, ast.While)
Visited = ast.Call | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.Expr


_MOST_CHARACTERS, _MOST_NODES = 1 << 20, 100_000
"""Of a script: the longest file of Python in 31 public training repositories has 399,278 characters, and the one with most nodes
30,290. Reading takes 50 µs and 0.5 KB for each node, and the parser needs a hundred bytes for each character."""


KEPT = 1 << 16
"""The longest text, in characters, whose parsed form is kept: it takes a hundred times as much."""


def parse_script(text: str, path: str) -> ast.Module:
    """Parse a script; of a short one the same tree is returned again, so nothing may change it.

    Raises:
        InputError: it is no Python this release can parse, or larger than any training script is.
    """
    return _parse_again(text, path) if len(text) > KEPT else _parse_once(text, path)


def _parse_again(text: str, path: str) -> ast.Module:
    code = text if len(text) <= _MOST_CHARACTERS else re.sub(r"^[ \t]*\n", "", text, flags=re.MULTILINE)
    if len(code) > _MOST_CHARACTERS:
        raise _too_large(path, f"{_MOST_CHARACTERS >> 20} MiB of code")
    try:
        tree = parse_python(text)
    except SyntaxError as error:
        msg = f"is no Python that can be parsed: {error.msg}"
        raise InputError(
            msg, source=Source(path, None, error.lineno), hint="is it a script for Python 2, or a template?"
        ) from None
    except ValueError as error:
        msg = f"is no Python that can be parsed: {str(error).partition(';')[0]}"
        raise InputError(msg, source=Source(path), hint="check that this is the file you mean") from None
    except (RecursionError, MemoryError):
        raise too_deep(path) from None
    if len(nodes_of(tree)) > _MOST_NODES:
        raise _too_large(path, f"{_MOST_NODES:,} parts of statements")
    return tree


_parse_once = lru_cache(maxsize=8)(_parse_again)


def _too_large(path: str, limit: str) -> InputError:
    msg = f"holds more than {limit}: it is not read"
    return InputError(msg, source=Source(path), hint="name a script that holds the training alone")


def too_deep(path: str) -> InputError:
    """Describe a script whose expressions stand in one another too often."""
    msg = "is nested too deeply to be a training script"
    return InputError(msg, source=Source(path), hint="check that this is the file you mean")


class Scope:
    """Names that a function or the module assigns."""

    def __init__(self, outer: Scope | None) -> None:
        self.outer = outer
        self.values: dict[str, ast.expr | None] = {}
        """By name; None for a name that is assigned twice, or by anything but one plain assignment."""
        self.fresh: set[str] = set()
        """Names that a plain assignment bound in any case, and that nothing has asked for since."""
        self.inner: list[ast.AST] = []
        """Functions and classes in it, as far as it was looked through."""

    def find(self, name: str) -> ast.expr | None:
        """Return what a name is assigned, None when that is not one expression."""
        owner = self.owner(name)
        return None if owner is None else owner.values[name]

    def owner(self, name: str) -> Scope | None:
        """Return the scope that assigns a name, this one or one around it; None for a name that none assigns."""
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope

    def assign(self, name: str, value: ast.expr | None) -> None:
        """Note an assignment; a second one makes the name unknown."""
        self.values[name] = None if name in self.values else value
        self.fresh.discard(name)

    def assign_anew(self, name: str, value: ast.expr) -> None:
        """Note a plain assignment that happens in any case: it replaces what nothing has asked for."""
        if name in self.fresh and not any(_mentions(one, name) for one in self.inner):
            self.values[name] = value
        else:
            self.assign(name, value)
        self.fresh.add(name)


def _mentions(node: ast.AST, name: str) -> bool:
    """Tell whether a function or class names a name, and so may ask for it wherever it is called."""
    return any(isinstance(one, ast.Name) and one.id == name for one in nodes_of(node))


def _bind(target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        scope.assign(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            _bind(item, None, scope)
    elif isinstance(target, ast.Starred):
        _bind(target.value, None, scope)


def _collect(node: ast.AST, scope: Scope, decide: _Decide, *, always: bool = True) -> None:
    """Note the assignments of one scope, those in its branches too, without entering inner scopes.

    Args:
        node: what is looked through.
        scope: grown in place.
        decide: decides branches, of which those that are reached alone count.
        always: whether what stands directly in the node happens in any case, and once.
    """
    children: Iterable[ast.AST] = children_of(node)
    if isinstance(node, ast.If):
        truth = decide(node.test, scope, always=always)
        if truth is not None:
            children = (node.test, *(node.body if truth else node.orelse))
        always = always and truth is not None
    elif isinstance(node, _REPEATING):
        always = False
    for child in children:
        if isinstance(child, ast.Name):
            if not isinstance(child.ctx, ast.Store):
                scope.fresh.discard(child.id)
            continue
        kind = type(child)
        if kind in _BINDING and kind not in _ASSIGNING:
            _note(child, scope)
        if kind in _SCOPES:
            scope.inner.append(child)
        else:
            _collect(child, scope, decide, always=always)
        if kind in _ASSIGNING:  # what it asks for comes first
            _note(child, scope, always=always)


_ASSIGNING = frozenset({ast.Assign, ast.AnnAssign})
_REPEATING = (ast.For, ast.AsyncFor, ast.While, ast.Try, getattr(ast, "TryStar", ast.Try), ast.Match)
"""What does what stands in it more than once, or not at all."""
_BINDING = frozenset({
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem, ast.NamedExpr, ast.Global,
    ast.Nonlocal, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
})  # fmt: skip
"""What gives names a value."""


def _note(node: ast.AST, scope: Scope, *, always: bool = False) -> None:
    """Note what one of `_BINDING` assigns; None stands for a value that nobody can tell."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ) if always:
            scope.assign_anew(name, value)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _bind(target, value if len(targets) == 1 else None, scope)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            _bind(target, value, scope)
        case (
            ast.AugAssign(target=target)
            | ast.For(target=target)
            | ast.AsyncFor(target=target)
            | ast.comprehension(target=target)
            | ast.NamedExpr(target=target)
            | ast.withitem(optional_vars=ast.expr() as target)
        ):
            _bind(target, None, scope)
            if isinstance(node, ast.AugAssign):  # assigned twice
                _bind(target, None, scope)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            for name in names:
                scope.assign(name, None)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            scope.assign(name, None)


_MUTATORS = {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}


def _changed(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names whose value is changed in place or from inside a function; what they were assigned tells nothing."""
    for node in nodes:
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.Subscript(value=ast.Name(id=name), slice=key, ctx=context) if not isinstance(context, ast.Load):
                if not (isinstance(context, ast.Store) and isinstance(key, ast.Constant)):
                    yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if attribute in _MUTATORS:
                yield name


def _other_names(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """Return the other names of what a name stands for: by an assignment, in a loop, as a parameter of an own function."""
    functions = {node.name: node.args for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    pairs: list[tuple[str, ast.expr]] = []
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=ast.Name() as value):
                pairs += [(target.id, value) for target in targets if isinstance(target, ast.Name)]
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=items) | ast.List(elts=items)):
                pairs += [(name, item) for item in items]
            case ast.Call(func=ast.Name(id=called), args=given, keywords=words) if called in functions:
                names = [one.arg for one in (*functions[called].posonlyargs, *functions[called].args)]
                pairs += [*zip(names, given, strict=False), *((word.arg, word.value) for word in words if word.arg)]
    found: dict[str, set[str]] = {}
    for name, same in pairs:
        if isinstance(same, ast.Name) and same.id != name:
            found.setdefault(name, set()).add(same.id)
    return found


def _of_others(names: set[str], others: Mapping[str, set[str]], also: Iterable[str] = ()) -> set[str]:
    """Return some names, with those that stand for the same object as one of them, or as one more that is none of them."""
    found, pending = set(names), [*names, *also]
    while pending:
        new = others.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


def _share(attributes: set[tuple[str, str]], others: Mapping[str, set[str]]) -> None:
    """Add what is set of a name to what is set of its other names; where those are too many, any may be of each."""
    left = _MOST_SHARED
    for name, keys in _by_name(attributes).items():
        reached = _of_others({name}, others)
        left -= len(reached) * len(keys)
        if left < 0:
            attributes |= {(one, "") for names in others.values() for one in names}
            return
        attributes |= {(other, key) for other in reached for key in keys}


def _by_name(attributes: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, key in attributes:
        found.setdefault(name, []).append(key)
    return found


def _attributes_set(nodes: Iterable[ast.AST]) -> set[tuple[str, str]]:
    """Return attributes and keys that are set, each behind what it is set of; an empty one where it may be any."""
    found: set[tuple[str, str]] = set()
    kept = set()
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Attribute() as target], value=ast.Attribute() as value) if dotted_name(
                target
            ) == dotted_name(value):
                kept.add(target)
            case ast.Attribute(value=owner, attr=name, ctx=ast.Store()) if node not in kept:
                found.add((_held_by(owner), name))
            case ast.Subscript(value=owner, slice=key, ctx=ast.Store()):
                found.add((_held_by(owner), str(key.value) if isinstance(key, ast.Constant) else ""))
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, key, _]):
                found.add((_held_by(owner), str(key.value) if isinstance(key, ast.Constant) else ""))
            case ast.Call(func=ast.Attribute(value=owner, attr="update" | "__setattr__")):
                found.add((_held_by(owner), ""))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if any(
                isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(call)
            ):
                found.add((name, ""))  # made anew of itself: `args = merge(vars(args), more)`
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=func, keywords=[*_, ast.keyword(arg=None)]) as call
            ) if dotted_name(func).endswith("Namespace") and not joined_by(call):
                found.add((name, ""))
    return found


def _held_by(node: ast.expr) -> str:
    """Return the name of the object whose attributes a mapping holds: ``vars(args)``, ``args.__dict__``."""
    match node:
        case ast.Call(func=ast.Name(id="vars"), args=[owner]) | ast.Attribute(value=owner, attr="__dict__"):
            return dotted_name(owner)
    return dotted_name(node)


def _inner_scope(node: ast.AST, outer: Scope, decide: _Decide, given: Mapping[str, ast.expr]) -> Scope:
    scope = Scope(outer)
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        for argument in filter(None, every):
            scope.assign(argument.arg, given.get(argument.arg))
    _collect(node, scope, decide)
    return scope


def _parameters(tree: ast.Module, nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.FunctionDef, dict[str, ast.expr]]]:
    """Yield the functions of a module that one call alone starts, with what its parameters are given that is a literal."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    used: dict[str, int] = {}
    calls: dict[str, ast.Call] = {}
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in functions:
                calls[name] = node
            case ast.Name(id=name) | ast.FunctionDef(name=name) if name in functions:
                used[name] = used.get(name, 0) + 1
    for name, call in calls.items():
        told = not any(isinstance(one, ast.Starred) for one in call.args) and all(word.arg for word in call.keywords)
        if told and used[name] == 2:  # its definition and this call
            yield functions[name], dict(_given_to(functions[name].args, call))


def _given_to(parameters: ast.arguments, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield what parameters hold that are given a constant, or left out and have one as their default."""
    places = [*parameters.posonlyargs, *parameters.args]
    defaults = zip(reversed(places), reversed(parameters.defaults), strict=False)
    named = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    held: dict[str, ast.expr | None] = {one.arg: value for one, value in (*defaults, *named)}
    held.update((one.arg, value) for one, value in zip(places, call.args, strict=False))
    held.update((str(word.arg), word.value) for word in call.keywords)
    yield from ((name, value) for name, value in held.items() if isinstance(value, ast.Constant))


class Script:
    """A parsed script."""

    def __init__(self, tree: ast.Module, options: OwnOptions | None = None) -> None:
        """Note aliases of imports and the module's own names.

        Args:
            tree: the script.
            options: what its own options hold, where that is told.
        """
        self.tree = tree
        self.options = options
        self.asked: set[str] = set()
        """Its own options that a value was taken from."""
        self.decided: set[str] = set()
        """Those of them that decide branches."""
        self._now: set[str] = set()
        self._left, self._left_in_all, self._left_named = _MOST_STEPS, _MOST_STEPS_IN_ALL, _MOST_NAMED
        self.nodes = nodes_of(tree)
        """All of it, walked through once."""
        self.aliases: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom):
                self.aliases.update({item.asname: item.name for item in node.names if item.asname})
        self.module = Scope(None)
        self.attributes: set[tuple[str, str]] = set()
        self.entered: dict[str, dict[str, ast.expr]] = {}
        """What is put into mappings under keys that are written out, by the mapping's name: ``options["bf16"] = True``."""
        for node in self.nodes:
            match node:
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key))], value=value
                ):
                    self.entered.setdefault(name, {})[str(key)] = value
                case ast.AugAssign(
                    target=ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)), value=value
                ):
                    self.entered.setdefault(name, {})[str(key)] = value
        others = _other_names(self.nodes)
        self.changed = frozenset(_of_others({*_changed(self.nodes)}, others, set(self.entered)))
        self.attributes = _attributes_set(self.nodes)
        """Attributes and keys that are set of what a name stands for, by that name; under an empty one, any may be."""
        _share(self.attributes, others)
        _collect(tree, self.module, self._decide_early)
        self.given: dict[ast.AST, dict[str, ast.expr]] = dict(_parameters(tree, self.nodes))
        """What parameters of functions hold that are called once."""
        self.scopes: dict[ast.AST, Scope] = {}
        """Of each function and class, the scope of its own names."""
        self.visited = tuple(self._visit(tree, self.module, None, 0))
        """Calls, assignments and the like, each with its scope and the condition under which it happens."""
        if options is not None:
            self._forget_dead(others)

    @cached_property
    def code(self) -> str:
        """All of it without its comments and the texts that stand between its statements."""
        texts = (one for one in self.tree.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        left_out = {id(one) for one in texts}
        return "\n".join(ast.unparse(one) for one in self.tree.body if id(one) not in left_out)

    def _forget_dead(self, others: Mapping[str, set[str]]) -> None:
        """Leave out changes in branches that the script's own options decide against."""
        alive = {id(node) for node, _, _ in self.visited}
        dead = {
            id(inner)
            for node in self.nodes
            if isinstance(node, Visited) and id(node) not in alive
            for inner in ast.walk(node)
        }
        if dead:
            left = [node for node in self.nodes if id(node) not in dead]
            self.changed = frozenset(_of_others({*_changed(left)}, others, set(self.entered)))

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name and attribute the script mentions."""
        found = {node.id for node in self.nodes if isinstance(node, ast.Name)}
        found |= {node.attr for node in self.nodes if isinstance(node, ast.Attribute)}
        return frozenset(self.aliases.get(name, name) for name in found)

    def calls(self) -> tuple[Call, ...]:
        """Return the calls in the order they are written."""
        return self._calls

    @cached_property
    def _calls(self) -> tuple[Call, ...]:
        found = (self._call(node, scope, test) for node, scope, test in self.visited if isinstance(node, ast.Call))
        return tuple(sorted(found, key=lambda call: call.line))

    @cached_property
    def held(self) -> Mapping[str, list[tuple[ast.expr | None, Scope]]]:
        """What each attribute is assigned, and in which scopes, by its dotted name: ``self.peft_config``."""
        found: dict[str, list[tuple[ast.expr | None, Scope]]] = {}
        for node, scope, _ in self.visited:
            targets, value = targets_of(node)
            for target in targets:
                if isinstance(target, ast.Attribute):
                    found.setdefault(dotted_name(target), []).append((value, scope))
        return found

    def assignments(self) -> Iterator[Assignment]:
        """Yield what attributes are assigned: ``model.config.use_cache = False``."""
        kept = {
            id(value): target
            for node, _, _ in self.visited
            for targets, value in [targets_of(node)]
            for target in targets
        }
        for node, scope, condition in self.visited:
            for owner, name, value in assigned_by(node):
                given = self.read(value, scope)
                if condition is not None and given.why is None:
                    given = given._replace(why=f"is set only if {condition}")
                elif id(node) in kept and dotted_name(kept[id(node)]) != dotted_name(owner):
                    given = given._replace(why=f"is set only in {words_of(kept[id(node)])}")
                yield Assignment(owner, name, value, given, condition, node, scope)  # type: ignore[arg-type]  # of these alone

    def parsed(self) -> set[str]:
        """Return the names of objects that a parser of arguments fills.

        A parameter of the script's own functions counts where such an object is given for it.
        """
        found: set[str] = set()
        nodes = [node for node, _, _ in self.visited]
        for node in nodes:
            targets, value = targets_of(node)
            if value is not None and (parses(value) or is_one(value, found)):
                found |= {dotted_name(part) for target in targets for part in getattr(target, "elts", [target])}
        functions = {node.name: node.args.args for node in self.nodes if isinstance(node, ast.FunctionDef)}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                given = zip((parameter.arg for parameter in functions[node.func.id]), node.args, strict=False)
                named = ((word.arg, word.value) for word in node.keywords if word.arg)
                found |= {name for name, value in (*given, *named) if is_one(value, found)}
        return found

    def _visit(
        self, node: ast.AST, scope: Scope, condition: str | None, depth: int
    ) -> Iterator[tuple[Visited, Scope, str | None]]:
        if depth > _MAX_DEPTH * 4:
            return
        if isinstance(node, Visited):
            yield node, scope, condition
        inner = scope
        if isinstance(node, _SCOPES):
            inner = self.scopes[node] = _inner_scope(node, scope, self._decide_early, self.given.get(node, {}))
        if isinstance(node, _BRANCHING):
            yield from self._branches(node, inner, condition, depth)
            return
        if isinstance(node, ast.ExceptHandler | ast.match_case):
            condition = (
                "something is raised" if isinstance(node, ast.ExceptHandler) else f"it is {words_of(node.pattern)}"
            )
        for child in children_of(node):
            yield from self._visit(child, inner, condition, depth + 1)

    def _branches(
        self, node: ast.If | ast.IfExp | ast.While, scope: Scope, condition: str | None, depth: int
    ) -> Iterator[tuple[Visited, Scope, str | None]]:
        yield from self._visit(node.test, scope, condition, depth + 1)
        truth = self._decide(node.test, scope)
        taken = [node.body] if isinstance(node, ast.IfExp) else node.body
        other = [node.orelse] if isinstance(node, ast.IfExp) else node.orelse
        if truth is not None:
            for child in taken if truth else other:
                yield from self._visit(child, scope, condition, depth + 1)
            return
        words = words_of(node.test)
        for branch, test in ((taken, words), (other, f"not {words}")):
            for child in branch:
                yield from self._visit(child, scope, test, depth + 1)

    def _decide_early(self, test: ast.expr, scope: Scope, *, always: bool) -> bool | None:
        """Decide by what stands before it a branch that asks the script's own options, or stands where all happens once."""
        asks = self.options is not None and not self.options.namespaces.isdisjoint(map(dotted_name, ast.walk(test)))
        return self._decide(test, scope) if asks or always else None

    def _decide(self, test: ast.expr, scope: Scope) -> bool | None:
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__":
            return True
        self._now = set()
        try:
            value = self._value(test, scope, 0)
        except NoLiteralError:
            return None
        self.decided |= self._now
        return bool(value)

    def _call(self, node: ast.Call, scope: Scope, condition: str | None) -> Call:
        owner, _, name = dotted_name(node.func).rpartition(".")
        written = self.keywords(node, scope)
        keywords = {key: self.read(value, scope) for key, value in written.items()}
        is_open = any(isinstance(argument, ast.Starred) for argument in node.args)
        for keyword in node.keywords:
            if keyword.arg is not None:
                continue
            is_open = is_open or self.entries(keyword.value, scope) is None
            mapping = keyword.value.id if isinstance(keyword.value, ast.Name) else ""
            for key, value in self.entered.get(mapping, {}).items():
                names = self._names(value, scope)
                keywords[key] = Given(None, value.lineno, f"is set in line {value.lineno} on the way", names)
                written[key] = value
        plain = tuple(self.read(argument, scope) for argument in node.args if not isinstance(argument, ast.Starred))
        name = self.aliases.get(name, name)
        return Call(name, owner, plain, keywords, is_open, node.lineno, condition, node, scope, written)

    def keywords(self, node: ast.Call, scope: Scope) -> dict[str, ast.expr]:
        """Return the expressions that a call gives by name, those of mappings that are written out among them."""
        found: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg is not None:
                found[keyword.arg] = keyword.value
            else:
                found.update(self.entries(keyword.value, scope) or {})
        return found

    def entries(self, node: ast.expr, scope: Scope, depth: int = 0) -> dict[str, ast.expr] | None:
        """Return what a mapping that is written out holds, literals or not; None where it may hold anything."""
        if not self._may_follow(depth):
            return None
        if isinstance(node, ast.Name):
            assigned = None if node.id in self.changed or depth > _MAX_DEPTH else scope.find(node.id)
            return None if assigned is None else self.entries(assigned, scope, depth + 1)
        result: dict[str, ast.expr] = {}
        match node:
            case ast.Dict(keys=keys, values=values):
                pairs = list(zip(keys, values, strict=True))
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words):
                pairs = [(ast.Constant(word.arg) if word.arg else None, word.value) for word in words]
            case _:
                return None
        for key, value in pairs:
            inner = self.entries(value, scope, depth + 1) if key is None else None
            if isinstance(key, ast.Constant):
                inner = {str(key.value): value}
            if inner is None:
                return None
            result.update(inner)
        return result

    def read(self, node: ast.expr, scope: Scope) -> Given:
        """Return the literal an expression is, or why it is none."""
        self._now = set()
        try:
            return Given(self._value(node, scope, 0), node.lineno, options=frozenset(self._now))
        except NoLiteralError:
            names = self._names(node, scope)
            words = words_of(node) if self._left_named > 0 else "an expression"
            return Given(None, node.lineno, f"is {words}, which is no literal", names)

    def passes_on(self, node: ast.expr, key: str, scope: Scope, depth: int = 0) -> bool:
        """Tell whether an expression passes on what is called like a key: ``args.bf16``, ``getattr(torch, args.dtype)``."""
        if not self._may_follow(depth):
            return False
        match node:
            case ast.Attribute(attr=name, value=owner) | ast.Subscript(slice=ast.Constant(value=name), value=owner) if (
                name == key
            ):
                return {(dotted_name(owner), key), (dotted_name(owner), "")}.isdisjoint(self.attributes)
            case ast.Name(id=name):
                assigned = scope.find(name)
                return name == key if assigned is None else self.passes_on(assigned, key, scope, depth + 1)
            case ast.Call(args=given, keywords=words) if dotted_name(node.func) not in {"min", "max"}:
                values = [*given, *(word.value for word in words)]
                said = any(isinstance(one, ast.Constant) and one.value == key for one in values)
                return said or any(self.passes_on(one, key, scope, depth + 1) for one in values)
            case ast.IfExp(body=one, orelse=other):
                return self.passes_on(one, key, scope, depth + 1) and self.passes_on(other, key, scope, depth + 1)
            case ast.BoolOp(op=ast.Or(), values=[first, *_]):
                return self.passes_on(first, key, scope, depth + 1)
        return False

    def _may_follow(self, depth: int) -> bool:
        """Tell whether one more expression is followed, so deep in what one is asked for."""
        self._left = (self._left if depth else _MOST_STEPS) - 1
        self._left_in_all -= 1
        return depth <= _MAX_DEPTH and self._left >= 0 and self._left_in_all >= 0

    def _names(self, node: ast.expr, scope: Scope) -> frozenset[str]:
        """Return the names in an expression, and in what those are assigned; of a script with too many, some."""
        found: set[str] = set()
        nodes: list[ast.expr] = [node]
        for _ in range(_NESTED_NAMES):
            walked = [one for outer in nodes for one in islice(ast.walk(outer), max(self._left_named, 0))]
            self._left_named -= len(walked)
            new = {one.id for one in walked if isinstance(one, ast.Name)} - found
            found |= new
            nodes = [assigned for name in sorted(new) if (assigned := scope.find(name)) is not None]
        return frozenset(found)

    def _value(self, node: ast.expr, scope: Scope, depth: int) -> object:
        if not self._may_follow(depth):
            raise NoLiteralError
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
                return value
            case ast.Name(id=name):
                assigned = None if name in self.changed or name in self.entered else scope.find(name)
                if assigned is None:
                    raise NoLiteralError
                return self._value(assigned, scope, depth + 1)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return [self._value(item, scope, depth + 1) for item in items]
            case ast.Dict():
                return self._mapping(node, scope, depth)
            case ast.Attribute(attr=name) if name in _DTYPES and dotted_name(node).startswith("torch."):
                return {"half": "float16"}.get(name, name)
            case ast.UnaryOp(op=operator, operand=operand):
                return negate(operator, self._value(operand, scope, depth + 1))
            case ast.BinOp(left=left, op=operator, right=right):
                return compute(operator, self._value(left, scope, depth + 1), self._value(right, scope, depth + 1))
            case ast.Call(func=ast.Name(id="dict"), args=[]) if all(word.arg for word in node.keywords):
                return {str(word.arg): self._value(word.value, scope, depth + 1) for word in node.keywords}
            case ast.Call(func=ast.Name(id="int" | "float" | "str" as kind), args=[inner], keywords=[]):
                return convert(kind, self._value(inner, scope, depth + 1))
        return self._chosen(node, scope, depth)

    def _chosen(self, node: ast.expr, scope: Scope, depth: int) -> object:
        """Return what an option of the script's own holds, or an expression that asks literals which it is."""
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if self.options and self._is_option(owner, name):
                self.asked.add(name)
                self._now.add(name)
                return self.options.values[name]
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
                mapping = self._value(inner, scope, depth + 1)
                if isinstance(mapping, dict) and key in mapping:
                    return mapping[key]
            case ast.Call(func=ast.Name(id="len"), args=[inner], keywords=[]):
                measured = self._value(inner, scope, depth + 1)
                if isinstance(measured, str | list | dict):
                    return len(measured)
            case ast.Call(func=ast.Attribute(value=inner, attr="lower"), args=[], keywords=[]):
                text = self._value(inner, scope, depth + 1)
                if isinstance(text, str):
                    return text.lower()
            case ast.BoolOp(op=operator, values=[*others, last]):
                for other in others:
                    value = self._value(other, scope, depth + 1)
                    if bool(value) is isinstance(operator, ast.Or):
                        return value
                return self._value(last, scope, depth + 1)
            case ast.IfExp(test=test, body=one, orelse=other):
                return self._value(one if self._value(test, scope, depth + 1) else other, scope, depth + 1)
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return compare(operator, self._value(left, scope, depth + 1), self._value(right, scope, depth + 1))
        raise NoLiteralError

    def _is_option(self, owner: str, name: str) -> bool:
        """Tell whether an attribute is an option of the script's own that nothing in it sets anew."""
        options = self.options
        if options is None or owner not in options.namespaces or name not in options.values:
            return False
        return {(owner, name), (owner, "")}.isdisjoint(self.attributes)

    def _mapping(self, node: ast.Dict, scope: Scope, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self._value(value, scope, depth + 1)
            if key is not None:
                result[str(self._value(key, scope, depth + 1))] = inner
            elif isinstance(inner, dict):
                result.update(inner)
            else:
                raise NoLiteralError
        return result
