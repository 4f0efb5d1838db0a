"""Commands of a shell that stand in files of other programs: recipes of make and just, jobs of Kubernetes, SkyPilot, compose.

Each is a text of its own with the line it begins in, as a shell would get it. What make or just would put into it is put in
where the file states it, and left open where it does not.
"""

from __future__ import annotations

import os
import re
import shlex

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Source
from compatcheck.core.yaml import YamlList, YamlMap, parse_yaml
from compatcheck.frameworks.recipe_files import JUSTFILE, MAKEFILE
from compatcheck.shell.wrappers import serves_itself

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

MOST_PIECES = 200
"""Commands of one file that are looked at."""
_MOST_CHARACTERS = 16_384
"""Of one command, once variables stand in it."""
_MOST_IN_ALL = 1 << 17
"""Characters of all commands of one file."""
_MOST_GROWTH = 1 << 21
"""Characters that variables and aliases put into the commands of one file."""
_LEVELS = 10

_TREES = (".yaml", ".yml", ".json", "mlproject")
"""Ends of the names of files of keys and values in which commands stand; JSON is YAML."""


class Piece(NamedTuple):
    """One command, or several that one shell runs."""

    line: int
    """Line of the file that it begins in, 1 for the first."""
    text: str


class _Found(NamedTuple):
    """A command as it stands in a file."""

    line: int
    exported: str
    """Shell text of what the file exports to it: one object for all that share it."""
    text: str


