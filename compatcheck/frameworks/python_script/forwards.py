"""What a script's own calls of its model are given, which is asked before the model's configuration."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.changes import ASKED_BY_FORWARD
from compatcheck.frameworks.python_script.nodes import dotted_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.frameworks.python_script.calls import Call
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
