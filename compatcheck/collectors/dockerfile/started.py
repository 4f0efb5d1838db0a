"""What an image of a Dockerfile starts: its entry point with its command, and what its build runs, as a shell would get them."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING

from compatcheck.collectors.dockerfile.read import MAX_STAGES
from compatcheck.collectors.dockerfile.text import (
    HEREDOC,
    MAX_VARIABLES,
    Instruction,
    Text,
    read_assignments,
    read_instructions,
    reads_documents,
    split_options,
    unquote,
)
from compatcheck.core.textfile import read_utf8
from compatcheck.shell.wrappers import serves_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from compatcheck.core.files import Files
    from compatcheck.core.selection import Selection

_LIMIT_BYTES = 4 << 20


def find_started(path: str, files: Files, selection: Selection) -> Iterator[tuple[int, str]]:
    """Yield what the stage that is built runs on the way and starts in the end, each with its line.

    A command of the build that names the file which is started may have written it: it stands in front of that.

    Raises:
        InputError: it cannot be read.
    """
    stages: list[tuple[int | None, list[Instruction]]] = []
    names: list[str] = []
    images: list[str] = []
    for instruction in read_instructions(read_utf8(path, files, limit=_LIMIT_BYTES)):
        content = instruction.text.content.strip()
        if instruction.name == "FROM":
            words = [word for word in content.split() if not word.startswith("--")]
            base = words[0].lower() if words else ""
            images.append(base)
            stages.append((len(names) - 1 - names[::-1].index(base) if base in names else None, []))
            names.append(words[2].lower() if len(words) > 2 else str(len(names)))
        elif stages:
            stages[-1][1].append(instruction)
        if len(stages) > MAX_STAGES:
            return  # whoever reads its packages says so
    wanted = (selection.stage or "").lower()
    at: int | None = names.index(wanted) if wanted in names else len(stages) - 1 if stages else None
    chain: list[list[Instruction]] = []
    image = ""
    while at is not None:
        image = images[at]
        at, own = stages[at]
        chain.append(own)
    stage = _follow(one for own in reversed(chain) for one in own)
    parts = [stage[name] for name in ("ENTRYPOINT", "CMD") if name in stage]
    text = _join([text for _, text in parts]) if parts else ""
    if text and "ENTRYPOINT" not in stage and serves_itself(image, text.split()[0]):
        text = f"{image} {text}"
    shell, _, file = text.rpartition(" ")
    copied = stage.get(f"FILE {file}") if not shell or shell in _SHELLS else None
    line, started = copied or (parts[0][0] if parts else 1, text)
    written, enter = "", _enter(stage)
    for key, (begin, run) in stage.items():
        if not key.startswith("RUN "):
            continue
        if copied is None and "/" in file and os.path.basename(file) in run and ">" in run:
            line, written = line if written else begin, f"{written}{run}\n"
        else:
            yield begin, enter(run) + run
    if parts:
        yield line, enter(written + started) + written + started


def _follow(instructions: Iterable[Instruction]) -> Mapping[str, tuple[int, str]]:
    """Return what a stage has in the end, each with its line: variables, files, commands of its build and what it starts."""
    stage: dict[str, tuple[int, str]] = {}
    for instruction in instructions:
        name, content, line = instruction.name, instruction.text.content.strip(), instruction.line
        if name == "ONBUILD":  # of an image that is made from this one
            name, _, content = content.partition(" ")
            instruction = instruction._replace(text=Text(content, instruction.text.starts))  # noqa: PLW2901 (the same)
        if name == "ENV" and len(stage) < MAX_VARIABLES:
            for variable, value in read_assignments(content):
                stage[f"ENV {variable}"] = line, value
        elif name == "WORKDIR":  # seen from the one before it
            _, entered = stage.get(name, (0, ""))
            stage[name] = line, f'{entered}cd "{unquote(content)}"; '
        elif name == "RUN":
            stage[f"RUN {line}"] = _as_script(instruction)
        elif name == "COPY" and len(instruction.documents) == 1:
            stage[f"FILE {content.split()[-1]}"] = line + 1, instruction.documents[0].content
        elif name in {"CMD", "ENTRYPOINT"}:
            stage[name] = line, content
            if name == "ENTRYPOINT":
                stage.pop("CMD", None)  # of a base image, which docker forgets with it
    return stage


def _enter(stage: Mapping[str, tuple[int, str]]) -> Callable[[str], str]:
    """Return what writes the variables of a stage that a text names, and its directory, as shell text."""
    variables = {key[4:]: value for key, (_, value) in stage.items() if key.startswith("ENV ")}
    order = {name: place for place, name in enumerate(variables)}

    def write(text: str) -> str:
        named = sorted(order.keys() & _NAME.findall(text), key=order.__getitem__)
        values = ((name, variables[name]) for name in named)
        exported = "".join(
            f"export {name}={value if value[:1] in _QUOTES else shlex.quote(value)}; " for name, value in values
        )
        return exported + stage.get("WORKDIR", (0, ""))[1]

    return write


_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTES = ("'", '"')


def _as_script(instruction: Instruction) -> tuple[int, str]:
    """Return the commands of ``RUN`` with the line they begin in; a here-document that another program reads is its input."""
    words, _ = reads_documents(instruction)
    content = instruction.text.content[split_options(instruction.text.content) :].strip()
    texts = [document.content for document in instruction.documents]
    if not words:
        return instruction.line + 1, "\n".join(texts)
    ends = [marker[2] for marker in HEREDOC.finditer(content)]
    return instruction.line, "\n".join(
        [_join([content]), *(f"{text}\n{end}" for text, end in zip(texts, ends, strict=False))]
    )


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
