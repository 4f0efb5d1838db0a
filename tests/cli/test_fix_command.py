"""`compatcheck fix`: the changes, their diff, and what stays; with the real uv on an index of tiny wheels where it is there."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.version import Version

from compatcheck.fixing import plan as fixing
from compatcheck.fixing.plan import Ways
from compatcheck.fixing.resolver import UvResolver
from tests import ROOT
from tests.cli import run_cli
from tests.cli.run_cli import Ran, run

REQUIREMENTS = "# pins\ndeepspeed==0.16.4  # the one we tested\ntorch==2.5.1\n"
FACTS = """\
compatcheck: 1
training:
  zero_stage: 3
  gradient_checkpointing: true
  use_reentrant: false
  param_dtype: bfloat16
model:
  parameters_in_blocks: 7000000000
hardware:
  world_size: 8
"""
RULE = "deepspeed/zero3-params-kept-in-backward"
PAIR = ("requirements.txt", "facts.yaml", "--select", RULE)
STATED = ("--set", "training.use_reentrant=false")
"""What an option states no edit of a file changes: releases alone clear the finding."""

needs_uv = pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Path("requirements.txt").write_text(REQUIREMENTS)
    Path("facts.yaml").write_text(FACTS)
    monkeypatch.setattr(
        fixing, "find_ways", lambda *, offline, **_: Ways(None, None, "--offline" if offline else "no index")
    )
    return tmp_path


def make_wheel(directory: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> None:
    plain = name.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata = "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires), ""])
    with zipfile.ZipFile(directory / f"{plain}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


Index = Callable[[Mapping[str, Mapping[str, tuple[str, ...]]]], None]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Return a function that makes an index of wheels, name → version → requirements, the only one uv sees."""

    def make(packages: Mapping[str, Mapping[str, tuple[str, ...]]]) -> None:
        directory = tmp_path / "wheels"
        directory.mkdir()
        for name, versions in packages.items():
            for version, requires in versions.items():
                make_wheel(directory, name, version, requires)
        for name in [name for name in os.environ if name.startswith("UV_")]:
            monkeypatch.delenv(name)
        empty = tmp_path / "simple"
        empty.mkdir()
        variables = {"UV_DEFAULT_INDEX": empty.as_uri(), "UV_FIND_LINKS": str(directory)}
        monkeypatch.setattr("compatcheck.fixing.resolver.uv_variables", lambda: variables)
        monkeypatch.setattr("compatcheck.fixing.resolver._fetch_requirements", lambda *_: ())
        resolver = UvResolver(shutil.which("uv") or "uv")
        monkeypatch.setattr(fixing, "find_ways", lambda *, offline, **_: Ways(None if offline else resolver))

    return make


def fix(*arguments: object) -> dict:
    ran = run("fix", *arguments, "--format", "json")
    assert ran.err == ""
    return {**json.loads(ran.out), "code": ran.code}


def moves(described: dict) -> dict[str, str]:
    return {change["name"]: change["after"] for plan in described["plans"] for change in plan["changes"]}


def apply_diff(ran: Ran) -> None:
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", "apply"], input=ran.out.encode(), check=True)


def test_a_patch_release_is_shown_and_nothing_written() -> None:
    ran = run("fix", *PAIR)
    assert ran.code == 1
    assert "-deepspeed==0.16.4  # the one we tested\n+deepspeed==0.16.8  # the one we tested\n" in ran.out
    assert f"clears    {RULE}" in ran.out
    assert "not checked by a resolver: no index" in " ".join(ran.out.split())
    assert Path("requirements.txt").read_text() == REQUIREMENTS
    body = ran.out.partition("\n\n")[2]
    assert max(map(len, body.splitlines())) <= 80


def test_the_whole_output_applies_with_git_and_clears_the_finding() -> None:
    ran = run("fix", *PAIR)
    apply_diff(ran)
    assert Path("requirements.txt").read_text() == REQUIREMENTS.replace("0.16.4", "0.16.8")
    assert run("check", *PAIR).code == 0
    again = run("fix", *PAIR)
    assert again.code == 0
    assert "nothing to fix" in again.out


