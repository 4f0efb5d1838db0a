"""What a script does, statement by statement: the state it builds and the commands it would run, none of which is run.

A condition that is not known forks the state: every way is read, its commands are not certain, and what the ways leave
different is unknown afterwards. A way that ends the script leaves nothing behind: the script is read as one that goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.shell.expand import compact
from compatcheck.shell.flow import Flow
from compatcheck.shell.limits import MAX_CALLS, MAX_STEPS, LimitError
from compatcheck.shell.loops import Loops
from compatcheck.shell.patterns import PatternError, matches, translate
from compatcheck.shell.state import Function
from compatcheck.shell.statements import (
    Arithmetic,
    Case,
    Chain,
    Count,
    Definition,
    For,
    Group,
    If,
    Negation,
    Pipeline,
    Simple,
    Subshell,
    Test,
    While,
)
from compatcheck.shell.values import assumptions_of, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.shell.reading import Branch
    from compatcheck.shell.statements import Clause, Parsed, Statement


class Evaluator(Loops):
    """Read one script."""

    def run(self, parsed: Parsed) -> Flow:
        """Read all statements of a text."""
        for problem in parsed.problems:
            self.skip(problem.line, problem.reason, "check it: bash -n names the line too")
        return self.statements(parsed.statements)

    def statements(self, statements: Sequence[Statement]) -> Flow:
        """Read statements one after another."""
        for one in statements:
            if one.doubt is not None:
                self._doubt(f"line {one.doubt} is understood")
            if one.background:
                self.subshell(lambda one=one: self.statement(one))  # type: ignore[misc]
                self.state.status = True
            else:
                flow = self.statement(one)
                if flow is not Flow.NEXT:
                    return flow
        return Flow.NEXT

    def _doubt(self, condition: str) -> None:
        if condition not in self.doubts:
            self.doubts.append(condition)

    def statement(self, statement: Statement) -> Flow:
        """Read one statement, with the redirections behind it."""
        if statement.redirections and not isinstance(statement.kind, Simple):
            return self.with_streams(self._streams(statement.redirections), lambda: self._statement(statement))
        return self._statement(statement)

    def _statement(self, statement: Statement) -> Flow:  # noqa: PLR0911 (one return per kind of statement)
        self._steps += 1
        self.line = statement.line
        if self._steps > MAX_STEPS:
            raise LimitError(f"more than {MAX_STEPS} statements are run")
        match statement.kind:
            case Chain() as chain:
                return self._chain(statement, chain)
            case Pipeline(parts):
                return self._pipeline(parts)
            case Negation(inner):
                flow = self.statement(inner)
                status = self.state.status
                self.state.status = None if status is None else not status
                return flow
            case If() as choice:
                return self._if(choice, 0)
            case For() as loop:
                return self._for(loop)
            case Count() as loop:
                return self._count(loop)
            case While() as loop:
                return self._while(loop)
            case Case() as choice:
                return self._case(choice)
            case Subshell(body):
                return self.subshell(lambda: self.statements(body))
            case Group(body):
                return self.statements(body)
            case Definition(name, function):
                self.state.functions[name] = (Function(function),)
                self.state.status = True
                return Flow.NEXT
            case _:
                return self.simple(statement)

    def _chain(self, statement: Statement, chain: Chain) -> Flow:
        mark = len(self.expander.assumed)
        flow, left, tested = self.statement(chain.first), chain.first, False
        for operator, right in chain.rest:
            if flow is not Flow.NEXT:
                return flow
            wanted = operator == "&&"
            tested = wanted and (tested or _is_test(left))
            if wanted and self.state.status is None and not (tested or self.assuming):
                self.state.status = True
            status = self.state.status if wanted or self.state.status is None else not self.state.status

            def leave(*, wanted: bool = wanted) -> Flow:
                self.state.status = not wanted
                return Flow.NEXT

            written = self._shorten(statement.text[statement.start : left.end])
            condition = (written, f"not ({written})") if wanted else (f"not ({written})", written)
            flow = self.decide(status, mark, lambda right=right: self.statement(right), leave, condition)  # type: ignore[misc]
            left = right
        return flow

    def _pipeline(self, parts: Sequence[Statement]) -> Flow:
        sink, stdin, doubts = self.sink, self.stdin, self._sink_doubts
        for part in parts[:-1]:
            self._open_sink()
            self.subshell(lambda part=part: self.statement(part))  # type: ignore[misc]
            self.stdin = compact(tuple(self.sink or ()))
        self.sink, self._sink_doubts = sink, doubts
        self.subshell(lambda: self.statement(parts[-1]))
        self.stdin = stdin
        return Flow.NEXT

    def _if(self, choice: If, n: int) -> Flow:
        """Read a branch of ``if``, and what follows where it is not taken."""
        branch = choice.branches[n]
        mark = len(self.expander.assumed)
        flow = self.statements(branch.tests)
        if flow is not Flow.NEXT:
            return flow

        def otherwise() -> Flow:
            if n + 1 < len(choice.branches):
                return self._if(choice, n + 1)
            if choice.otherwise is not None:
                return self.statements(choice.otherwise)
            return self._nothing()

        written = self._condition(branch.tests)
        return self.decide(
            self.state.status, mark, lambda: self.statements(branch.body), otherwise, (written, f"not ({written})")
        )

    def _case(self, choice: Case) -> Flow:
        shown, line = choice.word
        word = self.expander.one(shown, line)
        text = text_of(word)
        mark = len(self.expander.assumed)
        self.expander.assumed.extend(assumptions_of(word))
        branches: list[Branch] = []
        others: list[Branch] = []
        decided = False
        for n, clause in enumerate(choice.clauses):
            answer = False if decided else self._matches(clause, text)
            condition = f"case {shown} in {clause.written}"
            branch: Branch = (condition, lambda n=n: self._clause(choice, n))  # type: ignore[misc]
            (others if answer is False else branches).append(branch)
            decided = decided or answer is True
        if not decided:
            branches.append((f"case {shown} in something else", self._nothing))
        if len(branches) > 1:
            return self.fork(branches)
        condition, read = branches[0]

        def otherwise() -> Flow:
            return self.fork(others) if others else Flow.NEXT

        return self.decide(True, mark, read, otherwise, (condition, f"not ({condition})"))

    def _nothing(self) -> Flow:
        self.state.status = True
        return Flow.NEXT

    def _matches(self, clause: Clause, text: str | None) -> bool | None:
        """Tell whether a clause's patterns match; for an unknown text, whether they match any."""
        unsure = False
        for pattern in clause.patterns:
            parts, names = self.expander.pattern(pattern.text, pattern.line)
            if parts == [("*", False)] and not names:
                return True
            if names or text is None:
                unsure = True
                continue
            try:
                if matches(text, translate(parts)):
                    return None if unsure else True
            except PatternError:
                unsure = True
        return None if unsure else False

    def _clause(self, choice: Case, n: int) -> Flow:
        self.state.status = True
        clause, rest = choice.clauses[n], choice.clauses[n + 1 :]
        flow = self.statements(clause.body)
        if flow is Flow.NEXT and rest and clause.falls:
            return self._clause(choice, n + 1)
        if flow is Flow.NEXT and rest and clause.resumes:
            if choice.resumed >= MAX_CALLS or text_of(self.expander.one(*choice.word)) is None:
                self.skip(choice.word.line, "goes on behind ;;&, where it is not followed")
                return flow
            return self._case(choice._replace(clauses=rest, resumed=choice.resumed + 1))
        return flow


def _is_test(statement: Statement) -> bool:
    """Tell whether a statement does nothing but ask."""
    match statement.kind:
        case Negation(inner):
            return _is_test(inner)
        case Simple(words):
            return bool(words) and words[0].text in {"[", "test"}
        case kind:
            return isinstance(kind, Test | Arithmetic)
