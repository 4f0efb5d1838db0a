"""Run mutated inputs through commands and parsers in this process: no traceback, no run above 10 s or 512 MB.

    python -m benchmarks.fuzz.campaign --list
    python -m benchmarks.fuzz.campaign check 2000               # a command, or a parser of `fuzz.py`
    python -m benchmarks.fuzz.campaign all 2000 --parsers 3000   # every command, every parser that often
    python -m benchmarks.fuzz.campaign check 1 --first 812 --out DIR   # one input again, as number 812

Inputs are numbered from ``--first``; a number gives the same input in every run of one checkout. What is found is made smaller
and written to ``--out`` with a text that says how to see it again. Exit code 1 where anything was found. Linux only.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.fuzz.commands import COMMANDS, Seed, pack_image
from benchmarks.fuzz.fuzz import SECONDS_PER_INPUT, TARGETS, find_seeds, read_seed
from benchmarks.fuzz.mutation import mutate
from compatcheck.core.errors import CompatcheckError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

MAX_MIB = 512
_ADDRESSES_MIB = 3 * 1024
_EXIT_CODES = frozenset(range(5))
_MOST_SEED_BYTES = 48 * 1024
_MOST_MINIMISED = 400
_SECONDS_MINIMISED = 60


class TooSlowError(BaseException):
    """An input took more CPU than it may; no product code catches it."""


class Case(NamedTuple):
    """One input."""

    files: Mapping[str, bytes]
    arguments: tuple[str, ...] = ()
    """Of a command; a parser has one file."""


class Outcome(NamedTuple):
    """What came of one input."""

    found: str | None
    """What is wrong, the same text for the same cause; None where nothing is."""
    seconds: float
    """CPU time."""
    peak_mib: float
    """Resident memory of the whole process at its peak."""
    detail: str = ""


class Runner:
    """Runs inputs in a directory of its own each."""

    def __init__(self, place: Path) -> None:
        """Prepare this process: a home without anything, limits, a crash that is noted instead of logged."""
        from compatcheck.cli import crash  # noqa: PLC0415 (needs click)

        self.place = place
        self.number = 0
        self._crash: BaseException | None = None
        home = place / "home"
        home.mkdir()
        os.environ.update(
            {
                "HOME": str(home),
                "XDG_CACHE_HOME": str(home / "c"),
                "XDG_DATA_HOME": str(home / "d"),
                "PATH": "/usr/bin:/bin",
            }
        )
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "COMPATCHECK_EVIDENCE", "COMPATCHECK_CACHE"):
            os.environ.pop(name, None)
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_MIB << 20, resource.RLIM_INFINITY))
        signal.signal(signal.SIGPROF, _stop)

        def note(_: list[str]) -> None:
            self._crash = sys.exc_info()[1]

        crash.report_crash = note

    def run_command(self, case: Case) -> Outcome:
        """Run a command on its files."""
        from compatcheck.cli.__main__ import main  # noqa: PLC0415 (see above)

        self._crash = None

        def act(folder: Path) -> str | None:
            os.chdir(folder)
            out, err, code = io.StringIO(), io.StringIO(), 0
            try:
                with redirect_stdout(out), redirect_stderr(err):
                    main(list(case.arguments))
            except SystemExit as stop:
                code = int(stop.code or 0)
            finally:
                os.chdir("/")
            if self._crash is not None:
                raise self._crash
            if "memory is short" in err.getvalue():
                return "more memory than there is"
            if code not in _EXIT_CODES or "Traceback" in err.getvalue():
                return f"exit code {code}"
            if "--format" in case.arguments and "json" in case.arguments and out.getvalue() and code < 2:
                json.loads(out.getvalue())
            return None

        return self._watch(case, act)

    def run_parser(self, name: str, parse: Callable[[bytes | str], object], case: Case) -> Outcome:
        """Run a parser on its one file."""
        ((file, data),) = case.files.items()

        def act(folder: Path) -> str | None:
            try:
                parse(data if TARGETS[name].takes_bytes else str(folder / file))
            except InputError as error:
                return None if error.hint else f"no remedy: {_where(error)}"
            except CompatcheckError:
                return None
            return None

        return self._watch(case, act)

    def _watch(self, case: Case, act: Callable[[Path], str | None]) -> Outcome:
        self.number += 1
        folder = self.place / str(self.number)
        for name, data in case.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        start, detail = time.process_time(), ""
        faulthandler.dump_traceback_later(30 * SECONDS_PER_INPUT, exit=True)  # a hang in C, or one that costs no CPU
        signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_INPUT)
        try:
            found = act(folder)
        except TooSlowError as error:
            found, detail = f"slow: {_where(error)}", traceback.format_exc()
        except Exception as error:  # noqa: BLE001 (what is looked for)
            found, detail = f"{type(error).__name__}: {_where(error)}", traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
        seconds, peak = time.process_time() - start, _peak_mib()
        if found is None and peak > MAX_MIB:
            found = f"memory: {peak:.0f} MiB"
        shutil.rmtree(folder)
        return Outcome(found, seconds, peak, detail)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def _where(error: BaseException) -> str:
    """Name the innermost line of the package that an error went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/compatcheck/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/compatcheck/')[2]} {frames[-1].name}" if frames else "outside"


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _form(name: str) -> str | None:
    return {".json": "json", ".toml": "toml", ".lock": "toml"}.get(Path(name).suffix)


