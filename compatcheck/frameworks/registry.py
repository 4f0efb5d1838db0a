"""The training programs and the libraries beneath them, each one folder; what they read is imported when it is asked for."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.frameworks.reader import CommandReader, Composer, ConfigurationReader


class Folder(NamedTuple):
    """One folder of this package."""

    name: str
    has_files: bool = True
    """Whether it reads configuration files: ``configuration.py``."""
    has_commands: bool = True
    """Whether it reads command lines: ``command.py``."""
    told_by_file: bool = False
    """Whether its commands are also those of programs that are told by a configuration of it alone; their kind is its name."""
    shares_keys: bool = False
    """Whether files of programs that are not read hold its keys, too: then those are told first (`unread`)."""
    telling_words: tuple[str, ...] = ()
    """Words by which a file that cannot be parsed is known to be meant for it."""
    decides: tuple[str, ...] = ()
    """Facts that its files decide: where one is named and cannot be read, no default stands in for them."""
    tool_modules: Mapping[str, str] = {}
    """Modules that are one of its record's tools: ``python -m axolotl.cli train``."""
    refines: str | None = None
    """Reader of which this one is a special case: a command of that one which names a file of this one is this one's."""
    in_python: bool = False
    """Whether its files are Python, whose names are the configuration (`python_script.settings`)."""
    ships: bool = False
    """Whether it ships configuration files of libraries beneath it that runs name: ``data/shipped.json``."""
    forks: tuple[str, ...] = ()
    """Programs whose keys it reads as well, under records of their own."""
    spawns: tuple[str, ...] = ()
    """Kinds of its commands whose ranks the program itself starts, with Ray or as workers; every tool does."""
    told: tuple[str, ...] = ()
    """Kinds of its commands that say what the script they start does: it is not read beside them."""

    @property
    def configuration(self) -> ConfigurationReader:
        """The reader of its files."""
        return cast("ConfigurationReader", import_module(f"compatcheck.frameworks.{self.name}.configuration"))

    @property
    def command(self) -> CommandReader:
        """The reader of its command lines."""
        return cast("CommandReader", import_module(f"compatcheck.frameworks.{self.name}.command"))


DEEPSPEED = Folder(
    "deepspeed",
    has_commands=False,
    telling_words=("zero_optimization", "train_micro_batch_size_per_gpu"),
    decides=("training.zero_stage", "training.sharding"),
)
FOLDERS = (
    Folder("native", has_commands=False, telling_words=("compatcheck:",)),
    Folder("verl", told_by_file=True, forks=("search-r1", "logic-rl", "tinyzero"), spawns=("rl",)),
    Folder("easy_r1", spawns=("easy-r1",)),
    Folder(
        "nanotron",
        decides=(
            "hardware.world_size",
            "model.hidden_size",
            "training.distributed_optimizer",
            "training.gradient_accumulation_steps",
            "training.gradient_checkpointing",
            "training.micro_batch_size",
            "training.param_dtype",
            "training.pipeline_parallel",
            "training.sequence_length",
            "training.sharding",
            "training.tensor_parallel",
        ),
    ),
    Folder("roll", spawns=("roll",)),
    Folder("nemo_rl", spawns=("nemo-rl",)),
    Folder("prime_rl", spawns=("rl", "sft")),
    Folder("openrlhf", has_files=False, spawns=("ppo_ray",)),
    Folder("skyrl", has_files=False, spawns=("rl", "sft")),
    Folder("areal", spawns=("areal",)),
    Folder("deepspeed_chat", has_files=False),
    Folder("torchtune"),
    Folder(
        "torchtitan",
        telling_words=("[parallelism]", "[activation_checkpoint]", "data_parallel_shard_degree", "[training]"),
        decides=(
            "training.micro_batch_size",
            "training.global_batch_size",
            "training.sequence_length",
            "training.replicas",
            "training.sharding",
            "training.fsdp_reshard_after_forward",
            "training.fsdp_offload_params",
            "training.tensor_parallel",
            "training.pipeline_parallel",
            "training.context_parallel",
            "training.expert_parallel",
            "training.expert_tensor_parallel",
            "training.optimizer_in_backward",
            "training.param_dtype",
            "training.compute_dtype",
            "training.reduce_dtype",
            "training.optimizer",
            "training.optimizer_implementation",
            "training.gradient_checkpointing",
            "training.checkpointing_policy",
            "training.checkpoint_every",
            "training.compile",
            "training.mixed_precision",
            "training.loss_implementation",
            "training.gradient_accumulation_steps",
        ),
    ),
    Folder("litgpt", tool_modules={"litgpt": "litgpt", "litgpt.__main__": "litgpt"}),
    Folder("xtuner", in_python=True, telling_words=("optim_wrapper",), ships=True),
    Folder("axolotl", tool_modules={"axolotl.cli": "axolotl"}, ships=True),
    Folder("open_instruct", spawns=("grpo", "ppo", "grpo_fast"), told=("grpo_fast",)),
    Folder("ms_swift", tool_modules={"swift.cli.main": "swift"}),
    Folder("llamafactory", told_by_file=True, tool_modules={"llamafactory.cli": "llamafactory-cli"}, ships=True),
    Folder(
        "accelerate",
        has_commands=False,
        telling_words=("compute_environment",),
        decides=("hardware.world_size", "training.sharding"),
    ),
    DEEPSPEED,
    Folder("model", has_commands=False, shares_keys=True),
    Folder("trl", shares_keys=True, tool_modules={"trl.cli": "trl"}, refines="hf_trainer", ships=True),
    Folder(
        "hf_trainer",
        shares_keys=True,
        telling_words=("gradient_accumulation_steps", "gradient_checkpointing", "per_device_train_batch_size"),
    ),
    Folder("slime", has_files=False, spawns=("slime",)),
    Folder("megatron", has_files=False),
    Folder("vllm", has_files=False, spawns=("vllm",)),
    Folder("sglang", has_files=False, spawns=("sglang",)),
)
"""The ones with the surest marks first: a file or a command is read by the first that recognises it."""


