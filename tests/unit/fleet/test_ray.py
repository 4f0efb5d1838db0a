"""On a real cluster: each node answers for the interpreter of its workers, and each that does not is told apart."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError, UsageError
from compatcheck.fleet.ray import collect_nodes
from tests import ROOT
from tests.cli.run_cli import run

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

RELEASES = {"torch": "2.6.0", "nvidia-nccl-cu12": "2.21.5", "pytest": "8.3"}
STARTED = "started"
HANGS_SECONDS = 40
"""Long enough for a busy machine to connect to a cluster and to start a worker before its head is stopped."""


def make_environment(prefix: Path, releases: dict[str, str], tool: Path | None = ROOT) -> Path:
    """Write an environment of this Python and this Ray, with releases of its own; return its interpreter."""
    python = prefix / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(os.path.realpath(sys.executable))
    home = Path(os.path.realpath(sys.executable)).parent
    (prefix / "pyvenv.cfg").write_text(f"home = {home}\nversion = {sys.version.split()[0]}\n")
    site = prefix / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (site / "shared.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n{tool or ''}\n")
    for name, version in releases.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return python


def make_sleeper(folder: Path) -> Path:
    """Write a compatcheck that says that it started and never ends, as where a file system does not answer."""
    package = folder / "compatcheck" / "fleet"
    package.mkdir(parents=True)
    lines = (
        "import pathlib, time",
        "def describe_worker(options):",
        f"    pathlib.Path({str(folder / STARTED)!r}).touch()",
        "    time.sleep(600)",
    )
    (package / "ray.py").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    utils = pytest.importorskip("ray.cluster_utils")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with TemporaryDirectory(prefix="r", dir="/tmp") as folder:  # paths of sockets are short
        monkeypatch.setenv("RAY_TMPDIR", folder)
        found = utils.Cluster()
        yield found
        found.shutdown()


def add_node(cluster: Cluster, name: str, python: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Start a node whose workers run in an interpreter."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        return cluster.add_node(num_cpus=0, node_name=name)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_skew_and_loss_on_a_cluster(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # where a driver stands is on the path of its tasks
    dying, hanging = make_sleeper(tmp_path / "dying"), make_sleeper(tmp_path / "hanging")
    other = {**RELEASES, "nvidia-nccl-cu12": "2.20.5"}
    older = {**RELEASES, "pytest": "8.1"}
    environments = {
        "same": (RELEASES, ROOT),
        "older": (older, ROOT),
        "odd": (other, ROOT),
        "bare": (RELEASES, None),
        "dying": (RELEASES, dying),
        "hanging": (RELEASES, hanging),
    }
    nodes = {
        name: add_node(cluster, name, make_environment(tmp_path / "env" / name, releases, tool), monkeypatch)
        for name, (releases, tool) in environments.items()
    }

    def kill_in_mid_run() -> None:
        while not (dying / STARTED).exists():
            time.sleep(0.05)
        nodes["dying"].kill_raylet()  # type: ignore[attr-defined]

    killer = threading.Thread(target=kill_in_mid_run, daemon=True)
    killer.start()
    given = ("--address", cluster.address, "--timeout", 25, "--exclude-file", tmp_path / "out.txt", "--format", "json")
    ran = run("fleet", "env", *given, "--no-policy")
    killer.join(1)
    assert (hanging / STARTED).exists()
    data = json.loads(ran.out)
    fleet = data["fleet"]
    assert [sorted(kind["nodes"]) for kind in fleet["kinds"]] == [["older", "same"], ["odd"]]
    assert {subject["origin"].partition(": ")[2] for subject in data["subjects"]} >= {
        str(tmp_path / "env" / "odd" / "bin" / "python")
    }
    lost = {row["node"]: row["reason"] for row in fleet["lost"]}
    assert lost.keys() == {"dying", "hanging", "bare"}
    assert lost["dying"] == "died before it answered"
    assert lost["hanging"] == "did not answer within 25 s"
    assert "not installed there" in lost["bare"]
    odd = {row["name"]: (row["matters"], row["majority"]) for row in fleet["differences"]}
    assert odd == {"nccl": (True, "2.21.5"), "pytest": (False, "8.3")}
    assert set((tmp_path / "out.txt").read_text().split()) == {"dying", "hanging", "bare", "odd"}
    assert ran.code == 1


def test_a_cluster_that_is_not_there_is_said():
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="--address"):
        collect_nodes("127.0.0.1:1", {}, 5)


WORDS = {
    b"": "no Ray is there: what listens says nothing within 2 s",
    b"HTTP/1.0 400 Bad Request\r\n": "no Ray is there: it answers 'HTTP/1.0 400 Bad Request'",
    b"SSH-2.0-OpenSSH_9\r\n": "no Ray is there: it answers 'SSH-2.0-OpenSSH_9'",
    b"\0\0\0\4\0\0\0\0\0": "something answers there, and Ray did not connect to it within 2 s",
}
"""What a listener that is no Ray says to whoever connects → what is said of it; the last speaks HTTP/2, as gRPC does."""


@pytest.mark.parametrize("greeting", WORDS)
def test_a_port_that_is_no_ray_is_said_in_time(greeting: bytes):
    pytest.importorskip("ray")
    with socket.create_server(("", 0)) as listener:
        taken = []

        def answer() -> None:
            with suppress(OSError):
                while True:
                    taken.append(listener.accept()[0])
                    taken[-1].sendall(greeting)

        threading.Thread(target=answer, daemon=True).start()
        began = time.monotonic()
        done = ask_nodes(f"127.0.0.1:{listener.getsockname()[1]}", "--timeout", 2).communicate(timeout=60)
        assert time.monotonic() - began < 15
        assert WORDS[greeting] in done[1]


def ask_nodes(address: str, *options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "compatcheck", "fleet", "env", "--address", address, *map(str, options)]
    environ = {**os.environ, "NO_COLOR": "1", "COLUMNS": "400"}
    return subprocess.Popen(
        command, env=environ, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # where a driver stands is on the path of its tasks


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_head_that_hangs_in_mid_run_costs_no_more_than_the_timeout(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hanging = make_sleeper(tmp_path / "hanging")
    add_node(cluster, "hanging", make_environment(tmp_path / "env", RELEASES, hanging), monkeypatch)
    process = ask_nodes(cluster.address, "--timeout", HANGS_SECONDS, "--no-policy")
    while not (hanging / STARTED).exists():
        assert process.poll() is None
        time.sleep(0.05)
    head = cluster.head_node.all_processes["gcs_server"][0].process.pid
    os.kill(head, signal.SIGSTOP)
    try:
        _, said = process.communicate(timeout=HANGS_SECONDS + 25)
    finally:
        with suppress(ProcessLookupError):
            os.kill(head, signal.SIGCONT)
    assert process.returncode == 3
    assert f" did not answer within {HANGS_SECONDS} s" in said


def test_ray_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="needs Ray"):
        collect_nodes("auto", {}, 5)


def test_a_node_that_died_before_it_was_asked_is_missed_unless_it_left_on_purpose() -> None:
    from compatcheck.fleet.ray import _is_missed

    alive = [{"Alive": True, "NodeManagerAddress": f"10.0.0.{number}"} for number in (1, 2)]
    dead = {"Alive": False, "NodeManagerAddress": "10.0.0.3", "DeathReason": 2}
    assert _is_missed(dead, alive)
    assert not _is_missed({**dead, "DeathReason": 4}, alive), "drained as idle"
    assert not _is_missed({**dead, "NodeManagerAddress": "10.0.0.2"}, alive), "its host has another since"
