"""open-instruct's reinforcement learning (``grpo_fast.py`` and its kin): what its options state, without defaults.

Learners run DeepSpeed, generation vLLM on devices of its own unless ``--single_gpu_mode``. Options as in the scripts of its
repository at its main branch and at v0.1.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement
from compatcheck.frameworks.keys import LEAVE, Key
from compatcheck.frameworks.launch.arguments import Beyond, Program, Table, make_command_document
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from compatcheck.frameworks.launch.launchers import Launch

READER = "script"
_PROGRAM = re.compile(r"open_instruct[./](grpo\w*|ppo\w*)(\.py)?$")


def _learners(value: Any) -> Any:  # noqa: ANN401 (an option's value)
    """Sum the learners of all nodes: ``--num_learners_per_node 8 8``."""
    values = value if isinstance(value, list) else [value]
    return sum(values) if all(isinstance(item, int) and not isinstance(item, bool) for item in values) else LEAVE


TABLE: Table = {
    "per_device_train_batch_size": Key("training.micro_batch_size"),
    "gradient_checkpointing": Key("training.gradient_checkpointing"),
    "deepspeed_stage": Key("training.zero_stage"),
    "num_learners_per_node": Key("hardware.world_size", _learners),
    "num_samples_per_prompt_rollout": (Key("rollout.n"), Key("training.num_generations")),
    "max_prompt_token_length": Key("training.max_prompt_length"),
    "response_length": Key("training.max_response_length"),
    "pack_length": Key("training.sequence_length"),
    "beta": Key("training.kl_coefficient"),
    "vllm_tensor_parallel_size": Key("rollout.tensor_parallel"),
    "vllm_gpu_memory_utilization": Key("rollout.gpu_memory_utilization"),
    "vllm_enforce_eager": Key("rollout.enforce_eager"),
    "single_gpu_mode": Key("rollout.colocated"),
    "sequence_parallel_size": Key("training.context_parallel"),
}
"""Option → meaning."""


def recognise(launch: Launch) -> str | None:
    """Tell the algorithm of a launch of these scripts."""
    match = _PROGRAM.search(launch.program)
    return None if match is None else "grpo" if match[1].startswith("grpo") else "ppo"


def read(launch: Launch, trainer: str) -> tuple[Document, ...]:
    """Translate a launch."""
    flags = parse_flags(launch.arguments)
    known = (Statement("training.trainer", "(program)", trainer), Statement("rollout.engine", "(program)", "vllm"))
    program = Program(READER, TABLE, lambda _: True, {"model_name_or_path": "model"})
    beyond = Beyond(known, (), (), flags.unknown)
    return (make_command_document(program, launch.command.source, flags.options, beyond),)
