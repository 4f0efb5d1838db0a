"""The one way other programs are run: bounded in time and output, never left behind, and blind to where a person stands.

Tools of a damaged driver hang in the kernel, flood their output or print nothing; none of that may stop a report. What is
started is named by its whole path (`compatcheck.core.programs`), works in an empty directory and is told little: ``python -m``
imports from the working directory, and many programs read files of it.
"""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.programs import small_environment

if TYPE_CHECKING:
    import subprocess
    import threading
    from collections.abc import Callable, Mapping, Sequence

OUTPUT_LIMIT_BYTES = 2**20
_GRACE_SECONDS = 0.3
"""How long a killed process may take to go; one that sleeps in the kernel is left to the system."""


class Completed(NamedTuple):
    """What became of a program."""

    output: str
    """Standard output and error in the order they came, up to the limit."""
    returncode: int | None
    """None when it never started or had to be stopped."""
    failure: str | None
    """In words, when it did not end by itself: not found, too slow, too much output."""
    data: bytes = b""
    """The output as it came."""

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.failure is None and self.returncode == 0

    def describe(self) -> str:
        """Say in one line why it did not succeed, with the first line it printed."""
        if self.failure is not None:
            return self.failure
        first = next((line.strip() for line in self.output.splitlines() if line.strip()), "")
        return f"exit code {self.returncode}" + (f": {first[:200]}" if first else "")


def run(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    environ: Mapping[str, str] | None = None,
    watch: Callable[[], None] | None = None,
    errors: bool = True,
) -> Completed:
    """Run a program in an empty directory to its end, or until its time or output is used up; then its group is killed.

    Args:
        command: program, by its whole path, and arguments; no shell is involved. A Python gets ``-I``, or `PYTHONSAFEPATH`.
        timeout_seconds: time from start to end.
        output_limit_bytes: output after which it is stopped.
        environ: variables of the child, `small_environment` by default; messages are in English in any case.
        errors: whether standard error is a part of the output; it is dropped otherwise.
        watch: called about ten times a second while it runs; what it raises ends the program.

    Raises:
        ValueError: the program is not named by its whole path.
    """
    import tempfile  # noqa: PLC0415 (costs more than most runs need)

    if not os.path.isabs(command[0]):
        raise ValueError(f"{command[0]!r} would be looked for on PATH")
    try:
        empty = tempfile.TemporaryDirectory(prefix="compatcheck-empty-", ignore_cleanup_errors=True)
    except OSError as error:
        return Completed("", None, f"{os.path.basename(command[0])} could not be started: {error.strerror or error}")
    with empty as directory:
        variables = {**(small_environment() if environ is None else environ), "LC_ALL": "C"}
        return _run(command, timeout_seconds, output_limit_bytes, variables, watch, directory, errors=errors)


def _run(  # noqa: PLR0913 (what `run` is given)
    command: Sequence[str],
    timeout_seconds: float,
    output_limit_bytes: int,
    variables: Mapping[str, str],
    watch: Callable[[], None] | None,
    directory: str,
    *,
    errors: bool,
) -> Completed:
    import subprocess  # noqa: PLC0415 (costs more than most runs need)
    import threading  # noqa: PLC0415

    name = os.path.basename(command[0])
    try:
        process = subprocess.Popen(  # noqa: S603 (the caller's own command)
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            env=variables,
            cwd=directory,
            start_new_session=sys.platform != "win32",
        )
    except (OSError, ValueError) as error:
        return Completed("", None, f"{name} could not be started: {getattr(error, 'strerror', None) or error}")
    chunks: list[bytes] = []
    ended = threading.Event()
    assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
    reader = threading.Thread(target=_read, args=(process.stdout, chunks, output_limit_bytes, ended), daemon=True)
    reader.start()
    try:
        exited = _wait(process, ended, timeout_seconds, watch)
    except BaseException:
        # An interrupt reaches this process only: the child has a group of its own.
        _kill(process)
        _close(process.stdout, reader)
        raise
    if exited:
        # A grandchild may keep the pipe open; what the program itself wrote is there by now.
        ended.wait(_GRACE_SECONDS)
    flooded = sum(map(len, chunks)) > output_limit_bytes
    running = process.poll() is None
    _kill(process)
    _close(process.stdout, reader)
    data = b"".join(chunks)[:output_limit_bytes]
    text = data.decode("utf-8", "replace")
    if flooded:
        return Completed(text, None, f"{name} printed more than {output_limit_bytes} bytes and was stopped")
    if running:
        return Completed(text, None, f"{name} did not answer within {round(timeout_seconds, 2):g} s and was stopped")
    return Completed(text, process.returncode, None, data)


def _read(stream: IO[bytes], chunks: list[bytes], limit: int, ended: threading.Event) -> None:
    """Read until the end or one chunk beyond the limit."""
    size = 0
    try:
        while size <= limit:
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
    except (OSError, ValueError):
        pass
    ended.set()


def _close(stream: IO[bytes], reader: threading.Thread) -> None:
    reader.join(_GRACE_SECONDS)
    if not reader.is_alive():
        stream.close()


def _wait(
    process: subprocess.Popen[bytes],
    ended: threading.Event,
    timeout_seconds: float,
    watch: Callable[[], None] | None,
) -> bool:
    """Wait until the program has exited, its output has ended, or time is up; tell whether it exited."""
    import time  # noqa: PLC0415

    deadline = time.monotonic() + timeout_seconds
    pause = 0.002
    while (left := deadline - time.monotonic()) > 0:
        if process.poll() is not None:
            return True
        if watch is not None:
            watch()
        if ended.is_set():
            # Its output is closed or over the limit; in the first case it is about to exit.
            time.sleep(min(left, pause))
            if process.poll() is not None:
                return True
            if pause >= _GRACE_SECONDS / 4:
                return False
        else:
            ended.wait(min(left, pause))
        pause = min(pause * 1.5, 0.1)
    return process.poll() is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and all it started; give up on one that the kernel does not let go."""
    import signal  # noqa: PLC0415
    import subprocess  # noqa: PLC0415

    try:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        # Not waited for: a process in uninterruptible sleep ends when its driver lets it.
        process.returncode = -signal.SIGTERM
