"""`compatcheck image`: what an image holds, which environment counts, and what the other commands make of it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from compatcheck.cli.output import FORMATS
from tests import ROOT
from tests.cli.run_cli import Ran, run

DEEPSPEED = "deepspeed/zero3-params-kept-in-backward"
RUN = ("--training", "train.yaml", "--model", "llama-3-70b", "--gpu", "16xB300")
VENV, TRAIN, SYSTEM = "/opt/venv", "/opt/conda/envs/train", "/usr/local"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATCHECK_CACHE", str(tmp_path / "cache"))
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    Path("train.yaml").write_text(
        "per_device_train_batch_size: 4\ngradient_checkpointing: true\nbf16: true\nlearning_rate: 1.0e-5\n"
        "gradient_accumulation_steps: 8\noutput_dir: out\nnum_train_epochs: 1\ndeepspeed: ds.json\n"
        "gradient_checkpointing_kwargs: {use_reentrant: false}\n"
    )


class Link(str):
    __slots__ = ()


def python(prefix: str, version: str) -> dict[str, str]:
    return {
        f"{prefix}/bin/python{version}": "\x7fELF",
        f"{prefix}/bin/python3": Link(f"python{version}"),
        f"{prefix}/bin/python": Link("python3"),
        f"{prefix}/lib/python{version}/os.py": "",
    }


def dist(prefix: str, version: str, name: str, release: str) -> dict[str, str]:
    folder = f"{prefix}/lib/python{version}/site-packages/{name}-{release}.dist-info"
    return {f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n"}


def trainer(prefix: str, version: str, deepspeed: str) -> dict[str, str]:
    return {
        **dist(prefix, version, "deepspeed", deepspeed),
        **dist(prefix, version, "transformers", "4.45.2"),
        **dist(prefix, version, "accelerate", "1.0.0"),
    }


def venv(prefix: str) -> dict[str, str]:
    return {
        f"{prefix}/pyvenv.cfg": f"home = {SYSTEM}/bin\nversion = 3.11.9\n",
        f"{prefix}/bin/python": Link(f"{SYSTEM}/bin/python3.11"),
        f"{prefix}/bin/torchrun": f"#!{prefix}/bin/python\n",
    }


BASE = {**python(SYSTEM, "3.11"), **dist(SYSTEM, "3.11", "pip", "25.0")}
BAD_VENV = {**venv(VENV), **trainer(VENV, "3.11", "0.16.4"), **dist(VENV, "3.11", "peft", "0.14.0")}
GOOD_CONDA = {
    **python(TRAIN, "3.10"),
    f"{TRAIN}/conda-meta/python-3.10.9-h1_0_cpython.json": "{}",
    **trainer(TRAIN, "3.10", "0.16.8"),
}
OTHERS = {"transformers": "4.45.2", "accelerate": "1.0.0"}


def make_layer(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            if isinstance(content, Link):
                entry.type, entry.linkname = tarfile.SYMTYPE, str(content)
                tar.addfile(entry)
            else:
                entry.size = len(content.encode())
                tar.addfile(entry, io.BytesIO(content.encode()))
    return buffer.getvalue()


def save(
    path: str,
    *layers: dict[str, str],
    cmd: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    without: int | None = None,
    folder: str = "",
) -> str:
    """Write a docker archive as ``docker save`` does."""
    blobs = [make_layer(layer) for layer in layers]
    digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": list(cmd), "Env": list(env or ("PATH=/usr/local/bin:/usr/bin",)), "WorkingDir": folder},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest()
    manifest = [
        {"Config": f"{name}.json", "RepoTags": ["train:1"], "Layers": [f"{digest}/layer.tar" for digest in digests]}
    ]
    with tarfile.open(path, "w") as tar:
        members = {f"{digest}/layer.tar": blob for digest, blob in zip(digests, blobs, strict=True)}
        if without is not None:
            del members[f"{digests[without]}/layer.tar"]
        members |= {f"{name}.json": config, "manifest.json": json.dumps(manifest).encode()}
        for member, content in members.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def described(*arguments: object) -> dict:
    ran = run(*arguments, "--format", "json")
    assert ran.out, ran.err
    return {**json.loads(ran.out), "code": ran.code}


def packages(report: dict) -> dict[str, dict[str, str]]:
    return {
        subject["id"]: {package["name"]: package["version"] for package in subject["environment"]["packages"]}
        for subject in report["subjects"]
    }


def failing(report: dict) -> dict[tuple[str, str], bool]:
    return {
        (entry["rule_id"], entry["subject"]): entry["fails"]
        for entry in report["findings"]
        if entry["rule_id"] == DEEPSPEED
    }


def test_environment_that_is_started_comes_first_and_decides() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=("/opt/venv/bin/torchrun", "train.py"))
    report = described("image", image, *RUN)
    assert packages(report) == {
        "train:1:/opt/venv": {**OTHERS, "deepspeed": "0.16.4", "peft": "0.14.0"},
        "train:1:/opt/conda/envs/train": {**OTHERS, "deepspeed": "0.16.8"},
    }
    assert report["subjects"][0]["origin"] == "train:1:/opt/venv (/opt/venv/bin/torchrun train.py starts it)"
    assert [subject["aside"] for subject in report["subjects"]] == [False, True]
    assert report["subjects"][0]["environment"]["notes"] == ["train:1:/usr/local holds nothing but pip"]
    assert failing(report) == {(DEEPSPEED, "train:1:/opt/venv"): True}
    assert report["code"] == 1


def test_finding_in_an_environment_that_is_not_started_is_shown_and_does_not_fail() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=("conda", "run", "-n", "train", "python", "train.py"))
    report = described("image", image, *RUN)
    assert next(iter(packages(report))) == "train:1:/opt/conda/envs/train"
    assert failing(report) == {(DEEPSPEED, "train:1:/opt/venv"): False}
    assert report["code"] == 0
    ran = run("image", image, *RUN)
    assert "train:1:/opt/venv (not what the image starts)" in ran.out
    assert f"HIGH {DEEPSPEED}" in ran.out
    assert "of them not counted" in ran.out
    quiet = run("image", image, *RUN, "-q").out
    assert f"train:1:/opt/venv (not counted)\n  HIGH {DEEPSPEED} 127.5 GiB per rank\n" in quiet
    assert "::error" not in run("image", image, *RUN, "--format", "github").out
    assert "train:1:/opt/venv (not counted)" in run("image", image, *RUN, "--format", "markdown").out
    sarif = json.loads(run("image", image, *RUN, "--format", "sarif").out)["runs"][0]["results"]
    assert {entry["level"] for entry in sarif if entry["ruleId"] == DEEPSPEED} == {"note"}
    counted = described("image", image, *RUN, "--all")
    assert failing(counted) == {(DEEPSPEED, "train:1:/opt/venv"): True}
    assert counted["code"] == 1


def test_named_environment_is_the_only_one_and_counts() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=("conda", "run", "-n", "train", "python", "train.py"))
    report = described("image", image, *RUN, "--environment", "/opt/venv/")
    assert list(packages(report)) == ["train:1:/opt/venv"]
    assert report["code"] == 1
    ran = run("image", image, "--environment", "/opt/other")
    assert ran.code == 2
    assert "train:1 holds no environment /opt/other" in ran.err
    assert "it holds /opt/conda/envs/train, /opt/venv, /usr/local" in ran.err


def test_unknown_start_lets_every_environment_count() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, env=("PATH=/sbin",))
    report = described("image", image, *RUN)
    assert {subject["aside"] for subject in report["subjects"]} == {False}
    assert "what the image starts is not known" in report["subjects"][0]["origin"]
    assert report["code"] == 1


def test_every_environment_counts_where_the_choice_is_a_guess() -> None:
    words = ("bash", "-lc", "python train.py")
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=words, env=(f"PATH={TRAIN}/bin:/usr/local/bin",))
    report = described("image", image, *RUN)
    assert [subject["aside"] for subject in report["subjects"]] == [False, False]
    assert report["subjects"][1]["origin"] == "train:1:/opt/venv (may be what the image starts)"
    assert failing(report) == {(DEEPSPEED, "train:1:/opt/venv"): True}


def test_environment_with_torch_is_not_put_aside_for_one_without() -> None:
    service = {**python("/opt/service", "3.12"), **dist("/opt/service", "3.12", "requests", "2.32.0")}
    torch = dist(VENV, "3.11", "torch", "2.5.1")
    words = ("/opt/service/bin/python", "serve.py")
    report = described("image", save("image.tar", BASE, BAD_VENV, torch, service, cmd=words), *RUN)
    assert list(packages(report)) == ["train:1:/opt/service", "train:1:/opt/venv"]
    assert failing(report) == {(DEEPSPEED, "train:1:/opt/venv"): True}
    assert "guess: /opt/service holds no torch, and /opt/venv does" in json.dumps(report["skipped"])


@pytest.mark.parametrize("form", [*FORMATS, "quiet"])
def test_names_in_an_image_are_no_commands_to_the_terminal(form: str) -> None:
    prefix = "/opt/a\x1b[2J\nb\x9b8m"
    files = {**venv(prefix), **trainer(prefix, "3.11", "0.16.4"), **dist(prefix, "3.11", "x\x1b]0;y\x07", "1.0")}
    image = save("image.tar", BASE, files, cmd=("\x1b[8mhidden", "\r\x08x"))
    ran = run("image", image, *RUN, *(("-q",) if form == "quiet" else ("--format", form)))
    assert ran.code == 1
    if form != "github":  # which has the place in the training file only
        assert "\\u001b[2J\\u000ab" in ran.out.replace("\\\\", "\\")
    assert not set(ran.out) & set("\x1b\x07\x08\r\x9b")


def test_later_layers_delete_and_overwrite() -> None:
    site = f"{VENV}/lib/python3.11/site-packages"
    change = {
        f"{site}/.wh.deepspeed-0.16.4.dist-info": "",
        f"{site}/.wh.peft-0.14.0.dist-info": "",
        **dist(VENV, "3.11", "deepspeed", "0.16.8"),
    }
    opaque = {f"{TRAIN}/lib/python3.10/site-packages/.wh..wh..opq": "", **dist(TRAIN, "3.10", "trl", "0.12.0")}
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, change, opaque, env=("PATH=/opt/venv/bin",))
    report = described("image", image, *RUN)
    assert packages(report) == {
        "train:1:/opt/venv": {**OTHERS, "deepspeed": "0.16.8"},
        "train:1:/opt/conda/envs/train": {"trl": "0.12.0"},
    }
    assert report["code"] == 0


def test_archive_on_standard_input() -> None:
    path = save("image.tar", BASE, BAD_VENV, cmd=("/opt/venv/bin/python", "train.py"))
    command = [sys.executable, "-m", "compatcheck", "image", "-", "--format", "json"]
    root = str(ROOT)
    done = subprocess.run(
        command,
        input=Path(path).read_bytes(),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert list(packages(json.loads(done.stdout))) == ["train:1:/opt/venv"]


def test_what_the_shell_may_change_is_said_where_it_matters() -> None:
    words = ("bash", "-lc", "python train.py")
    both = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=words, env=("PATH=/opt/venv/bin",))
    ran = run("image", both)
    assert "which Python it starts is a guess: a login shell reads profiles" in " ".join(ran.out.split())
    assert ran.code == 0
    alone = run("image", save("alone.tar", BASE, BAD_VENV, cmd=words, env=("PATH=/opt/venv/bin",)))
    assert "guess" not in alone.out


def test_missing_layer_is_no_clean_image() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, without=2, cmd=("/opt/venv/bin/python", "x.py"))
    ran = run("image", image)
    assert ran.code == 4
    assert "layer 3 of 3" in ran.out
    assert described("image", image)["subjects"][0]["environment"]["complete"] is False


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("gone.tar", None, 4), ("text.tar", b"not an image", 4), ("empty.tar", b"", 4)],
)
def test_what_is_no_image_is_an_error(name: str, content: bytes | None, code: int) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    ran = run("image", name)
    assert (ran.code, ran.out) == (code, "")
    assert name in ran.err


def test_an_image_whose_one_layer_is_garbage_is_no_image_without_python(tmp_path: Path) -> None:
    blobs = tmp_path / "layout/blobs/sha256"
    blobs.mkdir(parents=True)

    def add(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    layer = add(b"garbage" * 1000)
    rootfs = {"type": "layers", "diff_ids": [layer["digest"]]}
    config = add(json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode())
    manifest = add(json.dumps({"schemaVersion": 2, "config": config, "layers": [layer]}).encode())
    (tmp_path / "layout/index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (tmp_path / "layout/oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    ran = run("image", tmp_path / "layout")
    assert (ran.code, "the archive is damaged" in ran.err) == (4, True), ran.err


def test_image_without_python_is_nothing_to_check() -> None:
    ran = run("image", save("image.tar", {"/bin/sh": "\x7fELF"}))
    assert ran.code == 3
    assert "train:1: holds no Python environment" in ran.err


UV_LOCK = (
    'version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "train"\nversion = "0.1.0"\nsource = { virtual = "." }\n'
    'dependencies = [{ name = "deepspeed" }]\n[[package]]\nname = "deepspeed"\nversion = "0.16.4"\n'
    'source = { registry = "https://pypi.org/simple" }\n'
)
PYPROJECT = '[project]\nname = "train"\nversion = "0.1.0"\ndependencies = ["deepspeed>=0.16"]\n'


@pytest.mark.parametrize(
    ("files", "subject", "found"),
    [
        ({"uv.lock": UV_LOCK}, "uv.lock", "0.16.4"),
        ({"uv.lock": UV_LOCK, "pyproject.toml": PYPROJECT}, "uv.lock", "0.16.4"),
        ({"pyproject.toml": PYPROJECT}, "pyproject.toml", ">=0.16"),
        ({"requirements.txt": "deepspeed==0.16.4\n"}, "requirements.txt", "0.16.4"),
    ],
)
@pytest.mark.parametrize("folder", ["/app", "/usr/src/app"])
def test_a_project_of_which_nothing_is_installed_is_checked_as_locked(files, subject, found, folder) -> None:  # type: ignore[no-untyped-def]
    image = save("image.tar", {f"{folder}/{name}": text for name, text in files.items()}, folder=folder)
    report = described("image", image)
    assert list(packages(report)) == [f"train:1:{folder}/{subject}"]
    (state,) = report["subjects"]
    (package,) = [one for one in state["environment"]["packages"] if one["name"] == "deepspeed"]
    assert found in json.dumps(package)
    assert f"train:1:{folder}/{subject}" in json.dumps(package)
    assert "locked in the image, not installed" in run("image", image).out
    for name, text in files.items():
        Path(f"root{folder}", name).parent.mkdir(parents=True, exist_ok=True)
        Path(f"root{folder}", name).write_text(text)
    assert list(packages(described("image", "root"))) == [f"root:{folder}/{subject}"]


def test_configurations_beside_a_lock_in_an_image_are_read_with_it() -> None:
    files = {"requirements.txt": "deepspeed==0.16.4\ntransformers==4.45.2\naccelerate==1.0.0\n"}
    files |= {name: Path(name).read_text() for name in ("train.yaml", "ds.json")}
    Path("ds.json").unlink()  # that of the image counts
    image = save("image.tar", {f"/app/{name}": text for name, text in files.items()}, folder="/app")
    report = described("image", image, "--model", "llama-3-70b", "--gpu", "16xB300")
    assert list(packages(report)) == ["train:1:/app: requirements.txt + ds.json + train.yaml"]
    assert DEEPSPEED in json.dumps(report)
    assert report["code"] == 1


def test_root_directory() -> None:
    for path, content in {**BASE, **BAD_VENV}.items():
        target = Path("root" + path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            target.symlink_to(str(content))
        else:
            target.write_text(content)
    report = described("image", "root", *RUN)
    assert packages(report) == {"root:/opt/venv": {**OTHERS, "deepspeed": "0.16.4", "peft": "0.14.0"}}
    assert report["code"] == 1


def test_variables_of_the_image_are_facts_and_those_declared_win() -> None:
    image = save(
        "image.tar",
        BASE,
        BAD_VENV,
        env=("PATH=/opt/venv/bin", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "WANDB_API_KEY=abc"),
    )
    ran = run("facts", "--image", image)
    assert "allocator.expandable_segments = true" in ran.out
    assert "image configuration (PYTORCH_CUDA_ALLOC_CONF)" in ran.out
    assert "abc" not in ran.out
    Path("run.env").write_text("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n")
    assert "allocator.expandable_segments = false" in run("facts", "--image", image, "--env-file", "run.env").out


def test_text_fits_eighty_columns() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=("/opt/venv/bin/torchrun", *["--some-option=value"] * 9))
    lines = run("image", image, *RUN).out.splitlines()
    assert max(len(line) for line in lines if "://" not in line) <= 80


def test_other_commands_take_the_environment_that_is_started() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=("/opt/venv/bin/python", "train.py"))
    checked = described("check", "train.yaml", "--image", image, "--model", "llama-3-70b", "--gpu", "16xB300")
    assert next(entry["rule_id"] for entry in checked["findings"] if entry["fails"]) == DEEPSPEED
    explained = run("explain", DEEPSPEED, "--image", image)
    assert "train:1:/opt/venv" in explained.out
    assert "/opt/conda" not in explained.out
    estimated = run("estimate", "--image", image, *RUN, "--set", "training.sequence_length=2048")
    assert "ZeRO-3" in estimated.out


def test_two_images_are_compared_by_what_they_start() -> None:
    before = save("old.tar", BASE, GOOD_CONDA, cmd=(f"{TRAIN}/bin/python", "train.py"))
    after = save("new.tar", BASE, BAD_VENV, GOOD_CONDA, cmd=("/opt/venv/bin/python", "train.py"))
    report = described("diff", before, after, *RUN)
    assert [report["findings"][0][key] for key in ("rule_id", "change")] == [DEEPSPEED, "entered"]
    assert report["code"] == 1
    same: Ran = run("diff", before, after, "--environment", TRAIN)
    assert "no package changed" in same.out


def test_diff_of_an_image_that_starts_nothing_asks() -> None:
    image = save("image.tar", BASE, BAD_VENV, GOOD_CONDA, env=("PATH=/sbin",))
    ran = run("diff", image, image)
    assert ran.code == 2
    assert "name one with --environment: train:1:/opt/conda/envs/train, train:1:/opt/venv" in ran.err


def test_layers_are_cached_unless_told_otherwise(tmp_path: Path) -> None:
    image = save("image.tar", BASE, BAD_VENV, cmd=("/opt/venv/bin/python", "train.py"))
    os.utime(image, (1_000_000_000, 1_000_000_000))
    first = run("image", image, "--no-cache").out
    assert not (tmp_path / "cache").exists()
    assert run("image", image).out.splitlines()[:-2] == first.splitlines()[:-2]  # the last two say how long it took
