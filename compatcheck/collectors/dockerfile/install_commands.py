"""What a command installs: ``pip``, ``uv pip``, ``conda`` and their kin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_data
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.command import Command, Word

_TRANSPARENT = frozenset({"sudo", "time", "exec", "command", "env", "nice"})
"""Programs in front of a command that change nothing about what it installs."""
_WITH_VALUE = frozenset(read_data(__file__, "install_commands")["with_value"])
"""Options of pip, uv and conda that take the next word."""
_SETTINGS = ("PIP_", "UV_")
"""How the variables begin that pip and uv read their options from."""
_PACKERS = {"pip": "pip", "pip3": "pip", "conda": "conda", "mamba": "conda", "micromamba": "conda"}
_ADDERS = {"uv": "pip", "poetry": "pip", "pdm": "pip", "pixi": "conda"}
"""Programs whose ``add`` installs into the project of the working directory what it writes into its manifest."""
_STARTS = re.compile(rf"(?:.*/)?(?:python[\d.]*|pip[\d.]*|{'|'.join({**_PACKERS, **_ADDERS})})")
_CONDA_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch"}
"""Packages of conda that are a distribution of another name; their own name is the distribution's else."""


class Install(NamedTuple):
    """One command that installs."""

    kind: str
    """``pip``, ``conda``, or ``uninstall``."""
    requirements: tuple[Word, ...]
    """Requirements, URLs and paths as written."""
    files: tuple[Word, ...] = ()
    """Requirement files (``-r``)."""
    constraints: tuple[Word, ...] = ()
    """Files of constraints (``-c``, ``PIP_CONSTRAINT``)."""
    indexes: tuple[str, ...] = ()
    dependencies: bool = True
    """Whether what the requirements require is installed too (not ``--no-deps``)."""
    upgrade: bool = False
    certain: bool = True
    backend: str | None = None
    """``--torch-backend``: ``cu128``, ``auto``."""
    is_uv: bool = False
    settings: Mapping[str, str | None] = {}
    """Variables that the command is given: ``UV_TORCH_BACKEND=cu126 uv pip install …``."""


def read_install(command: Command) -> Install | None:
    """Read a command that installs packages, None for any other."""
    words = list(command.words)
    settings = {name: word.text for name, word in command.variables.items() if name.startswith(_SETTINGS)}
    while words and (words[0].text in _TRANSPARENT or re.match(r"[A-Za-z_]\w*=", _spell(words[0]))):
        first = words.pop(0)
        if "=" in _spell(first):
            name, _, value = _spell(first).partition("=")
            if name.startswith(_SETTINGS):
                settings[name] = value if first.text is not None else None
        while first.text in {"sudo", "env"} and words and _spell(words[0]).startswith("-"):
            words.pop(0)
    if not words:
        return None
    name = (words[0].text or "").rpartition("/")[2]
    rest = words[1:]
    if re.fullmatch(r"python[\d.]*", name) and [word.text for word in rest[:1]] == ["-m"] and len(rest) > 1:
        name, rest = _spell(rest[1]), rest[2:]
    elif re.fullmatch(r"pip\d(?:\.\d+)?", name):
        name = "pip"
    kind = _PACKERS.get(name) or _ADDERS.get(name)
    if kind is None:
        return _read_other(name, words, command)
    verb, rest = _verb(rest)
    if verb == "add" and name in _ADDERS:
        kind = "pip" if any(word.text == "--pypi" for word in rest) else _ADDERS[name]
        return _read_arguments(kind, rest, command)._replace(is_uv=name == "uv", settings=settings)
    is_uv = name == "uv"
    if is_uv:
        if verb != "pip":
            return None
        verb, rest = _verb(rest)
        kind = "pip"
    if kind == "conda" and verb == "run":
        inner = _after_run(rest)
        return read_install(command._replace(words=tuple(inner))) if inner else None
    if verb in {"uninstall", "remove"}:
        return _read_arguments("uninstall", rest, command)
    installs = verb == "install" and (is_uv or name not in _ADDERS)  # `poetry install` installs the project
    if not installs and not (kind == "conda" and verb in {"create", "update"}):
        return None
    return _read_arguments(kind, rest, command)._replace(is_uv=is_uv, settings=settings)


