"""Work on a cluster of several nodes has the results of this machine, byte for byte, also when a worker is killed in mid-run."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.checking.likeness import describe
from compatcheck.core.pool import Share
from compatcheck.fleet.cluster import open_cluster
from compatcheck.lab.measurement import to_json
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes import catalog
from tests.cli.drawn_locks import write_locks
from tests.cli.run_cli import run
from tests.faults.desk import write_rule
from tests.unit.lab.local_packages import base, index, leaky, probe
from tests.unit.lab.pack_wheel import pack

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

    from compatcheck.lab.environments.overlay import Base

__all__ = ["base", "index", "probe"]

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
NODES = 3
RELEASES = [(f"1.{number}", 2 if number < 4 else 9) for number in range(8)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    utils = pytest.importorskip("ray.cluster_utils")
    with TemporaryDirectory(prefix="r", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)  # nodes have no compatcheck but what they are sent
        patch.setenv("RAY_TMPDIR", folder)
        found = utils.Cluster()
        for number in range(NODES):
            found.add_node(num_cpus=1, node_name=f"node{number}")
        yield found
        found.shutdown()


@pytest.fixture
def releases(index: Path) -> None:
    for version, held in RELEASES:
        pack(index, "leaky", version, leaky(held), ("helper==1.0",))


def list_workers() -> set[int]:
    """Return the processes that do a piece of work on a node of this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes().startswith(b"ray::work"):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


class Killer(threading.Thread):
    """Kills the first processes that work, as a node that is reclaimed does."""

    def __init__(self, count: int) -> None:
        super().__init__(daemon=True)
        self.left, self.killed, self.ended = count, set[int](), threading.Event()

    def run(self) -> None:
        while self.left and not self.ended.wait(0.02):
            for number in list_workers() - self.killed:
                time.sleep(0.2)  # it is at work by then
                os.kill(number, signal.SIGKILL)
                self.killed.add(number)
                self.left -= 1
                break


def export(path: Path) -> list[dict[str, Any]]:
    """Return measurements as they were written, but for when they were made."""
    return [to_json(replace(one, time=None)) for one in read_measurements(str(path))]


def sweep(probe: str, base: Base, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: object) -> tuple[Any, ...]:
    """Sweep all releases with a store of its own; return the report, the measurements and what was kept."""
    folder.mkdir()
    monkeypatch.setenv("COMPATCHECK_EVIDENCE", str(folder / "evidence.sqlite3"))
    ran = run(
        *("sweep", probe, "--package", "leaky", "--versions", " || ".join(f"=={version}" for version, _ in RELEASES)),
        *("--python", base.python, "--exclude-newer", "never", "--param", "factor=1,2", "--format", "json"),
        *("--export", folder / "sweep.jsonl", *options),
    )
    assert ran.code == 1, ran.err
    kept = run("evidence", "list", "--limit", 0, "--format", "json")
    rows = [{**row, "time": None, "id": None} for row in json.loads(kept.out)]
    return ran.out, export(folder / "sweep.jsonl"), sorted(map(json.dumps, rows)), ran.err


@pytest.mark.usefixtures("releases")
def test_a_sweep_on_a_cluster_has_the_evidence_of_one_here(
    cluster: Cluster, base: Base, probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    *here, _ = sweep(probe, base, tmp_path / "here", monkeypatch, "--quiet")
    *there, said = sweep(probe, base, tmp_path / "there", monkeypatch, "--ray", cluster.address)
    assert "done here" not in said
    assert len(here[1]) == len(here[2]) == 2 * len(RELEASES)
    assert there == here
    killer = Killer(2)
    killer.start()
    *again, said = sweep(probe, base, tmp_path / "again", monkeypatch, "--ray", cluster.address)
    killer.ended.set()
    killer.join()
    assert len(killer.killed) == 2
    assert "done here" not in said
    assert again == here


@pytest.mark.usefixtures("releases")
def test_a_search_on_a_cluster_finds_what_one_here_does(
    cluster: Cluster, base: Base, probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    versions = " || ".join(f"=={version}" for version, _ in RELEASES)
    given = ("bisect", probe, "--package", "leaky", "--versions", versions, "--python", base.python)
    found = []
    for options in ((), ("--ray", cluster.address)):
        monkeypatch.setenv("COMPATCHECK_EVIDENCE", str(tmp_path / f"{len(found)}.sqlite3"))
        ran = run(*given, "--exclude-newer", "never", "--format", "json", *options)
        assert ran.code == 1, ran.err
        assert "done here" not in ran.err
        found.append(ran.out)
    assert found[0] == found[1]
    assert json.loads(found[0])["transitions"][0]["after"] == "1.4"


def check_many(folder: Path, names: Path, *options: object) -> tuple[bytes, str]:
    output = folder / f"{len(list(folder.iterdir()))}.jsonl"
    ran = run("bulk", "--list", names, "--output", output, "--no-policy", *options)
    assert ran.code == 1, ran.err
    assert "done here" not in ran.err
    return output.read_bytes(), ran.err.splitlines()[-1]  # above it Ray tells of workers and nodes that it lost


def test_many_inputs_on_a_cluster_have_the_lines_of_a_run_here(cluster: Cluster, tmp_path: Path):
    paths = write_locks(tmp_path / "locks", 120)
    (tmp_path / "locks" / "broken.lock").write_bytes(b"\xff\xfe\x00")
    paths[60:60] = [str(tmp_path / "locks" / "broken.lock"), str(tmp_path / "none.txt")]
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in paths))
    (tmp_path / "out").mkdir()
    here, said = check_many(tmp_path / "out", tmp_path / "list.txt")
    assert check_many(tmp_path / "out", tmp_path / "list.txt", "--ray", cluster.address) == (here, said)
    killer = Killer(2)
    killer.start()
    again = check_many(tmp_path / "out", tmp_path / "list.txt", "--ray", cluster.address)
    killer.ended.set()
    killer.join()
    assert len(killer.killed) == 2
    assert again == (here, said)
    assert (
        run("bulk", *paths[:3], "--no-policy", "--ray", cluster.address).out
        == run("bulk", *paths[:3], "--no-policy").out
    )