def test_apply_writes_and_returns_zero() -> None:
    ran = run("fix", *PAIR, "--apply")
    assert ran.code == 0
    assert Path("requirements.txt").read_text() == REQUIREMENTS.replace("0.16.4", "0.16.8")
    assert "--- a/" not in ran.out


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write everything")
def test_a_file_that_may_not_be_written_is_said() -> None:
    Path("requirements.txt").chmod(0o444)
    assert run("fix", *PAIR, "--apply").code == 4


def test_included_files_are_changed_where_the_pin_stands() -> None:
    Path("base.txt").write_text("deepspeed==0.16.4\r\n")
    Path("requirements.txt").write_text("-r base.txt\ntorch==2.5.1\n")
    described = fix(*PAIR)
    assert described["summary"]["files"] == ["base.txt"]
    assert run("fix", *PAIR, "--apply").code == 0
    assert Path("base.txt").read_bytes() == b"deepspeed==0.16.8\r\n"


def test_constraints_that_forbid_the_release_are_changed_too() -> None:
    Path("constraints.txt").write_text("deepspeed<0.16.6\n")
    Path("requirements.txt").write_text("-c constraints.txt\ndeepspeed==0.16.4\n")
    described = fix(*PAIR)
    assert sorted(described["summary"]["files"]) == ["constraints.txt", "requirements.txt"]
    assert described["summary"]["cleared"] == 1


def test_a_range_gets_a_floor_and_its_upper_bound_moves_only_as_far_as_it_must() -> None:
    Path("requirements.txt").write_text("deepspeed >= 0.16.0, <0.16.7\n")
    assert run("fix", *PAIR, "--apply").code == 0
    assert Path("requirements.txt").read_text() == "deepspeed >= 0.16.8, < 0.16.9\n"


def test_a_range_that_only_may_be_good_clears_nothing() -> None:
    Path("requirements.txt").write_text("deepspeed>=0.16.4,<0.16.8\n")
    described = fix(*PAIR, "--unsafe")
    for change in described["plans"][0]["changes"]:
        assert change["after"] not in {">=0.15.4,<0.16.8", ">=0.16.0,<0.16.8"}
    assert run("fix", *PAIR, "--apply").code == 0
    assert Path("requirements.txt").read_text() == "deepspeed>=0.16.8,<0.16.9\n"
    assert run("check", *PAIR, "--strict").code == 0


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            '[project]\nname = "x"\nversion = "1"\ndependencies = [\n  "deepspeed==0.16.4", # here\n]\n',
            '"deepspeed==0.16.8", # here',
        ),
        (
            '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.5.1", "deepspeed == 0.16.4"]\n',
            '"deepspeed == 0.16.8"]',
        ),
        ('[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\ndeepspeed = "==0.16.4"\n', 'deepspeed = "==0.16.8"'),
    ],
)
def test_projects_are_edited_in_place(table: str, expected: str) -> None:
    Path("requirements.txt").unlink()
    Path("pyproject.toml").write_text(table)
    ran = run("fix", "pyproject.toml", *PAIR[1:], "--apply")
    assert expected in Path("pyproject.toml").read_text()
    assert ran.code == 0


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        (
            "gpu.conda-lock.yml",
            (
                "version: 1\nmetadata:\n  content_hash: {linux-64: aa}\n  channels: []\n  platforms: [linux-64]\n  sources: []\n"
                "package:\n- name: deepspeed\n  version: 0.16.4\n  manager: conda\n  platform: linux-64\n  dependencies: {}\n"
                "  url: https://conda.anaconda.org/conda-forge/linux-64/deepspeed-0.16.4-py311_0.conda\n  hash: {md5: aa}\n"
                "  category: main\n  optional: false\n"
            ),
            "conda-lock lock --lockfile gpu.conda-lock.yml --update deepspeed",
        ),
        (
            "pylock.train.toml",
            'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "deepspeed"\nversion = "0.16.4"\n',
            "uv pip compile pyproject.toml --upgrade-package deepspeed==0.16.8 -o pylock.train.toml",
        ),
        (
            "train.py.lock",
            (
                'version = 1\n[manifest]\nrequirements = [{ name = "deepspeed" }]\n[[package]]\nname = "deepspeed"\n'
                'version = "0.16.4"\nsource = { registry = "https://index.example/simple" }\n'
            ),
            "uv lock --script train.py --upgrade-package deepspeed==0.16.8",
        ),
    ],
)
def test_locks_are_left_to_their_programs(name: str, text: str, command: str) -> None:
    Path("requirements.txt").unlink()
    Path(name).write_text(text)
    described = fix(name, *PAIR[1:], "--apply")
    (change,) = described["plans"][0]["changes"]
    assert change["command"] == command
    assert described["code"] == 1
    assert Path(name).read_text() == text


