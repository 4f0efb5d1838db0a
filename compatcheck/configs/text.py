"""Read a configuration file's text and parse it as JSON or YAML, safely: bounded, no duplicate keys, nothing executed."""

from __future__ import annotations

import json
import os
from typing import Any

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
MAX_NODES = 200_000
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}


def read_text(path: str) -> str:
    """Read a text file.

    Raises:
        InputError: missing, a directory, a pickle, too large, or not UTF-8; with the remedy.
    """
    place = Source(path)
    if os.path.splitext(path)[1] in PICKLES:
        msg = "is a pickle, which can run code when loaded, so it is not opened"
        raise InputError(
            msg,
            source=place,
            hint='write the arguments as JSON instead: python -c "import json, torch; '
            f"print(json.dumps(torch.load('{os.path.basename(path)}', weights_only=False).to_dict(), default=str))\"",
        )
    try:
        if os.path.isdir(path):
            msg = "is a directory, a file is needed"
            raise InputError(msg, source=place, hint="name a file in it")
        if os.path.exists(path) and not os.path.isfile(path):
            msg = "is not a regular file"
            raise InputError(msg, source=place)
        with open(path, "rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        msg = f"cannot be read: {error.strerror or error}"
        raise InputError(msg, source=place, hint="check the path") from None
    if len(raw) > MAX_BYTES:
        msg = f"is larger than {MAX_BYTES >> 20} MiB, which no configuration is"
        raise InputError(msg, source=place)
    encoding = "utf-16" if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        msg = "is not UTF-8 text"
        raise InputError(msg, source=Source(path, None, line), hint="save it as UTF-8") from None
    if "\0" in text:
        msg = "holds NUL bytes, so it is not a text file"
        raise InputError(msg, source=place)
    return text


class _DuplicateKeyError(ValueError):
    """A JSON object repeats a key."""


def parse_json(text: str, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Parse strict JSON.

    Raises:
        InputError: with line and column; duplicate keys are refused.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise _DuplicateKeyError(key)
                seen.add(key)
        return data

    try:
        return json.loads(text, object_pairs_hook=unique)
    except _DuplicateKeyError as error:
        key = str(error)
        msg = f"duplicate key {key!r}"
        raise InputError(
            msg,
            source=Source(path, key, _second_line(text, key)),
            hint="keep one of the two; a program would silently use the last",
        ) from None
    except json.JSONDecodeError as error:
        msg = f"not valid JSON: {error.msg} (column {error.colno})"
        raise InputError(
            msg,
            source=Source(path, None, error.lineno),
            hint="is the file complete?" if error.pos >= len(text.rstrip()) else None,
        ) from None
    except RecursionError:
        msg = "is nested too deeply"
        raise InputError(msg, source=Source(path)) from None


def _second_line(text: str, key: str) -> int | None:
    first = text.find(json.dumps(key))
    second = text.find(json.dumps(key), first + 1)
    return text.count("\n", 0, second) + 1 if second >= 0 else None


def parse_yaml(text: str, path: str) -> Any:  # noqa: ANN401 (YAML)
    """Parse one YAML document with YAML 1.1 scalars, as the training programs do.

    Raises:
        InputError: syntax, tags, duplicate keys, several documents, or alias bombs; with the line.
    """
    import yaml  # noqa: PLC0415 (costs 30 ms; only for YAML inputs)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, path, 0, {}, [0])
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        msg = f"not valid YAML: {getattr(error, 'problem', None) or error}"
        raise InputError(
            msg,
            source=Source(path, None, line),
        ) from None
    except (RecursionError, ValueError) as error:
        msg = f"not valid YAML: {error}"
        raise InputError(msg, source=Source(path)) from None
    finally:
        loader.dispose()


def _check(node: Any, path: str, depth: int, sizes: dict[int, int], budget: list[int]) -> int:  # noqa: ANN401 (yaml.Node)
    """Refuse duplicate keys, deep nesting and aliases that expand beyond `MAX_NODES`; return the expanded size."""
    key = id(node)
    if key in sizes:
        budget[0] += sizes[key]
    else:
        if depth > MAX_DEPTH:
            raise _at(node, path, "is nested too deeply")
        sizes[key] = 1
        size = 1
        if node.id == "mapping":
            names = set()
            for name, value in node.value:
                if name.id == "scalar":
                    if name.value in names and name.value != "<<":
                        raise _at(name, path, f"duplicate key {name.value!r}", name.value, "keep one of the two")
                    names.add(name.value)
                size += 1 + _check(value, path, depth + 1, sizes, budget)
        elif node.id == "sequence":
            size += sum(_check(item, path, depth + 1, sizes, budget) for item in node.value)
        sizes[key] = size
        budget[0] += 1
    if budget[0] > MAX_NODES or sizes[key] > MAX_NODES:
        raise _at(
            node,
            path,
            f"its aliases expand to more than {MAX_NODES} values",
            None,
            "such a file is not a configuration",
        )
    return sizes[key]


def _at(node: Any, path: str, message: str, key: str | None = None, hint: str | None = None) -> InputError:  # noqa: ANN401
    return InputError(message, source=Source(path, key, node.start_mark.line + 1), hint=hint)


def parse_json_or_yaml(text: str, path: str) -> Any:  # noqa: ANN401 (JSON or YAML)
    """Parse by suffix: ``.json`` as JSON, ``.yaml``/``.yml`` as YAML, anything else as JSON when it looks like it."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".json" or (suffix not in {".yaml", ".yml"} and text.lstrip()[:1] in {"{", "["}):
        return parse_json(text, path)
    return parse_yaml(text, path)


def expect_mapping(data: Any, path: str, what: str) -> dict[str, Any]:  # noqa: ANN401 (JSON or YAML)
    """Return the data when it is a mapping with text keys.

    Raises:
        InputError: saying what was expected.
    """
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        found = "nothing" if data is None else "a list" if isinstance(data, list) else f"a {type(data).__name__}"
        msg = f"holds {found}, {what} is a mapping of keys to values"
        raise InputError(msg, source=Source(path))
    return data
