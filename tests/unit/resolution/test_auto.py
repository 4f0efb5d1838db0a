"""`auto` means what its owner makes of it, as recorded from the real classes in four releases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compatcheck.core.document import AUTO, Document, Statement
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.deepspeed import configuration as deepspeed
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.frameworks.reading import read_trainer_arguments

RECORDED = sorted((ROOT / "fixtures/measurements/defaults").glob("transformers-auto-*.json"))
PREFETCH = "zero_optimization.stage3_prefetch_bucket_size"
PERSISTENCE = "zero_optimization.stage3_param_persistence_threshold"
FACTS = {
    "zero_optimization.reduce_bucket_size": "training.reduce_bucket_size",
    PREFETCH: "training.prefetch_bucket_size",
    PERSISTENCE: "training.param_persistence_threshold",
    "train_micro_batch_size_per_gpu": "training.micro_batch_size",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "train_batch_size": "training.global_batch_size",
}
PLUGIN = {
    "training.offload_optimizer": None,
    "training.offload_param": None,
    "training.gather_16bit_weights_on_save": False,
}
"""Left at auto by the Trainer, then filled in by accelerate's DeepSpeedPlugin."""


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


def installed(**versions: str) -> Environment:
    packages = {name: Package(name, version, Source("env")) for name, version in versions.items()}
    return Environment("env", packages, complete=True)


def model_document(hidden_size: int | None) -> Document:
    statements = () if hidden_size is None else (Statement("model.hidden_size", "hidden_size", hidden_size),)
    return Document("model", Source("config.json"), statements)


def zero(stage: object = 3, **section: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **section}}


def deepspeed_document(data: dict[str, Any]) -> Document:
    return deepspeed.read_section(data, "ds.json")


def trainer_documents(**arguments: Any) -> tuple[Document, ...]:
    return read_trainer_arguments({"output_dir": "out", "learning_rate": 1e-5, **arguments}, "train.json")


def facts_of(subject: Subject) -> dict[str, Any]:
    return {name: fact.value for name, fact in subject.roles["train"].items()}


