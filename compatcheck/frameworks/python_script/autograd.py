"""Functions with a backward of their own that a script defines and its modules apply."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.frameworks.python_script.nodes import dotted_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_FUNCTIONS = frozenset({"torch.autograd.Function", "autograd.Function", "Function"})


def applies_autograd_function(classes: Mapping[str, ast.ClassDef]) -> bool:
    """Tell whether the forward of a module applies one: a loss by itself is in no checkpointed layer."""
    bases = {name: {dotted_name(one) for one in node.bases} for name, node in classes.items()}
    functions = {name for name, of in bases.items() if of & _FUNCTIONS}
    return bool(functions) and any(
        isinstance(inner, ast.Call) and dotted_name(inner.func) in {f"{one}.apply" for one in functions}
        for name, node in classes.items()
        if name not in functions
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "forward"
        for inner in ast.walk(method)
    )
