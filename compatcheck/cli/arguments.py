"""Sort parameters into what is read, what is checked and what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.checking.checks import DEFAULT_FAIL_ON, Checks
from compatcheck.checking.runs import Plan, make_plan
from compatcheck.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Mapping


PLAIN_OPTIONS = {
    "--python": "python",
    "--prefix": "prefix",
    "--model": "model",
    "--gpu": "gpu",
    "--driver": "driver",
    "--env-file": "env_file",
    "--fail-on": "fail_on",
    "--policy": "policy",
}
"""Options of `env` that take one text, by parameter."""

PLAIN_LISTS = {
    "--training": "training",
    "--set": "settings",
    "--select": "select",
    "--ignore": "ignore",
    "--rules": "rule_directories",
    "--run": "run",
    "--target": "target",
}
"""Options of `env` that take one text and may be repeated."""


def parse_plain(arguments: list[str]) -> dict[str, Any] | None:
    """Parse options of `env` that are written out in full, each with its value behind a blank.

    The option parser is a third of the time of a run; this reads what scripts and hooks write without it.

    Returns:
        Parameters by name, as the option parser would give them; None for anything else, which it then parses itself.
    """
    given: dict[str, Any] = {}
    pairs = iter(arguments)
    for name in pairs:
        value = next(pairs, None)
        if value is None or value.startswith("-"):
            return None
        if name in PLAIN_LISTS:
            given[PLAIN_LISTS[name]] = (*given.get(PLAIN_LISTS[name], ()), value)
        elif name in PLAIN_OPTIONS:
            given[PLAIN_OPTIONS[name]] = value
        else:
            return None
    return given


def split(given: Mapping[str, Any], *, files: bool) -> tuple[Plan, Checks, Output]:
    """Sort click's parameters into what is read, what is checked and what is written; the policy fills what they leave open.

    Args:
        given: parameters by name; one that is missing has its default.
        files: whether the command is about files, else about an installed environment.
    """
    plan = make_plan(given, files=files)
    policy = plan.policy
    strict = given.get("strict")
    checks = Checks(
        select=given.get("select") or (() if policy is None else policy.select),
        ignore=given.get("ignore") or (() if policy is None else policy.ignore),
        rule_directories=(*(() if policy is None else policy.rules), *given.get("rule_directories", ())),
        fail_on=given["fail_on"]
        if given.get("fail_on") is not None
        else (policy.fail_on if policy is not None else None) or DEFAULT_FAIL_ON,
        strict=bool((policy.strict if policy is not None else False) if strict is None else strict),
        security=bool(given.get("security") or given.get("security_service")),
        security_service=given.get("security_service"),
    )
    output = Output(**{name: given[name] for name in Output._fields if name in given})
    return plan, checks, output
