"""`compatcheck bulk`: thousands of locks, images, configurations and repositories, each by itself, a line of JSON for each."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import Any

import click

from compatcheck.checking.bulk import ORDER, Checker, check_into, identify, list_inputs
from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.help import Command
from compatcheck.cli.place import open_place
from compatcheck.cli.progress import show_progress
from compatcheck.core.errors import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_INTERNAL_ERROR,
    EXIT_NOTHING_TO_CHECK,
    EXIT_UNREADABLE_INPUT,
)
from compatcheck.core.language import speaking, translate
from compatcheck.rules.locate import open_rules


@click.command("bulk", cls=Command)
@options.argument("inputs", "[INPUT]...", nargs=-1)
@options.take("bulk", "cluster", "files", "run", "select", "rules", "gate")
def command(
    inputs: tuple[str, ...],
    list_file: str | None,
    output: str | None,
    jobs: int | None,
    timeout_seconds: float,
    ray_address: str | None,
    **given: Any,  # noqa: ANN401 (options of a check)
) -> int:
    """Check many inputs, each by itself, and write a line of JSON for each, in their order.

    An INPUT is what `check` or `image` take: a lock, a configuration, a directory, an image. `--list -` reads their names from
    standard input. With --output a run that was killed goes on where it ended.
    """
    split({**given, "paths": ("-",)}, files=True)  # options that make no sense end the run before it begins
    names = list_inputs(inputs, list_file)
    rules = open_rules(given["rule_directories"])
    asked = identify(given, rules)
    counts: dict[int, int] = {}
    lines = sys.stdout
    with open_place(ray_address) as place:
        checker = Checker(given, asked, jobs, timeout_seconds, place)
        if output is None:
            for line, code in checker.check_all(names):
                counts[code] = counts.get(code, 0) + 1
                lines.write(f"{line}\n")
                lines.flush()
        else:
            with closing(check_into(output, names, checker)) as codes:
                for code in codes:
                    counts[code] = counts.get(code, 0) + 1
                    show_progress(f"{sum(counts.values())} checked")
    show_progress("")
    with speaking(os.environ):
        click.echo(translate(summarise(counts)), err=True)
    return next((code for code in ORDER if counts.get(code)), EXIT_NOTHING_TO_CHECK)


def summarise(counts: dict[int, int]) -> str:
    """Say how many inputs came to what."""
    words = {
        EXIT_CLEAN: "pass",
        EXIT_FINDINGS: "fail",
        EXIT_NOTHING_TO_CHECK: "hold nothing to check",
        EXIT_UNREADABLE_INPUT: "could not be read, or not whole",
        EXIT_INTERNAL_ERROR: "ended the check",
    }
    total = sum(counts.values())
    parts = [f"{counts[code]} {said}" for code, said in words.items() if counts.get(code)]
    return f"{total} input{'' if total == 1 else 's'}: {', '.join(parts)}" if parts else "no input"
