"""Read a configuration file's text and parse it as JSON or YAML, safely: bounded, no duplicate keys, nothing executed."""

from __future__ import annotations

import json
import os
from typing import Any

from compatcheck.core.errors import InputError
from compatcheck.core.json_file import DuplicateKeyError, load_strictly
from compatcheck.core.source import Source
from compatcheck.core.textfile import STANDARD_INPUT, pretended, read_standard_input

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
            raise InputError(msg, source=place, hint="write its content to a file and name that")
        if path == STANDARD_INPUT:
            raw = read_standard_input()
        elif (instead := pretended(path)) is not None:
            raw = instead
        else:
            with open(path, "rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, InputError):
            raise
        msg = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError(msg, source=place, hint="check the path") from None
    if len(raw) > MAX_BYTES:
        msg = f"is larger than {MAX_BYTES >> 20} MiB, which no configuration is"
        raise InputError(msg, source=place, hint="check that this is the file you mean")
    encoding = "utf-16" if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        msg = "is not UTF-8 text"
        raise InputError(msg, source=Source(path, None, line), hint="save it as UTF-8") from None
    if "\0" in text:
        msg = "holds NUL bytes, so it is not a text file"
        raise InputError(msg, source=place, hint="save it as UTF-8 text, or check that this is the file you mean")
    return text


def parse_json(text: str, path: str) -> Any:  # noqa: ANN401 (JSON)
    """Parse strict JSON.

    Raises:
        InputError: with line and column; duplicate keys are refused.
    """
    try:
        return load_strictly(text, MAX_DEPTH)
    except DuplicateKeyError as error:
        msg = f"duplicate key {str(error)!r}"
        raise InputError(
            msg,
            source=_second_place(text, path, str(error)),
            hint="keep one of the two; DeepSpeed refuses such a file, others take the last",
        ) from None
    except json.JSONDecodeError as error:
        msg = f"not valid JSON: {error.msg} (column {error.colno})"
        raise InputError(
            msg,
            source=Source(path, None, error.lineno),
            hint="is the file complete?"
            if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
            else "mend it there; plain JSON has no comments and no comma before a closing bracket",
        ) from None
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError:  # Python's limit on the digits of an integer
        msg = "holds an integer of thousands of digits"
        raise InputError(msg, source=Source(path), hint=_NO_CONFIGURATION) from None


_NO_CONFIGURATION = "such a file is not a configuration"


def _too_deep(path: str) -> InputError:
    return InputError(f"is nested more than {MAX_DEPTH} levels deep", source=Source(path), hint=_NO_CONFIGURATION)


def _second_place(text: str, path: str, key: str) -> Source:
    """Find the repeated key; the Hjson parser keeps positions and refuses duplicates too."""
    from compatcheck.core.hjson import parse_hjson  # noqa: PLC0415 (only on the way to an error)

    try:
        parse_hjson(text, path)
    except InputError as error:
        if error.source is not None and error.source.key is not None:
            return error.source
    return Source(path, key)


def parse_yaml(text: str, path: str) -> Any:  # noqa: ANN401 (YAML)
    """Parse one YAML document with YAML 1.1 scalars, as the training programs do.

    Raises:
        InputError: syntax, tags, duplicate keys, several documents, or alias bombs; with the line.
    """
    import yaml  # noqa: PLC0415 (costs 30 ms; only for YAML inputs)

    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if _may_nest_deeply(text):
        _refuse_deep_yaml(text, path, yaml, kind)
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, path, 0, {}, [0])
        return loader.construct_document(node)
    except InputError:
        raise
    except yaml.YAMLError as error:
        raise _not_yaml(error, path) from None
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:  # a date that does not exist, an integer of thousands of digits
        msg = f"not valid YAML: {str(error).partition(';')[0]}"
        raise InputError(msg, source=_bad_scalar(text, path, kind), hint="quote the value, or mend it") from None
    finally:
        loader.dispose()


def _not_yaml(error: Any, path: str) -> InputError:  # noqa: ANN401 (yaml.YAMLError)
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    hint = "mend it there; check indentation, quotes and brackets"
    if "constructor" in problem:
        hint = "tags would run code or are unknown; write the plain value"
    elif "another document" in problem:
        problem = "the file holds several documents"
        hint = "put each document into a file of its own"
    elif "unhashable" in problem:
        problem = "a key is a list or a mapping"
        hint = "a template such as {{ name }} has to be filled in first"
    return InputError(
        f"not valid YAML: {problem}",
        source=Source(path, None, None if mark is None else mark.line + 1),
        hint=hint,
    )


def _bad_scalar(text: str, path: str, kind: Any) -> Source:  # noqa: ANN401 (a yaml loader)
    """Find the value that cannot be constructed; its error carries no place."""
    loader = kind(text)
    try:
        pending = [("", loader.get_single_node())]
        while pending:
            key, node = pending.pop()
            if node.id == "mapping":
                pending += [(f"{key}.{name.value}".lstrip("."), value) for name, value in reversed(node.value)]
            elif node.id == "sequence":
                pending += [(key, item) for item in reversed(node.value)]
            else:
                try:
                    loader.construct_object(node)
                except ValueError:
                    return Source(path, key or None, node.start_mark.line + 1)
    finally:
        loader.dispose()
    return Source(path)


def _may_nest_deeply(text: str) -> bool:
    """Tell whether a YAML text has enough brackets and dashes to nest beyond what its C parser survives."""
    return text.count("[") + text.count("{") + text.count("- ") + text.count("? ") > MAX_DEPTH


def _refuse_deep_yaml(text: str, path: str, yaml: Any, kind: Any) -> None:  # noqa: ANN401 (the module, a loader)
    """Refuse deep nesting from the events alone: composing nodes recurses in C, and tens of thousands of levels crash it.

    Raises:
        InputError: more than `MAX_DEPTH` levels.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=kind):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    raise _at(event, path, f"is nested more than {MAX_DEPTH} levels deep", None, _NO_CONFIGURATION)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError as error:
        raise _not_yaml(error, path) from None


_OPEN = -1
"""Size of a node whose inside is being looked at."""


def _check(node: Any, path: str, depth: int, sizes: dict[int, int], budget: list[int]) -> int:  # noqa: ANN401 (yaml.Node)
    """Refuse duplicate keys, deep nesting and aliases that expand beyond `MAX_NODES`; return the expanded size."""
    key = id(node)
    if sizes.get(key) == _OPEN:
        raise _at(node, path, "an alias refers to the value it stands in", None, "write the value out")
    if key in sizes:
        budget[0] += sizes[key]
    else:
        if depth > MAX_DEPTH:
            raise _at(node, path, f"is nested more than {MAX_DEPTH} levels deep", None, _NO_CONFIGURATION)
        sizes[key] = _OPEN
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
            _NO_CONFIGURATION,
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
        raise InputError(msg, source=Source(path), hint="is this the file you meant?")
    return data
