"""`compatcheck env`: does what is installed have known problems?"""

from __future__ import annotations

from typing import Any

import click

from compatcheck.cli import options
from compatcheck.cli.policy import Plan, make_plan
from compatcheck.cli.run import DEFAULT_FAIL_ON, FORMATS, Checks, Output, execute


@click.command("env", cls=options.GroupedCommand, short_help="Check an installed environment.")
@options.environment_options
@options.input_options
@options.check_options
@options.output_options(FORMATS)
@click.option("--dump", is_flag=True, help="Print everything known about the environment, and check nothing.")
def command(dump: bool, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Check what is installed in one interpreter, with this model, training configuration and hardware.

    Reads metadata only. Without --python or --prefix: the active virtual or conda environment, else the one compatcheck
    runs in.
    """
    if dump:
        return print_dump(given)
    return execute(*split(given, files=False))


def split(given: dict[str, Any], *, files: bool) -> tuple[Plan, Checks, Output]:
    """Sort click's parameters into what is read, what is checked and what is written; the policy fills what they leave open.

    Args:
        given: parameters by name.
        files: whether the command is about files, else about an installed environment.
    """
    plan = make_plan(given, files=files)
    policy = plan.policy
    strict = given.get("strict")
    checks = Checks(
        select=given.get("select") or (() if policy is None else policy.select),
        ignore=given.get("ignore") or (() if policy is None else policy.ignore),
        rule_directories=(*(() if policy is None else policy.rules), *given.get("rule_directories", ())),
        fail_on=given.get("fail_on") or (policy.fail_on if policy is not None else None) or DEFAULT_FAIL_ON,
        strict=bool((policy.strict if policy is not None else False) if strict is None else strict),
    )
    output = Output(**{name: given[name] for name in Output._fields if name in given})
    return plan, checks, output


def print_dump(given: dict[str, Any]) -> int:
    """Print everything known about an environment, as text or JSON."""
    import os  # noqa: PLC0415 (only for the dump)

    from compatcheck.collectors.dump import collect_dump, format_dump  # noqa: PLC0415 (only for the dump)
    from compatcheck.collectors.interpreter import locate  # noqa: PLC0415 (only for the dump)

    dump = collect_dump(locate(given["python"], given["prefix"], os.environ), os.environ)
    if given["format_name"] == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps(dump, indent=2, ensure_ascii=False))
    else:
        click.echo(format_dump(dump))
    return 0
