"""What a script gives back by its own calls, where it gives up an engine or a model, and in each of its steps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_AT_THE_END = {
    "engine": ("destroy",),
    "module_stack": ("FWD_MODULE_STACK.clear",),
    "engine_hooks": ("module_forward_pre_hook.remove", "module_forward_post_hook.remove"),
    "layer_cache": ("_warn_once_about_module_hooks.cache_clear",),
}
"""What goes where an engine or a model is given up, and by which calls, all of them.

Source: deepspeed 0.19.8 runtime/engine.py and runtime/zero/parameter_offload.py, peft 0.21.2 tuners/shira/layer.py.
"""
_GIVE_UP = frozenset({"destroy", "free_memory", "clear"})


def find_given_back(tree: ast.Module) -> Iterator[str]:
    """Yield each word of ``run.frees_by_hand`` that a loop or function does without a condition."""
    bodies = [
        list(_straight(node.body))
        for node in nodes_of(tree)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef)
    ]
    ends = [body for body in bodies if any(map(_gives_up, body))]
    for word, calls in _AT_THE_END.items():
        if any(all(any(_is_call(node, call) for node in body) for call in calls) for body in ends):
            yield word
    if any(any(map(_drops_float32_gradients, body)) for body in ends):
        yield "float32_gradients"
    steps = [body for body in bodies if any(_is_call(node, "backward") for node in body)]
    if steps and all(_stands_before_backward(body, _drops_16_bit_gradients) for body in steps):
        yield "16_bit_gradients"
    if any(any(_is_call(node, "gc.collect") for node in body) for body in steps):
        yield "garbage"


def freezes_rank_numbers(tree: ast.Module) -> bool:
    """Tell whether a loop over named parameters sets ``requires_grad`` by whether the name has ``ranknum`` in it."""
    return any(
        any(isinstance(one, ast.Constant) and one.value == "ranknum" for one in ast.walk(node))
        and any(isinstance(one, ast.Attribute) and one.attr.startswith("requires_grad") for one in ast.walk(node))
        for node in nodes_of(tree)
        if isinstance(node, ast.For) and _is_call(node.iter, "named_parameters")
    )


def stops_no_recomputation_early(tree: ast.Module) -> bool:
    """Tell whether all that asks torch about it has checkpointed regions be computed again to their end."""
    asked = [node for node in nodes_of(tree) if _is_call(node, "set_checkpoint_early_stop")]
    return bool(asked) and all(_first_argument(node) is False for node in asked)


def _straight(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what a body does as statements, in ``try`` and ``with`` too, and none of it under a condition."""
    for statement in body:
        if isinstance(statement, ast.Expr):
            yield statement.value
        elif isinstance(statement, ast.Delete | ast.Assign | ast.For):
            yield statement
        elif isinstance(statement, ast.With):
            yield from _straight(statement.body)
        elif isinstance(statement, ast.Try):
            yield from _straight([*statement.body, *statement.finalbody])


def _is_call(node: ast.AST, ends: str) -> bool:
    return isinstance(node, ast.Call) and f".{dotted_name(node.func)}".endswith(f".{ends}")


def _gives_up(node: ast.AST) -> bool:
    return isinstance(node, ast.Delete) or any(_is_call(node, name) for name in _GIVE_UP)


def _first_argument(node: ast.AST) -> object:
    values = [*node.args, *(word.value for word in node.keywords)] if isinstance(node, ast.Call) else []
    return values[0].value if values and isinstance(values[0], ast.Constant) else None


def _drops_16_bit_gradients(node: ast.AST) -> bool:
    return _is_call(node, "clear_lp_grads") and _first_argument(node) is True


def _stands_before_backward(body: Iterable[ast.AST], is_it: Callable[[ast.AST], bool]) -> bool:
    """Tell whether each backward pass of a body has it in front of it, with no other pass between."""
    ready = False
    for node in body:
        if is_it(node):
            ready = True
        elif _is_call(node, "backward"):
            if not ready:
                return False
            ready = False
    return True


def _drops_float32_gradients(node: ast.AST) -> bool:
    """Tell whether a loop over parameters takes the BF16 optimizer's gradients off them: ``p._hp_grad = None``."""
    return isinstance(node, ast.For) and any(
        isinstance(target, ast.Attribute)
        and target.attr == "_hp_grad"
        and isinstance(value, ast.Constant)
        and value.value is None
        for targets, value in map(targets_of, node.body)
        for target in targets
    )
