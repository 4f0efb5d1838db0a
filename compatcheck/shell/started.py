"""Shells that a script starts, alone or behind wrappers, and files that it sources: read as parts of the script."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from compatcheck.core.command import names_below
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import leave_out_words
from compatcheck.shell.flow import Flow
from compatcheck.shell.grammar import Parser
from compatcheck.shell.reading import SPAN, ScriptReading
from compatcheck.shell.scheduler import variables_of_header
from compatcheck.shell.state import State, Variable, join
from compatcheck.shell.values import Piece, Value, drop, from_text, known_end, show, text_of, unknown
from compatcheck.shell.versions import Versions
from compatcheck.shell.wrappers import MAX_LAYERS, Layer, Shown, open_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.shell.statements import Raw

MAX_DEPTH = 8
"""Files that start or source one another."""
_SOURCE = "BASH_SOURCE"
_SCRIPT = re.compile(r"[^\s]\.(sh|bash|slurm|sbatch)$")
_OWN_DIRECTORY = re.compile(r"BASH_SOURCE|\$\{?0|pwd|PWD|SLURM_SUBMIT_DIR|--show-toplevel")
_ENTERED = re.compile(r"\bcd\s+(?:--\s+)?(?=\S*\$)")
_TOLD = re.compile(r"\n|&&\s*pwd")
_BENEATH = re.compile(r"(?:/[\w.-]+)+(?=\"?$)")


class _Content(NamedTuple):
    """What a started shell reads."""

    text: Value | None = None
    file: Value | None = None
    arguments: tuple[Value, ...] = ()


class StartedShells(ScriptReading):
    """Read what started shells read."""

    def start(self, values: list[tuple[Value, Raw]], extra: Mapping[str, Variable], line: int) -> bool:
        """Read the shell that a command starts; tell whether it does."""
        if self.open_file is None:
            return False
        variables = {
            name: one._replace(exported=True)
            for name, one in self.state.variables.items()
            if one.exported or name in extra
        }
        rest = [value for value, _ in values]
        kept: list[tuple[Value, Raw]] = []
        at, foreign, layers = 0, self.state.foreign, 0
        here = self.directory()
        while layer := open_wrapper([Shown(show(value), text_of(value) is not None) for value in rest]):
            layers += 1
            if layers > MAX_LAYERS:
                self.skip(line, f"a command stands behind more than {MAX_LAYERS} others that start one another")
                return False
            passed = self._pass(layer, rest, variables)
            if layer.cleared:
                variables, foreign = {}, None
            here = self.enter_layer(here, layer, rest, line)
            variables |= {**passed, "PWD": Variable(here, line=line)}
            for part in layer.given("unset"):
                variables.pop(text_of(rest[part.place]) or "", None)
            content = self._content(layer, rest)
            if content is not None:
                return self._read(content, (variables, foreign), kept, line)
            if layer.wrapper.says("kept"):
                kept += values[at : at + layer.start]
            at, rest = at + layer.start, rest[layer.start :]
            if layer.is_module or layer.wrapper.inner == "none":
                return False
            if layer.wrapper.says("appends") and rest:
                rest = self._append(layer, rest, at, values, line)
        if rest and "/" in show(rest[0]) and _SCRIPT.search(show(rest[0])):
            variables["PWD"] = Variable(here, line=line)
            return self._read(_Content(file=rest[0], arguments=tuple(rest[1:])), (variables, foreign), kept, line)
        return False

    def _append(
        self, layer: Layer, rest: list[Value], at: int, values: list[tuple[Value, Raw]], line: int
    ) -> list[Value]:
        """Give an inner command the words of the standard input, in place of a mark or behind its own."""
        text = None if self.stdin is None else text_of(self.stdin)
        self.stdin = None
        words = (
            [unknown("$(xargs)", line, many=True)] if text is None else [from_text(one, line) for one in text.split()]
        )
        marks = {text_of(drop(values[at - layer.start + part.place][0], part.offset)) for part in layer.given("marks")}
        if marks:
            word = words[0] if len(words) == 1 else unknown("$(xargs)", line)
            rest = [word if text_of(value) in marks else value for value in rest]
        else:
            rest = [*rest, *words]
        raw = values[at][1]
        values[at:] = [(value, raw) for value in rest]
        return rest

    def _pass(self, layer: Layer, rest: list[Value], variables: Mapping[str, Variable]) -> dict[str, Variable]:
        """Return the variables that a wrapper gives its inner command."""
        passed: dict[str, Variable] = {}
        for part in layer.passed():
            value = drop(rest[part.place], part.offset)
            name, equals, _ = show(value).partition("=")
            if equals:
                passed[name] = Variable(drop(value, len(name) + 1), exported=True, line=self.line)
            elif name in variables:
                passed[name] = variables[name]
        return passed

    def _content(self, layer: Layer, rest: list[Value]) -> _Content | None:
        inner = rest[layer.start :]
        if layer.text is not None:
            if layer.text.place >= len(rest):
                return None
            return _Content(drop(rest[layer.text.place], layer.text.offset), arguments=tuple(inner[1:]))
        kind = layer.wrapper.inner
        if kind == "typed" or (kind == "either" and len(inner) == 1):
            return _Content(inner[0]) if inner else None
        from_stdin = any(layer.wrapper.lists("stdin", name) for name, _ in layer.options)
        if kind == "shell" and inner and not from_stdin:
            return _Content(file=inner[0], arguments=tuple(inner[1:]))
        if kind == "joined" and inner:
            return _Content(_join(inner))
        if kind in {"shell", "joined"} and self.stdin is not None:
            return _Content(self.stdin, arguments=tuple(inner))
        return None

    def _read(
        self,
        content: _Content,
        around: tuple[Mapping[str, Variable], str | None],
        kept: list[tuple[Value, Raw]],
        line: int,
    ) -> bool:
        """Read a shell in an environment of its own; what it runs stands behind the wrappers that are kept."""
        read = self._open(content.file, line, "starts") if content.file is not None else None
        if content.file is not None and read is None:
            return False
        text = content.text
        if text and (text[0].name.startswith("$(") or all(piece.text is None for piece in text)):
            reason = f"starts a shell that reads {leave_out_words(show(text))}, which is not known"
            self.skip(line, reason, "name what it runs", passes=True)
            return False
        prefix, state, outer_line, sourced, stdin = self.prefix, self.state, self.line, self.sourced, self.stdin
        self.prefix, self.sourced = [*prefix, *kept], 0
        self.stdin = None if text is stdin else stdin

        def inside() -> Flow:
            variables, foreign = around
            header = variables_of_header(show(text) if text is not None else "")
            given = {name: Variable(from_text(one, 0), exported=True, line=0) for name, one in header.items()}
            own: dict[str, Variable] = {
                name: state.variables[name] for name in ("IFS", "OPTIND") if name in state.variables
            }
            around_it = Versions({**own, **variables, **given})
            self.state = State(around_it, content.arguments, files=state.files, foreign=foreign)
            return read() if read is not None else self.evaluate_value(text or (), line)

        self.subshell(inside)
        self.prefix, self.line, self.sourced, self.stdin = prefix, outer_line, sourced, stdin
        self.state.status = None
        return True

    def source_file(self, file: Value, arguments: Sequence[Value], line: int) -> Flow | None:
        """Read a file that is sourced; None where it could not be."""
        read = None if self.open_file is None else self._open(file, line, "sources")
        if read is None:
            return None
        outer = self.state.arguments
        self.state.arguments = tuple(arguments) or outer
        self.sourced += 1
        flow = self.until_return(read, line)
        self.sourced -= 1
        if arguments:
            self.state.arguments = outer
        return flow

    def until_return(self, read: Callable[[], Flow], line: int) -> Flow:
        """Read what ``return`` leaves: a function's body, a sourced file."""
        mark, depth = len(self.jumps), len(self.doubts)
        flow = read()
        returned = [state for kind, state in self.jumps[mark:] if kind is Flow.RETURN]
        del self.jumps[mark:], self.doubts[depth:]
        if returned:
            self.state = join(returned if flow is Flow.EXIT else [self.state, *returned], line)
            return Flow.NEXT
        return Flow.EXIT if flow is Flow.EXIT else Flow.NEXT

    def name_source(self, file: str, *, starts: bool = False) -> None:
        """Set what bash calls the file that is read (``BASH_SOURCE``, started also ``$0``), where the first has a name."""
        if self.called is None:
            return
        beside = os.path.relpath(file, os.path.dirname(self.paths[0]) or ".")
        own, here = os.path.join(os.path.dirname(self.called), beside), self.look_up("PWD")
        if here not in {None, "."} and not os.path.isabs(here) and not os.path.isabs(own):
            own = os.path.relpath(own, here)
        for name in (_SOURCE, "0") if starts else (_SOURCE,):
            self.state.variables[name] = Variable(from_text(own, 0), line=0)

    def _open(self, file: Value, line: int, verb: str) -> Callable[[], Flow] | None:
        """Find a file, one that the script wrote or one beside it; say where it is not read."""
        path = text_of(file)
        if path is not None:
            written = next(
                (v for k, v in self.state.files.items() if os.path.normpath(k) == os.path.normpath(path)), None
            )
            if written is not None:
                return lambda: self.evaluate_value(written, line)
        elif file[-1].text and all(piece.text is not None or _OWN_DIRECTORY.search(piece.name) for piece in file):
            # "$(dirname "$0")/env.sh": its own directory
            path = show(piece for piece in file if piece.text is not None).lstrip("/")
            entered = "".join(map(_name_entered, file)).lstrip("/")
            if entered and self.open_file is not None and self.open_file(os.path.join(entered, path)) is not None:
                path = os.path.join(entered, path)
        below = () if path is None else (*names_below(known_end(self.directory()), path), path)
        texts = () if self.open_file is None else map(self.open_file, below)
        found = next(filter(None, texts), None)
        if found is not None and (found[0] in self.reading or len(self.reading) > MAX_DEPTH):
            found = None
        if found is None:
            if verb == "starts":
                reason = f"starts {leave_out_words(show(file))}, which is not read: what it runs is not known"
                self.skip(line, reason, "name it, too", passes=True)
            return None
        name, text = found
        if path is not None and os.path.isabs(path) and name != path:
            reason = f"{verb} {path}, which is not here: {name} is assumed"
            self.skip(line, reason, "give the file where it was changed", passes=True)
        self.paths.append(name)
        first = (len(self.paths) - 1) * SPAN + 1

        def read() -> Flow:
            self.reading.append(name)
            outer = self.state.variables.get(_SOURCE)
            self.name_source(name, starts=verb == "starts")
            flow = self.run(Parser(text, len(self.reading), first).parse())
            self.reading.pop()
            if outer is None:
                self.state.variables.pop(_SOURCE, None)
            else:
                self.state.variables[_SOURCE] = outer
            return flow

        return read


def _name_entered(piece: Piece) -> str:
    """Name what ``$(cd "$SCRIPT_DIR/../slime" && pwd)`` adds to the directory that is not known: ``/../slime``."""
    entered, told = _ENTERED.search(piece.name), None
    if entered is not None:
        told = _TOLD.search(piece.name, entered.end())
    if entered is None or told is None or told[0] == "\n":
        return ""
    words, redirected, _ = piece.name[entered.end() : told.start()].partition(">")
    beneath = _BENEATH.search(re.sub(r"[\d&]$", "", words).rstrip() if redirected else words.rstrip())
    return "" if beneath is None else beneath[0]


def _join(words: Sequence[Value]) -> Value:
    joined: list[Piece] = []
    for word in words:
        joined += [*([Piece(" ", 0)] if joined else []), *word]
    return tuple(joined)
