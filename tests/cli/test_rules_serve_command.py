"""`compatcheck rules serve`, with the real pip-audit and uv as its clients."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ROOT
from tests.cli.run_cli import run

RULE = "deepspeed/zero3-params-kept-in-backward"
NAME = "x_COMPATCHECK-deepspeed.zero3-params-kept-in-backward"
PLAIN = """
title: Demo keeps memory
kind: regression
status: active
affected: {demo: ">=1.0,<1.2"}
impact: {effect: memory, memory: device, scope: rank, phase: forward, bytes: "1"}
confidence: reported
verifiable: []
what: |
  It keeps memory.
why: |
  It does.
remedies:
  - {upgrade: {demo: ">=1.2"}, safety: safe}
references:
  - {type: FIX, url: "https://example.org/pull/1"}
examples:
  match: []
"""
PIP_AUDIT = (
    [sys.executable, "-m", "pip_audit"] if importlib.util.find_spec("pip_audit") else [shutil.which("pip-audit") or ""]
)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch) -> None:
    """Reach servers on this machine directly."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@contextmanager
def serving(*arguments: object, stop: signal.Signals = signal.SIGTERM):
    """Run the command until the block ends; then it must stop by itself, with code 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "compatcheck", "rules", "serve", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), process.communicate()[1]
        yield url
        process.send_signal(stop)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 0, err
        assert "Traceback" not in err
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def own_rules(tmp_path) -> Path:
    folder = tmp_path / "own"
    (folder / "demo").mkdir(parents=True)
    (folder / "demo" / "keeps-memory.yaml").write_text(PLAIN)
    return folder


def query(url: str, package: str, version: str) -> list[dict]:
    body = json.dumps({"package": {"name": package, "ecosystem": "PyPI"}, "version": version}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/query", body)) as answer:  # noqa: S310 (our own)
        return json.load(answer).get("vulns", [])


def test_rules_with_conditions_are_served_only_when_asked_for(own_rules) -> None:
    done = run("rules", "serve", "--select", "deepspeed/*")
    assert (done.code, done.out) == (2, "")
    assert "--all" in done.err
    with serving("--rules", own_rules) as url:
        assert url.startswith("http://127.0.0.1:")
        assert [entry["id"] for entry in query(url, "demo", "1.1")] == ["x_COMPATCHECK-demo.keeps-memory"]
        assert query(url, "demo", "1.2") == query(url, "deepspeed", "0.16.4") == []
    with serving("--rules", own_rules, "--all", stop=signal.SIGINT) as url:
        found = {entry["id"]: entry for entry in query(url, "deepspeed", "0.16.4")}
        assert found[NAME]["summary"].startswith("Only if training.zero_stage == 3")


def test_address_that_is_taken_is_said(own_rules) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("rules", "serve", "--rules", own_rules, "--port", taken.getsockname()[1])
    assert done.code == 2
    assert "cannot listen at 127.0.0.1:" in done.err


@pytest.mark.skipif(not PIP_AUDIT[0], reason="pip-audit is not installed: pip install -e '.[audit]'")
def test_pip_audit_reports_our_rules(tmp_path) -> None:
    (tmp_path / "pins.txt").write_text("deepspeed==0.16.4\ntorch==2.9.0+cu128\nnumpy==2.0\n")
    with serving("--all", "--select", RULE, "--select", "torch/conv3d*") as url:
        done = subprocess.run(
            [
                *(
                    *PIP_AUDIT,
                    "-r",
                    "pins.txt",
                    "--no-deps",
                    "--disable-pip",
                    "--format",
                    "json",
                    "--output",
                    "out.json",
                ),
                *("--progress-spinner", "off", "-s", "osv", "--osv-url", f"{url}/v1/query"),
            ],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    assert done.returncode == 1, done.stderr
    found = {entry["name"]: entry["vulns"] for entry in json.loads((tmp_path / "out.json").read_text())["dependencies"]}
    assert {name: [entry["id"] for entry in entries] for name, entries in found.items()} == {
        "deepspeed": [NAME],
        "torch": ["x_COMPATCHECK-torch.conv3d-half-precision-skips-cudnn"],
        "numpy": [],
    }
    assert found["deepspeed"][0]["fix_versions"] == ["0.16.8"]
    assert found["deepspeed"][0]["description"].startswith("Only if training.zero_stage == 3 and ")


@pytest.mark.skipif(not PIP_AUDIT[0], reason="pip-audit is not installed: pip install -e '.[audit]'")
def test_check_reports_our_rules_as_advisories_of_the_real_pip_audit(tmp_path) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\n")
    with serving("--all", "--select", RULE) as url:
        arguments = ("--security-service", f"{url}/v1/query", "--no-policy", "--format", "json")
        done = run("check", tmp_path / "requirements.txt", *arguments)
    data = json.loads(done.out)
    assert (done.code, [entry["id"] for entry in data["advisories"]]) == (1, [NAME])
    assert data["advisories"][0]["fixed_versions"] == ["0.16.8"]


LOCK = """
version = 1
revision = 3
requires-python = ">=3.10"

[[package]]
name = "deepspeed"
version = "{version}"
source = {{ registry = "{url}/simple" }}
sdist = {{ url = "{url}/deepspeed-{version}.tar.gz", hash = "sha256:{zeros}", size = 1 }}

[[package]]
name = "demo"
version = "0.1.0"
source = {{ virtual = "." }}
dependencies = [{{ name = "deepspeed" }}]

[package.metadata]
requires-dist = [{{ name = "deepspeed", specifier = "=={version}" }}]
"""
PROJECT = '[project]\nname = "demo"\nversion = "0.1.0"\nrequires-python = ">=3.10"\ndependencies = ["deepspeed=={}"]\n'


@pytest.mark.versions
@pytest.mark.ci
def test_uv_audit_reports_our_rules(tmp_path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not on PATH")
    if subprocess.run([uv, "audit", "--help"], capture_output=True, check=False).returncode:
        pytest.skip("this uv has no audit")
    found = {}
    with serving("--all", "--select", RULE) as url:
        for version in ("0.15.4", "0.16.0", "0.16.7", "0.16.8"):
            folder = tmp_path / version
            folder.mkdir()
            (folder / "pyproject.toml").write_text(PROJECT.format(version))
            (folder / "uv.lock").write_text(LOCK.format(version=version, url=url, zeros="0" * 64))
            done = subprocess.run(
                [
                    *(uv, "audit", "--frozen", "--no-cache", "--preview-features", "audit,json-output"),
                    *("--output-format", "json", "--service-url", url),
                ],
                cwd=folder,
                env={key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"},
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            data = json.loads(done.stdout)
            assert done.returncode == bool(data["vulnerabilities"]), done.stderr
            found[version] = [(entry["id"], entry["fix_versions"]) for entry in data["vulnerabilities"]]
    assert found == {"0.15.4": [], "0.16.0": [(NAME, ["0.16.8"])], "0.16.7": [(NAME, ["0.16.8"])], "0.16.8": []}
