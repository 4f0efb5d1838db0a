"""Sort parameters into what is read, what is checked and what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.checking.checks import Checks, checks_of
from compatcheck.checking.inspection import PolicyUse, make_inspection
from compatcheck.checking.request import Request
from compatcheck.cli.output import FORMATS, Output
from compatcheck.core.selection import Selection, parse_python, split_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.checking.inspection import Inspection

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
"""Options of `env` and `check` that take one text, by parameter."""

PLAIN_LISTS = {
    "--training": "training",
    "--set": "settings",
    "--select": "select",
    "--ignore": "ignore",
    "--rules": "rule_directories",
    "--run": "run",
    "--target": "target",
}
"""Options of `env` and `check` that take one text and may be repeated."""


def parse_plain(arguments: list[str], *, files: bool = False) -> dict[str, Any] | None:
    """Parse options of `env`, or paths and options of `check`, that are written out in full with values behind a blank.

    The option parser is a third of the time of a run; this reads what scripts and hooks write without it.

    Returns:
        Parameters by name, as the option parser would give them; None for anything else, which it then parses itself.
    """
    given: dict[str, Any] = {}
    pairs = iter(arguments)
    for name in pairs:
        if files and not name.startswith("-"):
            given["paths"] = (*given.get("paths", ()), name)
            continue
        value = next(pairs, None)
        if value is None or value.startswith("-"):
            return None
        if name in PLAIN_LISTS:
            given[PLAIN_LISTS[name]] = (*given.get(PLAIN_LISTS[name], ()), value)
        elif name in PLAIN_OPTIONS:
            given[PLAIN_OPTIONS[name]] = value
        elif name == "--format" and value in FORMATS:
            given["format_name"] = value
        else:
            return None
    return given


def split(given: Mapping[str, Any], *, files: bool, on_targets: bool = True) -> tuple[Inspection, Checks, Output]:
    """Sort click's parameters into what is read, what is checked and what is written; the policy fills what they leave open.

    Args:
        given: parameters by name; one that is missing has its default.
        files: whether the command is about files, else about an installed environment.
        on_targets: see `make_inspection`.
    """
    inspection = inspect(given, files=files, on_targets=on_targets)
    own = checks_of(inspection.policy)
    strict, fail_unread = given.get("strict"), given.get("fail_unread")
    checks = Checks(
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
    output = Output(**{name: given[name] for name in Output._fields if name in given})
    return inspection, checks, output


def inspect(given: Mapping[str, Any], *, files: bool, on_targets: bool = True) -> Inspection:
    """Return what click's parameters and the policy ask to inspect; the arguments are those of `make_inspection`."""
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
