"""NeMo RL's configurations: what one file says, and several that compose from one another."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from compatcheck.core.document import Document
from compatcheck.core.source import Source
from compatcheck.frameworks.composition import compose, merge_options
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.nemo_rl import configuration as nemo_rl
from compatcheck.frameworks.translation import flatten
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import facts

BASE = """
grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16}
loss_fn: {reference_policy_kl_penalty: 0.01}
checkpointing: {enabled: true}
policy:
  model_name: Qwen/Qwen2.5-1.5B
  train_global_batch_size: 512
  train_micro_batch_size: 4
  logprob_batch_size: ${policy.train_micro_batch_size}
  max_total_sequence_length: 512
  precision: bfloat16
  dtensor_cfg: {enabled: true, cpu_offload: false, sequence_parallel: false, activation_checkpointing: true,
    tensor_parallel_size: 2, context_parallel_size: 1, lora_cfg: {enabled: false, dim: 8, match_all_linear: true}}
  megatron_cfg:
    enabled: false
    activation_checkpointing: true
    recompute_granularity: full
    tensor_model_parallel_size: 4
    pipeline_model_parallel_size: 2
    context_parallel_size: 2
    optimizer: {optimizer: adam, use_distributed_optimizer: true, optimizer_cpu_offload: false}
    distributed_data_parallel_config: {grad_reduce_in_fp32: false}
  sequence_packing: {enabled: false,
    train_mb_tokens: "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}",
    logprob_mb_tokens: "${mul:${policy.max_total_sequence_length}, ${policy.logprob_batch_size}}"}
  dynamic_batching: {enabled: false}
  optimizer: {name: torch.optim.AdamW, kwargs: {foreach: false, fused: false}}
  generation:
    backend: vllm
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
    vllm_cfg: {tensor_parallel_size: 1, gpu_memory_utilization: 0.6, max_model_len: "${policy.max_total_sequence_length}"}