HEAD_BYTES = 1 << 16
"""What of a file is searched for telling words."""


def is_told_by_words(head: bytes) -> bool:
    """Tell by the head of a file, of whatever syntax, whether it is meant as a configuration that is read here."""
    return any(word.encode() in head for folder in FOLDERS for word in folder.telling_words)


def states_telling_word(head: bytes) -> bool:
    """Tell by the head of a file of JSON or YAML whether a key in it is of a model, or of a configuration that is read here."""
    words = "|".join(re.escape(word) for folder in FOLDERS for word in folder.telling_words if word.isidentifier())
    return (
        re.search(rf"(?m)(?<!\\)\"(?:model_type|{words})\"\s*:|^\s*(?:model_type|{words}):".encode(), head) is not None
    )


def configuration_readers(*, shares_keys: bool | None = None) -> Iterator[ConfigurationReader]:
    """Yield the readers of files in their order; those with keys of their own, or those without, where asked for."""
    for folder in FOLDERS:
        if folder.has_files and not folder.in_python and shares_keys in (None, folder.shares_keys):
            yield folder.configuration


def find_python_reader(data: Mapping[str, Any]) -> ConfigurationReader | None:
    """Return whose configuration the names of a file of Python are."""
    readers = (folder.configuration for folder in FOLDERS if folder.in_python)
    return next((reader for reader in readers if reader.recognise(data)), None)


def may_be_settings(head: bytes) -> bool:
    """Tell by the head of a file of Python whether its names may be a configuration."""
    return any(word.encode() in head for folder in FOLDERS if folder.in_python for word in folder.telling_words)


def command_folders() -> Iterator[Folder]:
    """Yield the folders that read command lines in their order."""
    return (folder for folder in FOLDERS if folder.has_commands)


def find_folder(reader: str) -> Folder | None:
    """Return whose files have this name as a kind of reference; None for other kinds."""
    name = reader.replace("-", "_")
    return next((one for one in FOLDERS if one.has_files and (one.name == name or reader in one.forks)), None)


def find_configuration_reader(reader: str) -> ConfigurationReader | None:
    """Return the reader whose files have this name as a kind of reference; None for other kinds."""
    folder = find_folder(reader)
    return None if folder is None else folder.configuration


def find_composer(reader: str) -> Composer:
    """Return the reader of files of a program whose documents hold their options."""
    return cast("Composer", find_configuration_reader(reader))


def find_refinement(reader: str) -> str | None:
    """Return the reader that is a special case of this one."""
    return next((folder.name for folder in FOLDERS if folder.refines == reader), None)
