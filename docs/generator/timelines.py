"""Releases that a rule is about: in words, on a timeline, and in a table of the first and the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.versions import compile_specifier, contains
from compatcheck.rules.rule import COMPONENTS
from docs.generator.page import show_figure, write_table
from docs.generator.releases import list_finals
from docs.generator.strips import Band, Strip, draw_strips

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.rules.database import RuleSet, Texts

_WORDS = {"present": "any release", "absent": "not there"}
_BEFORE = 10
"""Releases that a timeline begins before the first one affected."""


class _Range(NamedTuple):
    """Releases of a package that a rule is about."""

    package: str
    specifier: str
    checked: bool
    """Whether it is known of them; between a release known bad and one known good it is not."""

    @property
    def text(self) -> str:
        """The range in words."""
        return _say_range(self.specifier) + ("" if self.checked else ", not checked")


def list_ranges(texts: Texts) -> str:
    """Write the ranges in one line."""
    ranges = dict.fromkeys(
        f"{name} {_say_range(specifier)}" for packages, _ in texts.affected for name, specifier in packages.items()
    )
    return "; ".join(ranges) or "any"


def _say_range(specifier: str) -> str:
    return _WORDS.get(specifier, specifier.replace("||", " or ").replace(",", ", "))


def clause_text(packages: Mapping[str, str]) -> str:
    """Write the ranges of one alternative."""
    return " with ".join(f"{name} {_say_range(specifier)}" for name, specifier in packages.items()) or "any release"


def write_releases(texts: Texts, rules: RuleSet) -> Iterator[str]:
    """Draw the timeline of each package, and write the table of ranges."""
    ranges = [
        _Range(name, specifier, checked=True) for packages, _ in texts.affected for name, specifier in packages.items()
    ]
    ranges += [_Range(name, specifier, checked=False) for name, specifier in texts.unverified.items()]
    ranges = list(dict.fromkeys(ranges))
    for index, name in enumerate(dict.fromkeys(one.package for one in ranges)):
        releases = list_finals(rules.releases(name))
        found = {
            each: _find_affected(each.specifier, releases)
            for each in ranges
            if each.package == name and each.specifier not in _WORDS
        }
        marked = set().union(*found.values())
        if marked:
            start = max(0, min(marked) - max(_BEFORE, len(marked)))
            strips = [
                Strip(
                    each.text,
                    tuple(_bands({place - start for place in places}, len(releases) - start, checked=each.checked)),
                )
                for each, places in found.items()
                if places
            ]
            yield show_figure(
                draw_strips(f"releases-{index}", f"Affected releases of {name}", releases[start:], strips)
            )
    rows = [_tabulate(each, rules) for each in ranges]
    if any(any(row[2:]) for row in rows):
        yield write_table(("package", "range", "first affected", "last affected", "first after it"), rows)
    elif rows:
        yield "; ".join(f"{package}: {text}" for package, text, *_ in rows) + "."
    else:
        yield "No release is at fault: it holds whatever is installed."
    if any(len(packages) > 1 for packages, _ in texts.affected) and not any(when for _, when in texts.affected):
        clauses = "\n".join(f"- {clause_text(packages)}" for packages, _ in texts.affected)
        yield f"What stands on one line has to be there together:\n\n{clauses}"
    if any(each.package in COMPONENTS for each in ranges):
        yield "CUDA, its libraries, the driver and Python are compared as they are found on the machine or in the wheels."
    if texts.checked_through:
        yield (
            "Checked through " + ", ".join(f"{name} {version}" for name, version in texts.checked_through.items()) + "."
        )


def _tabulate(one: _Range, rules: RuleSet) -> tuple[str, ...]:
    """Write the row of a range: its first and last release, and the first that is good again."""
    releases, dates = list_finals(rules.releases(one.package)), rules.dates(one.package)
    marked = set() if one.specifier in _WORDS else _find_affected(one.specifier, releases)
    if not marked:
        return f"`{one.package}`", one.text, "", "", ""
    after = releases[max(marked) + 1 :]
    last = _dated(releases[max(marked)], dates) if after else f"{releases[max(marked)]}, the newest"
    return (
        f"`{one.package}`",
        one.text,
        _dated(releases[min(marked)], dates),
        last,
        _dated(after[0], dates) if after else "none yet",
    )


def _find_affected(specifier: str, releases: Sequence[str]) -> set[int]:
    bounds = compile_specifier(specifier)
    return {place for place, release in enumerate(releases) if contains(bounds, release) == "yes"}


def _bands(marked: set[int], number: int, *, checked: bool) -> Iterator[Band]:
    start = 0
    for place in range(1, number + 1):
        if place == number or (place in marked) != (start in marked):
            words = ("bad", "affected") if checked else ("doubt", "not checked")
            yield Band(start, place - 1, *(words if start in marked else ("none", "not affected")))
            start = place


def _dated(release: str, dates: Mapping[str, str]) -> str:
    return f"{release} ({dates[release]})" if release in dates else release
