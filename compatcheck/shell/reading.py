"""The state of a reading: what was found, what rests on what, branches that are joined, and where output goes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from compatcheck.core.command import Command, Word
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.shell.conditions import Conditions
from compatcheck.shell.expand import Expander, compact
from compatcheck.shell.file_changes import changed_files, changes_unknown_file
from compatcheck.shell.flow import Flow
from compatcheck.shell.lexical import NAME, UnclosedError
from compatcheck.shell.limits import MAX_COMMANDS, MAX_STEPS, MAX_WORK, LimitError
from compatcheck.shell.parameters import NO_ARGUMENTS
from compatcheck.shell.state import State, Variable, join, join_unless
from compatcheck.shell.values import (
    Piece,
    Value,
    assumptions_of,
    drop,
    enter,
    from_text,
    is_many,
    known_end,
    line_of,
    names_of,
    show,
    text_of,
    unknown,
)
from compatcheck.shell.versions import Versions
from compatcheck.shell.wrappers import MAX_LAYERS, Layer, Shown, open_wrapper

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from compatcheck.shell.statements import HereDocument, Parsed, Raw, Redirection, Statement


class Streams(NamedTuple):
    """Where a command's output goes and its input comes from."""

    stdin: Value | None
    """None is unknown."""
    path: str | None = None
    """File that takes the output."""
    append: bool = False
    hidden: bool = False
    """Whether the output goes where nothing of the script reads it."""


Branch = tuple[str, Callable[[], Flow]]
"""A condition, as written, and what reads the statements under it."""
StandIn = Callable[[Sequence[str], Callable[[str], str | None]], str | None]
"""What shell text a command stands for, given its words and what variables hold."""
_TRUSTED = frozenset({"cd", "conda", "git", "mkdir", "module", "pip", "pip3", "popd", "pushd", "rm", "sleep"})
"""Commands whose failure is an accident rather than an answer: after ``cd x && …`` the script is read as if it went on."""
OpenFile = Callable[[str], "tuple[str, str] | None"]
"""Gives the path and the text of a file that a script names; None where it is not there."""
SPAN = 1 << 21
"""Lines are numbered through all files that a reading opens: those of the second one begin behind this number."""
SHOWN = 120
"""Characters of a condition or a command that are repeated in a report."""


