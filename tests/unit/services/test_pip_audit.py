"""What becomes of pip-audit's answers, and of its silence; with a stand-in for it, and with the real one where it is there."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.collectors.python.installed import collect_installed
from compatcheck.collectors.python.interpreter import locate
from compatcheck.core.advisory import advisory_url, audit_text
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import UsageError
from compatcheck.core.installation import tell_remedy
from compatcheck.core.process import Completed
from compatcheck.core.programs import Program
from compatcheck.core.source import Source
from compatcheck.services import pip_audit

STAND_IN = """
import json, os, sys, time
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
pins = [line.strip() for line in open(value("--requirement"))]
with open({log!r}, "a") as log:
    log.write(json.dumps([os.getcwd(), arguments, pins]) + "\\n")
names = [pin.split("==") for pin in pins]
assert len({{name for name, _ in names}}) == len(names), "two versions of one package"
def write(data):
    with open(value("--output"), "w") as file:
        file.write(data if isinstance(data, str) else json.dumps(data))
{behaviour}
"""
CLEAN = 'write({"dependencies": [{"name": n, "version": v, "vulns": []} for n, v in names], "fixes": []})'
VULNERABLE_TORCH = """
write({"dependencies": [
    {"name": n, "version": v, "vulns": [{"id": "PYSEC-1", "fix_versions": []}] if n == "torch" else []} for n, v in names
]})
"""
REAL = importlib.util.find_spec("pip_audit") is not None or shutil.which("pip-audit") is not None


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch) -> None:
    """Reach servers on this machine directly."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def environment(*packages: Package) -> Environment:
    return Environment("test", {package.name: package for package in packages}, complete=True)


def package(name: str, version: str | None, **details: str) -> Package:
    return Package(name, version, Source("requirements.txt", None, 3), details=details)


@pytest.fixture
def auditor(tmp_path):
    """Audit with a program that behaves as asked; returns the audit and what the program was given."""

    def run(*environments: tuple[str, Environment], behaviour: str = CLEAN, service: str | None = None):
        log = tmp_path / "log"
        log.write_text("")
        program = tmp_path / "program.py"
        program.write_text(STAND_IN.format(log=str(log), behaviour=behaviour))
        audit = pip_audit.audit(environments, [sys.executable, str(program)], service)
        return audit, [json.loads(line) for line in log.read_text().splitlines()]

    return run


def test_every_pin_is_asked_about_once(auditor) -> None:
    first = environment(package("torch", "2.9.0+cu128"), package("requests", "2.31.0"))
    second = environment(package("torch", "2.9.0"), package("numpy", "2.0"))
    audit, calls = auditor(("a", first), ("b", second))
    assert [call[2] for call in calls] == [["torch==2.9.0", "requests==2.31.0", "numpy==2.0"]]
    assert (audit.audited, audit.advisories, audit.unaudited, audit.failure) == (4, (), (), None)
    assert audit.notes == ("torch 2.9.0+cu128 is looked up as 2.9.0: advisories know no local labels",)
    assert audit_text(audit) == "pip-audit: no advisories about 4 packages"


def test_two_versions_are_asked_about_in_two_runs(auditor) -> None:
    subjects = [
        (name, environment(package("torch", version)._replace(source=Source(name))))
        for name, version in [("a", "2.8"), ("b", "2.9"), ("c", "2.8")]
    ]
    audit, calls = auditor(*subjects)
    assert [call[2] for call in calls] == [["torch==2.8"], ["torch==2.9"]]
    assert audit.audited == 3


def test_a_file_checked_for_two_machines_is_counted_once(auditor) -> None:
    read = environment(package("torch", "2.9.0"), package("numpy", "2.0"), package("idna", None))
    audit, _ = auditor(("lock (on old)", read), ("lock (on new)", read), behaviour=VULNERABLE_TORCH)
    assert [advisory.subject for advisory in audit.advisories] == ["lock (on old)", "lock (on new)"]
    assert audit_text(audit) == "pip-audit: 1 advisory about 2 packages, 1 package could not be audited"


