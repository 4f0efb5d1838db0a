"""Rules as records of the Open Source Vulnerability format, so that other tools can report them.

A record says which releases of which package; it has no words for a configuration. So the condition of a rule stands first in
``summary``, where people see it, and ``affected`` holds only what the format can say: the ranges of one package. A clause about
several packages at once, a component that is no distribution (``cudnn``) or an absent package is left out, and said.

https://ossf.github.io/osv-schema/ (1.7.5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.intervals import Interval, UnorderedRangeError, find_intervals
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import all_ordered, parse_version
from compatcheck.rules.rule import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from compatcheck.core.versions import Bounds
    from compatcheck.rules.database import CompiledRule, RuleSet, Texts

SCHEMA_VERSION = "1.7.5"
ECOSYSTEM = "PyPI"
PREFIX = "x_COMPATCHECK-"
"""``x_`` marks a database that is nobody's home database."""

MAX_CONDITION_CHARACTERS = 240
"""Of a condition in ``summary``, one line; ``details`` has all of it."""

_REFERENCE_TYPES = {
    "INTRODUCED": "INTRODUCED",
    "FIX": "FIX",
    "REPORT": "REPORT",
    "DISCUSSION": "DISCUSSION",
    "DOCUMENTATION": "ARTICLE",
    "SOURCE": "WEB",
    "EVIDENCE": "EVIDENCE",
}
_PREFERRED_REFERENCES = ("FIX", "INTRODUCED", "REPORT")


class Affected(NamedTuple):
    """The releases of one package that a rule is about."""

    package: str
    """Canonical name."""
    bounds: Bounds
    """Compiled range; ``[[]]`` where the rule is about every release."""
    when: str | None
    """Condition of this range alone."""


class Record(NamedTuple):
    """A rule another tool can report."""

    id: str
    rule_id: str
    conditional: bool
    """Whether the rule depends on more than what is installed."""
    affected: tuple[Affected, ...]
    data: Mapping[str, Any]
    """The record itself."""


class Described(NamedTuple):
    """What the format can say of a database, and what it cannot."""

    records: tuple[Record, ...]
    left_out: tuple[tuple[str, str], ...]
    """Rule id and why it, or a part of it, is not among the records."""


def record_id(rule_id: str) -> str:
    """Return the id of a rule's record: ``x_COMPATCHECK-deepspeed.hpz-secondary-shard``, fit for a file name and a URL."""
    return PREFIX + rule_id.replace("/", ".", 1).replace("/", "-")


def describe_rules(rules: RuleSet, selects: Callable[[str], bool]) -> Described:
    """Describe every active rule that takes part; folklore is none, as it is wrong advice and never fires alone."""
    records: dict[str, Record] = {}
    left_out: list[tuple[str, str]] = []
    for rule in rules.all_rules():
        if rule.status != "active" or rule.kind == "folklore" or not selects(rule.id):
            continue
        texts = rules.texts(rule)
        affected, reasons = find_affected(rule, texts)
        left_out += [(rule.id, reason) for reason in reasons]
        if affected:
            records[rule.id] = _record(rule, texts, affected, rules)
    return Described(tuple(records[rule_id] for rule_id in sorted(records)), tuple(sorted(left_out)))


def find_affected(rule: CompiledRule, texts: Texts) -> tuple[tuple[Affected, ...], tuple[str, ...]]:
    """Return the ranges of single packages among a rule's clauses, and why the other clauses cannot be said."""
    affected = []
    reasons = []
    for clause, (_, when) in zip(rule.clauses, texts.affected, strict=True):
        problem = _problem(clause.packages)
        if problem is not None:
            reasons.append(problem)
            continue
        ((package, bounds),) = clause.packages.items()
        affected.append(Affected(package, [[]] if bounds == "present" else bounds, when))
    return tuple(affected), tuple(dict.fromkeys(reasons))


def _problem(packages: Mapping[str, Any]) -> str | None:
    if not packages:
        return "is about no package"
    if len(packages) > 1:
        return f"is about {' and '.join(packages)} together, and a record says only one or the other"
    ((package, bounds),) = packages.items()
    if package in COMPONENTS:
        return f"is about {package}, which is no distribution"
    if bounds == "absent":
        return f"is about {package} being absent"
    if bounds != "present":
        try:
            find_intervals(bounds)
        except UnorderedRangeError as error:
            return f"has a range of {package} that is no interval: {error}"
    return None


def condition_text(texts: Texts) -> str | None:
    """Return what must hold besides the versions, as the rule writes it; None when nothing need."""
    parts = [] if texts.when is None else [texts.when]
    own = [when for _, when in texts.affected]
    if any(own):
        parts.append(" or ".join(f"({when})" if when else "(always)" for when in dict.fromkeys(own)))
    return " ".join(" and ".join(f"({part})" if len(parts) > 1 else part for part in parts).split()) or None


