"""Programs whose output follows from their arguments and input alone: computed here, never run."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from compatcheck.shell.arithmetic import Arithmetic, UnknownNumberError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LINES = 10_000


def run_filter(name: str, arguments: list[str], stdin: str | None) -> str | None:
    """Return what a program prints, or None where that is not known.

    Args:
        name: one of ``FILTERS``.
        arguments: its arguments.
        stdin: the text on its standard input; None is unknown.
    """
    return FILTERS[name](arguments[1:] if arguments[:1] == ["--"] else arguments, stdin)


def _dirname(arguments: list[str], _stdin: str | None) -> str | None:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return None
    path = arguments[0].rstrip("/") or "/"
    head, slash, _ = path.rpartition("/")
    return (head.rstrip("/") or "/" if slash else ".") + "\n"


def _basename(arguments: list[str], _stdin: str | None) -> str | None:
    if len(arguments) not in {1, 2} or arguments[0].startswith("-"):
        return None
    name = arguments[0].rstrip("/").rpartition("/")[2] or ("/" if arguments[0] else "")
    suffix = arguments[1] if len(arguments) > 1 else ""
    return (name[: -len(suffix)] if suffix and name.endswith(suffix) and name != suffix else name) + "\n"


def _realpath(arguments: list[str], _stdin: str | None) -> str | None:
    """Return a path relative to where the script is started as it is: it leads to the same file; of others nobody knows."""
    if len(arguments) != 1 or arguments[0].startswith(("-", "/")) or not arguments[0]:
        return None
    return posixpath.normpath(arguments[0]) + "\n"


def _readlink(arguments: list[str], stdin: str | None) -> str | None:
    option, *rest = arguments or [""]
    return _realpath(rest, stdin) if option in {"-f", "-e", "-m"} else None


def _seq(arguments: list[str], _stdin: str | None) -> str | None:
    if not 1 <= len(arguments) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", one) for one in arguments):
        return None
    if any(re.match(r"-?0\d", one) for one in arguments):
        return None
    numbers = [int(one) for one in arguments]
    first, step, last = (
        numbers[0] if len(numbers) > 1 else 1,
        numbers[1] if len(numbers) == 3 else 1,
        numbers[-1],
    )
    if not step or abs(last - first) // abs(step) > MAX_LINES:
        return None
    return "".join(f"{number}\n" for number in range(first, last + (1 if step > 0 else -1), step))


def _expr(arguments: list[str], _stdin: str | None) -> str | None:
    numbers, operators = arguments[::2], arguments[1::2]
    if len(numbers) != len(operators) + 1 or len(numbers) < 2 or not {"+", "-", "*", "/", "%"}.issuperset(operators):
        return None
    if not all(re.fullmatch(r"-?\d{1,18}", number) for number in numbers):
        return None
    return _calculate("".join(word if at % 2 else f"({int(word)})" for at, word in enumerate(arguments)))


def _bc(arguments: list[str], stdin: str | None) -> str | None:
    if arguments or stdin is None or not re.fullmatch(r"[-+*/() \t\d]+\n?", stdin):
        return None
    if re.search(r"(?<!\d)0\d", stdin):
        return None
    return _calculate(stdin)


def _calculate(text: str) -> str | None:
    def refuse(*_: object) -> str:
        raise UnknownNumberError

    try:
        return f"{Arithmetic(text, refuse, lambda *_: None).evaluate()}\n"
    except (UnknownNumberError, RecursionError):
        return None


def _tr(arguments: list[str], stdin: str | None) -> str | None:
    if stdin is None:
        return None
    options = "".join(one[1:] for one in arguments if re.fullmatch(r"-[cds]+", one))
    sets = [_tr_set(one) for one in arguments if not re.fullmatch(r"-[cds]+", one)]
    if any(one is None for one in sets):
        return None
    known = [one for one in sets if one is not None]
    if options in {"d", "cd", "dc"} and len(known) == 1:
        return "".join(char for char in stdin if (char in known[0]) == ("c" in options))
    if options or len(known) != 2 or not known[1]:
        return None
    target = known[1] + known[1][-1] * len(known[0])
    table = dict(zip(known[0], target, strict=False))  # the last one counts
    return "".join(table.get(char, char) for char in stdin)


def _tr_set(text: str) -> str | None:
    classes = {
        "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
        "[:digit:]": "0123456789",
    }
    if text in classes:
        return classes[text]
    if "[" in text or not text.isascii():
        return None
    text = re.sub(r"\\([nt\\])", lambda match: {"n": "\n", "t": "\t", "\\": "\0"}[match[1]], text)
    if "\\" in text:
        return None

    def spell(match: re.Match[str]) -> str:
        return "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1)))

    return re.sub(r"([a-zA-Z0-9])-([a-zA-Z0-9])", spell, text).replace("\0", "\\")


def _wc(arguments: list[str], stdin: str | None) -> str | None:
    if stdin is None or len(arguments) != 1 or arguments[0] not in {"-l", "-w", "-c"} or not stdin.isascii():
        return None
    return f"{ {'-l': stdin.count(chr(10)), '-w': len(stdin.split()), '-c': len(stdin)}[arguments[0]] }\n"


def _cut(arguments: list[str], stdin: str | None) -> str | None:
    match = re.fullmatch(r"-d\0?(.)\0-f\0?(\d{1,9})|-f\0?(\d{1,9})\0-d\0?(.)", "\0".join(arguments))
    if stdin is None or not match:
        return None
    delimiter, field = (match[1], int(match[2])) if match[1] else (match[4], int(match[3]))
    if not field:
        return None
    lines = []
    for line in stdin.splitlines():
        parts = line.split(delimiter)
        lines.append(line if len(parts) == 1 else parts[field - 1] if field <= len(parts) else "")
    return "".join(f"{line}\n" for line in lines)


def _head(arguments: list[str], stdin: str | None) -> str | None:
    count = _count(arguments)
    return None if stdin is None or count is None else "".join(stdin.splitlines(keepends=True)[:count])


def _tail(arguments: list[str], stdin: str | None) -> str | None:
    count = _count(arguments)
    if stdin is None or count is None:
        return None
    return "".join(stdin.splitlines(keepends=True)[-count:]) if count else ""


def _count(arguments: list[str]) -> int | None:
    match = re.fullmatch(r"(?:-n\0?|--lines=|-)(\d{1,6})", "\0".join(arguments)) if arguments else None
    return 10 if not arguments else int(match[1]) if match else None


FILTERS: dict[str, Callable[[list[str], str | None], str | None]] = {
    "basename": _basename,
    "bc": _bc,
    "cut": _cut,
    "dirname": _dirname,
    "expr": _expr,
    "head": _head,
    "readlink": _readlink,
    "realpath": _realpath,
    "seq": _seq,
    "tail": _tail,
    "tr": _tr,
    "wc": _wc,
}
"""Programs by name. ``cat`` and ``tee`` are read where files are known."""