def draw_command(seeds: Sequence[Seed], number: int) -> Case:
    """Return the input of a command with a number."""
    choose = random.Random(number)  # noqa: S311 (no secret)
    seed = choose.choice(seeds)
    files = dict(seed.files)
    for _ in range(choose.choice((1, 1, 2, 4)) if len(files) > 1 else 1):
        name = choose.choice(list(files))
        others = tuple(data for other, data in files.items() if Path(other).suffix == Path(name).suffix)
        files[name] = mutate(files[name], choose.randrange(2**32), others, _form(name))
        if choose.random() < 0.05 and not any(name in argument for argument in seed.arguments):
            files[_rename(name, choose)] = files.pop(name)
    if seed.archive is not None:
        files = pack_image(files, seed.archive)
        if choose.random() < 0.3:
            files["image.tar"] = _change_bytes(files["image.tar"], choose)
    return Case(files, (*seed.arguments, *choose.choice(seed.choices)))


def _rename(name: str, choose: random.Random) -> str:
    head, _, last = name.rpartition("/")
    changed = mutate(last.encode("utf-8", "surrogateescape"), choose.randrange(2**32)).decode(
        "utf-8", "surrogateescape"
    )[:60]
    changed = changed.replace("/", "_").replace("\0", "_")
    return f"{head}/{last if changed in {'', '.', '..'} else changed}".lstrip("/")


def _change_bytes(data: bytes, choose: random.Random) -> bytes:
    """Change bytes of an archive, most of them in the headers of its entries."""
    changed = bytearray(data)
    for _ in range(choose.choice((1, 2, 8))):
        at = choose.randrange(0, len(changed), 512) + choose.choice((0, 124, 148, 156, 157, choose.randrange(512)))
        changed[at : at + 1] = bytes([choose.choice((0, 48, 55, 120, 103, 76, 128, 255, choose.randrange(256)))])
    return bytes(changed[: choose.randrange(len(changed))] if choose.random() < 0.1 else changed)


def draw_parser(name: str, seeds: Sequence[bytes], number: int) -> Case:
    """Return the input of a parser with a number."""
    choose = random.Random(number)  # noqa: S311 (no secret)
    data = mutate(choose.choice(seeds), choose.randrange(2**32), seeds, TARGETS[name].form)
    return Case({TARGETS[name].name: data})


def load_parser(name: str) -> Callable[[bytes | str], object]:
    """Import the parser of a target."""
    module, _, function = TARGETS[name].function.partition(":")
    place = "benchmarks.fuzz.adapters" if module == "adapters" else f"compatcheck.{module}"
    parse: Callable[[bytes | str], object] = getattr(import_module(place), function)
    return parse


