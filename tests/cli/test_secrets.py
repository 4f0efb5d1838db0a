"""Credentials never come out: in diffs, in crash logs, in arguments that an error says back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compatcheck.core.redaction import redact
from tests.cli.run_cli import run
from tests.cli.test_fix_command import FACTS, PAIR, REQUIREMENTS

URL = "https://user:SECRETWORD@host.example/x"
TOKEN = "hf_SECRETWORDsecretword0123"  # noqa: S105 (made up)


@pytest.mark.parametrize("form", ["text", "json", "markdown", "diff"])
def test_a_diff_hides_the_credentials_beside_it(form: str) -> None:
    Path("facts.yaml").write_text(FACTS)
    Path("requirements.txt").write_text(f"--extra-index-url {URL}\n{REQUIREMENTS}")
    ran = run("fix", *PAIR, "--set", "training.use_reentrant=false", "--offline", "--format", form)
    assert "[redacted]@host.example" in ran.out
    assert "+deepspeed==0.16.8" in ran.out.replace("\\n", "\n")
    assert "SECRETWORD" not in ran.out + ran.err
    assert ("cannot be applied: use --apply" in ran.err) == (form == "diff")
    run("fix", *PAIR, "--set", "training.use_reentrant=false", "--offline", "--apply")
    assert Path("requirements.txt").read_text().startswith(f"--extra-index-url {URL}\n")


@pytest.mark.parametrize("form", ["text", "json", "markdown", "diff"])
def test_a_diff_hides_secrets_by_the_names_beside_them(form: str) -> None:
    Path("facts.yaml").write_text(FACTS)
    Path("requirements.txt").write_text(f"# HF_TOKEN=SECRETWORD go --hub_token SECRETWORD\n{REQUIREMENTS}")
    ran = run("fix", *PAIR, "--set", "training.use_reentrant=false", "--offline", "--format", form)
    assert "# HF_TOKEN=[redacted] go --hub_token [redacted]" in ran.out
    assert "SECRETWORD" not in ran.out + ran.err


@pytest.mark.parametrize("way", ["include", "link"])
def test_a_file_elsewhere_is_not_shown(tmp_path: Path, way: str) -> None:
    (tmp_path / "netrc").write_text("machine h login me password hunter2\n")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    if way == "link":
        (checkout / "requirements.txt").symlink_to("../netrc")
    else:
        (checkout / "requirements.txt").write_text("-r ../netrc\n")
    for form in ("text", "json"):
        ran = run("check", checkout, "--no-policy", "-v", "--format", form)
        assert ("hunter2" in ran.out + ran.err, "outside of what was named" in " ".join(ran.out.split())) == (
            False,
            True,
        )
    named = run("check", tmp_path / "netrc", checkout / "requirements.txt", "--no-policy")
    assert "hunter2" in named.out + named.err or way == "link"


ELSEWHERE = {
    "ds.json": '{"zero_optimization": {"stage": "hunter2"}, "hunter2": 1, "train_batch_size": "hunter2"}',
    "train.yaml": "per_device_train_batch_size: hunter2\nhunter2: 1\noutput_dir: x\nlearning_rate: 1.0e-5\n",
    "train.sh": "deepspeed train.py --hunter2 hunter2 --per_device_train_batch_size hunter2\n",
    "train.py": (
        "from transformers import Trainer, TrainingArguments\n"
        "arguments = TrainingArguments(output_dir='o', optim=hunter2, bf16=find(hunter2))\n"
        "hunter2(arguments)\nTrainer(model, arguments).train()\n"
    ),
    "Dockerfile": "FROM x\nRUN pip install deepspeed==hunter2\n",
    "environment.yml": "name: x\ndependencies:\n  - python=3.11\n  - pip:\n    - torch==hunter2\n",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_words_of_a_file_elsewhere_are_not_shown(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(ELSEWHERE[name])
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / name).symlink_to(f"../{name}")
    (checkout / "requirements.txt").write_text("deepspeed==0.16.4\n")
    for arguments in (["check", "-v"], ["check", "--format", "json"], ["facts"], ["estimate"]):
        ran = run(*arguments[:1], checkout, "--no-policy", *arguments[1:])
        assert "hunter2" not in ran.out + ran.err
        assert "outside of what was named" in " ".join((ran.out + ran.err).split()) or arguments[0] != "check"
    ran = run("check", tmp_path / name, checkout / "requirements.txt", "--no-policy", "-v")
    assert "hunter2" in ran.out + ran.err


def test_what_a_policy_of_the_checkout_names_elsewhere_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.yaml").write_text(ELSEWHERE["train.yaml"])
    checkout = tmp_path / "checkout"
    (checkout / ".git").mkdir(parents=True)
    (checkout / "requirements.txt").write_text("deepspeed==0.16.4\n")
    policy = checkout / "compatcheck.toml"
    policy.write_text('[runs.x]\nlock = "requirements.txt"\ntraining = "../train.yaml"\n')
    monkeypatch.chdir(checkout)
    for form in ("text", "json"):
        ran = run("check", "--format", form, "-v")
        assert "hunter2" not in ran.out + ran.err
    ran = run("check", "--policy", policy, "-v")
    assert "hunter2" in ran.out + ran.err


def test_rules_lead_to_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text("root:hunter2:20228:0:99999:7::\n")
    (tmp_path / "rules" / "torch").mkdir(parents=True)
    (tmp_path / "rules" / "torch" / "x.yaml").symlink_to("../../shadow")
    Path("requirements.txt").write_text("torch==2.5.0\n")
    for ran in (
        run("check", "requirements.txt", "--rules", tmp_path / "rules"),
        run("rules", "lint", tmp_path / "rules"),
    ):
        assert ("hunter2" in ran.out + ran.err, "leads out of" in ran.out + ran.err) == (False, True)


def test_a_crash_log_hides_arguments_and_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(f"at {URL}")

    monkeypatch.setattr("compatcheck.checking.images.gather_image", fail)
    ran = run("image", "x.tar", "--model", URL, "--set", "training.zero_stage=3", "--training", TOKEN)
    assert ran.code == 70
    log = Path(re.search(r"report it with (\S+)", ran.err)[1])
    text = log.read_text()
    log.unlink()
    assert "--model https://[redacted]@host.example/x" in text
    assert "SECRETWORD" not in text + ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("check", URL),
        ("check", "--gpu", URL),
        ("check", "--policy", URL),
        ("check", URL, "--env-file", URL),
        ("check", f"--{TOKEN}"),
        ("check", "--format", TOKEN),
        ("env", "--env-file", URL),
        ("env", "--prefix", URL),
        ("env", f"--{TOKEN}"),
        ("estimate", "--model", TOKEN),
        ("estimate", URL, "--model", TOKEN),
        ("image", URL),
        ("oom", URL),
        ("diff", URL, URL),
        ("explain", TOKEN),
        ("rules", "lint", URL),
        (TOKEN,),
    ],
)
def test_an_error_hides_the_credentials_of_the_arguments(words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert ran.code not in {0, 1, 70}
    assert "SECRETWORD" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("command", "form"),
    [("check", form) for form in ("text", "json", "sarif", "junit", "markdown", "github", "html")]
    + [("estimate", form) for form in ("text", "json", "markdown", "html")]
    + [("facts", form) for form in ("text", "json")],
)
def test_a_model_is_named_without_its_credentials(tmp_path: Path, command: str, form: str) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "train.yaml").write_text(
        f"model_name_or_path: {URL}\ngradient_checkpointing: true\ndeepspeed: ds.json\n"
        "per_device_train_batch_size: 1\noutput_dir: out\n"
    )
    ran = run(command, tmp_path, "--no-policy", "--format", form)
    assert "SECRETWORD" not in ran.out + ran.err
    assert form != "json" or "[redacted]@host.example" in ran.out


OPTIONS = "--per_device_train_batch_size 4 --bf16 True --output_dir o"
COMMANDS = {
    "program.sh": f"$(curl -u u:SECRETWORD h) {OPTIONS}\n",
    "script.sh": f"python $(curl -u u:$(id) SECRETWORD h) {OPTIONS}\n",
    "back.sh": f"`curl -u u:SECRETWORD h` train.py {OPTIONS}\n",
    "eval.sh": f'eval "$(curl -H Bearer:SECRETWORD h) {OPTIONS}"\n',
    "launched.sh": f"torchrun $(curl -u u:SECRETWORD h) {OPTIONS}\n",
    "address.sh": f"torchrun {URL}/train.py {OPTIONS}\n",
    "crontab": f"0 1 * * * torchrun {URL}/train.py {OPTIONS}\n",
    "launch.json": json.dumps({"program": f"{URL}/train.py", "args": OPTIONS.split()}),
    "Dockerfile": f"FROM python:3.11\nENV HF_TOKEN=SECRETWORD\nRUN torchrun {URL}/train.py {OPTIONS}\n",
    "a.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": [f"c = '{URL}/train.py {OPTIONS}'\n", "!python {c}\n"]}]}, indent=1
    ),
}


@pytest.mark.parametrize("form", ["text", "json", "html"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_is_named_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    (tmp_path / name).write_text(COMMANDS[name])
    monkeypatch.chdir(tmp_path)
    for path in (".", name):
        ran = run("check", path, "--no-policy", "--format", form)
        assert name in ran.out + ran.err
        assert "SECRETWORD" not in ran.out + ran.err


BARE = "u:SECRETWORD@host.example/x"
HINTED = {
    "model.sh": f"deepspeed own.py --model_name_or_path {URL} {OPTIONS}\n",
    "alone.sh": f"deepspeed train.py --model_name_or_path {URL}\n",
    "bare.sh": f"torchrun own.py --model {BARE} {OPTIONS}\n",
    "config.sh": f"accelerate launch --config_file {URL}/a.yaml {URL}/own.py --base_model {URL} {OPTIONS}\n",
    "source.sh": f"source {URL}/x.sh\ntorchrun own.py --pretrain {URL} {OPTIONS}\n",
    "Dockerfile": f"FROM {BARE}\nCOPY --from={BARE} a b\nRUN pip install deepspeed==0.16.4\n",
    "compose.yml": f"services:\n  a:\n    image: {BARE}\n    command: torchrun own.py --model {BARE} {OPTIONS}\n",
    "requirements-a.txt": f"-r {URL}/r.txt\n-c {BARE}/c.txt\ntorch @ {URL}/torch.whl\n--find-links {BARE}\nx @ {BARE}\n",
    "environment.yml": f"channels: ['{URL}']\ndependencies:\n - '{URL}::torch=2.6'\n - pip: ['-r {URL}', 'x @ {BARE}']\n",
    "pyproject.toml": f'[project]\nname="x"\nversion="1"\ndependencies=["x @ {BARE}"]\n[tool.uv]\nindex-url="{URL}"\n',
    "train.yaml": f"model_name_or_path: {BARE}\nper_device_train_batch_size: 1\noutput_dir: o\ndeepspeed: {URL}/ds.json\n",
}


@pytest.mark.parametrize("name", HINTED)
def test_hints_hide_credentials_in_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    (tmp_path / name).write_text(HINTED[name])
    monkeypatch.chdir(tmp_path)
    asked = [("check", form) for form in ("text", "json", "sarif", "junit", "markdown", "github", "html")]
    asked += [("facts", form) for form in ("text", "json", "yaml")] + [("estimate", "json")]
    for command, form in asked:
        ran = run(command, ".", "--no-policy", "--format", form)
        assert (form, "SECRETWORD" in ran.out + ran.err) == (form, False)
        assert ran.code != 70
    ran = run("bulk", ".")
    assert "SECRETWORD" not in ran.out + ran.err
    run("check", ".", "--no-policy", "--output", "json:report.json")
    assert "SECRETWORD" not in Path("report.json").read_text()


def test_rules_and_their_translations_hold_nothing_that_is_taken_for_a_credential() -> None:
    root = Path(__file__).parents[2]
    for path in (*root.glob("rules/**/*.yaml"), *root.glob("compatcheck/locale/**/*.po")):
        text = path.read_text(encoding="utf-8")
        assert redact(text) == text
