"""Sort parameters into what is read, what is checked and what is written."""

from __future__ import annotations

from compatcheck.checking.asked import choose_checks, inspect
from compatcheck.cli.output import FORMATS, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from compatcheck.checking.checks import Checks
    from compatcheck.checking.inspection import Inspection

PLAIN_OPTIONS = {
    f"--{name.replace('_', '-')}": name
    for name in ("python", "prefix", "model", "gpu", "driver", "env_file", "fail_on", "policy")
}
"""Options of `env` and `check` that take one text, by parameter."""
PLAIN_LISTS = {
    **{f"--{name}": name for name in ("training", "select", "ignore", "run", "target")},
    "--set": "settings",
    "--rules": "rule_directories",
}
"""Options of `env` and `check` that take one text and may be repeated."""
LACKING_IN_ESTIMATE = frozenset({"--fail-on", "--select", "--ignore", "--rules"})
"""Those of them that `estimate` does not have."""
ESTIMATE_FORMATS = ("text", "markdown", "json", "html")


def parse_plain(arguments: list[str], *, files: bool = False, estimate: bool = False) -> dict[str, Any] | None:
    """Parse options of `env`, or paths and options of `check` or `estimate`, written out in full with values behind a blank.

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
        if value is None or value.startswith("-") or (estimate and name in LACKING_IN_ESTIMATE):
            return None
        if name in PLAIN_LISTS:
            given[PLAIN_LISTS[name]] = (*given.get(PLAIN_LISTS[name], ()), value)
        elif name in PLAIN_OPTIONS:
            given[PLAIN_OPTIONS[name]] = value
        elif name == "--format" and value in (ESTIMATE_FORMATS if estimate else FORMATS):
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
    checks = choose_checks(given, inspection.policy)
    output = Output(**{name: given[name] for name in Output._fields if name in given})
    return inspection, checks, output