def test_it_is_run_where_nothing_can_be_imported_by_accident(auditor, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, ((directory, arguments, _),) = auditor(("a", environment(package("torch", "2.9"))))
    assert directory != str(tmp_path)
    assert not Path(directory).exists()
    assert "--no-deps" in arguments
    assert "--disable-pip" in arguments


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        (None, []),
        ("pypi", ["--vulnerability-service", "pypi"]),
        ("http://127.0.0.1:1/v1/query", ["--vulnerability-service", "osv", "--osv-url", "http://127.0.0.1:1/v1/query"]),
    ],
)
def test_the_service_is_passed_on(auditor, service, expected) -> None:
    audit, ((_, arguments, _),) = auditor(("a", environment(package("torch", "2.9"))), service=service)
    assert arguments[arguments.index("--aliases") + 2 :] == expected
    assert audit.service == ("pip-audit" if service is None else f"pip-audit, {service}")


def test_advisories_are_read(auditor) -> None:
    found = {
        "id": "GHSA-aaaa-bbbb-cccc",
        "fix_versions": ["2.9.1", "2.10"],
        "aliases": ["PYSEC-2026-2", "CVE-2026-1"],
        "description": "It is\n bad. " + "x" * 400,
    }
    answer = {"dependencies": [{"name": "torch", "version": "2.9.0", "vulns": [found]}], "fixes": []}
    behaviour = f"write({answer!r})\nsys.exit(1)"
    audit, _ = auditor(("a", environment(package("torch", "2.9.0+cu128"))), behaviour=behaviour)
    (advisory,) = audit.advisories
    assert advisory.id == "GHSA-aaaa-bbbb-cccc"
    assert advisory.aliases == ("CVE-2026-1", "PYSEC-2026-2")
    assert (advisory.package, advisory.version) == ("torch", "2.9.0+cu128")
    assert advisory.fixed_versions == ("2.9.1", "2.10")
    assert advisory.description.startswith("It is bad. xxx")
    assert len(advisory.description) == pip_audit.MAX_DESCRIPTION_CHARACTERS
    assert advisory.url == "https://osv.dev/vulnerability/GHSA-aaaa-bbbb-cccc"
    assert (advisory.subject, advisory.source.line) == ("a", 3)
    assert audit_text(audit) == "pip-audit: 1 advisory about 1 package"


def test_what_is_skipped_is_not_clean(auditor) -> None:
    behaviour = """
write({"dependencies": [
    {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.9.0)"},
    {"name": "numpy", "version": "2.0", "vulns": []},
]})
"""
    packages = environment(package("torch", "2.9.0"), package("numpy", "2.0"), package("silent", "1.0"))
    audit, _ = auditor(("a", packages), behaviour=behaviour)
    assert audit.audited == 1
    assert [(entry.package, entry.reason) for entry in audit.unaudited] == [
        ("torch", "Dependency not found on PyPI and could not be audited"),
        ("silent", "pip-audit gave no answer"),
    ]
    assert audit.failure is None
    assert audit_text(audit) == "pip-audit: no advisories about 1 package, 2 packages could not be audited"


