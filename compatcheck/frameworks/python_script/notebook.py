"""The cells of a notebook as one script of Python, each line where it stands in the file."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from functools import lru_cache
from itertools import islice
from keyword import iskeyword
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.json_file import parse_json
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.python_code import parse_python
from compatcheck.core.source import Source
from compatcheck.frameworks.text import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.files import Files

SUFFIX = ".ipynb"
_MAGIC = lazy_compile(r"([ \t]*)(?:[%!?]|[A-Za-z_][\w, ]*=[ \t]*[!%])")
"""What IPython alone takes: ``%%capture``, ``!pip install``, ``files = !ls``."""


def read_source(path: str, files: Files) -> str:
    """Read a script of Python, or the cells of a notebook that hold code.

    A command is the call that IPython makes of it, any other line of its own is ``pass``. Files of notebooks have a line for each
    line of a cell; where one has not, as many lines stand in front of it as could be told.

    Raises:
        InputError: not readable, or a notebook of another form.
    """
    text = read_text(path, files)
    if not path.lower().endswith(SUFFIX):
        return text
    lines: list[str] = []
    for cell in find_cells(path, text):
        begin, joined = 0, ""
        for place, line in () if cell[0][1].lstrip().startswith(_OTHER_CELLS) else cell:
            lines += [""] * (place - 1 - len(lines))
            if not joined and _MAGIC.match(line) is None:
                lines.append(line.rstrip("\n"))
                continue
            begin = begin if joined else len(lines)
            lines.append("")
            joined += line.rstrip("\r\n")
            if joined.endswith("\\") and len(joined) < _MOST_CHARACTERS:
                joined = f"{joined[:-1]} "
                continue
            lines[begin], joined = _write_call(joined), ""
        if joined:
            lines[begin] = _write_call(joined)
    return "\n".join(lines) + "\n"


_COMMAND = lazy_compile(r"([ \t]*)((?:[A-Za-z_][\w, ]*=)?)[ \t]*!!?(.*)", re.DOTALL)
_FILLED_IN = lazy_compile(r"\{([^{}]+)\}|\$([A-Za-z_]\w*)")

_MOST_FILLED_IN = 500
"""Expressions of one command: CPython's parser looks for the place of each from the beginning of the text on."""


def _write_call(line: str) -> str:
    """Write a line of IPython's own as Python: ``!{cmd} --lr $lr`` hands a text with two expressions to a shell."""
    match = _COMMAND.fullmatch(line)
    if match is None:
        return f"{line[: len(line) - len(line.lstrip())]}pass"
    parts, last = [], 0
    for filled_in in islice(_FILLED_IN.finditer(match[3]), _MOST_FILLED_IN):
        expression = f"{{{filled_in[1] or filled_in[2]}}}"
        if _is_expression(expression):
            parts += [_write_literal(match[3][last : filled_in.start()]), expression]
            last = filled_in.end()
    parts.append(_write_literal(match[3][last:]))
    return f"{match[1]}{match[2]}get_ipython().system(f'''{''.join(parts)}''')"


@lru_cache(maxsize=1024)
def _is_expression(written: str) -> bool:
    if (name := written[1:-1]).isidentifier():
        return not iskeyword(name)
    try:
        parse_python(f"f'''{written}'''")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _write_literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}").replace("\0", "")
    return escaped.encode("ascii", "backslashreplace").decode()


_OTHER_CELLS = (
    *(
        "%%bash",
        "%%sh",
        "%%script",
        "%%writefile",
        "%%file",
        "%%html",
        "%%!",
        "%%sx",
        "%%system",
        "%%cmd",
        "%%js",
        "%%javascript",
    ),
    *("%%latex", "%%markdown", "%%svg", "%%perl", "%%ruby", "%%sql", "%%cython"),
)
"""What begins a cell that is no Python."""


def find_cells(path: str, text: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of each cell that holds code, with the lines of the file that they stand in, as far as that can be told.

    Raises:
        InputError: it is no notebook, or one of another form.
    """
    data = parse_json(text, path)
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        raise InputError("is no notebook that can be read", source=Source(path), hint="export it to .py")
    places: dict[str, list[int]] = {}
    written_lines = text.splitlines()
    for number, written in enumerate(written_lines, 1):
        places.setdefault(written.strip().removesuffix(","), []).append(number)
    last, head = 0, [(1, "%%bash\n")] if _is_of_shell(data) else []
    for cell in data["cells"]:
        lines: list[tuple[int, str]] = []
        for line in _code_of(cell):
            known = places.get(json.dumps(line, ensure_ascii=False)) or places.get(json.dumps(line)) or []
            at = bisect_left(known, last + 1)
            last = known[at] if at < len(known) else min(last + 1, len(written_lines))
            lines.append((last, line))
        if lines:
            yield [*head, *lines]


def _is_of_shell(data: dict[str, object]) -> bool:
    """Tell whether a shell runs the cells of a notebook, by the kernel that it names."""
    metadata = data.get("metadata")
    kernels = [metadata.get(name) for name in ("kernelspec", "language_info")] if isinstance(metadata, dict) else []
    told = [one.get(name) for one in kernels if isinstance(one, dict) for name in ("language", "name")]
    return any(name in told for name in ("bash", "sh", "zsh"))


_INSTALLS = lazy_compile(
    r"([ \t]*)[!%]+[ \t]*("
    r"(?:sudo[ \t]+)?(?:uv[ \t]+pip|pip[\d.]*|conda|mamba|python[\d.]*[ \t]+-m[ \t]+pip)[ \t]+(?:un)?install\b.*)",
    re.DOTALL,
)


def find_installs(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the commands of cells of Python that install packages, indented as they stand there, with their lines.

    Raises:
        InputError: as `find_cells`.
    """
    for cell in find_cells(path, text):
        begin, joined = 0, ""
        for place, line in () if cell[0][1].lstrip().startswith(_OTHER_CELLS) else cell:
            begin = begin if joined else place
            joined += line.rstrip("\r\n")
            if joined.endswith("\\") and len(joined) < _MOST_CHARACTERS:
                joined = joined[:-1]
                continue
            found, joined = _INSTALLS.fullmatch(joined), ""
            if found is not None:
                yield begin, found[1] + found[2]


_MOST_CHARACTERS = 65_536
"""Of one command."""


def _code_of(cell: object) -> list[str]:
    """Return the lines of a cell that holds code; blank ones before its first are none of it."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return []
    source = cell.get("source")
    text = "".join(part for part in source if isinstance(part, str)) if isinstance(source, list) else source
    return text.lstrip("\n").splitlines(keepends=True) if isinstance(text, str) else []
