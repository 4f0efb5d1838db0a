"""Write reports: to standard output and to the files of ``--output``, in the format asked for."""

from __future__ import annotations

import os
import sys

from compatcheck.core.errors import UsageError
from compatcheck.core.language import speaking, translate
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.programs import LED_ASTRAY, is_led_astray
from compatcheck.core.terminal import disarm, escape_lines, escape_name, make_harmless, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TextIO

    from compatcheck.core.report import Report
    from compatcheck.core.source import Skipped
    from compatcheck.reporters.figure import Figure

FORMATS = ("text", "json", "sarif", "junit", "markdown", "github", "html")


class Output(NamedTuple):
    """Where and how the report goes."""

    format_name: str = "text"
    outputs: tuple[str, ...] = ()
    quiet: bool = False
    verbose: int = 0
    color: str = "auto"


def format_report(name: str, report: Report, output: Output, *, color: bool) -> str:
    """Format the report of a check."""
    if name == "text":
        from compatcheck.reporters import text as reporter  # noqa: PLC0415 (one format)

        return reporter.format_report(
            report, verbose=output.verbose, quiet=output.quiet, color=color, width=terminal_width()
        )
    from importlib import import_module  # noqa: PLC0415 (one format)

    formatted = str(import_module(f"compatcheck.reporters.{name}").format_report(report))
    return formatted if formatted.endswith("\n") else formatted + "\n"


def format_with(reporter: Any, found: object, output: Output, name: str, color: bool) -> str:  # noqa: ANN401, FBT001 (a module)
    """Format what a command found with the module that has its formats, as `write_formatted` asks for it."""
    if name == "text":
        style = {"verbose": output.verbose, "quiet": output.quiet, "color": color, "width": terminal_width()}
        return str(reporter.format_text(found, **style))
    return str(getattr(reporter, f"format_{name}")(found))


def parse_outputs(texts: Sequence[str], formats: Sequence[str] = FORMATS) -> list[tuple[str, str]]:
    """Parse ``FORMAT:FILE`` options.

    Raises:
        UsageError: an unknown format or no file.
    """
    targets = []
    for text in texts:
        name, _, path = text.partition(":")
        if name not in formats or not path:
            msg = f"--output {text!r} is not FORMAT:FILE"
            raise UsageError(msg, hint=f"formats: {', '.join(formats)}")
        targets.append((name, path))
    return targets


def write_formatted(
    format_as: Callable[[str, bool], str],
    output: Output,
    targets: Sequence[tuple[str, str]],
    *,
    to_person: bool = True,
) -> None:
    """Write what a command found to standard output and to every ``--output`` file.

    Args:
        format_as: formats it, by the name of the format and whether it is coloured.
        output: formats.
        targets: formats and files.
        to_person: whether to write text to standard output; an error that follows says it all.

    Raises:
        UsageError: a file cannot be written.
    """
    name = output.format_name
    if to_person or name != "text":
        with speaking(os.environ, name):
            coloured = name == "text" and wants_color(output.color, os.environ)
            text = format_as(name, coloured)
        if name not in {"json", "sarif", "github"} and "GITHUB_ACTIONS" in os.environ:
            text = disarm(text)
        sys.stdout.write(printable(text, sys.stdout.encoding or "utf-8", coloured=coloured))
    contents = []
    for name, path in targets:
        with speaking(os.environ, name):
            contents.append((f"--output {name}:{path}", path, format_as(name, False)))
    write_files(contents)


def unread_lines(skipped: Iterable[Skipped]) -> Iterator[str]:
    """Say what was not read of the inputs: in a line each, which a terminal's width breaks between words."""
    from compatcheck.core.redaction import redact  # noqa: PLC0415 (only when something was not read)
    from compatcheck.reporters.text import wrap_names  # noqa: PLC0415 (as above)

    wide = sys.stderr.isatty()
    for entry in skipped:
        said = f"not read: {entry}"
        yield from map(escape_name, map(redact, wrap_names(said, "", "  ") if wide else [translate(said)]))


def write_error(said: str) -> None:
    """Write to standard error what an error says; what it says back from the command line or a file commands nobody."""
    from compatcheck.core.redaction import redact  # noqa: PLC0415 (only on the way to an error)

    text = escape_lines(redact(said))
    sys.stderr.write(disarm(text) if "GITHUB_ACTIONS" in os.environ else text)


def write_files(contents: Iterable[tuple[str, str, str]]) -> None:
    """Write what options ask for into files: the option as a person wrote it, path and content of each.

    Raises:
        UsageError: a file cannot be written; the others are.
    """
    failed = []
    for option, path, content in contents:
        if is_led_astray(path):
            failed.append(f"{option} is not written: {LED_ASTRAY}")
            continue
        try:
            with open(path, "w", encoding="utf-8") as file:
                _wait_for_others(file)
                file.write(
                    printable(content.rstrip("\n") + "\n" if content else "", "utf-8")
                )  # a list of none has no line
        except OSError as error:
            failed.append(f"{option} cannot be written: {error.strerror}")
    if failed:
        msg = "; ".join(failed)
        raise UsageError(msg, hint="name a file in a directory that exists and may be written to")


def _wait_for_others(file: TextIO) -> None:
    """Wait for another run that writes the same file, and begin it anew: what two write at once is of neither."""
    try:
        import fcntl  # noqa: PLC0415 (not on every system)

        fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file.fileno(), 0)
    except (ImportError, OSError):  # a pipe or a device has no end, and not every file system has locks
        return


def write_figures(path: str, figures: Sequence[Figure], nothing: str) -> None:
    """Write the figures of ``--plot``, and say where they are, or why there are none.

    Raises:
        UsageError: the file cannot be written.
    """
    from compatcheck.reporters.figure import make_picture  # noqa: PLC0415 (only when asked)

    if figures:
        write_files([(path, path, make_picture(figures))])
    sys.stderr.write(f"wrote {path}\n" if figures else f"nothing was drawn: {nothing}\n")


def write_notice(text: str) -> None:
    """Say on standard error what is done, before it is; broken between words, and none of its paths and addresses is."""
    from compatcheck.core.columns import fill  # noqa: PLC0415 (before something that takes seconds)

    sys.stderr.write("".join(f"{make_harmless(line)}\n" for line in fill(translate(text), terminal_width(sys.stderr))))


def wants_color(choice: str, environ: Mapping[str, str]) -> bool:
    """Decide about colour: the option, then NO_COLOR and FORCE_COLOR, then whether this is a terminal."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO | None = None) -> int:
    """Return the columns to write for, on standard output by default: of the terminal, within reason; 80 in a file or pipe."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return 80
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # what says that it is a terminal need not have a size
        return 80
    return max(40, min(columns, 100))
