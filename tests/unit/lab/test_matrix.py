"""Which runs a text of lines stands for."""

from itertools import combinations, product

import pytest

from compatcheck.lab.matrix import choose_rows, read_rows
from compatcheck.lab.probes.probe import find_probe

TEXT = """# a remark
trl trainer=dpo batch=4,1 dtype=a,b adapter=none,lora options.bf16=,false
trl trainer=dpo batch=4 dtype=a adapter=none
accelerate trainer=hf options=fsdp.version:2 options.mixed_precision=no,bf16 options.steps=2
"""


def test_every_three_values_of_a_line_occur_together_in_fewer_runs_than_there_are():
    rows = [row for row in read_rows(TEXT, "trl") if len(row) > 3]
    axes = {"batch": (4, 1), "dtype": ("a", "b"), "adapter": ("none", "lora"), "options": (None, "bf16:false")}
    for names in combinations(axes, 3):
        wanted = set(product(*(axes[name] for name in names)))
        assert {tuple(row.get(name) for name in names) for row in rows} == wanted
    assert len(rows) < 2**4


def test_two_together_are_fewer():
    assert len(read_rows(TEXT, "trl", together=2)) < len(read_rows(TEXT, "trl"))


def test_an_option_is_an_axis_of_its_own_behind_those_told_as_one_text():
    assert [row["options"] for row in read_rows(TEXT, "accelerate")] == [
        "fsdp.version:2+mixed_precision:no+steps:2",
        "fsdp.version:2+mixed_precision:bf16+steps:2",
    ]


def test_values_that_alone_are_wanted_narrow_an_axis_and_set_what_no_line_names():
    rows = read_rows(TEXT, "trl", {"dtype": ["b"], "steps": [5]})
    assert {(row["dtype"], row["steps"]) for row in rows} == {("b", 5)}
    assert read_rows(TEXT, "trl", {"trainer": ["sft"]}) == []


def test_a_run_that_two_lines_have_is_there_once():
    assert read_rows("trl a=1,2\ntrl a=2,3\n", "trl") == [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize(
    ("package", "most"), [("trl", 70), ("transformers", 50), ("peft", 80), ("accelerate", 25), ("deepspeed", 45)]
)
def test_the_runs_that_watch_configures_are_of_the_package_and_accepted(package, most):
    probe = find_probe("configured_run")
    rows = choose_rows(probe, package, {})
    assert 0 < len(rows) <= most
    for row in rows:
        assert package in probe.needs(probe.complete(row))


@pytest.mark.parametrize(
    ("package", "settings"),
    [
        ("accelerate", {"dtype": "bfloat16", "adapter": "none", "options": "mixed_precision:bf16"}),
        ("deepspeed", {"optimized": "all", "frozen": "embed", "options": "zero_optimization.stage:0"}),
        ("peft", {"dtype": "bfloat16", "adapter": "lokr", "options": "bf16:true"}),
        ("trl", {"trainer": "grpo", "options": "beta:0.04+gradient_accumulation_steps:4"}),
        ("transformers", {"model_type": "qwen3_moe", "quantization": "BitsAndBytesConfig+load_in_8bit:true"}),
    ],
)
def test_three_settings_that_a_regression_wanted_at_once_are_in_one_run(package, settings):
    rows = choose_rows(find_probe("configured_run"), package, {})
    assert any(all(value in row.get(name, "") for name, value in settings.items()) for row in rows)


def test_a_probe_without_lines_has_its_matrix():
    probe = find_probe("whole_run")
    axes = {"trainer": ["sft"]}
    assert choose_rows(probe, "trl", axes) == probe.matrix("trl", axes)