class ScriptReading(ABC):
    """What every part of the evaluation shares."""

    def __init__(
        self,
        path: str,
        variables: Mapping[str, str],
        arguments: Iterable[str] | None,
        *,
        slurm: bool,
        assuming: bool,
        stand_in: StandIn | None,
    ) -> None:
        """Start in the environment and with the arguments that are given; see `read_script`."""
        self.paths = [path]
        self.called = variables.get("0")
        """What ``$0`` holds in the first file."""
        self.open_file: OpenFile | None = None
        self.reading = [path]
        """Files that are being read, each started or sourced by the one before it."""
        self.sourced = 0
        """Sourced files around the present statement, in the running shell."""
        self.prefix: list[tuple[Value, Raw]] = []
        """Launchers in front of the shell that is read: ``srun --nodes 2``."""
        self.assuming = assuming
        self._stand_in = stand_in
        self.state = State(
            Versions(
                {
                    **{
                        name: Variable(from_text(text, 0), exported=name != "0", line=0)
                        for name, text in variables.items()
                    },
                    # Bash sets these itself, whatever the environment says.
                    "IFS": Variable(from_text(" \t\n", 1)),
                    "OPTIND": Variable(from_text("1", 1)),
                }
            ),
            arguments=None if arguments is None else tuple(from_text(text, 0) for text in arguments),
        )
        self.commands: list[Command] = []
        self.queries: list[Command] = []
        """Commands run for their output, inside of ``$( … )``, or on a signal."""
        self.alternatives: list[Command] = []
        """Commands of ways that are left out because something is taken as not given from outside."""
        self.skipped: dict[tuple[int, str], Skipped] = {}
        self.assumptions: dict[str, int] = {}
        """What the reading rests on, and the line that first needed it."""
        self.expander = Expander(lambda: self.state, self.substitute, slurm=slurm)
        self.conditions = Conditions(self.expander)
        self.doubts: list[str] = []
        """Conditions, not known, under which the present statement runs."""
        self.jumps: list[tuple[Flow, State]] = []
        self.exits: list[tuple[State, list[Piece] | None, int]] | None = None
        """Where a subshell may have ended early: the state, where it prints to and how much it had; None outside of any."""
        """States in which a loop or function may have been left early."""
        self.stdin: Value | None = None
        self.sink: list[Piece] | None = None
        """What is printed, where something of the script reads it."""
        self.line = 1
        self.loops = 0
        """Loops around the present statement, in the running function."""
        self.levels = 0
        """Loops that ``break 2`` leaves besides the innermost."""
        self._outputs: dict[str, str] = {}
        self._known: tuple[Sequence[Value], tuple[str, ...] | None] = (), ()
        """Arguments whose words were asked for last, and these: a loop asks for them in every round."""
        self._words: dict[str, tuple[Variable, Word]] = {}
        """Variables as commands are given them, made once."""
        self._sink_doubts = 0
        """How many doubts there were when the output began to be read."""
        self._steps = 0
        self._calls = 0
        self._querying = False
        self._muted = False

    @property
    def effort(self) -> float:
        """How much of what is read of one script was read, by the limit that is nearest."""
        return max(len(self.commands) / MAX_COMMANDS, self._steps / MAX_STEPS, self.expander.done / MAX_WORK)

    # Statements --------------------------------------------------------------------------------------------------

    @abstractmethod
    def run(self, parsed: Parsed) -> Flow:
        """Read all statements of a text."""

    @abstractmethod
    def statements(self, statements: Sequence[Statement]) -> Flow:
        """Read statements one after another."""

    @abstractmethod
    def statement(self, statement: Statement) -> Flow:
        """Read one statement."""

    @abstractmethod
    def substitute(self, text: str, line: int, depth: int) -> Value:
        """Return the output of ``$( … )``."""

    @abstractmethod
    def nested(self, text: str, line: int, arguments: Sequence[Value] = ()) -> Flow:
        """Read statements inside of a statement, with arguments of their own if any are given."""

    @abstractmethod
    def evaluate_value(self, value: Value, line: int) -> Flow:
        """Read text that a shell is given, in pieces."""

    @abstractmethod
    def source_file(self, file: Value, arguments: Sequence[Value], line: int) -> Flow | None:
        """Read a file that is sourced; None where it could not be."""

    @abstractmethod
    def evaluate_text(self, value: Value, line: int) -> Flow:
        """Read what ``eval`` is given."""

    @abstractmethod
    def assign(self, word: Raw) -> None:
        """Set what an assignment sets."""

    def stand_in(self, values: Sequence[Value]) -> str | None:
        """Return the shell text that a command stands for, as far as the caller knows."""
        words = [text_of(value) for value in values]
        if self._stand_in is None or None in words:
            return None
        return self._stand_in([word for word in words if word is not None], self.look_up)

    def look_up(self, name: str) -> str | None:
        """Return what a variable holds, None where that is not known."""
        variable = self.state.variables.get(name)
        return None if variable is None or variable.value is None else text_of(variable.value)

    def directory(self) -> Value:
        """Return where the script is, with the name of what is not known of it."""
        variable = self.state.variables.get("PWD")
        return unknown("$PWD", 0) if variable is None or variable.value is None else variable.value

    def known_words(self, values: Sequence[Value]) -> tuple[str, ...] | None:
        """Return the texts of values, None where one is not known or may be several."""
        if self._known[0] is not values:
            texts = tuple(text for value in values if (text := text_of(value)) is not None and not is_many(value))
            self._known = values, texts if len(texts) == len(values) else None
        return self._known[1]

    def skip(
        self, line: int, reason: str, hint: str | None = None, *, by_run: bool = False, passes: bool = False
    ) -> None:
        """Note a part of the script that is not read; ``passes`` where it is another file, which lies elsewhere."""
        if not self._muted:
            entry = Skipped(self.source(line), reason, hint, by_run=by_run, passes=passes)
            self.skipped.setdefault((line, reason), entry)

    def source(self, line: int, used: int | None = None) -> Source:
        """Return the place of a line, with that of its use in the same file."""
        file, at = divmod(line, SPAN)
        return Source(self.paths[file], None, at, None if used is None or used == line else used % SPAN)

    def decide(
        self,
        status: bool | None,  # noqa: FBT001 (three values)
        mark: int,
        yes: Callable[[], Flow],
        no: Callable[[], Flow],
        condition: tuple[str, str],
    ) -> Flow:
        """Go the way a condition leads, or both where it is not known.

        Args:
            status: the condition.
            mark: how much was assumed before it was evaluated.
            yes: reads what runs if it holds.
            no: reads what runs otherwise.
            condition: it and its opposite, as written.
        """
        branches: list[Branch] = [(condition[0], yes), (condition[1], no)]
        if status is None:
            return self.fork(branches)
        assumed = self.expander.assumed[mark:]
        if not assumed:
            return yes() if status else no()
        if not self.assuming:
            return self.fork(branches)
        before = self.state.copy(), len(self.commands), len(self.queries), len(self.jumps), len(self.doubts)
        flow = yes() if status else no()
        outside = self.expander.outside.intersection(assumed)
        if flow is not Flow.NEXT:
            # Whoever starts the script gives what it asks for: `if [ -z "$1" ]; then usage; exit 1; fi`.
            self.state, commands, queries, jumps, doubts = before
            del self.commands[commands:], self.queries[queries:], self.jumps[jumps:], self.doubts[doubts:]
            return self.fork(branches)
        self._assume(assumed)
        self.leave_open(before[0], branches[1 if status else 0], outside or assumed, joins=bool(outside))
        return flow

    def leave_open(self, before: State, other_way: Branch, absent: Collection[str], *, joins: bool = True) -> None:
        """Leave open what the way does that is not gone because something is taken as not given from outside.

        Args:
            before: the state that way starts in.
            other_way: its condition, and what reads it; its commands are alternatives to those of the script.
            absent: what is taken as not given.
            joins: whether what that way sets is left open, too: the script says no value for what is not given.
        """
        condition, read = other_way
        names = {one[1:].partition(" ")[0] if one[0] == "$" else "@" for one in absent}
        taken, sink, line, muted = self.state, self.sink, self.line, self._muted
        found = self.commands, self.queries, self.jumps, self.doubts, self.expander.assumed
        marks = [len(one) for one in found]
        self.doubts.append(condition)
        given = {name: Variable(unknown(f"${name}", line), line=line) for name in names if NAME.fullmatch(name)}
        before.variables.update((name, one) for name, one in given.items() if name not in before.variables)
        defaults = self.expander.parameters.resting_on(absent)
        self.expander.work(4 * len(defaults))
        self.state, self.sink, self._muted = before, None if sink is None else [], True
        for name in defaults:  # they give way to what is given
            variable = before.variables.get(name)
            if variable and not set(assumptions_of(variable.value or ())).isdisjoint(absent):
                before.variables[name] = variable._replace(value=unknown(f"${name}", line))
        if before.arguments is None and len(given) < len(names):
            before.arguments = (unknown("$@", line, many=True),)
        try:
            flow = read()
        finally:
            self._muted = muted  # a limit that is met in it is said
        other, printed = self.state, self.sink
        self.state, self.sink, self.line = taken, sink, line
        self.alternatives += (*self.commands[marks[0] :], *self.queries[marks[1] :])
        for one, mark in zip(found, marks, strict=True):
            del one[mark:]  # type: ignore[attr-defined]
        if len(self.alternatives) > MAX_COMMANDS:
            raise LimitError(f"more than {MAX_COMMANDS} commands may be run")
        if joins and flow is not Flow.EXIT:
            self.state = join_unless(taken, other, absent, names, line)
            if printed:
                self.emit(unknown("$(…)", line))

    def _assume(self, assumed: Iterable[str]) -> None:
        if not self._muted:
            for one in assumed:
                self.assumptions.setdefault(one, self.line)

    def fork(self, branches: list[Branch]) -> Flow:
        """Read every branch in a state of its own, and join what they leave."""
        before, depth, line = self.state, len(self.doubts), self.line
        ends: list[tuple[Flow, State]] = []
        reasons: list[str] = []
        for condition, read in branches:
            self.state = before.copy()
            self.doubts.append(condition)
            flow = read()
            del self.doubts[depth:]
            ends.append((flow, self.state))
            if flow is not Flow.NEXT:
                reasons.append(condition)
        live = [state for flow, state in ends if flow is Flow.NEXT]
        left = [(flow, state) for flow, state in ends if flow not in {Flow.NEXT, Flow.EXIT}]
        if live:
            self.state = join(live, line)
            self.jumps.extend(left)
            if left:
                self.doubts.extend(f"not ({reason})" for reason in reasons)
            return Flow.NEXT
        if left:
            flow = left[0][0]
            self.state = join([state for one, state in left if one is flow], line)
            self.jumps.extend((one, state) for one, state in left if one is not flow)
            return flow
        self.state = ends[0][1]
        return Flow.EXIT

    def subshell(self, read: Callable[[], Flow], *, in_loops: bool = False) -> Flow:
        """Read statements that change nothing but files.

        Args:
            read: reads them.
            in_loops: whether ``break`` knows of the loops around them: bash lets it in a command substitution alone.
        """
        outer, jumps, depth, loops, exits = self.state, len(self.jumps), len(self.doubts), self.loops, self.exits
        self.state, self.exits = outer.copy(), []
        self.loops = loops if in_loops else 0
        flow = read()
        ended = [*(state for state, _, _ in self.exits), *(state for _, state in self.jumps[jumps:])]
        printed = [length for _, sink, length in self.exits if sink is self.sink]
        self.loops, self.exits = loops, exits
        del self.jumps[jumps:], self.doubts[depth:]
        outer.files = join([self.state, *ended], self.line).files
        outer.status = self.state.status if flow is Flow.NEXT and not ended else None
        self.state = outer
        if self.sink is not None and printed and len(self.sink) > min(printed):
            self.sink[min(printed) :] = unknown("$(…)", self.line)
        return Flow.NEXT

    def note_exit(self) -> None:
        """Keep what a subshell leaves where it ends here."""
        if self.exits is not None:
            self.exits.append((self.state.copy(), self.sink, len(self.sink or ())))

    def aside(self, read: Callable[[], Flow]) -> None:
        """Read statements that are no step of the script: what they run counts as a query."""
        querying, self._querying = self._querying, True
        self.subshell(read)
        self._querying = querying

    # Streams -----------------------------------------------------------------------------------------------------

    def _streams(self, redirections: Sequence[Redirection]) -> Streams:
        stdin, path, append, hidden = self.stdin, None, False, False
        for one in redirections:
            operator, line = one.operator, one.target.line
            if one.document is not None:
                stdin = self._document(one.document)
            elif operator == "<<<":
                stdin = (*self.expander.one(one.target.text, line), Piece("\n", line))
            elif operator == "<" and one.descriptor in {None, 0}:
                stdin = self._input(one.target)
            elif operator in {">", ">>", ">|", "&>", "&>>", ">&"} and (one.descriptor in {None, 1}):
                name = text_of(self.expander.one(one.target.text, line)) or ""
                if operator == ">&" and (name.isdigit() or name == "-"):
                    hidden, path = hidden or name != "1", None if name != "1" else path
                else:
                    hidden, path, append = True, name or None, operator.endswith(">>")
        return Streams(stdin, path, append, hidden)

    def _input(self, target: Raw) -> Value | None:
        if target.text.startswith("<("):
            value = self.substitute(target.text[2:-1], target.line, self.expander.depth + 1)
            return (*value, Piece("\n", target.line)) if value else value
        path = text_of(self.expander.one(target.text, target.line))
        if path == "/dev/null":
            return ()
        return self.state.files.get(path or "", unknown(f"$(<{target.text})", target.line))

    def _document(self, document: HereDocument) -> Value:
        if document.literal:
            lines = document.text.splitlines(keepends=True)
            return tuple(Piece(text, document.line + n) for n, text in enumerate(lines))
        try:
            return self.expander.document(document.text, document.line)
        except UnclosedError as error:
            self.skip(document.line, f"is not understood: {error}")
            return unknown("a here-document", document.line)

    def with_streams(self, streams: Streams, read: Callable[[], Flow]) -> Flow:
        """Read a statement whose input and output are redirected."""
        stdin, sink, doubts = self.stdin, self.sink, self._sink_doubts
        self.stdin = streams.stdin
        if streams.hidden:
            self._open_sink()
        flow = read()
        if streams.path is not None and streams.path != "/dev/null":
            self._write(streams.path, compact(tuple(self.sink or ())), append=streams.append)
        self.stdin, self.sink, self._sink_doubts = stdin, sink, doubts
        return flow

    def _open_sink(self) -> None:
        self.sink, self._sink_doubts = [], len(self.doubts)

    def _write(self, path: str, value: Value, *, append: bool) -> None:
        if path == "/dev/null":
            return
        if append:
            value = (*self.state.files.get(path, unknown(f"content of {path}", self.line)), *value)
        self.expander.check_length(value)
        self.state.files[path] = value

    def emit(self, value: Value) -> None:
        """Print where something of the script reads it."""
        if self.sink is not None:
            # What only one way prints is unknown.
            self.sink.extend(value if len(self.doubts) <= self._sink_doubts else unknown("$(…)", self.line))

    # Commands ----------------------------------------------------------------------------------------------------

    def word(self, value: Value, raw: Raw | None, line: int) -> Word:
        """Make a word of the report."""
        text = text_of(value)
        written = raw.text if raw is not None and text is not None else show(value)
        at = line_of(value, line)
        if text is not None:  # the part that was written elsewhere: `8` of `n=$N`
            at = next((piece.line for piece in reversed(value) if piece.text and piece.line not in {0, line}), at)
        if at // SPAN != line // SPAN:  # a document's keys stand in its own file
            at = line
        return Word(
            text,
            self.source(at, line),
            written,
            names_of(value),
            is_many(value),
            assumptions_of(value),
            tuple(tuple(self.word(one, None, line) for one in choice) for choice in value[0].choices)
            if len(value) == 1
            else (),
        )

    def output_of(self, raw: str, line: int) -> Value:
        """Return what a command prints that is not known, as it is written: once for all rounds of a loop."""
        return unknown(self._outputs.setdefault(raw, f"$({raw})"), line)

    def _exported(self, extra: dict[str, Variable]) -> dict[str, Word]:
        """Return what a command finds in its environment; every shell makes its own ``PWD``."""
        result: dict[str, Word] = {}
        for name, one in (*self.state.variables.items(), *extra.items()):
            if (one.exported or name in extra) and one.value is not None and one.elements is None and name != "PWD":
                known = self._words.get(name)
                if known is None or known[0] is not one:
                    known = self._words[name] = one, self.word(one.value, None, one.line)
                result[name] = known[1]
        return result

    def _command(self, values: list[tuple[Value, Raw]], extra: dict[str, Variable], line: int) -> Command:
        directory = known_end(self._entered([value for value, _ in values], line))
        values = [*((value, raw._replace(line=line)) for value, raw in self.prefix), *values]
        counts: dict[Raw, int] = {}
        for _, raw in values:
            counts[raw] = counts.get(raw, 0) + 1
        words = tuple(
            self.word(value, raw if counts[raw] == 1 else None, raw.line)
            for n, (value, raw) in enumerate(values)
            if not n or not self._are_left_out(value)
        )
        if len(words) < len(values):
            words = (words[0]._replace(assumes=tuple(dict.fromkeys((*words[0].assumes, NO_ARGUMENTS)))), *words[1:])
        condition = " and ".join(dict.fromkeys(self.doubts)) or None
        stdin = None if self.stdin is None else self.word(self.stdin, None, line)
        variables, source = self._exported(extra), self.source(line)
        files = self._name_written(words)
        return Command(words, variables, source, not self.doubts, condition, stdin, files, directory)

    def _entered(self, rest: list[Value], line: int) -> Value:
        """Return where a command starts that may stand behind wrappers."""
        here, layers = self.directory(), 0
        while layer := open_wrapper([Shown(show(value), text_of(value) is not None) for value in rest]):
            here = self.enter_layer(here, layer, rest, line)
            rest, layers = rest[layer.start :], layers + 1
            if layers > MAX_LAYERS or layer.is_module:
                break
        return here

    @staticmethod
    def enter_layer(here: Value, layer: Layer, rest: Sequence[Value], line: int) -> Value:
        """Return where a wrapper starts its inner command: another machine has directories of its own."""
        here = unknown("$PWD", line) if layer.wrapper.says("elsewhere") else here
        for part in layer.given("enters"):
            here = enter(here, drop(rest[part.place], part.offset), line)
        return here

    def _name_written(self, words: tuple[Word, ...]) -> dict[str, Word]:
        """Return what the files hold by now that the script has written and a command names: it may write them anew."""
        files = self.state.files
        found: dict[str, Word] = {}
        for text in [word.text for word in words if word.text] if files else ():
            for name in dict.fromkeys((text, text.rpartition("=")[2])):
                path = os.path.normpath(name)
                value = next((value for one in (name, path, f"./{path}") if (value := files.get(one))), None)
                if name and value is not None:
                    found[path] = self.word(value, None, 1)
        return found

    def _are_left_out(self, value: Value) -> bool:
        """Tell whether a word is ``"$@"`` of a script that nobody said is given any arguments."""
        return (
            self.assuming and is_many(value) and all(piece.implicit and piece.name in {"$@", "$*"} for piece in value)
        )

    def _record_query(self, values: list[tuple[Value, Raw]], extra: dict[str, Variable], line: int) -> None:
        if len(self.queries) < MAX_COMMANDS:
            self.queries.append(self._command(values, extra, line))

    def _record(self, values: list[tuple[Value, Raw]], extra: dict[str, Variable], raw: str, line: int) -> Flow:
        if len(self.commands) >= MAX_COMMANDS:
            raise LimitError(f"more than {MAX_COMMANDS} commands are run")
        if self._querying:
            self._record_query(values, extra, line)
        else:
            self.commands.append(self._command(values, extra, line))
        texts = [text_of(value) for value, _ in values]
        for path in changed_files(texts[0] or "", texts[1:], None if self.stdin is None else text_of(self.stdin)):
            self._write(path, unknown(f"content of {path}", line), append=False)
        if changes_unknown_file(texts[0] or "", texts[1:]):
            self.skip(line, "edits a file whose name is not known: every file is read as it lies there", passes=True)
        if texts[0] != "cd" or texts[1:] == ["-"]:
            self.emit(self.output_of(raw, line))
        self.state.status = True if self.assuming and texts[0] in _TRUSTED else None
        return Flow.NEXT
