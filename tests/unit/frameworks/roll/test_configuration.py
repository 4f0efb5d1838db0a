"""ROLL's configurations: which models there are, where they run, and which keys of a section its workers look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from compatcheck.core.document import Document
from compatcheck.core.source import Source
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.frameworks.roll import configuration as roll
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import facts

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = {
    "actor_train": ("megatron_train", 16),
    "reference": ("megatron_infer", 16),
    "actor_infer": ("vllm", 16),
    "critic": ("fsdp2_train", 16),
}


def section(name: str, config: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    strategy, devices = SECTIONS[name]
    arguments = {"strategy_name": keys.pop("strategy", strategy), "strategy_config": config or {}}
    return {"device_mapping": f"list(range(0,{devices}))", "strategy_args": arguments, **keys}


def configure(**keys: Any) -> dict[str, Any]:
    found = {
        "pretrain": "Qwen/Qwen2.5-7B",
        "adv_estimator": "grpo",
        "response_length": 4096,
        "rollout_batch_size": 64,
        "num_return_sequences_in_group": 8,
        "actor_train": section("actor_train"),
        "actor_infer": section("actor_infer", {"gpu_memory_utilization": 0.8}),
        "reference": section("reference"),
    }
    return {name: value for name, value in (found | keys).items() if value is not None}


def read(**keys: Any) -> Document:
    data = configure(**keys)
    assert roll.recognise(data)
    (document,) = roll.read(data, "c.yaml").documents
    return document


def roles(document: Document) -> set[str | None]:
    return {one.role for one in document.statements if one.key == "(a model of this run)"}


@pytest.mark.parametrize(
    ("keys", "there"),
    [
        ({}, {"actor", "reference"}),  # init_kl_coef is 0.2
        ({"init_kl_coef": 0.0}, {"actor"}),
        ({"init_kl_coef": 0.0, "use_kl_loss": True}, {"actor", "reference"}),
        ({"init_kl_coef": 0.0, "critic": section("critic")}, {"actor"}),
        ({"init_kl_coef": 0.0, "critic": section("critic"), "adv_estimator": None}, {"actor", "critic"}),
        ({"actor_train": section("actor_train", model_args={"lora_target": "all-linear"})}, {"actor"}),
    ],
)
def test_which_models_there_are(keys: dict[str, Any], there: set[str]) -> None:
    assert roles(read(**keys)) == there


@pytest.mark.parametrize(
    ("keys", "reference", "weight"),
    [
        ({}, True, 0),  # a reference scores, and no term asks for what it says
        ({"init_kl_coef": 0.0}, False, 0),
        ({"add_token_level_kl": True}, True, 0.2),
        ({"add_token_level_kl": True, "init_kl_coef": 0.01}, True, 0.01),
        ({"init_kl_coef": 0.0, "use_kl_loss": True, "kl_loss_coef": 0.001}, True, 0.001),
        ({"init_kl_coef": 0.0, "enable_reference": True}, True, 0),
    ],
)
def test_when_a_reference_scores_and_what_it_weighs(keys: dict[str, Any], *, reference: bool, weight: float) -> None:
    found = facts(read(**keys))
    assert (found["training.reference_model"], found["training.kl_coefficient"]) == (reference, weight)


@pytest.mark.parametrize(
    ("written", "devices"),
    [
        ("list(range(0,8))", 8),
        ("list(range(0,2))+list(range(14,16))", 4),
        ("[6, 7]", 2),
        ([1, 2, 3], 3),
        ("list([0,1,8,9])", 4),
        ("__import__('os').listdir()", None),
        ("list(range(0,9**9**9))", None),
    ],
)
def test_devices_are_a_literal_or_not_known(written: object, devices: int | None) -> None:
    found = facts(read(actor_train=section("actor_train") | {"device_mapping": written}), "actor")
    assert found.get("hardware.gpus_per_node") == devices


def test_devices_beyond_one_node() -> None:
    found = facts(read(), "actor")
    assert (found["hardware.gpus_per_node"], found["hardware.nodes"]) == (8, 2)
    uneven = facts(read(actor_train=section("actor_train") | {"device_mapping": "list(range(0,12))"}), "actor")
    assert uneven["hardware.world_size"] == 12


@pytest.mark.parametrize(("devices", "together"), [("list(range(0,12))", True), ("list(range(16,24))", False)])
def test_an_engine_sleeps_where_it_shares_devices(devices: str, *, together: bool) -> None:
    found = facts(read(actor_infer=section("actor_infer") | {"device_mapping": devices}))
    assert found["rollout.colocated"] is found["rollout.sleep_mode"] is together


def test_workers_on_megatron_pass_over_what_fsdp_workers_look_at() -> None:
    config = {
        "tensor_model_parallel_size": 2,
        "param_dtype": "fp32",
        "reshard_after_forward": False,
        "use_distributed_optimizer": True,
    }
    arguments = {"dtype": "bf16", "ulysses_size": 4, "disable_gradient_checkpointing": False}
    found = facts(read(actor_train=section("actor_train", config, model_args=arguments)), "actor")
    assert found["training.tensor_parallel"] == 2
    assert found["training.context_parallel"] == 1
    assert found["training.param_dtype"] == "bfloat16"
    assert found["training.grad_accum_dtype"] == "float32"
    assert found["training.gradient_checkpointing"] is False
    assert found["training.distributed_optimizer"] is True
    assert "training.fsdp_reshard_after_forward" not in found
    assert found["training.sleeps_while_idle"] is True


def test_workers_on_fsdp_pass_over_what_megatrons_look_at() -> None:
    config = {"param_dtype": "bf16", "fsdp_size": 4, "tensor_model_parallel_size": 2, "recompute_granularity": "full"}
    arguments = {"dtype": "fp16", "ulysses_size": 2, "disable_gradient_checkpointing": True}
    found = facts(
        read(actor_train=section("actor_train", config, strategy="fsdp2_train", model_args=arguments)), "actor"
    )
    assert found["training.tensor_parallel"] == 1
    assert found["training.context_parallel"] == 2
    assert found["training.param_dtype"] == found["training.compute_dtype"] == "bfloat16"
    assert found["training.reduce_dtype"] == "float32"
    assert found["training.gradient_checkpointing"] is False
    assert found["training.replicas"] == 4
    assert found["training.sleeps_while_idle"] is False  # optimizer states stay (fsdp2_strategy.py offload_states())


def test_what_is_left_out_on_fsdp() -> None:
    document = read(
        actor_train=section("actor_train", strategy="fsdp2_train"),
        reference=section("reference", strategy="fsdp2_infer"),
    )
    trained, frozen = facts(document, "actor"), facts(document, "reference")
    assert (trained["training.param_dtype"], frozen["training.param_dtype"]) == ("float32", "bfloat16")
    assert trained["training.compute_dtype"] == "bfloat16"
    assert trained["training.gradient_checkpointing"] is True
    assert trained["training.micro_batch_size"] == 8
    assert frozen["training.micro_batch_size"] == 16


def test_batches_count_sequences_or_are_filled_with_tokens() -> None:
    batches = {
        "training_args": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        "infer_batch_size": 8,
    }
    found = read(actor_train=section("actor_train", **batches), reference=section("reference", infer_batch_size=3))
    assert facts(found, "actor")["training.micro_batch_size"] == 2
    assert facts(found)["rollout.log_prob_micro_batch_size"] == 8
    assert facts(found)["rollout.global_batch_size"] == 512
    assert facts(found, "reference")["training.micro_batch_size"] == 3
    filled = {"use_dynamic_batching_in_train": True, "max_tokens_per_microbatch_in_train": 8192}
    found = read(actor_train=section("actor_train", **batches, **filled))
    assert facts(found, "actor")["training.micro_batch_tokens"] == 8192
    assert "training.micro_batch_size" not in facts(found, "actor")


@pytest.mark.parametrize(
    ("strategy", "config", "model", "tokens"),
    [
        ("megatron_train", {"context_parallel_size": 2}, {}, 4096),
        ("fsdp2_train", {}, {"ulysses_size": 4}, 2048),
        ("fsdp2_train", {}, {}, 8192),
    ],
)
def test_ranks_of_a_sequence_share_a_limit_in_tokens(
    strategy: str, config: dict[str, Any], model: dict[str, Any], tokens: int
) -> None:
    filled = {"use_dynamic_batching_in_train": True, "max_tokens_per_microbatch_in_train": 8192}
    own = section("actor_train", config, strategy=strategy, model_args=model, **filled)
    assert facts(read(actor_train=own), "actor")["training.micro_batch_tokens"] == tokens


@pytest.mark.parametrize(
    ("keys", "trained", "scored"),
    [
        ({}, ("training.micro_batch_tokens", 2048), ("rollout.log_prob_micro_batch_tokens", 4096)),
        ({"strategy": "fsdp2_train"}, ("training.micro_batch_size", 2), ("rollout.log_prob_micro_batch_size", 8)),
        ({"use_sequence_packing": False}, ("training.micro_batch_size", 2), ("rollout.log_prob_micro_batch_size", 8)),
        ({"algorithm": "none"}, ("training.micro_batch_size", 2), ("rollout.log_prob_micro_batch_size", 8)),
    ],
)
def test_megatrons_workers_pack_up_to_a_limit_in_tokens(
    keys: dict[str, Any], trained: tuple[str, int], scored: tuple[str, int]
) -> None:
    packed = {
        "algorithm": "load_balance",
        "max_packed_sequence_length_train": 4096,
        "max_packed_sequence_length_forward": 8192,
    }
    algorithm = keys.pop("algorithm", "load_balance")
    own = {
        "training_args": {"per_device_train_batch_size": 2},
        "infer_batch_size": 8,
        "use_sequence_packing": True,
        "sequence_packing_args": packed | {"algorithm": algorithm},
    }
    found = read(actor_train=section("actor_train", {"context_parallel_size": 2}, **(own | keys)))
    actor, job = facts(found, "actor"), facts(found)
    assert {name: value for name, value in (actor | job).items() if "micro_batch" in name} == dict([trained, scored])


@pytest.mark.parametrize(("keys", "count"), [({}, 8), ({"training_args": {"per_device_train_batch_size": 4}}, 4)])
def test_a_teacher_of_a_distillation_takes_batches_of_training(keys: dict[str, Any], count: int) -> None:
    data = configure(
        actor_train=None,
        actor_infer=None,
        reference=None,
        student=section("actor_train"),
        teacher=section("reference", infer_batch_size=2, **keys),
    )
    (document,) = roll.read(data, "c.yaml").documents
    assert facts(document, "reference")["training.micro_batch_size"] == count


def test_pipelines_without_generation() -> None:
    (sft,) = roll.read(
        {"pretrain": "m", "sequence_length": 2048, "sft_train": section("actor_train")}, "c.yaml"
    ).documents
    found = facts(sft)
    assert (found["training.trainer"], found["training.sequence_length"]) == ("sft", 2048)
    assert "training.offload_param" not in found
    assert ("model", "m", "pretrain") in sft.references
    dpo = read(actor_infer=None, is_offload_states=True)
    assert facts(dpo)["training.trainer"] == "dpo"
    assert facts(dpo, "actor")["training.offload_param"] == "cpu"
    assert "training.offload_param" not in facts(read(actor_infer=None), "actor")


def test_a_teacher_is_the_reference_of_a_student() -> None:
    data = configure(
        actor_train=None,
        actor_infer=None,
        reference=None,
        student_train=section("actor_train"),
        student_infer=section("actor_infer", {"gpu_memory_utilization": 0.6}),
        teacher=section("reference", model_args={"model_name_or_path": "Qwen/Qwen3-32B"}),
    )
    (document,) = roll.read(data, "c.yaml").documents
    assert roles(document) == {"actor", "reference"}
    assert ("model:reference", "Qwen/Qwen3-32B", "teacher.model_args.model_name_or_path") in document.references
    assert facts(document)["rollout.gpu_memory_utilization"] == 0.6


def test_several_teachers_are_what_no_formula_counts() -> None:
    """multi_teacher_onpolicy_distill_config.yaml of 8eb27cc2: each has a section of its own in that of the teacher."""
    teachers = {name: section("reference") for name in ("teacher_32B", "teacher_14B")}
    run = {"student_train": section("actor_train"), "student_infer": section("actor_infer"), "teacher": teachers}
    document = read(actor_train=None, actor_infer=None, **run)
    subject = resolve("x", rules=open_rules(), documents=(document,))
    assert subject.roles["actor"]["training.unpriced"].value == ("distillation",)


def test_interpolation_is_followed_and_environments_are_let_be() -> None:
    document = read(
        prompt_length=512,
        sequence_length="${response_length}",
        custom_envs={"Sokoban": "${custom_env.Sokoban}"},
        defaults=["../config/traj_envs@_here_"],
    )
    assert facts(document)["training.sequence_length"] == 4096
    assert not document.unresolved
    assert not document.gaps


def test_files_under_defaults_are_bases_where_their_keys_count_from_the_root() -> None:
    """Held against Hydra 1.3.2, which lays a file over its defaults unless ``_self_`` stands before them."""

    def composed(*listed: object) -> tuple[list[str], list[str]]:
        document = read(defaults=list(listed))
        return [name for kind, name, _ in document.references if kind == "roll"], [gap.why for gap in document.gaps]

    assert composed("../config/deepspeed_zero2@_here_", "r") == (["../config/deepspeed_zero2.yaml", "r.yaml"], [])
    assert composed("r.yaml@_global_", "_self_") == (["r.yaml"], [])
    assert composed("_self_", "r") == ([], ["composes from r, which is not read"])
    assert composed("g/b", {"g": "b"}, "r@x") == (
        [],
        [
            "composes from b, which is not read",
            "composes from {'g': 'b'}, which is not read",
            "composes from r, which is not read",
        ],
    )


def test_a_file_is_laid_over_the_one_that_it_composes_from(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(configure()))
    (tmp_path / "h.yaml").write_text(
        "defaults: [r, _self_]\nactor_train: {training_args: {per_device_train_batch_size: 7}}\nprompt_length: 100\n"
    )
    (reading,) = read_configurations(str(tmp_path / "h.yaml"), named=True)
    over, base = (document for document in follow_references(reading.documents, open_rules(), {}) if document.options)
    assert facts(over, "actor")["training.micro_batch_size"] == 7
    assert "training.micro_batch_size" not in facts(base, "actor")
    assert ("model", "Qwen/Qwen2.5-7B", "pretrain") in {one for document in (over, base) for one in document.references}


def test_a_further_model_on_the_same_devices_is_said() -> None:
    judge = {"strategy_args": {"strategy_name": "hf_infer"}, "device_mapping": "list(range(12,16))"}
    assert "rewards.judge" in read(rewards={"judge": judge}).skipped[0].reason
    assert not read(rewards={"judge": judge | {"device_mapping": "list(range(16,24))"}}).skipped


def test_an_engine_alone_serves() -> None:
    found = facts(read(actor_train=None, reference=None))
    assert found["program.serves"] is True
    assert found["rollout.engine"] == "vllm"


def test_an_engines_own_options_are_known() -> None:
    config = {"block_size": 16, "tensor_parallel_size": 2, "max_model_len": 8192, "no_such_key": 1}
    document = read(actor_infer=section("actor_infer", config))
    assert facts(document)["rollout.tensor_parallel"] == 2
    assert [key for key, _ in document.unread] == ["actor_infer.strategy_args.strategy_config.no_such_key"]


@pytest.mark.parametrize(
    ("strategy", "arguments", "stated", "opened"),
    [
        ("megatron_train", {"freeze_module_prefix": "vision_model"}, False, False),
        ("megatron_train", {"freeze_module_prefix": "vision_model.blocks,vision_model.patch_embed"}, None, True),
        ("fsdp2_train", {"freeze_module_prefix": "vision_model"}, None, True),  # its modules have other names
        ("megatron_train", {"freeze_module_prefix": "vision_model", "lora_target": "all-linear"}, None, False),
    ],
)
def test_what_is_frozen_is_known_or_left_open(
    strategy: str, arguments: dict[str, str], stated: object, *, opened: bool
) -> None:
    document = read(actor_train=section("actor_train", strategy=strategy, model_args=arguments))
    assert facts(document, "actor").get("run.trains_tower") is stated
    assert ("model.trainable_parameters" in {one.fact for one in document.unresolved}) is opened
    found = resolve("x", rules=open_rules(), documents=(document,), settings={"model.parameters": (9, Source("x"))})
    assert ("model.trainable_parameters" in found.roles["actor"]) is (strategy == "megatron_train" and stated is False)


def test_graphs_of_engine_and_training() -> None:
    engine = {"compilation_config": {"cudagraph_mode": "NONE", "cudagraph_capture_sizes": [1, 16, 8]}}
    document = read(
        actor_infer=section("actor_infer", engine), actor_train=section("actor_train", {"cuda_graph_impl": "local"})
    )
    found = facts(document)
    assert (found["rollout.cuda_graphs"], found["rollout.max_cudagraph_capture_size"]) == (False, 16)
    assert [gap.source.key for gap in document.gaps] == ["actor_train.strategy_args.strategy_config.cuda_graph_impl"]
    off = read(actor_train=section("actor_train", {"cuda_graph_impl": "none"}))
    assert not off.gaps