class _Room:
    """How many characters of the commands of one file are still looked at."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._left = 2 * len(text) + _MOST_GROWTH

    def take(self, characters: int, line: int | None = None) -> None:
        """Take some.

        Raises:
            InputError: there are not so many.
        """
        self._left -= characters
        if self._left < 0:
            message = (
                f"holds variables or aliases that stand for more than {_MOST_GROWTH >> 20} MiB; the rest is not read"
            )
            raise InputError(message, source=Source(self._path, line=line), hint="name the launch script itself")


def find_included(path: str, text: str) -> tuple[str, ...]:
    """Return the names of the files that a Makefile includes, as far as they are written out."""
    if MAKEFILE.fullmatch(os.path.basename(path).lower()) is None:
        return ()
    found = re.findall(r"^ *[-s]?include[ \t]+([^#\n]*)", text, re.MULTILINE)
    return tuple(name for names in found for name in names.split() if "$" not in name)[:_LEVELS]


def find_pieces(path: str, text: str, included: str = "") -> Iterator[Piece]:
    """Yield the commands in a file that may start a training, each once; none where it cannot be parsed.

    Args:
        path: the file.
        text: its text.
        included: that of files that a Makefile includes, whose variables hold in it.

    Raises:
        InputError: there are more than are read; those before it were yielded.
    """
    from compatcheck.frameworks.launch_script.launchers import names_launcher  # noqa: PLC0415 (few files are of this kind)

    name, room = os.path.basename(path).lower(), _Room(path, text)
    if MAKEFILE.fullmatch(name) is not None:
        found = _read_makefile(text, included)
    elif JUSTFILE.fullmatch(name) is not None:
        found = _read_justfile(text, room)
    elif name.endswith(_TREES):
        found = _read_yaml(text, path, room)
    else:
        return
    size, seen, exported, told = 0, set[str](), "", False
    for one in found:
        room.take(len(one.text), one.line)
        if one.exported is not exported:
            room.take(len(one.exported), one.line)
            exported, told = one.exported, names_launcher(one.exported)
        if not told and not names_launcher(one.text):
            continue
        piece = Piece(one.line, exported + one.text)
        if piece.text in seen:
            continue
        seen.add(piece.text)
        size += len(piece.text)
        if len(seen) > MOST_PIECES or size > _MOST_IN_ALL:
            message = f"holds more than {MOST_PIECES} commands that may train, or {_MOST_IN_ALL >> 10} KiB; the rest is not read"
            raise InputError(message, source=Source(path, line=piece.line), hint="name the launch script itself")
        yield piece


def find_defined(path: str, text: str) -> str:
    """Return what is not read of a file of recipes, each line where it was.

    Of a Makefile that is what ``define`` blocks hold, which recipes take in by functions, and what stands in functions; of a
    justfile recipes in another language, and variables that are more than one text.
    """
    name = os.path.basename(path).lower()
    if JUSTFILE.fullmatch(name) is not None:
        return _find_other_languages(text)
    if MAKEFILE.fullmatch(name) is None:
        return ""
    kept, inside = [], False
    for line in text.split("\n"):
        word = re.match(r"[ \t]*(?:override[ \t]+|export[ \t]+)*(define|endef)\b", line)
        inside = word[1] == "define" if word is not None else inside
        function = _MAKE_FUNCTION.search(line)
        taken_in = "" if function is None else function[1].replace(",", " ; ")
        kept.append(line if inside and word is None else taken_in)
    return "\n".join(kept)


_MAKE_FUNCTION = lazy_compile(r"\$[({](?:foreach|if|or|and|eval|shell)[ \t](.*)")


def _find_other_languages(text: str) -> str:
    kept, other, closes = [], False, ""
    for line in text.split("\n"):
        if closes:
            kept.append(line)
            closes = "" if closes in line else closes
            continue
        defined = None if line[:1].isspace() else _JUST_DEFINITION.match(line)
        if defined is not None:
            other, value = False, defined["value"]
            closes = value[:3] if value.startswith(_JUST_BLOCKS) and value[:3] not in value[3:] else ""
            kept.append("" if _JUST_VARIABLE.match(line) else re.sub(r"(['\"])\s*\+\s*\1", "", line))
            continue
        if line.strip() and not line[0].isspace():
            other = False
        elif line.lstrip().startswith("#!"):
            other = _OF_A_SHELL.search(line) is None
        kept.append(line if other else "")
    return "\n".join(kept)


def _blank(name: str) -> str:
    """Write what nobody states as a variable that is not set."""
    return f"${{{name if re.fullmatch(r'[A-Za-z_][A-Za-z0-9_]*', name) else 'NOT_STATED'}}}"


_MAKE_VARIABLE = lazy_compile(
    r"(?P<target>[^\t#:=][^#:=]*:[ \t]*)?(?P<how>(?:(?:export|override)[ \t]+)*)(?P<name>[\w.-]+)[ \t]*"
    r"(?P<sign>::?:?=|\?=|\+=|=)(?P<value>.*)"
)
_CONDITION = lazy_compile(r"[ \t]*(?P<word>ifeq|ifneq|ifdef|ifndef|endif|define|endef)\b")
_MAKE_REFERENCE = lazy_compile(r"\$(?:\$|\((?P<round>[^()$]*)\)|\{(?P<curly>[^{}$]*)\}|(?P<sign>.))?")


def _read_makefile(text: str, included: str) -> Iterator[_Found]:
    lines = text.split("\n")
    prefix = re.search(r"^\.RECIPEPREFIX[ \t]*[:?]?=[ \t]*([^\s#])", text, re.MULTILINE)
    if prefix is not None:
        lines = [f"\t{line[1:]}" if line.startswith(prefix[1]) else line for line in lines]
    variables, exported = _read_make_variables([*included.split("\n"), *lines])
    one_shell = any(line.startswith(".ONESHELL") for line in lines)
    number, target = 0, ""
    while number < len(lines):
        line = lines[number]
        if not line.startswith("\t"):
            rule = re.match(r"([^\s#:=][^#:=]*):(?!=)", line)
            target = rule[1].strip() if rule is not None else target
            number += 1
            if rule is None or ";" not in line:
                continue
            yield _Found(number, exported, _expand_make(line.partition(";")[2].lstrip("@+- \t"), variables, target))
            continue
        begin, recipe = number, [line]
        while number + 1 < len(lines) and (
            recipe[-1].endswith("\\") or (one_shell and lines[number + 1].startswith("\t"))
        ):
            number += 1
            recipe.append(lines[number])
        number += 1
        body = "\n".join(part.removeprefix("\t") for part in recipe).lstrip("@+- \t")
        yield _Found(begin + 1, exported, _expand_make(body, variables, target))


def _read_make_variables(lines: list[str]) -> tuple[Mapping[str, str | None], str]:
    """Return what variables hold, None for one that depends on a condition or target, and the shell text that exports some."""
    variables: dict[str, str | None] = {}
    exports: list[str] = []
    depth = 0
    for line in _join_continued(lines):
        condition = _CONDITION.match(line)
        if condition is not None:
            depth += -1 if condition["word"] in {"endif", "endef"} else 1
        found = None if line.startswith("\t") or condition is not None else _MAKE_VARIABLE.match(line.strip(" "))
        if found is None:
            continue
        name, value = found["name"], re.sub(r"(?:^|\s)#.*", "", found["value"]).strip()
        if depth > 0 or found["target"]:
            variables[name] = None
        elif found["sign"] == "+=":
            before = variables.get(name, "")
            variables[name] = None if before is None else f"{before} {value}".strip()[:_MOST_CHARACTERS]
        elif found["sign"] != "?=" or name not in variables:
            variables[name] = value
        if "export" in found["how"] and name.isidentifier():
            exports.append(name)
    values = {name: variables.get(name) for name in exports}
    said, size = [], 0
    for name, held in values.items():
        if held is not None and size <= _MOST_IN_ALL:  # more of it would be with every command
            said.append(f"export {name}={_quote(_expand_make(held, variables, ''))}; ")
            size += len(said[-1])
    return variables, "".join(said)


def _join_continued(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a Makefile, those that a backslash continues as one where they are no recipe."""
    joined: list[str] = []
    for line in lines:
        joined.append(line.removesuffix("\\"))
        if not line.endswith("\\") or joined[0].startswith("\t"):
            yield " ".join([joined[0], *(part.strip() for part in joined[1:])]) if len(joined) > 1 else line
            joined = []