def test_nothing_audited_is_a_failure(auditor) -> None:
    behaviour = 'write({"dependencies": [{"name": n, "skip_reason": "not found"} for n, _ in names]})'
    audit, _ = auditor(("a", environment(package("torch", "2.9.0"), package("numpy", "2.0"))), behaviour=behaviour)
    assert (audit.audited, len(audit.unaudited), audit.failure) == (0, 2, "not found")
    assert audit_text(audit) == "pip-audit: nothing was audited: not found"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("sys.exit('Traceback\\nError: https://user:secret@host refused')", "Error: https://[redacted]@host refused"),
        ("pass", "pip-audit gave no answer: exit code 0"),
        ("write('')", "pip-audit gave no answer"),
        ("write('{')", "pip-audit gave no answer"),
        ("write('[' * 100000)", "pip-audit gave no answer"),
        ("write([])", "pip-audit gave no answer"),
        ("write({'dependencies': [{'name': 'torch', 'version': '2.9'}]})", "pip-audit gave no answer"),
        ("write({'dependencies': [{'name': 'torch', 'vulns': [7]}]})", "pip-audit gave no answer"),
        ("write({'dependencies': [{'name': 'torch', 'vulns': [{}]}]})", "pip-audit gave no answer"),
        ("print('x' * 2**21)", "printed more than"),
    ],
)  # fmt: skip
def test_no_answer_is_no_clean_bill(auditor, behaviour, reason) -> None:
    audit, _ = auditor(("a", environment(package("torch", "2.9"))), behaviour=behaviour)
    assert audit.audited == 0
    assert audit.failure is not None
    assert reason in audit.failure
    assert "secret" not in audit.failure
    assert [entry.reason for entry in audit.unaudited] == [audit.failure]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["dependencies", "name", "version", "vulns", "id", "aliases", "fix_versions", "skip_reason"]
            ),
            inner | st.sampled_from(["torch", "numpy"]),
            max_size=5,
        )
    ),
    max_leaves=14,
)


@settings(max_examples=300)
@given(
    json_values
    | json_values.map(lambda value: {"dependencies": [value, {"name": "torch", "vulns": []}]})
    | json_values.map(
        lambda value: {
            "dependencies": [
                {
                    "name": "torch",
                    "vulns": [{"id": value or "X", "aliases": value, "fix_versions": value, "description": value}],
                }
            ]
        }
    )
)
def test_any_report_is_read_or_refused(data) -> None:
    def write(command, **_):
        Path(command[command.index("--output") + 1]).write_text(json.dumps(data))
        return Completed("", 0, None)

    packages = environment(package("torch", "2.9"), package("numpy", "2.0"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pip_audit, "run", write)
        audit = pip_audit.audit([("a", packages)], ["pip-audit"])
    assert audit.audited + len(audit.unaudited) == 2
    assert all(item.id for item in audit.advisories)
    json.dumps(audit)


def test_a_program_that_hangs_is_stopped(auditor, monkeypatch) -> None:
    monkeypatch.setattr(pip_audit, "MIN_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(pip_audit, "SECONDS_PER_PACKAGE", 0.0)
    audit, _ = auditor(("a", environment(package("torch", "2.9"))), behaviour="time.sleep(60)")
    assert "did not answer within 0.3 s" in str(audit.failure)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (package("torch", None), "no exact version is known"),
        (package("torch", "2.9", editable="/src"), "editable"),
        (package("torch", "2.9", vcs="git", direct_url="https://host/x"), "from a repository"),
        (package("torch", "2.9", source="directory"), "from a directory"),
        (package("torch", "2.9.0a0+git1a2b3c4"), "a build of a source tree"),
        (package("torch", "two"), "its version is not one of a package index"),
        (package("../evil\n--index-url x", "1"), "its version is not one of a package index"),
    ],
)
def test_what_is_no_release_is_not_asked_about(auditor, asked, reason) -> None:
    audit, calls = auditor(("a", environment(asked, package("numpy", "2.0"))))
    assert [call[2] for call in calls] == [["numpy==2.0"]]
    (entry,) = audit.unaudited
    assert entry.reason.startswith(reason)


def test_wheel_from_an_address_is_asked_about(auditor) -> None:
    wheel = package("torch", "2.9.0+cu128", direct_url="https://host/torch-2.9.0+cu128.whl", source="archive")
    _, calls = auditor(("a", environment(wheel)))
    assert calls[0][2] == ["torch==2.9.0"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('{"url": "file:///src", "dir_info": {"editable": true}}', False),
        ('{"url": "file:///src", "dir_info": {}}', False),
        ('{"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": "a"}}', False),
        ('{"url": "https://host/x.whl", "archive_info": {}}', True),
        ("[", True),
        ("[]", True),
    ],
)
def test_origin_of_an_installed_distribution_is_read(auditor, tmp_path, text, asked) -> None:
    folder = tmp_path / "prefix" / "torch-2.9.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    (folder / "direct_url.json").write_text(text)
    installed = collect_installed(locate(None, str(folder.parent), {}))
    audit, calls = auditor(("a", installed))
    assert bool(calls) is asked
    assert bool(audit.unaudited) is not asked


