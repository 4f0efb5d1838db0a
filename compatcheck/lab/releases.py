"""The releases of a package that are measured, or its commits between two."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from compatcheck.core.errors import CompatcheckError, UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import InvalidSpecifierError, allowed_releases, parse_version
from compatcheck.lab.environments.git import list_commits, open_repository
from compatcheck.services.releases import fetch_releases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.rules.database import RuleSet

_HASH_DIGITS = 12


class Axis(NamedTuple):
    """What of a package is measured, the oldest first."""

    names: tuple[str, ...]
    """Releases, or the first digits of commits."""
    dates: Mapping[str, str]
    """ISO date of each, as far as it is known."""
    known: tuple[str, ...] = ()
    """All that could have been measured between the first and the last; what is not in ``names`` was left out."""
    sources: Mapping[str, str] = {}
    """Commit → the requirement that installs it."""
    note: str | None = None
    """What a reader must know about the list."""

    @property
    def kind(self) -> str:
        """``releases`` or ``commits``."""
        return "commits" if self.sources else "releases"

    def find(self, name: str | None) -> str | None:
        """Return what a person names: a release, or a commit by more or fewer of its digits.

        Raises:
            UsageError: it is none of them.
        """
        if name is None:
            return None
        found = [
            one
            for one in self.names
            if one == name or (self.sources and name and (one.startswith(name) or name.startswith(one)))
        ]
        if len(found) != 1:
            msg = f"{name} is none of the {self.kind} between {self.names[0]} and {self.names[-1]}"
            raise UsageError(msg, hint="name one of them by its digits" if self.sources else None)
        return found[0]


def choose_releases(
    rules: RuleSet,
    package: str,
    specifier: str | None,
    good: str | None = None,
    bad: str | None = None,
    *,
    ask: bool = False,
) -> Axis:
    """Return the releases of a package in a range; with two ends, those between them.

    As for installers, a range that names a pre-release holds pre-releases, and an exact release need not be known.

    Args:
        rules: the database, which knows the releases of its day.
        package: any.
        specifier: the range; None is every final release.
        good: one end.
        bad: the other end.
        ask: whether the package index is asked for what came out since.

    Raises:
        UsageError: no releases are known, an end is none of them, or the range is empty.
    """
    if specifier is not None and not specifier.strip():
        msg = "--versions is empty"
        raise UsageError(msg, hint="as --versions '>=0.14,<0.18'; without it all releases are taken")
    if good is not None and good == bad:
        msg = f"--good and --bad are both {good}"
        raise UsageError(msg, hint="name two releases, or one of them alone")
    dates, note = dict(rules.dates(package)), None
    known, chosen = _choose(rules.releases(package), specifier)
    if ask and (not chosen or chosen[-1:] == known[-1:] or any(Version(one).is_prerelease for one in chosen)):
        try:
            # An index of nightlies lists the builds of one release (+cpu, +cu128): which is taken is said elsewhere.
            found = {Version(one.version).public: one.date or "" for one in fetch_releases(package) if not one.yanked}
        except CompatcheckError as error:
            note = f"releases since {max(dates.values(), default='ever')} are not known: {error}"
        else:
            dates = {**found, **dates}
            known, chosen = _choose([*known, *found], specifier)
    if not known and not chosen:
        raise _unknown(rules, package, note)
    newest = (
        f"the newest that is known is {known[-1]} of {dates.get(known[-1]) or 'a day that is not'}" if known else ""
    )
    for end in (good, bad):
        if end is not None and end not in {*known, *chosen}:
            msg = f"{end} is no release of {package}"
            raise UsageError(msg, hint=newest)
        if end is not None and end not in chosen:
            msg = f"{end} does not lie in --versions {specifier}" if specifier else f"{end} is a pre-release"
            raise UsageError(msg, hint="leave one of the two out" if specifier else f"as --versions '>={end}'")
    ends = sorted(chosen.index(end) for end in (good, bad) if end is not None)
    if len(ends) == 2:
        chosen = chosen[ends[0] : ends[1] + 1]
    if not chosen:
        msg = f"no release of {package} lies in {specifier}" + (f" ({note})" if note else "")
        raise UsageError(msg, hint=newest)
    first, last = Version(chosen[0]), Version(chosen[-1])
    pre_releases = any(Version(one).is_prerelease for one in chosen)
    between = (
        one for one in known if first <= Version(one) <= last and (pre_releases or not Version(one).is_prerelease)
    )
    return Axis(tuple(chosen), {name: date for name, date in dates.items() if date}, tuple(between), note=note)


def _choose(releases: Sequence[str], specifier: str | None) -> tuple[list[str], list[str]]:
    """Return all releases and those of a range, the oldest first."""
    known = sorted(dict.fromkeys(one for one in releases if parse_version(one)), key=Version)
    try:
        return known, sorted(allowed_releases(specifier or "", known), key=Version)
    except InvalidSpecifierError as error:
        msg = f"--versions {specifier!r}: {error}"
        raise UsageError(msg) from None


def choose_commits(package: str, span: str, source: str) -> Axis:
    """Return the commits of a package from A to B of ``A..B``.

    Args:
        package: its name.
        span: two commits, tags or branches.
        source: a clone, or its address.

    Raises:
        UsageError: there is no such repository or commit.
    """
    commits = list_commits(open_repository(source), span)
    url = Path(source).resolve().as_uri() if Path(source).is_dir() else source
    names = tuple(commit.hash[:_HASH_DIGITS] for commit in commits)
    return Axis(
        names,
        {name: commit.date for name, commit in zip(names, commits, strict=True)},
        names,
        {name: f"{package} @ git+{url}@{commit.hash}" for name, commit in zip(names, commits, strict=True)},
        f"{len(names)} commits: {names[0]} {commits[0].subject} … {names[-1]} {commits[-1].subject}",
    )


def group_minors(names: Sequence[str]) -> list[list[str]]:
    """Group releases, oldest first, by their first two numbers; commits are one group."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        version = parse_version(name) if "." in name else None
        groups.setdefault(version.release[:2] if version else (), []).append(name)
    return list(groups.values())


def _unknown(rules: RuleSet, package: str, note: str | None) -> UsageError:
    names = sorted(name.partition("/")[2] for base in rules.databases for name in base.sections("releases/"))
    near = get_close_matches(package, names, n=1)
    msg = f"no releases of {package!r} are known" + (f" ({note})" if note else "")
    return UsageError(msg, hint=f"did you mean {near[0]!r}?" if near else "name them: --versions '==1.0 || ==1.1'")
