"""torchtitan: its TOML files, of several releases, and what a run of them is resolved to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.core.source import Source
from compatcheck.core.toml import locate_lines
from compatcheck.frameworks.lines import LineFinder
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.frameworks.recognise import read_configuration
from compatcheck.frameworks.torchtitan import configuration as torchtitan
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.frameworks.launch_script.written_commands import documents
from tests.unit.frameworks.stated_facts import facts

if TYPE_CHECKING:
    from compatcheck.core.document import Document

HSDP = ROOT / "fixtures/configs/torchtitan/hsdp.toml"
MODEL = {"model": {"name": "llama3", "flavor": "8B"}}


def read(**sections: dict[str, Any]) -> Document:
    return torchtitan.read({**MODEL, "training": {}, **sections}, "t.toml").documents[0]


def resolved(*found: Document, **settings: int) -> dict[str, Any]:
    given = {f"hardware.{name}": (value, Source("--set")) for name, value in settings.items()}
    subject = resolve("t", rules=open_rules(()), documents=found, settings=given)
    return {name: fact.value for name, fact in subject.roles["train"].items() if name.startswith("training.")}


def test_a_file_is_recognised_by_its_sections_and_read_as_toml() -> None:
    reading = read_configuration(str(HSDP), named=True)
    assert reading is not None
    (document,) = reading.documents
    assert (document.reader, document.unread, document.skipped) == ("torchtitan", (), ())
    assert facts(document) == {
        "training.trainer": "pretrain",
        "training.micro_batch_size": 4,
        "training.global_batch_size": 128,
        "training.sequence_length": 4096,
        "training.fsdp_offload_params": True,
        "training.fsdp_reshard_after_forward": False,
        "training.replicas": 2,
        "training.tensor_parallel": 2,
        "training.context_parallel": 1,
        "training.pipeline_parallel": 1,
        "training.expert_parallel": 1,
        "training.gradient_checkpointing": True,
        "training.checkpointing_policy": "every_other_product",
        "training.checkpoint_every": 1,
        "training.compile": True,
        "training.mixed_precision": "fp8",
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "foreach",
    }
    place = LineFinder().with_line(document.source._replace(key="training.seq_len"))
    assert HSDP.read_text("utf-8").splitlines()[(place.line or 0) - 1] == "seq_len = 4096"


@pytest.mark.parametrize(
    "data",
    [{"package": {"name": "x"}, "dependencies": {}}, {"training": {"seq_len": 1}}, {"model": {"flavor": "8B"}}, {}],
)
def test_other_files_are_not_taken(data: dict[str, Any]) -> None:
    assert not torchtitan.recognise(data)


def test_replicas_that_seldom_meet_are_said() -> None:
    document = read(fault_tolerance={"enable": True, "semi_sync_method": "diloco", "sync_steps": 10})
    assert [(gap.source.key, gap.assumed) for gap in document.gaps] == [("fault_tolerance.semi_sync_method", True)]
    assert not read(fault_tolerance={"enable": True}).gaps


def test_a_hybrid_mesh_follows_from_the_world_size() -> None:
    reading = read_configuration(str(HSDP), named=True)
    assert reading is not None
    found = resolved(*reading.documents, world_size=16)
    assert (found["training.sharding"], found["training.fsdp_version"], found["training.hsdp_shard_size"]) == (
        "fsdp",
        2,
        4,
    )
    assert found["training.gradient_accumulation_steps"] == 4


@pytest.mark.parametrize(
    ("degrees", "world", "sharding"),
    [
        ({}, None, "fsdp"),
        ({}, 8, "fsdp"),
        ({}, 1, "none"),
        ({"data_parallel_shard_degree": 8}, None, "fsdp"),
        ({"data_parallel_shard_degree": 1}, None, "none"),
        ({"data_parallel_shard_degree": 1, "context_parallel_degree": 2}, 2, "fsdp"),
        ({"data_parallel_shard_degree": 1, "data_parallel_replicate_degree": 4}, 4, "ddp"),
        ({"data_parallel_replicate_degree": 4}, 4, "ddp"),
        ({"tensor_parallel_degree": 8}, 8, "none"),
    ],
)
def test_degrees_decide_how_state_is_spread(degrees: dict[str, int], world: int | None, sharding: str) -> None:
    found = resolved(read(parallelism=degrees), **({} if world is None else {"world_size": world}))
    assert found["training.sharding"] == sharding
    assert found["training.fsdp_version"] == (2 if sharding == "fsdp" else None)
    assert ("training.fsdp_reshard_after_forward" in found) == (sharding == "fsdp")


def test_left_out_keys_have_the_defaults_of_the_classes() -> None:
    found = resolved(read(), world_size=8)
    assert found["training.micro_batch_size"] == 8
    assert found["training.sequence_length"] == 2048
    assert found["training.gradient_accumulation_steps"] == 1
    assert "training.gradient_checkpointing" not in found  # every second block alone
    assert found["training.fsdp_reshard_after_forward"] is True
    assert found["training.loss_implementation"] == "cross_entropy"
    assert [found[f"training.{name}_dtype"] for name in ("param", "compute", "reduce")] == [
        "float32",
        "bfloat16",
        "float32",
    ]


@pytest.mark.parametrize(
    ("section", "checkpoints", "policy", "every"),
    [
        ({"mode": "none", "selective_ac_option": "op"}, False, None, None),
        ({"mode": "full", "selective_ac_option": "op"}, True, "full", 1),
        ({"mode": "selective", "selective_ac_option": "op"}, True, "every_other_product", 1),
        ({"mode": "selective", "selective_ac_option": "1"}, True, "full", 1),
        ({"mode": "selective", "selective_ac_option": "2"}, True, "full", 2),
    ],
)
def test_two_keys_tell_what_is_computed_again(
    section: dict[str, str], checkpoints: object, policy: str | None, every: int | None
) -> None:
    document = read(activation_checkpoint=section)
    assert facts(document)["training.gradient_checkpointing"] is checkpoints
    assert facts(document).get("training.checkpointing_policy") == policy
    assert facts(document).get("training.checkpoint_every") == every
    assert document.unresolved == ()


@pytest.mark.parametrize(
    ("section", "left"),
    [
        ({"selective_ac_option": "2"}, ["training.gradient_checkpointing", "training.checkpointing_policy"]),
        ({}, ["training.gradient_checkpointing", "training.checkpointing_policy"]),
        ({"mode": "memory_budget"}, ["training.gradient_checkpointing"]),
    ],
)
def test_what_no_fact_tells_is_left_open(section: dict[str, str], left: list[str]) -> None:
    document = read(activation_checkpoint=section)
    assert [entry.fact for entry in document.unresolved] == left
    assert not set(left) & resolved(document, world_size=8).keys()


def test_stages_cut_the_local_batch() -> None:
    document = read(parallelism={"pipeline_parallel_degree": 4}, training={"local_batch_size": 8})
    assert facts(document)["training.micro_batch_size"] == 1
    assert facts(document)["training.gradient_accumulation_steps"] == 8
    cut = {"pipeline_parallel_degree": 4, "pipeline_parallel_microbatch_size": 2}
    assert facts(read(parallelism=cut, training={"local_batch_size": 8}))["training.micro_batch_size"] == 2
    old = read(experimental={"pipeline_parallel_degree": 4}, training={"batch_size": 8})
    assert facts(old)["training.micro_batch_size"] == 2
    assert resolved(document, world_size=8)["training.fsdp_reshard_after_forward"] is False


def test_names_of_2024() -> None:
    found = facts(
        read(
            training={"batch_size": 2, "tensor_parallel_degree": 8, "compile": True, "data_parallel_shard_degree": 4},
            experimental={"context_parallel_degree": 2},
            float8={"enable_float8_linear": True},
            optimizer={"fused": True},
        )
    )
    assert found["training.micro_batch_size"] == 2
    assert (found["training.tensor_parallel"], found["training.context_parallel"]) == (8, 2)
    assert (found["training.sharding"], found["training.mixed_precision"]) == ("fsdp", "fp8")
    assert (found["training.optimizer_implementation"], found["training.compile"]) == ("fused", True)


def test_compiling_the_loss_alone_compiles_no_block() -> None:
    assert facts(read(compile={"enable": True, "components": ["loss"]}))["training.compile"] is False


def test_a_model_of_the_hub_has_not_its_own_width_and_a_diffusion_model_has_no_tokens() -> None:
    document = read(
        hf_transformers={"model": "Qwen/Qwen3-4B"}, model={"name": "transformers_modeling_backend", "flavor": "full"}
    )
    assert document.references == ()
    assert "model.name" in [entry.fact for entry in document.unresolved]
    assert "training.loss_implementation" not in resolved(read(model={"name": "flux", "flavor": "flux-dev"}))


def test_an_unknown_key_and_an_unknown_word_are_listed() -> None:
    document = read(training={"sequence_len": 4}, optimizer={"name": "Muon"})
    assert [key for key, _ in document.unread] == ["training.sequence_len"]
    assert [entry.fact for entry in document.skipped] == ["training.optimizer"]


def test_a_command_lays_its_options_over_the_file() -> None:
    command, launcher = documents(
        "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file hsdp.toml "
        "--parallelism.data_parallel_replicate_degree 8 --parallelism.data_parallel_shard_degree 1 "
        "--parallelism.tensor_parallel_degree 1"
    )
    reading = read_configuration(str(HSDP), named=True)
    assert reading is not None
    found = resolved(command, *reading.documents, launcher)
    assert (found["training.sharding"], found["training.replicas"]) == ("ddp", 8)
    assert "training.hsdp_shard_size" not in found


def test_lines_of_a_toml_file() -> None:
    assert locate_lines('a = 1\n[b]\n"c" = [\n 1]\n[b.d]\ne=2\n') == {"a": 1, "b": 2, "b.c": 3, "b.d": 5, "b.d.e": 6}


@pytest.mark.parametrize("flavor", sorted(torchtitan.TABLE.words["flavors"]))
def test_every_flavor_names_a_model_that_is_known(flavor: str) -> None:
    name, _, size = flavor.partition(".")
    (reference,) = read(model={"name": name, "flavor": size}).references
    assert reference[::2] == ("model", "model.flavor")
    assert find_model(reference[1], open_rules(()), {}).skipped == ()


def test_a_flavor_that_is_no_well_known_model_names_none() -> None:
    assert read(model={"name": "flux", "flavor": "flux-dev"}).references == ()
