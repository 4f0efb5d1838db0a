"""Security advisories about the same packages, from the real pip-audit.

It is run as a program, never imported: its modules are private and take 0.7 s. It is given pins and resolves nothing. Its exit
code says nothing (1 is a vulnerability, a traceback or a missing file), and with a package its service does not know it ends well
with "No known vulnerabilities found"; so only its JSON counts, and a package that the JSON does not answer for is unaudited.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from compatcheck.core.advisory import Advisory, Audit, Unaudited, advisory_url, fold_unaudited
from compatcheck.core.errors import UsageError
from compatcheck.core.installation import tell_remedy
from compatcheck.core.json_file import parse_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.process import Completed, run
from compatcheck.core.programs import find_program
from compatcheck.core.redaction import redact
from compatcheck.core.versions import is_source_build, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment, Package
    from compatcheck.core.source import Source

SERVICES = ("pypi", "osv")
MAX_DESCRIPTION_CHARACTERS = 300
MIN_TIMEOUT_SECONDS = 120.0
SECONDS_PER_PACKAGE = 2.0
"""pip-audit asks for one package after the other; 0.09 s each were measured where every answer was a 404."""
_MAX_REPORT_BYTES = 64 * 2**20
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FAILED = "pip-audit gave no answer"


class _Pin(NamedTuple):
    """One package of one subject with the version to ask about."""

    subject: str
    package: Package
    asked: str


def check_service(service: str | None) -> None:
    """Refuse a service that pip-audit cannot be pointed at.

    Raises:
        UsageError: neither a known name nor the URL of an endpoint.
    """
    if service is not None and service not in SERVICES and not service.startswith(("http://", "https://")):
        raise UsageError(
            f"--security-service {redact(service)!r} is not understood",
            hint=f"one of {', '.join(SERVICES)}, or the URL of an OSV query endpoint",
        )


def find_command() -> list[str]:
    """Return how pip-audit is started: with our interpreter where it has it, else from ``PATH``.

    Raises:
        UsageError: there is none, or none outside of what is inspected.
    """
    if importlib.util.find_spec("pip_audit") is not None:
        return [sys.executable, "-I", "-m", "pip_audit"]
    program = find_program("pip-audit")
    if program.path is None:
        why = "which is not installed" if program.refused is None else program.describe_absence()
        raise UsageError(
            f"--security needs pip-audit, {why}",
            hint=tell_remedy("pip-audit"),
        )
    return [program.path]


def audit(environments: Iterable[tuple[str, Environment]], command: Sequence[str], service: str | None = None) -> Audit:
    """Look up every pinned package of these environments.

    Args:
        environments: subject and what is in it.
        command: how pip-audit is started.
        service: ``pypi``, ``osv``, the URL of an OSV endpoint, or None for pip-audit's own setting.
    """
    pins: list[_Pin] = []
    unaudited: list[Unaudited] = []
    notes: dict[str, None] = {}
    for subject, environment in environments:
        for package in environment.packages.values():
            asked, reason = _question(package)
            if asked is None:
                unaudited.append(Unaudited(package.name, package.version, subject, package.source, reason))
                continue
            pins.append(_Pin(subject, package, asked))
            if reason:
                notes.setdefault(f"{package.name} {package.version} {reason}")
    words = "pip-audit" if service is None else f"pip-audit, {redact(service)}"
    advisories: list[Advisory] = []
    audited: set[tuple[str, str, Source]] = set()
    failures: list[str] = []
    for batch in _batches(pins):
        answers, failure = _ask(batch, command, service)
        if failure is not None:
            failures.append(failure)
        for pin in batch:
            answer = answers.get(pin.package.name, failure or _FAILED)
            if isinstance(answer, str):
                unaudited.append(
                    Unaudited(pin.package.name, pin.package.version, pin.subject, pin.package.source, answer)
                )
                continue
            audited.add((pin.package.name, pin.package.version or pin.asked, pin.package.source))
            advisories += _advisories(pin, answer)
    failure = None
    if unaudited and not audited:
        failure = failures[0] if failures else fold_unaudited(tuple(unaudited))[0][0]
    return Audit(words, len(audited), tuple(advisories), tuple(unaudited), failure, tuple(notes))


def _question(package: Package) -> tuple[str | None, str]:
    """Return the version to ask about with a remark, or None with the reason why there is no such question."""
    origin = _origin(package)
    if origin is not None:
        return None, origin
    if package.version is None:
        return None, "no exact version is known"
    version = parse_version(package.version)
    if version is None or _NAME.fullmatch(package.name) is None:
        return None, "its version is not one of a package index"
    if is_source_build(package.version):
        return None, "a build of a source tree: it need not be the release of that number"
    if "+" in package.version:
        return str(version), f"is looked up as {version}: advisories know no local labels"
    return str(version), ""


def _origin(package: Package) -> str | None:
    """Say why a package is no release of an index: editable, a directory, a repository; None when it may be one."""
    details = package.details
    if "editable" in details:
        return "editable: it need not be the release of that number"
    if "vcs" in details or details.get("direct_url", "").startswith(("git+", "hg+", "svn+", "bzr+")):
        return "from a repository: it need not be the release of that number"
    if details.get("source") == "directory":
        return "from a directory: it need not be the release of that number"
    return None


def _batches(pins: Iterable[_Pin]) -> Iterator[list[_Pin]]:
    """Divide the pins so that none holds two versions of a package, which pip-audit refuses."""
    batches: list[tuple[dict[str, str], list[_Pin]]] = []
    for pin in pins:
        for versions, batch in batches:
            if versions.setdefault(pin.package.name, pin.asked) == pin.asked:
                batch.append(pin)
                break
        else:
            batches.append(({pin.package.name: pin.asked}, [pin]))
    yield from (batch for _, batch in batches)


_Answer = list[dict[str, Any]] | str
"""The advisories about a package, or why it was skipped."""


def _ask(batch: Sequence[_Pin], command: Sequence[str], service: str | None) -> tuple[dict[str, _Answer], str | None]:
    """Run pip-audit once.

    Returns:
        Answers by package, and why there are none.
    """
    lines = dict.fromkeys(f"{pin.package.name}=={pin.asked}" for pin in batch)
    with tempfile.TemporaryDirectory(prefix="compatcheck-audit-") as directory:
        pins, report = os.path.join(directory, "pins.txt"), os.path.join(directory, "report.json")
        with open(pins, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        done = run(
            [
                *command,
                *("--requirement", pins, "--no-deps", "--disable-pip", "--format", "json", "--output", report),
                *("--progress-spinner", "off", "--desc", "on", "--aliases", "on"),
                *_service_arguments(service),
            ],
            timeout_seconds=max(MIN_TIMEOUT_SECONDS, SECONDS_PER_PACKAGE * len(lines)),
        )
        if done.failure is not None:
            return {}, redact(done.failure)
        try:
            if os.path.getsize(report) > _MAX_REPORT_BYTES:
                return {}, "its report is too large"
            with open(report, encoding="utf-8") as file:
                data = parse_json(file.read(), report)
            return dict(_read_answers(data)), None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, _explain(done)


def _service_arguments(service: str | None) -> list[str]:
    if service is None:
        return []
    if service in SERVICES:
        return ["--vulnerability-service", service]
    return ["--vulnerability-service", "osv", "--osv-url", service]


def _read_answers(data: Mapping[str, Any]) -> Iterator[tuple[str, _Answer]]:
    """Yield package and answer from pip-audit's JSON."""
    for entry in data["dependencies"]:
        name, reason = str(entry["name"]), entry.get("skip_reason")
        if reason is not None:
            # "Dependency not found on PyPI and could not be audited: torch (2.9.0)": the last part is said beside it.
            yield name, redact(str(reason).partition(f": {name} (")[0])
            continue
        found = entry["vulns"]
        if not isinstance(found, list) or not all(isinstance(item, dict) and item.get("id") for item in found):
            raise TypeError(name)
        yield name, found


def _explain(done: Completed) -> str:
    """Say why there is no report, in the last line the program printed that is no traceback."""
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("WARNING:") and "encouraged to fully hash" not in line]
    last = redact(lines[-1])[:300] if lines else f"exit code {done.returncode}"
    return f"{_FAILED}: {last}"


def _advisories(pin: _Pin, answer: Iterable[Mapping[str, Any]]) -> Iterator[Advisory]:
    for entry in answer:
        identifier = str(entry.get("id", ""))
        description = " ".join(str(entry.get("description") or "").split())
        if len(description) > MAX_DESCRIPTION_CHARACTERS:
            description = description[: MAX_DESCRIPTION_CHARACTERS - 1].rstrip() + "…"
        yield Advisory(
            id=identifier,
            aliases=tuple(sorted(_texts(entry.get("aliases")))),
            package=pin.package.name,
            version=pin.package.version or pin.asked,
            fixed_versions=_texts(entry.get("fix_versions")),
            description=description,
            url=advisory_url(identifier),
            subject=pin.subject,
            source=pin.package.source._replace(path=redact(pin.package.source.path)),
        )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
