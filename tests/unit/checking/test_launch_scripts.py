"""Launch scripts and training scripts among the inputs of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.checking import Request, gather
from compatcheck.checking.request import Gathered
from compatcheck.core.errors import NothingToCheckError
from compatcheck.core.source import Source
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules

HF = "--output_dir o --learning_rate 1e-5 --per_device_train_batch_size"
DEEPSPEED = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}'


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project: Path, **files: str) -> None:
    for name, text in files.items():
        path = project / name.replace("__", ".")
        path.write_text(text, encoding="utf-8")


def read(rules: RuleSet, *paths: str, training: tuple[str, ...] = ()) -> Gathered:
    return gather(Request(paths=paths, training=training), rules, {})


def value(subject: Subject, name: str, role: str = "train") -> Any:
    fact = subject.roles[role].get(name)
    return None if fact is None else fact.value


def test_a_script_is_a_run_with_the_files_it_names(rules: RuleSet, project: Path) -> None:
    write(project, train__sh=f"deepspeed --num_gpus 4 a.py {HF} 2 --deepspeed ds.json\n", ds__json=DEEPSPEED)
    (subject,) = read(rules, "train.sh").subjects
    assert subject.id == "train.sh"
    assert value(subject, "training.zero_stage") == 2
    assert value(subject, "training.micro_batch_size") == 2
    assert value(subject, "hardware.world_size") == 4
    assert subject.roles["train"]["training.micro_batch_size"].sources[0] == Source(
        "train.sh", "per_device_train_batch_size", 1
    )


TRAINER = """from transformers import HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(args=args).train()
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nproc_per_node 4 a.py", "ddp"),
        ("torchrun --nproc_per_node 1 a.py", "none"),
        ("torchrun --nproc_per_node 4 a.py --fsdp full_shard", "fsdp"),
        ("torchrun --nproc_per_node 4 a.py --deepspeed ds.json", "zero"),
        ("torchrun --nproc_per_node 4 a.py --deepspeed missing.json", None),
        ("torchrun --nproc_per_node 4 a.py $EXTRA", None),
        ("accelerate launch --num_processes 4 a.py", None),
        ("export ACCELERATE_USE_FSDP=1\ntorchrun --nproc_per_node 4 a.py", None),
    ],
)
def test_ranks_that_nothing_shards_are_replicas(
    rules: RuleSet, project: Path, command: str, expected: str | None
) -> None:
    write(project, train__sh=f"{command} {HF} 2\n", ds__json=DEEPSPEED, a__py=TRAINER)
    (subject,) = read(rules, "train.sh").subjects
    assert value(subject, "training.sharding") == expected


def test_a_loop_of_ones_own_under_an_old_accelerate_has_the_first_fsdp(rules: RuleSet, project: Path) -> None:
    loop = (
        "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
        "model = AutoModelForCausalLM.from_pretrained('m')\nmodel, data = accelerator.prepare(model, data)\n"
        "for batch in data:\n    accelerator.backward(model(**batch).loss)\n"
    )
    write(project, train__sh="accelerate launch --config_file f.yaml a.py\n", requirements__txt="accelerate==0.34.2\n")
    write(project, f__yaml="distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 1\n", a__py=loop)
    (subject,) = read(rules, "train.sh", "requirements.txt").subjects
    assert (value(subject, "training.framework"), value(subject, "training.fsdp_version")) == ("accelerate", 1)


LLAMAFACTORY = "model_name_or_path: m\nstage: sft\nfinetuning_type: full\ntemplate: qwen\noutput_dir: o\nbf16: true\n"


@pytest.mark.parametrize(("gpu", "expected"), [("8xA100-80GB", "ddp"), ("1xA100-80GB", "none"), (None, None)])
def test_llamafactory_cli_starts_replicas_on_the_devices_of_a_node(
    rules: RuleSet, project: Path, gpu: str | None, expected: str | None
) -> None:
    write(project, train__sh="llamafactory-cli train t.yaml\n", t__yaml=LLAMAFACTORY)
    (subject,) = gather(Request(paths=("train.sh",), gpu=gpu), rules, {}).subjects
    assert value(subject, "training.sharding") == expected


