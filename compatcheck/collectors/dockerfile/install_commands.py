"""What the commands of a shell text install: ``pip``, ``uv pip``, ``conda`` and their kin, without running any of it.

Only simple commands are understood, joined by ``&&``, ``;`` and newlines. What stands in a condition or a loop may or may
not run, and a word with a substitution is not known: both are said and not guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.collectors.dockerfile.text import substitute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n", "(", ")")
_OPENING = {"if", "for", "while", "until", "case", "select"}
_TESTS = {"[", "[[", "test"}
_CLOSING = {"fi", "done", "esac"}
_TRANSPARENT = {
    "sudo",
    "time",
    "exec",
    "command",
    "env",
    "nice",
    "then",
    "else",
    "do",
    "{",
    "!",
    "elif",
    "if",
    "while",
    "until",
}
"""Words in front of a command that change nothing about what it installs."""
_WITH_VALUE = frozenset(
    {
        "-r",
        "--requirement",
        "--requirements",
        "-c",
        "--constraint",
        "--constraints",
        "-e",
        "--editable",
        "-i",
        "--index-url",
        "--pypi-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "-t",
        "--target",
        "--prefix",
        "--root",
        "--python",
        "-p",
        "--platform",
        "--python-version",
        "--python-platform",
        "--implementation",
        "--abi",
        "--timeout",
        "--default-timeout",
        "--retries",
        "--trusted-host",
        "--allow-insecure-host",
        "--no-binary",
        "--only-binary",
        "--config-settings",
        "--config-setting",
        "-C",
        "--global-option",
        "--install-option",
        "--build-option",
        "--upgrade-strategy",
        "--src",
        "--progress-bar",
        "--cache-dir",
        "--override",
        "--overrides",
        "--torch-backend",
        "--index",
        "--default-index",
        "--index-strategy",
        "--prerelease",
        "--resolution",
        "--exclude-newer",
        "--link-mode",
        "--extra",
        "--group",
        "--proxy",
        "--log",
        "--use-feature",
        "--use-deprecated",
        "--report",
        "--keyring-provider",
        "--cert",
        "--client-cert",
        "--no-build-isolation-package",
        "--no-build-package",
        "--no-binary-package",
        "--upgrade-package",
        "-P",
        "--reinstall-package",
        "--refresh-package",
        "--build-constraint",
        "--build-constraints",
        "--excludes",
        "--concurrent-builds",
        "--exists-action",
        "-n",
        "--name",
        "--channel",
        "--file",
        "--solver",
        "--repodata-fn",
    }
)
"""Options of pip, uv and conda that take the next word."""
_PACKERS = {"pip": "pip", "pip3": "pip", "conda": "conda", "mamba": "conda", "micromamba": "conda", "uv": "uv"}
_CONDA_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch"}
"""Packages of conda that are a distribution of another name; their own name is the distribution's else."""
_DESCRIPTOR = 2
"""Most digits of a file descriptor in front of a redirection."""
MAX_WORDS = 100_000


class Word(NamedTuple):
    """One word of a command."""

    text: str | None
    """None where a substitution in it is not known."""
    raw: str
    offset: int


class Command(NamedTuple):
    """One simple command."""

    words: tuple[Word, ...]
    certain: bool
    """Whether it runs whatever happens: not in a condition, a loop or behind ``||``."""


class Install(NamedTuple):
    """One command that installs."""

    kind: str
    """``pip``, ``conda``, or ``uninstall``."""
    requirements: tuple[Word, ...]
    """Requirements, URLs and paths as written."""
    files: tuple[Word, ...] = ()
    """Requirement files (``-r``)."""
    indexes: tuple[str, ...] = ()
    dependencies: bool = True
    """Whether what the requirements require is installed too (not ``--no-deps``)."""
    upgrade: bool = False
    certain: bool = True
    backend: str | None = None
    """``--torch-backend``: ``cu128``, ``auto``."""
    is_uv: bool = False
    settings: Mapping[str, str | None] = {}
    """Variables that the command itself is given: ``UV_TORCH_BACKEND=cu126 uv pip install …``."""


def read_commands(text: str, value: Callable[[str], str | None]) -> Iterator[Command]:
    """Split a shell text into simple commands.

    Args:
        text: continued lines joined.
        value: returns what a variable holds, None where that is not known.
    """
    words: list[Word] = []
    blocks = _Blocks()
    fallback = tested = False
    local: dict[str, str | None] = {}

    def look_up(name: str) -> str | None:
        return local[name] if name in local else value(name)

    for operator, word in _tokens(text, look_up):
        if word is not None:
            words.append(word)
            continue
        if words:
            first = words[0].raw
            blocks.follow(first, words)
            certain = blocks.run is True and not fallback and not tested
            if blocks.run is not False:
                for known, raw in _assignments(words):
                    local[known] = substitute(raw, look_up) if certain else None
                yield Command(tuple(words), certain)
            words = []
            tested = operator == "&&" and (tested or first in _TESTS)
        fallback = operator == "||"