data: {train: {env_name: math}}
cluster: {gpus_per_node: 8, num_nodes: 4}
"""


def read(text: str) -> Document:
    (document,) = nemo_rl.read(yaml.safe_load(text), "c.yaml").documents
    return document


def over(**sections: Any) -> Document:
    """Return the base with values laid over it."""
    data = yaml.safe_load(BASE)
    for key, value in sections.items():
        *outer, last = key.split("__")
        inner = data
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = value
    (document,) = nemo_rl.read(data, "c.yaml").documents
    return document


def test_a_policy_on_fsdp2() -> None:
    found = facts(read(BASE), "actor")
    assert found == found | {
        "training.trainer": "grpo",
        "training.sharding": "fsdp",
        "training.compute_dtype": "bfloat16",
        "training.mixed_precision": "bf16",
        "training.tensor_parallel": 2,
        "training.micro_batch_size": 4,
        "training.global_batch_size": 512,
        "training.sequence_length": 512,
        "training.gradient_checkpointing": True,
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "for_loop",
        "training.peft": None,
        "rollout.log_prob_micro_batch_size": 4,
        "rollout.n": 16,
        "rollout.global_batch_size": 512,
        "rollout.max_model_len": 512,
        "rollout.colocated": True,
        "hardware.gpus_per_node": 8,
        "hardware.nodes": 4,
    }
    assert not {"training.pipeline_parallel", "training.distributed_optimizer", "training.lora_rank"} & found.keys()
    assert not read(BASE).unread


def test_a_policy_on_megatron() -> None:
    found = facts(over(policy__dtensor_cfg__enabled=False, policy__megatron_cfg__enabled=True), "actor")
    assert found == found | {
        "training.sharding": "megatron",
        "training.param_dtype": "bfloat16",
        "training.grad_accum_dtype": "bfloat16",
        "training.tensor_parallel": 4,
        "training.pipeline_parallel": 2,
        "training.optimizer": "adam",
        "training.distributed_optimizer": True,
        "training.checkpointing_policy": "full",
    }
    assert not {"training.optimizer_implementation", "training.fsdp_offload_params"} & found.keys()


def test_packed_batches_count_tokens_which_context_parallel_ranks_share() -> None:
    packed = {"policy__sequence_packing__enabled": True}
    found = facts(over(**packed), "actor")
    assert (found["training.micro_batch_tokens"], found["rollout.log_prob_micro_batch_tokens"]) == (2048, 2048)
    assert "training.micro_batch_size" not in found
    shared = over(**packed, policy__dtensor_cfg__enabled=False, policy__megatron_cfg__enabled=True)
    assert facts(shared, "actor")["training.micro_batch_tokens"] == 1024


@pytest.mark.parametrize("key", ["megatron_cfg.freeze_vision_model", "megatron_cfg.freeze_config.freeze_vision_model"])
def test_a_tower_that_is_frozen_has_no_trainable_parameters(key: str) -> None:
    keys = {f"policy__{key.replace('.', '__')}": True, "policy__dtensor_cfg__enabled": False}
    run = over(policy__megatron_cfg__enabled=True, **keys)
    assert facts(run, "actor")["run.trains_tower"] is False
    shape = {"model.parameters": 100, "model.vision_parameters": 7}
    settings = {name: (value, Source("--set")) for name, value in shape.items()}
    actor = resolve("x", rules=open_rules(), documents=(run,), settings=settings).roles["actor"]
    assert actor["model.trainable_parameters"].value == 93


def test_selective_recomputation_of_what_was_not_read_is_open() -> None:
    own = {"policy__dtensor_cfg__enabled": False, "policy__megatron_cfg__enabled": True}
    own["policy__megatron_cfg__recompute_granularity"] = "selective"  # type: ignore[assignment]  # text
    fact = "training.checkpointing_policy"
    assert facts(over(**own), "actor")[fact] == "core_attention"
    other = over(**own, policy__megatron_cfg__recompute_modules=["moe"])
    assert fact not in facts(other, "actor")
    assert [one.fact for one in other.unresolved] == [fact]
    off = over(**own, policy__megatron_cfg__activation_checkpointing=False)
    assert fact not in facts(off, "actor")


@pytest.mark.parametrize(
    ("resources", "nodes", "wanted"),
    [
        ({"gpus_per_node": 8, "num_nodes": 1}, 4, (8, 3)),
        ({"gpus_per_node": 2, "num_nodes": None}, 1, (6, 1)),
        ({}, 4, None),
    ],
)
def test_devices_of_an_engine_elsewhere_do_not_train(
    resources: dict[str, int | None], nodes: int, wanted: tuple[int, int] | None
) -> None:
    document = over(policy__generation__colocated={"enabled": False, "resources": resources}, cluster__num_nodes=nodes)
    found = facts(document)
    got = (found.get("hardware.gpus_per_node"), found.get("hardware.nodes"))
    assert got == (wanted or (None, None))


def test_a_teacher_and_a_value_model_are_policies_of_other_roles() -> None:
    data = yaml.safe_load(BASE)
    teacher = data["policy"] | {"model_name": "Qwen/Qwen3-32B", "logprob_batch_size": 1, "train_micro_batch_size": 8}
    distillation = {key: value for key, value in data.items() if key != "grpo"} | {
        "distillation": data["grpo"],
        "teacher": teacher,
    }
    (document,) = nemo_rl.read(distillation, "c.yaml").documents
    assert facts(document, "reference")["training.micro_batch_size"] == 1
    assert facts(document, "reference")["training.gradient_checkpointing"] is False
    assert ("model:reference", "Qwen/Qwen3-32B", "teacher.model_name") in document.references
    assert not document.unread
    scores = [name for name in (*facts(document, "actor"), *facts(document)) if "log_prob" in name]
    assert not scores
    ppo = {key: value for key, value in data.items() if key != "grpo"} | {"ppo": data["grpo"], "value": teacher}
    (document,) = nemo_rl.read(ppo, "c.yaml").documents
    assert facts(document, "critic")["training.micro_batch_size"] == 8
    assert facts(document, "critic")["program.makes_logits"] is False


def test_a_file_is_told_by_its_sections_or_by_the_file_that_it_composes_from() -> None:
    assert nemo_rl.recognise(yaml.safe_load(BASE))
    assert nemo_rl.recognise({"defaults": "../sft.yaml", "policy": {}})
    assert nemo_rl.recognise({"defaults": ["a.yaml", "b.yaml"], "data_plane": {"enabled": True}})
    assert nemo_rl.recognise({"defaults": "a.yaml", "grpo": {}, "logger": {}, "async_rl": {"sampler": {}}})
    assert not nemo_rl.recognise({"defaults": ["ppo_trainer", "_self_"], "data": {}})
    assert not nemo_rl.recognise({"defaults": "a.yaml", "model": {}})
    assert not nemo_rl.recognise({"policy": {}})


CHILD = {
    "defaults": "parent.yaml",
    "policy": {"optimizer": None, "megatron_cfg": {"_override_": True, "a": 1}},
    "data": {"_override_": True, "x": 1},
}
PARENT = {
    "defaults": ["first.yaml", "second.yaml"],
    "policy": {"optimizer": {"name": "n"}, "megatron_cfg": {"b": 2}, "generation": {}, "length": 8},
    "data": {"y": 2},
}
FIRST = {"policy": {"length": 1, "micro": 2, "generation": {"g": 1}, "tokens": "${mul:${policy.length},${.micro}}"}}
SECOND = {"policy": {"micro": 4, "list": [1, 2]}}
MERGED = {
    "policy.optimizer": None,
    "policy.megatron_cfg._override_": True,
    "policy.megatron_cfg.a": 1,
    "policy.megatron_cfg.b": 2,
    "policy.generation.g": 1,
    "policy.length": 8,
    "policy.micro": 4,
    "policy.tokens": 32,
    "policy.list": [1, 2],
    "data.x": 1,
}
"""What NeMo RL's own load_config makes of these files (nemo_rl/utils/config.py at 7ea279a, OmegaConf 2.3.1)."""


