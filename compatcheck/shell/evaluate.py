"""What a script does, statement by statement: the state it builds and the commands it would run, none of which is run.

A condition that is not known forks the state: every way is read, its commands are not certain, and what the ways leave
different is unknown afterwards. A way that ends the script leaves nothing behind: the script is read as one that goes on.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from compatcheck.shell.expand import compact
from compatcheck.shell.flow import Flow
from compatcheck.shell.limits import MAX_STEPS, LimitError
from compatcheck.shell.loops import Loops
from compatcheck.shell.patterns import PatternError, translate
from compatcheck.shell.state import Function
from compatcheck.shell.values import assumptions_of, text_of
from compatcheck.shell.words import read_redirections

if TYPE_CHECKING:
    from tree_sitter import Node

    from compatcheck.shell.grammar import Unit
    from compatcheck.shell.reading import Branch

_COMPOUND = frozenset(
    {"if_statement", "for_statement", "while_statement", "case_statement", "subshell", "compound_statement"}
)


class Evaluator(Loops):
    """Read one script."""

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
        branches: list[Branch] = []
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
