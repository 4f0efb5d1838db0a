"""Blocks of code in a pasted text, as files of their own: an issue holds its configuration and its commands between fences.

Where no fence holds a command, or none a configuration of a kind, the lines of a text are asked: people paste what they typed.
Each block keeps the numbers of its lines: as many line breaks stand in front of it as lines before it in the text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from contextlib import suppress
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from compatcheck.collectors.reports.find import looks_like_list
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pasted_text import LAUNCHERS, looks_like_report

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(
    r"(?P<before>[ \t]{0,16}(?:>[ \t]?){0,8}[ \t]{0,8})(?:[-*][ \t]+)?(?P<fence>`{3,12}|~{3,12})[ \t]*"
    r"(?P<language>[\w+.-]{0,20})[^`]{0,80}"
)
_SUFFIXES = {
    "bash": ".sh", "console": ".sh", "hjson": ".hjson", "json": ".json", "json5": ".hjson", "jsonc": ".json", "py": ".py",
    "python": ".py", "python3": ".py", "sh": ".sh", "shell": ".sh", "shell-session": ".sh", "terminal": ".sh",
    "toml": ".toml", "yaml": ".yaml", "yml": ".yaml", "zsh": ".sh",
}  # fmt: skip
_PLAIN = {"", "text", "txt", "plaintext", "plain"}
_COMMAND = re.compile(
    r"[ \t]*(?:\$[ \t]+)?(?:#!|(?:export|set)[ \t]|(?:[A-Z][A-Z0-9_]+=\S*[ \t]+)*"
    rf"(?:{LAUNCHERS}|nohup|srun|bash)[ \t])"
)
_LOGGED = re.compile(
    r"^.{0,80}?(?:Traceback \(most recent|(?<!\w)(?:[\w.]*Error|ERROR|INFO|WARNING)(?!\w))", re.MULTILINE
)
"""A line of a log, which people put between fences of a shell, too."""
_KEY = re.compile(r"[ \t]*(?:-[ \t]+)?[\w.\"'/-]+[ \t]*:(?:[ \t]|$)|[ \t]*(?:#|-[ \t]|$)")
_PROMPT = re.compile(r"[ \t]{0,8}(?:\$|\+{1,4})[ \t]+")
"""Of a person, or the sign of ``set -x``."""
_LAUNCH = re.compile(
    r"(?:[ \t>]{0,16}(?:\$|\++)[ \t]+|[ \t]*)(?:[A-Za-z_]\w*=\S*[ \t]+){0,20}"
    r"(?:(?:nohup|exec|time|srun|mpirun)[ \t]+(?:-\S+[ \t]+){0,20})?(?:[\w.~-]*/)*"
    rf"(?:{LAUNCHERS})[ \t]+[^\n]{{0,2000}}?(?:(?<=\s)--?[A-Za-z]|\.(?:py|sh|ya?ml)\b|\\$)"
)
"""A line that starts a program with an option, a script or more to come, behind a prompt or the sign of ``set -x``."""
_LAUNCHES = re.compile(rf"\n{_LAUNCH.pattern}", re.MULTILINE)
_SHELL = re.compile(
    r"[ \t]*(?:\$[ \t]+)?(?:#|[A-Za-z_]\w*="
    r"|(?:export|set|cd|source|unset|ulimit|echo|read|module|conda|mkdir|if|for|while|case)[ \t]"
    r"|(?:then|else|fi|do|done|esac)\b)"
)
"""A line of a script that people paste with the command."""
_HEREDOC = re.compile(r"<<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w{1,40})(?P=quote)[ \t]*$")
"""What opens lines of which the shell reads none, up to the word."""
_OPENS_HEREDOC = re.compile(r"\n[^\n]*?<<-?[ \t]*['\"]?\w")
_STATED = re.compile(r"[a-z][a-z0-9_]*:(?:[ \t]|$)")
"""A line of a configuration that stands in a text as it is, without a fence."""
_MAY_STATE = re.compile(r"\n[a-z][a-z0-9_]*:")
_GLUED = re.compile(r"([a-z][a-z0-9]*_[a-z0-9_]*):(?![a-z]{2,9}://)(?=[^\s/:]|/[^/])")
"""A key that its value stands close to, as where a text lost a blank; no address."""
_GOES_ON = re.compile(r"[ \t]*(?:$|#|-[ \t])|[ \t]{2,}[\w\"'-]")
"""A line between two of them: empty, a comment or heading, an item, a nested key."""
_IMPORT = re.compile(r"(?:from[ \t]+[\w.]+[ \t]+import[ \t]|import[ \t]+[\w., \t]+$)")
_MAY_IMPORT = re.compile(r"\n(?:from|import)[ \t]")
_CODE = re.compile(
    "|".join(
        (
            r"$|[ \t]+(?![-*][ \t])\S|[)\]}@#\"']",  # empty, within something, or its end
            _IMPORT.pattern,
            r"[A-Za-z_][\w.]*(?:\[[^\]]{0,200}\])?(?:\(|[ \t]*[-+*/|&]?=)|[\w., ]{1,200}=[ \t]",  # a call, an assignment
            r"(?:async[ \t]+)?(?:def|class|if|elif|for|while|with|except)\b[^\n]*[:(,\\]$|(?:else|except|finally|try):",
            r"(?:assert|del|pass|raise|return)\b",
        )
    )
)
"""Lines of Python, at the margin or within."""
_OPENS = re.compile(r"^\{", re.MULTILINE)
"""Begins an object of JSON."""
_DECODER = json.JSONDecoder()
_LEAST = 4
"""Such lines of a configuration; fewer are a list of anything."""
_MOST = 32
"""Blocks of one text at most."""


class Block(NamedTuple):
    """One block."""

    path: str
    """The text's own path, the line where the block begins, and a suffix by what it holds."""
    content: bytes


