"""Statements of a script as bash groups them: what the grammar reads and the evaluation walks."""

from __future__ import annotations

from dataclasses import dataclass

from compatcheck.core.named_tuple import NamedTuple


class Raw(NamedTuple):
    """A word before expansion."""

    text: str
    line: int


@dataclass(slots=True, eq=False)
class HereDocument:
    """A here-document; its text follows once the line it is named in has ended."""

    delimiter: str
    literal: bool
    """Whether the delimiter was quoted, so that nothing in the text is expanded."""
    tabs: bool
    """Whether leading tabs are dropped (``<<-``)."""
    text: str = ""
    line: int = 1


class Redirection(NamedTuple):
    """``2>&1``, ``> log``, ``<<EOF``."""

    descriptor: int | None
    """None is the operator's own: 0 for input, 1 for output."""
    operator: str
    target: Raw
    document: HereDocument | None = None


class Simple(NamedTuple):
    """Assignments, or a command and its words."""

    words: tuple[Raw, ...]


class Test(NamedTuple):
    """``[[ … ]]``."""

    inside: Raw


class Arithmetic(NamedTuple):
    """``(( … ))``."""

    inside: Raw


class Chain(NamedTuple):
    """``a && b || c``: the operators have one rank."""

    first: Statement
    rest: tuple[tuple[str, Statement], ...]


class Pipeline(NamedTuple):
    """``a | b``."""

    parts: tuple[Statement, ...]


class Negation(NamedTuple):
    """``! a``."""

    statement: Statement


class Branch(NamedTuple):
    """``if`` or ``elif`` with what follows ``then``."""

    tests: tuple[Statement, ...]
    body: tuple[Statement, ...]


class If(NamedTuple):
    """``if … then … elif … else … fi``."""

    branches: tuple[Branch, ...]
    otherwise: tuple[Statement, ...] | None


class For(NamedTuple):
    """``for x in …``, and ``select``."""

    name: Raw
    words: tuple[Raw, ...] | None
    """None where there is no ``in``: the arguments."""
    body: tuple[Statement, ...]


class Count(NamedTuple):
    """``for ((start; condition; step))``."""

    inside: Raw
    body: tuple[Statement, ...]


class While(NamedTuple):
    """``while`` or ``until``."""

    until: bool
    tests: tuple[Statement, ...]
    body: tuple[Statement, ...]


class Clause(NamedTuple):
    """A clause of ``case``."""

    patterns: tuple[Raw, ...]
    written: str
    """The patterns as the script spells them."""
    body: tuple[Statement, ...]
    falls: bool
    """Whether the next clause's statements follow (``;&``)."""
    resumes: bool = False
    """Whether the clauses behind it are tried, too (``;;&``)."""


class Case(NamedTuple):
    """``case … in … esac``."""

    word: Raw
    clauses: tuple[Clause, ...]
    resumed: int = 0
    """How many clauses before these have gone on behind ``;;&``."""


class Subshell(NamedTuple):
    """``( … )``."""

    body: tuple[Statement, ...]


class Group(NamedTuple):
    """``{ … }``."""

    body: tuple[Statement, ...]


class Definition(NamedTuple):
    """A function."""

    name: str
    body: Statement


Kind = (
    Simple | Test | Arithmetic | Chain | Pipeline | Negation | If | For | Count | While | Case | Subshell | Group | Definition
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One statement, with the redirections behind it."""

    kind: Kind
    line: int
    text: str
    """The text it stands in."""
    start: int
    end: int
    redirections: tuple[Redirection, ...] = ()
    background: bool = False
    doubt: int | None = None
    """Line from which on bash would have refused the script, if that is in or before this statement."""

    @property
    def written(self) -> str:
        """The statement as the script spells it; a compound one without its redirections."""
        return self.text[self.start : self.end]


class Problem(NamedTuple):
    """A part of a script that is not bash."""

    line: int
    reason: str


class Parsed(NamedTuple):
    """A text of statements: a script, or the inside of ``$( … )``."""

    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...]
    """What could not be read, in the order of the lines."""
