"""Inputs become one subject: precedence over defaults, origins everywhere, and the facts file reads back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.core.document import Document, Statement
from compatcheck.core.environment import Damage, Environment, Package
from compatcheck.core.errors import CompatcheckError, InputError
from compatcheck.core.facts import ORIGINS
from compatcheck.core.hardware import Hardware
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.native import configuration as native
from compatcheck.frameworks.recognise import follow_references, read_configuration
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests import ROOT
from tests.unit.frameworks.reading import read_file


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


def environment(*, complete: bool = True, **versions: str) -> Environment:
    packages = {name: Package(name, version, Source("env")) for name, version in versions.items()}
    return Environment("env", packages, complete=complete)


def document(reader: str, path: str, **facts: Any) -> Document:
    statements = tuple(Statement(name.replace("__", "."), name, value) for name, value in facts.items())
    return Document(reader, Source(path), statements)


def values(subject: Subject) -> dict[str, Any]:
    return {name: fact.value for name, fact in subject.roles["train"].items()}


@pytest.mark.parametrize(("own", "node", "ranks", "clashes"), [(1, 8, 1, False), (8, 8, 8, False), (8, 4, 8, True)])
def test_a_run_has_as_many_ranks_as_its_own_file_takes_of_the_declared_devices(
    rules: RuleSet, own: int, node: int, ranks: int, *, clashes: bool
) -> None:
    stated = (Statement("hardware.gpus_per_node", "trainer.n_gpus_per_node", own), Statement("hardware.nodes", "n", 2))
    run = Document("verl", Source("c.yaml"), stated)
    declared = Hardware(Source("--gpu"), gpus_per_node=node, nodes=1, catalogued=frozenset({"nodes"}))
    subject = resolve("s", rules=rules, documents=(run,), hardware=((declared, True),))
    assert values(subject)["hardware.world_size"] == 2 * ranks
    assert bool(values(subject)["configuration.conflicts"]) is clashes


def test_set_beats_configuration_beats_default(rules: RuleSet) -> None:
    stack = environment(transformers="4.48.0")
    trainer = document("hf_trainer", "t.json", training__packing=False)

    def micro(*documents: Document, **settings: int) -> Any:
        given = {f"training.{name}": (value, Source("--set")) for name, value in settings.items()}
        subject = resolve("s", rules=rules, environment=stack, documents=documents, settings=given)
        fact = subject.roles["train"].get("training.micro_batch_size")
        return None if fact is None else (fact.value, fact.origin)

    stated = trainer._replace(statements=(Statement("training.micro_batch_size", "per_device_train_batch_size", 4),))
    assert micro() is None
    assert micro(trainer) == (8, "reader-default")
    assert micro(stated) == (4, "configuration")
    assert micro(stated, micro_batch_size=2) == (2, "set")


def test_what_a_report_leaves_open_of_a_machine_is_no_question_once_it_is_declared(rules: RuleSet) -> None:
    question = Skipped(Source("report"), "how many a node has is not said", fact="hardware.gpus_per_node")
    reported = Hardware(Source("report"), gpu="RTX-4090", skipped=(question,))

    def left_open(*declared: Hardware, **settings: int) -> int:
        given = {f"hardware.{name}": (value, Source("--set")) for name, value in settings.items()}
        hardware = (*((one, True) for one in declared), (reported, False))
        return len(resolve("s", rules=rules, hardware=hardware, settings=given).skipped)

    assert left_open() == left_open(Hardware(Source("--gpu"), gpu="RTX-4090")) == 1
    assert left_open(Hardware(Source("--gpu"), gpu="RTX-4090", gpus_per_node=4)) == left_open(gpus_per_node=4) == 0


def test_every_fact_has_an_origin_and_a_place(rules: RuleSet) -> None:
    hardware = Hardware(Source("--gpu"), gpu="H100-80GB", memory_bytes=80 * 2**30, gpus_per_node=8, nodes=2)
    subject = resolve(
        "s",
        rules=rules,
        environment=environment(transformers="5.3.0", deepspeed="0.16.4", torch="2.8.0"),
        documents=(
            document("hf_trainer", "t.json", training__gradient_checkpointing=True),
            document("deepspeed", "d.json", training__zero_stage=3),
        ),
        hardware=((hardware, True),),
    )
    facts = subject.roles["train"]
    assert len(facts) > 30
    for name, fact in facts.items():
        assert fact.name == name
        assert fact.origin in ORIGINS
        assert fact.sources or name in {"configuration.conflicts", "configuration.refused"}
    assert facts["hardware.world_size"].value == 16
    assert facts["training.use_reentrant"].value is False
    assert facts["training.framework"].value == "hf_trainer"


def test_no_document_means_no_default(rules: RuleSet) -> None:
    found = values(resolve("s", rules=rules, environment=environment(transformers="4.48.0", deepspeed="0.16.4")))
    assert not any(name.startswith(("training.", "model.")) and name != "training.peft" for name in found)


def test_a_package_missing_from_a_complete_environment_is_a_fact(rules: RuleSet) -> None:
    assert values(resolve("s", rules=rules, environment=environment(transformers="4.48.0")))["training.peft"] is None
    for stack in (
        environment(complete=False, transformers="4.48.0"),
        environment(transformers="4.48.0", peft="0.15.0"),
    ):
        assert "training.peft" not in values(resolve("s", rules=rules, environment=stack))


def test_conflicts_are_a_fact_that_rules_can_read(rules: RuleSet) -> None:
    trainer = document("hf_trainer", "t.json", training__micro_batch_size=4)
    other = document("deepspeed", "d.json", training__micro_batch_size=2)
    subject = resolve("s", rules=rules, documents=(trainer, other))
    assert [conflict.fact for conflict in subject.conflicts] == ["training.micro_batch_size"]
    assert values(subject)["configuration.conflicts"] == ("training.micro_batch_size",)
    assert values(resolve("s", rules=rules, documents=(trainer,)))["configuration.conflicts"] == ()
    assert "configuration.conflicts" not in values(resolve("s", rules=rules, environment=environment(torch="2.8.0")))


def test_a_default_of_the_trainer_contradicts_a_deepspeed_file(rules: RuleSet) -> None:
    # fill_match of transformers 4.57.6 compares what the arguments leave out, too: 8, 1 and no mixed precision
    stack = environment(transformers="4.57.6", deepspeed="0.16.9")
    file = {"micro_batch_size": 4, "gradient_accumulation_steps": 1, "mixed_precision": "bf16", "zero_stage": 2}
    other = document("deepspeed", "d.json", **{f"training__{name}": value for name, value in file.items()})
    trainer = document("hf_trainer", "t.json", training__gradient_checkpointing=True)
    subject = resolve("s", rules=rules, environment=stack, documents=(trainer, other))
    assert values(subject)["configuration.refused"] == ("training.micro_batch_size", "training.mixed_precision")
    assert values(subject)["training.micro_batch_size"] == 4
    for documents in ((other,), (document("openrlhf", "run.sh", training__trainer="sft"), other)):
        assert not values(resolve("s", rules=rules, environment=stack, documents=documents)).get(
            "configuration.refused"
        )
    stated = document("hf_trainer", "t.json", training__micro_batch_size=4, training__mixed_precision="bf16")
    assert (
        values(resolve("s", rules=rules, environment=stack, documents=(stated, other)))["configuration.refused"] == ()
    )
    # propagate_args_to_deepspeed(auto_find_batch_size=True) compares no batch
    searching = document("hf_trainer", "t.json", training__auto_find_batch_size=True)
    subject = resolve("s", rules=rules, environment=stack, documents=(searching, other))
    assert values(subject)["configuration.refused"] == ("training.mixed_precision",)


def test_the_batch_of_a_step_in_a_deepspeed_file_is_the_trainers_product(rules: RuleSet) -> None:
    # fill_match("train_batch_size", world_size x micro batch x accumulation) of transformers 4.57.6
    stack = environment(transformers="4.57.6", deepspeed="0.16.9")
    machine = Hardware(Source("--gpu"), gpu="H100-80GB", memory_bytes=80 * 2**30, gpus_per_node=8, nodes=1)

    def refused(batch: int, *hardware: Hardware, **stated: int | bool) -> object:
        file = document("deepspeed", "d.json", training__global_batch_size=batch, training__zero_stage=2)
        arguments = {f"training__{name}": value for name, value in stated.items()}
        trainer = document("hf_trainer", "t.json", training__gradient_checkpointing=True, **arguments)
        devices = tuple((one, True) for one in hardware)
        subject = resolve("s", rules=rules, environment=stack, documents=(trainer, file), hardware=devices)
        return values(subject)["configuration.refused"]

    whole = ("training.global_batch_size",)
    assert refused(32, machine, micro_batch_size=4, gradient_accumulation_steps=2) == whole
    assert refused(64, machine, micro_batch_size=4, gradient_accumulation_steps=2) == ()
    assert refused(128, machine) == whole, "accumulation that is left out is 1, not what the file would need"
    assert refused(64, machine) == ()
    assert refused(128) == (), "how many ranks there are is not known"
    assert refused(128, machine, auto_find_batch_size=True) == ()


def test_damage_and_components_of_an_environment(rules: RuleSet) -> None:
    stack = environment(torch="2.8.0")._replace(
        python="3.11.7",
        components={
            "cudnn": Package("cudnn", "9.10.2", Source("c")),
            "driver": Package("driver", "550.54", Source("d")),
        },
        damage=(Damage("duplicated", "torch", "2.7 and 2.8", (Source("x"),)),),
        facts={"runtime.torch_cuda": ("12.8", Source("version.py"))},
    )
    found = values(resolve("s", rules=rules, environment=stack))
    assert found["environment.duplicated"] == ("torch",)
    assert found["environment.mismatched"] == ()
    assert (found["runtime.python"], found["runtime.cudnn"], found["hardware.driver"]) == ("3.11.7", "9.10.2", "550.54")
    assert found["runtime.torch_cuda"] == "12.8"
    assert "environment.mismatched" not in values(resolve("s", rules=rules, environment=environment(complete=False)))


def test_the_catalogue_describes_a_named_device_and_a_stated_size_stays(rules: RuleSet) -> None:
    named = document("native", "f.yaml", hardware__gpu="H100-80GB")
    found = values(resolve("s", rules=rules, documents=(named,)))
    assert found["hardware.compute_capability"] == 9.0
    assert found["hardware.memory_bytes"] > 70 * 2**30
    stated = document("native", "f.yaml", hardware__gpu="H100-80GB", hardware__memory_bytes=5)
    sized = values(resolve("s", rules=rules, documents=(stated,)))
    assert (sized["hardware.memory_bytes"], sized["hardware.compute_capability"]) == (5, 9.0)
    unheard = document("native", "f.yaml", hardware__gpu="Q9000")
    assert "hardware.memory_bytes" not in values(resolve("s", rules=rules, documents=(unheard,)))


@pytest.mark.parametrize("stated", [{}, {"hardware__memory_bytes": 192 * 2**30}])
def test_a_device_of_amd_has_no_compute_capability(rules: RuleSet, stated: dict[str, int]) -> None:
    named = document("native", "f.yaml", hardware__gpu="MI300X", **stated)
    assert values(resolve("s", rules=rules, documents=(named,)))["hardware.compute_capability"] is None
    assert values(resolve("s", rules=rules, documents=(named,)))["runtime.torch_build"] == "rocm"
    measured = Hardware(Source("rocm-smi"), gpu="MI300X", memory_bytes=192 * 2**30)
    found = resolve("s", rules=rules, hardware=((measured, False),)).roles["train"]
    assert found["hardware.compute_capability"].value is None
    assert found["runtime.torch_build"].value == "rocm"


def test_a_measured_device_keeps_what_was_measured_apart_from_what_was_looked_up(rules: RuleSet) -> None:
    row = Source("GPU catalogue (H100-80GB)")
    hardware = Hardware(
        Source("nvidia-smi"),
        gpu="H100-80GB",
        memory_bytes=80 * 2**30,
        sources={"memory_bytes": row},
        catalogued=frozenset({"memory_bytes"}),
    )
    facts = resolve("s", rules=rules, hardware=((hardware, False),)).roles["train"]
    assert (facts["hardware.gpu"].origin, facts["hardware.gpu"].sources) == ("measured", (Source("nvidia-smi"),))
    memory = facts["hardware.memory_bytes"]
    assert (memory.origin, memory.sources, memory.note) == ("derived", (row,), row.path)


@pytest.mark.parametrize(("ranks", "colocated", "found"), [(4, False, 4), (4, True, 8), (16, False, 16)])
def test_an_engine_with_devices_of_its_own_has_those_that_the_policy_leaves(
    rules: RuleSet, ranks, colocated, found
) -> None:
    node = Hardware(
        Source("--gpu"), gpu="H100-80GB", gpus_per_node=8, nodes=1, catalogued=frozenset({"nodes", "memory_bytes"})
    )
    run = document("areal", "c.yaml", hardware__world_size=ranks, rollout__colocated=colocated)
    assert values(resolve("s", rules=rules, documents=(run,), hardware=((node, True),)))["hardware.world_size"] == found


def test_memory_of_a_measured_device_that_is_not_known_stays_unknown(rules: RuleSet) -> None:
    hardware = Hardware(Source("nvidia-smi"), gpu="NVIDIA A100-SXM4-80GB")
    subject = resolve("s", rules=rules, hardware=((hardware, False),))
    assert "hardware.memory_bytes" not in subject.roles["train"]
    assert subject.skipped == ()


def test_a_forced_default_keeps_what_was_stated_in_sight(rules: RuleSet) -> None:
    for reader in ("trl", "openrlhf", "llamafactory", "hf_trainer", "axolotl"):
        rows = [
            row
            for row in rules.section(f"defaults/{reader}") or ()
            if row["forced"] and row["when"] is None and not row["present"]
        ]
        for row in rows[:2]:
            if row["expression"] is not None or not isinstance(row["value"], bool):
                continue
            package = next(iter(row["ranges"]))
            version = rules.releases(package)[-1]
            stated = document(reader, "t.json", **{row["fact"].replace(".", "__"): not row["value"]})
            subject = resolve("s", rules=rules, environment=environment(**{package: version}), documents=(stated,))
            fact = subject.roles["train"][row["fact"]]
            if fact.origin == "configuration":
                continue  # this release is not in the row's range
            assert fact.value == row["value"]
            assert (not row["value"]) in [value for value, _ in fact.alternatives]


CASES = sorted((ROOT / "fixtures/cases").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_facts_written_as_a_facts_file_read_back_the_same(case: Path, rules: RuleSet, tmp_path: Path) -> None:
    from compatcheck.checking.report import describe_subject
    from compatcheck.reporters.facts import format_yaml

    documents: list[Document] = []
    for path in sorted(case.rglob("*")):
        try:
            reading = read_configuration(str(path), named=False) if path.suffix in {".json", ".yaml"} else None
        except InputError:
            continue
        documents += reading.documents if reading is not None else ()
    if not documents:
        pytest.skip("no configuration")
    stack = environment(transformers="4.48.0", deepspeed="0.16.4", torch="2.6.0")
    first = resolve("s", rules=rules, environment=stack, documents=follow_references(tuple(documents), rules, {}))
    file = tmp_path / "facts.yaml"
    file.write_text(format_yaml((describe_subject(first, (), None),), ()), encoding="utf-8")
    (document,), declared, *_ = read_file(native, str(file))
    assert document.unread == ()
    assert document.skipped == ()
    second = resolve("s", rules=rules, environment=declared, documents=(document,))
    wanted, found = values(first), values(second)
    assert {name: found[name] for name in wanted} == wanted
    assert declared is not None
    assert {name: package.version for name, package in declared.packages.items()} == {
        name: package.version for name, package in stack.packages.items()
    }


@pytest.mark.parametrize("text", [">=abc", "", "=> 1", "~1"])
def test_a_facts_file_with_a_broken_range_is_an_input_error(text: str) -> None:
    with pytest.raises(CompatcheckError) as caught:
        native.read_sections({"packages": {"deepspeed": text}}, "f.yaml")
    assert str(caught.value.source) == "f.yaml (packages.deepspeed)"
    assert caught.value.hint


@pytest.mark.parametrize("name", [None, 1, True])
def test_a_package_that_has_no_name_is_an_input_error(name: object) -> None:
    with pytest.raises(InputError):
        native.read_sections({"packages": {name: "1.0"}}, "f.yaml")


def test_package_names_of_a_facts_file_are_normalised() -> None:
    _, stack = native.read_sections({"packages": {"Flash__Attn": "2.7.4"}}, "f.yaml")
    assert stack is not None
    assert list(stack.packages) == ["flash-attn"]


def test_clipping_and_learning_rate_of_a_deepspeed_file_are_those_of_the_trainer(rules: RuleSet) -> None:
    # fill_match("gradient_clipping", max_grad_norm), ("optimizer.params.lr", learning_rate) of transformers 4.57.6
    stack = environment(transformers="4.57.6", deepspeed="0.16.9")

    def refused(file: dict[str, float], **stated: float) -> object:
        other = document(
            "deepspeed", "d.json", training__zero_stage=2, **{f"training__{k}": v for k, v in file.items()}
        )
        arguments = {f"training__{name}": value for name, value in stated.items()}
        trainer = document("hf_trainer", "t.json", training__gradient_checkpointing=True, **arguments)
        return values(resolve("s", rules=rules, environment=stack, documents=(trainer, other)))["configuration.refused"]

    assert refused({"gradient_clipping": 0.5}) == ("training.gradient_clipping",), "max_grad_norm is 1.0"
    assert refused({"gradient_clipping": 1.0}) == refused({"gradient_clipping": 0.5}, gradient_clipping=0.5) == ()
    assert refused({"learning_rate": 1e-5}, learning_rate=2e-5) == ("training.learning_rate",)
    assert refused({"learning_rate": 1e-5}) == (), "programs have defaults of their own"
