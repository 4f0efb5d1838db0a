"""Fingerprints: the same finding has the same one, wherever the checkout lies."""

from __future__ import annotations

import os

import pytest

from compatcheck.core.report import Finding
from compatcheck.reporters.fingerprint import fingerprint


def finding(subject: str, rule_id: str = "a/b", role: str = "train") -> Finding:
    rest = {"kind": "pitfall", "title": "t", "status": "affected", "severity": "low", "confidence": "reported"}
    empty = dict.fromkeys(("needs", "assumptions", "facts", "locations", "remedies", "references"), ())
    return Finding(rule_id=rule_id, subject=subject, role=role, message="m", impact=None, **rest, **empty)


@pytest.mark.parametrize("folder", ["one", "two/deep"])
def test_place_of_the_checkout_leaves_no_trace(tmp_path, monkeypatch, folder) -> None:
    checkout = tmp_path / folder
    (checkout / ".git").mkdir(parents=True)
    monkeypatch.chdir(checkout)
    assert fingerprint(finding(f"{checkout}/a.txt + {checkout}/b.json")) == fingerprint(finding("a.txt + b.json"))


def test_every_part_counts() -> None:
    seen = {
        fingerprint(finding("a")),
        fingerprint(finding("b")),
        fingerprint(finding("a", "a/c")),
        fingerprint(finding("a", role="actor")),
    }
    assert len(seen) == 4


def test_root_directory_is_no_prefix(monkeypatch) -> None:
    monkeypatch.chdir(os.sep)
    assert fingerprint(finding("a/b")) != fingerprint(finding("ab"))