def _expand_make(text: str, variables: Mapping[str, str | None], target: str) -> str:
    """Put the values of variables into a recipe, the innermost reference first; functions are left open."""
    dollar, size = "\0", 0

    def replace(match: re.Match[str]) -> str:
        nonlocal size
        if match[0] == "$$":
            return dollar
        name = match["round"] or match["curly"] or match["sign"] or ""
        value = target if name == "@" and target else variables.get(name)
        call = _MAKE_CALL.match(name) if value is None else None
        if call is not None and size <= _MOST_CHARACTERS:
            value = _call_make(variables.get(call[1]), (call[2] or "").split(","))
        value = value if value is not None else _blank(name).replace("$", dollar)
        size += len(value)
        return value if size <= _MOST_CHARACTERS else ""

    for _ in range(_LEVELS):
        if "$" not in text or len(text) > _MOST_CHARACTERS:
            break
        size = 0
        text = _MAKE_REFERENCE.sub(replace, text[:_MOST_CHARACTERS])
    return re.sub(r"\$", "", text[:_MOST_CHARACTERS]).replace(dollar, "$")


_MAKE_CALL = lazy_compile(r"call[ \t]+([\w.-]+)[ \t]*(?:,[ \t]*(.*))?$", re.DOTALL)
_MAKE_PARAMETER = lazy_compile(r"\$(?:\(([1-9])\)|\{([1-9])\}|([1-9]))")


def _call_make(value: str | None, arguments: list[str]) -> str | None:
    """Put arguments into what ``$(call NAME,…)`` names; None where that is not known or grows too much."""
    if value is None or len(value) * max(map(len, arguments)) > _MOST_CHARACTERS * 64:
        return None

    def replace(match: re.Match[str]) -> str:
        number = int(match[1] or match[2] or match[3])
        return arguments[number - 1] if number <= len(arguments) else ""

    return _MAKE_PARAMETER.sub(replace, value)


