"""Two environments, or two states of a lock, under the same run: what a change of versions does to memory."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from compatcheck.checking.checks import open_criteria
from compatcheck.checking.gathering import gather, require_image, require_offered
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.report import EVERY_CHECK, add_plans, build_report
from compatcheck.checking.tracer import Untraced
from compatcheck.checking.verdict import Variants
from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.files import LOCAL
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.selection import DEFAULT
from compatcheck.core.source import Source
from compatcheck.matching.difference import compare as compare_reports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.checking.checks import Checks, Criteria
    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.checking.tracer import Tracer
    from compatcheck.core.difference import Difference
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.report import Report
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_INTERPRETER = r"(?:python|pypy)[\d.]*(?:\.exe)?"


class Side(NamedTuple):
    """One side of a comparison."""

    report: Report
    subject: Subject


def compare(
    sides: tuple[str, str],
    asked: Request | Inspection,
    rules: RuleSet,
    environ: Mapping[str, str],
    checks: Checks = EVERY_CHECK,
    *,
    tracer: Tracer | None = None,
) -> Difference:
    """Compare two environments, requirement files, locks or images under the same run.

    Args:
        sides: before and after: each an environment (its directory or interpreter), a requirements or lock file, an image, or
            a file in a git revision, ``HEAD~1:uv.lock``.
        asked: the run; what it names as an environment is left out. An inspection has a policy with it.
        rules: the database.
        environ: variables of this process.
        checks: which rules take part, and what makes the comparison fail.
        tracer: traces the run under both sides; None estimates it in closed form.

    Returns:
        The difference; peaks in bytes where a run is described.

    Raises:
        InputError: a side cannot be read.
        UsageError: a side holds more than one environment or could not be traced, there is more than one run or machine, or
            standard input is named twice.
    """
    inspection = as_inspection(asked)
    if len({request.target for request in inspection.requests}) > 1:
        names = ", ".join(str(request.target) for request in inspection.requests)
        raise UsageError(f"the policy has several targets: {names}", hint="compare on one of them, with --target")
    if len(inspection.requests) > 1:
        raise UsageError("--run is given more than once", hint="compare one run at a time")
    if sides == ("-", "-"):
        raise UsageError("standard input is named twice", hint="keep one `-`; it can be read only once")
    for side, other in (sides, sides[::-1]):
        _refuse_revision(side, other)
    chosen = inspection.requests[0].image_environments
    if chosen and not any(is_image(side) or os.path.isdir(side) for side in sides):
        require_image(chosen)
    criteria = open_criteria(inspection, rules, checks)
    before = _read_side(sides[0], inspection.requests[0], criteria, environ)
    failing = frozenset((one.rule_id, one.role) for one in before.report.findings if one.fails)
    after = _read_side(sides[1], inspection.requests[0], criteria, environ, failing)
    skipped = (*before.report.skipped, *after.report.skipped)
    require_offered(inspection.requests, (before.subject, after.subject), skipped)
    difference = compare_reports(sides, before.report, after.report, rules.packages)
    return difference._replace(peaks=_price_both(before, after, rules, tracer))


def _refuse_revision(side: str, other: str) -> None:
    """Refuse a revision without a file.

    Raises:
        InputError: with the file of the other side in that revision, where it is one.
    """
    from compatcheck.collectors.requirements.git_revision import is_revision  # noqa: PLC0415 (on the way to an error)

    if side == "-" or os.path.lexists(side) or not is_revision(side):
        return
    hint = f"as {side}:./{os.path.relpath(other)}" if os.path.isfile(other) else "as HEAD~1:uv.lock"
    raise InputError("is a revision, and no file of it is named", source=Source(side), hint=hint)


def _read_side(
    name: str,
    request: Request,
    criteria: Criteria,
    environ: Mapping[str, str],
    before: frozenset[tuple[str, str]] | None = None,
) -> Side:
    from compatcheck.collectors.requirements.git_revision import open_revision, parse_revision  # noqa: PLC0415 (beside its use)

    def check(**side: Any) -> Side:  # noqa: ANN401 (fields of a request)
        asked = request._replace(**{"python": None, "prefix": None, "paths": (), "here": False, **side})
        if asked.image is None:
            asked = asked._replace(image_environments=())
        if not asked.paths and asked.image is None:
            asked = asked._replace(selection=DEFAULT)
        return _judge_side(name, asked, criteria, environ, before)

    if parse_revision(name) is not None:
        with open_revision(name) as file:
            side = check(paths=(file.path,), within=file.root, files=file.files)
            return side._replace(report=file.rename(side.report))
    if is_image(name):
        return check(image=name)
    if os.path.isdir(name):
        try:
            return check(prefix=name)
        except InputError as error:
            hint = "name an environment, or a lock or requirements file inside the directory"
            raise InputError(error.message, hint=hint) from None
    if re.fullmatch(_INTERPRETER, os.path.basename(name)) and os.access(name, os.X_OK):
        return check(python=name)
    return check(paths=(name,))


_SYSTEM = ("bin", "lib", "local")
"""Directories in ``usr``, of which the root of a system has one."""


def is_image(path: str) -> bool:
    """Tell whether a file is an archive, or a directory the layout of an image or the root of an unpacked one."""
    if os.path.isdir(path):
        is_root = any(os.path.isdir(os.path.join(path, "usr", name)) for name in _SYSTEM)
        is_checkout = os.path.exists(os.path.join(path, ".git"))
        return os.path.isfile(os.path.join(path, "oci-layout")) or (is_root and not is_checkout)
    from compatcheck.collectors.image.compression import recognise_compression  # noqa: PLC0415 (beside its use)
    from compatcheck.collectors.image.tar import looks_like_tar  # noqa: PLC0415 (beside its use)

    try:
        head = LOCAL.read_bytes(path, 512)
    except OSError:
        return False
    return recognise_compression(head) != "none" or looks_like_tar(head)


def _judge_side(
    name: str,
    request: Request,
    criteria: Criteria,
    environ: Mapping[str, str],
    before: frozenset[tuple[str, str]] | None,
) -> Side:
    """Gather one side, which has one subject, and judge it; plan where more fails than before, where that is known."""
    gathered = gather(request, criteria.rules, environ)
    if not gathered.subjects:
        for entry in gathered.skipped:
            raise InputError(entry.reason, source=entry.source, hint=entry.hint)
    if len(gathered.subjects) != 1:
        msg = f"{name} holds {len(gathered.subjects)} environments"
        hint = "name one lock or requirements file"
        if request.image is not None:
            hint = "name one with --environment: " + ", ".join(subject.id for subject in gathered.subjects)
        raise UsageError(msg, source=Source(name), hint=hint)
    variants = Variants(criteria)
    report = build_report(gathered, criteria, variants=variants)
    if before is not None and any(one.fails and (one.rule_id, one.role) not in before for one in report.findings):
        report = add_plans(report, gathered, criteria, variants)
    return Side(report, gathered.subjects[0])


def _price_both(before: Side, after: Side, rules: RuleSet, tracer: Tracer | None) -> tuple[Estimate, Estimate] | None:
    """Return the peaks of the run under both sides; None where no run is described.

    Raises:
        UsageError: a side could not be traced that was to be.
    """
    if tracer is not None:
        return _trace(before.subject, rules, tracer), _trace(after.subject, rules, tracer)
    first, second = (side.report.subjects[0].estimate for side in (before, after))
    return (first, second) if first is not None and second is not None and first.phases and second.phases else None


def _trace(side: Subject, rules: RuleSet, tracer: Tracer) -> Estimate:
    found = tracer(side, rules)
    if isinstance(found, Untraced):
        hint = "leave out --trace for an estimate in closed form"
        raise UsageError(f"{side.id} could not be traced: {found.reason}", hint=hint)
    return found.estimate
