"""A resolver is asked once, and where it refuses, for the nearest releases that fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence

import pytest

from compatcheck.core.effects import PATCH_RELEASE
from compatcheck.core.environment import Package
from compatcheck.core.fix import NOT_CHECKED, REFUSED, RESOLVED, VERSION, Change
from compatcheck.core.source import Source
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.fixing import confirmation
from compatcheck.fixing.confirmation import Confirmed, Questions, search_confirmed
from compatcheck.fixing.levers import Blame, Levers
from compatcheck.fixing.resolver import Answer, Demand
from compatcheck.rules.locate import open_rules

RELEASES = {
    "deepspeed": ("0.16.8", "0.16.9", "0.17.0", "0.17.1"),
    "openrlhf": ("0.6.4", "0.6.2", "0.7.0"),
}
"""By package, the nearest first; deepspeed 0.16.4 and openrlhf 0.6.1 are there."""
CURRENT = {"deepspeed": "0.16.4", "openrlhf": "0.6.1"}


def change(name: str, release: str) -> Change:
    distance = (RELEASES[name].index(release),)
    return Change(
        VERSION,
        name,
        CURRENT[name],
        release,
        frozenset({"s"}),
        PATCH_RELEASE,
        distance,
        "",
        release=release,
        move="patch",
    )


LEVERS = {name: [change(name, release) for release in releases] for name, releases in RELEASES.items()}


class Fails:
    """deepspeed 0.16.4 fails."""

    count, most = 0, 10**9

    def __call__(self, changes: Sequence[Change]) -> Mapping[Hashable, frozenset[str]]:
        return {} if any(one.name == "deepspeed" for one in changes) else {"finding": frozenset({"deepspeed"})}


class Uv:
    """A resolver of pins that knows which releases go together."""

    offline = True

    def __init__(self, fits: Callable[[Mapping[str, str]], bool], words: str = "no") -> None:
        self.fits = fits
        self.words = words
        self.asked: list[tuple[str, ...]] = []

    def resolve(self, demand: Demand) -> Answer:
        """Take the newest releases that fit."""
        self.asked.append(demand.requirements)
        allowed = {}
        for line in demand.requirements:
            name, versions = re.split(r"(?=[=>])", line, maxsplit=1)
            known = sorted((*RELEASES[name], CURRENT[name]), reverse=True)
            allowed[name] = [one for one in known if holds(versions, one)]
        for deepspeed in allowed["deepspeed"]:
            for openrlhf in allowed["openrlhf"]:
                pins = {"deepspeed": deepspeed, "openrlhf": openrlhf}
                if self.fits(pins):
                    return Answer(RESOLVED, None, pins)
        return Answer(REFUSED, self.words)


def holds(versions: str, release: str) -> bool:
    return contains(compile_specifier(versions), release) == "yes"


class Alone:
    """Subjects of which nothing has to move along."""

    subjects = ()

    @staticmethod
    def complete(changes: Sequence[Change]) -> Sequence[Change]:
        return changes


class Installed:
    """No file: the packages are installed."""

    projects: Mapping[str, object] = {}


def confirm(uv: Uv) -> tuple[Confirmed, Questions]:
    packages = {name: Package(name, version, Source("s")) for name, version in CURRENT.items()}
    releases = {name: tuple(sorted((*RELEASES[name], CURRENT[name]))) for name in RELEASES}
    levers = Levers(LEVERS, packages, releases, {}, (), Blame(open_rules(()), ()))
    questions = Questions(Alone(), levers, Installed(), uv)  # type: ignore[arg-type]
    return search_confirmed(LEVERS, Fails(), questions), questions


def releases_of(found: Confirmed) -> dict[str, str | None]:
    return {one.name: one.release for one in found.state.changes}


def test_what_fits_is_asked_once() -> None:
    uv = Uv(lambda _: True)
    found, _ = confirm(uv)
    assert releases_of(found) == {"deepspeed": "0.16.8"}
    assert len(uv.asked) == 1
    assert found.smallest


def test_a_release_that_is_not_there_gives_way_to_the_next_of_its_series() -> None:
    found, _ = confirm(Uv(lambda pins: pins["deepspeed"] != "0.16.8"))
    assert releases_of(found) == {"deepspeed": "0.16.9"}


def test_another_series_is_taken_where_the_nearest_does_not_fit() -> None:
    found, _ = confirm(Uv(lambda pins: not pins["deepspeed"].startswith("0.16") or pins["deepspeed"] == "0.16.4"))
    assert releases_of(found) == {"deepspeed": "0.17.1"}


def test_a_package_that_the_refusal_names_moves_with_it() -> None:
    fits = {("0.16.4", "0.6.1"), ("0.16.8", "0.6.4"), ("0.17.0", "0.7.0")}
    uv = Uv(lambda pins: (pins["deepspeed"], pins["openrlhf"]) in fits, "openrlhf==0.6.1 depends on deepspeed==0.16.4")
    found, _ = confirm(uv)
    assert releases_of(found) == {"deepspeed": "0.16.8", "openrlhf": "0.6.4"}
    assert [[one.release for one in refused] for refused in found.refused] == [["0.16.8"]]


def test_what_nothing_resolves_is_not_proposed() -> None:
    found, _ = confirm(Uv(lambda pins: pins["deepspeed"] == "0.16.4", "holder==1 depends on deepspeed==0.16.4"))
    assert found.state.changes == ()
    assert found.refused
    assert not found.smallest


def test_a_project_that_does_not_resolve_as_it_is_tells_nothing() -> None:
    found, questions = confirm(Uv(lambda _: False, "no torch"))
    assert releases_of(found) == {"deepspeed": "0.16.8"}
    answer = questions.ask({"deepspeed": found.state.changes})
    assert answer.verdict == NOT_CHECKED
    assert "does not resolve: no torch" in (answer.detail or "")


def test_questions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "MOST_QUESTIONS", 1)
    found, questions = confirm(Uv(lambda pins: pins["deepspeed"] in {"0.16.4", "0.17.0"}))
    assert found.state.changes == ()
    assert questions.stopped