_OF_A_SHELL = lazy_compile(r"\b(?:ba|z|k|da)?sh\b")
_JUST_VARIABLE = lazy_compile(
    r"(?P<export>export[ \t]+)?(?P<name>[\w-]+)[ \t]*:=[ \t]*(?P<quote>['\"])(?P<value>[^'\"]*)(?P=quote)[ \t]*$"
)
_JUST_DEFINITION = lazy_compile(r"(?:export[ \t]+)?[\w-]+[ \t]*:=[ \t]*(?P<value>\S.*)")
_JUST_BLOCKS = ('"""', "'''", "```")
_JUST_REFERENCE = lazy_compile(r"\{\{((?:(?!\{\{|\}\}).)*)\}\}")
_JUST_HEAD = lazy_compile(r"@?[A-Za-z_][\w-]*(?:[ \t][^:=]*(?:=[^:]*)?)?:(?!=)")


def _read_justfile(text: str, room: _Room) -> Iterator[_Found]:
    lines = text.split("\n")
    found = [one for line in lines if (one := _JUST_VARIABLE.match(line)) is not None]
    variables = {one["name"]: one["value"] for one in found}
    exported = "".join(
        f"export {one['name']}={_quote(one['value'])}; "
        for one in found
        if one["export"] and one["name"].isidentifier()
    )

    def fill(part: str) -> str:
        def replace(match: re.Match[str]) -> str:
            name = match[1].strip()
            value = variables[name] if name in variables else _blank(name)
            room.take(len(value), number)
            return value

        return _JUST_REFERENCE.sub(replace, part)[:_MOST_CHARACTERS]

    number = 0
    while number < len(lines):
        head = _JUST_HEAD.match(lines[number])
        number += 1
        body = []
        while (
            head is not None and number < len(lines) and (lines[number][:1] in {" ", "\t"} or not lines[number].strip())
        ):
            body.append((number + 1, lines[number].strip()))
            number += 1
        body = [one for one in body if one[1]] if not body or not body[0][1].startswith("#!") else body
        if body and body[0][1].startswith("#!"):
            if _OF_A_SHELL.search(body[0][1]):
                yield _Found(body[0][0], exported, "\n".join(["", *(fill(part) for _, part in body[1:])]))
            continue
        joined: list[str] = []
        for line, part in body:
            joined.append(fill(part if joined else part.lstrip("@-")))
            if not part.endswith("\\"):
                yield _Found(line - len(joined) + 1, exported, "\n".join(joined))
                joined = []


_EXECUTED = ("entrypoint", "command", "args", "cmd", "argv", "arguments")
"""Keys of the words that a container is started with, in their order."""
_HOOKS = tuple(
    f"{when}Command" for when in ("initialize", "onCreate", "updateContent", "postCreate", "postStart", "postAttach")
)
"""Keys of what a development container runs: a line for a shell, the words of a command, or several of them by name."""
_SHELL_KEYS = ("run", "script", "scripts", "commands", "cmds", "before_script")
"""Keys of lines for a shell."""
_READ = frozenset({*_EXECUTED, *_HOOKS, *_SHELL_KEYS})
_ENVIRONMENTS = ("env", "envs", "environment", "variables")
_DIRECTORIES = ("workingDir", "working_dir", "working-directory", "workdir", "cwd")
"""Keys of the directory that a command beside them starts in."""


def _read_yaml(text: str, path: str, room: _Room) -> Iterator[_Found]:
    from compatcheck.frameworks.launch_script.launchers import names_launcher  # noqa: PLC0415 (as above)

    text = _COMMENT.sub(_blank_comment, text) if path.lower().endswith(".json") else text
    lines = text.split("\n")
    begin = 0
    for end in [*(number for number, line in enumerate(lines) if re.match(r"---(?:\s|$)", line)), len(lines)]:
        own = lines[begin:end]
        document = "\n".join(own)
        if names_launcher(document):
            try:
                root = parse_yaml(document, path)
            except InputError:  # whoever looks for what was not read sees its text
                root = None
            yield from (one._replace(line=begin + one.line) for one in _walk(root, own, room))
        begin = end + 1 if end < len(lines) and not lines[end][3:].strip() else end


_COMMENT = lazy_compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)
"""A text of JSON, or a comment, as editors take it."""


def _blank_comment(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0])


