"""Models by name: what is here, what is well known, and what a directory of another machine is called like."""

from __future__ import annotations

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.rules.locate import open_rules

RULES = open_rules(())
HIDDEN = {"qwen2.5-7b": 3584, "llama-3.2-1b": 2048}
PLACE = Source("train.yaml", "model_name_or_path")


def hidden_size(name: str, origin: Source | None = None) -> object:
    document = find_model(name, RULES, {}, origin)
    return next(one.value for one in document.statements if one.fact == "model.hidden_size")


@pytest.mark.parametrize("name", ["qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct"])
def test_a_well_known_model_needs_no_file(name: str) -> None:
    assert hidden_size(name) == HIDDEN["qwen2.5-7b"]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("/srv/models/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("./downloads/models/Qwen/Qwen2.5-7B/", "qwen2.5-7b"),
        ("$HOME/models/Qwen2.5-7B", "qwen2.5-7b"),
        ("NousResearch/Llama-3.2-1B", "llama-3.2-1b"),
    ],
)
def test_a_configuration_may_name_a_directory_of_another_machine(name: str, known: str) -> None:
    document = find_model(name, RULES, {}, PLACE)
    assert hidden_size(name, PLACE) == HIDDEN[known]
    (assumed,) = document.skipped
    assert assumed.passes
    assert assumed.source == PLACE
    assert f"well-known model {known} are assumed" in assumed.reason


@pytest.mark.parametrize("name", ["/srv/models/Qwen2.5-7B-mine", "/srv/models/7b", "Qwen2.5-7B-mine"])
def test_only_a_whole_name_tells_a_model(name: str) -> None:
    with pytest.raises(InputError):
        find_model(name, RULES, {}, PLACE)


def test_what_a_person_names_has_to_be_there() -> None:
    with pytest.raises(InputError):
        find_model("/srv/models/Qwen2.5-7B-Instruct", RULES, {})