def nested(keys: list[str]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key in keys:
        node = data
        *parents, last = key.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = "auto"
    return data


def cases() -> list[Any]:
    found = []
    for path in RECORDED:
        dump = json.loads(path.read_text(encoding="utf-8"))
        for case, entry in dump["classes"].items():
            if "refused" not in entry:
                found.append(pytest.param(dump["versions"], entry, id=f"{path.stem}-{case}"))
    return found


@pytest.mark.parametrize(("versions", "entry"), cases())
def test_resolution_agrees_with_the_recorded_trainer(
    versions: dict[str, str], entry: dict[str, Any], rules: RuleSet
) -> None:
    fields, arguments = entry["fields"], entry["arguments"]
    data = nested(list(fields))
    data["zero_optimization"]["stage"] = arguments["stage"]
    width = int(fields["zero_optimization.reduce_bucket_size"] ** 0.5)
    precision = {name: arguments[name] for name in ("bf16", "fp16") if name in arguments}
    subject = resolve(
        "s",
        rules=rules,
        environment=installed(transformers=versions["transformers"], deepspeed=versions["deepspeed"]),
        documents=(
            *trainer_documents(per_device_train_batch_size=4, gradient_accumulation_steps=2, **precision),
            deepspeed_document(data),
            model_document(width),
        ),
        settings={"hardware.world_size": (1, Source("--set"))},
    )
    facts = facts_of(subject)
    for key, name in FACTS.items():
        if fields[key] != "auto":
            assert facts[name] == int(fields[key]), key
    wanted = "bf16" if fields["bf16.enabled"] else "fp16" if fields["fp16.enabled"] else "no"
    assert facts["training.mixed_precision"] == wanted
    assert {name: facts[name] for name in PLUGIN} == PLUGIN
    unresolved = {name for name, _, _ in subject.unresolved}
    for key in ("allgather_bucket_size", "contiguous_gradients", "overlap_comm"):
        name = f"training.{key}"
        assert fields[f"zero_optimization.{key}"] == "auto"
        assert name not in facts
        assert name in unresolved


def test_below_stage_3_accelerate_fills_in_what_the_trainer_leaves(rules: RuleSet) -> None:
    data = zero(2, stage3_prefetch_bucket_size="auto", stage3_param_persistence_threshold="auto")
    documents = (*trainer_documents(), deepspeed_document(data), model_document(4096))
    facts = facts_of(resolve("s", rules=rules, documents=documents))
    assert facts["training.prefetch_bucket_size"] == 15_099_494
    assert facts["training.param_persistence_threshold"] == 40_960


@pytest.mark.parametrize("key", ["reduce_bucket_size", "stage3_prefetch_bucket_size"])
def test_without_a_hidden_size_the_reason_is_told(rules: RuleSet, key: str) -> None:
    documents = (*trainer_documents(), deepspeed_document(zero(3, **{key: "auto"})))
    subject = resolve("s", rules=rules, documents=documents)
    ((name, place, why),) = subject.unresolved
    assert name.endswith("bucket_size")
    assert place.key == f"zero_optimization.{key}"
    assert "--model" in why
    assert name not in subject.roles["train"]


def test_nobody_fills_in_auto_when_only_the_deepspeed_file_is_known(rules: RuleSet) -> None:
    data = {"train_micro_batch_size_per_gpu": "auto", **zero(3, reduce_bucket_size="auto", overlap_comm="auto")}
    subject = resolve(
        "s",
        rules=rules,
        environment=installed(deepspeed="0.16.4"),
        documents=(deepspeed_document(data), model_document(4096)),
    )
    names = {"training.micro_batch_size", "training.reduce_bucket_size", "training.overlap_comm"}
    assert {name for name, _, _ in subject.unresolved} == names
    assert not names & subject.roles["train"].keys()


def test_deepspeed_itself_keeps_its_defaults_inside_zero_optimization(rules: RuleSet) -> None:
    data = {"train_micro_batch_size_per_gpu": "auto", **zero(3, reduce_bucket_size="auto", overlap_comm="auto")}
    subject = resolve(
        "s",
        rules=rules,
        environment=installed(deepspeed="0.16.4"),
        documents=(deepspeed_document(data), model_document(4096)),
        settings={"training.framework": ("deepspeed", Source("--set"))},
    )
    facts = facts_of(subject)
    assert facts["training.reduce_bucket_size"] == 500_000_000
    assert facts["training.overlap_comm"] is True
    assert {name for name, _, _ in subject.unresolved} == {"training.micro_batch_size"}


def test_auto_of_accelerate_alone_says_what_is_missing(rules: RuleSet) -> None:
    accelerate = Document(
        "accelerate", Source("acc.yaml"), (Statement("training.mixed_precision", "mixed_precision", "bf16"),)
    )
    data = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, **zero("auto")}
    subject = resolve("s", rules=rules, documents=(accelerate, deepspeed_document(data)))
    facts = facts_of(subject)
    assert facts["training.mixed_precision"] == "bf16"
    assert facts["training.zero_stage"] == 2
    assert facts["training.sharding"] == "zero"
    assert [name for name, _, _ in subject.unresolved] == ["training.micro_batch_size"]


def test_a_stated_value_wins_over_auto_elsewhere(rules: RuleSet) -> None:
    documents = (
        *trainer_documents(per_device_train_batch_size=6),
        deepspeed_document({"train_micro_batch_size_per_gpu": "auto", **zero()}),
    )
    subject = resolve("s", rules=rules, documents=documents)
    assert facts_of(subject)["training.micro_batch_size"] == 6
    assert subject.unresolved == ()
    assert not any(fact.value is AUTO for fact in subject.roles["train"].values())


def test_an_optimizer_section_leaves_the_trainers_kernels_out_of_it(rules: RuleSet) -> None:
    stack = installed(transformers="4.48.0", torch="2.6.0", deepspeed="0.16.4")
    plain = facts_of(resolve("s", rules=rules, environment=stack, documents=trainer_documents()))
    assert (plain["training.optimizer"], plain["training.optimizer_implementation"]) == ("adamw", "foreach")
    section = deepspeed_document({"optimizer": {"type": "AdamW"}, **zero(1)})
    facts = facts_of(resolve("s", rules=rules, environment=stack, documents=(*trainer_documents(), section)))
    assert facts["training.optimizer"] == "adamw"
    assert "training.optimizer_implementation" not in facts
