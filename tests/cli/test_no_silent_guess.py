"""What was not understood is said and never replaced by a default; an empty look is no clean bill."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compatcheck.cli.__main__ import main
from compatcheck.rules.compile import compile_directory
from tests import ROOT

RULE = "deepspeed/zero3-params-kept-in-backward"
TRAINER = {"per_device_train_batch_size": 1, "gradient_checkpointing": True, "bf16": True, "output_dir": "out"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\ntransformers==4.48.3\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as caught:
        main(["check", *arguments, "--format", "json"])
    return int(caught.value.code or 0), json.loads(capsys.readouterr().out)


def status(report: dict[str, Any]) -> str:
    found = [finding["status"] for finding in report["findings"] if finding["rule_id"] == RULE]
    return found[0] if found else "silent"


@pytest.mark.parametrize(
    ("keywords", "wanted"),
    [
        (None, "silent"),
        ({"use_reentrant": False}, "affected"),
        ('{"use_reentrant": false}', "affected"),
        ("use_reentrant=False", "possible"),
        (["use_reentrant"], "possible"),
        ({"use_reentrant": "perhaps"}, "possible"),
    ],
)
def test_default_stands_only_for_what_is_known_to_be_left_out(
    keywords: object, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = (
        TRAINER | {"deepspeed": "ds.json"} | ({} if keywords is None else {"gradient_checkpointing_kwargs": keywords})
    )
    Path("args.json").write_text(json.dumps(trainer))
    assert status(check(capsys, ".")[1]) == wanted


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("args.json", json.dumps(TRAINER)[:-4]),
        ("accelerate.yaml", "compute_environment: X\ndistributed_type: DEEPSPEED\ndistributed_type: FSDP\n"),
        ("facts.yaml", "compatcheck: 1\ntraining: {zero_stage: 3\n"),
    ],
)
def test_broken_training_file_in_a_directory_is_said(
    name: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(content)
    _, report = check(capsys, ".", "--fail-on", "never")
    assert any(entry["source"].startswith(f"{name}:") for entry in report["skipped"])
    assert check(capsys, ".", "--fail-on", "never", "--strict")[0] == 4


@pytest.mark.parametrize("value", ["nothere.json", ".", "args.json", [1], 5])
def test_deepspeed_file_that_cannot_be_read_is_said(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    Path("args.json").write_text(json.dumps(TRAINER | {"deepspeed": value}))
    _, report = check(capsys, "requirements.txt", "args.json", "--fail-on", "never")
    assert any(entry["source"] == "args.json:1 (deepspeed)" for entry in report["skipped"])


def test_fsdp_file_that_is_not_read_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("args.json").write_text(json.dumps(TRAINER | {"fsdp": "full_shard", "fsdp_config": "fsdp.json"}))
    _, report = check(capsys, "requirements.txt", "args.json", "--fail-on", "never")
    assert any("fsdp.json" in entry["reason"] for entry in report["skipped"])


def test_credentials_of_a_named_file_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("args.json").write_text(json.dumps(TRAINER | {"deepspeed": "https://me:secret@example.org/ds.json"}))
    _, report = check(capsys, "requirements.txt", "args.json", "--fail-on", "never")
    assert "secret" not in json.dumps(report["skipped"])


def test_lock_without_a_project_is_read_whole(capsys: pytest.CaptureFixture[str]) -> None:
    entry = (
        '[[package]]\nname = "deepspeed"\nversion = "0.16.4"\nsource = { registry = "https://example.org/simple" }\n'
    )
    Path("uv.lock").write_text(f'version = 1\nrequires-python = ">=3.10"\n{entry}')
    Path("args.json").write_text(json.dumps(TRAINER | {"gradient_checkpointing_kwargs": {"use_reentrant": False}}))
    assert status(check(capsys, "uv.lock", "args.json", "ds.json")[1]) == "affected"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_locale(encoding: str) -> None:
    Path("args.json").write_text(json.dumps(TRAINER | {"zörk🔥": 1}))
    done = subprocess.run(
        [sys.executable, "-m", "compatcheck", "check", ".", "--format", "json"],
        env={"PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    report = json.loads(done.stdout.decode())  # pipes are UTF-8, as JSON is, whatever the locale
    assert any(entry["key"] == "zörk🔥" for entry in report["subjects"][0]["unread_keys"])


def test_an_installation_finds_its_devices_and_takes_no_other_rules_directory(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "compatcheck", site / "compatcheck", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "compatcheck" / "_database.jsonl").write_bytes(compile_directory(ROOT / "rules"))
    (site / "rules").mkdir()  # another distribution of that name
    command = [
        sys.executable,
        "-m",
        "compatcheck",
        "check",
        "requirements.txt",
        "--gpu",
        "8xH100-80GB",
        "--format",
        "json",
    ]
    done = subprocess.run(command, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=False)
    facts = {fact["name"]: fact["value"] for fact in json.loads(done.stdout)["subjects"][0]["facts"]}
    assert facts["hardware.gpu"] == "H100-80GB"
    lint = [sys.executable, "-m", "compatcheck", "rules", "lint"]
    done = subprocess.run(lint, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def test_directory_that_cannot_be_listed_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr("os.scandir", refuse)
    code, report = check(capsys, "closed")
    assert code == 4
    assert "could not be listed" in report["skipped"][0]["reason"]
    code, report = check(capsys, ".", "--fail-on", "never")
    assert code == 0
    assert [entry["source"] for entry in report["skipped"]] == ["./closed"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("deepspeed: missing.json", 4),
        ("deepspeed: args.yaml", 4),
        ("model_name_or_path: ./missing", 4),
        ("model_name_or_path: someone/never-cached", 0),
    ],
)
def test_a_file_that_a_configuration_names_counts_as_named(
    line: str, wanted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("args.yaml").write_text(f"output_dir: o\nper_device_train_batch_size: 1\n{line}\n")
    code, report = check(capsys, "requirements.txt", "args.yaml")
    assert (code, len(report["skipped"])) == (wanted, 1)
    assert check(capsys, "requirements.txt", "--training", "args.yaml")[0] == wanted
    assert check(capsys, ".", "--fail-on", "never")[0] == wanted
    assert check(capsys, ".", "--fail-on", "never", "--strict")[0] == 4


def test_a_name_that_is_no_fact_is_not_passed_over_in_a_facts_file(capsys: pytest.CaptureFixture[str]) -> None:
    facts = "compatcheck: 1\npackages: {deepspeed: 0.16.8.post1}\ntraining: {zero_stge: 3}\nxyzzy: 1\n"
    Path("facts.yaml").write_text(facts)
    code, report = check(capsys, "facts.yaml")
    assert code == 4
    told = [(entry["source"], entry["hint"]) for entry in report["skipped"]]
    assert told[0] == ("facts.yaml:3 (training.zero_stge)", "did you mean training.zero_stage?")
    assert told[1][0] == "facts.yaml:4 (xyzzy)"
    assert report["subjects"][0]["unread_keys"] == []


FACTS = (
    "compatcheck: 1\npackages: {deepspeed: 0.16.4}\nmodel: llama-3-70b\ntraining: {zero_stage: 3, "
    "gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}\nhardware: {gpus_per_node: 8}\n"
)


def facts_of(report: dict[str, Any], prefix: str) -> dict[str, Any]:
    (subject,) = report["subjects"]
    return {fact["name"]: fact["value"] for fact in subject["facts"] if fact["name"].startswith(prefix)}


@pytest.mark.parametrize(
    "stated", ["llama-3-70b", "{hidden_size: 8192, num_hidden_layers: 80, parameters: 70000000000}"]
)
def test_no_other_model_stands_in_for_one_that_cannot_be_read(stated: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/facts.yaml").write_text(FACTS.replace("llama-3-70b", stated))
    Path("run/config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 4096}))
    code, report = check(capsys, "run", "--model", "nosuch/model")
    assert code == 1
    assert facts_of(report, "model.") == {}
    (finding,) = (finding for finding in report["findings"] if finding["rule_id"] == RULE)
    assert (finding["impact"]["expected_bytes"], finding["severity"]) == (None, "medium")
    assert check(capsys, "run", "--model", "nosuch/model", "--fail-on", "never")[0] == 4
    with pytest.raises(SystemExit):
        main(["check", "run", "--model", "nosuch/model", "-q"])
    assert "NOT READ --model: model 'nosuch/model' is neither" in capsys.readouterr().out


def test_the_model_a_person_names_wins_over_the_one_beside_the_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("run").mkdir()
    Path("run/facts.yaml").write_text(FACTS)
    Path("run/config.json").write_text((ROOT / "fixtures/cases/openrlhf-llama3-70b/config.json").read_text())
    assert facts_of(check(capsys, "run")[1], "model.hidden_size") == {"model.hidden_size": 8192}
    report = check(capsys, "run", "--model", "llama-3-8b")[1]
    assert facts_of(report, "model.hidden_size") == {"model.hidden_size": 4096}


@pytest.mark.parametrize("text", ["setup(", "import (\ninstall_requires = ["])
def test_a_broken_setup_py_is_named(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken").mkdir()
    Path("broken/setup.py").write_text(text)
    code, report = check(capsys, "broken")
    assert code == 3
    assert [entry["source"] for entry in report["skipped"]] == ["broken/setup.py:1"]


def test_where_no_package_is_known_nothing_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bare").mkdir()
    Path("bare/requirements.txt").touch()
    for index in range(4):
        Path(f"bare/run{index}").mkdir()
        Path(f"bare/run{index}/ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (Path("empty") / "lib/python3.11/site-packages").mkdir(parents=True)
    Path("empty/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    for arguments in (
        ("check", "bare"),
        ("check", "bare/requirements.txt"),
        ("check", "--training", "bare/run0/ds.json"),
        ("env", "--prefix", "empty"),
    ):
        with pytest.raises(SystemExit) as caught:
            main([*arguments])
        out = capsys.readouterr().out
        assert caught.value.code == 3, arguments
        assert "no known problem" not in out
        assert "nothing was checked" in "".join(out.splitlines()[-3:])
        assert out.splitlines()[-1] == "exit 3: no package is known"


@pytest.mark.parametrize("name", ["text", "json", "sarif", "junit", "markdown", "github"])
def test_nothing_to_check_is_reported_to_programs_too(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bare").mkdir()
    with pytest.raises(SystemExit) as caught:
        main(["check", "bare", "--format", name, "--output", f"{name}:report"])
    written = capsys.readouterr()
    assert caught.value.code == 3
    assert written.err.startswith("error: bare: no environment and no training configuration found")
    report = Path("report").read_text()
    assert "no environment and no training configuration found" in " ".join(report.split())
    assert (written.out == "") is (name == "text")
    if name in {"json", "sarif"}:
        assert json.loads(written.out)


def test_a_training_file_is_enough_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    Path("facts.yaml").write_text(FACTS)
    with pytest.raises(SystemExit) as caught:
        main(["check", "--training", "facts.yaml", "-q", "--nodes", "2", "--gpu", "8xH100-80GB"])
    assert caught.value.code == 1
    assert RULE in capsys.readouterr().out


def test_every_declared_fact_names_its_own_option(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--gpu", "8xH100-80GB")
    sources = [
        next(fact["source"] for fact in report["subjects"][0]["facts"] if fact["name"] == "hardware.nodes")
        for report in (check(capsys, ".", *options)[1], check(capsys, ".", *options, "--nodes", "2")[1])
    ]
    assert sources == ["--gpu", "--nodes"]


RUN = """python3 -m verl.trainer.main_ppo data.train_batch_size=256 data.max_prompt_length=1024 data.max_response_length=2048 \\
  actor_rollout_ref.model.path=meta-llama/Llama-3.1-8B actor_rollout_ref.actor.strategy=fsdp \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.name=vllm \\
  trainer.n_gpus_per_node=8 trainer.nnodes=1 "$@"
