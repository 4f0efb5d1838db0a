"""What would clear the findings of a run: changes of releases and settings, the text they amount to, and what they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from compatcheck.core.facts import Value
    from compatcheck.core.report import Finding, Report

RESOLVED, REFUSED, NOT_CHECKED, NOT_NEEDED = "resolved", "refused", "not checked", "not needed"
"""What a resolver said: it found releases of everything that fit; there are none; it could not be asked; no release moves."""


class FileChange(NamedTuple):
    """A file before and after."""

    path: str
    """As the person named it, or relative to where they stand."""
    before: str
    """Text, byte order mark and line ends as in the file."""
    after: str
    written_by: str | None = None
    """Program whose own output the new text is, such as ``uv lock``; None when a value in it was changed."""


class TextEdit(NamedTuple):
    """One replaced stretch of a file."""

    path: str
    start: int
    """First character, counted in the text as `compatcheck.fixing.edits.text.read_exact` gives it."""
    end: int
    new: str


VERSION, SETTING = "version", "setting"


class Change(NamedTuple):
    """One change: a package that moves, or a setting; it can be evaluated, described and written."""

    kind: str
    """`VERSION` or `SETTING`."""
    name: str
    """Package, or fact of the vocabulary."""
    before: str | None
    """Version or range, or value; None for a key that is not written yet."""
    value: Value
    """Version or range, or value, that it gets."""
    subjects: frozenset[str]
    """Ids of the subjects that it changes."""
    distance: tuple[int, ...]
    """How far it goes, comparable with that of any other change; the nearest first."""
    safe: bool
    why: str
    """What makes it safe or unsafe, in words."""
    release: str | None = None
    """The version, or the lowest one of the range; None for a setting."""
    move: str | None = None
    """``patch``, ``minor`` or ``major``, with `` down`` behind it for an older release; None for a setting."""
    edits: tuple[TextEdit, ...] = ()
    """What it is in the texts of files; empty where a command is needed."""
    places: tuple[str, ...] = ()
    """Where it is written: ``requirements.txt:4``; empty when no file states it."""
    clears: tuple[str, ...] = ()
    """Ids of the rules whose findings it takes part in clearing."""
    command: str | None = None
    """What has to be run, where a text edit is not enough or there is no file to edit."""
    note: str | None = None

    @property
    def after(self) -> str:
        """Return what is written afterwards, as a person would write it."""
        return str(self.value).lower() if isinstance(self.value, bool) or self.value is None else str(self.value)

    @property
    def ranged(self) -> bool:
        """Return whether any of several versions may be installed."""
        return self.kind == VERSION and str(self.value)[:1] in set("<>=!~")

    @property
    def stays_in_series(self) -> bool:
        """Return whether only the third number of a version changes."""
        return (self.move or "").startswith("patch")

    @property
    def lever(self) -> str:
        """Return what it moves: of two changes of one lever, only one can be made."""
        return self.name if self.kind == VERSION else f"{self.edits[0].path}#{self.edits[0].start}"


class Resolution(NamedTuple):
    """What the resolver said about a set of changes."""

    verdict: str
    """One of `RESOLVED`, `REFUSED`, `NOT_CHECKED`, `NOT_NEEDED`."""
    detail: str | None = None
    """For which interpreter it was resolved, or why not, in the resolver's own words."""
    moved: tuple[tuple[str, str | None, str | None], ...] = ()
    """Other packages of a lock that move with it: name, before, after."""
    unbuilt: tuple[str, ...] = ()
    """Distributions without a wheel, whose requirements were taken from their archive or our notes without building them."""


class Plan(NamedTuple):
    """One set of changes that belong together: those of the files that are checked as one."""

    subjects: tuple[str, ...]
    changes: tuple[Change, ...]
    files: tuple[FileChange, ...]
    resolution: Resolution
    cleared: tuple[Finding, ...]
    remaining: tuple[tuple[Finding, str], ...]
    """Findings that stay, each with the reason."""
    unsafe: tuple[Change, ...] = ()
    """Changes that would clear more, or all, and were left out because they are not safe; complete in themselves."""
    unsafe_clears: tuple[str, ...] = ()
    """Rules that those would clear."""
    unsafe_resolution: Resolution | None = None
    brings: tuple[str, ...] = ()
    """Rules of findings that do not fail and come in with the changes."""
    exhausted: bool = False
    """Whether a smaller set may exist: more than pairs are looked at only one after the other, and within limits."""
    notes: tuple[str, ...] = ()


class Fix(NamedTuple):
    """The outcome of one run."""

    report: Report
    """What was found before."""
    plans: tuple[Plan, ...]
    applied: bool
    """Whether the files were written."""
    exit_code: int
    seconds: float = 0.0
    evaluations: int = 0
    """Times the rules were evaluated on a subject with other releases and settings."""
    resolutions: int = 0
    """Times the resolver was asked."""

    @property
    def files(self) -> tuple[FileChange, ...]:
        """Return the changed files of all plans; plans share none."""
        return tuple(file for plan in self.plans for file in plan.files)