def make_steps(runner: Runner, name: str) -> tuple[Callable[[int], Case], Callable[[Case], Outcome]]:
    """Return what draws the inputs of a command or parser, and what runs one."""
    if name in COMMANDS:
        seeds = COMMANDS[name]()
        return lambda number: draw_command(seeds, number), runner.run_command
    parse = load_parser(name)
    contents = [data for path in find_seeds(name) if len(data := read_seed(path)) <= _MOST_SEED_BYTES]
    contents = contents or [read_seed(find_seeds(name)[0])[:_MOST_SEED_BYTES]]
    return lambda number: draw_parser(name, contents, number), lambda case: runner.run_parser(name, parse, case)


def minimise(case: Case, run: Callable[[Case], Outcome], found: str) -> Case:
    """Leave out files, lines and bytes as long as the same is found."""
    end, tries = time.monotonic() + _SECONDS_MINIMISED, 0

    def holds(files: Mapping[str, bytes]) -> bool:
        nonlocal tries
        tries += 1
        return tries < _MOST_MINIMISED and time.monotonic() < end and run(case._replace(files=files)).found == found

    files = dict(case.files)
    for name in list(files):
        fewer = {other: data for other, data in files.items() if other != name}
        if fewer and holds(fewer):
            files = fewer
    for name in files:
        for separator in (b"\n", b""):
            parts = files[name].splitlines(keepends=True) if separator else [bytes([byte]) for byte in files[name]]
            size = max(1, len(parts) // 2)
            while size and time.monotonic() < end and tries < _MOST_MINIMISED:
                at = 0
                while at < len(parts):
                    shorter = parts[:at] + parts[at + size :]
                    if holds({**files, name: b"".join(shorter)}):
                        parts = shorter
                    else:
                        at += size
                size //= 2
            files[name] = b"".join(parts)
    return case._replace(files=files)


def write_find(case: Case, outcome: Outcome, name: str, number: int, out: Path) -> None:
    """Write a minimised find with what shows it again."""
    folder = out / f"{name}-{number}"
    for file, data in case.files.items():
        path = folder / "files" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "find.txt").write_text(
        f"{outcome.found}\n{name} {number}: {' '.join(case.arguments)}\n"
        f"{outcome.seconds:.2f} s, {outcome.peak_mib:.0f} MiB\n\n{outcome.detail}",
        encoding="utf-8",
        errors="backslashreplace",
    )


def campaign(names: Mapping[str, int], first: int, out: Path) -> int:
    """Run so many inputs of each command or parser, print a line about each, and return how many causes were found."""
    known: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
        runner = Runner(Path(temporary))
        for name, count in names.items():
            draw, run = make_steps(runner, name)
            slowest, highest, total = (0.0, 0), (0.0, 0), 0.0
            for number in range(first, first + count):
                case = draw(number)
                outcome = run(case)
                total += outcome.seconds
                slowest, highest = max(slowest, (outcome.seconds, number)), max(highest, (outcome.peak_mib, number))
                if outcome.found is None:
                    continue
                known[outcome.found] += 1
                if known[outcome.found] == 1:
                    print(f"{name} {number}: {outcome.found}", flush=True)
                    small = minimise(case, run, outcome.found)
                    write_find(small, run(small), name, number, out)
            print(
                f"{name}: {count} inputs, {total:.0f} s, slowest {slowest[0]:.2f} s (number {slowest[1]}), "
                f"most memory {highest[0]:.0f} MiB (number {highest[1]})",
                flush=True,
            )
    for found, count in known.most_common():
        print(f"{count} × {found}")
    return len(known)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", choices=[*COMMANDS, *TARGETS, "all"], metavar="TARGET")
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("--parsers", type=int, default=0, help="inputs of each parser, with `all`")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--out", type=Path, default=Path("fuzz-finds"), help="directory that finds are written to")
    parser.add_argument("--list", action="store_true", help="list commands and parsers")
    options = parser.parse_args()
    if options.list or options.target is None:
        print("\n".join(("commands: " + " ".join(COMMANDS), "parsers: " + " ".join(TARGETS))))
        return
    names = {options.target: options.count}
    if options.target == "all":
        names = {**dict.fromkeys(COMMANDS, options.count), **dict.fromkeys(TARGETS, options.parsers)}
    sys.exit(campaign(names, options.first, options.out.absolute()) > 0)


if __name__ == "__main__":
    main()
