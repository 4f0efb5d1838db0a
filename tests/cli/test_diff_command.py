"""`compatcheck diff`: two files, two environments, two revisions."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.cli.run_cli import run
from tests.effort import at_most

OLD = "deepspeed==0.15.4\ntransformers==4.45.2\naccelerate==1.0.0\ntorch==2.5.1\n"
NEW = "deepspeed==0.16.4\ntransformers==5.1.0\naccelerate==1.0.0\ntorch==2.5.1\nnumpy==2.0.0\n"
RUN = ("--training", "train.yaml", "--model", "llama-3-70b", "--gpu", "16xB300")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    Path("old.txt").write_text(OLD)
    Path("new.txt").write_text(NEW)
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    Path("train.yaml").write_text(
        "per_device_train_batch_size: 4\ngradient_checkpointing: true\nbf16: true\nlearning_rate: 1.0e-5\n"
        "gradient_accumulation_steps: 8\noutput_dir: out\nnum_train_epochs: 1\ndeepspeed: ds.json\n"
    )
    return tmp_path


def describe(*arguments: object) -> dict:
    ran = run("diff", *arguments, *RUN, "--format", "json")
    return {**json.loads(ran.out), "code": ran.code}


def changes(described: dict) -> dict[str, str]:
    return {entry["rule_id"]: entry["change"] for entry in described["findings"]}


def test_a_bump_that_brings_a_regression_fails() -> None:
    described = describe("old.txt", "new.txt")
    assert described["code"] == described["summary"]["exit_code"] == 1
    first = described["findings"][0]
    assert (first["rule_id"], first["change"], first["newly_fails"]) == (
        "deepspeed/zero3-params-kept-in-backward",
        "entered",
        True,
    )
    assert first["before"] is None
    assert (
        first["after"]["impact"]["expected_bytes"] == 136_904_704_000
    )  # 2 bytes × parameters in blocks of Llama 3 70B


def test_the_way_back_does_not_fail() -> None:
    there, back = describe("old.txt", "new.txt"), describe("new.txt", "old.txt")
    assert back["code"] == 0
    opposite = {"entered": "left", "left": "entered", "stayed": "stayed"}
    assert changes(back) == {rule: opposite[change] for rule, change in changes(there).items()}


def test_packages_and_flipped_defaults() -> None:
    described = describe("old.txt", "new.txt")
    assert [(entry["name"], entry["before"], entry["after"]) for entry in described["packages"]] == [
        ("deepspeed", "0.15.4", "0.16.4"),
        ("numpy", None, "2.0.0"),
        ("transformers", "4.45.2", "5.1.0"),
    ]
    flipped = [entry for entry in described["facts"] if entry["flipped_default"]]
    assert [(entry["name"], entry["before"]["value"], entry["after"]["value"]) for entry in flipped] == [
        ("training.use_reentrant", True, False),
    ]
    assert "transformers 4.45.2" in flipped[0]["before"]["source"]
    assert "transformers 5.1.0" in flipped[0]["after"]["source"]


def test_a_written_value_flips_nothing() -> None:
    with Path("train.yaml").open("a") as file:
        file.write("gradient_checkpointing_kwargs: {use_reentrant: true}\n")
    described = describe("old.txt", "new.txt")
    assert not any(entry["name"] == "training.use_reentrant" for entry in described["facts"])
    assert "deepspeed/zero3-params-kept-in-backward" not in changes(described)


def test_the_same_file_twice() -> None:
    described = describe("new.txt", "new.txt")
    assert (described["code"], described["packages"], described["facts"]) == (0, [], [])
    assert set(changes(described).values()) == {"stayed"}
    assert described["summary"]["stayed"] > 0


def test_text_in_eighty_columns() -> None:
    ran = run("diff", "old.txt", "new.txt", *RUN)
    assert ran.code == 1
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    for words in (
        "old.txt → new.txt",
        "HIGH deepspeed/zero3-params-kept-in-backward",
        "127.5 GiB per rank",
        "training.use_reentrant true → false",
        "deepspeed     0.15.4 → 0.16.4",
        "1 that no rule is about; -v lists them",
    ):
        assert words in ran.out
    assert "numpy" in run("diff", "old.txt", "new.txt", *RUN, "-v").out


def test_markdown_goes_to_a_file_beside_the_text() -> None:
    ran = run("diff", "old.txt", "new.txt", *RUN, "--output", "markdown:comment.md")
    assert ran.out.startswith("old.txt → new.txt\n")
    comment = Path("comment.md").read_text()
    assert comment.startswith("## compatcheck: 1 finding newly at or above `--fail-on medium`\n")
    assert "| high | [deepspeed/zero3-params-kept-in-backward](https://" in comment


def test_quiet_is_one_line_per_change() -> None:
    lines = run("diff", "old.txt", "new.txt", *RUN, "-q").out.splitlines()
    assert lines[0] == "ENTERED HIGH deepspeed/zero3-params-kept-in-backward 127.5 GiB per rank"
    assert any(line.startswith("compatcheck: ") for line in lines[-3:])
    assert not any(line.startswith("STAYED") for line in lines)


@pytest.mark.parametrize(
    ("threshold", "code"), [("medium", 1), ("critical", 0), ("never", 0), ("200GiB", 0), ("5GiB", 1)]
)
def test_fail_on(threshold: str, code: int) -> None:
    assert run("diff", "old.txt", "new.txt", *RUN, "--fail-on", threshold).code == code


def test_selection_and_waivers_hold_for_both_sides() -> None:
    assert run("diff", "old.txt", "new.txt", *RUN, "--ignore", "deepspeed/*").code == 0
    Path("compatcheck.toml").write_text(
        '[[waivers]]\nrule = "deepspeed/zero3-params-kept-in-backward"\nreason = "we have room"\n'
    )
    ran = run("diff", "old.txt", "new.txt", *RUN)
    assert ran.code == 0
    assert "we have room" in ran.out


def test_a_waiver_that_ends_with_a_release() -> None:
    Path("compatcheck.toml").write_text(
        '[[waivers]]\nrule = "deepspeed/zero3-params-kept-in-backward"\nreason = "we have room"\nuntil = "deepspeed>=0.16.5"\n'
    )
    Path("newer.txt").write_text(NEW.replace("0.16.4", "0.16.6"))
    ran = run("diff", "new.txt", "newer.txt", *RUN)
    assert ran.code == 1
    assert "1 changed" in ran.out
    assert "no longer waived" in ran.out


def test_a_named_run_gives_the_inputs() -> None:
    Path("compatcheck.toml").write_text(
        '[runs.a]\nmodel = "llama-3-70b"\ntraining = ["train.yaml"]\ngpu = "p4de.24xlarge"\nnodes = 2\n[runs.b]\nnodes = 2\n'
    )
    assert run("diff", "old.txt", "new.txt", "--run", "a").code == 1
    ran = run("diff", "old.txt", "new.txt", "--run", "a", "--run", "b")
    assert (ran.code, "more than once" in ran.err) == (2, True)


def make_environment(prefix: Path, requirements: str) -> Path:
    packages = prefix / "lib" / "python3.11" / "site-packages"
    for line in requirements.split():
        name, version = line.split("==")
        folder = packages / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    return prefix


def test_environments_and_an_environment_against_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # of this machine: takes no part
    old, new = (make_environment(Path(name), text) for name, text in (("e1", OLD), ("e2", NEW)))
    described = describe(old, new)
    assert described["findings"][0]["rule_id"] == "deepspeed/zero3-params-kept-in-backward"
    assert described["code"] == 1
    assert {entry["name"] for entry in described["packages"]} == {"deepspeed", "numpy", "transformers"}
    mixed = describe(old, "new.txt")
    assert mixed["code"] == 1
    assert {entry["name"] for entry in mixed["packages"]} == {"deepspeed", "numpy", "transformers"}
    assert (mixed["before"]["complete"], mixed["after"]["complete"]) == (True, False)
    python = old / "bin" / "python"
    python.parent.mkdir()
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    assert describe(python, new)["packages"] == described["packages"]


def git(*arguments: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], check=True, capture_output=True)


def test_a_revision_against_the_working_tree() -> None:
    git("init", "-q")
    Path("requirements.txt").write_text(OLD)
    git("add", "requirements.txt")
    git("commit", "-qm", "one")
    Path("requirements.txt").write_text(NEW)
    described = describe("HEAD:requirements.txt", "requirements.txt")
    assert described["code"] == 1
    assert described["before"]["origin"] == "HEAD:requirements.txt"
    locations = [
        place["path"]
        for entry in describe("requirements.txt", "HEAD:requirements.txt")["findings"]
        for place in (entry["after"] or {"locations": []})["locations"]
    ]
    assert "HEAD:requirements.txt" in locations
    assert "compatcheck-" not in json.dumps(described)


def test_a_revision_reads_nothing_beside_itself(tmp_path: Path) -> None:
    git("init", "-q")
    elsewhere = tmp_path.parent / "elsewhere.txt"
    elsewhere.write_text("vllm==0.8.4\n")
    beside = Path(tempfile.gettempdir(), f"compatcheck-beside-{os.getpid()}.txt")
    beside.write_text("vllm==0.8.4\n")
    Path("sub").mkdir()
    Path("sub/a.txt").write_text(f"torch==2.6.0\n-r ../../{beside.name}\n-r {elsewhere}\n")
    git("add", "sub")
    git("commit", "-qm", "one")
    try:
        described = describe("HEAD:sub/a.txt", "HEAD:sub/a.txt")
    finally:
        beside.unlink()
    assert [entry["reason"].partition(": ")[2] for entry in described["before"]["skipped"]] == [
        "could not be read: lies outside of the directory that may be read"
    ] * 2
    assert described["code"] == 4


def test_a_revision_without_a_file_is_told_the_file_of_the_other_side() -> None:
    git("init", "-q")
    git("add", "old.txt")
    git("commit", "-qm", "one")
    for sides in (("HEAD", "old.txt"), ("old.txt", "HEAD")):
        ran = run("diff", *sides)
        assert (ran.code, "as HEAD:./old.txt" in ran.err) == (4, True)
    assert run("diff", "HEAD:./old.txt", "old.txt").code == 0


def test_a_revision_with_too_many_files_is_refused() -> None:
    git("init", "-q")
    Path("a.txt").write_text("".join(f"-r r{number}.txt\n" for number in range(120)))
    for number in range(120):
        Path(f"r{number}.txt").write_text("torch==2.6.0\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    ran = run("diff", "HEAD:a.txt", "old.txt")
    assert (ran.code, "HEAD:a.txt: includes more than 100 files" in ran.err) == (4, True)


def test_blank_lines_of_a_revision_cost_what_they_are() -> None:
    git("init", "-q")
    Path("a.txt").write_text("\n" * 150_000 + "torch==2.6.0\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    with at_most(20):
        ran = run("diff", "HEAD:a.txt", "old.txt", "--no-policy")
    assert ran.code in {0, 1}, ran.err


def test_standard_input_is_read_once() -> None:
    ran = run("diff", "-", "-")
    assert (ran.code, "named twice" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("sides", "code", "words"),
    [
        (("nope.txt", "new.txt"), 4, "nope.txt: no such file"),
        (("old.txt", "nope.txt"), 4, "nope.txt: no such file"),
        (("old.txt", "HEAD:nope.txt"), 4, "HEAD:nope.txt: git has no such file"),
        (("old.txt", "."), 4, "name an environment, or a lock"),
    ],
)
def test_a_side_that_cannot_be_read(sides: tuple[str, str], code: int, words: str) -> None:
    ran = run("diff", *sides)
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err


def test_a_model_that_cannot_be_read_is_no_clean_comparison() -> None:
    ran = run("diff", "old.txt", "old.txt", "--model", "nope/nope")
    assert ran.code == 4
    assert "not read" in ran.out


def test_without_a_package_nothing_was_compared() -> None:
    ran = run("diff", "train.yaml", "train.yaml")
    assert ran.code == 3
    assert "nothing was compared" in ran.out


def test_the_peak_of_the_run_grows_by_what_the_regression_costs() -> None:
    Path("old.txt").write_text("transformers==4.45.2\ntorch==2.5.1\n")
    Path("new.txt").write_text("transformers==4.47.1\ntorch==2.5.1\n")
    facts = ["framework=hf_trainer", "trainer=causal_lm", "sharding=none", "mixed_precision=no", "param_dtype=bfloat16"]
    facts += [
        "compute_dtype=bfloat16",
        "micro_batch_size=4",
        "sequence_length=4096",
        "gradient_checkpointing=true",
        "optimizer=adamw",
    ]
    settings = [argument for fact in facts for argument in ("--set", f"training.{fact}")]
    ran = run(
        "diff",
        "old.txt",
        "new.txt",
        "--model",
        "qwen2.5-0.5b",
        *settings,
        "--set",
        "hardware.world_size=1",
        "--format",
        "json",
    )
    described = json.loads(ran.out)
    (entered,) = [entry for entry in described["findings"] if entry["change"] == "entered"]
    assert entered["rule_id"] == "transformers/loss-shift-copies-logits"
    peaks = [described["peaks"][side]["allocated_bytes"]["expected"] for side in ("before", "after")]
    assert peaks[1] - peaks[0] == pytest.approx(entered["after"]["impact"]["expected_bytes"], rel=0.01)


def test_the_peak_has_regressions_that_no_formula_has() -> None:
    Path("run.sh").write_text(
        "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B --max_len 4096 "
        "--micro_train_batch_size 1 --train_batch_size 8 --zero_stage 3 --bf16 --gradient_checkpointing --packing_samples\n"
    )
    for name, release in (("one.txt", "0.15.0"), ("two.txt", "0.16.4")):
        Path(name).write_text(f"openrlhf==0.5.9\ndeepspeed=={release}\ntransformers==4.49.0\ntorch==2.5.1\n")
    arguments = ("one.txt", "two.txt", "--training", "run.sh", "--gpu", "8xA100-80GB")
    described = json.loads(run("diff", *arguments, "--format", "json").out)
    peaks = [described["peaks"][side]["allocated_bytes"]["expected"] for side in ("before", "after")]
    assert peaks[1] - peaks[0] == pytest.approx(2 * 6_979_584_000, rel=0.001)


def test_without_a_run_there_is_no_peak() -> None:
    assert json.loads(run("diff", "old.txt", "new.txt", "--format", "json").out)["peaks"] is None


def test_a_run_that_no_longer_fits_is_told_the_plan() -> None:
    run_of = (*RUN[:4], "--gpu", "4xp4de.24xlarge", "--set", "training.sequence_length=1024")
    Path("req.txt").write_text(NEW)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x")
    for command in (("init", "-q"), ("add", "req.txt"), ("commit", "-qm", "new")):
        subprocess.run([*git, *command], check=True)
    for after in ("new.txt", "HEAD:req.txt"):
        found = json.loads(run("diff", "old.txt", after, *run_of, "--format", "json").out)["findings"]
        (fit,) = [one for one in found if one["rule_id"] == "_stack/run-does-not-fit"]
        assert [one["text"] for one in fit["after"]["remedies"]] == ["as planned for all findings: deepspeed 0.16.8"]


def test_the_peaks_before_and_after_are_drawn() -> None:
    ran = run("diff", "old.txt", "new.txt", *RUN, "--set", "training.sequence_length=4096", "--plot", "peaks.svg")
    assert "wrote peaks.svg" in ran.err
    text = Path("peaks.svg").read_text()
    told = next(line for line in ran.out.splitlines() if "GiB → " in line and line.startswith("  "))
    assert told.strip() in text
    assert "old.txt" in text
    assert "known regression" in text


def test_a_picture_of_no_run_is_none() -> None:
    ran = run("diff", "old.txt", "new.txt", "--plot", "peaks.svg")
    assert "nothing was drawn: there is no estimate of the run" in ran.err
    assert not Path("peaks.svg").exists()


def test_a_picture_of_another_kind_is_refused() -> None:
    ran = run("diff", "old.txt", "new.txt", *RUN, "--plot", "peaks.png")
    assert (ran.code, "--plot writes .svg, not 'peaks.png'" in ran.err) == (2, True)


def test_what_was_not_read_and_the_exit_code_are_said_however_quiet() -> None:
    Path("ds.json").unlink()
    quiet, full = (run("diff", *q, "old.txt", "new.txt", "--training", "train.yaml") for q in (("-q",), ()))
    assert quiet.code == full.code == 4
    assert "NOT READ train.yaml:8 (deepspeed): names 'ds.json': ds.json: no such file\n" in quiet.out
    for ran in (quiet, full):
        assert ran.out.endswith("\nexit 4: 1 input could not be read\n")
    clean = run("diff", "-q", "old.txt", "old.txt", "--model", "llama-3-70b")
    assert clean.out.endswith("\nexit 0: nothing new at or above --fail-on medium\n")


def test_a_kind_of_change_that_shows_nothing_says_so() -> None:
    Path("old.txt").write_text("torch==2.6.0\ndeepspeed==0.16.4\n")
    Path("new.txt").write_text("torch==2.6.0\ndeepspeed==0.17.1\n")
    Path("args.yaml").write_text("per_device_train_batch_size: 1\noutput_dir: out\ndeepspeed: missing.json\n")
    lines = run("diff", "old.txt", "new.txt", "--training", "args.yaml").out.splitlines()
    for title in ("entered", "left"):
        (place,) = (index for index, line in enumerate(lines) if f" {title}, all possible; -v lists them" in line)
        assert lines[place + 1] == ""
