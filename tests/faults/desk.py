"""Every command that writes or takes long, over small inputs, each in a process of its own that a test may disturb."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from compatcheck.core.node import write_line
from compatcheck.lab.measurement_files import read_measurements
from tests import ROOT
from tests.cli.drawn_locks import write_locks
from tests.unit.collectors.image.archives import oci_files, tar
from tests.unit.fleet.drawn_nodes import draw
from tests.unit.lab.local_packages import leaky
from tests.unit.lab.pack_wheel import pack

PROGRAM = """
import sys
if sys.argv[1]:
    from compatcheck.lab.probes import catalog
    catalog.__path__.append(sys.argv[1])
from compatcheck.cli.__main__ import main
main(sys.argv[2:])
"""
"""The command line, with the folder of a test among the probes that rules may name."""
RULE = """
title: leaky holds more bytes
kind: regression
status: active
affected: {leaky: ">=1.2"}
checked_through: {leaky: "1.3"}
impact: {effect: memory, memory: device, scope: rank, phase: forward, bytes: "7"}
confidence: explained
verifiable: [cpu]
what: It holds seven bytes more.
why: BYTES is larger.
remedies: []
references: [{type: REPORT, url: "https://example.org/1", date: "2024-11-21"}]
probe: {name: held_by_leaky, metric: held_bytes}
examples:
  match: [{packages: {leaky: "1.2"}}]
  no_match: [{packages: {leaky: "1.1"}}]
