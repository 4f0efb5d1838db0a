"""What has to move with a package: the releases that frameworks beside it pin, each allowed by the pins of all others."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from compatcheck.core.pattern import lazy_compile
from compatcheck.core.versions import compile_specifier, exact_version, parse_version
from compatcheck.resolution.pins import Pin, allows, find_refused, nearest_first, read_extras, read_pins

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment
    from compatcheck.rules.database import RuleSet

_MOST_MOVES = 48
"""Packages that move together at most; torch brings its CUDA libraries, vLLM what it pins."""
_MOST_TRIED = 12
"""Releases of one package that are tried."""
_MOST_STEPS = 300
"""Packages that are moved, each time, before a pin counts as in the way; one takes about 50 µs."""
_LONG_BEFORE = timedelta(days=365)
"""Time after which the open range of a release promises nothing: vLLM 0.2.0 allows every torch from 2.0 on."""
_FLOOR = lazy_compile(r"[~>]=\s*([^\s,]+)")


class Companions:
    """The pins of the frameworks in an environment, from the releases' own metadata (``rules/_pins``)."""

    def __init__(self, environment: Environment, rules: RuleSet) -> None:
        """Read which packages stand at exactly one release."""
        self._rules = rules
        self._known: dict[frozenset[tuple[str, str]], dict[str, tuple[str, Pin]] | Pin] = {}
        self._mending: dict[tuple[str | None, ...], Sequence[str]] = {}
        self._steps = 0
        self._versions = {
            name: package.version.partition("+")[0]
            for name, package in environment.packages.items()
            if package.version is not None and parse_version(package.version) is not None
        }
        self._holders = {name: pins for name in self._versions if (pins := read_pins(name, rules))}
        self._refused = {damage.package for damage in find_refused(environment, rules)}
        """Packages of which no installer takes what stands beside each other: no choice of the person's that works."""
        self._extras = {name: extras for name in self._holders if (extras := read_extras(name, rules))}

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
            self._steps = 0
            self._known[key] = self._follow(dict(moves), {})
        return self._known[key]

    def _follow(self, moves: dict[str, str], followers: dict[str, tuple[str, Pin]]) -> dict[str, tuple[str, Pin]] | Pin:
        self._steps += 1
        choices = [(pin, self._candidates(pin, moves)) for pin in self._broken(moves)]
        if not choices:
            return followers
        # What nothing mends ends the search before all that something mends is tried.
        broken, releases = next((choice for choice in choices if not choice[1]), choices[0])
        obstacle = broken
        if len(moves) < _MOST_MOVES and self._steps <= _MOST_STEPS:
            name = broken.holder if broken.package in moves else broken.package
            for release in releases[:_MOST_TRIED]:
                found = self._follow({**moves, name: release}, {**followers, name: (release, broken)})
                if not isinstance(found, Pin):
                    return found
                obstacle = broken if name == broken.holder else found
        return obstacle

    def _broken(self, moves: Mapping[str, str]) -> Iterator[Pin]:
        """Yield the pins that hold no more; one that did not hold before is the person's own choice."""
        for holder, rows in self._holders.items():
            release = moves.get(holder, self._versions[holder])
            requires = _required(release, rows)
            for package in requires if holder in moves else moves.keys() & requires.keys():
                specifier, version = requires[package], moves.get(package, self._versions.get(package))
                if version is None or (
                    allows(specifier, version) and not self._precedes(holder, release, package, version)
                ):
                    continue
                own_choice = not allows(specifier, self._versions.get(package, version))
                if holder in moves or not own_choice or {holder, package} <= self._refused:
                    yield Pin(holder, release, package, specifier)
            yield from self._beyond_extras(holder, release, moves)

    def _beyond_extras(self, holder: str, release: str, moves: Mapping[str, str]) -> Iterator[Pin]:
        """Yield what the extra of a release refuses of a package beside it that the extra of the one here allows."""
        extras = self._extras.get(holder, {})
        here = extras.get(self._versions[holder], {})
        for package, specifier in extras.get(release, {}).items():
            current = self._versions.get(package)
            if current is None or package not in here or not allows(here[package], current):
                continue  # it is not there, or the person went beyond the extra
            if not allows(specifier, moves.get(package, current)) and (holder in moves or package in moves):
                yield Pin(holder, release, package, specifier, package)

    def _candidates(self, broken: Pin, moves: Mapping[str, str]) -> Sequence[str]:
        """List the releases of what has not moved that mend a broken pin, the nearest first and newer before older."""
        name, wanted = broken.package, moves.get(broken.package)
        if wanted is not None:
            name = broken.holder
        if name in moves or (wanted is None and allows(broken.specifier, self._versions.get(name, ""))):
            return ()  # it has moved, or only time is in the way
        # whatever release asks for it: the one that mends it moves itself, or is what it says
        key = name, broken.package, broken.specifier if wanted is None else broken.extra, wanted
        if key not in self._mending:
            self._mending[key] = nearest_first(self._versions[name], self._fitting(name, broken, wanted))
        return self._mending[key]

    def _fitting(self, name: str, broken: Pin, wanted: str | None) -> Sequence[str]:
        known: Sequence[str] = self._rules.releases(name)
        if wanted is not None:
            rows = self._holders[name]  # what was yanked is in them alone
            stated = rows if broken.extra is None else self._extras[name]
            asked = {one: stated.get(one, {}).get(broken.package, "") for one in known if one in rows}
            allowed = {specifier for specifier in {*asked.values()} if allows(specifier, wanted)}
            allowing = [one for one, specifier in asked.items() if specifier in allowed]
            return [one for one in allowing if self._knew(name, one, broken.package, wanted)]
        exact = exact_version(broken.specifier)
        if exact is not None:
            same = [] if exact in known else [one for one in known if parse_version(one) == parse_version(exact)]
            return [] if "+" in exact else same or [exact]
        named = _FLOOR.findall(broken.specifier)  # a release, where no snapshot lists them
        if not known:
            return [one for one in named if allows(broken.specifier, one)]
        try:
            bits = self._rules.known(name)
            return bits.listed(bits.every & ~bits.split(compile_specifier(broken.specifier))[1])
        except ValueError:
            return known

    def _precedes(self, holder: str, release: str, package: str, version: str) -> bool:
        """Tell whether a release to go back to is so much older than what stands beside it that its open range says nothing."""
        here, there = parse_version(self._versions[holder]), parse_version(release)
        made, other = self._rules.dates(holder).get(release), self._rules.dates(package).get(version)
        if here is None or there is None or there >= here or made is None or other is None:
            return False
        return date.fromisoformat(other) - date.fromisoformat(made) > _LONG_BEFORE

    def _knew(self, holder: str, release: str, package: str, wanted: str) -> bool:
        """Tell whether a release is no older than what it allows, or not long so where it is a newer one: that is no promise."""
        here, there = parse_version(self._versions[holder]), parse_version(release)
        made, other = self._rules.dates(holder).get(release), self._rules.dates(package).get(wanted)
        if here is None or there is None or made is None or other is None:
            return True
        before = date.fromisoformat(other) - date.fromisoformat(made)
        return before <= (_LONG_BEFORE if there > here else timedelta())


def _required(release: str, rows: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """Return what a release requires; of one that came after all that were read, what the newest of these does."""
    if release in rows:
        return rows[release] or {}
    read = {one: version for one in rows if (version := parse_version(one)) is not None}
    here, newest = parse_version(release), max(read, key=read.__getitem__, default=None)
    return rows[newest] if here is not None and newest is not None and here > read[newest] else {}