def find_blocks(text: str, path: str) -> tuple[Block, ...]:
    """Find the blocks of a text that may be configurations or commands; one that is not closed may be cut off and is none."""
    found: list[Block] = []
    text = text.replace("\r\r\n", "\n").replace("\r\n", "\n")
    lines = text.split("\n")
    fenced = tuple(_split(lines)) if "```" in text or "~~~" in text else ()
    for line, language, inside in fenced:
        if len(found) == _MOST:
            break
        body = "\n".join(inside) + "\n"
        suffix = _SUFFIXES.get(language.lower()) or (_tell(body) if language.lower() in _PLAIN else None)
        if suffix is None or not body.strip():
            continue
        if suffix == ".sh":
            if _LOGGED.search(body) and not any(map(_COMMAND.match, inside)):
                continue
            body = _without_prompts(inside)
        found.append(_block(path, line, body, suffix))
    if not any(block.path.endswith(".sh") for block in found):
        commands = islice(_find_commands(text, lines), _MOST)
        found += [_block(path, line, _without_prompts(typed), ".sh") for line, typed in commands]
    for line, _, inside in fenced:  # only those of the text itself are left, with their numbers
        lines[line : line + len(inside)] = [""] * len(inside)
    outside = "\n".join(lines) if fenced else text
    if not any(block.path.endswith(".py") for block in found):
        codes = islice(_find_code(outside, lines), _MOST)
        found += [_block(path, line, "\n".join(code) + "\n", ".py") for line, code in codes]
    if not any(block.path.endswith((".yaml", ".hjson")) for block in found):
        statements = islice(_find_statements(outside, lines), _MOST)
        found += [_block(path, line, "\n".join(said) + "\n", ".yaml") for line, said in statements]
    if not any(block.path.endswith((".json", ".hjson")) for block in found):
        found += [_block(path, line, body, ".json") for line, body in _find_objects(outside)]
    return tuple(found[:_MOST])


def _block(path: str, line: int, body: str, suffix: str) -> Block:
    return Block(f"{path} (block at line {line + 1}){suffix}", ("\n" * line + body).encode("utf-8", "replace"))


def _find_lines(text: str, lines: list[str], pattern: re.Pattern[str]) -> Iterator[int]:
    """Yield the indices of lines that a pattern, which begins with the line break before them, tells; a log has few."""
    begins: list[int] = []
    for match in pattern.finditer("\n" + text):
        begins = begins or list(accumulate((len(line) + 1 for line in lines), initial=0))
        yield bisect_left(begins, match.start())


