"""Entry point: errors that read as sentences, with the exit code of their class."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys

try:  # an interrupt ends what only loads at once, and not with a traceback
    _before = _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
except ValueError:  # imported by another thread
    _before = None

import errno  # behind the handler
import gc
import os
from contextlib import suppress
from io import StringIO, TextIOWrapper

from compatcheck.core.errors import (
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_UNREADABLE_INPUT,
    EXIT_USAGE,
    CompatcheckError,
)
from compatcheck.core.language import choose, speaking, translate

if _before is not None:
    _signal.signal(_signal.SIGINT, _before)

EXIT_BROKEN_PIPE = 141
"""What a shell reports for a program whose reader went away."""
_COLLECTED_AFTER = 50_000
"""Objects made between two searches for cycles; all imports of a command make about as many."""
_ASCII = {"ascii", "us-ascii", "646", "ansi_x3.4-1968"}
"""What Python calls the encoding of a machine without a locale; its terminals show UTF-8 all the same."""


def prepare_output() -> None:
    """Let every text be written: UTF-8 into files and pipes (JSON is nothing else), escapes for what cannot be said."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            plain = stream.encoding.lower() in _ASCII or not stream.isatty()
            stream.reconfigure(encoding="utf-8" if plain else None, errors="backslashreplace")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with the code of `compatcheck.core.errors`."""
    given = sys.argv[1:] if arguments is None else arguments
    with suppress(OSError):  # a working directory that was deleted
        if arguments is None and os.path.samefile(sys.path[0] or os.curdir, os.curdir):
            del sys.path[0]  # `python -m` imports first from where one stands, which may be what is inspected
    alone = arguments is None and sys.implementation.name == "cpython"
    if alone and given[:1] == ["env"]:  # it ends before there is much to collect; with `gc.freeze` 5 of 50 ms
        gc.disable()
    elif alone:  # seldom while modules are imported, whose objects all stay
        gc.set_threshold(_COLLECTED_AFTER)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (closed by the caller: `>&-`)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (see above)
    prepare_output()
    choose(None)
    try:
        code = _run_plain(given) if given[:1] in (["env"], ["check"], ["estimate"]) else _run_command(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = EXIT_INTERRUPTED
    except CompatcheckError as error:
        from compatcheck.cli.output import terminal_width, write_error  # noqa: PLC0415 (only on the way to an error)
        from compatcheck.core.columns import break_list  # noqa: PLC0415 (see above)

        with speaking(os.environ):
            remedy = break_list(translate(error.hint), terminal_width(sys.stderr) - 2) if error.hint else ()
            said = translate(f"error: {error}") + "\n" + "".join(f"  {line}\n" for line in remedy)
        write_error(said)
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = EXIT_BROKEN_PIPE
    except MemoryError:
        sys.stderr.write("error: memory is short: an input needs more than this process may take\n")
        sys.stderr.write("  check fewer files at once, or raise the limit (ulimit -v, the container's memory)\n")
        code = EXIT_UNREADABLE_INPUT
    except Exception as error:  # noqa: BLE001 (the last resort: a log instead of a traceback)
        reason = _outside_reason(error)
        if reason is not None:
            sys.stderr.write(f"error: {reason}\n")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer is not tried again
            sys.exit(EXIT_USAGE)
        from compatcheck.cli.crash import report_crash  # noqa: PLC0415 (only after a bug)

        report_crash(given)
        code = EXIT_INTERNAL_ERROR
    if alone:
        gc.freeze()  # or everything is searched for cycles on the way out
    if (waiting := sys.modules.get("compatcheck.core.patience")) is not None:
        waiting.leave(code)
    sys.exit(code)


def _outside_reason(error: Exception) -> str | None:
    """Name what is wrong around the program and not with it: a full disk behind standard output, a deleted directory."""
    if not isinstance(error, OSError):
        return None
    if error.errno in {errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG}:
        return f"the report could not be written: {error.strerror}"
    try:
        os.getcwd()
    except OSError:
        return "the working directory does not exist any more; change to one that does"
    return None


def _run_plain(given: list[str]) -> int:
    """Run `compatcheck env`, `check` or `estimate`, without the option parser where its options are plain."""
    from compatcheck.cli.arguments import parse_plain, split  # noqa: PLC0415 (three commands)

    files, estimate = given[0] != "env", given[0] == "estimate"
    parameters = parse_plain(given[1:], files=files, estimate=estimate)
    if parameters is None:
        return _run_command(given)
    if estimate:
        from compatcheck.cli.estimation import execute_estimate  # noqa: PLC0415 (one command)

        return execute_estimate(**parameters)
    from compatcheck.cli.execution import execute  # noqa: PLC0415 (two commands)

    return execute(*split(parameters, files=files))


def _run_command(given: list[str]) -> int:
    import click  # noqa: PLC0415 (20 ms; not for `env`, `check` and `estimate` with plain options)

    from compatcheck.cli.group import group  # noqa: PLC0415 (see above)

    stdout = sys.stdout
    try:
        code = group.main(given, prog_name="compatcheck", standalone_mode=False)
    except click.ClickException as error:
        from compatcheck.cli.output import write_error  # noqa: PLC0415 (only on the way to an error)

        said = StringIO()
        error.show(file=said)
        write_error(said.getvalue())
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:
        if sys.stdout is not stdout:  # click wraps it where the reader went away, and ends with 1, the code of findings
            raise BrokenPipeError from None
        raise
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
