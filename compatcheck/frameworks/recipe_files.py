"""Files of recipes, told by their names."""

from __future__ import annotations

import os

from compatcheck.core.pattern import lazy_compile

MAKEFILE = lazy_compile(r"(?:gnu)?makefile(?:\.(?!toml$)[\w.-]+)?|.+\.mk", needs=("makefile", ".mk"))
JUSTFILE = lazy_compile(r"\.?justfile|.+\.just", needs=("just",))


def holds_recipes(path: str) -> bool:
    """Tell whether a file is one of make, just or MLflow by its name."""
    name = os.path.basename(path).lower()
    return MAKEFILE.fullmatch(name) is not None or JUSTFILE.fullmatch(name) is not None or name == "mlproject"