def _record(rule: CompiledRule, texts: Texts, affected: Sequence[Affected], rules: RuleSet) -> Record:
    condition = condition_text(texts)
    unless = None if texts.unless is None else " ".join(texts.unless.split())
    data = {
        "schema_version": SCHEMA_VERSION,
        "id": record_id(rule.id),
        "modified": f"{rules.date}T00:00:00Z",
        **({"aliases": [record_id(name) for name in rule.former_ids]} if rule.former_ids else {}),
        "summary": _summary(rule.title, condition, unless),
        "details": "\n\n".join(_details(texts, condition, unless)),
        "affected": [
            _affected(package, [entry for entry in affected if entry.package == package], rules)
            for package in dict.fromkeys(entry.package for entry in affected)
        ],
        "references": _references(texts),
        "database_specific": {
            "rule": rule.id,
            "kind": rule.kind,
            "condition": condition,
            "unless": unless,
            "impact": {
                "effect": rule.effect,
                "memory": rule.memory,
                "scope": rule.scope,
                "phase": rule.phase,
                "bytes": None if texts.formula is None else " ".join(texts.formula.split()),
            },
            "confidence": rule.confidence,
            "unverified": dict(texts.unverified),
            "checked_through": dict(texts.checked_through),
            "remedies": [{key: remedy[key] for key in remedy if key != "when"} for remedy in texts.remedies],
            "database": rules.id,
        },
    }
    return Record(record_id(rule.id), rule.id, condition is not None, tuple(affected), data)


def _summary(title: str, condition: str | None, unless: str | None) -> str:
    title = " ".join(title.split())
    words = [] if condition is None else [f"only if {_shorten(condition)}"]
    if unless is not None:
        words.append(f"unless {_shorten(unless)}")
    if not words:
        return title
    said = ", ".join(words)
    return f"{said[0].upper()}{said[1:]}: {title}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CONDITION_CHARACTERS else text[: MAX_CONDITION_CHARACTERS - 1] + "…"


def _details(texts: Texts, condition: str | None, unless: str | None) -> Iterator[str]:
    if condition is not None:
        yield f"Only if `{condition}`."
    if unless is not None:
        yield f"Unless `{unless}`."
    yield texts.what.strip()
    yield texts.why.strip()
    if texts.known_problems:
        yield texts.known_problems.strip()
    remedies = [f"- {_remedy(remedy)}" for remedy in texts.remedies]
    if remedies:
        yield "\n".join(remedies)


def _remedy(remedy: Mapping[str, Any]) -> str:
    target = ", ".join(f"{name} {value}" for name, value in remedy["target"].items())
    note = remedy["note"] or ""
    return note if remedy["verb"] == "note" else f"{remedy['verb']} {target}" + (f" ({note})" if note else "")


def _affected(package: str, entries: Sequence[Affected], rules: RuleSet) -> dict[str, Any]:
    bounds = [clauses for entry in entries for clauses in entry.bounds]
    versions = [
        release
        for release in rules.releases(package)
        if (version := parse_version(release)) is not None and all_ordered(bounds, version)
    ]
    described: dict[str, Any] = {
        "package": {"ecosystem": ECOSYSTEM, "name": package, "purl": f"pkg:pypi/{package}"},
        "ranges": describe_ranges(find_intervals(bounds)),
    }
    if versions:
        described["versions"] = versions
    if any(entry.when for entry in entries):
        described["database_specific"] = {
            "conditions": [
                {"ranges": describe_ranges(find_intervals(entry.bounds)), "condition": entry.when} for entry in entries
            ],
        }
    return described


def describe_ranges(intervals: Sequence[Interval]) -> list[dict[str, Any]]:
    """Write intervals as ``ranges``: those that end at a release which is good again first, as clients read only the first."""
    ended = [interval for interval in intervals if not interval.closed]
    closed = [interval for interval in intervals if interval.closed]
    ranges = []
    for group, word in ((ended, "fixed"), (closed, "last_affected")):
        events = []
        for interval in group:
            events.append({"introduced": interval.start or "0"})
            if interval.end is not None:
                events.append({word: interval.end})
        if events:
            ranges.append({"type": "ECOSYSTEM", "events": events})
    return ranges


def _references(texts: Texts) -> list[dict[str, str]]:
    """Write the references, with one of type WEB: clients show that one and make up an address where there is none."""
    references = [
        {"type": _REFERENCE_TYPES[str(reference["type"])], "url": str(reference["url"])}
        for reference in texts.references
    ]
    if references and not any(reference["type"] == "WEB" for reference in references):
        rank = {kind: index for index, kind in enumerate(_PREFERRED_REFERENCES)}
        best = min(references, key=lambda reference: rank.get(reference["type"], len(rank)))
        references.append({"type": "WEB", "url": best["url"]})
    return references
