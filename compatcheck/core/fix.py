"""What would clear the findings of a run: changes of releases and settings, the text they amount to, and what they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.builds import write_install
from compatcheck.core.effects import SAFE
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS
from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.facts import Value
    from compatcheck.core.report import Finding, Report

RESOLVED, REFUSED, NOT_CHECKED, NOT_NEEDED = "resolved", "refused", "not checked", "not needed"
"""What a resolver said: it found releases of everything that fit; there are none; it could not be asked; no release moves."""
NO_REMEDY = "no remedy is known"
"""Why a finding stays of which nothing more can be told."""


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
    """One change: a package that moves, or settings that go together; it can be evaluated, described and written."""

    kind: str
    """`VERSION` or `SETTING`."""
    name: str
    """Package, or the first fact of the vocabulary that it sets."""
    before: str | None
    """Version or range, or value; None for a key that is not written yet."""
    value: Value
    """Version or range, or value, that it gets."""
    subjects: frozenset[str]
    """Ids of the subjects that it changes."""
    effect: str
    """What it costs the person, one of `compatcheck.core.effects.EFFECTS`."""
    distance: tuple[int, ...]
    """How far it goes, comparable with that of any other change; the nearest first."""
    why: str
    """What it does or risks, in words."""
    facts: tuple[tuple[str, Value], ...] = ()
    """All facts that a setting changes, with the values they get; empty for a package."""
    words: str | None = None
    """A setting in words: ``micro batch 8 → 4, accumulate 2 → 4``; None where name and value say it."""
    release: str | None = None
    """The version, or the lowest one of the range; None for a setting."""
    move: str | None = None
    """``patch``, ``minor`` or ``major``, with `` down`` behind it for an older release; None for a setting."""
    follows: bool = False
    """Whether it is made because another package's release requires it."""
    along: int = 0
    """Packages that have to move along, as far as they were counted."""
    edits: tuple[TextEdit, ...] = ()
    """What it is in the texts of files; empty where a command is needed, or a hand."""
    places: tuple[str, ...] = ()
    """Where it is written: ``requirements.txt:4``; empty when no file states it."""
    written: tuple[str, ...] = ()
    """What is written at each place, for a setting, in the words of its file: ``gradient_checkpointing: true``."""
    clears: tuple[str, ...] = ()
    """Ids of the rules whose findings it takes part in clearing."""
    command: str | None = None
    """What has to be run, where a text edit is not enough or there is no file to edit."""
    note: str | None = None
    role: str | None = None
    """The model that a setting is about alone; None where it is about the one that is trained, or about all."""
    installs: tuple[str, ...] = ()
    """Distributions that a setting needs and nothing here lists."""
    listings: tuple[TextEdit, ...] = ()
    """What lists them in a file of requirements, beside the edits; empty where a hand has to."""

    @property
    def safe(self) -> bool:
        """Return whether the run computes the same after it, as far as rules and release numbers tell."""
        return self.effect in SAFE

    @property
    def after(self) -> str:
        """Return what is written afterwards, as a person would write it."""
        return str(self.value).lower() if isinstance(self.value, bool) or self.value is None else str(self.value)

    @property
    def ranged(self) -> bool:
        """Return whether any of several versions may be installed."""
        return self.kind == VERSION and str(self.value)[:1] in set("<>=!~")

    @property
    def version(self) -> str:
        """Return the version that a package gets, with its label; of a range the lowest one."""
        return (self.release or "") if self.ranged else str(self.value)

    @property
    def stays_in_series(self) -> bool:
        """Return whether only the third number of a version changes."""
        return (self.move or "").startswith("patch")

    @property
    def lever(self) -> str:
        """Return what it moves: of two changes of one lever, only one can be made."""
        if self.kind == VERSION:
            return self.name
        if not self.edits:
            return f"{min(self.subjects)}#{self.name}"
        first = self.edits[0]
        added = f":{self.name}" if first.start == first.end else ""  # two keys may be added at one place
        return f"{first.path}#{first.start}{added}"

    @property
    def instruction(self) -> str:
        """Return what to do in one line: the release, or what to write and where."""
        told = self.words or f"{self.name} {self.after}"
        where = [f"{text} at {place}" for place, text in self.where] or self.options
        return f"{told} ({', '.join(where)})" if where else told

    @property
    def where(self) -> tuple[tuple[str, str], ...]:
        """Return each place of a setting with what is written there; none where only a facts file says how the run is."""
        names = {name for name, _ in self.facts}
        native = all(text.partition(":")[0] in names for text in self.written)
        return () if native else tuple(zip(self.places, self.written, strict=True))

    @property
    def options(self) -> tuple[str, ...]:
        """Return the ``--set`` values that state a setting; none for one model's own, which they would state of all."""
        return (
            () if self.role is not None else tuple(f"--set {name}={write_value(value)}" for name, value in self.facts)
        )


def write_value(value: object) -> str:
    """Write a value as options and configurations take it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def install_command(changes: Sequence[Change]) -> str | None:
    """Return the command that installs what changes move or need; None where they need none."""
    pins = {
        one.name: one.after if one.follows and one.ranged else one.version for one in changes if one.kind == VERSION
    }
    needed = dict.fromkeys(name for one in changes for name in one.installs)
    return write_install(pins, needed) if pins or needed else None


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
    waiting: tuple[Finding, ...] = ()
    """Of those that are cleared, the ones that the written files alone do not clear: a hand or a command is needed, too."""
    outcomes: tuple[tuple[str, Estimate], ...] = ()
    """Of each subject that describes a run: its id, and what it needs after the changes."""
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
    seconds: float = 0.0
    evaluations: int = 0
    """Times the rules were evaluated on a subject with other releases and settings."""
    resolutions: int = 0
    """Times the resolver was asked."""

    @property
    def exit_code(self) -> int:
        """Return 1 while findings fail, which they do until the changes are written; else that of the check."""
        if not any(finding.fails for finding in self.report.findings):
            return self.report.exit_code
        by_hand = any(not change.edits and not change.follows for plan in self.plans for change in plan.changes)
        by_hand = by_hand or any(change.command for plan in self.plans for change in plan.changes)
        done = self.applied and not by_hand and not any(plan.remaining for plan in self.plans)
        return EXIT_CLEAN if done else EXIT_FINDINGS

    @property
    def files(self) -> tuple[FileChange, ...]:
        """Return the changed files of all plans; plans share none."""
        return tuple(file for plan in self.plans for file in plan.files)
