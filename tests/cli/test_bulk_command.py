"""`compatcheck bulk`: a line for each input, in their order, whatever happens to the run."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.cli.drawn_locks import write_locks
from tests.cli.run_cli import run
from tests.faults.desk import write_rule
from tests.unit.collectors.image.archives import docker_archive, oci_files, tar, write_files

MANY = pytest.param(2500, marks=pytest.mark.slow)


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts in the background with it ignored
from compatcheck.cli.__main__ import main
main(sys.argv[1:])
"""


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, "bulk", *map(str, arguments), "--no-policy"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def list_locks(folder: Path, count: int) -> tuple[list[str], Path]:
    paths = write_locks(folder / "locks", count)
    (folder / "list.txt").write_text("".join(f"{path}\n" for path in paths))
    return paths, folder / "list.txt"


def test_every_input_has_a_line_and_one_that_cannot_be_read_stops_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT / "fixtures" / "upgrade")
    (tmp_path / "broken.lock").write_bytes(b"\xff\xfe\x00")
    names = ["before.txt", "none.txt", str(tmp_path / "broken.lock"), "after.txt"]
    ran = run("bulk", *names, "--training", "train.yaml", "--gpu", "8xH100-80GB", "--jobs", 2)
    records = [json.loads(line) for line in ran.out.splitlines()]
    assert [record["input"] for record in records] == names
    assert [record["exit_code"] for record in records] == [0, 4, 4, 1]
    assert [entry["reason"] for entry in records[1]["skipped"]] == ["no such file"]
    assert "deepspeed/zero3-params-kept-in-backward" in {one["rule_id"] for one in records[3]["findings"]}
    assert ran.code == 1
    assert ran.err == "4 inputs: 1 pass, 1 fail, 2 could not be read, or not whole\n"
    (tmp_path / "empty").mkdir()
    assert run("bulk", tmp_path / "empty", "--no-policy").code == 3


def test_a_line_says_what_check_says(tmp_path: Path):
    (path,) = write_locks(tmp_path, 1)
    line = json.loads(run("bulk", path, "--no-policy").out)
    report = json.loads(run("check", path, "--no-policy", "--format", "json").out)
    told = {(one["fingerprint"], one["fails"]) for one in report["findings"] if not one["folded"]}
    assert {(one["fingerprint"], one["fails"]) for one in line["findings"]} == told
    assert line["exit_code"] == report["summary"]["exit_code"]


@pytest.mark.parametrize("count", [60, MANY])
def test_a_run_that_is_killed_goes_on_and_writes_what_one_that_was_not_does(tmp_path: Path, count: int):
    _, names = list_locks(tmp_path, count)
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert start("--list", names, "--output", whole).wait() == 1
    drawn, size = random.Random(), whole.stat().st_size
    for share in sorted(drawn.uniform(0.05, 0.9) for _ in range(3)):
        process = start("--list", names, "--output", killed)
        while process.poll() is None and (not killed.exists() or killed.stat().st_size < share * size):
            time.sleep(0.01)
        process.kill()
        process.wait()
        with killed.open("ab") as file:  # as far as a line got when the machine went down
            file.write(b'{"input": "')
    assert start("--list", names, "--output", killed).wait() == 1
    assert killed.read_bytes() == whole.read_bytes()
    assert len(whole.read_bytes().splitlines()) == count


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_inputs(tmp_path: Path):
    peaks = []
    for count in (100, 2500):
        (tmp_path / str(count)).mkdir()
        _, names = list_locks(tmp_path / str(count), count)
        start("--list", names, "--output", tmp_path / f"{count}.jsonl").wait()
        peaks.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    assert peaks[1] < 1.1 * peaks[0]


def test_a_file_of_another_run_or_of_other_inputs_is_kept(tmp_path: Path):
    paths = write_locks(tmp_path / "locks", 3)
    output = tmp_path / "checked.jsonl"
    run("bulk", *paths, "--no-policy", "--output", output)
    before = output.read_bytes()
    ran = run("bulk", *paths, "--no-policy", "--output", output, "--select", "deepspeed/*")
    assert (ran.code, "other options" in ran.err) == (4, True)
    ran = run("bulk", *reversed(paths), "--no-policy", "--output", output)
    assert (ran.code, "where the inputs have" in ran.err) == (4, True)
    assert output.read_bytes() == before
    assert run("bulk", *paths, "--no-policy", "--output", output).code == 1
    assert output.read_bytes() == before


INSTALLED = {
    "usr/bin/python3.11": b"\x7fELF",
    **{
        f"usr/lib/python3.11/site-packages/{name}-{version}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        )
        for name, version in (("torch", "2.6.0"), ("deepspeed", "0.16.4"))
    },
}


def make_inputs(folder: Path) -> list[str]:
    """Write one input of each kind with one stack, and a repository that has a directory named as in a root."""
    packed = tar(dict(INSTALLED))
    write_files(folder / "root", INSTALLED)
    write_files(folder / "layout", oci_files([([packed], [packed], "train", "linux/amd64", True)]))
    docker_archive(folder / "image.tar", [packed])
    (folder / "image.tar.gz").write_bytes(gzip.compress((folder / "image.tar").read_bytes()))
    lines = b"torch==2.6.0\ndeepspeed==0.16.4\n"
    write_files(folder / "repository", {"requirements.txt": lines, "usr/local/motd": b"", ".git/HEAD": b""})
    write_files(folder, {"facts.yaml": b"compatcheck: 1\npackages: {torch: '2.6.0', deepspeed: '0.16.4'}\n"})
    (folder / "requirements.txt").write_bytes(lines)
    names = ("root", "layout", "image.tar", "image.tar.gz", "repository", "facts.yaml", "requirements.txt")
    return [str(folder / name) for name in names]