def _walk(root: Any, lines: list[str], room: _Room) -> Iterator[_Found]:  # noqa: ANN401 (YAML)
    pending: list[tuple[Any, str]] = [(root, "")]
    while pending:
        value, exported = pending.pop()
        if isinstance(value, YamlMap):
            said = (*map(_export, map(value.get, _ENVIRONMENTS)), *map(_enter, map(value.get, _DIRECTORIES)))
            exported = (exported + "".join(said))[:_MOST_CHARACTERS]
            texts = (
                *(_of_program(value, lines) or _of_container(value, lines, room)),
                *(piece for key in _HOOKS for piece in _of_hook(value, key, lines, room)),
                *(piece for key in _SHELL_KEYS for piece in _of_shell(value, key, lines)),
            )
            yield from (_Found(line, exported, _TEMPLATE.sub(_blank(""), text)) for line, text in texts if text.strip())
            left = (inner for key, inner in value.items() if not (key in _READ and _is_words(inner)))
            pending.extend((inner, exported) for inner in reversed([*left]))
        elif isinstance(value, YamlList):
            if _is_words(value) and _is_command(value):
                for line, text in _of_words(list(zip(value.lines, value, strict=True)), room):
                    yield _Found(line, exported, _TEMPLATE.sub(_blank(""), text))
            pending.extend((inner, exported) for inner in reversed(value))


def _is_words(value: Any) -> bool:  # noqa: ANN401 (YAML)
    return isinstance(value, YamlList) and all(isinstance(word, str) for word in value)


def _is_command(words: YamlList) -> bool:
    """Tell whether words are those of a command, whatever key they stand under: a launcher, and what a program is given."""
    from compatcheck.frameworks.launch_script.launchers import is_launcher  # noqa: PLC0415 (few files are of this kind)

    first, *others = words or [""]
    return is_launcher(os.path.basename(first)) and any(
        word.startswith("--") or word.endswith(".py") for word in others
    )


_TEMPLATE = lazy_compile(r"\$?\{\{(?:(?!\{\{|\}\}).)*\}\}")
"""What a program fills in before a shell gets a command: ``{{ lr }}``."""
_OF_EDITORS = lazy_compile(r"(\$\{[^{}]*\})")


def _of_program(mapping: YamlMap, lines: list[str]) -> list[tuple[int, str]]:
    """Return what starts a program of Python that has a key of its own: a debugger of an editor, a sweep over parameters."""
    program, module = mapping.get("program"), mapping.get("module")
    given, swept = mapping.get("args"), mapping.get("parameters")
    if not isinstance(given, YamlList | str) and not isinstance(swept, YamlMap):
        return []
    if isinstance(program, str) and program.endswith(".py"):
        words, place = shlex.quote(program.removeprefix("${workspaceFolder}/")), mapping.lines["program"]
    elif isinstance(module, str):
        words, place = f"-m {shlex.quote(module)}", mapping.lines["module"]
    else:
        return []
    written = ["python", words]
    if isinstance(swept, YamlMap):
        stated = {name: one.get("value") if isinstance(one, YamlMap) else None for name, one in swept.items()}
        written += [
            f"--{name}={_blank(name) if value is None else _quote(str(value))}" for name, value in stated.items()
        ]
    elif isinstance(given, YamlList):
        written += ["".join(_of_editor(part) for part in _OF_EDITORS.split(str(word))) for word in given]
    elif isinstance(given, str):
        written.append(given)
    return [(_line_of_text(place, lines), " ".join(written))]


def _of_editor(part: str) -> str:
    return f'"{_blank("")}"' if _OF_EDITORS.fullmatch(part) else _quote(part) if part else ""


def _of_hook(mapping: YamlMap, key: str, lines: list[str], room: _Room) -> Iterator[tuple[int, str]]:
    value = mapping.get(key)
    if isinstance(value, YamlMap):
        for name in value:
            yield from _of_hook(value, name, lines, room)
    elif isinstance(value, YamlList):
        yield from _of_words([(line, str(word)) for line, word in zip(value.lines, value, strict=True)], room)
    else:
        yield from _of_shell(mapping, key, lines)


