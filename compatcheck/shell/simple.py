"""Simple commands: assignments, tests, functions, bash's own commands, and the programs that are reported."""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from compatcheck.shell.builtins import BUILTINS, assign_words
from compatcheck.shell.filters import FILTERS, run_filter
from compatcheck.shell.flow import Flow
from compatcheck.shell.grammar import Parser, parse
from compatcheck.shell.lexical import ASSIGNMENT, UnclosedError
from compatcheck.shell.limits import MAX_CALLS, MAX_WORDS, LimitError
from compatcheck.shell.reading import SHOWN, Branch, Streams
from compatcheck.shell.started import StartedShells
from compatcheck.shell.state import Function, Variable
from compatcheck.shell.statements import Arithmetic, Raw, Simple, Test
from compatcheck.shell.values import Value, assumptions_of, enter, from_text, is_many, text_of, unknown
from compatcheck.shell.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.shell.statements import Redirection, Statement

_PLACEHOLDER = "__unresolved_{}"
_DECLARATIONS = frozenset({"export", "declare", "local", "readonly", "typeset"})


class SimpleCommands(StartedShells):
    """Read simple commands."""

    def simple(self, statement: Statement) -> Flow:
        """Read assignments, a test, or a command with its words and redirections."""
        match statement.kind:
            case Test(inside):
                try:
                    self.state.status = self.conditions.double(inside.text, inside.line)
                except UnclosedError as error:
                    self.state.status = None
                    self.skip(inside.line, f"is not understood: {error}")
            case Arithmetic(inside):
                number, _, assumes = self.expander.number(inside.text, inside.line)
                self.expander.assumed.extend(assumes)
                self.state.status = None if number is None else number != 0
            case Simple(words):
                return self._run_simple(words, statement.redirections, statement.written, statement.line)
        return Flow.NEXT

    def _run_simple(self, raws: Sequence[Raw], redirections: Sequence[Redirection], raw: str, line: int) -> Flow:
        assignments: list[Raw] = []
        words = list(raws)
        while words and ASSIGNMENT.match(words[0].text):
            assignments.append(words.pop(0))
        streams = self._streams(redirections)
        if not words:
            self.state.status = True
            for word in assignments:
                self.assign(word)
            if self._querying and not assignments and streams.stdin is not None and streams.path is None:
                self.emit(streams.stdin)  # $(<file)
            return self.with_streams(streams, lambda: Flow.NEXT) if redirections else Flow.NEXT
        if words[0].text in _DECLARATIONS:
            for word in assignments:
                self.assign(word)
            return self.with_streams(streams, lambda: assign_words(self, words))
        values = [(value, word) for word in words for value in self.expander.fields(word.text, word.line)]
        if len(values) > MAX_WORDS:
            raise LimitError(f"a command has more than {MAX_WORDS} words")
        if not values:
            for word in assignments:
                self.assign(word)
            return Flow.NEXT
        extra: dict[str, Variable] = {}
        hidden: dict[str, Variable | None] = {}
        for word in assignments:
            name = (ASSIGNMENT.match(word.text) or [""])[0].split("=")[0].split("[")[0].rstrip("+")
            hidden.setdefault(name, self.state.variables.get(name))
            self.assign(word)
            extra[name] = self.state.variables[name]
        try:
            return self.with_streams(streams, lambda: self._dispatch(values, extra, raw, line, streams))
        finally:
            for name, variable in hidden.items():
                if variable is None:
                    self.state.variables.pop(name, None)
                else:
                    self.state.variables[name] = variable

    def _dispatch(
        self,
        values: list[tuple[Value, Raw]],
        extra: dict[str, Variable],
        raw: str,
        line: int,
        streams: Streams,
        *,
        itself: bool = False,
    ) -> Flow:
        """Read a command by its name, which is no function's behind ``command``."""
        name = text_of(values[0][0])
        if (
            name in {"command", "builtin", "time", "-p"}
            and len(values) > 1
            and not (text_of(values[1][0]) or "").startswith("-")
        ):
            return self._dispatch(
                values[1:], extra, raw, line, streams, itself=itself or name in {"command", "builtin"}
            )
        functions = None if itself else self.state.functions.get(name or "")
        if functions:
            branches: list[Branch] = [
                (
                    f"{name} is defined so",
                    lambda function=function: (
                        self._call(function, values, line)  # type: ignore[misc]
                        if function
                        else self._record(values, extra, raw, line)
                    ),
                )
                for function in functions
            ]
            return branches[0][1]() if len(branches) == 1 else self.fork(branches)
        arguments = [value for value, _ in values[1:]]
        if name == "exec" and arguments:
            self._start_or_record(values[1:], extra, raw, line)
            self.note_exit()
            return Flow.EXIT
        if name == "alias":
            self._record_query(values, extra, line)  # what it stands for is not followed
        if name in BUILTINS:
            return BUILTINS[name](self, arguments, line)
        if name in {"cat", "tee"}:
            return self._copy(name, arguments, raw, line)
        if name in FILTERS:
            texts = [text_of(value) for value in arguments]
            known = [text for text in texts if text is not None]
            stdin = None if self.stdin is None else text_of(self.stdin)
            output = run_filter(name, known, stdin) if len(known) == len(texts) else None
            self.state.status = None if output is None else True
            if output is None:
                self._record_query(values, extra, line)
            assumes = tuple(one for value in (*arguments, self.stdin or ()) for one in assumptions_of(value))
            self.emit(self.output_of(raw, line) if output is None else from_text(output, line, assumes))
            return Flow.NEXT
        if name in {"cd", "pushd", "popd"}:
            self._enter(name, arguments, line)
        elif (text := self.stand_in([value for value, _ in values])) is not None:
            return self.nested(text, line)
        return self._start_or_record(values, extra, raw, line)

    def _start_or_record(
        self, values: list[tuple[Value, Raw]], extra: dict[str, Variable], raw: str, line: int
    ) -> Flow:
        return Flow.NEXT if self.start(values, extra, line) else self._record(values, extra, raw, line)

    def _enter(self, name: str, arguments: list[Value], line: int) -> None:
        """Follow ``cd``, ``pushd`` and ``popd``."""
        here, stack = self.directory(), self.state.directories
        targets = [value for value in arguments if text_of(value) not in {"-L", "-P", "-e", "-@", "--"}]
        target = targets[0] if len(targets) == 1 else None
        if name == "popd" or (name == "pushd" and target is None):
            there = stack[-1] if stack and not targets else unknown("$PWD", line)
            stack = stack[:-1]
        elif target is None:
            there = unknown("$PWD" if targets else "$HOME", line)
        elif text_of(target) == "-":
            old = self.state.variables.get("OLDPWD")
            there = old.value if old is not None and old.value is not None else unknown("$OLDPWD", line)
        else:
            there = enter(here, target, line)
        self.state.directories = (*stack, here) if name == "pushd" else stack
        for variable, value in (("OLDPWD", here), ("PWD", there)):
            self.expander.parameters.assign(variable, None, value, line)

    def _copy(self, name: str, arguments: list[Value], raw: str, line: int) -> Flow:
        """``cat`` and ``tee``: pass on what is known of the input and of files the script wrote."""
        texts = [text_of(value) for value in arguments]
        paths = [text for text in texts if text is not None and (not text.startswith("-") or text == "-")]
        hidden = self.output_of(raw, line)
        stdin = self.stdin if self.stdin is not None else hidden
        if name == "tee":
            append = "-a" in texts
            for path in paths:
                self._write(path, stdin, append=append)
            self.emit(stdin)
        elif len(paths) != len(texts):
            self.emit(hidden)
        else:
            for path in paths or ["-"]:
                self.emit(stdin if path == "-" else self.state.files.get(path, hidden))
        known = all(path == "-" or path in self.state.files for path in paths) and len(paths) == len(texts)
        self.state.status = True if name == "tee" or known else None
        return Flow.NEXT

    def assign(self, word: Raw) -> None:
        """Set what an assignment sets."""
        match = ASSIGNMENT.match(word.text)
        if match is None:
            return
        name, subscript, plus = match.groups()
        rest = word.text[match.end() :]
        if rest.startswith("(") and rest.endswith(")") and subscript is None:
            self._assign_array(name, Raw(rest[1:-1], word.line), append=bool(plus))
            return
        value = self.expander.one(rest, word.line)
        key = self._key(name, subscript, word.line)
        if subscript is not None and key is None:
            self.expander.parameters.replace_array(
                name, {0: unknown(f"${{{name}[@]}}", word.line, many=True)}, word.line
            )
            return
        old = self.state.variables.get(name)
        integer = old is not None and old.integer
        if plus and not integer:
            found = self.expander.parameters.find(name, None if key is None else str(key), word.line)
            value = (*(found.values[0] if found.values else ()), *value)
            self.expander.check_length(value)
        if integer:
            text = text_of(value)
            text = f"{name}+({text})" if plus and text is not None else text
            number = None if text is None else self.expander.number(text, word.line)[0]
            value = unknown(f"${name}", word.line) if number is None else from_text(str(number), word.line)
        self.expander.parameters.assign(name, key, value, word.line)

    def _key(self, name: str, subscript: str | None, line: int) -> int | str | None:
        if subscript is None:
            return None
        if self.expander.parameters.is_associative(name):
            return text_of(self.expander.one(subscript[1:-1], line))
        return self.expander.number(subscript[1:-1], line)[0]

    def _assign_array(self, name: str, inside: Raw, *, append: bool) -> None:
        old = self.state.variables.get(name)
        elements: Versions[int | str, Value] = Versions()
        if append and old is not None:
            elements = old.copy_elements()
        elif append:
            elements = Versions({0: unknown(f"${{{name}[@]}}", inside.line, many=True, implicit=True)})
        associative = old is not None and old.associative
        place = 0 if associative else int(next(reversed(elements), -1)) + 1
        opened, in_order = append and (old is None or old.has_unknown_places), True
        for word in self.expander.elements(inside):
            match = re.match(r"\[((?:[^\]\"']|\"[^\"]*\"|'[^']*')+)\](\+?)=", word.text)
            if match:
                key = self._key(name, f"[{match[1]}]", word.line)
                if key is None or match[2]:
                    elements, opened = Versions({0: unknown(f"${{{name}[@]}}", word.line, many=True)}), True
                    break
                elements[key] = value = self.expander.one(word.text[match.end() :], word.line)
                opened, in_order = opened or is_many(value), False
                place = key + 1 if isinstance(key, int) else place
            elif associative:
                elements, opened = Versions({0: unknown(f"${{{name}[@]}}", word.line, many=True)}), True
                break
            else:
                for value in self.expander.fields(word.text, word.line):
                    elements[place] = value
                    opened = opened or is_many(value)
                    place += 1
        if not (associative or in_order):
            elements = Versions(dict(sorted(elements.items(), key=lambda item: int(item[0]))))
        self.expander.parameters.set_elements(name, elements, inside.line, opened=opened)

    def _call(self, function: Function, values: list[tuple[Value, Raw]], line: int) -> Flow:
        """Read a function's body with its arguments."""
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise LimitError(f"functions call one another more than {MAX_CALLS} deep")
        outer = self.state.arguments
        self.state.arguments = tuple(value for value, _ in values[1:])
        self.state.saved.append({})
        loops, self.loops = self.loops, 0
        flow = self.until_return(lambda: self.statement(function.body), line)
        self.loops = loops
        self.state.leave()
        self.state.arguments = outer
        self._calls -= 1
        return flow

    def evaluate_text(self, value: Value, line: int) -> Flow:
        """Read what ``eval`` is given."""
        before = len(self.commands)
        flow = self.evaluate_value(value, line)
        for n, command in enumerate(self.commands[before:], before):
            words = tuple(
                word if word.source.line == line else word._replace(source=word.source._replace(used=line))
                for word in command.words
            )
            self.commands[n] = command._replace(words=words, source=command.source._replace(line=line))
        return flow

    def evaluate_value(self, value: Value, line: int) -> Flow:
        """Read text that a shell is given; unknown parts of it are taken as words without quotes."""
        text, starts = "", [(0, line)]
        names: list[str] = []
        for n, piece in enumerate(value):
            if piece.line:
                starts.append((len(text), piece.line))
            if piece.text is None:
                name = _PLACEHOLDER.format(f"{line}_{n}")
                self.state.variables[name] = Variable((piece,), line=line)
                names.append(name)
                text += f"${{{name}}}"
            else:
                text += piece.text
        flow = self.nested(
            text, line, place=lambda offset: starts[bisect_right(starts, offset, key=itemgetter(0)) - 1][1]
        )
        for name in names if "(" not in text else ():  # a function that it defines keeps its words
            self.state.variables.pop(name, None)
        return flow

    def nested(
        self, text: str, line: int, arguments: Sequence[Value] = (), place: Callable[[int], int] | None = None
    ) -> Flow:
        """Read statements inside of a statement, with arguments of their own if any are given.

        Args:
            text: the statements.
            line: of the statement around them.
            arguments: theirs; none are those around them.
            place: gives the line of an offset in the text, where it was put together from several.
        """
        self._calls += 1
        outer = self.state.arguments
        self.state.arguments = tuple(arguments) or outer
        if self._calls > MAX_CALLS:
            raise LimitError(f"functions call one another more than {MAX_CALLS} deep")
        flow = self.run(Parser(text, self._calls, line, place).parse())
        self._calls -= 1
        if arguments:
            self.state.arguments = outer
        return flow

    def substitute(self, text: str, line: int, depth: int) -> Value:
        """Return the output of ``$( … )``; what any program prints in it is unknown."""
        written = f"$({' '.join(text.split())})"
        hidden = unknown(written if len(written) <= SHOWN else written[:SHOWN] + "…)", line)
        parsed = parse(text, line, depth)
        self._calls += 1
        if parsed.problems or self._calls > MAX_CALLS:
            self._calls -= 1
            self.skip(line, "$( … ) is not understood: what it runs is not known")
            return hidden
        sink, doubts = self.sink, self._sink_doubts
        querying, assumed, outer_line = self._querying, len(self.expander.assumed), self.line
        self._open_sink()
        self._querying = True
        flow = Flow.NEXT

        def read() -> Flow:
            nonlocal flow
            flow = self.run(parsed)
            return flow

        self.subshell(read, in_loops=True)
        output = tuple(self.sink or ())
        self.sink, self._sink_doubts, self._querying, self.line = sink, doubts, querying, outer_line
        self._calls -= 1
        del self.expander.assumed[assumed:]
        if any(piece.text is None and piece.name.startswith("$(") for piece in output) or self.state.status is None:
            return hidden if output or self.state.status is None else ()
        pieces = list(output)
        while pieces and pieces[-1].text is not None:
            last = pieces.pop()
            stripped = (last.text or "").rstrip("\n")
            if stripped:
                pieces.append(last._replace(text=stripped))
                break
        return tuple(piece._replace(line=piece.line or line, many=False) for piece in pieces)
