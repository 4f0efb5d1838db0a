"""`compatcheck diff`: what does a change of versions do to memory?"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from compatcheck.checking.checks import Checks, open_waivers, require_rules, require_selection
from compatcheck.checking.gather import gather
from compatcheck.checking.report import build_report
from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.output import Output, parse_outputs, terminal_width, write_formatted
from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.fail_on import Threshold, parse_threshold
from compatcheck.core.source import Source
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.checking.request import Request
    from compatcheck.checking.runs import Plan
    from compatcheck.checking.waivers import Waivers
    from compatcheck.core.difference import Difference
    from compatcheck.core.estimate import Estimate
    from compatcheck.core.report import Report
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

FORMATS = ("text", "markdown", "json")

_INTERPRETER = r"(?:python|pypy)[\d.]*(?:\.exe)?"


class Side(NamedTuple):
    """One side of a comparison."""

    report: Report
    subject: Subject


@click.command("diff", cls=options.GroupedCommand, short_help="Compare two environments or lock files.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@options.inside_image_options
@options.file_options
@options.input_options
@options.rule_check_options
@options.output_options(FORMATS)
@options.grouped_option(
    "Estimate",
    "--trace",
    is_flag=True,
    help="Trace the run under both sides, in an interpreter with torch, instead of estimating.",
)
def command(before: str, after: str, trace: bool, **given: Any) -> int:  # noqa: ANN401, FBT001 (click's signature)
    """Compare two environments, requirement files or locks under the same run: which regressions enter and leave with a change.

    A and B are each an environment (its directory or interpreter), a requirements or lock file, a container image (archive,
    layout or root directory), or a file in a git revision: `compatcheck diff HEAD~1:uv.lock uv.lock --training train.yaml`.
    Exit code 1 when a finding counts against --fail-on under B and not under A. This machine's devices and variables take no
    part; give --gpu.
    """
    plan, checks, output = split({**given, "paths": (before,), "hook": False}, files=True)
    if len({request.target for request in plan.requests}) > 1:
        names = ", ".join(str(request.target) for request in plan.requests)
        msg = f"the policy has several targets: {names}"
        raise UsageError(msg, hint="compare on one of them, with --target")
    if len(plan.requests) > 1:
        msg = "--run is given more than once"
        raise UsageError(msg, hint="compare one run at a time")
    return execute((before, after), plan, checks, output, trace=trace)


def execute(names: tuple[str, str], plan: Plan, checks: Checks, output: Output, *, trace: bool = False) -> int:
    """Compare both sides and write the outcome.

    Returns:
        The exit code.

    Raises:
        CompatcheckError: a side cannot be read, or an option makes no sense.
    """
    from compatcheck.checking.runs import require_offered  # noqa: PLC0415 (beside its use)
    from compatcheck.matching.difference import compare  # noqa: PLC0415 (beside its use)

    started = time.perf_counter()
    targets = parse_outputs(output.outputs, FORMATS)
    if names == ("-", "-"):
        msg = "standard input is named twice"
        raise UsageError(msg, hint="keep one `-`; it can be read only once")
    rules = open_rules(checks.rule_directories)
    require_rules(rules)
    require_selection(checks, rules, plan.policy)
    threshold = parse_threshold(checks.fail_on)
    waivers = open_waivers(plan, checks, rules)
    before, after = (read_side(name, plan.requests[0], rules, checks, threshold, waivers) for name in names)
    require_offered(plan.requests, (before.subject, after.subject), (*before.report.skipped, *after.report.skipped))
    difference = compare(names, before.report, after.report, rules.packages)
    peaks = _price_both(before.subject, after.subject, rules, trace=trace)
    difference = difference._replace(peaks=peaks, seconds=time.perf_counter() - started)
    write_formatted(lambda name, color: format_as(name, difference, output, color=color), output, targets)
    return difference.exit_code


def read_side(
    name: str, request: Request, rules: RuleSet, checks: Checks, threshold: Threshold, waivers: Waivers | None
) -> Side:
    """Read one side and judge it.

    Raises:
        InputError: it cannot be read.
        UsageError: it holds more than one environment.
    """
    from compatcheck.collectors.requirements.git_revision import open_revision, parse_revision  # noqa: PLC0415 (beside its use)

    def check(**side: Any) -> Side:  # noqa: ANN401 (fields of a request)
        asked = request._replace(**{"python": None, "prefix": None, "paths": (), "here": False, **side})
        return judge_side(name, asked, rules, checks, threshold, waivers)

    if parse_revision(name) is not None:
        with open_revision(name) as file:
            side = check(paths=(file.path,))
            return side._replace(report=file.rename(side.report))
    if is_image(name):
        return check(image=name)
    if os.path.isdir(name):
        try:
            return check(prefix=name)
        except InputError as error:
            if os.path.isdir(os.path.join(name, "usr")):  # a root directory
                return check(image=name)
            hint = "name an environment, or a lock or requirements file inside the directory"
            raise InputError(error.message, hint=hint) from None
    if re.fullmatch(_INTERPRETER, os.path.basename(name)) and os.access(name, os.X_OK):
        return check(python=name)
    return check(paths=(name,))


def is_image(path: str) -> bool:
    """Tell whether a file is an archive, or a directory the layout of an image."""
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, "oci-layout"))
    from compatcheck.collectors.image.compression import recognise_compression  # noqa: PLC0415 (beside its use)
    from compatcheck.collectors.image.tar import looks_like_tar  # noqa: PLC0415 (beside its use)

    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except (OSError, ValueError):
        return False
    return recognise_compression(head) != "none" or looks_like_tar(head)


def judge_side(
    name: str, request: Request, rules: RuleSet, checks: Checks, threshold: Threshold, waivers: Waivers | None
) -> Side:
    """Gather one side, which has one subject, and judge it."""
    gathered = gather(request, rules, os.environ)
    if not gathered.subjects:
        for entry in gathered.skipped:
            raise InputError(entry.reason, source=entry.source, hint=entry.hint)
    if len(gathered.subjects) != 1:
        msg = f"{name} holds {len(gathered.subjects)} environments"
        hint = "name one lock or requirements file"
        if request.image is not None:
            hint = "name one with --environment: " + ", ".join(subject.id for subject in gathered.subjects)
        raise UsageError(msg, source=Source(name), hint=hint)
    return Side(build_report(gathered, rules, checks, threshold, waivers), gathered.subjects[0])


def _price_both(before: Subject, after: Subject, rules: RuleSet, *, trace: bool) -> tuple[Estimate, Estimate] | None:
    """Return the peaks of the run under both sides; None where no run is described.

    Raises:
        UsageError: a side could not be traced that was to be.
    """
    described = all(
        any("training.sequence_length" in facts for facts in side.roles.values()) for side in (before, after)
    )
    if trace:
        from compatcheck.lab.traced.request import Untraceable  # noqa: PLC0415 (only when asked)
        from compatcheck.lab.tracing import trace_subject  # noqa: PLC0415 (only when asked)

        traced = []
        for side in (before, after):
            found = trace_subject(side, rules, None)
            if isinstance(found, Untraceable):
                hint = "leave out --trace for an estimate in closed form"
                raise UsageError(f"{side.id} could not be traced: {found.reason}", hint=hint)
            traced.append(found.estimate)
        return traced[0], traced[1]
    if not described:
        return None
    from compatcheck.matching.engine import match  # noqa: PLC0415 (only with a run)
    from compatcheck.memory.job import estimate_job  # noqa: PLC0415 (only with a run)
    from compatcheck.memory.regressions import include, lay_over  # noqa: PLC0415 (only with a run)

    def price(side: Subject) -> Estimate:
        estimated = estimate_job(side.roles, side.environment)
        return include(estimated, lay_over(estimated, match(side, rules).findings)) if estimated.phases else estimated

    first, second = price(before), price(after)
    return (first, second) if first.phases and second.phases else None


def format_as(name: str, difference: Difference, output: Output, *, color: bool) -> str:
    """Format a difference."""
    from compatcheck.reporters import difference as reporter  # noqa: PLC0415 (beside its use)

    if name == "json":
        return reporter.format_json(difference)
    if name == "markdown":
        return reporter.format_markdown(difference)
    return reporter.format_text(
        difference, verbose=output.verbose, quiet=output.quiet, color=color, width=terminal_width()
    )
