"""Open ranges with releases that nobody has looked at."""

from __future__ import annotations

import json

import pytest

from compatcheck.core.errors import InputError
from compatcheck.rules.locate import open_rules
from compatcheck.rules.named_rule import list_rules
from compatcheck.rules.staleness import find_stale
from compatcheck.services.releases import Release
from tests.cli.run_cli import run

RULES = open_rules(())
OPEN = next(rule for rule in list_rules(RULES, (), inactive=False) if set(RULES.texts(rule).checked_through) == {"trl"})
LAST = RULES.texts(OPEN).checked_through["trl"]


@pytest.mark.parametrize(
    ("further", "newer"),
    [((), ()), (("999.0",), ("999.0",)), (("999.0rc1",), ()), (("999.1", "999.0"), ("999.0", "999.1"))],
)
def test_what_came_out_since_is_listed(further: tuple[str, ...], newer: tuple[str, ...]) -> None:
    found = list(find_stale(RULES, [OPEN], lambda _: ["0.1", LAST, *further]))
    assert [(one.rule_id, one.checked_through, one.newer) for one in found] == (
        [(OPEN.id, LAST, newer)] if newer else []
    )


def test_the_index_is_asked_for_what_came_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(_: str) -> tuple[Release, ...]:
        return (Release("999.0", None, False, False), Release("999.1", None, True, False))

    monkeypatch.setattr("compatcheck.services.releases.fetch_releases", fetch)
    ran = run("rules", "stale", OPEN.id, "--format", "json")
    assert ran.code == 1
    assert "999.0" in json.loads(ran.out)[0]["newer"]
    assert "999.1" not in ran.out
    assert run("rules", "stale", OPEN.id, "--offline").out.count("999.0") == 0


def test_an_index_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise InputError("the package index did not answer")

    monkeypatch.setattr("compatcheck.services.releases.fetch_releases", refuse)
    assert "trl: only the database's own releases" in run("rules", "stale", OPEN.id).err
