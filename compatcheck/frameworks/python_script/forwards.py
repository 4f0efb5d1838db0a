"""What a script's own calls of its model are given, which is asked before the model's configuration."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement, Unresolved
from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.changes import ASKED_BY_FORWARD
from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of
from compatcheck.frameworks.python_script.objects import Kind, given_to

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from compatcheck.frameworks.python_script.calls import Call, Scope, Script
    from compatcheck.frameworks.python_script.meanings import Findings
    from compatcheck.frameworks.python_script.objects import Objects

_NO_FORWARDS = frozenset({"__init__", "dict", "from_config", "from_pretrained", "generate", "update"})
"""Calls that take such keywords and give no forward that trains: what makes a model or a mapping, or writes text."""
_WITHOUT_GRADIENTS = ("no_grad", "inference_mode")


def take_forwards(found: Findings) -> None:
    """Take what a forward is asked to return: the configuration's field counts where the argument is None.

    Source: transformers 4.36.2 models/llama/modeling_llama.py, 4.57.6 utils/generic.py check_model_inputs(), 5.24.0
    utils/output_capturing.py.
    """
    objects = found.objects
    calls = [call for call in objects.script.calls() if not ASKED_BY_FORWARD.isdisjoint(call.written)]
    if found.is_empty or not calls:
        return
    taken = set[str]()
    for call in _with_gradients(calls, objects):
        for key in ASKED_BY_FORWARD & call.keywords.keys():
            given = call.keywords[key]
            if given.why is None and given.value is None:
                continue
            if key not in taken and call.condition is None:
                found.values.pop(key, None)
                found.lines.pop(key, None)
            taken.add(key)
            found.take(key, given, call)


def find_forwards(found: Findings) -> list[Call]:
    """Return the calls of the model that compute gradients, in the loop or in a function of the script's own."""
    script, kind = found.objects.script, found.objects.kind
    if not any(call.name == "backward" for call in script.calls()):
        return []
    scoring = _scoring(nodes_of(script.tree))
    return [one for one in script.calls() if one.node not in scoring and kind(one.node.func, one.scope) is Kind.MODEL]


def tell_forwards(found: Findings) -> Iterator[Statement]:
    """Say of a loop of the script's own what its forwards are given, who makes the loss, and what lives through backward."""
    script, forwards = found.objects.script, find_forwards(found)
    if not forwards:
        found.unresolved.append(Unresolved(_CASTS, _FORWARD, "is not decided in the loop that is read"))
        return
    found.lines[_FORWARD] = forwards[0].line
    yield Statement("program.read", _FORWARD, value=True)
    kept = {_is_kept(call, script) for call in forwards}
    if True in kept or kept == {False}:
        yield Statement("run.outputs_kept", _FORWARD, value=True in kept)
    yield from _tell_loss(found, forwards)
    if not any(call.is_open for call in forwards):
        if all(_has_no_mask(call) for call in forwards):
            yield Statement("run.attention_mask", _FORWARD, "none")
        if all(_FLATTENED.isdisjoint(call.written) for call in forwards):
            yield Statement("training.padding_free", _FORWARD, value=False)


def _tell_loss(found: Findings, forwards: Sequence[Call]) -> Iterator[Statement]:
    """Say whether a model is given labels, which it needs to return a loss, and what becomes of its logits."""
    script = found.objects.script
    reads_loss = _reads_loss(script, forwards)
    by_name = {"labels" in call.written for call in forwards}
    seen = not any(call.is_open or len(call.positional) > _TOKENS_AND_MASK for call in forwards)
    if reads_loss or by_name == {True}:
        yield Statement("program.passes_labels", _FORWARD, value=True)
    elif by_name == {False} and seen:
        yield Statement("program.passes_labels", _FORWARD, value=False)
        yield Statement("program.computes_loss", _FORWARD, "program")
    casts = _casts_logits(found)
    if casts is not None:
        yield Statement("program.casts_logits", _FORWARD, casts)
        if reads_loss and not casts:
            yield Statement("program.computes_loss", _FORWARD, "model")
    opened = {_CASTS} if casts is None else set[str]()
    if any(not _SKIPS.isdisjoint(call.written) for call in forwards):
        opened.add("program.skips_unlabelled_logits")
    found.unresolved += [Unresolved(fact, _FORWARD, "is decided by the script's own code") for fact in sorted(opened)]


def _reads_loss(script: Script, forwards: Sequence[Call]) -> bool:
    """Tell whether the script takes the loss out of what its forwards returned, by that name or as the first of a tuple."""
    made = {id(call.node) for call in forwards}
    names = set[str]()
    for node, _, _ in script.visited:
        targets, value = targets_of(node)
        if id(value) in made:
            names.update(map(dotted_name, targets))
    read = [
        node.value for node in script.nodes if isinstance(node, ast.Attribute | ast.Subscript) and _gives_loss(node)
    ]
    return any(id(one) in made or dotted_name(one) in names for one in read)


