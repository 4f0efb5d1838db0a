"""What a script does, statement by statement: the state it builds and the commands it would run, none of which is run.

A condition that is not known forks the state: every way is read, its commands are not certain, and what the ways leave
different is unknown afterwards. A way that ends the script leaves nothing behind: the script is read as one that goes on.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.configs.shell.builtins import BUILTINS, TRUSTED, assign_words
from compatcheck.configs.shell.conditions import Conditions
from compatcheck.configs.shell.expand import Expander, compact
from compatcheck.configs.shell.filters import FILTERS, run_filter
from compatcheck.configs.shell.flow import Flow
from compatcheck.configs.shell.grammar import Unit
from compatcheck.configs.shell.lexical import ASSIGNMENT, Lexer, UnclosedError
from compatcheck.configs.shell.limits import MAX_CALLS, MAX_COMMANDS, MAX_ITERATIONS, MAX_STEPS, MAX_WORDS, LimitError
from compatcheck.configs.shell.parameters import NO_ARGUMENTS
from compatcheck.configs.shell.patterns import PatternError, translate
from compatcheck.configs.shell.state import Function, State, Variable, join
from compatcheck.configs.shell.values import (
    Piece,
    Value,
    assumptions_of,
    from_text,
    is_many,
    line_of,
    names_of,
    show,
    text_of,
    unknown,
)
from compatcheck.configs.shell.words import Raw, Redirection, Simple, read_redirections, read_simple
from compatcheck.core.command import Command, Word
from compatcheck.core.source import Skipped, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tree_sitter import Node


class Streams(NamedTuple):
    """Where a command's output goes and its input comes from."""

    stdin: Value | None
    """None is unknown."""
    path: str | None = None
    """File that takes the output."""
    append: bool = False
    hidden: bool = False
    """Whether the output goes where nothing of the script reads it."""


_Branch = tuple[str, "Callable[[], Flow]"]
_PLACEHOLDER = "__unresolved_{}"
_SHOWN = 120