def _find_commands(text: str, lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of every command in a text with the lines of shell around it, and how many lines are before."""
    last_of = _find_here_documents(text, lines)
    first_of = {last: first for first, last in last_of.items()}
    hidden = {number for first, last in last_of.items() for number in range(first + 1, last + 1)}
    end = 0
    for hit in _find_lines(text, lines, _LAUNCHES):
        if hit < end or hit in hidden:
            continue
        begin = hit
        while begin > end and (begin - 1 in first_of or _is_shell(lines[begin - 1])):
            begin = first_of.get(begin - 1, begin - 1)
        end, goes_on = hit, False
        while end < len(lines):
            line = lines[end]
            starts = not goes_on and _LAUNCH.match(line) is not None
            if not (starts or goes_on or _is_shell(line)):
                break
            goes_on = (starts or goes_on) and line.rstrip().endswith("\\")
            end = last_of.get(end, end) + 1
        while not lines[begin].strip():
            begin += 1
        yield begin, lines[begin:end]


def _is_shell(line: str) -> bool:
    """Tell whether a line may stand between commands of a script: an empty one may."""
    return not line.strip() or _SHELL.match(line) is not None


def _find_here_documents(text: str, lines: list[str]) -> dict[int, int]:
    """Find the lines that the shell reads none of: the last one, by the one that opens them."""
    found: dict[int, int] = {}
    end = 0
    for first in _find_lines(text, lines, _OPENS_HEREDOC):
        opens = _HEREDOC.search(lines[first]) if first >= end and _SHELL.match(lines[first]) is not None else None
        if opens is not None:
            numbers = range(first + 1, len(lines))
            end = next((number for number in numbers if lines[number].strip() == opens["end"]), len(lines) - 1) + 1
            found[first] = end - 1
    return found


def _find_statements(text: str, lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of every configuration that stands in a text outside of fences, and how many lines are before."""
    end = 0
    for begin in _find_lines(text, lines, _MAY_STATE):
        if begin < end:
            continue
        said: list[str] = []
        for raw in islice(lines, begin, None):
            line = _GLUED.sub(r"\1: ", raw, count=1) if _GLUED.match(raw) else raw
            if _STATED.match(line) is None and not (said and _GOES_ON.match(line) is not None):
                break
            said.append(line)
        end = begin + len(said)
        keys = [one.partition(":")[0] for one in said if _STATED.match(one) is not None]
        if len(keys) >= _LEAST and any("_" in key for key in keys):
            yield begin, said


def _find_code(text: str, lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of Python, from an import on, that stand in a text outside of fences, and how many lines are before."""
    end = 0
    for begin in _find_lines(text, lines, _MAY_IMPORT):
        if begin >= end and _IMPORT.match(lines[begin]) is not None:
            end = begin + 1
            while end < len(lines) and (_IMPORT.match(lines[end]) or _CODE.match(lines[end])) is not None:
                end += 1
            yield begin, lines[begin:end]


def _find_objects(text: str) -> Iterator[tuple[int, str]]:
    """Yield every JSON object of several lines that stands in a text outside of fences, and how many lines are before."""
    end = 0
    for begin in islice(_OPENS.finditer(text), _MOST):
        if begin.start() < end:
            continue
        with suppress(ValueError, RecursionError):
            _, end = _DECODER.raw_decode(text, begin.start())
            body = text[begin.start() : end]
            if "\n" in body:
                yield text.count("\n", 0, begin.start()), body + "\n"


def _split(text: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number of the fence's line, the language behind it and the lines of every closed block."""
    opened: re.Match[str] | None = None
    begin, lines = 0, list[str]()
    for number, raw in enumerate(text, start=1):
        fence = _FENCE.fullmatch(raw) if "```" in raw or "~~~" in raw else None
        if opened is None:
            if fence is not None:
                opened, begin, lines = fence, number, []
        elif fence is not None and fence["fence"].startswith(opened["fence"]) and not fence["language"]:
            yield begin, opened["language"], lines
            opened = None
        else:
            lines.append(_without_margin(raw, opened["before"]))


def _without_margin(line: str, before: str) -> str:
    """Remove from a line what stands in front of the fence: quotation marks and indentation."""
    if ">" in before:
        line = re.sub(rf"^[ \t]*(?:>[ \t]?){{0,{before.count('>')}}}", "", line)
        before = before.rpartition(">")[2].removeprefix(" ")
    margin = len(before.expandtabs())
    return line[min(margin, len(line) - len(line.lstrip())) :] if margin else line


def _tell(body: str) -> str | None:
    """Tell by its content what a block without a language is."""
    lines = [line for line in body.splitlines() if line.strip()]
    if not lines or "Traceback (most recent call last)" in body or _is_report(body):
        return None
    if lines[0].lstrip().startswith("{") and lines[-1].rstrip().endswith("}"):
        return ".json"
    if any(_COMMAND.match(line) for line in lines[:3]) or _is_script(lines):
        return ".sh"
    if any(_IMPORT.match(line) for line in lines):
        return ".py" if sum(_CODE.match(line) is not None for line in lines) >= _MOSTLY * len(lines) else None
    keys = sum(_KEY.match(line) is not None for line in lines)
    return ".yaml" if keys >= _MOSTLY * len(lines) else None


def _is_script(lines: list[str]) -> bool:
    """Tell whether a command stands behind assignments and other lines of shell alone."""
    begin = next((number for number, line in enumerate(lines) if _SHELL.match(line) is None), len(lines))
    return begin < len(lines) and _COMMAND.match(lines[begin]) is not None


_MOSTLY = 0.9


def _is_report(body: str) -> bool:
    content = body.encode("utf-8", "replace")
    return looks_like_report(content) or looks_like_list(content)


def _without_prompts(lines: list[str]) -> str:
    """Return the commands of a terminal's session: lines behind a prompt with what continues them, or all where there is none."""
    if not any(_PROMPT.match(line) for line in lines):
        return "\n".join(lines) + "\n"
    kept, goes_on = [], False
    for line in lines:
        prompt = _PROMPT.match(line)
        kept.append(line[prompt.end() :] if prompt is not None else line if goes_on else "")
        goes_on = (prompt is not None or goes_on) and line.rstrip().endswith("\\")
    return "\n".join(kept) + "\n"