def test_a_script_named_beside_the_command_that_starts_it_is_part_of_that_run(rules: RuleSet, project: Path) -> None:
    trains = "Trainer(args=TrainingArguments(bf16=True, per_device_train_batch_size=2))\n"
    write(project, train__sh="torchrun --nproc_per_node 4 a.py\n", a__py=trains)
    alone, beside = (read(rules, *paths) for paths in (("train.sh",), ("a.py", "train.sh")))
    assert [subject.id for subject in beside.subjects] == ["train.sh"]
    assert value(beside.subjects[0], "training.sharding") == "ddp"
    assert (beside.subjects[0].gaps, beside.skipped) == (alone.subjects[0].gaps, alone.skipped)


def test_sections_of_the_trainers_arguments_stand_in_files_that_they_name(rules: RuleSet, project: Path) -> None:
    command = (
        f"torchrun --nproc_per_node 4 a.py {HF} 2 --fsdp full_shard --fsdp_config f.json --accelerator_config g.json"
    )
    section = '{"activation_checkpointing": true, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}'
    grads = '{"gradient_accumulation_kwargs": {"sync_each_batch": true}}'
    write(project, train__sh=command, f__json=section, g__json=grads, a__py=TRAINER)
    (subject,) = read(rules, "train.sh").subjects
    found = subject.roles["train"]["training.fsdp_activation_checkpointing"]
    assert (found.value, found.sources[0].path) == (True, "f.json")
    assert value(subject, "training.fsdp_wrapped_classes") == ("LlamaDecoderLayer",)
    assert value(subject, "training.sync_each_batch") is True
    assert value(subject, "training.framework") == "hf_trainer"


def test_a_section_whose_file_is_not_here_is_open(rules: RuleSet, project: Path) -> None:
    command = f"torchrun --nproc_per_node 4 a.py {HF} 2 --fsdp full_shard --fsdp_config f.json"
    write(project, train__sh=command, a__py=TRAINER, requirements__txt="transformers==4.57.6\naccelerate==1.10.0\n")
    (subject,) = read(rules, "train.sh", "requirements.txt").subjects
    assert value(subject, "training.sharding") == "fsdp"
    assert value(subject, "training.fsdp_activation_checkpointing") is None
    assert "training.fsdp_activation_checkpointing" in {name for name, _, _ in subject.unresolved}


def test_each_training_of_a_script_is_a_run(rules: RuleSet, project: Path) -> None:
    write(
        project, train__sh=f"torchrun a.py {HF} 2\n\ntorchrun b.py {HF} 4\n", requirements__txt="transformers==4.48.0\n"
    )
    subjects = read(rules, "train.sh", "requirements.txt").subjects
    assert [value(subject, "training.micro_batch_size") for subject in subjects] == [2, 4]
    assert [subject.id for subject in subjects] == ["requirements.txt + train.sh:1", "requirements.txt + train.sh:3"]


def test_one_training_can_be_named_by_its_line(rules: RuleSet, project: Path) -> None:
    write(project, train__sh=f"torchrun a.py {HF} 2\n\ntorchrun b.py {HF} 4\n")
    (subject,) = read(rules, "train.sh:3").subjects
    assert value(subject, "training.micro_batch_size") == 4
    gathered = read(rules, "requirements.txt", training=("train.sh",))
    assert "starts 2 trainings (train.sh:1, train.sh:3)" in {entry.reason for entry in gathered.skipped}


def test_exported_variables_are_those_of_the_run(rules: RuleSet, project: Path) -> None:
    text = f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\ntorchrun a.py {HF} 2\n"
    write(project, train__sh=text, requirements__txt="torch==2.6.0\n")
    (subject,) = read(rules, "train.sh", "requirements.txt").subjects
    assert value(subject, "allocator.expandable_segments") is True
    assert subject.environment is not None
    assert subject.environment.packages["torch"].version == "2.6.0"