def _of_words(words: list[tuple[int, str]], room: _Room, *, as_text: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the words of a command, or the script behind ``sh -c``; of compose, a text of words with more behind it."""
    plain = [word for _, word in words]
    room.take(sum(map(len, plain)))
    shell = bool(plain) and os.path.basename(plain[0]) in {"sh", "bash", "zsh", "dash", "ash"}
    place = next((n for n, word in enumerate(plain[1:], 1) if shell and re.fullmatch(r"-\w*c", word)), None)
    if place is not None and place + 1 < len(words):
        yield words[place + 1]
    elif words:
        yield words[0][0], " ".join(plain if as_text else map(_quote_word, plain))


def _of_container(mapping: YamlMap, lines: list[str], room: _Room) -> Iterator[tuple[int, str]]:
    """Yield what a container is started with: words, the script behind ``sh -c``, or a text that is one."""
    words: list[tuple[int, str]] = []
    for key in _EXECUTED:
        value = mapping.get(key)
        if isinstance(value, str):
            line = _line_of_text(mapping.lines[key], lines)
            if not words:
                words = [(line, value)]
                continue
            words.append((line, value))
        elif isinstance(value, YamlList) and all(isinstance(word, str) for word in value):
            words += [(_line_of_text(line, lines), word) for line, word in zip(value.lines, value, strict=True)]
    if not words:
        return
    named = [key for key in _EXECUTED if mapping.get(key) is not None]
    as_text, image = isinstance(mapping.get(named[0]), str), mapping.get("image")
    if isinstance(image, str) and serves_itself(image, (words[0][1].split() or [""])[0]):
        line, first = words[0]
        words = [(line, f"{image} {first}"), *words[1:]] if as_text else [(line, image), *words]
    if len(named) == 1 and as_text:
        yield words[0]
        return
    yield from _of_words(words, room, as_text=as_text)


def _of_shell(mapping: YamlMap, key: str, lines: list[str]) -> Iterator[tuple[int, str]]:
    value = mapping.get(key)
    if isinstance(value, str):
        yield _line_of_text(mapping.lines[key], lines), value
    elif isinstance(value, YamlMap):  # of npm: by names
        for name in value:
            yield from _of_shell(value, name, lines)
    elif isinstance(value, YamlList):
        for line, word in zip(value.lines, value, strict=True):
            if isinstance(word, str):
                yield _line_of_text(line, lines), word


def _line_of_text(line: int, lines: list[str]) -> int:
    """Return the line where a text begins, which is the next one of a block."""
    header = lines[line - 1].rstrip() if 0 < line <= len(lines) else ""
    return line + 1 if re.search(r"[:-][ \t]+[|>][-+\d]*(?:\s+#.*)?$", header) else line


def _export(value: Any) -> str:  # noqa: ANN401 (YAML)
    """Write the variables of an environment as shell text."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, YamlMap):
        pairs = list(value.items())
    elif isinstance(value, YamlList):
        for one in value:
            if isinstance(one, YamlMap) and "name" in one:
                pairs.append((one.get("name"), one.get("value")))
            elif isinstance(one, str) and "=" in one:
                pairs.append(one.partition("=")[::2])
    said = ((name, held) for name, held in pairs if isinstance(name, str) and isinstance(held, str))
    return "".join(
        f"export {name}={_quote(held)}; "
        for name, held in said
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and "\n" not in held
    )


def _enter(value: Any) -> str:  # noqa: ANN401 (YAML)
    """Write the directory that a command starts in as shell text."""
    return f"cd {_quote(value)}; " if isinstance(value, str) and value and "\n" not in value else ""


def _quote(value: str) -> str:
    return shlex.quote(value)


def _quote_word(word: str) -> str:
    """Quote a word of a container for a shell: ``$(NAME)`` in it is a variable of Kubernetes."""
    parts = re.split(r"\$\(([A-Za-z_]\w*)\)", word)
    return "".join(
        f'"${{{part}}}"' if place % 2 else (shlex.quote(part) if part or len(parts) == 1 else "")
        for place, part in enumerate(parts)
    )