def test_a_manifest_behind_a_lock_is_changed_once() -> None:
    Path("requirements.txt").unlink()
    Path("facts.yaml").unlink()
    Path("pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\ndependencies = ["deepspeed==0.16.4"]\n')
    entry = '[[package]]\nname = "deepspeed"\nversion = "0.16.4"\ngroups = ["default"]\nfiles = []\n'
    Path("pdm.lock").write_text(
        '[metadata]\ngroups = ["default"]\nlock_version = "4.5.0"\ncontent_hash = "x"\n' + entry
    )
    described = fix(".", "--select", RULE, "--strict", "--fail-on", "low", "--unsafe")
    assert described["diff"].count("+++ b/pyproject.toml") == 1
    assert len(described["plans"]) == 1


def test_the_pin_of_an_extra_is_changed() -> None:
    Path("requirements.txt").unlink()
    text = '[project]\nname = "x"\nversion = "1"\n[project.optional-dependencies]\ntrain = ["deepspeed==0.16.4"]\n'
    Path("pyproject.toml").write_text(text)
    assert run("fix", "pyproject.toml", *PAIR[1:], "--strict", "--apply").code == 0
    assert Path("pyproject.toml").read_text() == text.replace("0.16.4", "0.16.8")


def test_the_pin_of_another_platform_stays() -> None:
    other = 'deepspeed==0.15.4 ; sys_platform == "darwin"\n'
    Path("requirements.txt").write_text('deepspeed==0.16.4 ; sys_platform == "linux"\n' + other)
    assert run("fix", *PAIR, "--apply").code == 0
    assert Path("requirements.txt").read_text() == 'deepspeed==0.16.8 ; sys_platform == "linux"\n' + other


def test_a_pin_that_one_command_has_twice_moves_twice() -> None:
    Path("requirements.txt").unlink()
    text = 'FROM python:3.11\nRUN pip install deepspeed==0.16.4 && pip install "deepspeed==0.16.4"\n'
    Path("Dockerfile").write_text(text)
    assert run("fix", "Dockerfile", *PAIR[1:], "--apply").code == 0
    assert Path("Dockerfile").read_text() == text.replace("0.16.4", "0.16.8")


def test_a_release_that_no_edit_moves_is_said() -> None:
    Path("requirements.txt").unlink()
    Path("Dockerfile").write_text("FROM python:3.11\nARG DS=0.16.4\nRUN pip install deepspeed==${DS}\n")
    (plan,) = fix("Dockerfile", *PAIR[1:], *STATED)["plans"]
    assert plan["changes"] == []
    assert any("Dockerfile:3" in note and "is left alone: no pin stands there" in note for note in plan["notes"])


def test_a_file_with_hashes_is_left_to_the_program_that_made_it() -> None:
    Path("requirements.txt").write_text(
        "# This file is autogenerated by pip-compile with Python 3.11\n#    pip-compile --generate-hashes r.in\n"
        "deepspeed==0.16.4 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    )
    described = fix(*PAIR, "--apply")
    (change,) = described["plans"][0]["changes"]
    assert change["command"] == "pip-compile --generate-hashes r.in --upgrade-package deepspeed==0.16.8"
    assert described["summary"]["files"] == []
    assert described["code"] == 1


def test_a_facts_file_that_states_the_release_is_changed() -> None:
    Path("facts.yaml").write_text(FACTS + "packages:\n  deepspeed: 0.16.4  # ours\n")
    described = fix("facts.yaml", *PAIR[2:])
    assert moves(described) == {"deepspeed": "0.16.8"}
    assert run("fix", "facts.yaml", *PAIR[2:], "--apply").code == 0
    assert 'deepspeed: "0.16.8"  # ours' in Path("facts.yaml").read_text()


def test_a_change_that_alters_training_is_shown_with_its_price_and_written_only_when_asked() -> None:
    Path("requirements.txt").write_text("deepspeed @ file:///wheels/deepspeed-0.16.4-py3-none-any.whl\n")
    described = fix(*PAIR)
    (plan,) = described["plans"]
    (change,) = plan["changes"]
    assert (change["name"], change["after"]) == ("training.use_reentrant", "true")
    assert (change["effect"], change["safe"]) == ("changes training", False)
    assert "+  use_reentrant: true" in described["diff"]
    ran = run("fix", *PAIR)
    assert "costs     changes training" in ran.out
    assert "--apply needs --unsafe" in " ".join(ran.out.split())
    refused = run("fix", *PAIR, "--apply")
    assert refused.code == 2
    assert "training.use_reentrant (changes training)" in refused.err
    assert Path("facts.yaml").read_text() == FACTS
    assert run("fix", *PAIR, "--unsafe", "--apply").code == 0
    assert Path("facts.yaml").read_text() == FACTS.replace("use_reentrant: false", "use_reentrant: true")


def test_waived_findings_are_not_fixed() -> None:
    Path("compatcheck.toml").write_text(f'[[waivers]]\nrule = "{RULE}"\nreason = "known"\n')
    ran = run("fix", *PAIR[:2], "--select", RULE)
    assert ran.code == 0
    assert "nothing to fix" in ran.out


def test_possible_findings_count_only_under_strict() -> None:
    Path("facts.yaml").write_text(FACTS.replace("  use_reentrant: false\n", ""))
    assert run("fix", *PAIR).code == 0
    described = fix(*PAIR, "--strict")
    assert described["summary"]["failing"] == 1
    assert moves(described) == {"deepspeed": "0.16.8"}


def test_markdown_and_files() -> None:
    ran = run("fix", *PAIR, "--format", "markdown", "--output", "diff:out.patch")
    assert "```diff\n--- a/requirements.txt\n" in ran.out
    assert Path("out.patch").read_text().startswith("--- a/requirements.txt\n+++ b/requirements.txt\n@@ ")


def test_nothing_to_check_and_missing_files() -> None:
    assert run("fix", "nowhere.txt").code == 4
    Path("empty").mkdir()
    assert run("fix", "empty").code == 3
    assert run("fix", "-", "--apply").code == 2


@needs_uv
def test_uv_checks_that_the_releases_fit(index: Index) -> None:
    index({"torch": {"2.5.1": ()}, "deepspeed": {"0.16.4": (), "0.16.8": ("torch",)}})
    described = fix(*PAIR)
    (plan,) = described["plans"]
    assert plan["resolution"]["verdict"] == "resolved"
    assert moves(described) == {"deepspeed": "0.16.8"}  # 0.16.9 is known and not on this index
    assert run("check", *PAIR).code == 1


@needs_uv
def test_a_pin_of_another_package_moves_with_it(index: Index) -> None:
    Path("requirements.txt").write_text("openrlhf==0.6.1\ndeepspeed==0.16.4\n")
    index(
        {
            "deepspeed": {"0.16.4": (), "0.16.5": (), "0.16.8": (), "0.16.9": ()},
            "openrlhf": {
                "0.6.1": ("deepspeed==0.16.4",),
                "0.6.4": ("deepspeed==0.16.5",),
                "0.8.1": ("deepspeed==0.16.8",),
            },
        }
    )
    described = fix(*PAIR)
    assert moves(described) == {"deepspeed": "0.16.8", "openrlhf": "0.8.1"}
    (plan,) = described["plans"]
    assert plan["resolution"]["verdict"] == "resolved"
    assert [change["follows"] for change in plan["changes"]] == [False, True]
    assert "openrlhf 0.6.1 requires deepspeed==0.16.4" in plan["changes"][1]["why"]
    assert described["summary"]["cleared"] == 1


@needs_uv
def test_a_pin_that_only_the_index_knows_moves_with_it(index: Index) -> None:
    Path("requirements.txt").write_text("accelerate==1.2.0\ndeepspeed==0.16.4\n")
    index(
        {
            "deepspeed": {"0.16.4": (), "0.16.8": (), "0.16.9": ()},
            "accelerate": {"1.2.0": ("deepspeed==0.16.4",), "1.3.0": ("deepspeed==0.16.8",)},
        }
    )
    described = fix(*PAIR, *STATED)
    assert moves(described) == {"deepspeed": "0.16.8", "accelerate": "1.3.0"}
    assert described["plans"][0]["resolution"]["verdict"] == "resolved"


@needs_uv
def test_unresolvable_is_a_result_with_uvs_reason(index: Index) -> None:
    Path("requirements.txt").write_text("holder==1.0\ndeepspeed==0.16.4\n")
    index({"holder": {"1.0": ("deepspeed==0.16.4",)}, "deepspeed": {"0.16.4": (), "0.16.8": (), "0.16.9": ()}})
    described = fix(*PAIR, *STATED)
    (plan,) = described["plans"]
    assert (moves(described), described["diff"]) == ({}, "")
    (left,) = plan["remaining"]
    assert left["reason"].startswith("unresolvable: deepspeed 0.16.8 would clear it, but ")
    assert "all versions of holder depend on deepspeed==0.16.4" in left["reason"]
    assert described["code"] == 1


@needs_uv
def test_a_setting_takes_the_place_of_a_release_that_uv_refuses(index: Index) -> None:
    Path("requirements.txt").write_text("holder==1.0\ndeepspeed==0.16.4\n")
    index({"holder": {"1.0": ("deepspeed==0.16.4",)}, "deepspeed": {"0.16.4": (), "0.16.8": ()}})
    described = fix(*PAIR)
    assert moves(described) == {"training.use_reentrant": "true"}
    assert described["plans"][0]["remaining"] == []


@needs_uv
def test_a_project_that_does_not_resolve_as_it_is_tells_nothing(index: Index) -> None:
    index({"deepspeed": {"0.16.4": (), "0.16.9": ()}})
    (plan,) = fix(*PAIR)["plans"]
    assert plan["resolution"]["verdict"] == "not checked"
    assert plan["resolution"]["detail"].startswith("the project as it is does not resolve")


@needs_uv
def test_uv_rewrites_its_own_lock(index: Index, tmp_path: Path) -> None:
    index({"deepspeed": {"0.16.4": (), "0.16.9": ("torch",)}, "torch": {"2.5.1": ()}})
    Path("requirements.txt").unlink()
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = ["deepspeed>=0.16"]\n'
    pinned = project.replace(">=0.16", "==0.16.4")
    Path("pyproject.toml").write_text(pinned)
    command = ["uv", "lock", "--offline", "--no-index", "--find-links", str(tmp_path / "wheels"), "-q"]
    subprocess.run(command, check=True)
    described = fix("uv.lock", *PAIR[1:])
    assert sorted(described["summary"]["files"]) == ["pyproject.toml", "uv.lock"]
    (plan,) = described["plans"]
    assert plan["resolution"]["moved"] == [{"name": "torch", "before": None, "after": "2.5.1"}]
    assert run("fix", "uv.lock", *PAIR[1:], "--apply").code == 0
    assert run("check", "uv.lock", *PAIR[1:]).code == 0
    subprocess.run([*command, "--check"], check=True)


def test_of_an_installed_environment_only_the_command_is_shown(tmp_path: Path) -> None:
    info = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "deepspeed-0.16.4.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.16.4\n")
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    arguments = ("--prefix", "env", "--training", "facts.yaml", "--select", RULE)
    assert run("env", *arguments).code == 1
    described = fix(*arguments, "--apply")
    (change,) = described["plans"][0]["changes"]
    assert change["command"] == "uv pip install 'deepspeed==0.16.8'"
    assert (described["diff"], described["code"]) == ("", 1)
    assert (info / "METADATA").exists()


def test_a_setting_is_written_into_the_file_of_its_program() -> None:
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    text = (
        "per_device_train_batch_size: 4\nlearning_rate: 1.0e-5\noutput_dir: out\ngradient_checkpointing_kwargs:\n"
        "  use_reentrant: false  # as the docs say\ndeepspeed: ds.json\ngradient_checkpointing: true\nbf16: true\n"
    )
    Path("train.yaml").write_text(text)
    Path("requirements.txt").write_text(
        "deepspeed @ file:///w/deepspeed-0.16.4-py3-none-any.whl\ntransformers==4.48.0\n"
    )
    arguments = ("requirements.txt", "train.yaml", "--select", RULE, "--model", "llama-3-8b", "--gpu", "8xH100-80GB")
    assert run("check", *arguments).code == 1
    assert run("fix", *arguments, "--unsafe", "--apply").code == 0
    assert Path("train.yaml").read_text() == text.replace("use_reentrant: false", "use_reentrant: true")
    assert run("check", *arguments).code == 0


@pytest.mark.parametrize(
    ("name", "release", "text"),
    [
        ("environment.yml", "0.16.8", "name: x\ndependencies:\n  - python=3.11\n  - deepspeed=0.16.4  # conda\n"),
        ("Dockerfile", "0.16.8", 'FROM python:3.11\nRUN pip install "torch==2.5.1" \\\n    deepspeed==0.16.4\n'),
    ],
)
def test_pins_of_other_files_are_edited_on_their_line(name: str, release: str, text: str) -> None:
    Path(name).write_text(text)
    assert run("fix", name, *PAIR[1:], "--apply").code == 0
    assert Path(name).read_text() == text.replace("0.16.4", release)


def test_advisories_are_not_its_business() -> None:
    assert run("fix", *PAIR, "--security").code == 2


CASES = ROOT / "fixtures" / "cases"


def test_a_setting_to_be_made_by_hand_counts_with_what_is_written() -> None:
    shutil.copy(CASES / "qwen1.5-32b-8xa800" / "facts.yaml", "facts.yaml")
    arguments = ("requirements.txt", "facts.yaml", "--set", "training.gradient_checkpointing=false")
    Path("requirements.txt").write_text("deepspeed==0.16.4\n")
    described = fix(*arguments)
    (plan,) = described["plans"]
    by_hand, released = {}, {}
    for change in plan["changes"]:
        (released if change["places"] else by_hand)[change["name"]] = change
    assert "training.gradient_checkpointing" in by_hand
    assert released["deepspeed"]["after"] == "0.16.8"  # recomputation brings out what 0.16.4 keeps
    assert plan["remaining"] == []
    assert [one["rule_id"] for one in plan["cleared"]] == ["_stack/run-does-not-fit"]
    ran = run("fix", *arguments, "--apply")
    assert ran.code == 1  # a hand is needed still
    assert "by hand   --set training.gradient_checkpointing=true" in ran.out
    assert "0 of 1 finding cleared, 1 more once the rest is done by hand, 2 files written" in ran.out.replace("\n", " ")
    assert Path("requirements.txt").read_text() == "deepspeed==0.16.8\n"
    options = ("--set", "training.gradient_checkpointing=true", "--set", "training.use_reentrant=false")
    assert run("check", *arguments[:2], *options).code == 0


class TerminalText(io.StringIO):
    """What a terminal shows."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@needs_uv
def test_on_a_terminal_it_says_what_is_asked(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index({"torch": {"2.5.1": ()}, "deepspeed": {"0.16.4": (), "0.16.8": ("torch",)}})
    assert run("fix", *PAIR).err == ""
    monkeypatch.setattr(run_cli, "io", SimpleNamespace(StringIO=TerminalText))
    monkeypatch.setattr("compatcheck.cli.fix.terminal_width", lambda: 80)
    shown = run("fix", *PAIR).err
    assert "asking uv, question 1 of at most 20: deepspeed 0.16.8" in shown
    assert shown.endswith("\r\x1b[K")  # nothing of it stays


def test_the_incident_of_openrlhf_moves_with_what_its_releases_pin() -> None:
    case = CASES / "openrlhf-llama3-70b"
    described = fix(*(case / name for name in ("requirements.txt", "facts.yaml", "config.json")))
    assert moves(described) == {
        "deepspeed": "0.16.8",
        "openrlhf": "0.8.1",
        "flash-attn": "2.7.4.post1",
        "ray": "2.43.0",
        "transformers": "4.51.3",
        "vllm": "0.8.5.post1",
        "torch": "2.6.0",
    }
    (plan,) = described["plans"]
    assert [change["name"] for change in plan["changes"] if not change["follows"]] == ["deepspeed"]
    assert {change["name"]: change["clears"] for change in plan["changes"] if change["clears"]} == {
        "deepspeed": ["_stack/run-does-not-fit", RULE],
        "openrlhf": ["openrlhf/logsumexp-over-a-whole-sequence"],
    }  # what moves along clears what it clears itself
    assert plan["resolution"]["verdict"] == "not checked"
    assert plan["remaining"] == []


def test_where_a_retriever_runs_is_not_a_setting_to_change() -> None:
    described = fix(CASES / "search-r1-0.5b-retriever" / "facts.yaml", "--select", "_stack/r*", "--unsafe")
    assert not any(name.startswith("run.") for name in moves(described))
    left = {entry["finding"]["rule_id"] for entry in described["plans"][0]["remaining"]}
    assert "_stack/retrieval-index-on-training-gpus" in left


def test_compiled_code_moves_to_the_torch_beside_it() -> None:
    Path("requirements.txt").write_text("torch==2.5.1\ntorchvision==0.17.0\n")
    ran = run("fix", "requirements.txt", "--offline", "--unsafe", "--format", "diff")
    assert "+torchvision==0.20.1\n" in ran.out


@needs_uv
def test_of_a_series_uv_takes_the_release_that_is_built_for_this_torch(index: Index) -> None:
    Path("requirements.txt").write_text("torch==2.5.1\ntorchvision==0.17.0\n")
    releases = {"0.17.0": (), "0.20.0": ("torch==2.5.0",), "0.20.1": ("torch==2.5.1",)}
    index({"torch": {"2.5.0": (), "2.5.1": ()}, "torchvision": releases})
    described = fix("requirements.txt")
    assert moves(described) == {"torchvision": "0.20.1"}
    assert described["plans"][0]["resolution"]["verdict"] == "resolved"


def test_another_torch_brings_another_cuda() -> None:
    Path("requirements.txt").write_text("torch==2.13.0\n")
    ran = run("fix", "requirements.txt", "--driver", "535.230.02", "--offline", "--unsafe", "--format", "diff")
    assert "+torch==2.10.0\n" in ran.out


def test_settings_of_many_configurations_are_found_in_parts() -> None:
    Path("facts.yaml").unlink()
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    text = (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 4\nlearning_rate: 1.0e-5\n"
        "output_dir: out\ngradient_checkpointing_kwargs:\n  use_reentrant: false\ndeepspeed: ds.json\n"
        "gradient_checkpointing: true\nbf16: true\n"
    )
    for number in range(7):
        Path(f"train{number}.yaml").write_text(text)
    Path("requirements.txt").write_text(
        "deepspeed @ file:///w/deepspeed-0.16.4-py3-none-any.whl\ntransformers==4.48.0\n"
    )
    arguments = (".", "--select", RULE, "--gpu", "8xH100-80GB", "--offline", "--fail-on", "info")
    assert run("check", ".", "--select", RULE, "--gpu", "8xH100-80GB", "--fail-on", "info").code == 1
    assert run("fix", *arguments, "--unsafe", "--apply").code == 0
    for number in range(7):
        assert Path(f"train{number}.yaml").read_text() == text.replace("use_reentrant: false", "use_reentrant: true")


@pytest.mark.parametrize(
    ("trainer", "options", "first"), [("XPO", "", "0.11"), ("GKD", "", "0.11"), ("GRPO", ", use_vllm=True", "0.14")]
)
def test_no_release_is_advised_that_is_older_than_the_trainer(trainer: str, options: str, first: str) -> None:
    Path("facts.yaml").unlink()
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    Path("requirements.txt").write_text("trl==0.15.0\ntorch==2.5.1\ntransformers==4.48.3\ndeepspeed==0.16.3\n")
    Path("train.py").write_text(
        f"from trl import {trainer}Trainer, {trainer}Config\nfrom transformers import AutoModelForCausalLM\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
        f'args = {trainer}Config(output_dir="o", bf16=True, deepspeed="ds.json", num_train_epochs=1{options})\n'
        f"{trainer}Trainer(model=model, args=args, train_dataset=d).train()\n"
    )
    Path("run.sh").write_text("deepspeed --num_gpus 8 train.py\n")
    described = fix(".", "--gpu", "8xH100-80GB", "--select", "trl/zero3-weights-gathered-for-generation")
    assert "trl/zero3-weights-gathered-for-generation" in json.dumps(described)
    released = [moves(described)["trl"]] if "trl" in moves(described) else []
    assert all(Version(release) >= Version(first) for release in released)


def test_a_trainer_that_the_release_does_not_have_is_not_taken_for_read() -> None:
    Path("facts.yaml").unlink()
    Path("requirements.txt").write_text("trl==0.13.0\ntransformers==4.48.3\n")
    Path("train.py").write_text(
        "from trl import GRPOTrainer, GRPOConfig\n"
        'GRPOTrainer(model="Qwen/Qwen2.5-7B", args=GRPOConfig(output_dir="o"), train_dataset=d).train()\n'
    )
    report = json.loads(run("check", ".", "--format", "json").out)
    assert "train.py: unknown to trl 0.13.0" in [
        f"{one['source'].split(':')[0]}: {one['reason']}" for one in report["skipped"]
    ]


def test_no_build_is_advised_that_was_never_made() -> None:
    Path("requirements.txt").write_text("torch==2.7.1+cu128\n")
    ran = run("fix", "requirements.txt", "--gpu", "1xP100", "--offline", "--unsafe", "--format", "diff")
    assert "+cu128" not in ran.out  # no release that has one runs there


@pytest.mark.parametrize(("release", "reasons"), [("0.23.1", ["unknown to trl 0.23.1"]), ("0.24.0", [])])
def test_an_option_is_one_of_the_trainers_that_have_it(release: str, reasons: list[str]) -> None:
    Path("facts.yaml").unlink()
    Path("requirements.txt").write_text(f"trl=={release}\ntransformers==4.57.1\n")
    Path("train.py").write_text(
        "from trl import RewardTrainer, RewardConfig\n"
        'RewardTrainer(model="Qwen/Qwen2.5-7B", args=RewardConfig(output_dir="o", activation_offloading=True)).train()\n'
    )
    report = json.loads(run("check", ".", "--format", "json").out)
    assert [one["reason"] for one in report["skipped"] if "activation_offloading" in one["source"]] == reasons
