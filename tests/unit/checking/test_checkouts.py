"""A script that is named alone lies in a checkout: what its project asks for, its own release, programs that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.checking import Request, gather
from compatcheck.checking.fit import price
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.facts import Fact
    from compatcheck.resolution.subject import Subject

ZERO = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2}'
TRAIN = "torchrun --nproc_per_node 8 train.py --deepspeed zero.json --per_device_train_batch_size 2 --output_dir o\n"
TRAINER = """from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model=model, args=args).train()
"""
LEAVES = "training.moe_leaf_modules"
"""DeepSpeed has a default of it from 0.18 on."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zero.json").write_text(ZERO)
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "run.sh").write_text(TRAIN)
    return tmp_path


def look(path: str) -> Subject:
    (subject,) = gather(Request(paths=(path,)), open_rules(), {}).subjects
    return subject


def find(path: str, name: str) -> Fact | None:
    (facts,) = look(path).roles.values()
    return facts.get(name)


def ask(*, base: str = "transformers==4.37.2", **extras: str) -> str:
    groups = "".join(f'{name} = ["{one}"]\n' for name, one in extras.items())
    return f'[project]\nname = "p"\nversion = "1"\ndependencies = ["{base}"]\n[project.optional-dependencies]\n{groups}'


SETUP = """from setuptools import setup
setup(install_requires=['transformers>=4.37'], extras_require={'train': ['deepspeed==%s']})
"""


@pytest.mark.parametrize(
    ("file", "text", "has"),
    [
        ("pyproject.toml", ask(train="deepspeed==0.12.6"), False),  # as haotian-liu/LLaVA has it
        ("pyproject.toml", ask(train="deepspeed==0.18.2"), True),
        ("pyproject.toml", ask(train="deepspeed>=0.12,<0.16"), False),
        ("pyproject.toml", ask(base="numpy", train="deepspeed==0.12.6"), True),  # a project of something else
        (
            "pyproject.toml",
            ask(base="numpy", train="transformers>=4.40").replace('4.40"', '4.40", "deepspeed<0.17"'),
            False,
        ),
        ("setup.py", SETUP % "0.12.6", False),
        ("setup.py", SETUP % "0.18.2", True),
    ],
)
def test_an_extra_of_the_project_decides_what_a_default_is(project: Path, file: str, text: str, *, has: bool) -> None:
    (project / file).write_text(text)
    assert (find("run.sh", LEAVES) is not None) is has


def test_the_one_extra_that_brings_a_release_is_named(project: Path) -> None:
    (project / "pyproject.toml").write_text(ask(train="deepspeed==0.18.2"))
    fact = find("run.sh", LEAVES)
    assert fact is not None
    assert "deepspeed 0.18.2, with --extra train" in str(fact.sources[-1])
    package = look("run.sh").environment.packages["deepspeed"]  # type: ignore[union-attr]  # a project was read
    assert package.is_optional


TRL = """# /// script
# dependencies = ["trl", "peft"]
# ///
from trl import SFTConfig, SFTTrainer
SFTTrainer(model="Qwen/Qwen2.5-7B", args=SFTConfig(output_dir="o", max_length=1024), train_dataset=data).train()
"""


@pytest.mark.parametrize(("version", "on"), [("0.24.0.dev0", True), ("0.21.0.dev0", False), (None, None)])
def test_a_list_without_releases_takes_the_release_of_the_checkout(project: Path, version: str | None, on: Any) -> None:
    """trl turned checkpointing on in 0.22; its scripts list ``trl`` and lie beside its VERSION."""
    (project / "examples").mkdir()
    (project / "examples" / "sft_own.py").write_text(TRL)
    (project / ".git").mkdir()
    if version is not None:
        (project / "trl").mkdir()
        (project / "trl" / "__init__.py").write_text('__version__ = "unknown"\n')
        (project / "VERSION").write_text(version)
    fact = find("examples/sft_own.py", "training.gradient_checkpointing")
    assert (None if fact is None else fact.value) is on


def test_an_estimate_takes_the_newest_default_where_releases_differ_and_says_so(project: Path) -> None:
    (project / "sft_own.py").write_text(TRL)
    assumed = {one.fact: one for one in price(look("sft_own.py")).assumptions}
    one = assumed["training.gradient_checkpointing"]
    assert one.value is True
    assert "default of TRL in its newest release; which release of trl runs is not known" in one.reason


def test_a_script_that_is_not_here_is_said_and_leaves_open_what_it_makes_of_the_model(project: Path) -> None:
    (project / "run.sh").write_text(TRAIN.replace("train.py", "train_lora.py") + TRAIN.replace("train.py", "here.py"))
    (project / "here.py").write_text(TRAINER)
    missing, here = gather(Request(paths=("run.sh",)), open_rules(), {}).subjects
    (gap,) = (gap for gap in missing.gaps if gap.source.key == "train_lora.py")
    assert "is not here" in gap.why
    assert not any(gap.source.key == "here.py" for gap in here.gaps)
    for name in ("training.optimizer", "training.use_liger_kernel", "training.compile"):
        assert name not in missing.roles["train"]
        assert name in here.roles["train"]
    for name in ("training.sharding", "training.micro_batch_size", "training.gradient_accumulation_steps"):
        assert name in missing.roles["train"]


