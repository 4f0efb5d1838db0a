"""EasyR1's command lines and configurations: a fork of verl with keys of its own (``worker.actor.…``, OmegaConf).

Read at its main branch (``examples/config.yaml``, ``verl/workers/config.py``). Micro batches count sequences of one device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.keys import LEAVE, Key, flatten, stated, translate
from compatcheck.frameworks.launch.arguments import (
    Beyond,
    Program,
    Table,
    make_command_document,
    name_roles,
    skip_refused,
)
from compatcheck.frameworks.launch.hydra import parse_overrides
from compatcheck.frameworks.verl.command import ESTIMATORS, on_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.frameworks.launch.launchers import Launch

READER = "easy-r1"


def _strategy(value: Any) -> Any:  # noqa: ANN401 (configuration)
    return "full_shard" if value is True else "shard_grad_op" if value is False else LEAVE


def _worker(role: str, section: str) -> Table:
    """Return the keys of one worker's section."""
    return {
        section + "model.enable_gradient_checkpointing": Key("training.gradient_checkpointing", stated, role),
        section + "model.lora.rank": (
            Key("training.lora_rank", stated, role),
            Key("training.peft", lambda rank: "lora" if rank else None, role),
        ),
        section + "fsdp.enable_full_shard": Key("training.fsdp_sharding_strategy", _strategy, role),
        section + "fsdp.enable_cpu_offload": Key("training.fsdp_offload_params", stated, role),
        section + "offload.offload_params": Key("training.offload_param", on_host, role),
        section + "offload.offload_optimizer": Key("training.offload_optimizer", on_host, role),
        section + "micro_batch_size_per_device_for_update": Key("training.micro_batch_size", stated, role),
        section + "ulysses_size": Key("training.context_parallel", stated, role),
        section + "padding_free": Key("training.use_remove_padding", stated, role),
    }


TABLE: Table = {
    "data.max_prompt_length": Key("training.max_prompt_length", stated),
    "data.max_response_length": Key("training.max_response_length", stated),
    "algorithm.adv_estimator": Key("training.trainer", lambda name: ESTIMATORS.get(str(name), LEAVE)),
    "algorithm.kl_coef": Key("training.kl_coefficient", stated, "actor"),
    "algorithm.disable_kl": Key("training.reference_model", lambda off: not off if isinstance(off, bool) else LEAVE),
    **_worker("actor", "worker.actor."),
    **_worker("critic", "worker.critic."),
    **_worker("reference", "worker.ref."),
    "worker.actor.micro_batch_size_per_device_for_experience": (
        Key("rollout.log_prob_micro_batch_size", stated),
        Key("training.micro_batch_size", stated, "reference"),
    ),
    "worker.actor.model.trust_remote_code": Key("model.trust_remote_code", stated),
    "worker.rollout.n": Key("rollout.n", stated),
    "worker.rollout.gpu_memory_utilization": Key("rollout.gpu_memory_utilization", stated),
    "worker.rollout.enforce_eager": Key("rollout.enforce_eager", stated),
    "worker.rollout.tensor_parallel_size": Key("rollout.tensor_parallel", stated),
    "worker.rollout.max_num_batched_tokens": Key("rollout.max_num_batched_tokens", stated),
    "trainer.n_gpus_per_node": Key("hardware.gpus_per_node", stated),
    "trainer.nnodes": Key("hardware.nodes", stated),
}
"""Key → meaning."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts EasyR1."""
    words = [(word.text or word.written) for word in launch.arguments]
    mine = launch.program == "verl.trainer.main" or any(word.startswith("worker.actor.") for word in words)
    return READER if mine else None


def recognise_data(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of EasyR1."""
    worker = data.get("worker")
    return isinstance(worker, dict) and {"actor", "rollout"} <= worker.keys()


def _table(options: Mapping[str, Any], *, complete: bool) -> Table:
    """Leave out the critic unless advantages are estimated with one (``gae``)."""
    estimator = options.get("algorithm.adv_estimator")
    value = getattr(estimator, "value", estimator)
    critic = value == "gae" or (
        estimator is None and not complete and any(key.startswith("worker.critic.") for key in options)
    )
    return {key: entry for key, entry in TABLE.items() if critic or not key.startswith("worker.critic.")}


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch."""
    overrides = parse_overrides(launch.arguments)
    options = dict(overrides.values)
    config = options.pop("config", None)
    references: tuple[tuple[str, str, str], ...] = ()
    if config is not None and isinstance(config.value, str):
        references = (("config", config.value, "config"),)
    program = Program(
        READER, _table(options, complete=False), lambda _: True, {"worker.actor.model.model_path": "model"}
    )
    skipped = tuple(skip_refused(overrides.refused))
    beyond = Beyond(tuple(_known()), references, skipped, overrides.unknown)
    return (make_command_document(program, launch.command.source, options, beyond),)


def read_data(data: Mapping[str, Any], path: str) -> Document:
    """Translate a parsed configuration."""
    source = Source(path)
    leaves = dict(flatten(data))
    table = _table(leaves, complete=True)
    translation = translate(iter(leaves.items()), table, irrelevant=lambda _: True, source=source)
    model = leaves.get("worker.actor.model.model_path")
    references = (("model", model, "worker.actor.model.model_path"),) if isinstance(model, str) else ()
    statements = (*translation.statements, *_known())
    return Document(READER, source, statements, translation.unread, translation.skipped, references)


def _known() -> Iterator[Statement]:
    """Say what EasyR1 does without being asked: FSDP1, vLLM on the trainer's devices."""
    yield from name_roles(("actor", "reference"))
    yield Statement("training.sharding", "(program)", "fsdp")
    yield Statement("training.fsdp_version", "(program)", 1)
    yield Statement("rollout.engine", "(program)", "vllm")
    yield Statement("rollout.colocated", "(program)", True)
    yield Statement("training.gradient_checkpointing", "(only run forward)", False, "reference")
    yield Statement("training.offload_optimizer", "(only run forward)", None, "reference")
    yield Statement("model.trainable_parameters", "(only run forward)", 0, "reference")
