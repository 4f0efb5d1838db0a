"""The configuration that a program composes where its command names none: ``@hydra.main(config_path=…, config_name=…)``."""

from __future__ import annotations

import ast

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.frameworks.python_script.calls import parse_script
from compatcheck.frameworks.python_script.nodes import dotted_name
from compatcheck.frameworks.text import read_text


def find_composed(path: str, files: Files = LOCAL) -> tuple[str, str] | None:
    """Return the directory, relative to the program, and the name; None where it says no literals, or more than one pair."""
    try:
        body = parse_script(read_text(path, files), path).body
    except InputError:
        return None
    found = {
        (str(given["config_path"]), str(given["config_name"]))
        for node in body
        if isinstance(node, ast.FunctionDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call)
        and dotted_name(call.func) == "hydra.main"
        and (given := {one.arg: one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)})
        and {"config_path", "config_name"} <= given.keys()
    }
    return found.pop() if len(found) == 1 else None
