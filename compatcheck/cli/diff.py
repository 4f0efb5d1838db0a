"""`compatcheck diff`: what does a change of versions do to memory?"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.help import Command
from compatcheck.cli.laboratory import find_tracer
from compatcheck.cli.output import format_with, parse_outputs, write_figures, write_formatted
from compatcheck.core.language import speaking
from compatcheck.rules.locate import open_rules

FORMATS = ("text", "markdown", "json")


@click.command("diff", cls=Command)
@options.argument("before", "A")
@options.argument("after", "B")
@options.take_check("diff", "inside image", "files", formats="text,markdown,json")
def command(before: str, after: str, trace: bool, plot: str | None, **given: Any) -> int:  # noqa: ANN401, FBT001 (click's signature)
    """Compare two environments, requirement files or locks under the same run: which regressions enter and leave with a change.

    A and B are each an environment (its directory or interpreter), a requirements or lock file, a container image (archive,
    layout or root directory), or a file in a git revision: `compatcheck diff HEAD~1:uv.lock uv.lock --training train.yaml`.
    This machine's devices and variables take no part; give --gpu.
    """
    from compatcheck.checking.comparison import compare  # noqa: PLC0415 (beside its use)

    inspection, checks, output = split({**given, "paths": (before,), "hook": False}, files=True)
    started = time.perf_counter()
    targets = parse_outputs(output.outputs, FORMATS)
    tracer = find_tracer(None) if trace else None
    rules = open_rules(checks.rule_directories)
    found = compare((before, after), inspection, rules, os.environ, checks, tracer=tracer)
    difference = found._replace(seconds=time.perf_counter() - started)
    from compatcheck.reporters import difference as reporter  # noqa: PLC0415 (beside its use)

    if plot is not None:
        with speaking(os.environ):
            write_figures(
                plot,
                reporter.draw_difference(difference),
                "there is no estimate of the run; `compatcheck estimate` says what it needs",
            )
    write_formatted(partial(format_with, reporter, difference, output), output, targets)
    return difference.exit_code
