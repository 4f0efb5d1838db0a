"""`compatcheck explain`: why, or which fact rules it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.cli.run_cli import run

RULE = "deepspeed/zero3-params-kept-in-backward"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "facts.yaml"
    path.write_text(
        'compatcheck: 1\npackages: {deepspeed: "0.16.4"}\nmodel: llama-3-8b\n'
        "training: {zero_stage: 3, gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}\n",
        encoding="utf-8",
    )
    return path


def test_why(file: Path) -> None:
    ran = run("explain", RULE, file)
    assert ran.code == 0
    for part in ("deepspeed", "training.zero_stage == 3", "not training.use_reentrant", "GiB"):
        assert part in ran.out


def test_why_not(file: Path) -> None:
    ran = run("explain", RULE, file, "--set", "training.zero_stage=2")
    assert ran.code == 0
    assert "training.zero_stage" in ran.out
    assert ran.out != run("explain", RULE, file).out


def test_an_end_of_the_id_will_do_and_a_slip_is_told_the_nearest(file: Path) -> None:
    assert run("explain", "zero3-params-kept-in-backward", file).out == run("explain", RULE, file).out
    ran = run("explain", "deepspeed/zero3-params-kept-in-bakward", file)
    assert ran.code == 2
    assert RULE in ran.err


def test_nothing_to_explain_on(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("explain", RULE, empty).code == 3


def test_known_problems_are_a_list_within_the_width(file: Path) -> None:
    told = run("explain", "transformers/dtype-unset-loads-float32", file).out.partition("\n  known problems\n")[2]
    lines = told.partition("\n  confidence")[0].splitlines()
    assert sum(line.startswith("    - ") for line in lines) == 4
    assert all(line.startswith(("    - ", "      ")) and len(line) <= 80 for line in lines)


def test_an_exception_rules_out_only_as_a_whole() -> None:
    """Of "one rank, and nothing offloaded" the second half alone holds."""
    case = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b"
    out = run("explain", "zero3-params-kept-in-backward", case, "--set", "training.use_reentrant=true").out
    assert "    no   hardware.single_rank" in out
    assert "ruled out by: not training.use_reentrant\n" in out
    one = run("explain", "zero3-params-kept-in-backward", case, "--set", "hardware.world_size=1").out
    assert "the exception hardware.single_rank and" in one


def test_the_verdict_is_that_of_check(file: Path) -> None:
    """What costs nothing is no finding, and what an estimate comes to is one."""
    file.write_text(
        'compatcheck: 1\npackages: {transformers: "5.1.0"}\nmodel: llama-3-8b\nhardware: {gpu: a10g}\n'
        "training: {framework: hf_trainer, gradient_checkpointing: true, sequence_length: 1024}\n",
        encoding="utf-8",
    )
    rules = file.parent / "rules" / "own"
    rules.mkdir(parents=True)
    built_in = (ROOT / "rules/transformers/reentrant-default-flipped.yaml").read_text(encoding="utf-8")
    (rules / "flipped.yaml").write_text(built_in.replace("status: withdrawn", "status: active"), encoding="utf-8")
    own = ("--rules", str(rules.parent))
    flipped = run("explain", "own/flipped", file, *own).out
    assert "does not affect this subject" in flipped
    assert "ruled out by: it costs no memory here" in flipped
    assert "own/flipped" not in run("check", file, *own).out
    checked = run("check", file).out
    assert "_stack/run-does-not-fit" in checked
    assert "_stack/run-does-not-fit: affects this subject" in run("explain", "_stack/run-does-not-fit", file).out


def test_releases_that_are_all_in_one_alternative_or_another(file: Path) -> None:
    file.write_text(
        'compatcheck: 1\npackages: {transformers: ">=4.57", torch: "2.0.1"}\ntraining: {framework: hf_trainer}\n',
        encoding="utf-8",
    )
    out = run("explain", "transformers/turns-off-older-torch", file).out
    assert "turns-off-older-torch: affects this subject" in out
    assert "each release that is allowed is in one of these alternatives" in out
