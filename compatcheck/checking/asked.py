"""What parameters by name ask for: what is read, and which findings count."""

from __future__ import annotations

from compatcheck.checking.checks import Checks, checks_of
from compatcheck.checking.inspection import PolicyUse, make_inspection
from compatcheck.checking.request import Request
from compatcheck.core.selection import Selection, parse_python, split_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.policy import Policy


def choose_checks(given: Mapping[str, Any], policy: Policy | None) -> Checks:
    """Return which findings count; the policy fills what the parameters leave open."""
    own = checks_of(policy)
    strict, fail_unread = given.get("strict"), given.get("fail_unread")
    return Checks(
        select=given.get("select") or own.select,
        ignore=given.get("ignore") or own.ignore,
        rule_directories=(*own.rule_directories, *given.get("rule_directories", ())),
        fail_on=own.fail_on if given.get("fail_on") is None else given["fail_on"],
        strict=own.strict if strict is None else strict,
        fail_unread=own.fail_unread if fail_unread is None else fail_unread,
        security=bool(given.get("security") or given.get("security_service")),
        security_service=given.get("security_service"),
        baseline=given.get("baseline"),
    )


def inspect(given: Mapping[str, Any], *, files: bool, on_targets: bool = True) -> Inspection:
    """Return what parameters and the policy ask to inspect; the arguments are those of `make_inspection`."""
    own = {name: given[name] for name in Request._fields if name in given and name not in {"run", "target"}}
    use = PolicyUse(
        path=given.get("policy"),
        disabled=bool(given.get("no_policy")),
        runs=given.get("run") or (),
        targets=given.get("target") or (),
        narrowed=bool(given.get("select") or given.get("ignore")),
    )
    return make_inspection(Request(**own, selection=read_selection(given)), use, files=files, on_targets=on_targets)


def read_selection(given: Mapping[str, Any]) -> Selection:
    """Read what is chosen of what files offer.

    Raises:
        UsageError: the version of Python is none, or a quote in the arguments of a script is not closed.
    """
    python, arguments = given.get("python_version"), given.get("script_arguments")
    return Selection(
        extras=tuple(given.get("extras", ())),
        groups=tuple(given.get("groups", ())),
        all_extras=bool(given.get("all_extras")),
        python=None if python is None else parse_python(python),
        stage=given.get("stage"),
        script_arguments=None if arguments is None else split_arguments(arguments),
    )
