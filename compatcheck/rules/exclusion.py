"""Ranges that leave out what rules are about: constraints for pip and uv, `allowedVersions` for Renovate.

None of these formats knows a condition, so the person chooses the rules whose condition the project meets. A specifier joins its
clauses with "and": an affected range between two good ones can only be left out release by release, as far as they are known.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from compatcheck.core.errors import UsageError
from compatcheck.core.intervals import Interval, find_intervals
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import all_ordered, parse_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from packaging.version import Version

    from compatcheck.core.versions import Bounds
    from compatcheck.rules.database import RuleSet
    from compatcheck.rules.osv import Record

_MAX_NAMES = 4


class Exclusion(NamedTuple):
    """What is left of one package."""

    package: str
    specifier: str
    """PEP 440 specifier set that no affected release meets, and every other known one does."""
    rules: tuple[tuple[str, str], ...]
    """Id and title of the rules behind it."""


class Excluded(NamedTuple):
    """What can be left out by version, and what cannot."""

    exclusions: tuple[Exclusion, ...]
    """By package."""
    left_out: tuple[tuple[str, str], ...]
    """Rule id and why it excludes nothing."""


def exclude(records: Iterable[Record], rules: RuleSet) -> Excluded:
    """Write, package by package, which releases are free of these rules.

    Raises:
        UsageError: no known release of a package is free of all of them.
    """
    bounds: dict[str, Bounds] = {}
    names: dict[str, dict[str, str]] = {}
    left_out = []
    for record in records:
        for package in dict.fromkeys(entry.package for entry in record.affected):
            own = [clauses for entry in record.affected if entry.package == package for clauses in entry.bounds]
            intervals = find_intervals(own)
            if not intervals:
                continue
            problem = _problem(package, intervals, rules)
            if problem is not None:
                left_out.append((record.rule_id, problem))
                continue
            bounds.setdefault(package, []).extend(own)
            title = str(record.data["summary"])
            names.setdefault(package, {})[record.rule_id] = title
    exclusions = []
    for package in sorted(bounds):
        specifier = _specifier(package, bounds[package], rules, names[package])
        if specifier:
            exclusions.append(Exclusion(package, specifier, tuple(names[package].items())))
        else:
            left_out += [(rule_id, f"is about no known release of {package}") for rule_id in names[package]]
    return Excluded(tuple(exclusions), tuple(left_out))


def _problem(package: str, intervals: Sequence[Interval], rules: RuleSet) -> str | None:
    if intervals == (Interval(None, None),):
        return f"is about every release of {package}"
    between = any(interval.start is not None and interval.end is not None for interval in intervals)
    if between and not rules.releases(package):
        return f"has a range between good releases, and the releases of {package} are not known"
    return None


def _specifier(package: str, bounds: Bounds, rules: RuleSet, names: Collection[str]) -> str:
    known = [version for release in rules.releases(package) if (version := parse_version(release)) is not None]
    bad = sorted(version for version in known if all_ordered(bounds, version))
    good = sorted(set(known) - set(bad))
    intervals = find_intervals(bounds)
    if known and not any(not version.is_prerelease for version in good):
        listed = ", ".join(list(names)[:_MAX_NAMES]) + (
            f" and {more} more" if (more := len(names) - _MAX_NAMES) > 0 else ""
        )
        raise UsageError(f"no known release of {package} is free of {listed}", hint="choose fewer rules with --select")
    clauses: list[str] = []
    for interval in intervals:
        inside = [version for version in bad if interval.holds(version)]
        clauses += _clauses(interval, inside, good)
    return ",".join(clauses)


def _clauses(interval: Interval, inside: Sequence[Version], good: Sequence[Version]) -> list[str]:
    """Leave an interval out with one clause where that spares every good release, else release by release."""
    one = None
    if interval.start is None and interval.end is not None:
        one = f">{interval.end}" if interval.closed else f">={interval.end}"
    elif interval.start is not None and interval.end is None:
        one = f"<{interval.start}"
    if one is not None:
        specifier = SpecifierSet(one)
        outside = [version for version in good if not interval.holds(version) and not version.is_prerelease]
        if all(specifier.contains(version, prereleases=True) for version in outside):
            return [one]
    return [f"!={version}" for version in inside]


def format_constraints(exclusions: Iterable[Exclusion], title: str) -> str:
    """Write a constraints file (``pip install -c``, ``uv pip compile -c``)."""
    lines = [f"# {title}"]
    for exclusion in exclusions:
        lines += [f"# {rule}: {_line(text)}" for rule, text in exclusion.rules]
        lines.append(exclusion.package + exclusion.specifier)
    return "\n".join(lines) + "\n"


def format_uv(exclusions: Iterable[Exclusion], title: str, key: str = "constraint-dependencies") -> str:
    """Write a table for ``pyproject.toml``.

    Args:
        exclusions: what is left of each package.
        title: first line, a comment.
        key: ``constraint-dependencies``, which narrow what is required, or ``override-dependencies``, which replace it: for a
            bad release that another package pins.
    """
    lines = [f"# {title}", "[tool.uv]", f"{key} = ["]
    for exclusion in exclusions:
        lines += [f"  # {rule}: {_line(text)}" for rule, text in exclusion.rules]
        lines.append(f'  "{exclusion.package}{exclusion.specifier}",')
    return "\n".join([*lines, "]"]) + "\n"


def format_renovate(exclusions: Iterable[Exclusion], title: str) -> str:
    """Write a Renovate configuration whose package rules allow only what is left."""
    rules = [
        {
            "description": [f"{rule}: {_line(text)}" for rule, text in exclusion.rules],
            "matchDatasources": ["pypi"],
            "matchPackageNames": [exclusion.package],
            "allowedVersions": exclusion.specifier,
        }
        for exclusion in exclusions
    ]
    data = {
        "$schema": "https://docs.renovatebot.com/renovate-schema.json",
        "description": [title],
        "packageRules": rules,
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())