"""


@pytest.mark.parametrize("command", ["check", "estimate", "facts"])
def test_arguments_that_nobody_names_are_said_first(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.sh").write_text(RUN)
    Path("requirements.txt").write_text("verl==0.6.1\nvllm==0.11.0\ntorch==2.8.0\n")
    said = {}
    for form in ("text", "json"):
        with pytest.raises(SystemExit):
            main([command, "requirements.txt", "run.sh", "--gpu", "8xA100-40GB", "--format", form])
        said[form] = capsys.readouterr().out
    first = " ".join(" ".join(said["text"].splitlines()[:8]).split())
    assert 'run.sh:1: passes on "$@"; assumed: no arguments are given' in first
    assert '"reason": "passes on \\"$@\\"; assumed: no arguments are given"' in said["json"]


STAGE_2 = '{"zero_optimization": {"stage": 2}}'


@pytest.mark.parametrize(
    "change",
    [
        """sed -i 's/"stage": 2/"stage": 3/' ds.json""",
        "jq .zero_optimization.stage=3 ds.json > t.json && mv t.json ./ds.json",
        "cp other.json ds.json",
        "ln -sf other.json ds.json",
        "envsubst < ds.template > ds.json",
        "echo ' ' >> ds.json",
        "python - <<'E'\nimport json\njson.dump(made(), open('ds.json', 'w'))\nE",
        'if [ -n "$BIG" ]; then sed -i s/2/3/ ds.json; fi',
    ],
)
def test_a_file_that_the_script_changes_is_not_read_as_it_lies_there(
    change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ds.json").write_text(STAGE_2)
    command = "torchrun train.py --deepspeed ds.json --per_device_train_batch_size 1 --gradient_checkpointing --output_dir o\n"
    Path("train.sh").write_text(f"{change}\n{command}")
    code, report = check(capsys, "train.sh", "requirements.txt")
    assert code == 4
    assert [one["source"].partition(" (")[2] for one in report["skipped"] if "on the way" in one["reason"]] == [
        "deepspeed)"
    ]
    Path("train.sh").write_text(f"{command}{change.replace('ds.json', 'copy.json')}\n")
    assert check(capsys, "train.sh", "requirements.txt")[0] == 0


@pytest.mark.parametrize("batch", ["$BATCH", "3"])
def test_a_configuration_that_the_script_writes_is_read_as_it_writes_it(
    batch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: full\noutput_dir: o\n"
    Path("sft.yaml").write_text(f"{text}per_device_train_batch_size: 2\n")
    Path("train.sh").write_text(
        f"BATCH=3\ncat > sft.yaml <<E\n{text}per_device_train_batch_size: {batch}\nE\nllamafactory-cli train sft.yaml\n"
    )
    with pytest.raises(SystemExit):
        main(["facts", "train.sh", "requirements.txt", "--format", "json"])
    facts = {one["name"]: one for one in json.loads(capsys.readouterr().out)["subjects"][0]["facts"]}
    assert facts["training.micro_batch_size"]["value"] == 3


OWN = """\
import argparse, json
from argparse import Namespace
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int)
args = parser.parse_args()
{change}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
taken = TrainingArguments(output_dir="o", per_device_train_batch_size=args.per_device_train_batch_size)
Trainer(model=model, args=taken).train()
"""
PARSED = """\
import dataclasses, json
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
{change}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model=model, args=args).train()
"""


def micro_batch_size(capsys: pytest.CaptureFixture[str]) -> Any:
    command = "torchrun --nproc_per_node 2 train.py --per_device_train_batch_size 2 --output_dir o\n"
    Path("train.sh").write_text(command)
    with pytest.raises(SystemExit):
        main(["facts", "train.sh", "requirements.txt", "--format", "json"])
    facts = {one["name"]: one["value"] for one in json.loads(capsys.readouterr().out)["subjects"][0]["facts"]}
    return facts.get("training.micro_batch_size")


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ("args.learning_rate = 1", 2),
        ("other = Namespace(); other.per_device_train_batch_size = 16", 2),
        ("args.per_device_train_batch_size = 16", None),
        ("for k, v in json.load(f).items():\n    setattr(args, k, v)", None),
        ("vars(args).update(json.load(f))", None),
        ("for k in more:\n    args.__dict__[k] = more[k]", None),
        ("args = Namespace(**json.load(f))", None),
        ("args = OmegaConf.merge(vars(args), more)", None),
        ("alias = args\nalias.per_device_train_batch_size = 16", None),
        ("def fix(a):\n    a.per_device_train_batch_size = 16\nfix(args)", None),
        ("for a in [args]:\n    a.per_device_train_batch_size = 16", None),
    ],
)
def test_options_that_a_script_changes_are_not_those_of_its_command(
    change: str, known: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text(OWN.format(change=change))
    assert micro_batch_size(capsys) == known


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ("", 2),
        ("setattr(args, 'learning_rate', 1)", 2),
        ("for k, v in json.load(f).items():\n    setattr(args, k, v)", None),
        ("vars(args).update(json.load(f))", None),
        ("args.__dict__.update(json.load(f))", None),
        ("args = dataclasses.replace(args, **json.load(f))", None),
        ("for one in (args, more):\n    one.per_device_train_batch_size = 16", 16),
    ],
)
def test_arguments_that_a_script_sets_by_names_of_which_nobody_knows(
    change: str, known: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text(PARSED.format(change=change))
    assert micro_batch_size(capsys) == known


@pytest.mark.parametrize(
    "change",
    ["def fix(o):\n    o['per_device_train_batch_size'] = 16\nfix(options)", "same = options\nsame['bf16'] = True"],
)
def test_a_mapping_that_is_changed_by_another_name_tells_nothing(
    change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = "options = dict(output_dir='o', per_device_train_batch_size=1)"
    text = PARSED.replace("args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()", made)
    text = text.replace("args=args", "args=TrainingArguments(**options)")
    Path("train.py").write_text(text.format(change=change))
    with pytest.raises(SystemExit):
        main(["facts", "train.py", "requirements.txt", "--format", "json"])
    facts = [one["name"] for one in json.loads(capsys.readouterr().out)["subjects"][0]["facts"]]
    assert "training.micro_batch_size" not in facts
