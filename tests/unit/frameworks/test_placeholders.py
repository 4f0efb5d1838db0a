"""Values that something fills in before the program reads them."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.placeholders import read_filled_in
from compatcheck.frameworks.registry import find_configuration_reader

BASE = {"model_name_or_path": "m", "output_dir": "x", "per_device_train_batch_size": 1, "learning_rate": 1e-5}


@pytest.mark.parametrize("value", ["${GC}", "$GC", "${GC:-true}", "${oc.env:GC}", "{{ gc }}"])
def test_a_value_filled_in_later_is_unresolved(value: str) -> None:
    reader = find_configuration_reader("hf_trainer")
    assert reader is not None
    (document,) = read_filled_in(reader, {**BASE, "gradient_checkpointing": value}, "c.yaml").documents
    assert "gradient_checkpointing" not in {one.key for one in document.statements}
    assert ("training.gradient_checkpointing", "gradient_checkpointing") in {one[:2] for one in document.unresolved}


def test_a_key_without_a_meaning_of_its_own_is_a_gap() -> None:
    reader = find_configuration_reader("hf_trainer")
    assert reader is not None
    (document,) = read_filled_in(reader, {**BASE, "fsdp": "${F}"}, "c.yaml").documents
    assert not {one.fact for one in document.statements} & {"training.sharding"}
    assert [gap.key for gap in document.gaps] == ["fsdp"]


def test_what_has_no_bearing_and_what_the_file_itself_holds_are_left_alone() -> None:
    reader = find_configuration_reader("hf_trainer")
    assert reader is not None
    data = {**BASE, "run_name": "${NAME}", "logging_dir": "${output_dir}"}
    (document,) = read_filled_in(reader, data, "c.yaml").documents
    assert not document.gaps
    assert not document.unresolved
