"""The arithmetic of the comparison with other estimators, and how reports are read for it."""

from __future__ import annotations

import pytest

from benchmarks.peers.reading import QWEN_GIGABYTE, read_run
from benchmarks.peers.runs import Shape, count_lora
from benchmarks.peers.scores import (
    Scored,
    choose_like,
    count_closer,
    is_right,
    judge,
    medians_by_group,
    relative_error,
    restrict,
    summarize,
)

GIB = 2**30
LLAMA_8B = Shape("llama", 4096, 32, 32, 8, 128, 14336, 128256, tied=False)


def score(
    case: str = "a",
    error: float | None = None,
    *,
    group: str = "g",
    outcome: str = "fits",
    verdict: str | None = "fits",
) -> Scored:
    return Scored(case, group, error, error, is_right(verdict, outcome), outcome, verdict)


def test_like_is_compared_with_like_where_a_tool_tells() -> None:
    prediction = {"allocated": 1, "reserved": 2, "device": 3}
    assert [choose_like(prediction, kind) for kind in ("allocated", "reserved", "device")] == [1, 2, 3]


def test_one_figure_is_held_against_every_kind() -> None:
    assert {choose_like({"allocated": 7}, kind) for kind in ("allocated", "reserved", "device")} == {7}
    assert choose_like({"allocated": None}, "reserved") is None


def test_a_prediction_of_zero_is_a_prediction() -> None:
    assert choose_like({"device": 0, "reserved": 5}, "device") == 0


def test_error_is_signed_and_zero_inside_a_range() -> None:
    assert relative_error(90, 100, 100) == pytest.approx(-0.1)
    assert relative_error(110, 100, 100) == pytest.approx(0.1)
    assert relative_error(75, 72, 80) == 0
    assert relative_error(84, 72, 80) == pytest.approx(4 / 76)


def test_a_total_is_judged_by_the_memory_of_the_card() -> None:
    assert judge(80, 80) == "fits"
    assert judge(81, 80) == "does_not_fit"
    assert judge(None, 80) is None


@pytest.mark.parametrize(
    ("verdict", "outcome", "right"),
    [
        ("fits", "fits", True),
        ("marginal", "fits", True),
        ("does_not_fit", "fits", False),
        ("fits", "oom", False),
        ("marginal", "oom", True),
        ("does_not_fit", "oom", True),
        ("unknown", "oom", None),
        (None, "fits", None),
    ],
)
def test_verdicts(verdict: str | None, outcome: str, *, right: bool | None) -> None:
    assert is_right(verdict, outcome) is right


def test_summary_tells_false_alarms_from_what_was_missed() -> None:
    total = summarize(
        [
            score("a", 0.05),
            score("b", -0.3, verdict="does_not_fit"),
            score("c", outcome="oom"),
            score("d", outcome="oom", verdict="marginal"),
            score("e", 0.1, verdict="unknown"),
        ]
    )
    assert (total.expressible, total.peaks, total.verdicts, total.right) == (5, 3, 4, 2)
    assert (total.false_alarms, total.missed, total.seen_oom, total.marginal) == (1, 1, 2, 1)
    assert (total.median_error, total.within_ten_percent) == (0.1, 2)


def test_a_source_with_many_rows_does_not_decide_the_median_of_sources() -> None:
    many = [score(str(number), 0.5, group="many") for number in range(9)]
    total = summarize([*many, score("x", 0.1, group="x"), score("y", -0.2, group="y")])
    assert medians_by_group(many) == {"many": 0.5}
    assert (total.median_error, total.median_of_sources) == (0.5, 0.2)


def test_nothing_to_add_up_is_no_median() -> None:
    assert summarize([]).median_error is None
    assert summarize([score()]).median_of_sources is None


def test_two_tools_meet_on_common_cases() -> None:
    assert [item.case for item in restrict([score("a"), score("b")], {"b", "c"})] == ["b"]


def test_closer_is_a_smaller_error_on_the_same_case() -> None:
    first = [score("a", 0.1), score("b", -0.4), score("c", 0.1), score("d", 0.0)]
    second = [score("a", -0.2), score("b", 0.3), score("c", -0.1), score("e", 0.5)]
    assert count_closer(first, second) == 1
    assert count_closer(second, first) == 1


def test_parameters_are_those_of_the_published_models() -> None:
    assert LLAMA_8B.parameters == 8_030_261_248
    assert Shape("qwen2", 5120, 64, 40, 8, 128, 27648, 152064, tied=False).parameters == 32_763_876_352
    assert Shape("llama", 3072, 28, 24, 8, 128, 8192, 128256, tied=True).parameters == 3_212_749_824
    assert Shape("gpt2", 768, 12, 12, 12, 64, 3072, 50257, tied=True).parameters == 124_439_808


def test_lora_counts_both_sides_of_each_target() -> None:
    small = Shape("llama", 3072, 28, 24, 8, 128, 8192, 128256, tied=True)
    assert count_lora(small, 32, ("q_proj", "v_proj")) == 9_175_040
    assert count_lora(small, 10, ("up_proj", "gate_proj", "down_proj")) == 9_461_760


def qwen(value: float, what: str, gpus: int) -> dict[str, object]:
    model = {
        "hf_id": "Qwen/Qwen-7B", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 151936, "tie_word_embeddings": False,
    }  # fmt: skip
    return {
        "id": "qwen",
        "model": model,
        "hardware": {"gpu": "A100-SXM4", "mem_gib": 80, "gpus_total": gpus, "nodes": 1},
        "framework": {"name": "Qwen finetune.py (HF Trainer)"},
        "config": {"method": "Full" if gpus > 1 else "LoRA", "seq_len": 512},
        "outcome": {"result": "fits", "peak": {"value": value, "unit": "GB", "what": what}},
    }


def test_a_total_over_devices_is_divided() -> None:
    run = read_run(qwen(148.0, "total over GPUs", 2))
    assert run.peak is not None
    assert run.peak.low == 74 * QWEN_GIGABYTE
    assert (run.ranks, run.sharding, run.weights) == (2, "zero3", "bf16+master")


def test_the_other_reading_of_a_gigabyte_is_kept() -> None:
    run = read_run(qwen(20.0, "GPU memory", 1))
    assert run.peak is not None
    assert run.peak.low * run.peak.decimal == pytest.approx(20 * 10**9)
    assert not run.peak.stated


def test_a_framework_without_a_reader_is_named() -> None:
    with pytest.raises(KeyError, match=r"qwen: no reader for reports of 'Unheard'"):
        read_run({**qwen(1, "GPU memory", 1), "framework": {"name": "Unheard"}})