def test_nothing_to_ask_runs_nothing(auditor) -> None:
    audit, calls = auditor(("a", environment()))
    assert calls == []
    assert (audit.audited, audit.failure) == (0, None)


def test_ids_of_unknown_databases_have_no_page() -> None:
    assert advisory_url("x_COMPATCHECK-a.b") is None
    assert advisory_url("CVE-2026-1") == "https://osv.dev/vulnerability/CVE-2026-1"


@pytest.mark.parametrize("service", ["pip", "ftp://host", "", "osv "])
def test_unknown_service_is_refused(service) -> None:
    with pytest.raises(UsageError, match="not understood"):
        pip_audit.check_service(service)


def test_missing_program_is_said(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(pip_audit, "find_program", lambda name: Program(name, None))
    with pytest.raises(UsageError, match="not installed") as caught:
        pip_audit.find_command()
    assert caught.value.hint == tell_remedy("pip-audit")


def advisory(name: str, aliases: list[str], product: str, events: list[dict[str, str]]) -> dict[str, object]:
    """Write a record as a database of advisories does."""
    return {
        "schema_version": "1.7.5",
        "id": name,
        "modified": "2026-11-21T00:00:00Z",
        "published": "2026-11-20T00:00:00Z",
        "aliases": aliases,
        "summary": f"Something in {product}",
        "affected": [
            {"package": {"ecosystem": "PyPI", "name": product}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
        ],
    }


ADVISORIES = {
    ("torch", "2.9.0"): [
        advisory("GHSA-aaaa-bbbb-cccc", ["CVE-2026-1"], "torch", [{"introduced": "2.8"}, {"fixed": "2.9.1"}]),
        advisory("PYSEC-2026-7", ["CVE-2026-1"], "torch", [{"introduced": "2.8"}, {"fixed": "2.9.1"}]),
    ],
    ("old", "1.0"): [advisory("GHSA-dddd-eeee-ffff", [], "old", [{"introduced": "0"}, {"last_affected": "1.0"}])],
}


class Database(BaseHTTPRequestHandler):
    """Answers ``POST /v1/query`` as an OSV service does."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = ADVISORIES.get((asked["package"]["name"], asked["version"]), [])
        body = json.dumps({"vulns": found} if found else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def database():
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()


@pytest.mark.skipif(not REAL, reason="pip-audit is not installed: pip install -e '.[audit]'")
def test_real_pip_audit_asks_the_endpoint() -> None:
    packages = environment(package("torch", "2.9.0+cu128"), package("old", "1.0"), package("clean", "3.0"))
    with database() as url:
        audit = pip_audit.audit([("a", packages)], pip_audit.find_command(), url)
    assert (audit.audited, audit.unaudited, audit.failure) == (3, (), None)
    found = {entry.package: entry for entry in audit.advisories}
    assert found.keys() == {"torch", "old"}
    # It takes two records with a common alias for one advisory, and PYSEC for its name.
    assert (found["torch"].id, found["torch"].aliases) == ("PYSEC-2026-7", ("CVE-2026-1", "GHSA-aaaa-bbbb-cccc"))
    assert found["torch"].fixed_versions == ("2.9.1",)
    assert (found["old"].id, found["old"].fixed_versions) == ("GHSA-dddd-eeee-ffff", ())
    assert found["old"].description == "Something in old"


@pytest.mark.skipif(not REAL, reason="pip-audit is not installed: pip install -e '.[audit]'")
def test_real_pip_audit_without_its_service_is_no_clean_bill() -> None:
    with database() as url:
        pass
    audit = pip_audit.audit([("a", environment(package("torch", "2.9.0")))], pip_audit.find_command(), url)
    assert (audit.audited, len(audit.unaudited)) == (0, 1)
    assert "pip-audit gave no answer: " in str(audit.failure)
    assert "refused" in str(audit.failure)
