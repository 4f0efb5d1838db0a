"""Bad input ends in a sentence with file, line, key and remedy and in the exit code of the design, never in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compatcheck.cli.__main__ import main
from tests import ROOT
from tests.cli.run_cli import run as run_here

REQUIREMENTS = "deepspeed==0.16.4\ntransformers==4.48.3\ntorch==2.5.1\n"
DEEPSPEED = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
ARGUMENTS = "per_device_train_batch_size: 1\nlearning_rate: 1.0e-5\noutput_dir: out\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty project with a sound requirement file."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert caught.value.code != 70, captured.err
    return int(caught.value.code or 0), captured.out, captured.err


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run(capsys, "check", *arguments, "--format", "json")
    assert out, err
    report = json.loads(out)
    assert report["summary"]["exit_code"] == code
    return code, report


def write(path: str, content: str | bytes) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


JSON_FILES = {
    "cut off": ('{"zero_optimization": {"stage": 3}, "bf16": {"ena', "ds.json:1", "unterminated"),
    "empty": ("", "ds.json:1", "not valid JSON"),
    "a list": ("[1]", "ds.json", "is no configuration"),
    "duplicate key": ('{\n "zero_optimization": {\n"stage": 3,\n"stage": 2}}', "ds.json:4", "the key 'stage' twice"),
    "duplicate in Hjson": (
        "{\n// why\nzero_optimization: {\nstage: 3\nstage: 2\n}\n}",
        "ds.json:5",
        "the key 'stage' twice",
    ),
    "text for a number": ('{"zero_optimization": {\n"stage": "three"}}', "ds.json:2", "'three'"),
    "list for a section": ('{\n"zero_optimization": [3]}', "ds.json:2", "zero_optimization"),
    "mapping for a value": ('{"zero_optimization": {"stage": {"a": 1}}}', "ds.json:1", "zero_optimization.stage"),
    "infinity": ('{"zero_optimization": {"stage": 3, "reduce_bucket_size": Infinity}}', "ds.json", "inf"),
    "overflow": ('{"zero_optimization": {"stage": 3, "reduce_bucket_size": 1e999}}', "ds.json:1", "inf"),
    "negative": ('{"zero_optimization": {"stage": 3, "reduce_bucket_size": -5}}', "ds.json:1", "-5"),
    "huge": ('{"zero_optimization": {"reduce_bucket_size": ' + "9" * 400 + "}}", "ds.json:1", "9999"),
    "thousands of digits": ('{"zero_optimization": {"stage": ' + "9" * 5000 + "}}", "ds.json", "digits"),
    "nested": ('{"zero_optimization": {"stage": 3}, "x": ' + '{"a":' * 900 + "1" + "}" * 901, "ds.json", "deep"),
    "not UTF-8": (b'{"zero_optimization":\n "\xff"}', "ds.json:2", "UTF-8"),
    "NUL": (b'{"zero_optimization": {"stage": 3}}\0', "ds.json", "NUL"),
}


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_file_that_cannot_be_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, place, words = JSON_FILES[name]
    write("ds.json", content)
    code, report = check(capsys, "requirements.txt", "ds.json", "--fail-on", "never")
    assert code == 4
    entry = next(entry for entry in report["skipped"] if words in entry["source"] + entry["reason"])
    assert entry["source"].startswith(place)
    assert entry["hint"]
    assert report["findings"], "the findings of the requirement file are lost"


YAML_FILES = {
    "aliases": ("a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)), "aliases"),
    "alias to itself": ("a: &a {b: *a}\n", "refers to the value it stands in"),
    "nested": ("x: " + "[" * 5000 + "]" * 5000 + "\n", "levels deep"),
    "duplicate key": ("output_dir: b\n", "the key 'output_dir' twice"),
    "code": ("x: !!python/object/apply:os.system ['true']\n", "has the tag"),
    "day that does not exist": ("x: 2025-99-99\n", "month"),
    "infinity": ("per_device_eval_batch_size: .inf\n", "inf"),
    "several documents": ("---\na: 1\n", "several documents"),
    "template": ("x: {{ batch }}\n", "a key is a list or a mapping"),
    "section as text": ("gradient_checkpointing_kwargs: use_reentrant=False\n", "gradient_checkpointing_kwargs"),
    "value as section": ("gradient_accumulation_steps: {a: 1}\n", "gradient_accumulation_steps"),
    "number for a model": ("model_name_or_path: 5\n", "model_name_or_path"),
}  # fmt: skip


@pytest.mark.parametrize("name", YAML_FILES)
def test_yaml_file_that_cannot_be_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    added, words = YAML_FILES[name]
    write("args.yaml", ARGUMENTS + added)
    code, report = check(capsys, "requirements.txt", "args.yaml", "--fail-on", "never")
    assert code == 4
    entry = next(entry for entry in report["skipped"] if words in entry["source"] + entry["reason"])
    assert entry["source"].startswith("args.yaml:")
    assert entry["hint"]
    assert report["findings"]


def test_nesting_that_crashes_the_yaml_parser_is_refused_before() -> None:
    write("args.yaml", ARGUMENTS + "x: " + "[" * 200_000 + "]" * 200_000)
    command = [sys.executable, "-m", "compatcheck", "check", "requirements.txt", "args.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "levels deep" in done.stdout


def test_names_that_are_no_text_are_printed_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    write("ds.json", '{"zero_optimization": {"stage": 3}, "x\\ud800": 1, "communication_data_type": "\\ud800"}')
    code, _ = check(capsys, "requirements.txt", "ds.json", "--fail-on", "never")
    assert code == 4
    assert run(capsys, "facts", "ds.json")[0] == 4


def test_nul_in_the_name_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    write("args.yaml", ARGUMENTS + 'model_name_or_path: "a\\0b"\n')
    _, report = check(capsys, "requirements.txt", "args.yaml", "--fail-on", "never")
    assert any("model_name_or_path" in entry["source"] for entry in report["skipped"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_hidden_layers", 10**12), ("num_hidden_layers", -5), ("hidden_size", 10**400), ("hidden_size", [1])],
)
def test_model_with_an_impossible_dimension(key: str, value: object, capsys: pytest.CaptureFixture[str]) -> None:
    config: dict[str, object] = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}
    write("m.json", json.dumps(config | {key: value}))
    code, report = check(capsys, "requirements.txt", "--model", "m.json", "--fail-on", "never")
    assert code == 4
    assert any(entry["source"] == f"m.json:1 ({key})" and entry["hint"] for entry in report["skipped"])


REQUIREMENT_LINES = [
    "deepspeed==zero.sixteen",
    "deepspeed=0.16.4",
    "-r nope.txt",
    "--zork",
    "torch===",
    "deepspeed==" + "9" * 5000,
]


@pytest.mark.parametrize("line", REQUIREMENT_LINES)
def test_requirement_line_that_cannot_be_read(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("requirements.txt", f"transformers==4.48.3\n{line}\n")
    code, report = check(capsys, "requirements.txt", "--fail-on", "never")
    assert code == 4
    assert any(entry["source"] == "requirements.txt:2" and entry["hint"] for entry in report["skipped"])
    code, report = check(capsys, ".", "--fail-on", "never")
    named = line.startswith("-r")
    assert code == (4 if named else 0), "a walk fails for what a file names, and for its lines only under --strict"
    assert report["skipped"]


def test_requirement_files_that_include_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    write("requirements.txt", "-r a.txt\ndeepspeed==0.16.4\n")
    write("a.txt", "-r requirements.txt\n")
    _, report = check(capsys, "requirements.txt", "--fail-on", "never")
    assert any("includes itself" in entry["reason"] for entry in report["skipped"])
    assert report["findings"]


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml"])
def test_locked_version_that_is_none(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    head = 'version = 1\nrequires-python = ">=3.10"\n[[package]]\n' if name == "uv.lock" else (
        'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\n'
    )  # fmt: skip
    write(name, head + 'name = "deepspeed"\nversion = "zork"\n')
    code, report = check(capsys, name)
    assert code == 4
    assert any("'zork', the version of deepspeed" in entry["reason"] for entry in report["skipped"])


def test_pickle_is_refused_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    write("training_args.bin", b"PK\x03\x04")
    code, report = check(capsys, "requirements.txt", "training_args.bin", "--fail-on", "never")
    assert code == 4
    (entry,) = report["skipped"]
    assert "pickle" in entry["reason"]
    assert "to_dict()" in entry["hint"]


@pytest.mark.parametrize("arguments", [["p.json"], [".", "--model", "p.json"], [".", "--env-file", "p.json"]])
def test_pipes_are_not_waited_for(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("p.json")
    code, report = check(capsys, *arguments, "--fail-on", "never")
    assert code == 4
    assert any("is not a regular file" in entry["reason"] for entry in report["skipped"])


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_rule_file_that_never_ends_is_refused(kind: str) -> None:
    os.mkfifo("x.yaml") if kind == "pipe" else os.symlink("/dev/zero", "x.yaml")
    ran = run_here("rules", "lint", "x.yaml")
    assert (ran.code, "x.yaml" in ran.out + ran.err) == (1, True)


def test_pipe_among_own_rules_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r/acme").mkdir(parents=True)
    os.mkfifo("r/acme/x.yaml")
    assert run(capsys, "check", ".", "--rules", "r")[0] == 2


OPTIONS = [
    ["--set", "training.micro_batch_size=1e999"],
    ["--set", "training.micro_batch_size=nan"],
    ["--set", "hardware.memory_bytes=" + "9" * 400 + "GiB"],
    ["--set", "training.zero_stag=3"],
    ["--set", "training.zero_stage=3", "--set", "training.zero_stage=2"],
    ["--gpu", "8xZork9000"],
    ["--fail-on", ""],
    ["--fail-on", "lots"],
    ["--python", sys.executable, "--prefix", sys.prefix],
    ["--rules", "nope"],
    ["--rules", "."],
    ["--select", "zork/*"],
    ["--policy", "nope.toml"],
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options)[:40])
def test_option_that_makes_no_sense(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "check", "requirements.txt", *options)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) >= 2, "no remedy"


def test_misspelt_fact_in_an_own_rule(capsys: pytest.CaptureFixture[str]) -> None:
    rule = ROOT / "rules/deepspeed/zero3-params-kept-in-backward.yaml"
    text = rule.read_text(encoding="utf-8").replace("training.zero_stage == 3", "training.zero_stag == 3")
    write("r/acme/zork.yaml", text)
    code, _, err = run(capsys, "check", ".", "--rules", "r")
    assert code == 2
    assert "did you mean 'training.zero_stage'" in err


def test_every_output_that_can_be_written_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(
        capsys, "check", ".", "--output", "json:nope/a.json", "--output", "sarif:b.sarif", "--format", "json"
    )
    assert code == 2
    assert "nope/a.json cannot be written" in err
    assert json.loads(Path("b.sarif").read_text(encoding="utf-8"))["runs"]


@pytest.mark.parametrize("command", [["check", "."], ["rules", "list"], ["bulk", "--no-policy", "a.txt"]])
def test_a_reader_that_went_away_is_no_finding(tmp_path: Path, command: list[str]) -> None:
    """The code of a shell for it is 141; click's is 1, which says that something fails."""
    (tmp_path / "a.txt").write_text("torch==2.6.0\n")
    started = subprocess.Popen(
        [sys.executable, "-m", "compatcheck", *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdout
    assert started.stderr
    started.stdout.close()
    with started.stderr as said:
        assert (started.wait(60), said.read()) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_behind_standard_output() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "compatcheck", "check", "."],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "error: the report could not be written: No space left on device\n"


def test_closed_standard_output() -> None:
    command = f"{sys.executable} -m compatcheck check requirements.txt --fail-on never >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-r requirements.txt", "includes itself"),
        ("-r other.txt", "includes itself: requirements.txt → other.txt → requirements.txt"),
        ("-r https://h.example/more.txt", "not fetched"),
        ("-r ${WHERE}/more.txt", "variable"),
        ("deepspeed==${VERSION}", "variable"),
    ],
)
def test_what_a_requirement_file_leaves_unread_counts_where_a_person_named_it(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("requirements.txt", f"peft==0.17.0\n{line}\n")
    write("other.txt", "-r requirements.txt\n")
    for arguments, wanted in ((("requirements.txt",), 4), ((".",), 0), ((".", "--strict"), 4)):
        code, report = check(capsys, *arguments, "--fail-on", "never")
        assert code == wanted, arguments
        assert any(words in entry["reason"] for entry in report["skipped"]), arguments


@pytest.mark.parametrize(
    ("setting", "words", "hint"),
    [
        ("hardware.gpu=Zork", "unknown device 'Zork'", "`compatcheck facts --names` lists devices"),
        ("hardware.gpu=H100-81GB", "unknown device 'H100-81GB'", "did you mean H100-80GB"),
        ("hardware.gpu=8xH100-80GB", "how many devices a node has", "--gpu 8xH100-80GB"),
        ("hardware.world_size=0", "hardware.world_size cannot be '0'", "a whole number from 1 on"),
        ("training.micro_batch_size=0", "training.micro_batch_size cannot be '0'", "a whole number from 1 on"),
        ("training.zero_stage=4", "training.zero_stage cannot be '4'", "0 or 1 or 2 or 3"),
        ("training.eval_accumulation_steps=0", "cannot be '0'", "a whole number from 1 on or none"),
        ("hardware.memory_bytes=0", "cannot be '0'", "a size"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(
    setting: str, words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "check", "requirements.txt", "--set", setting)
    assert code == 2
    assert words in err
    assert hint in err


@pytest.mark.parametrize("setting", ["training.lora_rank=0", "model.num_experts=0", "training.reduce_bucket_size=0"])
def test_counts_that_may_be_nothing_are_taken(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = check(capsys, "requirements.txt", "--set", setting, "--fail-on", "never")
    assert code == 0


def test_a_device_is_set_by_any_of_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    _, report = check(capsys, "requirements.txt", "--set", "hardware.gpu=NVIDIA H100 80GB HBM3", "--fail-on", "never")
    values = {fact["name"]: fact["value"] for fact in report["subjects"][0]["facts"]}
    assert values["hardware.gpu"] == "H100-80GB"
    assert values["hardware.memory_bytes"] > 0


def test_a_device_that_a_facts_file_misspells_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    write("facts.yaml", 'compatcheck: 1\npackages: {deepspeed: "0.16.4"}\nhardware: {gpu: H100-81GB, world_size: 8}\n')
    code, report = check(capsys, "facts.yaml", "--fail-on", "never")
    assert code == 4
    assert "H100-80GB" in next(entry["hint"] for entry in report["skipped"] if "H100-81GB" in entry["reason"])


@pytest.mark.parametrize("name", ["--fail-on=never", "--policy=x.toml", "-q"])
def test_a_hook_refuses_a_file_that_would_be_an_option(capsys: pytest.CaptureFixture[str], name: str) -> None:
    write(name, "fail-on = 'never'\n")
    write("x.toml", "fail-on = 'never'\n")
    code, _, err = run(capsys, "check", "--hook", name, "requirements.txt")
    assert (code, "rename the file" in err) == (2, True)
    assert run(capsys, "check", "--hook", "--", name, "requirements.txt")[0] == 0
    assert run(capsys, "check", name, "requirements.txt")[0] == 0


@pytest.mark.parametrize("form", ["github", "text", "markdown", "junit", "html", "json", "sarif"])
def test_a_name_commands_no_workflow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    write("::set-output name=a::b/requirements.txt", "deepspeed==0.16.4\n@@@\n")
    write("::set-output name=a::b/##[group]-requirements.txt", "deepspeed==0.16.4\n")
    write("a\n::set-output name=a::c/requirements.txt", "deepspeed==0.16.4\n@@@\n")
    _, out, err = run(capsys, "check", ".", "--set", "training.zero_stage=3", "--format", form)
    plain = [
        line
        for line in (out + err).splitlines()
        if form != "github" or not line.startswith(("::notice ", "::warning "))
    ]
    begins = ("::", "##[") if form in {"json", "sarif"} else "::"  # a command stands at the beginning of a line
    assert [line for line in plain if line.lstrip().startswith(begins) or (begins == "::" and "##[" in line)] == []
    assert "set-output" in out


@pytest.mark.parametrize("form", ["text", "markdown", "github", "html", "json"])
def test_a_name_has_no_colour(capsys: pytest.CaptureFixture[str], form: str) -> None:
    write("a\x1b[31mb/requirements.txt", "deepspeed==0.16.4\n@@@\n")
    _, out, err = run(capsys, "check", ".", "--format", form, "--output", f"{form}:report")
    assert "\x1b" not in out + err + Path("report").read_text()
    assert "u001b[31mb" in out


def test_what_an_error_says_back_commands_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a\x1b[31mb"
    folder.mkdir()
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    for given in (["env"], ["env", "--python", "a\x1b[31mb"]):
        done = subprocess.run(
            [sys.executable, "-m", "compatcheck", *given], capture_output=True, text=True, check=False
        )
        assert "\x1b" not in done.stderr
        assert "a\\u001b[31mb" in done.stderr


def test_what_was_not_read_is_said_once_where_nothing_was_checked(tmp_path: Path) -> None:
    ran = run_here("check", tmp_path / "nope.txt")
    assert (ran.code, ran.out.count("no such file")) == (4, 1)


@pytest.mark.parametrize("text", ['"\\n::error::x" = 1\n', '[runs."\\n::error::x"]\nmodel = 1\n'])
def test_a_key_of_a_policy_is_no_command_of_a_workflow(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    write("requirements.txt", "deepspeed==0.16.4\n")
    write("compatcheck.toml", text)
    _, out, err = run(capsys, "check", "requirements.txt")
    assert "::error::x" in err
    assert not any(line.lstrip().startswith("::") for line in (err + out).splitlines())


def test_a_number_in_base_sixty_without_end_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    write("args.yaml", f"{ARGUMENTS}x: 1:{'59:' * 175}1.5\n")
    code, report = check(capsys, "requirements.txt", "args.yaml", "--fail-on", "never")
    assert code == 4
    assert any("is not valid YAML" in entry["reason"] for entry in report["skipped"])


def test_a_secret_of_an_option_is_said_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    write("requirements.txt", "deepspeed==0.16.4\n")
    _, report = check(capsys, "requirements.txt", "--set", "model.name=https://u:S3CR3T@h/x", "--fail-on", "never")
    assert "S3CR3T" not in json.dumps(report)
    assert "https://[redacted]@h/x" in json.dumps(report)
