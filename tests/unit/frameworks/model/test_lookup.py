"""Models by name: what is here, what is well known, and what a directory of another machine is called like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

RULES = open_rules(())
HIDDEN = {"qwen2.5-7b": 3584, "qwen2.5-7b-instruct": 3584, "llama-3.2-1b": 2048}
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
        ("/srv/models/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct"),
        ("/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct"),
        ("./downloads/models/Qwen/Qwen2.5-7B/", "qwen2.5-7b"),
        ("$HOME/models/Qwen2.5-7B", "qwen2.5-7b"),
        ("NousResearch/Llama-3.2-1B", "llama-3.2-1b"),
        ("/hub/models--Qwen--Qwen2.5-7B", "qwen2.5-7b"),
        ("/hub/models--Qwen--Qwen2.5-7B/snapshots/0a1b/", "qwen2.5-7b"),
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


def facts(name: str, origin: Source | None = None) -> dict[str | None, object]:
    return {one.fact: one.value for one in find_model(name, RULES, {}, origin).statements}


STORAGE = ("model.stored_dtype", "model.quantization", "model.stored_quantization")


@pytest.mark.parametrize(
    ("name", "dtype", "quantization"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "unsaid", "awq"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "unsaid", "gptq"),
        ("unsloth/Qwen2.5-7B-Instruct-unsloth-bnb-4bit", "unsaid", "nf4"),
        ("someone/Qwen2.5-7B-BNB-NF4-BF16", "unsaid", "nf4"),
        ("RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic", "unsaid", "fp8"),
        ("nvidia/Qwen2.5-7B-Instruct-NVFP4", "unsaid", "nvfp4"),
        ("/srv/models/Qwen2.5-7B-bf16", "bfloat16", None),
        ("/srv/models/Qwen2.5-7B-INT4/", "unsaid", "gptq"),
        ("/srv/models/Qwen2.5-7B_dist_ckpt_mcore", "unsaid", "unsaid"),
    ],
)
def test_a_name_says_how_weights_are_stored_and_its_model_says_their_dimensions(
    name: str, dtype: object, quantization: object
) -> None:
    found = facts(name, PLACE)
    assert found["model.hidden_size"] == HIDDEN["qwen2.5-7b"]
    assert found["model.parameters"] == 7_615_616_512
    assert tuple(found.get(fact, "unsaid") for fact in STORAGE) == (dtype, quantization, quantization)
    (assumed,) = find_model(name, RULES, {}, PLACE).skipped
    assert "the dimensions of the well-known model qwen2.5-7b" in assumed.reason


@pytest.mark.parametrize("stored", ["GPTQ-Int8", "GGUF"])
def test_a_kind_of_storage_that_nothing_is_known_of_is_only_named(stored: str) -> None:
    found = facts(f"someone/Qwen2.5-7B-Instruct-{stored}", PLACE)
    assert found["model.stored_quantization"] == stored.lower()
    assert "model.quantization" not in found


def test_a_person_may_name_the_stored_form_of_a_known_id() -> None:
    assert facts("Qwen/Qwen2.5-7B-Instruct-AWQ")["model.quantization"] == "awq"
    with pytest.raises(InputError):
        find_model("someone/Qwen2.5-7B-Instruct-AWQ", RULES, {})


def test_a_cached_stored_form_is_read_itself(tmp_path: Path) -> None:
    directory = tmp_path / "models--Qwen--Qwen2.5-7B-Instruct-AWQ" / "snapshots" / "1"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"model_type": "qwen2", "hidden_size": 64}')
    document = find_model("Qwen/Qwen2.5-7B-Instruct-AWQ", RULES, {"HF_HUB_CACHE": str(tmp_path)})
    assert document.source.path == str(directory / "config.json")


def test_a_fine_tune_has_the_dimensions_and_its_own_dtype() -> None:
    base, tuned = facts("meta-llama/Llama-3.1-8B"), facts("NousResearch/Hermes-3-Llama-3.1-8B")
    assert {fact for fact in base if base[fact] != tuned.get(fact)} == {"model.stored_dtype"}
    assert "model.stored_dtype" not in tuned


@pytest.mark.parametrize("name", ["/srv/Qwen2_5-7B-Instruct", "/srv/Qwen2.5-7B-Instruct", "Qwen2_5-7B-Instruct/"])
def test_a_directory_may_write_an_underscore_for_the_point_of_a_version(name: str) -> None:
    assert hidden_size(name, PLACE) == HIDDEN["qwen2.5-7b"]


@pytest.mark.parametrize(
    ("name", "positions", "window"),
    [
        ("mistralai/Mistral-7B-v0.1", 32768, 4096),
        ("mistralai/Mistral-7B-Instruct-v0.3", 32768, None),
        ("mistralai/Mistral-Nemo-Base-2407", 1_024_000, None),
        ("microsoft/Phi-3.5-mini-instruct", 131_072, 262_144),
        ("microsoft/Phi-3-mini-4k-instruct", 4096, 2047),
        ("google/gemma-7b", 8192, "unsaid"),
        ("EleutherAI/pythia-14m", 512, "unsaid"),
        ("Qwen/Qwen2.5-7B", 131_072, None),
        ("Qwen/Qwen2.5-7B-Instruct", 32768, None),
        ("Qwen/Qwen2.5-Coder-14B", 32768, None),
        ("Qwen/Qwen2.5-14B-Instruct-1M", 1_010_000, None),
    ],
)
def test_positions_and_windows_are_those_of_the_file(name: str, positions: int, window: object) -> None:
    found = facts(name)
    assert found["model.max_position_embeddings"] == positions
    assert found.get("model.sliding_window", "unsaid") == window


def test_every_name_of_the_catalogue_tells_one_model() -> None:
    models = RULES.section("models")
    told: dict[str, str] = {}
    for short, entry in models.items():
        for name in {short, *entry["aliases"]}:
            document = find_model(name, RULES, {})
            assert document.source.path == f"well-known model {short}"
            assert not document.skipped, document.skipped
            facts = {one.fact for one in document.statements}
            assert {"model.parameters", "model.hidden_size", "model.vocab_size"} <= facts, name
            assert told.setdefault(name.rpartition("/")[2].lower(), short) == short, name
    assert len(models) >= 250


def test_a_name_with_a_slip_is_told_the_one_that_was_meant() -> None:
    with pytest.raises(InputError) as caught:
        find_model("meta-lama/Llama-3.1-8b", RULES, {})
    assert "did you mean 'meta-llama/Llama-3.1-8B'?" in str(caught.value.hint)


def test_a_directory_says_how_its_weights_are_stored_in_a_file_of_its_own_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NVFP4", "exclude_modules": []}}')
    document = find_model(str(tmp_path), RULES, {})
    stored = {one.fact: (one.value, one.key) for one in document.statements}
    assert stored["model.stored_quantization"] == ("nvfp4", "hf_quant_config.json")
