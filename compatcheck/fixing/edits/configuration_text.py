"""Change one value of a JSON, Hjson or YAML file, or of a command line, and nothing else in it."""

from __future__ import annotations

import json
import re
from shlex import quote
from typing import TYPE_CHECKING

from compatcheck.core.document import enclosing_keys
from compatcheck.core.errors import InputError
from compatcheck.core.fix import TextEdit
from compatcheck.core.textfile import reads_as_script
from compatcheck.fixing.edits.text import apply_edits
from compatcheck.frameworks.lines import locate_keys
from compatcheck.resolution.spelling import as_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Value
    from compatcheck.core.textfile import Place

_YAML_SUFFIXES = (".yaml", ".yml")
_JSON_SUFFIXES = (".json", ".jsonc", ".hjson")
_MARK = "\ufeff"


def change_value(path: str, text: str, key: str, value: Value, line: int | None = None) -> TextEdit | None:
    """Return the edit that gives a key another value.

    Args:
        path: the file; its suffix tells how it is read.
        text: of the file.
        key: dotted, as the file's reader names it.
        value: the new one.
        line: where the key stands, for a command line.

    Returns:
        None where the key cannot be found, or stands for something that is no plain value.
    """
    if _is_script(path, text):
        return _change_argument(path, text, key, value, line or 1)
    skip = text.startswith(_MARK)
    place = _locate(path, text[skip:]).get(key)
    if place is None or text[place.start + skip : place.start + skip + 1] in {"{", "[", "&", "*", "|", ">"}:
        return None
    start, end = place.start + skip, place.end + skip
    space = " " if text[:start].endswith(":") else ""  # a key with nothing behind it
    return TextEdit(path, start, end, space + _write(value, path, text[start:end]))


def add_value(path: str, text: str, key: str, value: Value) -> TextEdit | None:
    """Return the edit that adds a key behind the last one of the mapping it belongs to, indented as that is.

    Returns:
        With the sections that are not there; None where the mapping is no plain one, or the key is there.
    """
    if not path.endswith((*_YAML_SUFFIXES, *_JSON_SUFFIXES)):
        return None
    skip = int(text.startswith(_MARK))
    places = _locate(path, text[skip:])
    outer = next((one for one in enclosing_keys(key) if one in places), "")
    name, *inner = key.removeprefix(f"{outer}." if outer else "").split(".")
    inside = [
        other for other in places if other.rpartition(".")[0] == outer and "." not in other[len(outer) + bool(outer) :]
    ]
    if key in places or not inside:
        return None
    last = max((places[other] for other in inside), key=lambda place: place.key)
    at, start, end = last.key + skip, last.start + skip, last.end + skip
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(_MARK)
    yaml = path.endswith(_YAML_SUFFIXES)
    written = _write(value, path, "")
    for section in reversed(inner):
        written = f"{{{section if yaml else json.dumps(section)}: {written}}}"
    if indent.strip():  # the mapping is written on one line
        flow = text[:at].rstrip()[-1:] in {"{", ","} and (yaml or text[at] in "\"'")
        comma = ", " if yaml or "," not in indent or ", " in indent else ","
        return TextEdit(path, end, end, f"{comma}{name if yaml else json.dumps(name)}: {written}") if flow else None
    if yaml:
        return _add_to_yaml(path, text, max(start, end), indent, f"{name}: {written}", newline)
    if text[at] not in "\"'":
        return None
    return TextEdit(path, end, end, f",{newline}{indent}{json.dumps(name)}: {written}")


def _add_to_yaml(path: str, text: str, end: int, indent: str, line: str, newline: str) -> TextEdit:
    while end and text[end - 1] in " \t\r\n":  # the end of a block is where the next key begins
        end -= 1
    stop = text.find("\n", end)
    if stop < 0:
        return TextEdit(path, len(text), len(text), f"{newline}{indent}{line}")
    return TextEdit(path, stop + 1, stop + 1, f"{indent}{line}{newline}")


def _locate(path: str, text: str) -> Mapping[str, Place]:
    try:
        return locate_keys(text, path) if path.endswith((*_YAML_SUFFIXES, *_JSON_SUFFIXES)) else {}
    except InputError:
        return {}


def _write(value: Value, path: str, written: str) -> str:
    """Write a value as the file writes such values, a string in the quotes it had."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        if isinstance(value, bool) and written in {"True", "False"}:
            return str(value)
        return json.dumps(value)
    text = str(value)
    if path.endswith(_YAML_SUFFIXES):
        mark = written[:1] if written[:1] in {"'", '"'} else ""
        plain = re.fullmatch(r"[A-Za-z_][\w./-]*", text) and text.lower() not in {
            "yes",
            "no",
            "on",
            "off",
            "true",
            "false",
            "null",
            "y",
            "n",
        }
        return f"{mark}{text}{mark}" if mark else text if plain else json.dumps(text)
    return json.dumps(text)


def _is_script(path: str, text: str) -> bool:
    return reads_as_script(path, text[:128].encode())


_OPTION = (
    r"(?<![\w.-])(?P<name>(?:--)?\+{{0,2}}{name})(?P<sign>=|[ \t]+)"
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s\\;|&()'"]+)(?=[\s\\;|&)'"]|$)"""
)
"""An option with its value: a whole word of the shell, without the parenthesis or quote that ends what it stands in."""


def _find_option(text: str, key: str, line: int) -> re.Match[str] | None:
    """Find ``--key value``, ``--key=value`` or ``key=value`` in a command that begins at or above a line."""
    name = re.escape(key.lstrip("-")).replace("_", "[-_]")
    return re.compile(_OPTION.format(name=name)).search(text, _start_of(text, line))