class _Blocks:
    """The conditions and loops that are open."""

    def __init__(self) -> None:
        self.open: list[tuple[bool | None, bool | None, bool | None]] = []
        """Whether this branch of each runs, as far as that is known; whether what is around it runs; and whether an earlier
        branch or this one does."""

    @property
    def run(self) -> bool | None:
        """Tell whether what stands here runs, None where that is not known."""
        if not self.open:
            return True
        own, around, _ = self.open[-1]
        return False if own is False or around is False else None if own is None else around

    def follow(self, first: str, words: list[Word]) -> None:
        """Follow a word that opens, turns or closes a block."""
        if first in _OPENING:
            own = _judge(words[1:]) if first == "if" else None
            self.open.append((own, self.run, own))
        elif first in _CLOSING and self.open:
            self.open.pop()
        elif first in {"elif", "else"} and self.open:
            _, around, taken = self.open.pop()
            holds = True if first == "else" else _judge(words[1:])
            own = False if taken else holds if taken is False else None if holds is not False else False
            self.open.append((own, around, True if taken or own else None if None in {taken, own} else False))


def _judge(words: list[Word]) -> bool | None:
    """Judge a test of texts that are known: ``[ "$CUDA" = "true" ]``, ``[ -n "$X" ]``; None for any other command."""
    if not words or words[0].raw not in _TESTS:
        return None
    inner = [word.text for word in words[1:] if word.raw not in {"]", "]]"}]
    match inner:
        case [left, "=" | "==", right] if left is not None and right is not None and not set("*?[") & set(right):
            return left == right
        case [left, "!=", right] if left is not None and right is not None and not set("*?[") & set(right):
            return left != right
        case ["-n" | "-z" as operator, text] if text is not None:
            return bool(text) is (operator == "-n")
    return None


def _assignments(words: list[Word]) -> Iterator[tuple[str, str]]:
    """List the variables that a command of assignments alone, or ``export``, sets."""
    rest = words[1:] if words[0].raw == "export" else words
    pairs = [re.match(r"([A-Za-z_]\w*)=(.*)", word.raw, re.DOTALL) for word in rest]
    if rest and all(pairs):
        for pair in pairs:
            if pair is not None:
                yield pair[1], _strip_quotes(pair[2])


def _tokens(text: str, value: Callable[[str], str | None]) -> Iterator[tuple[str, Word | None]]:
    """Yield operators (with no word) and words; ends with an operator."""
    at, count = 0, 0
    while at < len(text):
        character = text[at]
        if character in " \t":
            at += 1
            continue
        if character == "\\" and text[at + 1 : at + 2] == "\n":
            at += 2
            continue
        if character == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        operator = next((mark for mark in _OPERATORS if text.startswith(mark, at)), None)
        if operator is not None:
            yield operator, None
            at += len(operator)
            continue
        end = _end_of_word(text, at)
        raw = text[at:end]
        count += 1
        if count > MAX_WORDS:
            return
        if not re.match(r"\d*(?:>>?|<)", raw):
            known = _expand(raw, value)
            if known is not None and raw[0] == "$" and raw[-1] not in "'\"":
                yield from (("", Word(part, part, at)) for part in known.split())  # not quoted: several words, or none
            else:
                yield "", Word(known, raw, at)
        elif re.fullmatch(r"\d*(?:>>?|<)&?", raw):  # the target is the next word
            while end < len(text) and text[end] in " \t":
                end += 1
            end = max(_end_of_word(text, end), end)
        at = max(end, at + 1)
    yield ";", None


def _end_of_word(text: str, at: int) -> int:
    """Find the end of a word: quotes, escapes, ``$(…)`` and backquotes hold it together.

    A redirection ends it: ``pip install torch>=2.0`` installs ``torch`` and writes to the file ``=2.0``.
    """
    start = at
    while at < len(text):
        character = text[at]
        ends = character in "<>" and at > start and text[at - 1] not in "<>&"
        if ends and (at - start > _DESCRIPTOR or not text[start:at].isdigit()):
            return at
        if character == "\\":
            if text[at + 1 : at + 2] == "\n":
                return at
            at += 2
        elif character == "'":
            end = text.find("'", at + 1)
            at = len(text) if end < 0 else end + 1
        elif character == '"':
            at = _end_of_quote(text, at + 1)
        elif character == "`":
            end = text.find("`", at + 1)
            at = len(text) if end < 0 else end + 1
        elif text.startswith("$(", at):
            at = _end_of_brackets(text, at + 2)
        elif text.startswith("${", at):
            end = text.find("}", at)
            at = len(text) if end < 0 else end + 1
        elif character in " \t\n;|()" or text.startswith("&", at):
            if character == "&" and text[at - 1 : at] in {">", "<"}:
                at += 1
                continue
            return at
        else:
            at += 1
    return min(at, len(text))


def _end_of_quote(text: str, at: int) -> int:
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return min(at + 1, len(text))


def _end_of_brackets(text: str, at: int) -> int:
    depth = 1
    while at < len(text) and depth:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    return at


