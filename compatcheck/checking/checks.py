"""Which rules take part in a run, what is waived, and what makes the run fail."""

from __future__ import annotations

from compatcheck.core.errors import RuleError, UsageError
from compatcheck.core.fail_on import parse_threshold
from compatcheck.core.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.policy import Policy
    from compatcheck.checking.waivers import Waivers
    from compatcheck.core.advisory import Audit
    from compatcheck.core.fail_on import Threshold
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

DEFAULT_FAIL_ON = "medium"


class Checks(NamedTuple):
    """Which rules take part, what is waived and what makes the run fail."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    rule_directories: tuple[str, ...] = ()
    fail_on: str = DEFAULT_FAIL_ON
    strict: bool = False
    fail_unread: bool = False
    """Whether a file of a directory that could not be read, or not whole, counts as one that was named."""
    security: bool = False
    """Whether pip-audit looks up the same packages."""
    security_service: str | None = None
    """Whom it asks: ``pypi``, ``osv`` or the URL of an OSV endpoint; None is its own setting."""

    baseline: str | None = None
    """JSON report of an earlier check: what stood there is counted, and fails no more."""

    def selects(self, rule_id: str) -> bool:
        """Tell whether a rule takes part."""
        if not (self.select or self.ignore):
            return True
        from fnmatch import fnmatchcase  # noqa: PLC0415 (only with a selection)

        if any(fnmatchcase(rule_id, pattern) for pattern in self.ignore):
            return False
        return not self.select or any(fnmatchcase(rule_id, pattern) for pattern in self.select)


class Criteria(NamedTuple):
    """Checks made ready for one database: what findings are held against."""

    rules: RuleSet
    checks: Checks
    threshold: Threshold
    """``--fail-on``."""
    waivers: Waivers | None = None


def open_criteria(inspection: Inspection, rules: RuleSet, checks: Checks) -> Criteria:
    """Make checks ready: the rules are there, the selection leaves some, the threshold and the waivers make sense.

    Raises:
        RuleError: the database holds no active rule.
        UsageError: a selection, a threshold or a waiver makes no sense.
    """
    require_rules(rules)
    require_selection(checks, rules, inspection.policy)
    checks = checks._replace(select=_rename(checks.select, rules), ignore=_rename(checks.ignore, rules))
    threshold = parse_threshold(checks.fail_on)
    return Criteria(rules, checks, threshold, _open_waivers(inspection, checks, rules))


def checks_of(policy: Policy | None) -> Checks:
    """Return the checks that a policy asks for; without one those that hold by themselves."""
    if policy is None:
        return Checks()
    fail_on = policy.fail_on or DEFAULT_FAIL_ON
    return Checks(
        policy.select, policy.ignore, policy.rules, fail_on, bool(policy.strict), fail_unread=bool(policy.fail_unread)
    )


def require_rules(rules: RuleSet) -> None:
    """Refuse an empty database: it would find nothing anywhere.

    Raises:
        RuleError: no active rule, altogether or in one of the person's own directories.
    """
    for database in rules.databases[1:]:
        if not database.count:
            raise RuleError(
                f"{database.name} holds no active rule",
                hint="name the directory that holds PACKAGE/SLUG.yaml, with status: active",
            )
    if not rules.count:
        raise RuleError("the rule database holds no active rule", hint="reinstall compatcheck, or mend --rules")


def require_selection(checks: Checks, rules: RuleSet, policy: Policy | None = None) -> None:
    """Refuse a selection that no rule meets: it would find nothing anywhere.

    Raises:
        UsageError: a misspelt glob, or everything is ignored.
    """
    if not (checks.select or checks.ignore):
        return
    from fnmatch import fnmatchcase  # noqa: PLC0415 (only with a selection)

    every = [name for rule in rules.all_rules() for name in (rule.id, *rule.former_ids)]
    ids = [rule.id for rule in rules.all_rules() if rule.status == "active"]
    for key, patterns, known in (("select", _rename(checks.select, rules), ids), ("ignore", checks.ignore, every)):
        for pattern in patterns:
            if not any(fnmatchcase(rule_id, pattern) for rule_id in known):
                from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

                from compatcheck.core.source import Source  # noqa: PLC0415 (only on the way to an error)

                near = get_close_matches(pattern, [*ids, *{f"{name.partition('/')[0]}/*" for name in ids}], n=1)
                msg = f"no rule matches {pattern!r}"
                stated = policy is not None and getattr(checks, key) is getattr(policy, key)
                source = Source(policy.path, key) if policy is not None and stated else None
                raise UsageError(
                    msg, source=source, hint=f"did you mean {near[0]!r}?" if near else "see `compatcheck rules list`"
                )
    if not any(map(checks.selects, ids)):
        raise UsageError("no rule is left to check", hint="narrow --ignore, or widen --select")


def _rename(patterns: Sequence[str], rules: RuleSet) -> tuple[str, ...]:
    """Return globs with the id that a rule has now in place of a former one."""
    found = (rules.find(pattern) for pattern in patterns)
    return tuple(pattern if rule is None else rule.id for pattern, rule in zip(patterns, found, strict=True))


def _open_waivers(inspection: Inspection, checks: Checks, rules: RuleSet) -> Waivers | None:
    """Return the waivers of the policy, None when there are none.

    Raises:
        UsageError: one without an end under ``--strict``.
    """
    if inspection.policy is None or not inspection.policy.waivers:
        return None
    from datetime import date  # noqa: PLC0415 (only with waivers)

    from compatcheck.checking.waivers import Waivers  # noqa: PLC0415 (only with waivers)

    for waiver in inspection.policy.waivers:
        if checks.strict and waiver.expires is None and waiver.until is None:
            msg = f"the waiver of {waiver.rule} has no end, which --strict asks for"
            hint = 'add expires = 2027-01-31, or until = "deepspeed>=0.16.8"'
            raise UsageError(msg, source=waiver.source, hint=hint)
    return Waivers(inspection.policy.waivers, rules, date.today())  # noqa: DTZ011 (a day as the project's people have it)


def find_auditor(checks: Checks) -> Callable[[Sequence[Subject]], Audit] | None:
    """Return what audits subjects; None without ``--security``.

    Raises:
        UsageError: there is no pip-audit, or the service makes no sense; before anything is read.
    """
    if not checks.security:
        return None
    from compatcheck.services import pip_audit  # noqa: PLC0415 (only with --security)

    pip_audit.check_service(checks.security_service)
    command = pip_audit.find_command()
    return lambda subjects: pip_audit.audit(
        [(subject.id, subject.environment) for subject in subjects if subject.environment is not None],
        command,
        checks.security_service,
    )
