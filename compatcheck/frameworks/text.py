"""Text of a configuration file, parsed as JSON, YAML or TOML by its name or its beginning."""

from __future__ import annotations

import os
from typing import Any

from compatcheck.core import textfile
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import parse_json
from compatcheck.core.source import Source
from compatcheck.core.yaml import MAX_BYTES, YAML_1_1, parse_yaml

PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}
"""Names of files that hold the arguments of a run in a form that is never opened."""


def read_text(path: str, files: Files = LOCAL) -> str:
    """Read the text of a configuration.

    Raises:
        InputError: a pickle, or `compatcheck.core.textfile.read_text` cannot read it.
    """
    if os.path.splitext(path)[1] in PICKLES:
        msg = "is a pickle, which can run code when loaded, so it is not opened"
        raise InputError(
            msg,
            source=Source(path),
            hint='write the arguments as JSON instead: python -c "import json, torch; '
            f"print(json.dumps(torch.load('{os.path.basename(path)}', weights_only=False).to_dict(), default=str))\"",
        )
    return textfile.read_text(path, files, limit=MAX_BYTES)


def parse_configuration(text: str, path: str) -> Any:  # noqa: ANN401 (JSON, YAML or TOML)
    """Parse by suffix: ``.json``, ``.toml``, ``.yaml``/``.yml``; anything else as JSON when it looks like it, or as YAML."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".toml":
        from compatcheck.core.toml import parse_toml  # noqa: PLC0415 (only for TOML)

        return parse_toml(text, path)
    if suffix == ".json" or (suffix not in {".yaml", ".yml"} and text.lstrip()[:1] in {"{", "["}):
        return parse_json(text, path)
    return parse_yaml(text, path, YAML_1_1)


def expect_mapping(data: Any, path: str, what: str) -> dict[str, Any]:  # noqa: ANN401 (JSON or YAML)
    """Return the data when it is a mapping with text keys.

    Raises:
        InputError: saying what was expected.
    """
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        found = "nothing" if data is None else "a list" if isinstance(data, list) else f"a {type(data).__name__}"
        msg = f"holds {found}, {what} is a mapping of keys to values"
        raise InputError(msg, source=Source(path), hint="is this the file you meant?")
    return data
