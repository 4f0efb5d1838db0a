"""`compatcheck fleet`: do the nodes of one job have what it runs with alike, and has any of them known problems?"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.cli.arguments import split
from compatcheck.cli.help import Group
from compatcheck.cli.output import format_with, parse_outputs, write_files, write_formatted, write_notice
from compatcheck.cli.progress import show_progress, showing_progress
from compatcheck.core.errors import NothingToCheckError
from compatcheck.core.fleet import split_names
from compatcheck.core.node import Answers
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMATS = ("text", "markdown", "json")


@click.group("fleet", cls=Group)
def command() -> None:
    """Compare the nodes of one job: which have another release, driver, device, variable or file, and which are silent."""


@command.command("env")
@options.take_check("fleet env", "fleet", "environment", formats="text,markdown,json")
def env_command(address: str | None, timeout_seconds: float, exclude_file: str | None, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Collect and compare the nodes of a Ray cluster; without --address this machine alone.

    One task is pinned to each node and asks for none of its processors; it reads the interpreter that Ray's workers run in
    there. As the entry point of `ray job submit` it sees the job's own `runtime_env`.
    """
    if address is None:
        from compatcheck.checking.asked import inspect  # noqa: PLC0415 (beside its use)
        from compatcheck.fleet.dump import describe_node  # noqa: PLC0415 (beside its use)

        request = inspect(given, files=False, on_targets=False).requests[0]
        answers = Answers((describe_node(request, open_rules(given["rule_directories"]), os.environ),))
    else:
        from compatcheck.fleet.ray import collect_nodes  # noqa: PLC0415 (beside its use)

        with showing_progress():
            answers = collect_nodes(address, forward(given), timeout_seconds, show_progress)
        show_progress("")
    return judge(answers, given, exclude_file)


def forward(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that name what is read on each node; paths are those of this machine."""
    training, variables = given["training"], given["env_file"]
    return {
        **{name: given[name] for name in ("python", "prefix")},
        "training": tuple(map(os.path.abspath, training)),
        "env_file": None if variables is None else os.path.abspath(variables),
    }


@command.command("merge")
@options.argument("dumps", "DIR|FILE...", nargs=-1, required=True)
@options.take_check("fleet merge", "fleet", formats="text,markdown,json")
def merge_command(dumps: tuple[str, ...], expect: str | None, exclude_file: str | None, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Compare nodes by what `compatcheck env --dump` wrote on each: a line, which a launcher may label.

    A file that holds none is a node of that name that said nothing, as one that `srun --output=dumps/%N.json` opened.
    """
    from compatcheck.fleet.dumps import read_dumps  # noqa: PLC0415 (beside its use)

    return judge(read_dumps(dumps, expect), given, exclude_file)


def judge(answers: Answers, given: dict[str, Any], exclude_file: str | None) -> int:
    """Judge nodes, and write the report and the list of those to leave out."""
    from compatcheck.fleet.merge import judge_nodes  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters import fleet as reporter  # noqa: PLC0415 (beside its use)

    started = time.perf_counter()
    inspection, checks, output = split(given, files=False, on_targets=False)
    targets = parse_outputs(output.outputs, FORMATS)
    rules = open_rules(checks.rule_directories)
    try:
        fleet = judge_nodes(answers, inspection, rules, os.environ, checks)
    except NothingToCheckError:
        write_excluded(exclude_file, (name for name, _ in answers.lost))
        raise
    fleet = fleet._replace(report=fleet.report._replace(seconds=time.perf_counter() - started))
    write_excluded(exclude_file, fleet.excluded)
    write_formatted(partial(format_with, reporter, fleet, output), output, targets)
    return fleet.report.exit_code


def write_excluded(path: str | None, names: Iterable[str]) -> None:
    """Write the list of nodes to leave out, where one is asked for; what no scheduler takes for a name is said instead."""
    if path is None:
        return
    taken, others = split_names(names)
    write_files([(f"--exclude-file {path}", path, "".join(f"{name}\n" for name in taken))])
    if others:
        write_notice(f"not in {path}, for no scheduler has nodes of such a name: {', '.join(map(repr, others))}")