def _expand(raw: str, value: Callable[[str], str | None]) -> str | None:
    """Return a word without its quotes and with its variables; None where a substitution is not known."""
    if "$(" in raw or "`" in raw or "{" in raw.replace("${", ""):
        return None
    pieces: list[str] = []
    for part in re.findall(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^'\"\\]+|.", raw, re.DOTALL):
        if part[0] == "'" and len(part) > 1:
            pieces.append(part[1:-1])
            continue
        inner = part[1:-1] if part[0] == '"' and len(part) > 1 else part
        if inner.startswith("\\"):
            pieces.append(inner[1:])
            continue
        known = substitute(inner, value)
        if known is None:
            return None
        pieces.append(re.sub(r"\\(.)", r"\1", known) if part[0] == '"' else known)
    return "".join(pieces)


def _strip_quotes(raw: str) -> str:
    return raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "'\"" else raw


def read_install(command: Command) -> Install | None:
    """Read a command that installs packages, None for any other."""
    words = list(command.words)
    settings: dict[str, str | None] = {}
    while words and (
        words[0].raw in _TRANSPARENT
        or re.match(r"[A-Za-z_]\w*=", words[0].raw)
        or re.match(r"--(?:mount|network|security)=", words[0].raw)
    ):
        first = words.pop(0)
        if first.text is not None and "=" in first.text:
            settings[first.text.partition("=")[0]] = first.text.partition("=")[2]
        while first.raw in {"sudo", "env"} and words and words[0].raw.startswith("-"):
            words.pop(0)
    if not words:
        return None
    name = (words[0].text or "").rpartition("/")[2]
    rest = words[1:]
    if re.fullmatch(r"python[\d.]*", name) and [word.raw for word in rest[:1]] == ["-m"] and len(rest) > 1:
        name, rest = rest[1].raw, rest[2:]
    elif re.fullmatch(r"pip\d(?:\.\d+)?", name):
        name = "pip"
    kind = _PACKERS.get(name)
    if kind is None:
        return None
    verb, rest = _verb(rest)
    is_uv = kind == "uv"
    if is_uv:
        if verb != "pip":
            return None
        verb, rest = _verb(rest)
        kind = "pip"
    if kind == "conda" and verb == "run":
        inner = _after_run(rest)
        return read_install(Command(tuple(inner), command.certain)) if inner else None
    if verb in {"uninstall", "remove"}:
        return _read_arguments("uninstall", rest, command)
    if verb != "install" and not (kind == "conda" and verb in {"create", "update"}):
        return None
    return _read_arguments(kind, rest, command)._replace(is_uv=is_uv, settings=settings)


def _verb(words: list[Word]) -> tuple[str, list[Word]]:
    """Return the subcommand and what stands behind it; options in front of it are passed over."""
    at = 0
    while at < len(words) and words[at].raw.startswith("-"):
        at += 2 if words[at].raw in _WITH_VALUE else 1
    return (words[at].raw, words[at + 1 :]) if at < len(words) else ("", [])


def _after_run(words: list[Word]) -> list[Word]:
    """Return the command behind ``conda run -n NAME``."""
    at = 0
    while at < len(words) and words[at].raw.startswith("-"):
        at += 2 if words[at].raw in {"-n", "--name", "-p", "--prefix"} else 1
    return words[at:]


def _read_arguments(kind: str, words: list[Word], command: Command) -> Install:
    requirements: list[Word] = []
    files: list[Word] = []
    indexes: list[str] = []
    flags: set[str] = set()
    backend: str | None = None
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.raw.startswith("-") or word.raw == "-":
            requirements.append(word)
            continue
        option, equals, attached = word.raw.partition("=")
        if not word.raw.startswith("--") and len(word.raw) > 2 and word.raw[:2] in {"-r", "-c", "-e", "-f", "-i"}:
            option, equals, attached = word.raw[:2], "=", word.raw[2:]
        argument: Word | None = None
        if equals:
            long = option.startswith("--")
            known = None if word.text is None else word.text.partition("=")[2] if long else word.text[2:]
            argument = Word(known, attached, word.offset)
        elif option in _WITH_VALUE and not (kind == "conda" and option == "-f"):
            argument = words[at] if at < len(words) else None
            at += 1
        else:
            flags.add(option)
        if argument is None:
            continue
        if option in {"-r", "--requirement", "--requirements"} or (kind == "conda" and option == "--file"):
            files.append(argument)
        elif option in {"-e", "--editable"}:
            requirements.append(argument)
        elif option in {"-i", "--index-url", "--extra-index-url", "--find-links", "-f", "--index", "--default-index"}:
            indexes.append(argument.text if argument.text is not None else argument.raw)
        elif option == "--torch-backend":
            backend = argument.text
    if kind == "conda":
        requirements = [word._replace(text=_as_requirement(word.text)) for word in requirements]
    short = "".join(flag[1:] for flag in flags if re.fullmatch(r"-[A-Za-z]+", flag))
    return Install(
        kind,
        tuple(requirements),
        tuple(files),
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
