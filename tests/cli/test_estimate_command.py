from __future__ import annotations

import json
from pathlib import Path

import html5lib
import pytest
from click.testing import CliRunner

from compatcheck.cli.group import group
from compatcheck.core.errors import CompatcheckError, UsageError

FACTS = """\
compatcheck: 1
packages: {transformers: "4.57.6", torch: "2.8.0", deepspeed: "0.17.0"}
training:
  framework: hf_trainer
  trainer: causal_lm
  sharding: zero
  zero_stage: 2
  mixed_precision: bf16
  micro_batch_size: 4
  gradient_accumulation_steps: 2
  sequence_length: 4096
  gradient_checkpointing: false
  optimizer: adamw
"""
BASE = ["--model", "llama-3-8b", "--no-policy"]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(group, ["estimate", *arguments], standalone_mode=False, catch_exceptions=True)
    if isinstance(result.exception, CompatcheckError):
        raise result.exception
    assert result.exception is None, result.exception
    return int(result.return_value), result.output


@pytest.fixture
def facts_file(tmp_path: Path) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(FACTS)
    return str(path)


def test_a_run_that_does_not_fit_exits_with_1(facts_file: str) -> None:
    code, output = run(facts_file, *BASE, "--gpu", "8xH100-80GB")
    assert code == 1
    assert "does not fit" in output
    assert max(map(len, output.splitlines())) <= 80


def test_a_run_that_fits_exits_with_0(facts_file: str) -> None:
    code, output = run(
        facts_file,
        *BASE,
        "--gpu",
        "8xH100-80GB",
        "--set",
        "training.gradient_checkpointing=true",
        "--set",
        "training.use_reentrant=false",
        "--set",
        "training.micro_batch_size=1",
    )
    assert code == 0
    assert "fits: " in output


def test_suggestions_and_walls_agree_with_the_estimate_they_promise(facts_file: str) -> None:
    arguments = (facts_file, *BASE, "--gpu", "8xH100-80GB", "--format", "json")
    _, output = run(*arguments, "--suggest", "--sweep", "micro_batch_size,sequence_length")
    (subject,) = json.loads(output)["subjects"]
    best = subject["suggestions"][0]
    settings = [part for change in best["changes"] for option in change["options"] for part in option.split()]
    _, output = run(*arguments, *settings)
    (after,) = json.loads(output)["subjects"]
    assert after["estimate"]["needed_bytes"] == best["needed_bytes"]
    assert after["estimate"]["verdict"] == best["verdict"]
    for wall in subject["walls"]:
        margins = []
        for value in (wall["fits"], wall["fails"]):
            _, output = run(*arguments, f"--set={wall['fact']}={value}")
            margins.append(json.loads(output)["subjects"][0]["estimate"]["margin_bytes"])
        assert margins[0] >= 0 > margins[1]


def test_the_model_that_is_missing_is_asked_for(facts_file: str) -> None:
    code, output = run(facts_file, "--no-policy", "--gpu", "8xH100-80GB")
    assert code == 3
    assert "--model" in output


def test_ranks_nobody_told_are_asked_for_and_not_guessed(facts_file: str) -> None:
    code, output = run(facts_file, *BASE)
    assert code == 3
    assert "--set hardware.world_size=" in output


def test_a_length_beyond_the_models_positions_is_said(facts_file: str) -> None:
    code, output = run(
        facts_file, *BASE, "--gpu", "8xH100-80GB", "--set", "training.sequence_length=1000000000000000000"
    )
    assert code == 1
    assert "8,192 positions" in " ".join(output.split())


