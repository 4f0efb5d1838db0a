"""A commit is held to what `check` says: the runs of the policy that read one of its files, whole, with their own names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import ROOT
from tests.cli.run_cli import run

POLICY = """[runs.train]
lock = "requirements.txt"
training = "configs/train.yaml"
model = "configs/config.json"
env-file = "run.env"
gpu = "8xH100-80GB"
nodes = 8

[runs.other]
paths = ["other"]
model = "llama-3-8b"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "compatcheck.toml": POLICY,
        "requirements.txt": "-r base.txt\ntransformers==4.57.6\n",
        "base.txt": "torch==2.5.1\ndeepspeed==0.16.8\n",
        "run.env": "NCCL_DEBUG=INFO\n",
        "configs/train.yaml": "output_dir: out\nmodel_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndeepspeed: ds.json\nbf16: true\n"
        "per_device_train_batch_size: 1\ngradient_checkpointing: true\n",
        "configs/ds.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n',
        "other/requirements.txt": "torch==2.9.0\n",
        "apart/requirements.txt": "torch==2.8.0\n",
        "web/app.json": '{"name": "web"}\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "fixtures/cases/openrlhf-llama3-70b/config.json", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outcome(*arguments: str) -> tuple[int, list[str], list[str], int]:
    """Return what a command comes to: exit code, subjects, what was not read, and how much of it is counted."""
    ran = run(*arguments, "--format", "json")
    data = json.loads(ran.out)
    skipped = [f"{entry['source']}: {entry['reason']}" for entry in data["skipped"]]
    assert data["summary"]["exit_code"] == ran.code
    return ran.code, [subject["id"] for subject in data["subjects"]], skipped, data["summary"]["not_checked"]


TRAIN = ("requirements.txt", "base.txt", "configs/train.yaml", "configs/ds.json", "configs/config.json", "run.env")


@pytest.mark.parametrize("name", TRAIN)
def test_any_file_of_a_run_checks_that_run_as_it_is_named(project: Path, name: str) -> None:
    assert (project / name).exists()
    assert outcome("check", "--hook", name) == outcome("check", "--run", "train")
    assert outcome("check", "--hook", name)[1] == ["train: requirements.txt"]


def broken(project: Path, what: str) -> None:
    """Break one input of the run."""
    policy = project / "compatcheck.toml"
    match what:
        case "half-read configuration":
            (project / "configs/ds.json").write_text('{"zero_optimization": {"stage": "three"}}', "utf-8")
        case "truncated configuration":
            (project / "configs/ds.json").write_text('{"zero_optimization": {"sta', "utf-8")
        case "device":
            policy.write_text(POLICY.replace("8xH100-80GB", "8xQ9000"), "utf-8")
        case _:
            (project / what).unlink()


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("configs/config.json", 4),
        ("configs/train.yaml", 4),
        ("run.env", 4),
        ("configs/ds.json", 4),
        ("base.txt", 4),
        ("half-read configuration", 4),
        ("truncated configuration", 4),
        ("device", 2),
    ],
)
def test_a_broken_run_fails_the_commit_as_it_fails_the_check(project: Path, what: str, code: int) -> None:
    broken(project, what)
    if code == 2:
        assert run("check", "--hook", "requirements.txt").code == run("check", "--run", "train").code == 2
        return
    found = outcome("check", "--hook", "requirements.txt")
    assert found == outcome("check", "--run", "train")
    assert found[0] == code
    assert found[1] == ["train: requirements.txt"]
    assert found[3] == len(found[2]) >= 1


def test_a_broken_run_fails_no_commit_of_something_else(project: Path) -> None:
    (project / "configs/config.json").unlink()
    assert outcome("check", "--hook", "other/requirements.txt") == outcome("check", "--run", "other")
    assert outcome("check", "--hook", "web/app.json") == (0, [], [], 0)
    (project / "apart/new.txt").write_text("", "utf-8")
    assert outcome("check", "--hook", "apart/requirements.txt")[:2] == (0, ["apart/requirements.txt"])


