"""A file of JSON lines that is written once: a run that was killed goes on where it ended, nothing lost and nothing twice."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.programs import LED_ASTRAY, is_led_astray
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_REMEDY = "name another file, or remove this one"


class Ledger:
    """Lines about inputs in their order, each with what the run was asked for."""

    def __init__(self, path: str, asked: str, codes: frozenset[int], parts: Sequence[str]) -> None:
        """Open a file for this run alone, and cut off a line that was not finished.

        Args:
            path: the file; it is made where there is none.
            asked: what tells runs apart that would not write the same: parts with dashes between.
            codes: those that a line may have.
            parts: each in words, for where it is another.

        Raises:
            UsageError: it cannot be written, or another run is writing it.
        """
        self.path, self._asked, self._codes, self._parts = path, asked, codes, parts
        if is_led_astray(path):
            raise UsageError(f"{path} is not written: {LED_ASTRAY}", hint=_REMEDY)
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", hint=_REMEDY) from None
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            raise UsageError(
                f"{path} is no regular file", hint="leave --output out, and the lines go to standard output"
            )
        with suppress(ImportError):
            import fcntl  # noqa: PLC0415 (not on every system)

            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._descriptor)
                raise UsageError(f"{path} is being written by another run", hint="wait for it, or " + _REMEDY) from None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield what was written before, and make ready to write behind it.

        Raises:
            InputError: it holds something else, or what another run wrote.
        """
        whole = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                record = self._parse(line, number)
                whole += len(line)
                yield record
        if os.fstat(self._descriptor).st_size > whole:
            os.ftruncate(self._descriptor, whole)
        os.lseek(self._descriptor, whole, os.SEEK_SET)

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        place = Source(self.path, line=number)
        try:
            record = json.loads(line)
            asked, code = record["run"], record["exit_code"]
            is_line = type(code) is int and code in self._codes
        except (ValueError, TypeError, KeyError, RecursionError):
            is_line = False
        if not is_line:
            raise InputError("is no line of such a run", source=place, hint=_REMEDY)
        if asked != self._asked:
            theirs, ours = str(asked).split("-"), self._asked.split("-")
            if len(theirs) == len(ours):
                differ = [part for part, one, other in zip(self._parts, theirs, ours, strict=True) if one != other]
            else:
                differ = [self._parts[0]]
            raise InputError(f"was written with {' and '.join(differ)}", source=place, hint=_REMEDY)
        return dict(record)

    def write(self, line: str) -> None:
        """Write a line.

        Raises:
            UsageError: it cannot be written: the disk is full. What is whole stays.
        """
        data = f"{line}\n".encode()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            said = f"{self.path} cannot be written: {error.strerror}"
            raise UsageError(
                said, hint="make room and run the same command again: it goes on where this ended"
            ) from None

    def close(self) -> None:
        """Let other runs write it."""
        os.close(self._descriptor)