def _start_of(text: str, line: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start


def add_argument(path: str, text: str, key: str, value: Value, document: Document) -> Iterator[TextEdit]:
    """Yield the edits that may add an option behind the last one of a command, written as that one is.

    Args:
        path: the script.
        text: of the script.
        key: name of the option, as a command gives one that it has not named yet (`Spelling.name`).
        value: the new one; a switch that is on may stand alone.
        document: what the command read as.
    """
    if not _is_script(path, text):
        return
    at = document.source.line or 1
    found = [match for one in document.lines for match in [_find_option(text, one, at)] if match]
    launch = re.compile(rf"(?P<name>){document.reader}(?P<sign>[ \t]+)launch\b")
    last = max(found, key=re.Match.end, default=launch.search(text, _start_of(text, at)))
    if last is None:
        return
    dashes = "--" if last["name"].startswith("--") or not last["name"] else ""
    name = key.replace("_", "-") if "-" in last["name"][2:] else key
    given = "None" if value is None else quote(str(value))
    end = last.end() + (text[last.end() : last.end() + 1] in {"'", '"'})
    section, dot, inner = name.partition(".")
    if dashes and dot and not any("." in one for one in document.lines):
        if section not in document.lines:  # a mapping is JSON text to transformers' parser
            text = as_mapping(inner, json.dumps(value))
            yield TextEdit(path, end, end, f" --{section}{last['sign']}'{text}'")
        return
    if dashes and value is True:
        yield TextEdit(path, end, end, f" {dashes}{name}")
    yield TextEdit(path, end, end, f" {dashes}{name}{last['sign']}{given}")


def replace_switch(path: str, text: str, key: str, new: str, line: int | None = None) -> TextEdit | None:
    """Return the edit that puts one switch in the place of another that is on; None where that is not there."""
    name = re.escape(key)
    if _is_script(path, text):
        pattern = re.compile(rf"(?<![\w.-])(--{name.replace('_', '[-_]')})(?![\w.=-])")
    else:
        pattern = re.compile(rf"""(?<![\w.-])({name})(?=["']?[ \t]*[:=][ \t]*true\b)""", re.IGNORECASE)
    found = pattern.search(text, _start_of(text, line or 1))
    return None if found is None else TextEdit(path, *found.span(1), f"--{new}" if _is_script(path, text) else new)


def drop_switch(path: str, text: str, key: str, line: int | None = None) -> Iterator[TextEdit]:
    """Yield the edits that may turn off a switch of a command which takes no value: it goes, or says ``--no-…``."""
    name = re.escape(key.lstrip("-")).replace("_", "[-_]")
    pattern = re.compile(rf"[ \t]+--(?P<name>{name})(?=[ \t]*(?:$|[\\;|&)\n]|[ \t]-))")
    found = pattern.search(text, _start_of(text, line or 1)) if _is_script(path, text) else None
    if found is not None:
        yield TextEdit(path, *found.span(), "")
        yield TextEdit(path, *found.span("name"), f"no{'-' if '-' in found['name'] else '_'}{found['name']}")


def change_option(path: str, text: str, variable: str, option: str, value: Value) -> Iterator[TextEdit]:
    """Yield the edits that give one option of an environment variable another value: ``VARIABLE=option:True,other:1``."""
    pattern = rf"""{variable}['"]?\s*[=:]\s*['"]?(?:[^\s'"]*,)?({option}:[^\s,'";&|)}}]+)"""
    for found in re.finditer(pattern, text) if _is_script(path, text) else ():
        yield TextEdit(path, *found.span(1), f"{option}:{value}")


def describe_edit(text: str, edit: TextEdit) -> str:
    """Say what stands in the file after an edit of one value: ``key: value``, ``--key value``."""
    if edit.path.endswith(".py"):
        before = None if edit.start == edit.end else re.search(r"""[\w"']+\s*[=:]\s*$""", text[: edit.start])
        return ("" if before is None else before[0]) + edit.new.strip(", \r\n")
    if _is_script(edit.path, text):
        if not edit.new:
            return f"without {text[edit.start : edit.end].strip()}"
        whole = edit.start == edit.end or edit.new.startswith("--")  # a switch in the place of another
        before = None if whole else re.search(r"[\w.+@/-]+(?:=|[ \t]+)$", text[: edit.start])
        return (("" if before is None else before[0]) + edit.new).strip()
    after = apply_edits({edit.path: text}, [edit])[edit.path].removeprefix(_MARK)
    known, start = (
        _locate(edit.path, text.removeprefix(_MARK)),
        edit.start - text.startswith(_MARK) + edit.new.startswith(" "),
    )
    found = {key: place for key, place in _locate(edit.path, after).items() if key not in known or place.start == start}
    key = max(found, key=len, default="")
    return f"{key}: {after[found[key].start : found[key].end].strip()}" if key else edit.new.strip()


def _change_argument(path: str, text: str, key: str, value: Value, line: int) -> TextEdit | None:
    """Change the value of an option."""
    found = _find_option(text, key, line)
    if found is None or found["value"].startswith(("-", "$", "`", '"$')):
        return None
    word = found["value"]
    mark = word[0] if word[0] in {"'", '"'} and word[-1] == word[0] else ""
    bare = word.strip("'\"")
    new = "None" if value is None else str(value)
    if isinstance(value, bool) and bare in {"true", "false"}:
        new = new.lower()
    return TextEdit(path, *found.span("value"), f"{mark}{new}{mark}")