def test_a_node_that_is_lost_has_its_share_done_by_others(cluster: Cluster, tmp_path: Path):
    lost = cluster.add_node(num_cpus=1, node_name="lost")
    paths = write_locks(tmp_path / "locks", 150)
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in paths))
    (tmp_path / "out").mkdir()
    here = check_many(tmp_path / "out", tmp_path / "list.txt")
    threading.Timer(4, lost.kill_raylet).start()
    assert check_many(tmp_path / "out", tmp_path / "list.txt", "--ray", cluster.address) == here


def test_what_nodes_do_not_see_alike_is_done_here(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (path,) = write_locks(tmp_path / "locks", 1)
    described = describe([path], str(tmp_path))
    monkeypatch.setattr("compatcheck.checking.likeness.describe", lambda *_: described)
    os.utime(path, (1, 1))
    ran = run("bulk", path, "--no-policy", "--ray", cluster.address)
    assert ran.out == run("bulk", path, "--no-policy").out
    assert "done here and not on the cluster" in ran.err
    assert "is another one there" in ran.err


def test_what_no_node_has_alone_is_done_here_and_a_full_cluster_is_said(cluster: Cluster):
    """Ray waits for ever, and says nothing, for a node with two devices where there are two with one."""
    import ray

    added = [cluster.add_node(num_cpus=1, num_gpus=1, node_name=f"device{number}") for number in range(2)]
    said: list[str] = []
    with open_cluster(cluster.address, said.append) as place:
        began = time.monotonic()
        for devices in (1, 2):
            share = Share(command=print, pieces=(), timeout_seconds=1, devices=devices)
            place.do(share, lambda _: None, lambda: time.monotonic() - began > 60)
        assert said == ["done here and not on the cluster: 2 GPUs are asked for, and no node offers more than 1"]
        taken = [ray.remote(num_cpus=1)(lambda: time.sleep(300)).remote() for _ in range(NODES + 2)]
        while ray.available_resources().get("CPU", 0) >= 1:
            assert time.monotonic() - began < 60
            time.sleep(0.1)
        with open_cluster(cluster.address, said.append):
            assert said[1].startswith(f"no processor of {cluster.address} is free")
        for reference in taken:
            ray.cancel(reference, force=True)
    for node in added:
        cluster.remove_node(node)


@pytest.mark.usefixtures("releases")
def test_a_confirmation_on_a_cluster_is_that_of_one_here(
    cluster: Cluster, base: Base, probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(catalog, "__path__", [*catalog.__path__, os.path.dirname(probe)])
    write_rule(tmp_path / "rules", [version for version, _ in RELEASES])
    given = ("confirm", "leaky/holds-more", "--rules", tmp_path / "rules", "--suspect", "1.4", "--baseline", "1.1")
    found = []
    for options in ((), ("--ray", cluster.address)):
        monkeypatch.setenv("COMPATCHECK_EVIDENCE", str(tmp_path / f"{len(found)}.sqlite3"))
        ran = run(*given, "--python", base.python, "--exclude-newer", "never", "--format", "json", *options)
        assert ran.code == 1, ran.err
        assert "done here" not in ran.err
        found.append(re.sub(r'"time": "[^"]*"', "", ran.out))
    assert found[0] == found[1]
    assert json.loads(ran.out)[0]["verdict"] == "confirmed"


def test_a_cluster_that_is_not_there_is_said_before_anything_is_done(tmp_path: Path):
    (path,) = write_locks(tmp_path, 1)
    ran = run("bulk", path, "--no-policy", "--ray", "127.0.0.1:1")
    assert (ran.code, ran.out) == (4, "")
    assert "--ray 127.0.0.1:1: nothing answers there" in ran.err