def test_files_are_merged_as_the_program_merges_them() -> None:
    names = ("child.yaml", "parent.yaml", "second.yaml", "first.yaml")
    documents = [
        Document(
            "nemo-rl",
            Source(name),
            (),
            options={key: Argument(value, None) for key, value in flatten(data) if not key.startswith("defaults")},
        )
        for name, data in zip(names, (CHILD, PARENT, SECOND, FIRST), strict=True)
    ]
    whole = merge_options(documents)
    found = {key: one.value for key, one in follow_all(whole).items()}
    assert {key: value for key, value in found.items() if key not in {"data._override_", "policy.generation"}} == MERGED


def test_what_the_nearest_file_says_counts_and_each_fact_is_where_it_stands() -> None:
    child = nemo_rl.read({"defaults": "base.yaml", "policy": {"train_micro_batch_size": 8}}, "child.yaml").documents[0]
    (base,) = nemo_rl.read(yaml.safe_load(BASE), "base.yaml").documents
    first, second = compose((child, base))
    assert facts(first, "actor")["training.micro_batch_size"] == 8
    assert "training.micro_batch_size" not in facts(second, "actor")
    assert facts(second, "actor")["rollout.log_prob_micro_batch_size"] == 8
    assert facts(second, "actor")["training.sharding"] == "fsdp"


def test_nodes_of_an_environment_are_beside_the_clusters_and_those_of_teachers_are_not_known() -> None:
    found = facts(over(env={"nemo_gym": {"num_gpu_nodes": 1}}))
    assert (found["hardware.gpus_per_node"], found["hardware.nodes"]) == (8, 4)
    other = over(on_policy_distillation={"enabled": True})
    assert [(one.fact, one.key) for one in other.unresolved] == [("hardware.nodes", "cluster.num_nodes")]
    assert "hardware.gpus_per_node" not in facts(other)


def test_what_no_file_is_among_the_defaults_is_said() -> None:
    data = yaml.safe_load(BASE) | {"defaults": [["a.yaml"], "b", {"c": "d"}, "e.yaml"], "defaults_of": 1}
    (document,) = nemo_rl.read(data, "c.yaml").documents
    assert [name for kind, name, _ in document.references if kind == "nemo-rl"] == ["e.yaml"]
    assert [gap.why for gap in document.gaps] == [
        "composes from ['a.yaml'], which is not read",
        "composes from b, which is not read",
        "composes from {'c': 'd'}, which is not read",
    ]
    assert ("defaults_of", None) in document.unread
