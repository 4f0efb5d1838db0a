"""A key that a release does not know states nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking.shared import mark_named
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.llamafactory import configuration as llama_factory
from compatcheck.frameworks.python_script.read import read as read_script
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents

if TYPE_CHECKING:
    from pathlib import Path

FILE = {
    "model_name_or_path": "somewhere/else",
    "stage": "sft",
    "finetuning_type": "full",
    "template": "llama3",
    "output_dir": "o",
    "use_reentrant_gc": False,
}


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules(())


def subject_of(rules: RuleSet, version: str | None = None, specifier: str | None = None) -> Subject:
    package = Package("llamafactory", version, Source("requirements.txt"), specifier)
    environment = Environment(origin="requirements.txt", packages={"llamafactory": package}, complete=False)
    read = llama_factory.read(dict(FILE), "train.yaml").documents
    return resolve("x", rules=rules, environment=environment, documents=read)


def test_with_a_key_that_the_program_refuses_no_default_of_its_release_holds(rules: RuleSet) -> None:
    subject = subject_of(rules, "0.9.1")
    assert not {"training.use_reentrant", "training.use_liger_kernel"} & subject.roles["train"].keys()
    assert [(entry.source.key, entry.reason, entry.hint) for entry in subject.skipped] == [
        ("use_reentrant_gc", "unknown to llamafactory 0.9.1", "llamafactory>=0.9.2 has it")
    ]


@pytest.mark.parametrize(("version", "specifier"), [("0.9.2", None), (None, ">=0.9.1"), (None, None)])
def test_a_key_that_the_release_may_know_counts(rules: RuleSet, version: str | None, specifier: str | None) -> None:
    subject = subject_of(rules, version, specifier)
    assert subject.roles["train"]["training.use_reentrant"].value is False
    assert not subject.skipped


OLD = "deepspeed --num_gpus 8 --module openrlhf.cli.train_ppo_ray --pretrain a/b --micro_train_batch_size 2 --use_dynamic_batch"
NEW = "deepspeed --num_gpus 8 --module openrlhf.cli.train_ppo_ray --actor.model_name_or_path a/b --train.micro_batch_size 2"


@pytest.mark.parametrize(
    ("command", "release", "size"),
    [(OLD, "0.9.10", None), (OLD, "0.11.0", None), (NEW, "0.9.10", None), (NEW, "0.11.0", 2)],
)
def test_the_other_spelling_of_a_command_line_states_nothing(
    rules: RuleSet, command: str, release: str, size: int | None
) -> None:
    package = Package("openrlhf", release, Source("requirements.txt"))
    environment = Environment(origin="requirements.txt", packages={"openrlhf": package}, complete=False)
    subject = resolve("x", rules=rules, environment=environment, documents=mark_named(documents(command)))
    fact = subject.roles["actor"].get("training.micro_batch_size")
    assert (None if fact is None else fact.value) == size
    refused = (command is OLD) == (release == "0.11.0")
    assert ("training.sequence_length" in subject.roles["actor"]) is not refused
    assert any(entry.named and entry.reason == f"unknown to openrlhf {release}" for entry in subject.skipped) is refused


@pytest.mark.parametrize(("release", "value"), [("5.23.0", True), ("4.57.0", None)])
def test_a_key_that_a_script_may_take_itself_leaves_open_what_it_would_decide(
    rules: RuleSet, release: str, value: object
) -> None:
    package = Package("transformers", release, Source("requirements.txt"))
    environment = Environment(origin="requirements.txt", packages={"transformers": package}, complete=False)
    written = {"output_dir": "o", "bf16": True, "activation_checkpointing": True}
    read = hf_trainer.read(written, "train.yaml").documents
    facts = resolve("x", rules=rules, environment=environment, documents=read).roles["train"]
    fact = facts.get("training.gradient_checkpointing")
    assert (None if fact is None else fact.value) is value
    assert facts["training.micro_batch_size"].value == 8


def test_a_requirement_that_only_allows_earlier_releases_is_named(rules: RuleSet) -> None:
    subject = subject_of(rules, None, "<0.9.2")
    assert [entry.reason for entry in subject.skipped] == ["unknown to llamafactory <0.9.2"]


@pytest.mark.parametrize(("release", "length"), [("0.19.1", 4096), ("0.20.0", None)])
def test_an_argument_that_trl_dropped_states_nothing(rules: RuleSet, release: str, length: int | None) -> None:
    package = Package("trl", release, Source("requirements.txt"))
    environment = Environment(origin="requirements.txt", packages={"trl": package}, complete=False)
    read = documents("trl sft --model_name_or_path a/b --max_seq_length 4096 --packing true --dataset_name c/d")
    subject = resolve("x", rules=rules, environment=environment, documents=read)
    fact = subject.roles["train"].get("training.sequence_length")
    assert (None if fact is None else fact.value) == length
    assert [entry.source.key for entry in subject.skipped if entry.reason.startswith("unknown")] == (
        [] if length else ["max_seq_length"]
    )


@pytest.mark.parametrize(("specifier", "checkpointing"), [(">=0.15", None), (">=0.15,<0.22", False), (">=0.22", True)])
def test_a_default_of_newer_releases_is_none_where_an_older_one_leaves_it_to_what_lies_beneath(
    rules: RuleSet, specifier: str, *, checkpointing: bool | None
) -> None:
    place = Source("requirements.txt")
    packages = {"trl": Package("trl", None, place, specifier), "transformers": Package("transformers", "4.51.3", place)}
    environment = Environment(origin="requirements.txt", packages=packages, complete=False)
    read = documents("trl sft --model_name_or_path a/b --dataset_name c/d --max_length 4096")
    fact = (
        resolve("x", rules=rules, environment=environment, documents=read)
        .roles["train"]
        .get("training.gradient_checkpointing")
    )
    assert (None if fact is None else fact.value) is checkpointing


@pytest.mark.parametrize(
    ("version", "program", "reason"),
    [
        ("0.6.1", "openrlhf.cli.train_ppo", None),
        ("0.6.2", "openrlhf.cli.train_ppo", "unknown to openrlhf 0.6.2"),
        ("0.6.2", "openrlhf.cli.train_ppo_ray", None),
        ("0.6.2", "mine.train_ppo --zero_stage 2 --init_kl_coef 0.1 --packing_samples", None),
    ],
)
def test_a_program_that_a_release_is_without_is_none_of_it(rules: RuleSet, version, program, reason) -> None:
    environment = Environment("r", {"openrlhf": Package("openrlhf", version, Source("r"))}, complete=False)
    read = documents(f"deepspeed --module {program} --pretrain meta-llama/Meta-Llama-3-8B --bf16")
    subject = resolve("x", rules=rules, environment=environment, documents=mark_named(read))
    said = [entry.reason for entry in subject.skipped if "unknown to openrlhf" in entry.reason]
    assert said == ([] if reason is None else [reason])


@pytest.mark.parametrize(
    ("argument", "releases", "unknown"),
    [
        (
            "torch_dtype=torch.bfloat16",
            {"trl": "1.10.0", "transformers": "5.20.0"},
            None,
        ),  # TRL's own option went in 0.27
        ("dtype=torch.bfloat16", {"trl": "0.20.0", "transformers": "4.56.0"}, None),  # TRL's own option came in 0.23
        ("dtype=torch.bfloat16", {"trl": "0.20.0", "transformers": "4.55.0"}, "unknown to transformers 4.55.0"),
        ("load_in_4bit=True", {"trl": "0.20.0", "transformers": "4.55.0"}, None),
        ("load_in_4bit=True", {"trl": "1.10.0", "transformers": "5.0.0"}, "unknown to transformers 5.0.0"),
        (
            'quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")',
            {"trl": "1.10.0", "transformers": "5.0.0"},
            None,
        ),
        (
            "quantization_config=BitsAndBytesConfig(load_in_8bit=True)",
            {"trl": "1.10.0", "transformers": "5.0.0"},
            None,
        ),
    ],
)
def test_what_loads_a_model_takes_what_its_own_release_has(
    rules: RuleSet, argument: str, releases: dict[str, str], unknown: str | None, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n"
        f'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B", {argument})\n'
        'SFTTrainer(model=model, args=SFTConfig(output_dir="out")).train()\n'
    )
    packages = {name: Package(name, release, Source("requirements.txt")) for name, release in releases.items()}
    environment = Environment(origin="requirements.txt", packages=packages, complete=False)
    subject = resolve("x", rules=rules, environment=environment, documents=read_script(str(script)))
    assert [one.reason for one in subject.skipped] == ([] if unknown is None else [unknown])


@pytest.mark.parametrize(
    ("extra", "length", "kept"),
    [
        ("", 1024, None),
        (", dataset_kwargs={'skip_prepare_dataset': True}", None, True),
        (", max_length=2048", 2048, None),
    ],
)
def test_no_default_limit_where_the_rows_are_prepared_before(
    rules: RuleSet, tmp_path: Path, *, extra: str, length: int | None, kept: bool | None
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from trl import SFTConfig, SFTTrainer\n"
        f"SFTTrainer(model='m/m', args=SFTConfig(output_dir='o'{extra}), train_dataset=rows).train()\n"
    )
    environment = Environment(
        origin="r", packages={"trl": Package("trl", "0.20.0", Source("requirements.txt"))}, complete=False
    )
    facts = resolve("x", rules=rules, environment=environment, documents=read_script(str(script))).roles["train"]
    said = [
        facts[name].value if name in facts else None
        for name in ("training.sequence_length", "training.keeps_long_rows")
    ]
    assert said == [length, kept]


PPO = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b data.train_batch_size=64 trainer.n_gpus_per_node=8"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@pytest.mark.parametrize(
    ("keys", "twice"),
    [
        (f"{ACTOR}.ppo_micro_batch_size=8 {ACTOR}.ppo_micro_batch_size_per_gpu=1", True),
        (f"{ROLLOUT}.log_prob_micro_batch_size=8 {ROLLOUT}.log_prob_micro_batch_size_per_gpu=1", True),
        (f"{ACTOR}.ppo_micro_batch_size=8 {ROLLOUT}.log_prob_micro_batch_size_per_gpu=1", None),
        (f"{ACTOR}.ppo_micro_batch_size=null {ACTOR}.ppo_micro_batch_size_per_gpu=1", None),
        (f"{ACTOR}.ppo_micro_batch_size=8 {ACTOR}.ppo_micro_batch_size_per_gpu=1 {ACTOR}.use_dynamic_bsz=True", None),
    ],
)
def test_two_keys_of_one_number(rules: RuleSet, keys: str, *, twice: bool | None) -> None:
    package = Package("verl", "0.4.1", Source("r"))
    environment = Environment("r", {"verl": package}, complete=False)
    facts = resolve("x", rules=rules, environment=environment, documents=documents(f"{PPO} {keys}")).roles["actor"]
    fact = facts.get("training.micro_batch_stated_twice")
    assert (None if fact is None else fact.value) is twice