class Evaluator:
    """Read one script."""

    def __init__(
        self, path: str, variables: Mapping[str, str], arguments: Iterable[str] | None, *, slurm: bool
    ) -> None:
        """Start in the environment and with the arguments that are given."""
        self.path = path
        self.state = State(
            variables={
                **{name: Variable(from_text(text, 1), exported=True) for name, text in variables.items()},
                # Bash sets these itself, whatever the environment says.
                "IFS": Variable(from_text(" \t\n", 1)),
                "OPTIND": Variable(from_text("1", 1)),
            },
            arguments=None if arguments is None else tuple(from_text(text, 1) for text in arguments),
        )
        self.commands: list[Command] = []
        self.queries: list[Command] = []
        """Commands run for their output, inside of ``$( … )``."""
        self.skipped: dict[tuple[int, str], Skipped] = {}
        self.assumptions: dict[str, int] = {}
        """What the reading rests on, and the line that first needed it."""
        self.expander = Expander(lambda: self.state, self.substitute, slurm=slurm)
        self.conditions = Conditions(self.expander)
        self.doubts: list[str] = []
        """Conditions, not known, under which the present statement runs."""
        self.jumps: list[tuple[Flow, State]] = []
        """States in which a loop or function may have been left early."""
        self.stdin: Value | None = None
        self.sink: list[Piece] | None = None
        """What is printed, where something of the script reads it."""
        self.line = 1
        self.levels = 0
        """Loops that ``break 2`` leaves besides the innermost."""
        self._sink_doubts = 0
        """How many doubts there were when the output began to be read."""
        self._steps = 0
        self._calls = 0
        self._querying = False
        self._muted = False

    # Statements --------------------------------------------------------------------------------------------------

    def skip(self, line: int, reason: str, hint: str | None = None) -> None:
        """Note a part of the script that is not read."""
        if not self._muted:
            self.skipped.setdefault((line, reason), Skipped(Source(self.path, None, line), reason, hint))

    def run(self, unit: Unit) -> Flow:
        """Read all statements of a text."""
        for problem in unit.problems:
            self.skip(problem.line, problem.reason, "check it: bash -n names the line too")
        nodes = unit.root.children
        if unit.cut:
            named = [n for n, node in enumerate(nodes) if node.is_named]
            nodes = nodes[: named[-1]] if named else []
        return self.statements(unit, nodes)

    def statements(self, unit: Unit, nodes: list[Node]) -> Flow:
        """Read statements one after another."""
        for node, following in zip_longest(nodes, nodes[1:]):
            if not node.is_named or node.type in {"comment", "variable_name"}:
                continue
            if node.type != "ERROR" and (node.has_error or node.end_byte > unit.doubtful):
                self._doubt(f"line {unit.line(min(node.start_byte, unit.doubtful))} is understood")
            if following is not None and following.type == "&":
                self.subshell(lambda node=node: self.statement(unit, node))  # type: ignore[misc]
                self.state.status = True
            else:
                flow = self.statement(unit, node)
                if flow is not Flow.NEXT:
                    return flow
        return Flow.NEXT

    def _doubt(self, condition: str) -> None:
        if condition not in self.doubts:
            self.doubts.append(condition)

    def statement(self, unit: Unit, node: Node) -> Flow:
        """Read one statement, with the redirections behind it."""
        if node.type in _COMPOUND and (redirections := read_redirections(unit, node.end_byte)):
            return self.with_streams(self._streams(redirections), lambda: self._statement(unit, node))
        return self._statement(unit, node)

    def _statement(self, unit: Unit, node: Node) -> Flow:  # noqa: PLR0911 (one return per kind of statement)
        self._steps += 1
        self.line = unit.line(node.start_byte)
        if self._steps > MAX_STEPS:
            raise LimitError(f"more than {MAX_STEPS} statements are run")
        match node.type:
            case "list":
                return self._list(unit, node)
            case "pipeline":
                return self._pipeline(unit, node)
            case "negated_command":
                flow = self.statements(unit, node.children[1:])
                status = self.state.status
                self.state.status = None if status is None else not status
                return flow
            case "if_statement":
                return self._if(unit, node.children, node)
            case "for_statement":
                return self._for(unit, node)
            case "while_statement":
                return self._while(unit, node)
            case "case_statement":
                return self._case(unit, node)
            case "subshell":
                return self.subshell(lambda: self.statements(unit, node.children))
            case "compound_statement" | "do_group" | "program" | "ERROR":
                return self.statements(unit, node.children)
            case "function_definition":
                return self._define(unit, node)
            case _:
                return self.simple(unit, node)

    def _define(self, unit: Unit, node: Node) -> Flow:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.state.functions[unit.written(name)] = (Function(unit, body),)
        self.state.status = True
        return Flow.NEXT

    def _condition(self, unit: Unit, nodes: Iterable[Node]) -> str:
        written = " ".join("; ".join(unit.written(node) for node in nodes if node.is_named).split())
        return written if len(written) <= _SHOWN else written[:_SHOWN] + "…"

    def _list(self, unit: Unit, node: Node) -> Flow:
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        mark = len(self.expander.assumed)
        flow = self.statement(unit, left)
        if flow is not Flow.NEXT:
            return flow
        wanted = operator == "&&"
        status = self.state.status if wanted or self.state.status is None else not self.state.status

        def leave() -> Flow:
            self.state.status = not wanted
            return Flow.NEXT

        written = self._condition(unit, [left])
        condition = (written, f"not ({written})") if wanted else (f"not ({written})", written)
        return self.decide(status, mark, lambda: self.statement(unit, right), leave, condition)

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
        branches: list[_Branch] = [(condition[0], yes), (condition[1], no)]
        if status is None:
            return self.fork(branches)
        assumed = self.expander.assumed[mark:]
        if not assumed:
            return yes() if status else no()
        before = self.state.copy(), len(self.commands), len(self.queries), len(self.jumps), len(self.doubts)
        flow = yes() if status else no()
        if flow is Flow.EXIT:
            # Whoever starts the script gives what it asks for: `if [ -z "$1" ]; then usage; exit 1; fi`.
            self.state, commands, queries, jumps, doubts = before
            del self.commands[commands:], self.queries[queries:], self.jumps[jumps:], self.doubts[doubts:]
            return self.fork(branches)
        self._assume(assumed)
        return flow

    def _assume(self, assumed: Iterable[str]) -> None:
        if not self._muted:
            for one in assumed:
                self.assumptions.setdefault(one, self.line)

    def fork(self, branches: list[_Branch]) -> Flow:
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

    def subshell(self, read: Callable[[], Flow]) -> Flow:
        """Read statements that change nothing but files."""
        outer, jumps, depth = self.state, len(self.jumps), len(self.doubts)
        self.state = outer.copy()
        flow = read()
        del self.jumps[jumps:], self.doubts[depth:]
        outer.files = self.state.files
        outer.status = self.state.status if flow is Flow.NEXT else None
        self.state = outer
        return Flow.NEXT

    def _pipeline(self, unit: Unit, node: Node) -> Flow:
        parts = [child for child in node.children if child.is_named]
        sink, stdin, doubts = self.sink, self.stdin, self._sink_doubts
        for part in parts[:-1]:
            self._open_sink()
            self.subshell(lambda part=part: self.statement(unit, part))  # type: ignore[misc]
            self.stdin = compact(tuple(self.sink or ()))
        self.sink, self._sink_doubts = sink, doubts
        self.subshell(lambda: self.statement(unit, parts[-1]))
        self.stdin = stdin
        return Flow.NEXT

    def _if(self, unit: Unit, nodes: list[Node], node: Node) -> Flow:
        """Read ``if`` or ``elif``: condition, ``then``, statements, and what follows them."""
        kinds = [child.type for child in nodes]
        then = kinds.index("then") if "then" in kinds else len(nodes)
        rest = next((n for n, kind in enumerate(kinds) if kind in {"elif_clause", "else_clause"}), len(nodes))
        condition = [child for child in nodes[1:then] if child.is_named]
        mark = len(self.expander.assumed)
        flow = self.statements(unit, nodes[1:then])
        if flow is not Flow.NEXT:
            return flow

        def otherwise() -> Flow:
            if rest == len(nodes):
                self.state.status = True
                return Flow.NEXT
            clause = nodes[rest]
            if clause.type == "else_clause":
                return self.statements(unit, clause.children[1:])
            return self._if(unit, [*clause.children, *nodes[rest + 1 :]], node)

        written = self._condition(unit, condition)
        return self.decide(
            self.state.status,
            mark,
            lambda: self.statements(unit, nodes[then + 1 : rest]),
            otherwise,
            (written, f"not ({written})"),
        )

    # Loops -------------------------------------------------------------------------------------------------------

    def _for(self, unit: Unit, node: Node) -> Flow:
        body, variable = node.child_by_field_name("body"), node.child_by_field_name("variable")
        if body is None or variable is None:
            return Flow.NEXT
        if unit.text.startswith("((", variable.start_byte):
            return self._count(unit, unit.text[variable.start_byte : body.start_byte], body)
        name, line = unit.written(variable), unit.line(variable.start_byte)
        values = [child for n, child in enumerate(node.children) if node.field_name_for_child(n) == "value"]
        if any(child.type == "in" for child in node.children):
            words = read_simple(unit, values[0].start_byte, values[-1].end_byte).words if values else []
            items = [item for word in words for item in self.expander.fields(word.text, word.line)]
        else:
            items = self.expander.fields('"$@"', line)

        def read() -> Flow:
            return self.statement(unit, body)

        if any(is_many(item) for item in items):
            hidden = [piece for item in items for piece in item if piece.many]
            if all(piece.name in {"$@", "$*"} and piece.implicit for piece in hidden):
                self._assume([NO_ARGUMENTS])
                items = [item for item in items if not is_many(item)]
            else:
                self.expander.parameters.assign(name, None, unknown(f"${name}", line), line)
                return self._widen(read, f"for {name} in {' '.join(show(item) for item in items)}"[:_SHOWN], keep=name)
        mark, depth = len(self.jumps), len(self.doubts)
        if len(items) > MAX_ITERATIONS:
            raise LimitError(f"a loop has more than {MAX_ITERATIONS} rounds")
        for item in items:
            self.expander.parameters.assign(name, None, item, line)
            flow = self._round(read, mark)
            if flow is not None:
                return self._end_loop(mark, depth, flow)
        return self._end_loop(mark, depth, Flow.NEXT)

    def _round(self, read: Callable[[], Flow], mark: int) -> Flow | None:
        """Read a loop's body once; return how the loop ends, None if it goes on."""
        stdin, self.stdin = self.stdin, None
        flow = read()
        self.stdin = stdin
        again = [state for kind, state in self.jumps[mark:] if kind is Flow.CONTINUE]
        self.jumps[mark:] = [jump for jump in self.jumps[mark:] if jump[0] is not Flow.CONTINUE]
        if flow is Flow.NEXT or (flow is Flow.CONTINUE and not self.levels):
            self.state = join([self.state, *again], self.line)
            return None
        if again:
            self.jumps.append((flow, self.state)) if flow is not Flow.EXIT else None
            self.state = join(again, self.line)
            return None
        return flow

    def _end_loop(self, mark: int, depth: int, flow: Flow) -> Flow:
        """Leave a loop: join the states of every ``break`` that may have been taken."""
        broken = [state for kind, state in self.jumps[mark:] if kind is Flow.BREAK]
        self.jumps[mark:] = [jump for jump in self.jumps[mark:] if jump[0] is not Flow.BREAK]
        returned = any(kind is Flow.RETURN for kind, _ in self.jumps[mark:])
        if not returned:
            del self.doubts[depth:]
        if flow in {Flow.BREAK, Flow.CONTINUE} and self.levels:
            self.levels -= 1
            return flow
        if flow in {Flow.NEXT, Flow.BREAK}:
            self.state = join([self.state, *broken], self.line)
            return Flow.NEXT
        if broken:
            if flow is Flow.RETURN:
                self.jumps.append((flow, self.state))
            self.state = join(broken, self.line)
            return Flow.NEXT
        return flow

    def _count(self, unit: Unit, header: str, body: Node) -> Flow:
        """Read ``for ((start; condition; step))``."""
        inside = header.strip().rstrip(";").strip()[2:-2]
        parts = inside.split(";")
        line = self.line
        if len(parts) != 3:
            return self._widen(lambda: self.statement(unit, body), f"for (({inside}))")
        start, condition, step = parts
        self.expander.number(start, line)
        mark, depth = len(self.jumps), len(self.doubts)
        for _ in range(MAX_ITERATIONS):
            number, _, _ = self.expander.number(condition, line) if condition.strip() else (1, (), ())
            if number == 0:
                return self._end_loop(mark, depth, Flow.NEXT)
            if number is None or any(kind is Flow.BREAK for kind, _ in self.jumps[mark:]):
                break
            flow = self._round(lambda: self.statement(unit, body), mark)
            if flow is not None:
                return self._end_loop(mark, depth, flow)
            self.expander.number(step, line)

        def read() -> Flow:
            flow = self.statement(unit, body)
            self.expander.number(step, line)
            return flow

        flow = self._widen(read, f"(({condition.strip()}))")
        return self._end_loop(mark, depth, flow)

    def _while(self, unit: Unit, node: Node) -> Flow:
        body = node.child_by_field_name("body")
        if body is None:
            return Flow.NEXT
        until = node.children[0].type == "until"
        tests = [child for n, child in enumerate(node.children) if node.field_name_for_child(n) == "condition"]
        written = self._condition(unit, tests)
        mark, depth = len(self.jumps), len(self.doubts)
        for _ in range(MAX_ITERATIONS):
            assumed = len(self.expander.assumed)
            stdin, self.stdin = self.stdin, None
            before = self.state.copy()
            flow = self.statements(unit, tests)
            self.stdin = stdin
            if flow is not Flow.NEXT:
                return self._end_loop(mark, depth, flow)
            status = self.state.status
            if status is None and self.state.arguments is None and re.search(r"\$\{?[#1@*]|getopts", written):
                self._assume([NO_ARGUMENTS])
                self.state = before
                return self._end_loop(mark, depth, Flow.NEXT)
            if status is not None and status == until:
                self._assume(self.expander.assumed[assumed:])
                return self._end_loop(mark, depth, Flow.NEXT)
            if status is None or any(kind is Flow.BREAK for kind, _ in self.jumps[mark:]):
                break
            ending = self._round(lambda: self.statement(unit, body), mark)
            if ending is not None:
                return self._end_loop(mark, depth, ending)
            if self.state == before and not any(kind is Flow.BREAK for kind, _ in self.jumps[mark:]):
                return self._end_loop(mark, depth, Flow.EXIT)  # it never ends

        def read() -> Flow:
            flow = self.statements(unit, tests)
            return self.statement(unit, body) if flow is Flow.NEXT else flow

        flow = self._widen(read, written if not until else f"not ({written})")
        return self._end_loop(mark, depth, flow)

    def _widen(self, read: Callable[[], Flow], condition: str, keep: str = "") -> Flow:
        """Read a loop's body once for any of its rounds: what a round changes is unknown before it and after."""
        for _ in range(_TRIALS):
            trial, counts = (
                self.state.copy(),
                (len(self.commands), len(self.queries), len(self.jumps), len(self.doubts)),
            )
            before, muted, self._muted = self.state, self._muted, True
            self.state = trial
            flow = self._round(read, counts[2])
            after = join([before, self.state, *(state for _, state in self.jumps[counts[2] :])], self.line)
            if flow is Flow.EXIT:
                after = before
            self.state, self._muted = before, muted
            del self.commands[counts[0] :], self.queries[counts[1] :], self.jumps[counts[2] :], self.doubts[counts[3] :]
            changed = [
                name
                for name, variable in after.variables.items()
                if before.variables.get(name) != variable and name != keep
            ]
            if before.arguments != after.arguments:
                changed.append("@")
            before.arguments = after.arguments
            for name in changed:
                if name in after.variables:
                    before.variables[name] = after.variables[name]
            before.functions, before.files, before.foreign = after.functions, after.files, after.foreign
            if not changed:
                break
        entry = self.state.copy()
        mark, depth = len(self.jumps), len(self.doubts)
        self.doubts.append(condition)
        flow = self._round(read, mark)
        del self.doubts[depth:]
        if flow is Flow.RETURN:
            self.jumps.append((Flow.RETURN, self.state))
        broken = [state for kind, state in self.jumps[mark:] if kind is Flow.BREAK]
        self.jumps[mark:] = [jump for jump in self.jumps[mark:] if jump[0] is not Flow.BREAK]
        ends = [entry, *broken] if flow in {Flow.EXIT, Flow.RETURN} else [entry, self.state, *broken]
        self.state = join(ends, self.line)
        self.state.status = None
        return Flow.NEXT

    def _case(self, unit: Unit, node: Node) -> Flow:
        value = node.child_by_field_name("value")
        clauses = [child for child in node.children if child.type == "case_item"]
        if value is None:
            return Flow.NEXT
        line = unit.line(value.start_byte)
        word = self.expander.one(unit.written(value), line)
        text = text_of(word)
        mark = len(self.expander.assumed)
        self.expander.assumed.extend(assumptions_of(word))
        branches: list[_Branch] = []
        shown = unit.written(value)
        for n, clause in enumerate(clauses):
            answer = self._matches(unit, clause, text)
            if answer is False:
                continue
            condition = f"case {shown} in {self._patterns(unit, clause)}"
            branches.append((condition, lambda n=n: self._clause(unit, clauses, n)))  # type: ignore[misc]
            if answer:
                break
        else:
            branches.append((f"case {shown} in something else", self._nothing))
        if len(branches) > 1:
            return self.fork(branches)
        return self.decide(True, mark, branches[0][1], lambda: Flow.NEXT, (branches[0][0], f"not ({branches[0][0]})"))

    def _nothing(self) -> Flow:
        self.state.status = True
        return Flow.NEXT

    @staticmethod
    def _patterns(unit: Unit, clause: Node) -> str:
        written = unit.written(clause).partition(")")
        return written[0].strip() if written[0] else written[2].partition(")")[0].strip()

    def _matches(self, unit: Unit, clause: Node, text: str | None) -> bool | None:
        """Tell whether a clause's patterns match; for an unknown text, whether they match any."""
        unsure = False
        for n, child in enumerate(clause.children):
            if clause.field_name_for_child(n) != "value":
                continue
            parts, names = self.expander.pattern(unit.written(child), unit.line(child.start_byte))
            if parts == [("*", False)] and not names:
                return True
            if names or text is None:
                unsure = True
                continue
            try:
                if translate(parts).fullmatch(text):
                    return None if unsure else True
            except PatternError:
                unsure = True
        return None if unsure else False

    def _clause(self, unit: Unit, clauses: list[Node], n: int) -> Flow:
        children = clauses[n].children
        start = next((i for i, child in enumerate(children) if child.type == ")"), 0)
        self.state.status = True
        flow = self.statements(unit, children[start + 1 :])
        if flow is Flow.NEXT and any(child.type == ";&" for child in children) and n + 1 < len(clauses):
            return self._clause(unit, clauses, n + 1)
        return flow

    # Simple commands ---------------------------------------------------------------------------------------------

    def simple(self, unit: Unit, node: Node) -> Flow:
        """Read assignments, a test, or a command with its words and redirections."""
        raw, line = unit.written(node), unit.line(node.start_byte)
        if raw.startswith("[[") and raw[2:3] in {" ", "\t", "\n"}:
            self.state.status = self.conditions.double(raw[2 : raw.rfind("]]")], line)
            return Flow.NEXT
        end = Lexer(raw, unit.depth).arithmetic(2) if raw.startswith("((") else None
        if end is not None:
            number, _, assumes = self.expander.number(raw[2 : end - 2], line)
            self.expander.assumed.extend(assumes)
            self.state.status = None if number is None else number != 0
            return Flow.NEXT
        try:
            simple = read_simple(unit, node.start_byte, node.end_byte)
        except UnclosedError as error:
            self.skip(line, f"is not understood: {error}")
            return Flow.NEXT
        return self._run_simple(simple, raw, line)

    def _run_simple(self, simple: Simple, raw: str, line: int) -> Flow:
        assignments: list[Raw] = []
        words = list(simple.words)
        while words and ASSIGNMENT.match(words[0].text):
            assignments.append(words.pop(0))
        streams = self._streams(simple.redirections)
        if not words:
            self.state.status = True
            for word in assignments:
                self.assign(word)
            if self._querying and not assignments and streams.stdin is not None and streams.path is None:
                self.emit(streams.stdin)  # $(<file)
            return self.with_streams(streams, lambda: Flow.NEXT) if simple.redirections else Flow.NEXT
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
        self, values: list[tuple[Value, Raw]], extra: dict[str, Variable], raw: str, line: int, streams: Streams
    ) -> Flow:
        name = text_of(values[0][0])
        if (
            name in {"command", "builtin", "time", "-p"}
            and len(values) > 1
            and not (text_of(values[1][0]) or "").startswith("-")
        ):
            return self._dispatch(values[1:], extra, raw, line, streams)
        functions = self.state.functions.get(name or "")
        if functions:
            branches: list[_Branch] = [
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
            self._record(values[1:], extra, raw, line)
            return Flow.EXIT
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
            self.emit(unknown(f"$({raw})", line) if output is None else from_text(output, line, assumes))
            return Flow.NEXT
        return self._record(values, extra, raw, line)

    def _copy(self, name: str, arguments: list[Value], raw: str, line: int) -> Flow:
        """``cat`` and ``tee``: pass on what is known of the input and of files the script wrote."""
        texts = [text_of(value) for value in arguments]
        paths = [text for text in texts if text is not None and (not text.startswith("-") or text == "-")]
        hidden = unknown(f"$({raw})", line)
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
        elements: dict[int | str, Value] = {}
        if append and old is not None:
            elements = dict(old.elements) if old.elements is not None else {} if old.value is None else {0: old.value}
        elif append:
            elements = {0: unknown(f"${{{name}[@]}}", inside.line, many=True, implicit=True)}
        place = max((key for key in elements if isinstance(key, int)), default=-1) + 1
        associative = old is not None and old.associative
        for word in self.expander.elements(inside):
            match = re.match(r"\[((?:[^\]\"']|\"[^\"]*\"|'[^']*')+)\](\+?)=", word.text)
            if match:
                key = self._key(name, f"[{match[1]}]", word.line)
                if key is None or match[2]:
                    elements = {0: unknown(f"${{{name}[@]}}", word.line, many=True)}
                    break
                elements[key] = self.expander.one(word.text[match.end() :], word.line)
                place = key + 1 if isinstance(key, int) else place
            elif associative:
                elements = {0: unknown(f"${{{name}[@]}}", word.line, many=True)}
                break
            else:
                for value in self.expander.fields(word.text, word.line):
                    elements[place] = value
                    place += 1
        if not associative:
            elements = dict(sorted(elements.items(), key=lambda item: int(item[0])))
        self.expander.parameters.replace_array(name, elements, inside.line)

    def _call(self, function: Function, values: list[tuple[Value, Raw]], line: int) -> Flow:
        """Read a function's body with its arguments."""
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise LimitError(f"functions call one another more than {MAX_CALLS} deep")
        outer = self.state.arguments
        self.state.arguments = tuple(value for value, _ in values[1:])
        self.state.saved.append({})
        mark, depth = len(self.jumps), len(self.doubts)
        flow = self.statement(function.unit, function.body)  # type: ignore[arg-type]
        returned = [state for kind, state in self.jumps[mark:] if kind is Flow.RETURN]
        del self.jumps[mark:], self.doubts[depth:]
        if returned:
            self.state = join(returned if flow is Flow.EXIT else [self.state, *returned], line)
            flow = Flow.NEXT
        self.state.leave()
        self.state.arguments = outer
        self._calls -= 1
        return Flow.NEXT if flow is not Flow.EXIT else flow

    def evaluate_text(self, value: Value, line: int) -> Flow:
        """Read what ``eval`` is given; unknown parts of it are taken as words without quotes."""
        text = ""
        for n, piece in enumerate(value):
            if piece.text is None:
                name = _PLACEHOLDER.format(f"{line}_{n}")
                self.state.variables[name] = Variable((piece,), line=line)
                text += f"${{{name}}}"
            else:
                text += piece.text
        return self.nested(text, line)

    def nested(self, text: str, line: int) -> Flow:
        """Read statements inside of a statement."""
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise LimitError(f"functions call one another more than {MAX_CALLS} deep")
        flow = self.run(Unit(text, line, self._calls))
        self._calls -= 1
        return flow

    def substitute(self, text: str, line: int, depth: int) -> Value:
        """Return the output of ``$( … )``; what any program prints in it is unknown."""
        written = f"$({' '.join(text.split())})"
        hidden = unknown(written if len(written) <= _SHOWN else written[:_SHOWN] + "…)", line)
        unit = Unit(text, line, depth)
        self._calls += 1
        if unit.problems or self._calls > MAX_CALLS:
            self._calls -= 1
            return hidden
        sink, doubts = self.sink, self._sink_doubts
        querying, assumed, outer_line = self._querying, len(self.expander.assumed), self.line
        self._open_sink()
        self._querying = True
        flow = Flow.NEXT

        def read() -> Flow:
            nonlocal flow
            flow = self.run(unit)
            return flow

        self.subshell(read)
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
        return tuple(piece._replace(line=line, many=False) for piece in pieces)

    # Streams -----------------------------------------------------------------------------------------------------

    def _streams(self, redirections: list[Redirection]) -> Streams:
        stdin, path, append, hidden = self.stdin, None, False, False
        for one in redirections:
            operator, line = one.operator, one.target.line
            if operator in {"<<", "<<-"}:
                stdin = self._document(one)
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

    def _document(self, redirection: Redirection) -> Value | None:
        document = redirection.document
        if document is None:
            return None
        if redirection.literal:
            return from_text(document.text, document.line)
        return self.expander.document(document.text, document.line)

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
            self.expander.check_length(tuple(self.sink))

    # Commands ----------------------------------------------------------------------------------------------------

    def word(self, value: Value, raw: Raw | None, line: int) -> Word:
        """Make a word of the report."""
        text = text_of(value)
        written = raw.text if raw is not None and text is not None else show(value)
        return Word(
            text,
            Source(self.path, None, line_of(value, line)),
            written,
            names_of(value),
            is_many(value),
            assumptions_of(value),
        )

    def _exported(self, extra: dict[str, Variable]) -> dict[str, Word]:
        variables = {**{name: one for name, one in self.state.variables.items() if one.exported}, **extra}
        return {
            name: self.word(one.value, None, one.line)
            for name, one in variables.items()
            if one.value is not None and one.elements is None
        }

    def _command(self, values: list[tuple[Value, Raw]], extra: dict[str, Variable], line: int) -> Command:
        counts: dict[Raw, int] = {}
        for _, raw in values:
            counts[raw] = counts.get(raw, 0) + 1
        words = tuple(self.word(value, raw if counts[raw] == 1 else None, raw.line) for value, raw in values)
        condition = " and ".join(self.doubts) or None
        stdin = None if self.stdin is None else self.word(self.stdin, None, line)
        return Command(words, self._exported(extra), Source(self.path, None, line), not self.doubts, condition, stdin)

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
        self.emit(unknown(f"$({raw})", line))
        self.state.status = True if text_of(values[0][0]) in TRUSTED else None
        return Flow.NEXT


_COMPOUND = frozenset(
    {"if_statement", "for_statement", "while_statement", "case_statement", "subshell", "compound_statement"}
)
_DECLARATIONS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_TRIALS = 4
