"""`compatcheck.check`, `estimate` and `explain_oom`: one call, one answer that a terminal and a notebook can show."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, cast

from compatcheck.checking.checks import Checks
from compatcheck.checking.request import Request
from compatcheck.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from typing_extensions import Unpack

    from compatcheck.checking.estimates import Estimates
    from compatcheck.core.out_of_memory import OutOfMemoryReport
    from compatcheck.core.report import Report

Value = TypeVar("Value")
WIDTH = 80


class Asked(TypedDict, total=False):
    """What may be said of a run beside its files."""

    model: str | PathLike[str]
    """A known id, a directory or ``config.json``."""
    training: str | PathLike[str] | Sequence[str | PathLike[str]]
    """Training configurations and launch scripts."""
    gpu: str
    """``8xH100-80GB``, or an instance of a cloud."""
    nodes: int
    driver: str
    settings: Mapping[str, object]
    """Facts by name: ``{"training.zero_stage": 3}``."""
    python: str
    """Another interpreter than this one."""
    prefix: str
    """An environment, or a directory of packages, instead of an interpreter."""
    here: bool
    """Whether the run is on this machine: then its devices and variables take part."""
    within: str | PathLike[str]
    """Directory outside of which, links and includes followed, nothing is read but the hub's cache of models."""


class Answer(Generic[Value]):
    """What a question came to; ``str()`` is what the command prints, a notebook shows a table."""

    def __init__(self, value: Value, exit_code: int, text: Callable[[], str], markdown: Callable[[], str]) -> None:
        self.value = value
        """The report itself; sizes in bytes."""
        self.exit_code = exit_code
        """What the command would exit with: 0 nothing fails, 1 something does, 3 nothing was checked, 4 not all was read."""
        self._text = text
        self._markdown = markdown

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__}, exit code {self.exit_code}>"

    def _repr_markdown_(self) -> str:
        return self._markdown()


def check(
    *paths: str | PathLike[str], fail_on: str | None = None, rules: Sequence[str] = (), **asked: Unpack[Asked]
) -> Answer[Report]:
    """Check files, or without paths the environment of this interpreter, for known problems.

    Args:
        paths: requirement files, locks, training configurations, launch scripts; directories are walked.
        fail_on: a severity or a size (``"5GiB"``) from which on findings fail; ``medium`` by default.
        rules: directories of rules beside those of compatcheck.
        asked: what is known of the run beside them (`Asked`).

    Raises:
        CompatcheckError: nothing could be checked at all, or an argument makes no sense.
        TypeError: there is no such argument.
    """
    from compatcheck.checking.report import check as run  # noqa: PLC0415 (beside its use)
    from compatcheck.reporters import markdown, text  # noqa: PLC0415 (see above)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (see above)

    chosen = Checks() if fail_on is None else Checks(fail_on=fail_on)
    started = time.perf_counter()
    report = run(_request(paths, asked), open_rules(tuple(rules)), os.environ, chosen)
    report = report._replace(seconds=time.perf_counter() - started)
    return Answer(
        report,
        report.exit_code,
        lambda: text.format_report(report, verbose=0, quiet=False, color=False, width=WIDTH),
        lambda: markdown.format_report(report),
    )


def estimate(*paths: str | PathLike[str], suggest: bool = False, **asked: Unpack[Asked]) -> Answer[Estimates]:
    """Estimate what each device holds, whether the run fits, and with ``suggest`` what would make it fit.

    The other arguments and the errors are those of `check`.
    """
    from compatcheck.checking.estimates import EstimateOptions  # noqa: PLC0415 (beside its use)
    from compatcheck.checking.estimates import estimate as run  # noqa: PLC0415 (see above)
    from compatcheck.reporters import estimate as reporter  # noqa: PLC0415 (see above)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (see above)

    request = _request(paths, asked)
    found = run(request, open_rules(), os.environ, EstimateOptions(request.model, suggest))
    return Answer(
        found,
        found.exit_code,
        lambda: "\n".join(reporter.format_text(report, verbose=0) for report in found.reports),
        lambda: "\n".join(map(reporter.format_markdown, found.reports)),
    )


def explain_oom(
    log: str | PathLike[str], *paths: str | PathLike[str], **asked: Unpack[Asked]
) -> Answer[OutOfMemoryReport]:
    """Say which tensor, phase and cause an out-of-memory message is about.

    Args:
        log: a text with the message (an exception's ``str()``, a traceback), or the path of a log.
        paths: files of the run, as for `check`, whose other arguments and errors these are; with ``within`` there may be none.
        asked: see `check`.
    """
    from compatcheck.checking.out_of_memory import explain_oom as run  # noqa: PLC0415 (beside its use)
    from compatcheck.oom.log import LogText, read_log  # noqa: PLC0415 (see above)
    from compatcheck.reporters import out_of_memory as reporter  # noqa: PLC0415 (see above)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (see above)

    is_text = isinstance(log, str) and ("\n" in log or not os.path.isfile(log))
    text, skipped = LogText(str(log)) if is_text else read_log(os.fspath(log))
    place = "the message" if is_text else os.fspath(log)
    report = run(text, place, _request(paths, asked, alone=True), open_rules(), os.environ, skipped)
    return Answer(
        report, report.exit_code, lambda: reporter.format_text(report), lambda: reporter.format_markdown(report)
    )


def _request(paths: Sequence[str | PathLike[str]], asked: Asked, *, alone: bool = False) -> Request:
    """Ask about files, or the environment of this interpreter; where a text can stand alone, nothing."""
    training, settings, model = asked.get("training", ()), asked.get("settings", {}), asked.get("model")
    within, nodes = asked.get("within"), asked.get("nodes")
    named = {"training", "settings", "model", "within"}
    others = {name: value for name, value in asked.items() if name not in named}
    if unknown := others.keys() - Asked.__annotations__.keys():
        raise TypeError(f"unknown argument {min(unknown)}: there are {', '.join(sorted(Asked.__annotations__))}")
    confined = within is not None and not paths and "prefix" not in others
    if confined and not (alone and "python" not in others):
        raise UsageError("within is a directory, and what runs this lies elsewhere", hint="name paths, or a prefix")
    if not paths and "prefix" not in others and not confined:
        others.setdefault("python", sys.executable)
    files = (training,) if isinstance(training, (str, os.PathLike)) else training
    request = Request(
        paths=tuple(os.fspath(path) for path in paths),
        model=None if model is None else os.fspath(model),
        training=tuple(os.fspath(path) for path in files),
        settings=tuple(f"{name}={_written(value)}" for name, value in settings.items()),
    )
    if nodes is not None and (isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1):
        raise UsageError(f"nodes is {nodes!r}", hint="expected a number of nodes, at least 1")
    if within is not None:
        from compatcheck.core.files import LOCAL, Confined  # noqa: PLC0415 (seldom)
        from compatcheck.frameworks.model.lookup import find_cache  # noqa: PLC0415 (seldom)

        request = request._replace(files=Confined(LOCAL, (os.fspath(within), find_cache(os.environ))))
    return request._replace(**cast("dict[str, Any]", others))


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
