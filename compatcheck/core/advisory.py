"""What a security audit of the same packages found, and what it could not look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from compatcheck.core.source import Source
    from compatcheck.core.suppression import Suppression


class Advisory(NamedTuple):
    """One published advisory about one package of one subject."""

    id: str
    """As the service gives it: ``GHSA-…``, ``PYSEC-…``, ``CVE-…``."""
    aliases: tuple[str, ...]
    """The same advisory in other databases."""
    package: str
    """Canonical name."""
    version: str
    """As installed, local label included."""
    fixed_versions: tuple[str, ...]
    """Releases without it, oldest first; empty when there is none or none is known."""
    description: str
    """One line, shortened."""
    url: str | None
    """A page about it; None for an id of no known database."""
    subject: str
    source: Source
    """Where the version is stated."""
    suppressed: Suppression | None = None
    fails: bool = False
    """Whether it makes the run fail: not waived, and not ``--fail-on never``."""


class Unaudited(NamedTuple):
    """A package no answer was given about; it is not clean, it is unknown."""

    package: str
    version: str | None
    subject: str
    source: Source
    reason: str


class Audit(NamedTuple):
    """One run of the auditor over every subject."""

    service: str
    """Whom it asked, in words: ``pip-audit``, ``pip-audit, osv``."""
    audited: int
    """Packages that were looked up, over all files; one checked for several machines counts once."""
    advisories: tuple[Advisory, ...]
    unaudited: tuple[Unaudited, ...]
    failure: str | None = None
    """Why nothing was looked up; None when the auditor answered."""
    notes: tuple[str, ...] = ()
    """What was asked in other words than installed: a local label left off."""


def advisory_url(identifier: str) -> str | None:
    """Return the page about an advisory, for the databases that have one."""
    known = identifier.startswith(("GHSA-", "PYSEC-", "CVE-"))
    return f"https://osv.dev/vulnerability/{identifier}" if known else None


def fix_text(advisory: Advisory) -> str:
    """Say which release is without it."""
    if not advisory.fixed_versions:
        return "no fixed release is known"
    return f"fixed in {', '.join(advisory.fixed_versions)}"


def audit_text(audit: Audit) -> str:
    """Say in one line what the audit came to; what was not looked at never reads as clean."""
    open_count = count_open(audit)
    waived = len({_stated(advisory) for advisory in audit.advisories if advisory.suppressed is not None})
    if audit.failure is not None:
        return f"{audit.service}: nothing was audited: {audit.failure}"
    parts = [f"{open_count or 'no'} {'advisory' if open_count == 1 else 'advisories'} about {_packages(audit.audited)}"]
    if waived:
        parts.append(f"{waived} waived")
    if audit.unaudited:
        parts.append(f"{_packages(count_unaudited(audit))} could not be audited")
    return f"{audit.service}: {', '.join(parts)}"


def count_open(audit: Audit) -> int:
    """Count advisories that are not waived; a file that is checked for several machines has each once."""
    return len({_stated(advisory) for advisory in audit.advisories if advisory.suppressed is None})


def count_failing(audit: Audit) -> int:
    """Count advisories that make the run fail, each file's once."""
    return len({_stated(advisory) for advisory in audit.advisories if advisory.fails})


def count_unaudited(audit: Audit) -> int:
    """Count packages no answer was given about, those of a file that is checked for several machines once."""
    return len({(entry.package, entry.version, entry.source) for entry in audit.unaudited})


def _stated(advisory: Advisory) -> tuple[str, str, str, Source]:
    return advisory.id, advisory.package, advisory.version, advisory.source


def _packages(count: int) -> str:
    return f"{count} package{'' if count == 1 else 's'}"


def fold_advisories(advisories: tuple[Advisory, ...]) -> tuple[tuple[Advisory, tuple[str, ...]], ...]:
    """Say an advisory about one version once, with the subjects that have it; those that fail the run first."""
    groups: dict[tuple[str, str, str, bool], list[Advisory]] = {}
    for advisory in advisories:
        key = (advisory.package, advisory.version, advisory.id, advisory.suppressed is None)
        groups.setdefault(key, []).append(advisory)
    folded = [(entries[0], tuple(dict.fromkeys(entry.subject for entry in entries))) for entries in groups.values()]
    return tuple(sorted(folded, key=lambda item: (item[0].suppressed is not None, item[0].package, item[0].id)))


def fold_unaudited(unaudited: tuple[Unaudited, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Group packages, with their versions, by the reason they were not audited for, the most frequent first."""
    groups: dict[str, dict[str, None]] = {}
    for entry in unaudited:
        groups.setdefault(entry.reason, {})[f"{entry.package} {entry.version or ''}".strip()] = None
    return tuple(
        (reason, tuple(names)) for reason, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    )
