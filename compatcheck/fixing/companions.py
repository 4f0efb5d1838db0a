"""What has to move with a package: the releases that frameworks beside it pin, each allowed by the pins of all others."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.versions import compile_specifier, contains, exact_version, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment
    from compatcheck.rules.database import RuleSet

_MOST_MOVES = 24
"""Packages that move together at most; torch brings its CUDA libraries."""
_MOST_TRIED = 12
"""Releases of one package that are tried."""


class Pin(NamedTuple):
    """A release that requires another package in a range."""

    holder: str
    release: str
    package: str
    specifier: str

    def __str__(self) -> str:
        """Write it as a person does: ``openrlhf 0.6.1 requires deepspeed==0.16.4``."""
        return f"{self.holder} {self.release} requires {self.package}{self.specifier}"


class Companions:
    """The pins of the frameworks in an environment, from the releases' own metadata (``rules/_pins``)."""

    def __init__(self, environment: Environment, rules: RuleSet) -> None:
        """Read which packages stand at exactly one release."""
        self._rules = rules
        self._known: dict[frozenset[tuple[str, str]], dict[str, tuple[str, Pin]] | Pin] = {}
        self._versions = {
            name: package.version.partition("+")[0]
            for name, package in environment.packages.items()
            if package.version is not None and parse_version(package.version) is not None
        }
        self._holders = {
            name: {row["version"]: row["requires"] for row in section["rows"]}
            for name in self._versions
            if (section := rules.section(f"pins/{name}"))
        }

    @property
    def names(self) -> frozenset[str]:
        """Every package that pins hold or name."""
        rows = (requires for found in self._holders.values() for requires in found.values())
        return frozenset(self._holders).union(*rows)

    def complete(self, moves: Mapping[str, str]) -> dict[str, tuple[str, Pin]] | Pin:
        """Find what has to move along.

        Args:
            moves: package → release it gets.

        Returns:
            Package → release, and the pin that asks for it, of those moves alone; the pin in the way where no release of its
            holder, or of what it pins, fits.
        """
        key = frozenset(moves.items())
        if key not in self._known:
            self._known[key] = self._follow(dict(moves), {})
        return self._known[key]

    def _follow(self, moves: dict[str, str], followers: dict[str, tuple[str, Pin]]) -> dict[str, tuple[str, Pin]] | Pin:
        broken = next(self._broken(moves), None)
        if broken is None:
            return followers
        if len(moves) >= _MOST_MOVES or (broken.package in moves and broken.holder in moves):
            return broken
        name = broken.holder if broken.package in moves else broken.package
        obstacle = broken
        for release in self._candidates(name, broken, moves)[:_MOST_TRIED]:
            found = self._follow({**moves, name: release}, {**followers, name: (release, broken)})
            if not isinstance(found, Pin):
                return found
            obstacle = broken if name == broken.holder else found
        return obstacle

    def _broken(self, moves: Mapping[str, str]) -> Iterator[Pin]:
        """Yield the pins that hold no more; one that did not hold before is the person's own choice."""
        for holder, rows in self._holders.items():
            release = moves.get(holder, self._versions[holder])
            for package, specifier in (rows.get(release) or {}).items():
                version = moves.get(package, self._versions.get(package))
                if not specifier or version is None or (holder not in moves and package not in moves):
                    continue
                held = holder in moves or _allows(specifier, self._versions.get(package, version))
                if held and not _allows(specifier, version):
                    yield Pin(holder, release, package, specifier)

    def _candidates(self, name: str, broken: Pin, moves: Mapping[str, str]) -> Sequence[str]:
        """List the releases of a package that mend a broken pin, the nearest first and newer before older."""
        if name == broken.holder:
            wanted = moves[broken.package]
            fitting = [
                release
                for release, requires in self._holders[name].items()
                if _allows(requires.get(broken.package) or "", wanted)
            ]
        else:
            exact = exact_version(broken.specifier)
            if exact is not None:
                return [exact]
            fitting = [one for one in self._rules.releases(name) if _allows(broken.specifier, one)]
        return nearest_first(self._versions[name], fitting)


@lru_cache(maxsize=4096)
def _allows(specifier: str, version: str) -> bool:
    if not specifier:
        return True
    try:
        return contains(compile_specifier(specifier), version) != "no"
    except ValueError:
        return True


def nearest_first(current: str, releases: Sequence[str]) -> list[str]:
    """Order final releases from the nearest to a version to the farthest, all newer ones before all older ones."""
    here = parse_version(current)
    parsed = {release: version for release in releases if (version := parse_version(release)) is not None}
    final = sorted((release for release in parsed if not parsed[release].is_prerelease), key=parsed.__getitem__)
    newer = [release for release in final if here is None or parsed[release] > here]
    return [*newer, *(release for release in reversed(final) if release not in newer and parsed[release] != here)]