@pytest.mark.parametrize("value", ["0", "-1", "99999999999999999999"])
def test_sizes_that_make_no_sense_are_refused(facts_file: str, value: str) -> None:
    with pytest.raises(UsageError, match="micro_batch_size cannot be"):
        run(facts_file, *BASE, "--set", f"training.micro_batch_size={value}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep", "lora_rank"], "no adapters"),
        (["--sweep", "batch"], "cannot be swept"),
        (["--plot", "memory.gif"], "memory.gif"),
    ],
)
def test_what_cannot_be_done_is_an_error(facts_file: str, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        run(facts_file, *BASE, "--gpu", "8xH100-80GB", *arguments)


def test_a_sweep_supplies_the_length_that_nobody_states(facts_file: str) -> None:
    path = Path(facts_file)
    path.write_text(path.read_text().replace("  sequence_length: 4096\n", ""))
    options = (facts_file, *BASE, "--gpu", "8xH100-80GB", "--set", "training.gradient_checkpointing=true")
    assert run(*options)[0] == 3
    _, described = run(*options, "--sweep", "sequence_length,micro_batch_size", "--format", "json")
    (subject,) = json.loads(described)["subjects"]
    length, size = subject["walls"]
    assert [wall["fact"] for wall in (length, size)] == ["training.sequence_length", "training.micro_batch_size"]
    assert length["current"] is None
    assert length["fails"] == length["fits"] + 1
    assert length["bytes_per_step"] > 0
    assert size["fits"] >= size["current"] == 4
    assumed = subject["estimate"]["assumptions"][0]
    assert (assumed["fact"], assumed["value"]) == ("training.sequence_length", length["fits"])
    stated = ("--set", f"training.sequence_length={length['fits']}")
    (as_stated,) = json.loads(run(*options, *stated, "--format", "json")[1])["subjects"]
    assert subject["estimate"]["phases"] == as_stated["estimate"]["phases"]
    assert "no estimate" in run(*options, "--sweep", "micro_batch_size")[1]


@pytest.mark.parametrize("format_name", ["text", "markdown", "json"])
def test_a_run_without_a_length_says_how_long_sequences_may_be(facts_file: str, format_name: str) -> None:
    path = Path(facts_file)
    path.write_text(path.read_text().replace("  sequence_length: 4096\n", ""))
    options = (facts_file, *BASE, "--set", "training.gradient_checkpointing=true", "--format", format_name)
    code, output = run(*options, "--gpu", "8xH100-80GB")
    _, stated = run(*options[:-1], "json", "--gpu", "8xH100-80GB", "--sweep", "sequence_length")
    (wall,) = json.loads(stated)["subjects"][0]["walls"]
    assert code == 3
    if format_name == "json":
        (found,) = json.loads(output)["subjects"][0]["walls"]
        assert {**found, "points": []} == {**wall, "points": []}  # a sweep prices more of them, for its picture
        assert found["points"][0] == wall["points"][0]
        assert wall["points"][0][0] == 1
    else:
        words = " ".join(output.split())
        assert f"training.sequence_length: {wall['fits']:,} fits, {wall['fails']:,} does not; one more costs" in words
        assert "; 1 needs " in words
    without_device = run(*options, "--set", "hardware.world_size=8")[1]
    assert '"walls": []' in without_device or "fits" not in without_device


def test_a_wall_needs_a_device(facts_file: str) -> None:
    with pytest.raises(UsageError, match="device"):
        run(facts_file, *BASE, "--set", "hardware.world_size=8", "--sweep", "micro_batch_size")


def test_more_verbose_shows_the_arithmetic(facts_file: str) -> None:
    _, output = run(facts_file, *BASE, "--gpu", "8xH100-80GB", "-vv")
    assert "8,030,261,248" in output
    assert "1910.02054" in output


def test_the_page_has_every_proposed_change_with_the_numbers_of_the_json(facts_file: str) -> None:
    options = (facts_file, *BASE, "--gpu", "8xH100-80GB", "--suggest", "--sweep", "sequence_length")
    _, described = run(*options, "--format", "json")
    code, page = run(*options, "--format", "html")
    (subject,) = json.loads(described)["subjects"]
    root = html5lib.parse(page, namespaceHTMLElements=False)
    numbers = [[int(one.get("value")) for one in row.iter("data")] for row in root.findall(".//tbody/tr")]
    assert subject["suggestions"]
    for suggestion in subject["suggestions"]:
        needed = suggestion["needed_bytes"]
        assert [needed["expected"], needed["low"], needed["high"]] in numbers
        assert suggestion["effect"] in page
    assert code == 1
    assert (root.findtext(".//h1") or "").startswith("does not fit: needs ")
    assert f"training.sequence_length: {subject['walls'][0]['fits']:,} fits" in page
    assert len(root.findall(".//{http://www.w3.org/2000/svg}desc")) == 2


def test_the_page_of_a_run_without_an_estimate_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(FACTS.replace("  sequence_length: 4096\n", ""))
    _, page = run(str(tmp_path / "run.yaml"), *BASE, "--format", "html")
    assert "<h1>no estimate: it needs --set hardware.world_size=…, --set training.sequence_length=…</h1>" in page
