"""Every key that a program's lists hold: what adding it to a run of the program changes.

A key with a meaning changes what is read for at least one value that it may have; a name without one is known to have no bearing;
what no list holds is listed as unread. Nothing is silent. A value that cannot be read leaves open every fact that another value
of its key would change, by whatever way: no default, no derivation and no trait comes back in its place.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.frameworks.keys import MODEL_FIELDS
from compatcheck.frameworks.placeholders import read_filled_in
from compatcheck.frameworks.registry import FOLDERS
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from compatcheck.rules.programs import programs
from tests.unit.frameworks.launch_script.written_commands import documents as documents_of_command
from tests.unit.frameworks.test_registry import NAMES, NO_PROGRAMS, PACKAGE, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.core.document import Document


class Program(NamedTuple):
    """Runs of a program that are as small as they can be, and the lists of its keys."""

    bases: tuple[str | dict[str, Any], ...]
    """Commands, to which keys are added in the manner of the program, or parsed files; a key may need one of them."""
    tables: tuple[str, ...] = ("keys.txt",)
    names: tuple[str, ...] = ("names.txt",)
    hydra: bool = False
    """Whether a command has ``key=value`` words."""
    section: str = ""
    """What stands before the names in a list of last parts."""
    of_model: bool = False
    """Whether it stands before the keys of the tables, too."""
    within: str = ""
    """A section in which any other key is unread, where names outside of sections are variables of the file."""
    values: tuple[object, ...] = ()
    """Values of keys that no list of words has."""


def nest(data: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """Return a parsed file with one more dotted key."""
    first, dot, rest = key.partition(".")
    inner = data.get(first)
    return {**data, first: nest(inner if isinstance(inner, dict) else {}, rest, value) if dot else value}


VERL = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m critic.model.path=m"
ENGINE = "torchrun -m verl.trainer.sft_trainer model.path=m data.train_files=t"
HF = {"output_dir": "o", "per_device_train_batch_size": 1, "learning_rate": 1e-5, "model_name_or_path": "m"}
AXOLOTL = {"base_model": "m", "micro_batch_size": 1, "datasets": [{"path": "d"}]}
CHAT = "deepspeed DeepSpeed-Chat/training/step1_supervised_finetuning/main.py"


def roll(strategy: str, **section: object) -> dict[str, Any]:
    """Return a small file of ROLL whose model is trained by a strategy."""
    engine = {"strategy_args": {"strategy_name": "vllm"}}
    return {
        "pretrain": "m",
        "actor_train": {"strategy_args": {"strategy_name": strategy}, **section},
        "actor_infer": engine,
    }


SLIME = "python3 train.py --hf-checkpoint m --rollout-batch-size 8"
PART = "optim.override_optimizer_config.optimizer"
SKYRL = "uv run --isolated -m skyrl.train.entrypoints.main_base trainer.policy.model.path=m"
SKYRL_SFT = "uv run python -m skyrl.train.main_sft model.path=m"
OFFLOAD = "megatron_config.optimizer_config_kwargs.optimizer"
MARKS = {"trial_name": "t", "saver": {"freq_epochs": 1}, "recover": {"mode": "disabled"}, "ref": {"backend": "fsdp:d4"}}
TRAINED = {"path": "m", "gradient_checkpointing": True, "use_lora": True}
AREAL = tuple(
    {**MARKS, "actor": {**TRAINED, "backend": f"{engine}:d4", **more}, "rollout": {"backend": f"{rollout}:d4"}}
    for engine, rollout, more in (
        ("fsdp", "sglang", {}),
        ("archon", "vllm", {}),
        (
            "megatron",
            "vllm",
            {"megatron": {"recompute_granularity": "selective", "use_precision_aware_optimizer": True}},
        ),
    )
)
TUNE = {"_component_": "torchtune.models.qwen2_5.qwen2_5_7b_base"}
NEMO = {
    "policy": {
        "model_name": "m",
        "dtensor_cfg": {"enabled": True, "lora_cfg": {"enabled": True, "match_all_linear": False}},
    },
    "cluster": {"num_nodes": 4, "gpus_per_node": 8},
    "checkpointing": {},
    "data": {"train": {"env_name": "reward_model"}},
    "env": {"reward_model": {"resources": {"num_nodes": 1, "gpus_per_node": 1}}},
    "grpo": {"num_prompts_per_step": 2, "num_generations_per_prompt": 2},
}
NEMO_MEGATRON = {
    "policy": {
        "model_name": "m",
        "megatron_cfg": {"enabled": True, "activation_checkpointing": True, "peft": {"enabled": True}},
    },
    "cluster": {},
    "checkpointing": {},
}
PRIME = {"model": {"name": "m"}, "trainer": {}, "orchestrator": {}, "inference": {}}
LLAMAFACTORY = {
    "model_name_or_path": "m",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "full",
    "dataset": "d",
    "template": "t",
    "output_dir": "o",
}
PROGRAMS = {
    "nemo_rl": Program(
        (
            NEMO,
            NEMO_MEGATRON,
            *(nest(NEMO, f"policy.{way}.enabled", value=True) for way in ("sequence_packing", "dynamic_batching")),
            *(nest(NEMO, "policy.generation.backend", engine) for engine in ("vllm", "sglang", "trtllm")),
            nest(NEMO, "policy.generation.colocated", {"enabled": False, "resources": {"num_nodes": 1}}),
            nest(nest(NEMO, "cluster.num_nodes", 1), "policy.generation.colocated.enabled", value=True),
            nest(
                nest(NEMO, "policy.generation.colocated", {"enabled": False, "resources": {"gpus_per_node": 1}}),
                "cluster.num_nodes",
                1,
            ),
            *(
                {**NEMO_MEGATRON, trainer: {"num_prompts_per_step": 2, "num_generations_per_prompt": 2}}
                for trainer in ("ppo", "distillation")
            ),
        )
    ),
    "prime_rl": Program(
        (
            PRIME,
            nest(PRIME, "deployment.type", "multi_node"),
            nest(nest(PRIME, "deployment.type", "multi_node"), "deployment.num_train_nodes", 4),
            nest(PRIME, "inference.vllm.data_parallel_size", 2),
            nest(PRIME, "inference.vllm.enable_expert_parallel", value=True),
            {"model": {"name": "m"}, "data": {"type": "sft"}},
        )
    ),
    "verl": Program(
        (
            VERL,
            f"{VERL} reward_model.enable=True",
            f"{VERL} distillation.enabled=True",
            *(
                f"{VERL} actor_rollout_ref.actor.{PART}_{half} critic.{PART}_{half}"
                for half in ("cpu_offload=True", "offload_fraction=1.0")
            ),
        ),
        hydra=True,
        section="actor_rollout_ref.actor.",
        values=("[1,2]",),
    ),
    "verl, supervised": Program(
        ("torchrun -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=m data.train_files=t",),
        ("sft_keys.txt",),
        hydra=True,
        section="data.",
    ),
    "verl, supervised by its engine": Program(
        (
            ENGINE,
            f"{ENGINE} data.use_dynamic_bsz=False",
            *(f"{ENGINE} {PART}_{half}" for half in ("cpu_offload=True", "offload_fraction=1.0")),
            "python3 -m verl.trainer.sft_trainer_ray model.path=m data.train_files=t",
        ),
        ("sft_engine_keys.txt",),
        hydra=True,
        section="data.",
    ),
    "easy_r1": Program(("python3 -m verl.trainer.main config=c.yaml worker.actor.model.model_path=m",), hydra=True),
    "openrlhf, supervised": Program(
        ("deepspeed --module openrlhf.cli.train_sft --pretrain m",), ("training_keys.txt",)
    ),
    "openrlhf, ppo": Program(("python3 -m openrlhf.cli.train_ppo_ray --pretrain m",)),
    "skyrl": Program(
        (
            f"{SKYRL} trainer.critic.model.path=m trainer.placement.colocate_all=false",
            f"{SKYRL} trainer.algorithm.use_kl_loss=false trainer.algorithm.use_entropy_loss=true",
            f"{SKYRL} generator.max_turns=3",
        ),
        hydra=True,
    ),
    "skyrl, supervised": Program(
        (
            f"{SKYRL_SFT} strategy=fsdp",
            f"{SKYRL_SFT} use_sequence_packing=true",
            f"{SKYRL_SFT} megatron_config.transformer_config_kwargs.recompute_granularity=selective",
            *(f"{SKYRL_SFT} {OFFLOAD}_{half}" for half in ("cpu_offload=true", "offload_fraction=1.0")),
        ),
        ("model_keys.txt", "sft_keys.txt"),
        ("model_names.txt", "sft_names.txt"),
        hydra=True,
    ),
    "areal": Program(AREAL),
    "areal, one model": Program(AREAL, ("model_keys.txt",), ("model_names.txt",), section="actor.", of_model=True),
    "deepspeed_chat": Program((f"{CHAT} --model_name_or_path m --data_path d --zero_stage 2 --deepspeed",)),
    "torchtune": Program(({"model": TUNE, "batch_size": 2, "optimizer": {"_component_": "torch.optim.AdamW"}},)),
    "torchtitan": Program(({"model": {"name": "llama3", "flavor": "8B"}, "training": {"steps": 1}},)),
    "litgpt": Program(
        (
            {"checkpoint_dir": "checkpoints/a/b", "train": {"epochs": 1}, "lora_query": False},
            {"model_name": "m", "model_config": {"name": "m"}, "train": {"max_tokens": 1}},
        )
    ),
    "xtuner": Program(
        (
            {
                "model": {"type": "x.SupervisedFinetune", "llm": {"pretrained_model_name_or_path": "m"}},
                "optim_wrapper": {"type": "x.AmpOptimWrapper"},
            },
        ),
        within="model.",
        values=("RewardModel", "torch.float16"),
    ),
    "axolotl": Program((AXOLOTL, AXOLOTL | {"rl": "dpo"}, AXOLOTL | {"rl": "grpo"}), names=("names.txt",)),
    "open_instruct": Program(("accelerate launch --num_processes 8 open_instruct/finetune.py --model_name_or_path m",)),
    "ms_swift": Program(("swift sft --model m --dataset d",), ("keys.txt", "shared_keys.txt"), values=("seq_cls",)),
    "llamafactory": Program(
        (LLAMAFACTORY, LLAMAFACTORY | {"use_galore": True}, LLAMAFACTORY | {"use_apollo": True}),
    ),
    "accelerate": Program(({"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": 8},)),
    "deepspeed": Program(({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1},)),
    "hf_trainer": Program((HF,)),
    "hf_trainer, trl": Program((HF | {"max_length": 128},), ("script_keys.txt", "trl_keys.txt"), ("trl_names.txt",)),
    "megatron": Program(
        (
            "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --micro-batch-size 1",
        )
    ),
    "slime": Program((SLIME,)),
    "roll": Program(
        (
            roll("megatron_train"),
            roll("fsdp2_train", model_args={"lora_target": "all-linear"}),
            roll("hf_infer"),
        )
    ),
    "nanotron": Program(
        ({"general": {}, "model": {"model_config": {"hidden_size": 8}}, "parallelism": {"dp": 2}, "tokens": {}},)
    ),
    "vllm": Program(("vllm serve m",)),
    "sglang": Program(("python3 -m sglang.launch_server --model-path m",)),
}
VALUES = (
    True,
    False,
    3,
    1,
    0,
    0.5,
    -1,
    "none",
    "bfloat16",
    "cpu",
    "adamw_torch",
    "lora",
    "fsdp",
    "full",
    "auto",
    "x/y.json",
    ["x"],
)


def read(name: str, base: str | dict[str, Any], key: str | None = None, value: object = None) -> tuple[Document, ...]:
    if isinstance(base, dict):
        folder = next(one for one in FOLDERS if one.name == name.partition(",")[0])
        data = base if key is None else nest(base, key, value)
        return read_filled_in(folder.configuration, data, "f.yaml").documents
    words = "" if key is None else f"{key}={value}" if PROGRAMS[name].hydra else f"--{key} {value}"
    return documents_of_command(f"{base} {words}")


def tell(documents: Iterable[Document]) -> Counter[tuple[object, ...]]:
    """Return what documents say of facts, known and not."""
    return Counter(
        entry
        for document in documents
        for entry in (
            *((one.fact, repr(one.value), one.role) for one in document.statements if one.fact is not None),
            *((one.fact, one.role) for one in document.unresolved),
            *((one.source.key, one.why) for one in document.gaps),
            *((one.source.key, one.reason) for one in document.skipped),
            *document.references,
            (document.reader,),
        )
    )


def toggle(name: str, key: str, values: Iterable[object]) -> str:
    """Say what becomes of a key: it changes what is read, is listed as unread, or is passed over."""
    found = "passed over"
    for base in PROGRAMS[name].bases:
        before = tell(read(name, base))
        for value in values:
            try:
                documents = read(name, base, key, value)
            except InputError:
                return "changes"  # refused, and said
            if tell(documents) != before:
                return "changes"
            if any(one == key for document in documents for one, _ in document.unread):
                found = "unread"
    return found


def meanings(name: str) -> dict[str, tuple[object, ...]]:
    """Return the keys of a program that a table gives a meaning, with values to try."""
    found: dict[str, tuple[object, ...]] = {}
    for table in PROGRAMS[name].tables:
        path = PACKAGE / name.partition(",")[0] / table
        known = TABLES[str(path)]
        words = [word for listed in known.words.values() for word in listed]
        lines = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
        own = dict.fromkeys(line[0] for line in lines if line and line[0] != "words:")
        section = PROGRAMS[name].section if PROGRAMS[name].of_model else ""
        found.update((f"{section}{key}", (*VALUES, *PROGRAMS[name].values, *words)) for key in own if known[key])
    return found


def names(name: str) -> Iterator[str]:
    """Yield the keys of a program that are known to have no bearing by themselves."""
    for file in PROGRAMS[name].names:
        listed = NAMES[str(PACKAGE / name.partition(",")[0] / file)]
        yield from (f"{PROGRAMS[name].section}{key}" for key in listed if "*" not in key)


def count(name: str) -> dict[str, Counter[str]]:
    """Count what becomes of the keys of a program: with a meaning, and without."""
    return {
        "meaning": Counter(toggle(name, key, values) for key, values in meanings(name).items()),
        "name": Counter(toggle(name, key, (3,)) for key in names(name)),
    }


ENGINE_OF_ROLL = "actor_infer.strategy_args.strategy_config"
UNREADABLE = {dict: ("${HIDDEN}", "x${HIDDEN}"), str: ('"$HIDDEN"', '"{{ hidden }}"')}
"""Values that something else fills in, in files and in commands."""
_MOST_VALUES = 4
"""Values of a key that are compared: enough to see what hangs on it."""
INDEPENDENT = {
    "megatron": {"num_query_groups"},
    "roll": {f"{ENGINE_OF_ROLL}.{name}" for name in ("chunked_prefill_size", "disable_cuda_graph")},
    "verl, supervised by its engine": {"optim.override_optimizer_config.optimizer_cpu_offload"},
    "easy_r1": {"worker.ref.model.enable_gradient_checkpointing", "worker.ref.offload.offload_optimizer"},
    "verl": {"reward_model.megatron.optimizer_offload", "reward_model.model.fsdp_config.optimizer_offload"},
}
"""Keys that count for nothing in these runs: of a model that is only run forward, of another engine, without another option."""

ASSERTED = {"skyrl": {"trainer.placement.policy_num_nodes", "trainer.placement.policy_num_gpus_per_node"}}
"""Keys whose unknown value still leaves a fact asserted: a critic's ranks that follow the policy's (`single_rank`)."""


@cache
def _newest() -> Environment:
    rules = open_rules(())
    names = {"torch", "transformers", *(package for program in programs().values() for package in program.packages)}
    newest = {name: [one for one in rules.releases(name) if one.replace(".", "").isdecimal()] for name in names}
    known = {name: Package(name, held[-1], Source("env")) for name, held in newest.items() if held}
    return Environment("env", known, complete=False)


def resolved(documents: tuple[Document, ...]) -> dict[tuple[str, str], object]:
    """Return the facts of a run of the newest releases, by role and name; what conflicts and what is unread is about keys."""
    subject = resolve("s", rules=open_rules(()), environment=_newest(), documents=documents)
    return {
        (role, name): fact.value
        for role, facts in subject.roles.items()
        for name, fact in facts.items()
        if not name.startswith("configuration.") and name != "training.unpriced"
    }


def find_values(name: str, base: str | dict[str, Any], key: str, values: Iterable[object]) -> list[dict[Any, object]]:
    """Return the facts of a run for values of a key that are read in different ways."""
    found: dict[frozenset[tuple[object, int]], dict[Any, object]] = {}
    for value in values:
        if isinstance(value, list) and isinstance(base, str):
            continue
        try:
            documents = read(name, base, key, value)
        except InputError:
            continue
        told = frozenset(tell(documents).items())
        if told not in found and not any(one.source.key == key for document in documents for one in document.skipped):
            found[told] = resolved(documents)
            if len(found) == _MOST_VALUES:
                break
    return [*found.values()]


def find_asserted(name: str, key: str, values: Iterable[object]) -> set[str]:
    """Return the facts that a key decides and that are asserted where its value cannot be read, in the first run that tells."""
    for base in PROGRAMS[name].bases:
        runs = find_values(name, base, key, values)
        held = {fact: {repr(run[fact]) for run in runs if fact in run} for run in runs for fact in run}
        decided = {fact for fact, stated in held.items() if len(stated) > 1}
        if decided:
            hidden = (resolved(read(name, base, key, value)) for value in UNREADABLE[type(base)])
            return {f"{key} → {fact[1]}" for facts in hidden for fact in decided & facts.keys()}
    return set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_value_that_cannot_be_read_leaves_open_what_its_key_decides(name: str) -> None:
    left_out = INDEPENDENT.get(name, set()) | ASSERTED.get(name, set())
    keys = {key: values for key, values in meanings(name).items() if key not in left_out}
    assert not set().union(*(find_asserted(name, key, values) for key, values in keys.items()))


@pytest.mark.parametrize("value", [["x"], [1, 2], {"x": 1}])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_value_of_another_type_ends_the_reading(name: str, value: object) -> None:
    for key in meanings(name):
        for base in PROGRAMS[name].bases[:1]:
            with suppress(InputError):
                read(name, base, key, value if isinstance(base, dict) else "[1,2]")


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_key_with_a_meaning_changes_what_is_read(name: str) -> None:
    silent = {key: said for key, values in meanings(name).items() if (said := toggle(name, key, values)) != "changes"}
    assert silent == {}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_other_name_is_known_and_any_other_key_is_unread(name: str) -> None:
    assert [key for key in names(name) if toggle(name, key, (3,)) == "unread"] == []
    assert toggle(name, f"{PROGRAMS[name].section or PROGRAMS[name].within}no_such_key", (3,)) == "unread"


def test_every_program_with_a_list_of_keys_is_toggled() -> None:
    of_models = MODEL_FIELDS.path  # of no program: each that lays these over config.json has them in a table of its own
    listed = {Path(path).parent.name for path in TABLES if path != of_models}
    assert listed - NO_PROGRAMS == {name.partition(",")[0] for name in PROGRAMS}


if __name__ == "__main__":
    sys.stdout.write("| program | changes | no bearing | changes beside | passed over |\n|---|---|---|---|---|\n")
    for one in PROGRAMS:
        meant, known = count(one).values()
        row = (meant["changes"], known["passed over"], known["changes"], meant["passed over"])
        sys.stdout.write(f"| {one} | " + " | ".join(map(str, row)) + " |\n")