def test_images_configurations_and_repositories_have_a_line_as_locks_do(tmp_path: Path):
    names = make_inputs(tmp_path)
    given = ("--no-policy", "--training", ROOT / "fixtures/upgrade/train.yaml", "--gpu", "8xH100-80GB")
    ran = run("bulk", *names, *given)
    for name, text in zip(names, ran.out.splitlines(), strict=True):
        line = json.loads(text)
        command = "image" if name.endswith(("root", "layout", ".tar", ".gz")) else "check"
        report = json.loads(run(command, name, *given, "--format", "json").out)
        assert (line["input"], line["exit_code"]) == (name, report["summary"]["exit_code"] == 1), text
        assert line["subjects"] == [subject["id"] for subject in report["subjects"]]
        told = {one["fingerprint"] for one in report["findings"] if not one["folded"]}
        assert {one["fingerprint"] for one in line["findings"]} == told
        assert "deepspeed/zero3-params-kept-in-backward" in {one["rule_id"] for one in line["findings"]}


def change_training(folder: Path) -> None:
    (folder / "train.yaml").write_text("compatcheck: 1\ntraining: {zero_stage: 2}\n")


def change_what_it_names(folder: Path) -> None:
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')


def change_policy(folder: Path) -> None:
    (folder / "compatcheck.toml").write_text('fail-on = "critical"\n')


def change_rules(folder: Path) -> None:
    path = folder / "rules" / "leaky" / "holds-more.yaml"
    path.write_text(path.read_text().replace('bytes: "7"', 'bytes: "8"'))


def change_variables(folder: Path) -> None:
    (folder / "job.env").write_text("NCCL_DEBUG=WARN\n")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (change_training, "was written with other content of the files that options name"),
        (change_what_it_names, "was written with other content of the files that options name"),
        (change_policy, "was written with other content of the files that options name"),
        (change_variables, "was written with other content of the files that options name"),
        (change_rules, "was written with other rules"),
        (os.utime, None),
    ],
)
def test_lines_of_other_options_rules_or_files_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], why: str | None
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: x\ndeepspeed: ds.json\noutput_dir: out\nper_device_train_batch_size: 1\n"
    )
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "job.env").write_text("NCCL_DEBUG=INFO\n")
    (tmp_path / "compatcheck.toml").write_text('fail-on = "high"\n')
    write_rule(tmp_path / "rules", ["1.1", "1.2"])
    paths = write_locks(tmp_path / "locks", 3)
    given = ("--training", "train.yaml", "--env-file", "job.env", "--rules", "rules", "--output", "checked.jsonl")
    assert run("bulk", *paths, *given).code in {0, 1}
    before = (tmp_path / "checked.jsonl").read_bytes()
    change(tmp_path)
    ran = run("bulk", *paths, *given)
    assert (tmp_path / "checked.jsonl").read_bytes() == before
    if why is None:
        assert ran.code in {0, 1}
    else:
        assert (ran.code, why in " ".join(ran.err.split())) == (4, True), ran.err


def test_lines_of_another_working_directory_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same names are other inputs there."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("torch==2.6.0\n")
    output = tmp_path / "checked.jsonl"
    monkeypatch.chdir(tmp_path / "a")
    run("bulk", "requirements.txt", "--no-policy", "--output", output)
    monkeypatch.chdir(tmp_path / "b")
    ran = run("bulk", "requirements.txt", "--no-policy", "--output", output)
    assert (ran.code, "was written with another working directory" in " ".join(ran.err.split())) == (4, True)


def test_a_list_comes_from_standard_input_or_a_file(tmp_path: Path):
    _, names = list_locks(tmp_path, 2)
    with names.open() as file:
        command = [sys.executable, "-m", "compatcheck", "bulk", "--list", "-", "--no-policy"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, stdin=file, env=environ, capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 2
    assert run("bulk", "--list", tmp_path / "none").code == 4
    assert run("bulk").code == 2
    assert run("bulk", "a", "--list", names).code == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_list_may_be_of_a_windows_shell(tmp_path: Path, encoding: str):
    paths = write_locks(tmp_path / "locks", 2)
    (tmp_path / "list.txt").write_bytes("".join(f"{path}\r\n" for path in paths).encode(encoding))
    ran = run("bulk", "--list", tmp_path / "list.txt", "--no-policy")
    assert [json.loads(line)["input"] for line in ran.out.splitlines()] == list(map(str, paths))


@pytest.mark.parametrize("content", [b"a" * 100_000, b"\xff\xfea\x00\x00\xd8"])
def test_a_list_without_names_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "list.txt").write_bytes(content)
    ran = run("bulk", "--list", tmp_path / "list.txt", "--no-policy")
    assert (ran.code, "list.txt:1" in ran.err) == (4, True)


def test_a_name_that_no_file_has_is_one_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "list.txt").write_text("a\0b\nhttps://user:SECRETWORD@host/x\n")
    ran = run("bulk", "--list", tmp_path / "list.txt", "--no-policy")
    assert [json.loads(line)["exit_code"] for line in ran.out.splitlines()] == [4, 4]
    assert "SECRETWORD" not in ran.out + ran.err


def test_an_interrupt_ends_the_children(tmp_path: Path):
    _, names = list_locks(tmp_path, 1000)
    process = start("--list", names, "--output", tmp_path / "checked.jsonl")
    while not (tmp_path / "checked.jsonl").exists() or not (tmp_path / "checked.jsonl").stat().st_size:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