"""
RELEASES = {"1.0": 2, "1.1": 2, "1.2": 9, "1.3": 9}
VERSIONS = " || ".join(f"=={version}" for version in RELEASES)
_TIMES = (
    (re.compile(r'("(?:time|id|date)": )"[^"]*"'), r'\1""'),
    (re.compile(r'("seconds": )[\d.e-]+'), r"\g<1>0"),
    (re.compile(r"\d[\d.]* m?s\b"), "0 s"),
    (re.compile(r"compatcheck-[a-z]+-\w+"), "scratch"),
)


def write_rule(folder: Path, releases: Iterable[str]) -> None:
    """Write a directory with one rule, which a probe measures, and with the releases that it is about."""
    (folder / "leaky").mkdir(parents=True)
    (folder / "leaky" / "holds-more.yaml").write_text(RULE)
    (folder / "_releases").mkdir()
    dates = "".join(f'  "{version}": "2024-01-01"\n' for version in releases)
    (folder / "_releases" / "leaky.yaml").write_text(f"package: leaky\ndate: '2024-01-02'\nreleases:\n{dates}")


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str
    left: Mapping[str, str]
    """File that it wrote → its text, without when it was written."""


class Desk:
    """Inputs of all commands."""

    def __init__(self, folder: Path, base: str, environ: Mapping[str, str]) -> None:
        self.folder, self.base = folder, base
        self.kept = folder / "kept.sqlite3"
        """Store of measurements that `evidence export` reads."""
        own = {"HOME": str(folder / "home"), "COMPATCHECK_CACHE": str(folder / "cache")}
        self.environ = {**environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **own}
        (folder / "home").mkdir()
        index = folder / "index"
        for version, held in RELEASES.items():
            pack(index, "leaky", version, leaky(held), ("helper==1.0",))
        listed = folder / "simple" / "leaky"
        listed.mkdir(parents=True)
        wheels = (f"leaky-{version}-py3-none-any.whl" for version in RELEASES)
        page = "".join(
            f'<a href="{name}" data-upload-time="2024-01-0{day}T00:00:00Z">{name}</a>'
            for day, name in enumerate(wheels, 1)
        )
        (listed / "index.html").write_text(page)
        locks = write_locks(folder / "locks", 24)
        (folder / "list.txt").write_text("".join(f"{path}\n" for path in locks))
        write_rule(folder / "rules", RELEASES)
        (folder / "dumps").mkdir()
        for number in range(6):
            node = draw(f"node{number}", {"nvidia-nccl-cu12": "2.20.5"} if number == 3 else {})
            (folder / "dumps" / f"node{number}.json").write_text(write_line(node))
        site = folder / "image" / "usr" / "lib" / "python3.11" / "site-packages"
        for name, version in (("torch", "2.6.0"), ("deepspeed", "0.16.4")):
            (site / f"{name}-{version}.dist-info").mkdir(parents=True)
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            (site / f"{name}-{version}.dist-info" / "METADATA").write_text(text)
        (folder / "image" / "usr" / "bin").mkdir()
        (folder / "image" / "usr" / "bin" / "python3.11").write_bytes(b"\x7fELF")
        with BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                archive.add(folder / "image", ".")
            layer = buffer.getvalue()
        files = oci_files(
            [([layer], [gzip.compress(layer)], "train:1", "linux/amd64", True)],
            media="application/vnd.oci.image.layer.v1.tar+gzip",
        )
        (folder / "image.tar").write_bytes(tar(files))  # its layer is compressed: what was read of it is kept

    def start(
        self, command: str, out: Path, *, before: Sequence[str] = (), **environ: str | None
    ) -> subprocess.Popen[str]:
        """Start a command that writes into a folder; a variable that is None is taken away."""
        out.mkdir(exist_ok=True)
        COMMANDS[command].prepare(self, out)
        arguments = [str(one) for one in COMMANDS[command].arguments(self, out)]
        evidence = self.kept if command == "evidence export" else out / "evidence.sqlite3"
        variables = {**self.environ, "COMPATCHECK_EVIDENCE": str(evidence), **environ}
        if command == "watch":
            variables.setdefault("PIP_INDEX_URL", (self.folder / "simple").as_uri())
        return subprocess.Popen(
            [*before, sys.executable, "-c", PROGRAM, str(self.folder / "probes"), *arguments],
            env={name: value for name, value in variables.items() if value is not None},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, out: Path, **environ: str | None) -> Done:
        """Run a command to its end."""
        return self.finish(self.start(command, out, **environ), out)

    def finish(self, process: subprocess.Popen[str], out: Path) -> Done:
        """Wait for a command and collect what it left."""
        said, told = process.communicate(timeout=300)
        return Done(process.returncode, self.plain(said, out), self.plain(told, out), self.read(out))

    @property
    def layers(self) -> Path:
        """Where `image` keeps what it read of layers."""
        return self.folder / "cache" / "layers"

    def read(self, out: Path) -> dict[str, str]:
        """Return what lies in a folder; measurements as they are kept, whoever wrote them first."""
        found = {}
        for path in sorted(out.rglob("*")):
            name = str(path.relative_to(out))
            if path.is_file() and (path.name == "sweep.jsonl" or "measurements" in path.parts):
                found[name] = str([replace(one, time=None) for one in read_measurements(str(path))])
            elif path.is_file() and not name.startswith("evidence."):
                found[name] = self.plain(path.read_text(), out)
        if (out / "evidence.sqlite3").exists():
            command = [sys.executable, "-m", "compatcheck", "evidence", "list", "--limit", "0", "--format", "json"]
            environ = {**self.environ, "COMPATCHECK_EVIDENCE": str(out / "evidence.sqlite3")}
            listed = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
            rows = [json.dumps({**row, "id": "", "time": ""}, sort_keys=True) for row in json.loads(listed)]
            found["evidence"] = "\n".join(sorted(rows))
        return found

    def plain(self, text: str, out: Path) -> str:
        """Return a text without when and where it was written."""
        text = text.replace(str(out), "OUT")
        for pattern, put in _TIMES:
            text = pattern.sub(put, text)
        return text


class Command(NamedTuple):
    """A command of the table."""

    code: int
    """What it ends with when nothing disturbs it."""
    arguments: Callable[[Desk, Path], Sequence[object]]
    prepare: Callable[[Desk, Path], None] = lambda _desk, _out: None
    """Makes once what it changes."""


def _measure(desk: Desk) -> tuple[object, ...]:
    return ("--python", desk.base, "--exclude-newer", "never", "--format", "json")


def _sweep(desk: Desk, out: Path) -> Sequence[object]:
    varied = ("--param", "factor=1,2", "--export", out / "sweep.jsonl", "--quiet")
    return ("sweep", "held_by_leaky", "--package", "leaky", "--versions", VERSIONS, *_measure(desk), *varied)


def _bisect(desk: Desk, _: Path) -> Sequence[object]:
    return ("bisect", "held_by_leaky", "--package", "leaky", "--versions", VERSIONS, *_measure(desk), "--quiet")


def _confirm(desk: Desk, _: Path) -> Sequence[object]:
    sides = ("--rules", desk.folder / "rules", "--suspect", "1.2", "--baseline", "1.1", "--quiet")
    return ("confirm", "leaky/holds-more", *sides, *_measure(desk))


def _watch(desk: Desk, out: Path) -> Sequence[object]:
    given = ("watch", "held_by_leaky", "--package", "leaky", "--since", "2024-01-02", "--quiet", "--python", desk.base)
    return (*given, "--exclude-newer", "never", "--state", out / "state.json", "--output", out / "watched")


def _probe_run(desk: Desk, _: Path) -> Sequence[object]:
    return ("probe", "run", "held_by_leaky", "--python", desk.base, "--with", "leaky==1.2", "--format", "json")


def _fix(_: Desk, out: Path) -> Sequence[object]:
    return ("fix", out / "project", "--gpu", "8xH100-80GB", "--no-policy", "--offline", "--unsafe", "--apply")


def _copy_project(_: Desk, out: Path) -> None:
    if not (out / "project").exists():
        shutil.copytree(ROOT / "fixtures" / "upgrade", out / "project", ignore=shutil.ignore_patterns("before.txt"))


WRITES_AT_THE_END = ("fleet merge", "fleet env", "image", "check", "evidence export", "rules export")
"""What writes its files once, when it knows what is in them."""
MEASUREMENTS = ROOT / "fixtures" / "measurements" / "masks"

COMMANDS: Mapping[str, Command] = {
    "bulk": Command(
        1,
        lambda desk, out: (
            "bulk",
            "--list",
            desk.folder / "list.txt",
            "--output",
            out / "checked.jsonl",
            "--no-policy",
        ),
    ),
    "sweep": Command(1, _sweep),
    "bisect": Command(1, _bisect),
    "confirm": Command(1, _confirm),
    "watch": Command(0, _watch),
    "probe run": Command(1, _probe_run),
    "fleet merge": Command(
        1,
        lambda desk, out: (
            *("fleet", "merge", desk.folder / "dumps", "--no-policy", "--exclude-file", out / "exclude.txt"),
            *("--output", f"json:{out / 'report.json'}"),
        ),
    ),
    "fleet env": Command(
        0,
        lambda desk, out: (
            *("fleet", "env", "--no-policy", "--prefix", desk.folder / "image" / "usr"),
            *("--exclude-file", out / "exclude.txt", "--output", f"json:{out / 'report.json'}"),
        ),
    ),
    "image": Command(
        0,
        lambda desk, out: (
            *("image", desk.folder / "image.tar", "--no-policy", "--output", f"json:{out / 'report.json'}"),
        ),
    ),
    "check": Command(
        1,
        lambda desk, out: (
            *("check", desk.folder / "locks", "--no-policy", "--output", f"json:{out / 'report.json'}"),
            *("--output", f"sarif:{out / 'report.sarif'}"),
        ),
    ),
    "fix": Command(0, _fix, _copy_project),
    "evidence import": Command(0, lambda _desk, _out: ("evidence", "import", MEASUREMENTS)),
    "evidence export": Command(
        0,
        lambda _desk, out: ("evidence", "export", out / "exported.jsonl", "masks", "--overwrite"),
        lambda desk, _out: None if desk.kept.exists() else _keep(desk),
    ),
    "rules export": Command(0, lambda _desk, out: ("rules", "export", "--format", "osv", "--output", out / "osv.json")),
}


def _keep(desk: Desk) -> None:
    environ = {**desk.environ, "COMPATCHECK_EVIDENCE": str(desk.kept)}
    command = [sys.executable, "-m", "compatcheck", "evidence", "import", str(MEASUREMENTS)]
    subprocess.run(command, env=environ, check=True, capture_output=True)


def open_desk(folder: Path, base: str, probe: str) -> Desk:
    """Put the inputs of all commands into a folder, in which the index of the laboratory's tests lies."""
    probes = folder / "probes"
    probes.mkdir()
    shutil.copy(probe, probes)
    return Desk(folder, base, os.environ)
