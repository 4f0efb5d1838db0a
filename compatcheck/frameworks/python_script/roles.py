"""What the code beside a command builds: forks of verl leave the reference out, tie it to other keys, or train other models."""

from __future__ import annotations

import ast
from itertools import islice
from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.python_script.literals import NoLiteralError, compare
from compatcheck.frameworks.python_script.nodes import dotted_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compatcheck.frameworks.launch.values import Argument

_FACT = "training.reference_model"
_KNOWN = frozenset({"actor_rollout_ref.actor.use_kl_loss", "algorithm.use_kl_in_reward"})
"""Keys that verl itself asks from 0.4 on, where releases tell the rest."""
_MOST_TRAINERS = 4
"""Modules of trainers that a program imports and that are looked at."""
_ELSEWHERE = {"ActorRolloutRef", "add_ref_policy_worker", "need_reference_policy"}
"""Names by which verl itself decides from 0.5.1 on, in functions of its own and in one worker for both."""


class _Found(NamedTuple):
    roles: Mapping[str, str]
    """Worker by the role that it is given for: ``ActorRollout``."""
    conditions: tuple[ast.expr, ...]
    """All of which the reference takes."""


def settle_by_code(document: Document, program: str, read: Callable[[str], tuple[str, str] | None]) -> Document:
    """State what the code beside a command builds, where it says otherwise than its keys do.

    Args:
        document: of a command that starts it, with what lies beneath.
        program: file that it starts.
        read: finds such a file and returns its path and its text; None where it is not there.
    """
    found = _find_roles(program, read)
    if found is None or "ActorRollout" not in found.roles:
        return document
    document = _leave_to_worker(document, program, found.roles["ActorRollout"])
    key, why = f"({program})", None
    built: bool | None = "RefPolicy" in found.roles
    options = {**{key: one for file in document.beneath for key, one in file.options.items()}, **document.options}
    for condition in found.conditions if built else ():
        holds = _decide(condition, options)
        asked = frozenset(_keys(condition))
        if asked <= _KNOWN and (holds is None or any(one.fact == _FACT for one in document.statements)):
            return document
        if holds is None:
            why = f"{program} builds it by {', '.join(sorted(asked))}"
        built = built and holds if holds is not False else False
    kept = tuple(one for one in document.statements if one.fact != _FACT and one.key != "(no KL term)")
    if built is None:
        return document._replace(statements=kept, unresolved=(*document.unresolved, Unresolved(_FACT, key, str(why))))
    return document._replace(statements=(*kept, Statement(_FACT, key, built)))


def _leave_to_worker(document: Document, program: str, worker: str) -> Document:
    """Leave open what a step takes of a model that a worker of its own makes by keys of its own: actions, images, chunks."""
    own = next((key for key, _ in document.unread if key.startswith("actor_rollout_ref.model.")), None)
    if own is None or not worker or worker.removeprefix("Async") == "ActorRolloutRefWorker":
        return document
    why = f"{program} trains it with {worker}, a class of its own, by {own}"
    length = Unresolved("training.sequence_length", f"({program})", why)
    return document._replace(unresolved=(*document.unresolved, length))


def _find_roles(program: str, read: Callable[[str], tuple[str, str] | None]) -> _Found | None:
    """Find for which roles a program gives workers, and under which conditions its trainer takes the reference."""
    there = read(program)
    if there is None:
        return None
    tree = parse_script(there[1], there[0])
    if _ELSEWHERE & {dotted_name(node).rpartition(".")[2] for node in ast.walk(tree)}:
        return None
    given = list(_given(tree, ()))
    roles = {role: worker for role, worker, _ in reversed(given)}
    shortest = min((tests for role, _, tests in given if role == "RefPolicy"), key=len, default=())
    trainers = (
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and any("Trainer" in name.name for name in node.names)
    )
    for module in islice(dict.fromkeys(trainers), _MOST_TRAINERS):
        beside = read(f"{module.replace('.', '/')}.py") if module else None
        if beside is not None:
            shortest += tuple(_of_trainer(parse_script(beside[1], beside[0])))
    return _Found(roles, shortest)


def _given(node: ast.AST, tests: tuple[ast.expr, ...]) -> Iterator[tuple[str, str, tuple[ast.expr, ...]]]:
    """Yield each role that is a key of a mapping, with the class of its worker, if it says one, and the conditions around it."""
    taken = {id(one) for one in node.body} if isinstance(node, ast.If) else set()
    for child in ast.iter_child_nodes(node):
        around = (*tests, node.test) if isinstance(node, ast.If) and id(child) in taken else tests
        pairs: list[tuple[ast.expr | None, ast.expr | None]] = []
        if isinstance(child, ast.Dict):
            pairs += zip(child.keys, child.values, strict=True)
        elif isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Subscript):
            pairs += [(child.targets[0].slice, child.value)]
        for key, value in pairs:
            owner, _, role = dotted_name(key).rpartition(".") if key is not None else ("", "", "")
            if owner.rpartition(".")[2] == "Role":
                worker = dotted_name(value.args[0]) if isinstance(value, ast.Call) and value.args else ""
                yield role, worker if worker.endswith("Worker") else "", around
        yield from _given(child, around)


def _of_trainer(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield what a trainer asks beside there being a worker: ``Role.RefPolicy in role_worker_mapping and …``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and dotted_name(node.targets[0]) == "self.use_reference_policy":
            parts = node.value.values if isinstance(node.value, ast.BoolOp) else [node.value]
            for one in parts:
                if isinstance(one, ast.Constant):  # the branches around it ask what nobody reads
                    yield ast.Name("unread")
                elif "Role.RefPolicy" not in ast.unparse(one):
                    yield one


def _key(node: ast.AST) -> str | None:
    """Return the key that an expression reads: ``config.algorithm.kl_ctrl.kl_coef``."""
    _, config, key = f".{dotted_name(node)}".rpartition(".config.")
    return key if config else None


def _keys(node: ast.AST) -> Iterator[str]:
    """Yield the keys that an expression reads, each whole."""
    key = _key(node)
    if key is not None:
        yield key
        return
    for child in ast.iter_child_nodes(node):
        yield from _keys(child)


def _decide(node: ast.expr, options: Mapping[str, Argument]) -> bool | None:
    """Tell whether a condition on the configuration holds; None where nobody can tell."""
    try:
        value = _value(node, options)
    except NoLiteralError:
        return None
    return bool(value)


def _value(node: ast.expr, options: Mapping[str, Argument]) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BoolOp):
        values = [_decide(one, options) for one in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in values:
            return decisive
        if None in values:
            raise NoLiteralError
        return not decisive
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, options)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return compare(node.ops[0], _value(node.left, options), _value(node.comparators[0], options))
    argument = options.get(_key(node) or "")
    if argument is None or argument.why is not None:
        raise NoLiteralError
    return argument.value