def test_a_directory_holds_scripts_that_train_and_others(rules: RuleSet, project: Path) -> None:
    write(
        project,
        train__sh=f"torchrun a.py {HF} 2 --deepspeed ds.json\n",
        ds__json=DEEPSPEED,
        other__sh="python evaluate.py --x 1\nls\n",
    )
    write(project, build__sh="make all\n")
    (subject,) = read(rules, ".").subjects
    assert value(subject, "training.zero_stage") == 2


def test_a_python_script_counts_where_a_command_starts_it(rules: RuleSet, project: Path) -> None:
    write(project, train__py="from trl import SFTTrainer\nSFTTrainer(model)\n", train__sh=f"torchrun train.py {HF} 2\n")
    (subject,) = read(rules, "train.sh").subjects
    assert value(subject, "training.trainer") == "sft"
    assert value(subject, "training.framework") == "trl"


def test_a_python_script_that_is_named(rules: RuleSet, project: Path) -> None:
    write(project, train__py="Trainer(args=TrainingArguments(bf16=True, per_device_train_batch_size=n))\n")
    (subject,) = read(rules, "train.py").subjects
    assert value(subject, "training.mixed_precision") == "bf16"
    assert value(subject, "training.micro_batch_size") is None
    assert [name for name, _, _ in subject.unresolved] == ["training.micro_batch_size"]


@pytest.mark.parametrize(("name", "text"), [("a.sh", "ls -l\n"), ("a.py", "print(1)\n"), ("a.sh", "")])
def test_a_named_script_that_trains_nothing_is_said(rules: RuleSet, project: Path, name: str, text: str) -> None:
    (project / name).write_text(text, encoding="utf-8")
    gathered = read(rules, name)
    assert gathered.subjects == ()
    assert [entry.named for entry in gathered.skipped] == [True]


def test_a_directory_without_a_training_holds_nothing(rules: RuleSet, project: Path) -> None:
    write(project, a__sh="python -m http.server\n")
    with pytest.raises(NothingToCheckError):
        read(rules, ".")


@pytest.mark.parametrize(
    ("sourced", "of_run"),
    [("./env.sh", True), ("~/.bashrc", False), ("/etc/profile.d/modules.sh", False), ("$HOME/env.sh", False)],
)
def test_what_a_script_sources_is_said_and_counts_where_it_is_of_the_project(
    rules: RuleSet, project: Path, sourced: str, *, of_run: bool
) -> None:
    write(project, train__sh=f"source {sourced}\ntorchrun a.py {HF} $BATCH\n")
    (subject,) = read(rules, "train.sh").subjects
    (skip,) = [entry for entry in subject.skipped if "sources" in entry.reason]
    assert skip.named is of_run
    assert [(name, source.line) for name, source, _ in subject.unresolved] == [("training.micro_batch_size", 2)]


@pytest.mark.parametrize(("sourced", "known"), [("/workspace/p/conf/env.sh", True), ("/etc/env.sh", False)])
def test_a_path_of_another_machine_is_taken_for_the_file_of_the_project_that_ends_so(
    rules: RuleSet, project: Path, sourced: str, *, known: bool
) -> None:
    for folder in (project / "conf", project):
        folder.mkdir(exist_ok=True)
        (folder / "env.sh").write_text("BATCH=4\n", encoding="utf-8")
    write(project, train__sh=f"source {sourced}\ntorchrun a.py {HF} $BATCH\n")
    (subject,) = read(rules, "train.sh").subjects
    (skip,) = [entry for entry in subject.skipped if "sources" in entry.reason]
    end = "not here: conf/env.sh is assumed" if known else "not read: variables that it sets are not known"
    assert skip.reason == f"sources {sourced}, which is {end}"
    assert (value(subject, "training.micro_batch_size") == 4) is known
    assert not skip.named