def _read_other(name: str, words: list[Word], command: Command) -> Install | None:
    """Read ``easy_install``, or the install behind ``xargs``, whose input stands among its words."""
    if name == "easy_install":
        return _read_arguments("pip", words[1:], command)
    if name != "xargs":
        return None
    starts = (n for n, word in enumerate(words) if n and _STARTS.fullmatch(word.text or ""))
    return next((read for n in starts if (read := read_install(command._replace(words=tuple(words[n:]))))), None)


def _spell(word: Word) -> str:
    """Return what a word holds, or how it is written where that is not known."""
    return word.written if word.text is None else word.text


def _is_pattern(word: Word) -> bool:
    """Tell whether a word is only a pattern of file names, ``dist/*.whl``, which stands for itself here."""
    return word.text is None and word.unresolved == (word.written,) and "$" not in word.written


def _verb(words: list[Word]) -> tuple[str, list[Word]]:
    """Return the subcommand and what stands behind it; options in front of it are passed over."""
    at = 0
    while at < len(words) and _spell(words[at]).startswith("-"):
        at += 2 if words[at].text in _WITH_VALUE else 1
    return (_spell(words[at]), words[at + 1 :]) if at < len(words) else ("", [])


def _after_run(words: list[Word]) -> list[Word]:
    """Return the command behind ``conda run -n NAME``."""
    at = 0
    while at < len(words) and _spell(words[at]).startswith("-"):
        at += 2 if words[at].text in {"-n", "--name", "-p", "--prefix"} else 1
    return words[at:]


def _read_arguments(kind: str, words: list[Word], command: Command) -> Install:
    requirements: list[Word] = []
    files: list[Word] = []
    constraints: list[Word] = []
    indexes: list[str] = []
    flags: set[str] = set()
    backend: str | None = None
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        written = _spell(word)
        if not written.startswith("-") or written == "-":
            requirements.append(word._replace(text=written) if _is_pattern(word) else word)
            continue
        option, equals, attached = written.partition("=")
        if not written.startswith("--") and len(written) > 2 and written[:2] in {"-r", "-c", "-e", "-f", "-i"}:
            option, equals, attached = written[:2], "=", written[2:]
        argument: Word | None = None
        if equals:
            argument = word._replace(text=attached if word.text is not None else None, written=attached)
        elif option in _WITH_VALUE and not (kind == "conda" and option == "-f"):
            argument = words[at] if at < len(words) else None
            at += 1
        else:
            flags.add(option)
        if argument is None:
            continue
        if option in {"-r", "--requirement", "--requirements"} or (kind == "conda" and option == "--file"):
            files.append(argument)
        elif option in {"-c", "--constraint", "--constraints"} and kind != "conda":
            constraints.append(argument)
        elif option in {"-e", "--editable"}:
            requirements.append(argument)
        elif option in {"-i", "--index-url", "--extra-index-url", "--find-links", "-f", "--index", "--default-index"}:
            indexes.append(_spell(argument))
        elif option == "--torch-backend":
            backend = argument.text
    if kind == "conda":
        requirements = [word._replace(text=_as_requirement(word.text)) for word in requirements]
    short = "".join(flag[1:] for flag in flags if re.fullmatch(r"-[A-Za-z]+", flag))
    return Install(
        kind,
        tuple(requirements),
        tuple(files),
        tuple(constraints),
        tuple(indexes),
        dependencies=not flags & {"--no-deps", "--no-dependencies"},
        upgrade="U" in short or "--upgrade" in flags or "--force-reinstall" in flags,
        certain=command.certain,
        backend=backend,
    )


def _as_requirement(text: str | None) -> str | None:
    """Write one of conda's matches as pip would: ``pytorch=2.5.1=py3.11_cuda12.4`` is ``torch==2.5.1``."""
    if text is None:
        return None
    text = text.rpartition("::")[2]
    match = re.fullmatch(r"([\w.-]+?)\s*(?:(==?)\s*([\w.*]+)(?:=\S*)?|([<>!~].*))?", text)
    if match is None:
        return text
    name = _CONDA_NAMES.get(match[1].lower(), match[1])
    if match[4]:
        return name + match[4]
    if not match[3]:
        return name
    exact = match[2] == "==" or match[3].count(".") >= 2
    return f"{name}=={match[3]}" if exact or match[3].endswith("*") else f"{name}=={match[3]}.*"
