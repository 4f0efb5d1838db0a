"""What a script does by hand about what rules speak of: it gives back, wraps, freezes or compiles by calls of its own."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement
from compatcheck.core.python_tree import nodes_of
from compatcheck.frameworks.python_script.nodes import dotted_name, targets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from compatcheck.frameworks.python_script.calls import Script

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


_WRAPS = frozenset({"checkpoint_wrapper", "apply_activation_checkpointing"})
"""torch's functions that wrap modules in checkpoints (torch 2.9.0 distributed/algorithms/_checkpoint/checkpoint_wrapper.py)."""


def tell_by_hand(script: Script, *, gives_back: bool) -> Iterator[Statement]:
    """Say what a script does by hand.

    Args:
        script: it.
        gives_back: whether it builds again what it gives up, or takes steps of its own.
    """
    tree = script.tree
    words = tuple(find_given_back(tree)) if gives_back else ()
    if words:
        yield Statement("run.frees_by_hand", "(given back by hand)", words)
    if freezes_rank_numbers(tree):
        yield Statement("run.rank_numbers_frozen", "ranknum", value=True)
    if stops_no_recomputation_early(tree):
        yield Statement("program.stops_recomputation_early", "set_checkpoint_early_stop", value=False)
    if compiles_flex_attention(tree):
        yield Statement("run.flex_attention_compiled", "torch.compile", value=True)
    between = scores_between(tree)
    if between is not None:
        yield Statement("run.no_grad_forward_between", "no_grad", between)
    if "channels_last_3d" in script.names:
        yield Statement("run.channels_last_3d", "channels_last_3d", value=True)
    if not _WRAPS.isdisjoint(script.names):
        yield Statement("run.checkpoint_wrappers", "checkpoint_wrapper", value=True)
    loads_by_peft = any(call.name == "from_pretrained" and call.owner.endswith("PeftModel") for call in script.calls())
    if loads_by_peft and "load_adapter" not in script.names:
        yield Statement("run.loads_adapter_by_transformers", "PeftModel", value=False)


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


def compiles_flex_attention(tree: ast.Module) -> bool:
    """Tell whether the name of flex_attention stands for what torch.compile makes of it, or is called as that."""
    return any(
        isinstance(node, ast.Call)
        and _is_call(node, "compile")
        and any(dotted_name(one).rpartition(".")[2] == "flex_attention" for one in node.args[:1])
        for node in nodes_of(tree)
    )


def scores_between(tree: ast.Module) -> bool | None:
    """Tell whether an engine runs a forward under ``no_grad`` between a forward and its backward pass.

    None where that is not plain: where something else than the steps of a loop may call it, or none calls ``engine.backward``.
    """
    told: set[bool] = set()
    for loop in nodes_of(tree):
        steps = loop.body if isinstance(loop, ast.For) else []
        ends = [(place, name) for place, step in enumerate(steps) for name in _ended_by(step)]
        for end, name in ends:
            calls = [place for place, step in enumerate(steps[: end + 1]) if _calls(step, name)]
            scores = [place for place in calls if _is_without_gradients(steps[place])]
            forwards = [place for place in calls if place not in scores]
            if len(ends) != 1 or not forwards or len(calls) != _calls(tree, name) or _is_handed_on(tree, name):
                return None
            told.add(any(forwards[0] < place < end for place in scores))
    return told.pop() if len(told) == 1 else None


def _ended_by(step: ast.stmt) -> Iterator[str]:
    """Yield the name of the engine whose backward pass a statement is."""
    if isinstance(step, ast.Expr) and _is_call(step.value, "backward"):
        owner = (
            step.value.func.value
            if isinstance(step.value, ast.Call) and isinstance(step.value.func, ast.Attribute)
            else None
        )
        if isinstance(owner, ast.Name):
            yield owner.id


_OF_ENGINE = frozenset({"backward", "step", "train", "eval", "zero_grad", "destroy"})
"""Attributes of an engine that are no way to a forward."""


def _is_handed_on(tree: ast.Module, engine: str) -> bool:
    """Tell whether anything but its own calls may run what an engine is around: a function it is given to, or its model."""
    plain = {
        node.func if isinstance(node, ast.Call) else node.value
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) or (isinstance(node, ast.Attribute) and node.attr in _OF_ENGINE)
    }
    uses = (one for one in nodes_of(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    models = (
        value
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and _is_call(node, "initialize")
        for value in [*node.args[:2], *(word.value for word in node.keywords if word.arg == "model")]
    )
    return any(one.id == engine and one not in plain for one in uses) or any(
        isinstance(one, ast.Name) and _calls(tree, one.id) for one in models
    )


def _calls(node: ast.AST, name: str) -> int:
    return sum(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == name for one in ast.walk(node)
    )


def _is_without_gradients(step: ast.stmt) -> bool:
    asked = [one.context_expr for one in step.items] if isinstance(step, ast.With) else []
    return any(_is_call(one, name) for one in asked for name in ("no_grad", "inference_mode"))


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
