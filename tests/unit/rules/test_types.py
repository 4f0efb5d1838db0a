"""A slip in an expression is found before the rule ships."""

from __future__ import annotations

import pytest

from compatcheck.rules.types import BOOL, NUMBER, check_expression


@pytest.mark.parametrize(
    "text",
    [
        "training.zero_stage == 3 and not training.use_reentrant",
        "training.peft is None or training.peft in {'lora', 'dora'}",
        "training.lora_target_modules in {'all-linear'}",
        "'deepspeed' in environment.duplicated",
        "version_in(runtime.cudnn, '>=9.1,<9.2')",
        "installed('flash-attn', '>=2') and installed('apex', 'present')",
        "env('NCCL_CUMEM_ENABLE') == '1'",
        "declared(training.zero_stage) and declared('training.peft')",
        "table('sdpa-support', model.model_type) == 'yes'",
        "model.hidden_size * 2 > 10 if training.packing else training.compile",
        "training.param_dtype == 'bfloat16'",
        "training.fsdp_version is None",
        "environment.duplicated",
    ],
)
def test_well_typed_conditions_pass(text: str) -> None:
    assert check_expression(text, BOOL) == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("training.zero_stgae == 3", "did you mean 'training.zero_stage'"),
        ("nothing.like.this", "unknown fact"),
        ("training.zero_stage", "expected a bool"),
        ("training.zero_stage == '3'", "compares"),
        ("training.zero_stage in {'3'}", "compares"),
        ("training.peft in {1, 2}", "compares"),
        ("training.zero_stage == 4", "never 4"),
        ("training.zero_stage in (3, 4)", "never 4"),
        ("training.zero_stage is None", "never None"),
        ("training.param_dtype == 'bf16'", "use 'bfloat16'"),
        ("training.peft == 'loar'", "never 'loar'"),
        ("runtime.cudnn >= '9.1'", "use version_in"),
        ("training.framework < 'trl'", "orders"),
        ("training.zero_stage in training.peft", "needs a set"),
        ("not training.zero_stage", "expected a bool"),
        ("training.zero_stage and training.packing", "expected a bool"),
        ("-training.peft == 1", "expected a number"),
        ("training.peft + 1 == 1", "expected a number"),
        ("declared('training.zero')", "not a fact's name"),
        ("dtype_bytes(training.zero_stage) == 2", "expected a dtype"),
        ("installed('flash_attn', '>=2')", "flash-attn"),
        ("installed('flash-attn', '2.0')", "not a version range"),
        ("version_in(runtime.cudnn, '9')", "not a version range"),
        ("version_in(training.zero_stage, '>=9')", "expected a version"),
        ("ceil('a') == 1", "expected a number"),
        ("min(1, training.peft) == 1", "expected a number"),
        ("not a ( b", "not an expression"),
    ],
)
def test_slips_are_named(text: str, part: str) -> None:
    problems = check_expression(text, BOOL)
    assert problems, text
    assert any(part in problem for problem in problems), problems


def test_a_size_is_a_number() -> None:
    assert check_expression("dtype_bytes(training.param_dtype) * model.parameters", NUMBER) == []
    assert check_expression("pow2_ceil(max(1, model.hidden_size)) / 2", NUMBER) == []
    assert check_expression("training.packing", NUMBER) == ["`training.packing` is a bool, expected a number"]
    assert check_expression("'a' if training.packing else 1", NUMBER) != []