def test_a_script_of_the_library_itself_needs_not_be_here(project: Path) -> None:
    (project / "run.sh").write_text(TRAIN.replace("train.py", "trl/scripts/sft.py"))
    assert not any("is not here" in gap.why for gap in look("run.sh").gaps)


def test_a_program_that_is_a_namespace_has_the_release_of_the_project_around_it(project: Path) -> None:
    """prime-rl's package has no ``__init__.py``."""
    (project / "src" / "prime_rl" / "trainer").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "prime-rl"\nversion = "0.8.0"\n')
    (project / "rl.toml").write_text('[model]\nname = "m"\n[trainer.optim]\nlr = 1e-6\n[orchestrator]\n[inference]\n')
    environment = look("rl.toml").environment
    assert environment is not None
    assert environment.packages["prime-rl"].specifier == ">=0.8.0"


def test_what_a_checkout_has_for_keys_left_out_counts_where_its_releases_differ(project: Path) -> None:
    """verl 0.8.0.dev may be anything from 0.7.0 on, and rows tell its number of sequences apart by release."""
    config = project / "verl" / "trainer" / "config"
    config.mkdir(parents=True)
    (project / "verl" / "version").mkdir()
    (project / "verl" / "__init__.py").write_text("")
    (project / "verl" / "version" / "version").write_text("0.8.0.dev\n")
    (project / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.rollout.n=5\n"
    )
    asked = "rollout.max_num_seqs"
    assert asked not in look("run.sh").roles["actor"]
    (config / "_generated_ppo_trainer.yaml").write_text(
        "actor_rollout_ref:\n  rollout:\n    name: hf\n    n: 1\n    max_num_seqs: 300\n"
    )
    facts = look("run.sh").roles["actor"]
    assert (facts[asked].value, facts[asked].origin) == (300, "reader-default")
    assert (facts["rollout.engine"].value, facts["rollout.n"].value) == ("vllm", 5)


def test_a_key_of_a_forks_own_configuration_is_no_other_name_of_one_beside_it(project: Path) -> None:
    config = project / "verl" / "trainer" / "config"
    config.mkdir(parents=True)
    (project / "verl" / "version").mkdir()
    (project / "verl" / "__init__.py").write_text("")
    (project / "verl" / "version" / "version").write_text("0.1\n")
    (project / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.rollout.micro_rollout_size=8\n"
    )
    asked = "rollout.enforce_eager"
    assert asked not in look("run.sh").roles["actor"]
    (config / "ppo_trainer.yaml").write_text(
        "actor_rollout_ref:\n  rollout:\n    name: hf\n    enforce_eager: True\n    micro_rollout_size: 4\n"
    )
    assert look("run.sh").roles["actor"][asked].value is True


def test_a_fork_may_have_a_key_that_only_later_releases_have(project: Path) -> None:
    config = project / "verl" / "trainer" / "config"
    config.mkdir(parents=True)
    (project / "verl" / "version").mkdir()
    (project / "verl" / "__init__.py").write_text("")
    (project / "verl" / "version" / "version").write_text("0.1\n")
    (project / "run.sh").write_text("python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo\n")
    (config / "ppo_trainer.yaml").write_text("actor_rollout_ref:\n  model:\n    use_liger: True\n")
    assert look("run.sh").roles["actor"]["training.use_liger_kernel"].value is True


def test_a_checkout_whose_release_nobody_knows_has_its_own_defaults(project: Path) -> None:
    """A fork that calls itself 0.2.0.dev and has keys of 0.4 may have kept what 0.2 had: an entropy coefficient of 0.001."""
    config = project / "verl" / "trainer" / "config"
    config.mkdir(parents=True)
    (project / "verl" / "version").mkdir()
    (project / "verl" / "__init__.py").write_text("")
    (project / "verl" / "version" / "version").write_text("0.2.0.dev\n")
    (config / "ppo_trainer.yaml").write_text("actor_rollout_ref:\n  actor:\n    entropy_coeff: 0.001\n")
    run = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False "
    (project / "run.sh").write_text(run + "actor_rollout_ref.actor.use_torch_compile=True\n")
    asked = "training.entropy_coefficient"
    assert look("run.sh").roles["actor"][asked].value == 0.001
    (project / "requirements.txt").write_text("verl==0.4.0\n")
    (subject,) = gather(Request(paths=("run.sh", "requirements.txt")), open_rules(), {}).subjects
    assert subject.roles["actor"][asked].value == 0.0


SECTIONS = """
data: {max_prompt_length: 512, max_response_length: 1536, train_batch_size: 64}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B, use_remove_padding: true, enable_gradient_checkpointing: true}
  actor: {strategy: fsdp, ppo_mini_batch_size: 64, ppo_micro_batch_size_per_gpu: 2, use_kl_loss: false}
  rollout: {name: vllm, n: 8, gpu_memory_utilization: 0.5, tensor_model_parallel_size: 1}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1}
"""


