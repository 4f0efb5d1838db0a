"""Where a LoraConfig names no layers peft does, by model type and release; where it may name some, nobody does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.launch_script.commands import read_commands
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from compatcheck.shell import read_script
from tests.unit.frameworks.python_script.test_read import read

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Fact

TARGETS = "training.lora_target_modules"
TRAINER = 'Trainer(model=model, args=TrainingArguments("out"), train_dataset=ds).train()'
TRL = 'SFTTrainer(model="m", args=SFTConfig("out"), train_dataset=ds, peft_config=LoraConfig(r=16)).train()'
LOOP = """optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
"""
GIVEN = "model = get_peft_model(model, LoraConfig({}))\n"


def targets(tmp_path: Path, text: str, model_type: str = "llama", peft: str | None = "0.18.1") -> object:
    imports = "import torch\nfrom peft import AdaLoraConfig, LoraConfig, get_peft_model\n"
    imports += "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    imports += "from trl import SFTConfig, SFTTrainer\n" if "SFT" in text else ""
    documents = read(tmp_path, imports + 'model = AutoModelForCausalLM.from_pretrained("m")\n' + text)
    fact = resolved(documents, model_type, peft).get(TARGETS)
    return None if fact is None else fact.value


def resolved(
    documents: tuple[Document, ...], model_type: str = "llama", peft: str | None = "0.18.1"
) -> Mapping[str, Fact]:
    releases = {"transformers": "4.57.6", "trl": "0.26.0", **({} if peft is None else {"peft": peft})}
    packages = {name: Package(name, version, Source("env")) for name, version in releases.items()}
    subject = resolve(
        "s",
        rules=open_rules(()),
        environment=Environment("env", packages, complete=False),
        documents=documents,
        settings={"model.model_type": (model_type, Source("--set"))},
    )
    (facts,) = subject.roles.values()
    return facts


@pytest.mark.parametrize("text", [GIVEN.format("r=16") + TRAINER, GIVEN.format("r=16") + LOOP, TRL])
def test_peft_names_the_layers(tmp_path: Path, text: str) -> None:
    assert targets(tmp_path, text) == ("q_proj", "v_proj")


@pytest.mark.parametrize(
    ("model_type", "peft", "names"),
    [
        ("qwen2", "0.12.0", ("q_proj", "v_proj")),
        ("qwen2", "0.11.1", None),
        ("gpt_neox", "0.18.1", ("query_key_value",)),
        ("nemotron_h", "0.20.0", ("q_proj", "k_proj", "v_proj", "o_proj")),
        ("nemotron_h", "0.19.1", None),
        ("qwen3_moe", "0.21.2", None),
        ("llama", None, None),
    ],
)
def test_the_type_and_the_release_say_which(
    tmp_path: Path, model_type: str, peft: str | None, names: tuple[str, ...] | None
) -> None:
    assert targets(tmp_path, GIVEN.format("r=16") + TRAINER, model_type, peft) == names


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("r=16, target_modules=None", ("q_proj", "v_proj")),
        ("r=16, use_dora=True", ("q_proj", "v_proj")),
        ('r=16, target_modules=["k_proj"]', ("k_proj",)),
        ("r=16, target_modules=find(model)", None),
        ("**options", None),
    ],
)
def test_what_the_configuration_says_goes_first(tmp_path: Path, given: str, names: tuple[str, ...] | None) -> None:
    assert targets(tmp_path, GIVEN.format(given) + TRAINER) == names


def test_other_methods_have_tables_of_their_own(tmp_path: Path) -> None:
    assert targets(tmp_path, "model = get_peft_model(model, AdaLoraConfig(init_r=8))\n" + TRAINER) is None


@pytest.mark.parametrize(
    ("option", "names"), [("", ("q_proj", "v_proj")), (" --lora_target_modules k_proj", ("k_proj",))]
)
def test_a_command_of_trl_hands_on_that_none_is_named(option: str, names: tuple[str, ...]) -> None:
    command = f"trl sft --model_name_or_path m --dataset_name d --use_peft{option}"
    (run,) = read_commands(read_script("run.sh", command).commands, {})
    assert resolved(run.documents)[TARGETS].value == names


@pytest.mark.parametrize(
    ("given", "left"),
    [("r=16", True), ('target_modules=["k_proj"]', False), ("target_modules=find(model)", None), ("**options", None)],
)
def test_what_is_left_to_peft_is_told(tmp_path: Path, given: str, left: object) -> None:
    imports = "import torch\nfrom peft import LoraConfig, get_peft_model\n"
    imports += "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    text = 'model = AutoModelForCausalLM.from_pretrained("m")\n' + GIVEN.format(given) + TRAINER
    fact = resolved(read(tmp_path, imports + text), "qwen3", "0.15.2").get("training.lora_targets_by_peft")
    assert (None if fact is None else fact.value) == left


@pytest.mark.parametrize(
    ("command", "release"),
    [
        ("llamafactory-cli train --model_name_or_path m --stage sft --finetuning_type lora", "llamafactory==0.9.3"),
        ("swift sft --model m --train_type lora --dataset d", "ms-swift==3.6.4"),
        ("deepspeed --module openrlhf.cli.train_sft --pretrain m --lora_rank 16", "openrlhf==0.8.5"),
        (
            "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m actor_rollout_ref.model.lora_rank=32",
            "verl==0.7.0",
        ),
    ],
)
def test_a_program_that_names_the_layers_of_its_own_accord_leaves_none_to_peft(command: str, release: str) -> None:
    (run,) = read_commands(read_script("run.sh", command).commands, {})
    name, _, version = release.partition("==")
    packages = {one: Package(one, of, Source("env")) for one, of in ((name, version), ("peft", "0.15.2"))}
    environment = Environment("env", packages, complete=False)
    mimo = {"model.model_type": ("mimo", Source("--set"))}
    subject = resolve("s", rules=open_rules(()), environment=environment, documents=run.documents, settings=mimo)
    facts = next(one for one in subject.roles.values() if "training.peft" in one)
    assert facts["training.lora_targets_by_peft"].value is False


def test_a_run_without_adapters_leaves_no_layers_to_peft() -> None:
    command = "llamafactory-cli train --stage sft --finetuning_type full"
    (run,) = read_commands(read_script("run.sh", command).commands, {})
    facts = resolved(run.documents, "qwen2_vl", "0.15.2")
    assert facts["training.lora_targets_by_peft"].value is False
