"""Waivers of the policy laid over findings, and what is to be said about the waivers themselves."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatcheck.core.suppression import Suppression
from compatcheck.resolution.scope import FactScope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from compatcheck.checking.policy import Range, Waiver
    from compatcheck.core.advisory import Advisory
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_ADVISORY = re.compile(r"[A-Z][A-Z0-9]*-|x_\w+-")
"""How ids of advisories begin (``CVE-``, ``GHSA-``, ``x_COMPATCHECK-``); those of rules are lower case with a slash."""


_MOST_GUESSES = 20
"""Waivers about no rule for which the nearest one is looked for, which takes some milliseconds."""


class Waivers:
    """The waivers of one run and what became of each."""

    def __init__(self, waivers: Sequence[Waiver], rules: RuleSet, today: date) -> None:
        """Resolve former ids; nothing is used yet."""
        self.rules = rules
        self.today = today
        self.entries = [(waiver, _current_id(waiver.rule, rules)) for waiver in waivers]
        self.used: set[int] = set()
        self._guesses = 0
        self.lapsed: dict[int, list[str]] = {}
        """Rules and advisories a waiver would have covered had it not ended."""
        self.seen: set[str] = set()
        """Packages that rules are about or that a subject has: any other ends no waiver."""
        self.audited = False
        """Whether advisories about every package were looked up, so that a waiver of one can be unused."""

    def apply(self, findings: Iterable[Finding], subject: Subject) -> Iterator[Finding]:
        """Yield the findings of a subject, waived where a waiver holds."""
        if subject.environment is not None:
            self.seen.update(subject.environment.packages)
        for finding in findings:
            yield self._waive(finding, subject)

    def apply_to_advisory(self, advisory: Advisory, subject: Subject) -> Advisory:
        """Return a security advisory, waived where a waiver of its id or of one of its aliases holds."""
        scope = FactScope(next(iter(subject.roles.values()), {}), subject.environment, self.rules)
        suppressed = self._find((advisory.id, *advisory.aliases), scope, advisory=True)
        return advisory if suppressed is None else advisory._replace(suppressed=suppressed)

    def _waive(self, finding: Finding, subject: Subject) -> Finding:
        scope = FactScope(subject.roles[finding.role], subject.environment, self.rules)
        suppressed = self._find((finding.rule_id,), scope, advisory=False)
        return finding if suppressed is None else finding._replace(suppressed=suppressed)

    def _find(self, names: Sequence[str], scope: FactScope, *, advisory: bool) -> Suppression | None:
        """Return the suppression of the first waiver that holds for any of these ids; a glob for rules covers no advisory."""
        for index, (waiver, rule) in enumerate(self.entries):
            if bool(_ADVISORY.match(rule)) is not advisory:
                continue
            if not (any(fnmatchcase(name, rule) for name in names) and _holds(waiver.package, scope)):
                continue
            if self._ended(waiver, scope):
                self.lapsed.setdefault(index, []).append(names[0])
                continue
            self.used.add(index)
            return Suppression(
                reason=waiver.reason,
                expires=None if waiver.expires is None else waiver.expires.isoformat(),
                until=None if waiver.until is None else waiver.until.text,
                owner=waiver.owner,
                source=waiver.source,
            )
        return None

    def _ended(self, waiver: Waiver, scope: FactScope) -> bool:
        expired = waiver.expires is not None and self.today > waiver.expires
        return expired or (waiver.until is not None and _holds(waiver.until, scope))

    def notes(self, *, complete: bool) -> tuple[str, ...]:
        """Say which waivers ended or matched nothing.

        Args:
            complete: whether everything the policy is about was checked; else a waiver may be unused for that reason.
        """
        return tuple(self._notes(complete=complete))

    def _notes(self, *, complete: bool) -> Iterator[str]:
        for index, (waiver, rule) in enumerate(self.entries):
            place = f"{waiver.source.path}:{waiver.source.line}" if waiver.source.line else waiver.source.path
            head = f"{place}: the waiver of {waiver.rule}"
            expired = waiver.expires is not None and self.today > waiver.expires
            owner = f" ({waiver.owner})" if waiver.owner else ""
            if index in self.lapsed:
                why = f"expired on {waiver.expires}" if expired else f"ended: {_text(waiver.until)} holds"
                names = ", ".join(dict.fromkeys(self.lapsed[index]))
                yield f"{head} {why} and no longer covers {names}{owner}"
            elif _ADVISORY.match(rule) and not self.audited:
                continue
            elif expired:
                yield f"{head} expired on {waiver.expires} and covers nothing: remove it{owner}"
            elif index not in self.used and not _names_other(rule) and self.rules.find(rule) is None:
                yield f"{head} is about no rule{self._nearest(rule)}{owner}"
            elif index not in self.used and complete:
                yield f"{head} covers nothing: remove it{owner}"
            elif waiver.until is not None and waiver.until.package not in self.rules.packages | self.seen:
                known = f"{waiver.until.package} is no package that is known here"
                yield f"{head} lasts until {waiver.until.text}, and {known}{owner}"

    def _nearest(self, rule_id: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 (only for a mistake)

        self._guesses += 1
        if self._guesses > _MOST_GUESSES:
            return ""
        near = get_close_matches(rule_id, [rule.id for rule in self.rules.all_rules()], n=1)
        return f": did you mean {near[0]}?" if near else ": see `compatcheck rules list`"


def _names_other(rule: str) -> bool:
    """Tell whether a waiver names more than one rule, or an advisory."""
    return any(character in rule for character in "*?[") or _ADVISORY.match(rule) is not None


def _current_id(rule: str, rules: RuleSet) -> str:
    if any(character in rule for character in "*?["):
        return rule
    found = rules.find(rule)
    return rule if found is None else found.id


def _holds(wanted: Range | None, scope: FactScope) -> bool:
    """Tell whether a package is in a range for certain; a range that only some of its releases meet does not count."""
    return wanted is None or scope.in_range(wanted.package, wanted.bounds) == "yes"


def _text(wanted: Range | None) -> str:
    return "" if wanted is None else wanted.text
