"""The reader of a model's config.json."""

from __future__ import annotations

from compatcheck.frameworks.model import configuration as model
from compatcheck.frameworks.recognise import read_configuration
from tests import ROOT
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs/model"


def read(name: str) -> dict[str, object]:
    reading = read_configuration(str(CONFIGS / name), named=True)
    assert reading is not None
    return facts(reading.documents[0])


def test_a_vision_model_counts_its_language_part() -> None:
    found = read("vision.json")
    assert found["model.model_type"] == "qwen2_vl"
    assert found["model.hidden_size"] == 1536
    assert found["model.num_key_value_heads"] == 2


def test_a_file_states_how_weights_are_stored_not_how_they_are_loaded() -> None:
    found = read("quantised.json")
    assert found["model.stored_dtype"] == "float16"
    assert "model.load_dtype" not in found
    assert found["model.quantization"] == "gptq"
    assert found["model.stored_quantization"] == "gptq"


def test_a_file_without_quantisation_states_that_it_has_none() -> None:
    assert read("vision.json")["model.stored_quantization"] is None


def test_alibi_is_a_fact_of_types_that_can_have_it() -> None:
    document = model.read({"model_type": "falcon", "alibi": True}, "config.json").documents[0]
    assert facts(document)["model.alibi"] is True
    assert "model.alibi" not in read("vision.json")


def test_a_trainer_file_with_a_model_type_is_no_model() -> None:
    assert model.recognise({"model_type": "llama"})
    assert not model.recognise({"model_type": "llama", "base_model": "x"})
    assert not model.recognise({"model_type": 5})
