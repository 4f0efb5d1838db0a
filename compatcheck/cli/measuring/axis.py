"""The releases or commits that options name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.cli.output import write_notice
from compatcheck.core.errors import UsageError
from compatcheck.lab.releases import choose_commits, choose_releases
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from compatcheck.lab.releases import Axis


def open_axis(
    package: str,
    specifier: str | None,
    commits: str | None,
    source: str | None,
    *,
    ends: tuple[str | None, str | None] = (None, None),
    ask: bool,
    quiet: bool,
) -> Axis:
    """Return what of a package is measured.

    Args:
        package: its name.
        specifier: ``--versions``.
        commits: ``--commits``.
        source: ``--source``.
        ends: ``--good`` and ``--bad``.
        ask: whether the package index may be asked.
        quiet: say nothing of it.

    Raises:
        UsageError: the options do not go together, or nothing lies in the range.
    """
    if commits is None and source is not None:
        msg = "--source goes with --commits"
        raise UsageError(msg, hint="as --commits v0.18.1..v0.19.0 --source DIR")
    if commits is not None and specifier is not None:
        msg = "--commits and --versions are two answers to one question"
        raise UsageError(msg, hint="name releases or commits")
    if commits is None:
        axis = choose_releases(open_rules(), package, specifier, *ends, ask=ask)
    else:
        axis = choose_commits(package, commits, source or os.getcwd())
    if axis.note is not None and not quiet:
        write_notice(axis.note)
    return axis
