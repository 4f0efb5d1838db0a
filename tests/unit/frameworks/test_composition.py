"""Which files a document composes from, in which order, and what hides what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from compatcheck.core.document import Document
from compatcheck.core.source import Source
from compatcheck.frameworks.areal import configuration as areal
from compatcheck.frameworks.composition import compose
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.nemo_rl import configuration as nemo_rl
from compatcheck.frameworks.placeholders import read_filled_in
from compatcheck.frameworks.prime_rl import configuration as prime_rl
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import facts

if TYPE_CHECKING:
    from pathlib import Path

POLICY = {
    "model_name": "Qwen/Qwen2.5-1.5B",
    "train_global_batch_size": 512,
    "train_micro_batch_size": 4,
    "max_total_sequence_length": 512,
    "precision": "bfloat16",
    "dtensor_cfg": {"enabled": True},
}


def one(path: str, policy: dict[str, Any], defaults: object = None) -> Document:
    data = {"policy": policy, "grpo": {}, "loss_fn": {}, "checkpointing": {"enabled": False}}
    if defaults is not None:
        data["defaults"] = defaults
    (document,) = read_filled_in(nemo_rl, data, path).documents
    return document


def micro_batches(*documents: Document) -> list[object]:
    """Return every micro batch that the composed documents state."""
    composed = compose(documents)
    return [entry.value for made in composed for entry in made.statements if entry.fact == "training.micro_batch_size"]


def test_a_value_that_something_fills_in_hides_that_of_the_base() -> None:
    top = one("e.yaml", {"model_name": "${oc.env:MODEL,m}", "train_micro_batch_size": "${MB}"}, "base.yaml")
    made, base = compose((top, one("base.yaml", POLICY)))
    assert {entry.fact for entry in made.unresolved} >= {"model.name", "training.micro_batch_size"}
    assert "training.micro_batch_size" not in facts(base)
    assert not [name for kind, name, _ in base.references if kind == "model"]
    assert facts(base)["training.sequence_length"] == 512


def test_what_the_base_leaves_to_a_key_above_it_is_filled_in() -> None:
    base = one("base.yaml", {**POLICY, "train_micro_batch_size": "${size}"})
    assert [entry.fact for entry in base.unresolved] == ["training.micro_batch_size"]
    top = nemo_rl.read({"defaults": "base.yaml", "size": 7, "policy": {"precision": "float32"}}, "e.yaml").documents
    assert micro_batches(*top, base) == [7]


def test_bases_of_one_name_are_told_by_their_places() -> None:
    top = one("exp.yaml", {"precision": "float32"}, ["y/base.yaml", "./x/base.yaml"])
    x = one("x/base.yaml", {"max_total_sequence_length": 256})
    y = one("y/base.yaml", POLICY)
    for order in ((top, x, y), (top, y, x)):
        made = {document.source.path: facts(document) for document in compose(order)}
        assert made["x/base.yaml"]["training.sequence_length"] == 256
        assert made["y/base.yaml"]["training.micro_batch_size"] == 4
        assert "training.sequence_length" not in made["y/base.yaml"]


def test_the_base_of_another_place_is_not_taken_for_one_that_is_not_there(tmp_path: Path) -> None:
    data = {"policy": POLICY, "grpo": {}, "loss_fn": {}, "checkpointing": {}}
    (tmp_path / "x").mkdir()
    (tmp_path / "x/base.yaml").write_text(yaml.safe_dump(data))
    top = tmp_path / "exp.yaml"
    top.write_text("defaults: [x/base.yaml, y/base.yaml]\npolicy: {precision: float32}\n")
    (reading,) = read_configurations(str(top), named=True)
    first, *_ = followed = follow_references(reading.documents, open_rules(), {})
    assert [gap.why for gap in first.gaps] == ["names 'y/base.yaml', which could not be read"]
    assert [facts(document).get("training.compute_dtype") for document in followed][:2] == ["float32", None]


def test_a_file_that_a_person_gives_stands_in_for_one_of_its_name_elsewhere() -> None:
    top = one("exp.yaml", {"precision": "float32"}, "/workspace/base.yaml")
    assert micro_batches(top, one("given/base.yaml", POLICY)) == [4]


@pytest.mark.parametrize("twice", [1, 2, 4])
def test_what_is_composed_from_many_times_is_read_once(twice: int) -> None:
    levels = 40
    files = [
        one(
            f"{name}{level}.yaml",
            {"train_micro_batch_size": level + 1},
            [f"d{level + 1}.yaml"] * twice + [f"e{level + 1}.yaml"],
        )
        for level in range(levels)
        for name in "de"
    ]
    assert micro_batches(*files, one(f"d{levels}.yaml", POLICY), one(f"e{levels}.yaml", POLICY)).count(1) == 2


def test_a_long_chain_of_files_ends() -> None:
    chain = [one(f"c{n}.yaml", {"precision": "float32"}, f"c{n + 1}.yaml") for n in range(1200)]
    assert micro_batches(*chain, one("c1200.yaml", POLICY)) == [4]


@pytest.mark.parametrize("top", [(), ({"precision": "float32"}, "a.yaml")])
def test_files_that_compose_from_one_another_in_a_circle_are_said(top: tuple[Any, ...]) -> None:
    files = [one("top.yaml", *top)] if top else []
    files += [one("a.yaml", {"train_micro_batch_size": 7}, "b.yaml"), one("b.yaml", POLICY, "a.yaml")]
    assert micro_batches(*files) == [7]
    gaps = [gap for document in compose(compose(files)) for gap in document.gaps]
    assert [(str(gap.source), gap.why) for gap in gaps] == [("a.yaml", "composes from itself by way of b.yaml")]


def test_templates_of_a_program_without_interpolation_are_unknown() -> None:
    data = {"model": {"name": "{{ model }}"}, "trainer": {"model": {"seq_len": "${LENGTH}"}}, "orchestrator": {}}
    (document,) = read_filled_in(prime_rl, data, "rl.toml").documents
    assert {entry.fact for entry in document.unresolved} >= {"model.name", "training.sequence_length"}


def test_what_a_key_may_change_is_said_no_more_where_the_command_replaces_it() -> None:
    data = {"actor": {"backend": "fsdp:d8"}, "vllm": {"cpu_offload_gb": 4}}
    (file,) = areal.read(data, "c.yaml").documents
    source = Source("run.sh", line=1)
    references = (("config", "c.yaml", "--config"),)
    command = Document(areal.READER, source, (), references=references, is_command=True, options={"x": Argument(1, 1)})
    over = command._replace(options={"vllm.cpu_offload_gb": Argument(0, 1)})
    assert [gap.source.key for _, made in [compose((command, file))] for gap in made.gaps] == ["vllm.cpu_offload_gb"]
    assert not [gap for _, made in [compose((over, file))] for gap in made.gaps]
