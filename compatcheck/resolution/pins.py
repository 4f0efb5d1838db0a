"""What releases require of each other (``rules/_pins``), held against releases that a manifest asks for exactly."""

from __future__ import annotations

from functools import lru_cache

from compatcheck.core.environment import TOGETHER, Damage
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import compile_specifier, contains, exact_version, order_of, order_of_final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment, Package
    from compatcheck.rules.database import RuleSet

KIND = "refused_by_pins"
"""Kind of the damage, and the fact's name behind ``environment.``."""
_UNSURE = frozenset({"direct_url", "editable", "marker", "override", "vcs"})
"""Details of a package whose release an installer does not choose, or not by what others require of it."""


class Pin(NamedTuple):
    """A release that requires another package in a range."""

    holder: str
    release: str
    package: str
    specifier: str
    extra: str | None = None
    """The extra that requires it; None where the release itself does."""

    def __str__(self) -> str:
        """Write it as a person does: ``openrlhf 0.6.1 requires deepspeed==0.16.4``."""
        holder = self.holder if self.extra is None else f"{self.holder}[{self.extra}]"
        return f"{holder} {self.release} requires {self.package}{self.specifier}"


def read_pins(name: str, rules: RuleSet, *, built: bool = False) -> dict[str, Mapping[str, str]]:
    """Return what each release of a package requires of others, where that is known.

    Args:
        name: the package.
        rules: the database.
        built: whether only wheels count: what a source archive records depends on the machine it was made on.
    """
    rows = rules.section(f"pins/{name}") or ()
    return {
        release: requires
        for releases, requires, kind, _ in rows
        for release in releases
        if not built or kind == "wheel"
    }


def read_extras(name: str, rules: RuleSet) -> dict[str, Mapping[str, str]]:
    """Return what each release of a package requires of those that it has an extra for: the engine that it is made for."""
    rows = rules.section(f"pins/{name}") or ()
    return {release: extras for releases, _, _, extras in rows for release in releases if extras}


def find_refused(environment: Environment, rules: RuleSet, settled: Iterable[Damage] = ()) -> Iterator[Damage]:
    """Find two releases that a manifest asks for, of which one requires another release of the other: no installer takes both.

    What is installed, locked or in an image is past that: somebody overrode the pin, or installed without dependencies.

    Args:
        environment: with its packages.
        rules: the database.
        settled: what is wrong with packages already and says more of them than that a pin is in the way.
    """
    known = {damage.package for damage in settled}
    asked = environment.packages.items()
    exact = {
        name: package
        for name, package in asked
        if _is_exact(package) and (environment.to_resolve or TOGETHER in package.details)
    }
    for name, package in exact.items():
        if name in known:
            continue
        pins = read_pins(name, rules, built=True)
        for other, specifier in pins.get(_release(package), {}).items():
            wanted = exact.get(other)
            if wanted is None or allows(specifier, _release(wanted)) or not is_built_alike(package, wanted):
                continue
            if not environment.to_resolve and not _is_resolved_with(package, wanted):
                continue
            pin = Pin(name, _release(package), other, specifier)
            lines = f"{pin} ({package.source}), and {other} is {wanted.version} ({wanted.source})"
            detail = f"{lines}; {_ways_out(pin, pins, _release(wanted), rules)}"
            for one in (package, wanted):
                yield Damage(KIND, one.name, detail, (package.source, wanted.source))


def _is_exact(package: Package) -> bool:
    return package.version is not None and not package.is_optional and _UNSURE.isdisjoint(package.details)


def _is_resolved_with(package: Package, other: Package) -> bool:
    """Tell whether one command installs both, whatever is there before."""
    return TOGETHER in package.details and package.details[TOGETHER] == other.details.get(TOGETHER)


def is_built_alike(package: Package, other: Package) -> bool:
    """Tell whether a build requires what the wheel of its release on PyPI does: without label, for CUDA, or with the other's.

    Builds with labels of their own are made for what their maker has: vLLM's for ROCm for a torch of AMD's.
    """
    label = (package.version or "").partition("+")[2]
    return not label or label.startswith("cu") or label == (other.version or "").partition("+")[2]


def _release(package: Package) -> str:
    return (package.version or "").partition("+")[0]


def _ways_out(pin: Pin, pins: Mapping[str, Mapping[str, str]], wanted: str, rules: RuleSet) -> str:
    """Name the nearest release of either that allows the other."""
    same = exact_version(pin.specifier)
    allowed = [one for one in rules.releases(pin.package) if allows(pin.specifier, one)]
    fitting = nearest_first(wanted, allowed) or ([same] if same is not None else [])
    listed = [
        one for one in rules.releases(pin.holder) if one in pins and allows(pins[one].get(pin.package, ""), wanted)
    ]
    holding = nearest_first(pin.release, listed)
    ways = [f"{pin.holder} {pin.release} allows {pin.package} {fitting[0]}"] if fitting else []
    ways += [f"{pin.holder} {holding[0]} allows {pin.package} {wanted}"] if holding else []
    return ", ".join(ways) or "no known release of either allows the other"


@lru_cache(maxsize=65536)
def allows(specifier: str, version: str) -> bool:
    """Tell whether a specifier allows a version, as far as both can be compared."""
    if not specifier:
        return True
    try:
        return contains(compile_specifier(specifier), version) != "no"
    except ValueError:
        return True


def nearest_first(current: str, releases: Sequence[str]) -> list[str]:
    """Order final releases from the nearest to a version to the farthest, all newer ones before all older ones."""
    here = order_of(current)
    places = {release: place for release in releases if (place := order_of_final(release)) is not None}
    final = sorted(places, key=places.__getitem__)
    newer = [release for release in final if here is None or places[release] > here]
    return [*newer, *(release for release in reversed(final) if here is not None and places[release] < here)]
