"""The syntax of DeepSpeed's configuration file: Hjson, as DeepSpeed itself parses it, of which JSON is a part."""

from __future__ import annotations

from typing import Any

from compatcheck.core.errors import InputError
from compatcheck.core.hjson import parse_hjson
from compatcheck.core.json_file import parse_json
from compatcheck.core.textfile import STANDARD_INPUT
from compatcheck.frameworks.text import parse_configuration


def may_be_hjson(text: str, path: str) -> bool:
    """Tell whether a text that is no JSON may be Hjson, by the name of its file."""
    return not path.endswith((".yaml", ".yml", ".toml")) and (path != STANDARD_INPUT or text.lstrip().startswith("{"))


def parse(text: str, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Parse JSON or Hjson.

    Raises:
        InputError: neither of them.
    """
    try:
        return parse_json(text, path)
    except InputError as error:
        return parse_leniently(text, path, error)


def parse_leniently(text: str, path: str, strict: InputError) -> Any:  # noqa: ANN401 (JSON)
    """Parse what is no JSON (``strict`` says why) as Hjson.

    Raises:
        InputError: of the parser that got further: it is about what is wrong, not about a comment.
    """
    try:
        return parse_hjson(text, path)
    except InputError as lenient:
        lines = [error.source.line or 0 if error.source is not None else 0 for error in (strict, lenient)]
        raise (lenient if lines[1] > lines[0] else strict) from None


def parse_here_document(text: str, place: str) -> Any:  # noqa: ANN401 (JSON or YAML)
    """Parse a file that a launch script writes by itself.

    Raises:
        InputError: it is broken.
    """
    return parse_hjson(text, place) if text.lstrip().startswith("{") else parse_configuration(text, place)