def test_the_slurm_header_tells_the_number_of_nodes(rules: RuleSet, project: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=4\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 a.py {HF} 2\n"
    write(project, job__slurm=text)
    (subject,) = read(rules, "job.slurm").subjects
    assert value(subject, "hardware.world_size") == 32


def test_a_program_of_a_checkout_that_no_list_has_is_of_the_release_it_states(rules: RuleSet, project: Path) -> None:
    key = "actor_rollout_ref.model.path"
    write(
        project,
        requirements__txt="torch==2.4.0\n",
        run__sh=f"python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer {key}=m trainer.n_gpus_per_node=8\n",
    )
    (subject,) = read(rules, "requirements.txt", "run.sh").subjects
    assert value(subject, "training.tensor_parallel", "actor") is None
    (project / "verl" / "version").mkdir(parents=True)
    (project / "verl" / "__init__.py").write_text("")
    (project / "verl" / "version" / "version").write_text("0.1\n")
    (subject,) = read(rules, "requirements.txt", "run.sh").subjects
    assert value(subject, "training.tensor_parallel", "actor") == 4
    write(project, requirements__txt="torch==2.4.0\nverl==0.4.0\n")  # what is listed counts
    (subject,) = read(rules, "requirements.txt", "run.sh").subjects
    assert value(subject, "training.tensor_parallel", "actor") == 1


def test_what_code_decides_is_not_replaced_by_a_default_of_the_checkout(rules: RuleSet, project: Path) -> None:
    name = "verl/trainer/config/ppo_megatron_trainer.yaml"
    command = f"{MEGATRON_PPO} actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"
    sizes = "{strategy: megatron, megatron: {tensor_model_parallel_size: 1, sequence_parallel: true}}"
    files = {
        "run.sh": f"{command} actor_rollout_ref.actor.use_kl_loss=True trainer.n_gpus_per_node=8\n",
        "verl/__init__.py": "",
        "verl/version/version": "0.5.0.dev\n",
        "verl/trainer/main_ppo.py": "",
        name: f"actor_rollout_ref:\n  actor: {sizes}\n  ref: {sizes}\n",
    }
    for path, text in files.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    (subject,) = read(rules, "run.sh").subjects
    assert value(subject, "training.tensor_parallel", "reference") == 4  # one layout for all models of a process


MEGATRON_PPO = "python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer actor_rollout_ref.model.path=m"


@pytest.mark.parametrize(
    ("pin", "ranks"),
    [
        ("MODE=pinned_tag\nTAG=v0.4.0\n", 1),
        ("# verl\nMODE=pinned_tag\nTAG=v0.1\nNOTES=not verl==0.4.0\n", 4),
        ("MODE=rolling\nTAG=v0.4.0\n", 4),  # what lies around it says which
        ("MODE=pinned_tag\nTAG=main\n", 4),
    ],
)
def test_a_recipe_is_of_the_release_that_a_file_beside_it_names(
    rules: RuleSet, project: Path, pin: str, ranks: int
) -> None:
    run = "python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer actor_rollout_ref.model.path=m"
    files = {
        "recipe/retool/run.sh": f"{run} trainer.n_gpus_per_node=8\n",
        "recipe/retool/REQUIRED_VERL.txt": pin,
        "verl/__init__.py": "",
        "verl/version/version": "0.1\n",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (subject,) = read(rules, "recipe/retool/run.sh").subjects
    assert value(subject, "training.tensor_parallel", "actor") == ranks


RECIPE = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nreward_funcs: [accuracy]\nnum_generations: 8\nmax_completion_length: 64\n"
    "use_vllm: true\nper_device_train_batch_size: 8\nlearning_rate: 1.0e-6\noutput_dir: o\nbf16: true\n"
)


def test_a_configuration_has_the_release_that_the_project_around_it_pins(rules: RuleSet, project: Path) -> None:
    write(
        project, grpo__yaml=RECIPE, setup__py="setup(name='mine', install_requires=['trl==0.18.0', 'torch==2.6.0'])\n"
    )
    (subject,) = read(rules, "grpo.yaml").subjects
    assert (value(subject, "rollout.mode"), value(subject, "rollout.gpu_memory_utilization")) == ("server", 0.3)


@pytest.mark.parametrize(
    "requires", ["['trl>=0.18']", "['torch==2.6.0']", "['trl==0.18.0'", "open('requirements.txt').read().split()"]
)
def test_a_project_that_pins_no_release_tells_none(rules: RuleSet, project: Path, requires: str) -> None:
    write(project, grpo__yaml=RECIPE, setup__py=f"setup(name='mine', install_requires={requires})\n")
    (subject,) = read(rules, "grpo.yaml").subjects
    assert value(subject, "rollout.mode") is None


def test_a_configuration_in_a_checkout_of_its_program_is_of_the_release_it_states(
    rules: RuleSet, project: Path
) -> None:
    for name, text in (("examples/grpo.yaml", RECIPE), ("trl/__init__.py", ""), ("VERSION", "0.18.0\n")):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (subject,) = read(rules, "examples/grpo.yaml").subjects
    assert value(subject, "rollout.mode") == "server"


def test_a_program_whose_package_is_called_otherwise_is_found_too(rules: RuleSet, project: Path) -> None:
    for name, text in (("swift/__init__.py", ""), ("swift/version.py", "__version__ = '4.5.2'\n")):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    write(project, train__sh="swift sft --model Qwen/Qwen2.5-7B --train_type lora --dataset x\n")
    (subject,) = read(rules, "train.sh").subjects
    assert subject.environment is not None
    assert subject.environment.packages["ms-swift"].specifier.startswith(">=4.5.2,")


@pytest.mark.parametrize(
    ("version", "specifier", "said"),
    [
        ("0.2.0.dev", ">=0.4.0", True),  # as verl's sources called themselves until after 0.3.0
        ("0.2.0", ">=0.2,<=0.2.0.post2", False),  # a release knows what it is: the key is not of it
        ("0.4.0.dev", ">=0.4.0", False),
    ],
)
def test_keys_that_a_development_version_does_not_know_tell_its_release(
    rules: RuleSet, project: Path, version: str, specifier: str, *, said: bool
) -> None:
    for name, text in (("verl/__init__.py", ""), ("verl/version/version", version)):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    key = "actor_rollout_ref.model.lora_rank=8"
    write(project, train__sh=f"python -m verl.trainer.main_ppo {key} trainer.nnodes=1\n")
    (subject,) = read(rules, "train.sh").subjects
    assert subject.environment is not None
    found = subject.environment.packages["verl"].specifier
    assert found is not None
    assert found.startswith(specifier.partition(",")[0])
    assert any("call themselves verl" in one.reason for one in subject.skipped) is said


@pytest.mark.parametrize(("folder", "known"), [("/workspace/p/conf", True), ("/conf", False), ("/etc/p", False)])
def test_a_file_of_another_machine_is_taken_for_that_of_the_project_that_ends_so(
    rules: RuleSet, project: Path, folder: str, *, known: bool
) -> None:
    (project / "conf").mkdir()
    write(project / "conf", ds__json=DEEPSPEED)
    write(project, train__sh=f"torchrun a.py {HF} 2 --deepspeed {folder}/ds.json\n")
    (subject,) = read(rules, "train.sh").subjects
    assert (value(subject, "training.zero_stage") == 2) is known
    (skip,) = [entry for entry in subject.skipped if "ds.json" in entry.reason]
    assert ("which is not here: conf/ds.json is assumed" in skip.reason) is known
    assert skip.passes is known


@pytest.mark.parametrize(
    ("name", "said"),
    [("run.fish", True), ("Jenkinsfile", True), ("start.zz", True), ("README", False), ("GUIDE.rst", False)],
)
def test_a_training_in_a_language_that_nobody_reads_is_listed(
    project: Path, rules: RuleSet, name: str, *, said: bool
) -> None:
    (project / "requirements.txt").write_text("torch==2.6.0\n", encoding="utf-8")
    (project / name).write_text("torchrun --nproc_per_node 8 train.py --bf16 True\n", encoding="utf-8")
    (project / "core.bin").write_bytes(b"\x7fELF\0torchrun --nproc_per_node 8 train.py --bf16 True\n")
    listed = [entry for entry in read(rules, ".").skipped if "not read" in entry.reason]
    assert [entry.source.path for entry in listed if entry.source] == ([name] if said else [])
