"""Sort parameters into what is read, what is checked and what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.cli.policy import Plan, make_plan
from compatcheck.cli.run import DEFAULT_FAIL_ON, Checks, Output

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        fail_on=given.get("fail_on") or (policy.fail_on if policy is not None else None) or DEFAULT_FAIL_ON,
        strict=bool((policy.strict if policy is not None else False) if strict is None else strict),
    )
    output = Output(**{name: given[name] for name in Output._fields if name in given})
    return plan, checks, output
