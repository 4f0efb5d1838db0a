"""What a script of Python says of how it is started: the commands in its documentation."""

from __future__ import annotations

import ast

from compatcheck.core.files import LOCAL, Files
from compatcheck.core.pasted_text import LAUNCHERS
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.text import read_text

_COMMAND = lazy_compile(rf"\s*(?:[$#][ \t]+)?((?:[A-Za-z_]\w*=\S*[ \t]+)*(?:{LAUNCHERS})[ \t].*)")
_QUOTES = lazy_compile(r"^\s*[rRuU]{0,2}(?:\"{3}|'{3})|(?:\"{3}|'{3})\s*$")


def find_commands(path: str, files: Files = LOCAL) -> str:
    """Return the lines of a script that are commands in its documentation, at their places; what else it says is left out.

    Documentation is a text that stands by itself in the module. Its lines are taken as they are written: in the text itself a
    backslash at the end has joined two of them.

    Raises:
        InputError: not readable, or no Python.
    """
    text = read_text(path, files)
    lines = text.splitlines()
    found = [""] * len(lines)
    for node in parse_script(text, path).body:
        match node:
            case ast.Expr(ast.Constant(str())):
                goes_on = False
                for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                    line = _QUOTES.sub("", lines[number])
                    command = _COMMAND.fullmatch(line)
                    found[number] = line if goes_on else command[1] if command is not None else ""
                    goes_on = bool(found[number]) and line.endswith("\\")
    return "\n".join(found) + "\n"