def _casts_logits(found: Findings) -> bool | None:
    """Tell whether the loop makes float32 of logits; None where it may, or hands them to what is not read."""
    script, objects = found.objects.script, found.objects
    if _LIFTS.search(script.code):
        return True
    if "logits" not in script.code:
        return False
    handed = [call for call in script.calls() if any("logits" in dotted_name(one) for one in given_to(call.node))]
    known = all(
        isinstance(call.node.func, ast.Attribute) or (objects.path(call.node.func) or "").startswith("torch.")
        for call in handed
    )
    return False if known and _CONVERTS.isdisjoint(script.names) else None


_CASTS = "program.casts_logits"
_TOKENS_AND_MASK = 2
"""Places of a forward that are known in most models."""
_LIFTS = re.compile(r"logits(?:\[[^\]]*\])*(?:\.contiguous\(\))?\.(?:float\(\)|to\((?:dtype=)?torch\.float(?:32)?\))")
_CONVERTS = frozenset({"float", "float32", "type"})
_SKIPS = frozenset({"logits_to_keep", "num_logits_to_keep"})
_FORWARD = "(forward of the loop)"
_FLATTENED = frozenset({"position_ids", "cu_seq_lens_q", "cu_seqlens", "seq_idx"})
"""What a forward of several sequences in one row is given, by which attention tells them apart."""


def _has_no_mask(call: Call) -> bool:
    """Tell whether a forward that is seen whole is given tokens and no mask, which is the second argument of most models."""
    mask = call.keywords.get("attention_mask")
    return len(call.positional) <= 1 and (mask is None or (mask.why is None and mask.value is None))


def _is_kept(call: Call, script: Script) -> bool | None:
    """Tell whether a name holds what a forward returned, or its logits, where the next backward begins; None if not plain."""
    ends = (_end(one.node) for one in script.calls() if one.name == "backward" and one.scope is call.scope)
    end = min((one for one in ends if one >= _end(call.node)), default=None)
    if end is None:
        return None
    holders: dict[str, bool | None] = {}
    for node in sorted(_statements(call.scope, script), key=_end):
        if not _end(call.node) <= _end(node) < end:
            continue
        if isinstance(node, ast.Delete):
            for name in map(dotted_name, node.targets):
                holders.pop(name, None)
        targets, value = targets_of(node)
        for target, one in _pairs(targets, value):
            name = dotted_name(target)
            if _holds(one, call.node, holders):
                holders[name] = True
            elif name in holders:
                if _gives_loss(one) or name not in {word.id for word in ast.walk(one) if isinstance(word, ast.Name)}:
                    del holders[name]
                else:
                    holders[name] = None  # a view of it, or a copy
    if True in holders.values():
        return True
    return None if holders else False


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _statements(scope: Scope, script: Script) -> Iterator[ast.stmt]:
    """Yield the assignments of a scope, and what is deleted anywhere in its lines."""
    own = [node for node, one, _ in script.visited if one is scope and isinstance(node, ast.Assign | ast.AnnAssign)]
    yield from own
    yield from (node for node in script.nodes if isinstance(node, ast.Delete))


def _pairs(targets: Iterable[ast.expr], value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is assigned to each name of a statement."""
    for target in targets if value is not None else ():
        parts, values = getattr(target, "elts", None), getattr(value, "elts", None)
        if parts is not None and values is not None and len(parts) == len(values):
            yield from zip(parts, values, strict=True)
        elif value is not None:
            yield from ((part, value) for part in parts or [target])


def _holds(node: ast.expr, forward: ast.Call, holders: Container[str]) -> bool:
    """Tell whether an expression is what a forward returned, its logits, or more of it than the loss."""
    match node:
        case ast.Attribute(value=inner, attr="logits") | ast.Subscript(value=inner, slice=ast.Slice()):
            return _holds(inner, forward, holders)
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return key not in {0, "loss"} and _holds(inner, forward, holders)
    return node is forward or (isinstance(node, ast.Name) and node.id in holders)


def _gives_loss(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr="loss") | ast.Subscript(slice=ast.Constant(value=0 | "loss")):
            return True
    return False


def _with_gradients(calls: Iterable[Call], objects: Objects) -> Iterator[Call]:
    """Yield the calls that may be a forward in training."""
    scoring = _scoring(nodes_of(objects.script.tree))
    for call in calls:
        is_own = isinstance(call.node.func, ast.Name) and call.name in objects.functions
        makes = call.name[:1].isupper() or call.name in objects.known or call.name in _NO_FORWARDS
        behind = call.line > objects.trained.get(call.scope, call.line)
        if not (is_own or makes or behind or call.node in scoring):
            yield call


def _scoring(nodes: Iterable[ast.AST]) -> frozenset[ast.AST]:
    """Return what stands where no gradients are computed: ``with torch.no_grad():``, ``@torch.inference_mode()``."""
    blocks: list[ast.AST] = []
    for node in nodes:
        asked: list[ast.expr] = []
        match node:
            case ast.With(items=items):
                asked = [one.context_expr for one in items]
            case ast.FunctionDef(decorator_list=asked):
                pass
        names = (dotted_name(one.func if isinstance(one, ast.Call) else one) for one in asked)
        if any(name.rpartition(".")[2] in _WITHOUT_GRADIENTS for name in names):
            blocks.append(node)
    return frozenset(inner for block in blocks for inner in nodes_of(block))
