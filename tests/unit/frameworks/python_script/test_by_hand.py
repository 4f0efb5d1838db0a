"""What a script gives back by hand counts where it surely does, and where an engine ends or a step is taken."""

from __future__ import annotations

import ast

import pytest

from compatcheck.frameworks.python_script.by_hand import (
    compiles_flex_attention,
    find_given_back,
    freezes_rank_numbers,
    scores_between,
    stops_no_recomputation_early,
)

HOOKS = "engine.module_forward_pre_hook.remove(); engine.module_forward_post_hook.remove()"


@pytest.mark.parametrize(
    ("clear", "words"),
    [
        ("engine.destroy(); FWD_MODULE_STACK.clear()", {"engine", "module_stack"}),
        (
            "engine.destroy(); deepspeed.runtime.zero.parameter_offload.FWD_MODULE_STACK.clear()",
            {"engine", "module_stack"},
        ),
        ("engine.destroy()\n    if tidy: FWD_MODULE_STACK.clear()", {"engine"}),
        (f"engine.destroy(); {HOOKS}", {"engine", "engine_hooks"}),
        ("engine.destroy(); engine.module_forward_pre_hook.remove()", {"engine"}),
        ("engine.destroy()\n    for p in model.parameters(): p._hp_grad = None", {"engine", "float32_gradients"}),
        ("engine.destroy()\n    for p in model.parameters(): p._hp_grad = p.grad", {"engine"}),
        ("del model\n    layer._warn_once_about_module_hooks.cache_clear()", {"layer_cache"}),
        ("layer._warn_once_about_module_hooks.cache_clear()", set()),
        ("accelerator.free_memory(); engine.destroy()", {"engine"}),
        ("pass", set()),
    ],
)
def test_what_is_given_back_where_an_engine_ends(clear: str, words: set[str]) -> None:
    text = f"for trial in range(3):\n    engine, *_ = deepspeed.initialize(model=m)\n    {clear}\n"
    assert set(find_given_back(ast.parse(text))) == words


CLEARS = "engine.optimizer.clear_lp_grads(set_to_none=True)"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (f"{CLEARS}; engine.backward(loss); engine.step()", {"16_bit_gradients"}),
        (f"loss = m(x); {CLEARS}; engine.backward(loss)", {"16_bit_gradients"}),
        (f"engine.backward(loss); {CLEARS}", set()),
        ("engine.optimizer.clear_lp_grads(); engine.backward(loss)", set()),
        (f"{CLEARS}; engine.backward(a); engine.backward(b)", set()),
        ("loss.backward(); o.step(); gc.collect()", {"garbage"}),
        ("loss.backward()\n    if n % 100: gc.collect()", set()),
    ],
)
def test_what_is_given_back_in_each_step(step: str, words: set[str]) -> None:
    assert set(find_given_back(ast.parse(f"for x in data:\n    {step}\n"))) == words


FORWARD, SCORES, END = "loss = e(x).loss", "with torch.no_grad():\n        old = e(x)", "e.backward(loss)"


@pytest.mark.parametrize(
    ("steps", "between"),
    [
        ((FORWARD, SCORES, END), True),
        ((SCORES, FORWARD, END), False),
        ((FORWARD, END), False),
        (("e.backward(e(x).loss)",), False),
        ((FORWARD, "score(e, x)", END, "y = e(x)"), None),
        ((FORWARD, "old = score(e, x)", END), None),
        ((FORWARD, "with torch.no_grad():\n        old = e.module(x)", END), None),
        (("loss = f(x)", END), None),
        ((FORWARD, "loss.backward()"), None),
    ],
)
def test_a_forward_between_another_and_its_backward(steps: tuple[str, ...], *, between: bool | None) -> None:
    text = "for x in data:\n    " + "\n    ".join(steps) + "\n"
    assert scores_between(ast.parse(text)) is between


def test_flex_attention_is_compiled_by_its_name() -> None:
    assert compiles_flex_attention(ast.parse("attend = torch.compile(flex_attention, dynamic=False)"))
    assert not compiles_flex_attention(ast.parse("model = torch.compile(model)\nflex_attention(q, k, v)"))


def test_rank_numbers_are_frozen_in_a_loop_over_named_parameters() -> None:
    loop = "for name, p in model.named_parameters():\n    p.requires_grad_(p.requires_grad and 'ranknum' not in name)\n"
    branch = "for name, p in model.named_parameters():\n    if 'ranknum' in name:\n        p.requires_grad = False\n"
    assert all(freezes_rank_numbers(ast.parse(text)) for text in (loop, branch))
    assert not freezes_rank_numbers(ast.parse(loop.replace("ranknum", "lora_A")))


def test_recomputation_to_the_end_is_asked_for_everywhere() -> None:
    off, on = (f"with set_checkpoint_early_stop({value}):\n    m(x)\n" for value in (False, True))
    assert stops_no_recomputation_early(ast.parse(off))
    assert not any(stops_no_recomputation_early(ast.parse(text)) for text in (on, off + on, "m(x)\n"))
