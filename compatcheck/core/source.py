"""Where a value came from: a file, a line in it, a key, or a spoken origin such as an option."""

from compatcheck.core.named_tuple import NamedTuple


class Source(NamedTuple):
    """One place a person can look at to see a value."""

    path: str
    """File as the person named it, or a spoken place: ``--set``, ``environment variable``."""
    key: str | None = None
    """Key inside the file, dotted: ``zero_optimization.stage``."""
    line: int | None = None
    """First line is 1; filled in lazily, only for facts that end in a finding."""
    used: int | None = None
    """Line of the command that uses what stands in ``line``, where that is another one."""

    @property
    def place(self) -> str:
        """The file with its line, and the line of use: ``run.sh:59, used at :121``."""
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return place if self.used is None else f"{place}, used at :{self.used}"

    def __str__(self) -> str:
        """Format as ``path:line (key)``, leaving out what is not known."""
        text = self.place
        if self.key is not None:
            text = f"{text} {self.key}" if self.key.startswith("(") else f"{text} ({self.key})"
        if text.isprintable():
            return text
        from compatcheck.core.terminal import escape_name  # noqa: PLC0415 (only for names made to break a line)

        return escape_name(text)


class Skipped(NamedTuple):
    """An input, rule or service that could not be used, and why; it never reads as "OK"."""

    source: Source
    reason: str
    hint: str | None = None
    """What the person can do about it."""
    named: bool = False
    """Whether the person named this input; an unreadable named input is exit code 4."""
    by_run: bool = False
    """Whether a run names what was not read: with the run, it counts as named."""
    passes: bool = False
    """Whether it stops no gate: it was read and holds nothing of a stack, or cannot be written otherwise."""
    elsewhere: bool = False
    """Whether it refers to another file, which a walk of the directory meets by itself."""
    fact: str | None = None
    """What the value at this place would have decided, by vocabulary name; None when that is not one fact."""

    def __str__(self) -> str:
        """Say what was not read, why, and what can be done about it."""
        return f"{self.source}: {self.reason}" + (f" ({self.hint})" if self.hint else "")
