"""Keys that not every release of a program knows, one program after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.checking.verdict import Judgement
from compatcheck.core.effects import MINOR_RELEASE
from compatcheck.core.environment import Environment, Package
from compatcheck.core.fix import VERSION, Change
from compatcheck.core.source import Source
from compatcheck.fixing.evaluation import Evaluation, resolve_changed
from compatcheck.frameworks.accelerate import configuration as accelerate
from compatcheck.frameworks.axolotl import configuration as axolotl
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.llamafactory import configuration as llamafactory
from compatcheck.frameworks.torchtitan import configuration as torchtitan
from compatcheck.frameworks.torchtune import configuration as torchtune
from compatcheck.matching.engine import Outcome
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.scope import FactScope
from compatcheck.resolution.spelling import find_spellings
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.resolution.subject import Subject

RULES = open_rules(())
FSDP = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": True},
}
TRAINER = {"output_dir": "o", "bf16": True, "fsdp": "full_shard", "fsdp_config": {"version": 2}}
ZERO = {"zero_optimization": {"stage": 2}, "torch_autocast": {"enabled": True}}
AXOLOTL = {"base_model": "a/b", "micro_batch_size": 1, "datasets": [], "gradient_checkpointing": True}
PREFERENCE = {
    "model_name_or_path": "a/b",
    "stage": "dpo",
    "finetuning_type": "full",
    "template": "x",
    "output_dir": "o",
}
RECIPE = {
    "model": {"_component_": "torchtune.models.llama3.llama3_8b"},
    "tokenizer": {"path": "x"},
    "batch_size": 1,
    "enable_activation_checkpointing": True,
}
VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=a/b "
MEGATRON = VERL + "--config-name=ppo_megatron_trainer.yaml "
LORA, ADAPTER = (f"actor_rollout_ref.model.{key}=16" for key in ("lora_rank", "lora.rank"))
LAUNCHED = (
    *accelerate.read(FSDP, "a.yaml").documents,
    *hf_trainer.read({"output_dir": "o", "bf16": True}, "t.yaml").documents,
)
NOTHING = Judgement((), None, Outcome((), (), ()))
SWIFT = "swift sft --model a/b --dataset c/d --torch_dtype bfloat16 "


def subject_of(read: tuple[Document, ...], **releases: str) -> Subject:
    place = Source("requirements.txt")
    packages = {
        name.replace("_", "-"): Package(name.replace("_", "-"), version, place) for name, version in releases.items()
    }
    environment = Environment(origin="requirements.txt", packages=packages, complete=False)
    return resolve("x", rules=RULES, environment=environment, documents=read)


def value_of(subject: Subject, name: str) -> Any:
    facts = subject.roles.get("actor") or subject.roles["train"]
    fact = facts.get(name)
    return None if fact is None else fact.value


@pytest.mark.parametrize(
    ("read", "name", "package", "without", "there"),
    [
        (LAUNCHED, "training.fsdp_version", "accelerate", ("1.5.2", 1), ("1.6.0", 2)),
        (hf_trainer.read(TRAINER, "t.yaml").documents, "training.fsdp_version", "transformers", ("4.57.6", 1), ("5.0.0", 2)),
        (deepspeed.read(ZERO, "d.json").documents, "training.torch_autocast", "deepspeed", ("0.16.4", False), ("0.17.2", True)),
        (
            axolotl.read({**AXOLOTL, "activation_offloading": True}, "x.yaml").documents,
            "training.activation_offloading", "axolotl", ("0.11.0", None), ("0.12.0", True),
        ),
        (
            axolotl.read({**AXOLOTL, "trl": {"vllm_gpu_memory_utilization": 0.5}, "rl": "grpo"}, "x.yaml").documents,
            "rollout.gpu_memory_utilization", "axolotl", ("0.9.0", 0.9), ("0.7.0", 0.5),
        ),
        (
            llamafactory.read({**PREFERENCE, "pref_beta": 0.2}, "l.yaml").documents,
            "training.kl_coefficient", "llamafactory", ("0.7.1", None), ("0.8.0", 0.2),
        ),
        (
            torchtune.read({**RECIPE, "enable_activation_offloading": True}, "r.yaml").documents,
            "training.activation_offloading", "torchtune", ("0.3.0", None), ("0.4.0", True),
        ),
        (
            torchtitan.read({"training": {"batch_size": 4}, "model": {"name": "llama3"}}, "t.toml").documents,
            "training.micro_batch_size", "torchtitan", ("0.1.0", None), ("0.0.2", 4),
        ),
        (documents(SWIFT + "--tuner_type lora"), "training.peft", "ms_swift", ("3.12.0", None), ("4.0.0", "lora")),
        (documents(SWIFT + "--train_type lora"), "training.peft", "ms_swift", ("4.1.0", None), ("3.12.0", "lora")),
        (documents(VERL + LORA), "training.lora_rank", "verl", ("0.2.0", None), ("0.4.0", 16)),
        (documents(MEGATRON + LORA), "training.lora_rank", "verl", ("0.6.1", None), ("0.8.0", None)),
        (documents(MEGATRON + ADAPTER), "training.lora_rank", "verl", ("0.6.1", None), ("0.7.0", 16)),
    ],
)  # fmt: skip
def test_a_key_counts_in_releases_that_know_it(
    read: tuple[Document, ...], name: str, package: str, without: tuple[str, Any], there: tuple[str, Any]
) -> None:
    for release, expected in (without, there):
        assert value_of(subject_of(read, **{package: release}), name) == expected


def test_a_program_that_is_built_on_another_knows_the_keys_of_its_release() -> None:
    read = documents("trl sft --model_name_or_path a/b --dataset_name c/d --torch_empty_cache_steps 4")
    values = [
        value_of(subject_of(read, trl="0.12.0", transformers=release), "training.empty_cache_steps")
        for release in ("4.42.4", "4.44.0")
    ]
    assert values == [None, 4]


def test_a_key_that_is_passed_over_stops_no_gate_and_is_named() -> None:
    subject = subject_of(LAUNCHED, accelerate="1.5.2")
    assert [(entry.source.key, entry.reason, entry.passes) for entry in subject.skipped] == [
        (f"fsdp_config.{key}", "unknown to accelerate 1.5.2, which passes over it", True)
        for key in ("fsdp_reshard_after_forward", "fsdp_version")
    ]
    assert not subject.unresolved
    assert value_of(subject, "training.fsdp_sharding_strategy") == "full_shard"


def test_without_a_release_a_key_counts() -> None:
    assert value_of(subject_of(LAUNCHED), "training.fsdp_version") == 2


@pytest.mark.parametrize(
    ("command", "release", "expected"),
    [
        (VERL, "0.2.0", False), (VERL, "0.3.0.post1", False), (VERL, "0.4.0", True),
        (MEGATRON, "0.6.1", False), (MEGATRON, "0.7.0", True),
    ],
)  # fmt: skip
def test_a_key_is_proposed_for_releases_that_know_it(command: str, release: str, *, expected: bool) -> None:
    read = documents(command)
    subject = subject_of(read, verl=release)
    scope = FactScope(subject.roles["actor"], subject.environment, RULES)
    found = [one.key for one in find_spellings(read, "training.lora_rank", 16, "actor", scope)]
    assert bool(found) is expected


def release_of(package: str, before: str, after: str) -> Change:
    return Change(VERSION, package, before, after, frozenset({"x"}), MINOR_RELEASE, (), "", release=after)


def test_another_release_reads_what_this_one_passes_over() -> None:
    subject = subject_of(LAUNCHED, accelerate="1.5.2")
    moved = resolve_changed(subject, [release_of("accelerate", "1.5.2", "1.12.0")], RULES)
    assert value_of(moved, "training.fsdp_version") == 2
    assert not moved.skipped


@pytest.mark.parametrize(("release", "forgets"), [("1.5.2", True), ("1.10.0", False)])
def test_a_release_that_does_not_know_a_written_key_is_no_way_out(release: str, *, forgets: bool) -> None:
    subject = subject_of(LAUNCHED, accelerate="1.12.0")
    evaluation = Evaluation([subject], RULES, lambda _: NOTHING)
    assert (evaluation.unread([release_of("accelerate", "1.12.0", release)]) is not None) is forgets