@pytest.mark.parametrize("asked", ["run.yaml", "run.sh"])
def test_sections_of_a_projects_own_leave_an_estimate_with_what_is_usual(project: Path, asked: str) -> None:
    """A section that verl does not have may steer anything; whether the run was priced as usual has to be said."""
    (project / "configs").mkdir()
    (project / "configs" / "run.yaml").write_text(SECTIONS + "curriculum: {steps: 30}\n")
    (project / "run.yaml").write_text(SECTIONS + "curriculum: {steps: 30}\n")
    (project / "run.sh").write_text(
        "python3 train.py --config-path=configs --config-name=run actor_rollout_ref.rollout.n=4\n"
    )
    subject = look(asked)
    assert "training.sequence_length" not in subject.roles["actor"]
    found = price(subject)
    said = {one.fact: one for one in found.assumptions}
    assert found.phases
    assert said["training.sequence_length"].value == 2048
    assert said["training.sequence_length"].reason.startswith("prompt + response; ")
    assert said["training.sequence_length"].reason.endswith("was not read and may set it")
    (project / "run.yaml").write_text(SECTIONS)
    assert look("run.yaml").roles["actor"]["training.sequence_length"].value == 2048


def test_what_is_written_holds_beside_an_option_that_nobody_knows(project: Path) -> None:
    """Nobody can unset ``--init_kl_coef 0``, with which there is no reference model."""
    run = "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --vllm_num_engines 2 --freeze_prefix visual"
    (project / "requirements.txt").write_text("openrlhf==0.8.5\n")
    for option, roles in (("--init_kl_coef 0", {"actor"}), ("", {"actor", "reference"})):
        (project / "run.sh").write_text(f"{run} --advantage_estimator group_norm {option}\n")
        (subject,) = gather(Request(paths=("run.sh", "requirements.txt")), open_rules(), {}).subjects
        assert subject.roles.keys() == roles


FIELDS = """from dataclasses import dataclass, field
from trl import GRPOConfig, GRPOTrainer, TrlParser
from peft import LoraConfig

@dataclass
class Base(GRPOConfig):
    vllm_mode: str = "server"
    optim: str = "adamw_torch"

@dataclass
class Own(Base):
    vllm_mode: str = "colocate"

@dataclass
class More:
    rank: int = 4
    targets: list[str] = field(default_factory=lambda: ["q_proj", "k_proj"])

args, more = TrlParser((Own, More)).parse_args_and_config()
GRPOTrainer("Qwen/Qwen2.5-7B", args=args, peft_config=LoraConfig(r=more.rank, target_modules=more.targets)).train()
"""


def test_a_field_wins_over_the_one_that_it_replaces_and_an_option_over_both(project: Path) -> None:
    (project / "own.py").write_text(FIELDS)
    (project / "requirements.txt").write_text("trl==0.18.0\n")
    options = "--use_vllm True --max_prompt_length 512 --max_completion_length 512 --rank 8 --optim adamw_8bit"
    (project / "run.sh").write_text(f"torchrun --nproc_per_node 8 own.py {options} --max_seq_length 4096\n")
    (subject,) = gather(Request(paths=("run.sh", "requirements.txt")), open_rules(), {}).subjects
    facts = {name: fact.value for name, fact in subject.roles["train"].items()}
    assert facts["rollout.mode"] == "colocate"
    assert facts["training.optimizer"] == "adamw_8bit"
    assert "training.optimizer_implementation" not in facts  # of torch's own, which the field names
    assert (facts["training.lora_rank"], facts["training.lora_target_modules"]) == (8, ("k_proj", "q_proj"))
    assert facts["training.sequence_length"] == 1024  # no trainer that generates has one of its own


@pytest.mark.parametrize("folder", ["", "verl/", "src/"])
def test_a_forks_own_estimator_decides_which_models_there_are(project: Path, folder: str) -> None:
    """Of a command that leaves it out: without a critic the group of answers is what advantages come from."""
    config = project / f"{folder}verl/trainer/config"
    config.mkdir(parents=True)
    (project / f"{folder}verl" / "__init__.py").write_text("")
    run = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B critic.model.path=Qwen/Qwen2.5-7B "
    for estimator, roles, trainer in (("grpo", {"actor", "reference"}, "grpo"), ("gae", None, "ppo")):
        (config / "ppo_trainer.yaml").write_text(f"algorithm:\n  adv_estimator: {estimator}\n")
        (project / "run.sh").write_text(f"{run} max_turns=10 actor_rollout_ref.actor.use_kl_loss=True\n")
        subject = look("run.sh")
        assert subject.roles.keys() == (roles or {"actor", "reference", "critic"})
        fact = subject.roles["actor"]["training.trainer"]
        assert (fact.value, fact.sources[0].key) == (trainer, "algorithm.adv_estimator (left out)")
        assert subject.roles["actor"]["training.framework"].value == "verl"
    (config / "ppo_trainer.yaml").write_text("algorithm:\n  adv_estimator: grpo\n")
    (project / "run.sh").write_text(f"{run} algorithm.adv_estimator=gae\n")
    assert "critic" in look("run.sh").roles
