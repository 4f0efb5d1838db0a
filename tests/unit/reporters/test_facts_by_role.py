"""Facts of several roles: the shared ones once, then what each model has of its own."""

from __future__ import annotations

import json

import yaml

from compatcheck.core.facts import Fact
from compatcheck.core.report import SubjectReport
from compatcheck.core.source import Source
from compatcheck.reporters.facts import format_json, format_text, format_yaml


def fact(name: str, value: int) -> Fact:
    return Fact(name, value, "script", (Source("train.sh", name, 3),))


def report(*roles: str) -> SubjectReport:
    facts = [(role, fact("training.sequence_length", 512)) for role in roles]
    facts += [(role, fact("training.micro_batch_size", number)) for number, role in enumerate(roles, 1)]
    return SubjectReport("train.sh", "train.sh", None, (), tuple(facts), (), (), (), ())


def test_shared_facts_are_written_once() -> None:
    lines = [
        line.split("  ")[1]
        for line in format_text([report("actor", "critic")], ()).splitlines()
        if line.startswith("  ")
    ]
    assert lines == [
        "training.sequence_length = 512",
        "actor",
        "training.micro_batch_size = 1",
        "critic",
        "training.micro_batch_size = 2",
    ]


def test_one_role_needs_no_name() -> None:
    text = format_text([report("train")], ())
    assert "  train\n" not in text
    assert text.count("training.micro_batch_size") == 1


def test_each_role_is_a_facts_file_of_its_own() -> None:
    first, second = yaml.safe_load_all(format_yaml([report("actor", "critic")], ()))
    assert first["training"] == {"sequence_length": 512, "micro_batch_size": 1}
    assert second["training"] == {"sequence_length": 512, "micro_batch_size": 2}


def test_json_names_the_role_of_every_fact() -> None:
    (subject,) = json.loads(format_json([report("actor", "critic")], ()))["subjects"]
    assert [entry["role"] for entry in subject["facts"]] == ["actor", "critic", "actor", "critic"]