def test_the_policy_belongs_to_every_run(project: Path) -> None:
    assert outcome("check", "--hook", "compatcheck.toml") == outcome("check")
    (project / "configs/config.json").unlink()
    assert outcome("check", "--hook", "compatcheck.toml") == outcome("check")
    assert outcome("check", "--hook", "compatcheck.toml")[0] == 4


@pytest.mark.usefixtures("project")
def test_files_beside_the_runs_are_checked_by_themselves() -> None:
    found = outcome("check", "--hook", "apart/requirements.txt", "requirements.txt")
    assert found[1] == ["train: requirements.txt", "apart/requirements.txt"]
    assert outcome("check", "--hook", "--run", "train", "apart/requirements.txt") == (0, [], [], 0)


def test_a_manifest_belongs_to_the_run_of_its_lock(project: Path) -> None:
    policy = POLICY.replace('lock = "requirements.txt"', 'lock = "uv.lock"')
    (project / "compatcheck.toml").write_text(policy, "utf-8")
    (project / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n', "utf-8")
    (project / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "x"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "torch" }]\n[[package]]\nname = "torch"\nversion = "2.6.0"\n',
        "utf-8",
    )
    assert outcome("check", "--hook", "pyproject.toml") == outcome("check", "--run", "train")


def test_what_the_walk_of_a_commit_could_not_read_is_counted(project: Path) -> None:
    (project / "compatcheck.toml").unlink()
    (project / "configs/ds2.json").write_text('{"zero_optimization": {"sta', "utf-8")
    code, _, skipped, count = outcome("check", "--hook", "requirements.txt")
    assert code == 0
    assert [entry for entry in skipped if entry.startswith("configs/ds2.json")]
    assert count == outcome("check", ".")[3]


def test_an_environment_that_the_hook_is_told_takes_part(project: Path) -> None:
    (project / "compatcheck.toml").unlink()
    (project / "venv/lib/python3.11/site-packages/vllm-0.8.0.dist-info").mkdir(parents=True)
    metadata = project / "venv/lib/python3.11/site-packages/vllm-0.8.0.dist-info/METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.8.0\n", "utf-8")
    (project / "venv/pyvenv.cfg").write_text("version = 3.11.7\nhome = /usr/bin\n", "utf-8")
    ran = run("check", "--hook", "--prefix", "venv", "apart/requirements.txt", "--format", "json")
    (subject,) = json.loads(ran.out)["subjects"]
    assert "vllm" in {package["name"] for package in subject["environment"]["packages"]}
    assert run("check", "--hook", "--prefix", "nowhere", "apart/requirements.txt").code == 4


def test_a_link_in_place_of_a_directory_touches_what_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/requirements.txt").write_text("torch==2.6.0\n", encoding="utf-8")
    (tmp_path / "lists").symlink_to("old")
    monkeypatch.chdir(tmp_path)
    report = json.loads(run("check", "--hook", "lists", "--format", "json").out)
    assert [subject["id"] for subject in report["subjects"]] == ["old/requirements.txt"]


