"""A key that a release does not know states nothing for it."""

from __future__ import annotations

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.llamafactory import configuration as llama_factory
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules

FILE = {
    "model_name_or_path": "somewhere/else",
    "stage": "sft",
    "finetuning_type": "full",
    "template": "llama3",
    "output_dir": "o",
    "use_reentrant_gc": False,
}


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules(())


def subject_of(rules: RuleSet, version: str | None = None, specifier: str | None = None) -> Subject:
    package = Package("llamafactory", version, Source("requirements.txt"), specifier)
    environment = Environment(origin="requirements.txt", packages={"llamafactory": package}, complete=False)
    documents = llama_factory.read(dict(FILE), "train.yaml").documents
    return resolve("x", rules=rules, environment=environment, documents=documents)


def test_a_key_of_a_later_release_states_nothing_and_is_said(rules: RuleSet) -> None:
    subject = subject_of(rules, "0.9.1")
    assert subject.roles["train"]["training.use_reentrant"].value is True
    assert [(entry.source.key, entry.reason, entry.hint) for entry in subject.skipped] == [
        ("use_reentrant_gc", "unknown to llamafactory 0.9.1", "llamafactory>=0.9.2 has it")
    ]


@pytest.mark.parametrize(("version", "specifier"), [("0.9.2", None), (None, ">=0.9.1"), (None, None)])
def test_a_key_that_the_release_may_know_counts(rules: RuleSet, version: str | None, specifier: str | None) -> None:
    subject = subject_of(rules, version, specifier)
    assert subject.roles["train"]["training.use_reentrant"].value is False
    assert not subject.skipped


def test_a_requirement_that_only_allows_earlier_releases_is_named(rules: RuleSet) -> None:
    subject = subject_of(rules, None, "<0.9.2")
    assert [entry.reason for entry in subject.skipped] == ["unknown to llamafactory <0.9.2"]
