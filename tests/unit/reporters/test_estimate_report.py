from __future__ import annotations

import json

import pytest

from compatcheck.core.effects import PATCH_RELEASE, SLOWER
from compatcheck.core.estimate import Assumption, Component, Estimate, Phase, Size, Unmodelled, Verdict, exactly
from compatcheck.core.estimate_report import EstimateReport
from compatcheck.core.fix import SETTING, VERSION, Change
from compatcheck.core.suggestions import Placement, Suggestion, Wall
from compatcheck.reporters.estimate import format_json, format_markdown, format_text, name_phase

GIB = 2**30


def make_component(name: str, kind: str, gib: float, role: str = "train") -> Component:
    size = Size(int(gib * 0.9 * GIB), int(gib * GIB), int(gib * 1.1 * GIB))
    return Component(name, kind, size, "2 B × 8,030,261,248 / 8 ranks", "arXiv 1910.02054, section 3", role)


PHASES = (
    Phase("forward", "train", (make_component("bf16 parameters", "parameters", 16),)),
    Phase(
        "backward",
        "train",
        (
            make_component("bf16 parameters", "parameters", 16),
            make_component("fp32 logits", "logits", 60),
            make_component("CUDA context", "context", 0.5),
            make_component("cached and free", "reserve", 2),
        ),
    ),
)
ESTIMATE = Estimate(
    "closed_form",
    PHASES,
    Verdict(
        "does_not_fit",
        79 * GIB,
        79 * GIB - int(78.5 * GIB),
        "fp32 logits",
        ("parameters",),
        ("fragmentation",),
        "run it",
    ),
    (Assumption("model.attn_implementation", "sdpa", "default of transformers for llama"),),
    (Unmodelled("vision tower", "more", "its activations are left out"),),
)
REPORT = EstimateReport(
    "llama-3-8b on 8 × H100-80GB",
    ESTIMATE,
    suggestions=(
        Suggestion(
            (
                Change(
                    SETTING,
                    "training.gradient_checkpointing",
                    "false",
                    True,
                    frozenset({"run"}),
                    SLOWER,
                    (0, 0, 0),
                    SLOWER,
                    (("training.gradient_checkpointing", True),),
                    "gradient checkpointing",
                    note="recomputes",
                ),
                Change(
                    VERSION,
                    "deepspeed",
                    "0.16.4",
                    "0.16.8",
                    frozenset({"run"}),
                    PATCH_RELEASE,
                    (0, 0, 3),
                    "openrlhf 0.8.1 asks",
                    release="0.16.8",
                    move="patch",
                    follows=True,
                ),
            ),
            exactly(40 * GIB),
            38 * GIB,
            "fits",
        ),
    ),
    walls=(Wall("training.sequence_length", 8192, 12287, 12288, 1, 5 * 2**20, ((1024, 20 * GIB), (8192, 70 * GIB))),),
    placements=(Placement("p5.48xlarge", "H100-80GB", 8, exactly(60 * GIB), 79 * GIB),),
)


def test_peaks_are_told_apart_by_who_counts() -> None:
    assert ESTIMATE.allocated.expected == 76 * GIB
    assert ESTIMATE.reserved.expected == 78 * GIB
    assert ESTIMATE.device.expected == int(78.5 * GIB)


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_text_fits_a_terminal_and_leaves_nothing_out(verbose: int) -> None:
    text = format_text(REPORT, verbose=verbose)
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "does not fit",
        "fp32 logits",
        "assumed",
        "vision tower",
        "12,287 fits, 12,288 does not",
        "p5.48xlarge",
        "same result, slower",
        "recomputes",
        "--set training.gradient_checkpointing=true",
        "with deepspeed 0.16.4 → 0.16.8 (patch): openrlhf 0.8.1 asks",
    ):
        assert part in text
    assert ("8,030,261,248" in text) is (verbose > 0)
    assert ("1910.02054" in text) is (verbose > 1)


def test_long_names_of_components_are_not_cut_while_there_is_room() -> None:
    parts = (
        make_component("KV pool and engine activations", "kv_cache", 30, "rollout"),
        make_component("parameters", "parameters", 1, "actor"),
    )
    found = Estimate("closed_form", (Phase("rollout", "rollout", parts),), Verdict("fits", 80 * GIB, 49 * GIB))
    text = format_text(EstimateReport("job", found), verbose=0)
    assert "    rollout: KV pool and engine activations   30.0 GiB  ██████████████████████\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_missing_fact_is_named_with_the_way_to_state_it() -> None:
    empty = Estimate("closed_form", (), Verdict("unknown", None, None), needs=("model.hidden_size",))
    assert "--set model.hidden_size=" in format_text(EstimateReport("x", empty), verbose=0)
    assert "`model.hidden_size`" in format_markdown(EstimateReport("x", empty))
    assert json.loads(format_json([EstimateReport("x", empty)]))["subjects"][0]["estimate"] is None


def test_json_holds_every_component() -> None:
    (subject,) = json.loads(format_json([REPORT]))["subjects"]
    backward = subject["estimate"]["phases"][1]
    assert [part["name"] for part in backward["components"]] == [part.name for part in PHASES[1].components]
    assert subject["estimate"]["peak_bytes"]["expected"] == int(78.5 * GIB)
    (suggestion,) = subject["suggestions"]
    setting, release = suggestion["changes"]
    assert setting["facts"] == {"training.gradient_checkpointing": True}
    assert setting["options"] == ["--set training.gradient_checkpointing=true"]
    assert (release["name"], release["after"], release["follows"]) == ("deepspeed", "0.16.8", True)
    assert suggestion["effect"] == "same result, slower"
    assert suggestion["needed_bytes"]["expected"] == 40 * GIB
    assert subject["walls"][0]["points"] == [[1024, 20 * GIB], [8192, 70 * GIB]]


def test_markdown_has_one_row_per_component_and_one_column_per_phase() -> None:
    table = [line for line in format_markdown(REPORT).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {4}
    assert "| fp32 logits |  | 60.0 GiB |" in table


@pytest.mark.parametrize("role", ["train", "policy"])
def test_a_phase_is_named_in_words(role: str) -> None:
    assert name_phase(Phase("log_probabilities", role, ())).endswith("log probabilities")
