"""Commands of bash itself that change the state, print, or jump."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_words
from compatcheck.core.redaction import leave_out_words
from compatcheck.shell.flow import Flow
from compatcheck.shell.lexical import ASSIGNMENT, NAME
from compatcheck.shell.printing import format_printf, interpret_echo
from compatcheck.shell.state import Variable
from compatcheck.shell.values import (
    Piece,
    Value,
    assumptions_of,
    cut,
    from_text,
    is_many,
    names_of,
    show,
    text_of,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from compatcheck.shell.reading import ScriptReading
    from compatcheck.shell.statements import Raw

_ACTIVATION = re.compile(
    r"(^|/)(activate|conda\.sh|\.?bashrc|\.bash_profile|\.?profile|setvars\.sh|modules?\.sh)$|/Ascend/.*set_env\.sh$"
)
"""Files that set up a tool chain or a user's shell: they set paths, and nothing that a launch script asks for."""
_QUIET = read_words(__file__, "quiet")
"""Commands that change nothing that is read, and succeed."""


def _succeed(_evaluator: ScriptReading, _arguments: list[Value], _line: int) -> Flow:
    _evaluator.state.status = True
    return Flow.NEXT


def _look_up(evaluator: ScriptReading, _arguments: list[Value], line: int) -> Flow:
    """``type``, ``hash``, ``command -v``: what is installed is not known."""
    evaluator.state.status = None
    evaluator.emit(unknown("$(command -v)", line))
    return Flow.NEXT


def _fail(evaluator: ScriptReading, _arguments: list[Value], _line: int) -> Flow:
    evaluator.state.status = False
    return Flow.NEXT


