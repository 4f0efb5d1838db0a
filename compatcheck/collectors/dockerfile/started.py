"""What an image of a Dockerfile starts by itself: its entry point with its command, as a shell would get them."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING

from compatcheck.collectors.dockerfile.text import MAX_VARIABLES, read_assignments, read_instructions, unquote
from compatcheck.core.textfile import read_utf8

if TYPE_CHECKING:
    from compatcheck.core.files import Files
    from compatcheck.core.selection import Selection

_LIMIT_BYTES = 4 << 20


def find_started(path: str, files: Files, selection: Selection) -> tuple[int, str] | None:
    """Return what the stage that is built starts, with its line; None where it states nothing.

    Raises:
        InputError: it cannot be read.
    """
    stages: list[dict[str, tuple[int, str]]] = []
    names: list[str] = []
    for instruction in read_instructions(read_utf8(path, files, limit=_LIMIT_BYTES)):
        name, content = instruction.name, instruction.text.content.strip()
        if name == "ONBUILD":  # of an image that is made from this one
            name, _, content = content.partition(" ")
        if name == "FROM":
            words = [word for word in content.split() if not word.startswith("--")]
            base = words[0].lower() if words else ""
            before = stages[len(names) - 1 - names[::-1].index(base)] if base in names else {}
            stages.append(dict(before))
            names.append(words[2].lower() if len(words) > 2 else str(len(names)))
        elif not stages:
            continue
        elif name == "ENV" and len(stages[-1]) < MAX_VARIABLES:
            for name, value in read_assignments(content):
                stages[-1][f"ENV {name}"] = instruction.line, value
        elif name == "WORKDIR":  # seen from the one before it
            _, entered = stages[-1].get(name, (0, ""))
            stages[-1][name] = instruction.line, f'{entered}cd "{unquote(content)}"; '
        elif name == "COPY" and len(instruction.documents) == 1:
            stages[-1][f"FILE {content.split()[-1]}"] = instruction.line + 1, instruction.documents[0].content
        elif name in {"CMD", "ENTRYPOINT"}:
            stages[-1][name] = instruction.line, content
            if name == "ENTRYPOINT":
                stages[-1].pop("CMD", None)  # of a base image, which docker forgets with it
    if not stages:
        return None
    wanted = (selection.stage or "").lower()
    stage = stages[names.index(wanted)] if wanted in names else stages[-1]
    parts = [stage[name] for name in ("ENTRYPOINT", "CMD") if name in stage]
    if not parts:
        return None
    exported = "".join(
        f"export {key[4:]}={value if value[:1] in chr(34) + chr(39) else shlex.quote(value)}; "
        for key, (_, value) in stage.items()
        if re.fullmatch(r"ENV [A-Za-z_]\w*", key, re.ASCII)
    )
    text = _join([text for _, text in parts])
    shell, _, file = text.rpartition(" ")
    copied = stage.get(f"FILE {file}") if not shell or shell in _SHELLS else None
    line, started = (parts[0][0], text) if copied is None else copied
    return line, exported + stage.get("WORKDIR", (0, ""))[1] + started


_SHELLS = {"sh", "bash", "dash", "zsh"}


def _join(parts: list[str]) -> str:
    words: list[str] = []
    for part in parts:
        listed = _read_list(part)
        if listed is None:  # the shell form: of an entry point it takes no words behind it
            return part if not words else " ".join([*words, part])
        words += listed
    if os.path.basename(words[0]) in _SHELLS if words else False:
        place = next((n for n, word in enumerate(words[1:], 1) if re.fullmatch(r"-\w*c", word)), None)
        if place is not None and place + 1 < len(words):
            return words[place + 1]
    return " ".join(map(shlex.quote, words))


def _read_list(text: str) -> list[str] | None:
    if not text.startswith("["):
        return None
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None
