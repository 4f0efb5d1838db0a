"""Loops: unrolled where their rounds are known, read once for any round where they are not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.shell.flow import Flow
from compatcheck.shell.limits import MAX_ITERATIONS, LimitError
from compatcheck.shell.parameters import NO_ARGUMENTS
from compatcheck.shell.reading import SHOWN
from compatcheck.shell.simple import SimpleCommands
from compatcheck.shell.state import join
from compatcheck.shell.values import is_many, show, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.shell.statements import Count, For, Statement, While

_TRIALS = 4
"""Rounds after which what a loop changes is taken as found."""


class Loops(SimpleCommands):
    """Read loops."""

    @staticmethod
    def _shorten(written: str) -> str:
        # Ten times as much, for blanks are drawn together; what a long condition has beyond that is not shown anyway.
        written = " ".join(written[: 10 * SHOWN].split())
        return written if len(written) <= SHOWN else written[:SHOWN] + "…"

    def _condition(self, statements: Sequence[Statement]) -> str:
        return self._shorten("; ".join(one.written for one in statements[:SHOWN]))

    def _for(self, loop: For) -> Flow:
        name, line = loop.name
        if loop.words is None:
            items = self.expander.fields('"$@"', line)
        else:
            items = [item for word in loop.words for item in self.expander.fields(word.text, word.line)]

        def read() -> Flow:
            return self.statements(loop.body)

        if any(is_many(item) for item in items):
            written = f"for {name} in {' '.join(show(item) for item in items[:SHOWN])}"[:SHOWN]
            hidden = [piece for item in items for piece in item if piece.many]
            if all(piece.name in {"$@", "$*"} and piece.implicit for piece in hidden):
                self._assume([NO_ARGUMENTS])
                items = [item for item in items if not is_many(item)]
                self.leave_open(self.state.copy(), (written, lambda: self._for(loop)), [NO_ARGUMENTS])
            else:
                self.expander.parameters.assign(name, None, unknown(f"${name}", line), line)
                return self._widen(read, written, keep=name)
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
        self.loops += 1
        flow = read()
        self.loops -= 1
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

    def _count(self, loop: Count) -> Flow:
        """Read ``for ((start; condition; step))``."""
        parts = loop.inside.text.split(";")
        line = self.line
        if len(parts) != 3:
            return self._widen(lambda: self.statements(loop.body), f"for (({loop.inside.text}))")
        start, condition, step = parts
        self.expander.number(start, line)
        mark, depth = len(self.jumps), len(self.doubts)
        for _ in range(MAX_ITERATIONS):
            number, _, _ = self.expander.number(condition, line) if condition.strip() else (1, (), ())
            if number == 0:
                return self._end_loop(mark, depth, Flow.NEXT)
            if number is None or any(kind is Flow.BREAK for kind, _ in self.jumps[mark:]):
                break
            flow = self._round(lambda: self.statements(loop.body), mark)
            if flow is not None:
                return self._end_loop(mark, depth, flow)
            self.expander.number(step, line)

        def read() -> Flow:
            flow = self.statements(loop.body)
            self.expander.number(step, line)
            return flow

        flow = self._widen(read, f"(({condition.strip()}))")
        return self._end_loop(mark, depth, flow)

    def _while(self, loop: While) -> Flow:
        written = self._condition(loop.tests)
        mark, depth = len(self.jumps), len(self.doubts)
        for _ in range(MAX_ITERATIONS):
            assumed = len(self.expander.assumed)
            stdin, self.stdin = self.stdin, None
            before = self.state.copy()
            flow = self.statements(loop.tests)
            self.stdin = stdin
            if flow is not Flow.NEXT:
                return self._end_loop(mark, depth, flow)
            status = self.state.status
            if status is None and self.state.arguments is None and re.search(r"\$\{?[#1@*]|getopts", written):
                self._assume([NO_ARGUMENTS])
                self.state = before
                self.leave_open(before.copy(), (written, lambda: self._while(loop)), [NO_ARGUMENTS])
                return self._end_loop(mark, depth, Flow.NEXT)
            if status is not None and status == loop.until:
                rests = self.expander.assumed[assumed:]
                self._assume(rests)
                if outside := self.expander.outside.intersection(rests):
                    self.leave_open(before, (written, lambda: self._while(loop)), outside)
                return self._end_loop(mark, depth, Flow.NEXT)
            if status is None or any(kind is Flow.BREAK for kind, _ in self.jumps[mark:]):
                break
            ending = self._round(lambda: self.statements(loop.body), mark)
            if ending is not None:
                return self._end_loop(mark, depth, ending)
            if self.state == before and not any(kind is Flow.BREAK for kind, _ in self.jumps[mark:]):
                return self._end_loop(mark, depth, Flow.EXIT)  # it never ends

        def read() -> Flow:
            flow = self.statements(loop.tests)
            return self.statements(loop.body) if flow is Flow.NEXT else flow

        flow = self._widen(read, written if not loop.until else f"not ({written})")
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
            try:
                flow = self._round(read, counts[2])
            finally:
                self._muted = muted  # a limit that is met in it is said
            after = join([before, self.state, *(state for _, state in self.jumps[counts[2] :])], self.line, again=True)
            if flow is Flow.EXIT:
                after = before
            self.state = before
            del self.commands[counts[0] :], self.queries[counts[1] :], self.jumps[counts[2] :], self.doubts[counts[3] :]
            changed = {
                name: two
                for name, (one, two) in before.variables.differing(after.variables).items()
                if two is not None and one != two and name != keep
            }
            before.variables.update(changed)
            settled = not changed and before.arguments == after.arguments
            before.arguments = after.arguments
            before.functions, before.files, before.foreign = after.functions, after.files, after.foreign
            if settled:
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
        self.state = join(ends, self.line, again=True)
        self.state.status = None
        return Flow.NEXT