BAD = "deepspeed==0.16.4\ntorch==2.6.0\ntransformers==4.49.0\n"
RUN = {
    "requirements.txt": BAD,
    "facts.yaml": "compatcheck: 1\nmodel: llama-3-70b\n"
    "training: {zero_stage: 3, gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}\n",
    "web/app.json": '{"name": "web"}\n',
}
SCRIPT = (
    "deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen2.5-32B-Instruct --deepspeed ds.json --bf16 true"
)
PARTS = {
    "included": ("deps/gpu.list", {"requirements.txt": "-r deps/gpu.list\n", "deps/gpu.list": BAD}),
    "a list by its name": (
        "requirements/b.txt",
        {"requirements.txt": "-r requirements/b.txt\n", "requirements/b.txt": BAD},
    ),
    "constraints": (
        "limits/gpu",
        {"requirements.txt": "-c limits/gpu\ndeepspeed\ntorch\ntransformers\n", "limits/gpu": BAD},
    ),
    "included twice": (
        "deps/gpu.list",
        {"requirements.txt": "-r deps/all.list\n", "deps/all.list": "-r gpu.list\n", "deps/gpu.list": BAD},
    ),
    "installed by a Dockerfile": (
        "deps/gpu.list",
        {
            "Dockerfile": "FROM python:3.11\nCOPY . .\nRUN pip install -r deps/gpu.list\n",
            "deps/gpu.list": BAD,
            "requirements.txt": "",
        },
    ),
    "run by a Dockerfile": (
        "deps/install",
        {
            "Dockerfile": "FROM python:3.11\nCOPY . .\nRUN bash deps/install\n",
            "deps/install": f"pip install {' '.join(BAD.split())}\n",
            "requirements.txt": "",
        },
    ),
    "sourced": (
        "conf/common.env",
        {
            "facts.yaml": "",
            "train.sh": f"source conf/common.env\n{SCRIPT} --per_device_train_batch_size $B --gradient_checkpointing true\n",
            "conf/common.env": "B=4\n",
            "ds.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}\n',
        },
    ),
}


def lay_out(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("name", "files"), PARTS.values(), ids=PARTS)
def test_a_part_that_no_name_tells_is_checked_through_what_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out({**RUN, **files})
    whole = outcome("check", ".")
    assert outcome("check", "--hook", name) == whole
    assert whole[1]
    assert outcome("check", "--hook", "web/app.json") == (0, [], [], 0)


def test_a_part_of_a_run_of_the_policy_that_became_a_link_to_nowhere_fails_it(project: Path) -> None:
    (project / "base.txt").unlink()
    (project / "base.txt").symlink_to("nowhere")
    code, subjects, *_ = outcome("check", "--hook", "base.txt")
    assert (code, subjects[0]) == (4, "train: requirements.txt")


@pytest.mark.parametrize("kind", ["garbage", "dangling link", "link to a directory"])
def test_a_part_that_cannot_be_read_fails_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out({"requirements.txt": "-r deps/gpu.list\n", "deps/gpu.list": "???\n", "web/app.json": "{}"})
    if kind != "garbage":
        Path("deps/gpu.list").unlink()
        Path("deps/gpu.list").symlink_to("../web" if "directory" in kind else "nowhere")
    code, _, skipped, count = outcome("check", "--hook", "--fail-unread", "deps/gpu.list")
    assert (code, count) == (4, 1), skipped
    assert outcome("check", "--hook", "--fail-unread", "web/app.json") == (0, [], [], 0)


def test_a_module_that_a_script_takes_its_arguments_from_is_part_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("torch==2.6.0\ndeepspeed==0.16.4\ntransformers==4.49.0\n")
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    Path("ours.py").write_text(
        "import transformers\nfrom dataclasses import dataclass\n@dataclass\n"
        "class TrainingArguments(transformers.TrainingArguments):\n    gradient_checkpointing: bool = True\n"
    )
    Path("train.py").write_text(
        "import transformers\nfrom transformers import Trainer\nfrom ours import TrainingArguments\n"
        "parser = transformers.HfArgumentParser(TrainingArguments)\n(args,) = parser.parse_args_into_dataclasses()\n"
        "trainer = Trainer(model=model, args=args)\ntrainer.train()\n"
    )
    for script in (True, False):
        if script:
            Path("go.sh").write_text("torchrun --nproc_per_node 8 train.py --deepspeed ds.json --bf16 --output_dir o\n")
        else:
            Path("go.sh").unlink()
        for name in ("ours.py", "train.py"):
            report = json.loads(run("check", "--hook", name, "--format", "json").out)
            assert [one["id"] for one in report["subjects"] if "go.sh" in one["id"] or "train.py" in one["id"]], name
    Path("other.py").write_text("x = 1\n")
    assert not json.loads(run("check", "--hook", "other.py", "--format", "json").out)["subjects"]