def _echo(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    evaluator.state.status = True
    evaluator.emit(interpret_echo(arguments, line))
    return Flow.NEXT


def _printf(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    evaluator.state.status = True
    name = None
    if len(arguments) > 2 and text_of(arguments[0]) == "-v":
        name, arguments = text_of(arguments[1]), arguments[2:]
    if arguments and text_of(arguments[0]) == "--":
        arguments = arguments[1:]
    output = format_printf(arguments, line)
    if name is None:
        evaluator.emit(output)
    elif NAME.fullmatch(name):
        evaluator.expander.check_length(output)
        evaluator.expander.parameters.assign(name, None, output, line)
    return Flow.NEXT


def _shift(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    state = evaluator.state
    count = _number(evaluator, arguments, line, 1)
    if state.arguments is None:
        return _finish(evaluator, None)
    if count is None or any(map(is_many, state.arguments[:count])):
        state.arguments = (unknown("$@", line, many=True),)
        return _finish(evaluator, None)
    if 0 <= count <= len(state.arguments):
        state.arguments = state.arguments[count:]
        return _finish(evaluator, status=True)
    return _finish(evaluator, status=False)


def _finish(evaluator: ScriptReading, status: bool | None) -> Flow:  # noqa: FBT001 (three values)
    evaluator.state.status = status
    return Flow.NEXT


def _number(evaluator: ScriptReading, arguments: list[Value], line: int, default: int) -> int | None:
    if not arguments:
        return default
    text = text_of(arguments[0])
    return None if text is None else evaluator.expander.number(text, line)[0]


def _set(evaluator: ScriptReading, arguments: list[Value], _line: int) -> Flow:
    state = evaluator.state
    state.status = True
    rest = list(arguments)
    while rest:
        text = text_of(rest[0])
        if text == "--":
            state.arguments = tuple(rest[1:])
            return Flow.NEXT
        if text is None or not re.match(r"[-+]\w", text):
            state.arguments = tuple(rest)
            return Flow.NEXT
        rest.pop(0)
        letters = set(text[1:])
        if "o" in letters and rest:
            letters = {"noglob": {"f"}, "allexport": {"a"}}.get(text_of(rest.pop(0)) or "", set())
        letters &= {"a", "f"}
        state.options = state.options | letters if text[0] == "-" else state.options - letters
    return Flow.NEXT


def _unset(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    state = evaluator.state
    state.status = True
    functions = False
    for value in arguments:
        name = text_of(value)
        if name in {"-f", "-v", "-n"}:
            functions = name == "-f"
        elif functions:
            state.functions.pop(name or "", None)
        elif name and NAME.fullmatch(name):
            state.variables[name] = Variable(line=line)
        elif name and (match := re.fullmatch(r"([A-Za-z_]\w*)\[.*\]", name)):
            hidden = {0: unknown(f"${{{match[1]}[@]}}", line, many=True)}
            evaluator.expander.parameters.replace_array(match[1], hidden, line)
    return Flow.NEXT


def _let(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    number: int | None = 0
    for value in arguments:
        text = text_of(value)
        number = None
        if text is not None:
            number, _, _ = evaluator.expander.number(text, line)
        elif match := re.match(r"[A-Za-z_]\w*", show(value)):
            evaluator.expander.parameters.assign(match.group(), None, unknown(f"${match.group()}", line), line)
    return _finish(evaluator, None if number is None else number != 0)


def _eval(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    pieces: list[Piece] = []
    for n, argument in enumerate(arguments):
        pieces.extend((*((Piece(" ", line),) if n else ()), *argument))
    value: Value = tuple(pieces)
    if value and value[0].text is None and value[0].name.startswith("$("):
        evaluator.skip(line, f"eval of {leave_out_words(value[0].name)}, whose text is not known")
        evaluator.state.status = None
        return Flow.NEXT if len(value) == 1 else evaluator.evaluate_text(value, line)
    if value and all(piece.text is None and not piece.choices for piece in value):
        shown = leave_out_words(show(value))
        evaluator.state.foreign = shown
        evaluator.state.open_lists(f"eval of {shown}", line)
        evaluator.skip(line, f"eval of {shown}, whose text is not known: variables that it sets are not known")
    return evaluator.evaluate_text(value, line)


def _trap(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    """Read what runs on a signal or at the end; it changes nothing that stands behind it."""
    words = arguments[1:] if arguments and text_of(arguments[0]) == "--" else arguments
    if len(words) > 1 and not show(words[0]).startswith("-"):
        evaluator.aside(lambda: evaluator.evaluate_value(words[0], line))
    return _succeed(evaluator, arguments, line)


def _source(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    path = leave_out_words(show(arguments[0])) if arguments else ""
    text = evaluator.stand_in([from_text("source", line), *arguments])
    if text is not None:
        return evaluator.nested(text, line, arguments[1:])
    flow = evaluator.source_file(arguments[0], arguments[1:], line) if arguments else None
    if flow is not None:
        return flow
    foreign = not _ACTIVATION.search(path)
    if foreign:
        evaluator.state.foreign = path
        evaluator.state.open_lists(path, line)
    reason = f"sources {path}, which is not read: variables that it sets are not known"
    # A path of the machine or of its user (/etc/profile, ~/.bashrc, $HOME/env.sh) is no file of the project.
    here = foreign and path[:1] not in {"/", "~", "$", ""}
    evaluator.skip(line, reason, "give their values", by_run=here, passes=not here)
    return _finish(evaluator, status=True)


def _exit(evaluator: ScriptReading, _arguments: list[Value], _line: int) -> Flow:
    evaluator.note_exit()
    return Flow.EXIT


def _exec(evaluator: ScriptReading, _arguments: list[Value], _line: int) -> Flow:
    """``exec > log``: only redirections."""
    return _finish(evaluator, status=True)


def _return(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    if not (evaluator.state.saved or evaluator.sourced):
        return _finish(evaluator, status=False)  # outside of a function bash refuses it and goes on
    if arguments:
        number = _number(evaluator, arguments, line, 0)
        evaluator.state.status = None if number is None else number == 0
    return Flow.RETURN


def _break(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    return _jump(evaluator, arguments, line, Flow.BREAK)


def _continue(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    return _jump(evaluator, arguments, line, Flow.CONTINUE)


def _jump(evaluator: ScriptReading, arguments: list[Value], line: int, flow: Flow) -> Flow:
    evaluator.state.status = True
    if not evaluator.loops:
        return Flow.NEXT  # bash refuses it and goes on
    evaluator.levels = min(_number(evaluator, arguments, line, 1) or 1, evaluator.loops) - 1
    return flow


def _test(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    return _finish(evaluator, evaluator.conditions.single(arguments, line))


def _bracket(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    if not arguments or text_of(arguments[-1]) != "]":
        return _finish(evaluator, None)
    return _finish(evaluator, evaluator.conditions.single(arguments[:-1], line))


def _pwd(evaluator: ScriptReading, _arguments: list[Value], line: int) -> Flow:
    here = evaluator.look_up("PWD")
    evaluator.emit(unknown("$(pwd)", line) if here is None else from_text(f"{here}\n", line))
    return _finish(evaluator, status=True)


def _read(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    """``read``: known where its input is a here-string, a here-document or known output."""
    delimiter: str | None = "\n"
    array: str | None = None
    names: list[str | None] = []
    raw = False
    rest = [text_of(value) for value in arguments]
    while rest:
        word = rest.pop(0)
        if word is None or not word.startswith("-") or word == "-":
            names = [word, *rest]
            break
        letter = re.search(r"[adinNptu]", word)
        raw = raw or "r" in word
        if letter:
            value = word[letter.end() :] or (rest.pop(0) if rest else None)
            delimiter = value if letter.group() == "d" else delimiter
            array = value if letter.group() == "a" else array
            if letter.group() in "nNtu":
                delimiter = None
    known = [name for name in names if name is not None and NAME.fullmatch(name)]
    text = None if evaluator.stdin is None or delimiter is None else text_of(evaluator.stdin)
    separators = _separators(evaluator)
    assign = evaluator.expander.parameters.assign
    if text is None or separators is None or (not raw and "\\" in text):
        for name in known or ["REPLY"]:
            assign(name, None, unknown(f"${name}", line), line)
        if array is not None and NAME.fullmatch(array):
            hidden = {0: unknown(f"${{{array}[@]}}", line, many=True)}
            evaluator.expander.parameters.replace_array(array, hidden, line)
        return _finish(evaluator, None)
    start, found, _ = text.partition(delimiter) if delimiter else (text, "", "")
    assumes = assumptions_of(evaluator.stdin or ())
    if array is not None and NAME.fullmatch(array):
        parts = _split(start, separators)
        elements = {n: from_text(part, line, assumes) for n, part in enumerate(parts)}
        evaluator.expander.parameters.replace_array(array, elements, line)
    elif known:
        at = 0
        for name, part in zip(known, _assign_parts(start, separators, len(known)), strict=True):
            at = max(start.find(part, at), at)
            assign(name, None, cut(evaluator.stdin or (), at, at + len(part)) or from_text(part, line, assumes), line)
    else:
        assign("REPLY", None, from_text(start, line, assumes), line)
    return _finish(evaluator, bool(found))


def _separators(evaluator: ScriptReading) -> str | None:
    variable = evaluator.state.variables.get("IFS")
    return " \t\n" if variable is None or variable.value is None else text_of(variable.value)


def _split(text: str, separators: str) -> list[str]:
    """Split as bash splits fields: white space in a row is one separator, others are one each."""
    spaces = re.escape("".join(char for char in separators if char in " \t\n"))
    others = re.escape("".join(char for char in separators if char not in " \t\n"))
    if not separators:
        return [text] if text else []
    if spaces:
        text = re.sub(rf"^[{spaces}]+|[{spaces}]+$", "", text)
    pattern = "|".join(
        [
            *([rf"[{spaces}]*[{others}][{spaces}]*" if spaces else f"[{others}]"] if others else []),
            *([f"[{spaces}]+"] if spaces else []),
        ]
    )
    parts = re.split(pattern, text) if text else []
    return parts[:-1] if parts and not parts[-1] else parts


def _assign_parts(text: str, separators: str, count: int) -> list[str]:
    """Split into as many parts as there are names; the last takes the rest."""
    spaces = "".join(char for char in separators if char in " \t\n")
    others = "".join(char for char in separators if char not in " \t\n")
    text = text.strip(spaces) if spaces else text
    parts: list[str] = []
    while len(parts) < count - 1:
        match = separators and re.match(rf"([^{re.escape(separators)}]*)([{re.escape(spaces + others)}]?)", text)
        if not match:
            break
        parts.append(match[1])
        text = text[match.end() :]
        if spaces:
            text = text.lstrip(spaces)
            if match[2] in spaces and text[:1] and text[0] in others:
                text = text[1:].lstrip(spaces)
    if others and text and text[-1] in others and not any(char in separators for char in text[:-1]):
        text = text[:-1]
    parts.append(text)
    return [*parts, *[""] * (count - len(parts))]


def _mapfile(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    texts = [text_of(value) for value in arguments]
    name = texts[-1] if texts and texts[-1] and not texts[-1].startswith("-") else "MAPFILE"
    text = None if evaluator.stdin is None else text_of(evaluator.stdin)
    options = [one for one in texts[:-1] if one != "-t"] if name != "MAPFILE" else [one for one in texts if one != "-t"]
    if not NAME.fullmatch(name):
        return _finish(evaluator, None)
    if text is None or options:
        elements = {0: unknown(f"${{{name}[@]}}", line, many=True)}
    else:
        keep = "-t" not in texts
        elements = {n: from_text(one, line) for n, one in enumerate(text.splitlines(keepends=keep))}
    evaluator.expander.parameters.replace_array(name, elements, line)
    return _finish(evaluator, status=True)


def _getopts(evaluator: ScriptReading, arguments: list[Value], line: int) -> Flow:
    """``getopts``: the next option of the arguments; where these are unknown, so is the option."""
    state, assign = evaluator.state, evaluator.expander.parameters.assign
    texts = [text_of(value) for value in arguments]
    given = arguments[2:] or (state.arguments or ())
    words = evaluator.known_words(given)
    if len(texts) < 2 or texts[0] is None or texts[1] is None or not NAME.fullmatch(texts[1]):
        return _finish(evaluator, None)
    options, name = texts[0], texts[1]
    if (state.arguments is None and not arguments[2:]) or words is None:
        for one in (name, "OPTARG", "OPTIND"):
            assign(one, None, unknown(f"${one}", line), line)
        return _finish(evaluator, None)
    started, _, place = (evaluator.look_up(_PLACE) or "").partition(":")
    number = evaluator.look_up("OPTIND") or "1"
    if not number.isascii() or not number.isdigit():
        return _finish(evaluator, None)
    index = int(number)
    offset = int(place) if started == str(index) else 1  # a script that sets OPTIND starts anew
    word = words[index - 1] if index <= len(words) else ""
    if offset == 1 and (index > len(words) or not word.startswith("-") or word in {"-", "--"}):
        assign("OPTIND", None, from_text(str(index + (word == "--")), line), line)
        assign(name, None, from_text("?", line), line)
        return _finish(evaluator, status=False)
    letter = word[offset]
    known = options.find(letter) if letter != ":" else -1
    value: Value | None = None
    offset += 1
    if known >= 0 and options[known + 1 : known + 2] == ":":
        if offset < len(word):
            value = from_text(word[offset:], line)
        elif index < len(words):
            index += 1
            value = given[index - 1]
        else:
            value, letter = from_text(letter, line), ":" if options.startswith(":") else "?"
        index, offset = index + 1, 1
    elif offset >= len(word):
        index, offset = index + 1, 1
    if known < 0:
        value, letter = from_text(letter, line) if options.startswith(":") else None, "?"
    assign(name, None, from_text(letter, line), line)
    assign("OPTIND", None, from_text(str(index), line), line)
    assign(_PLACE, None, from_text(f"{index}:{offset}", line), line)
    if value is None:
        state.variables["OPTARG"] = Variable(line=line)
    else:
        assign("OPTARG", None, value, line)
    return _finish(evaluator, status=True)


_PLACE = "__getopts_place"
"""Holds the word and the letter in it that `getopts` reads next."""


def assign_words(evaluator: ScriptReading, words: list[Raw]) -> Flow:
    """``export``, ``declare``, ``local``, ``readonly``, ``typeset``: assignments and attributes."""
    kind, state = words[0].text, evaluator.state
    flags, removed = "", ""
    state.status = True
    for word in words[1:]:
        if re.fullmatch(r"-[A-Za-z]+", word.text):
            flags += word.text[1:]
        elif re.fullmatch(r"\+[A-Za-z]+", word.text):
            removed += word.text[1:]
        elif "n" in flags and kind != "export":
            evaluator.skip(word.line, f"makes {word.text} another name of a variable, which is not followed")
        elif match := ASSIGNMENT.match(word.text):
            _declare(evaluator, kind, match[1], flags, removed)
            evaluator.assign(word)
        else:
            for value in evaluator.expander.fields(word.text, word.line):
                _declare_value(evaluator, kind, value, (flags, removed), word.line)
    return Flow.NEXT


def _declare_value(evaluator: ScriptReading, kind: str, value: Value, flags: tuple[str, str], line: int) -> None:
    """Declare what an expansion gives: a name, or ``name=value``."""
    place = next((n for n, piece in enumerate(value) if "=" in (piece.text or "=")), len(value))
    head, tail = value[:place], value[place + 1 :]
    before, sign, first = ((value[place].text or "") if place < len(value) else "").partition("=")
    name = (text_of(head) or "") + before
    if not NAME.fullmatch(name) or (place < len(value) and not sign):
        if any(one.startswith("$(") for one in names_of(value)):
            evaluator.state.foreign = shown = leave_out_words(show(value))
            evaluator.skip(line, f"{kind} of {shown}, whose text is not known")
        return
    _declare(evaluator, kind, name, *flags)
    if sign:
        evaluator.expander.parameters.assign(name, None, (*from_text(first, line), *tail) if first else tail, line)


def _declare(evaluator: ScriptReading, kind: str, name: str, flags: str, removed: str) -> None:
    state = evaluator.state
    local = kind == "local" or (kind in {"declare", "typeset"} and "g" not in flags)
    if local and state.saved:
        fresh = name not in state.saved[-1]
        state.hide(name)
        if fresh:
            state.variables[name] = Variable(line=evaluator.line)
    old = state.variables.get(name)
    exported = (kind == "export" and "n" not in flags) or "x" in flags
    hide = (kind == "export" and "n" in flags) or "x" in removed
    if old is None:
        if not (exported or set(flags) & set("aAi")):
            return
        # What is exported without a value keeps that of the environment.
        found = evaluator.expander.parameters.find(name, None, evaluator.line)
        old = Variable(found.values[0] if found.values and kind == "export" else None, line=evaluator.line)
    elements = old.elements
    if elements is None and ("A" in flags or "a" in flags):
        elements = old.copy_elements()
    state.variables[name] = old._replace(
        value=None if elements is not None else old.value,
        elements=elements,
        associative=old.associative or "A" in flags,
        exported=(old.exported or exported) and not hide,
        integer=old.integer or "i" in flags,
    )


BUILTINS: dict[str | None, Callable[[ScriptReading, list[Value], int], Flow]] = {
    **dict.fromkeys(_QUIET, _succeed),
    ".": _source,
    "[": _bracket,
    "break": _break,
    "command": _look_up,
    "continue": _continue,
    "echo": _echo,
    "eval": _eval,
    "exec": _exec,
    "exit": _exit,
    "false": _fail,
    "getopts": _getopts,
    "hash": _look_up,
    "let": _let,
    "mapfile": _mapfile,
    "printf": _printf,
    "pwd": _pwd,
    "read": _read,
    "readarray": _mapfile,
    "return": _return,
    "set": _set,
    "shift": _shift,
    "source": _source,
    "test": _test,
    "trap": _trap,
    "type": _look_up,
    "unset": _unset,
}
"""What is read instead of reported; ``cd`` is reported, for paths depend on it."""
