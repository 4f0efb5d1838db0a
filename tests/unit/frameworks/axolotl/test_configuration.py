"""The reader of axolotl's configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compatcheck.core.document import Document
from compatcheck.frameworks.axolotl import configuration as axolotl
from compatcheck.frameworks.lines import LineFinder
from compatcheck.frameworks.recognise import read_configuration
from tests import ROOT
from tests.unit.frameworks.reading import read_file
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs/axolotl"
MINIMAL = {"base_model": "llama-3-8b", "datasets": [], "micro_batch_size": 1}


def read(**keys: Any) -> Document:
    return axolotl.read({**MINIMAL, **keys}, "axolotl.yaml").documents[0]


def found(**keys: Any) -> dict[str, object]:
    return facts(read(**keys))


def test_kinds_of_datasets_that_no_release_cuts_leave_a_mark() -> None:
    kinds = ["alpaca", "input_output.x", "chat_template"]
    document = read(datasets=[{"path": "d", "type": kind} for kind in kinds])
    marks = [one.key for one in document.statements if one.fact is None and one.key.startswith("(")]
    assert marks == ["(datasets: chat_template)", "(datasets: input_output)"]


def test_full_fine_tuning_over_zero() -> None:
    (document,) = read_file(axolotl, str(CONFIGS / "full-zero3.yaml")).documents
    assert document.reader == "axolotl"
    assert document.references == (("model", "llama-3-8b", "base_model"), ("deepspeed", "zero3.json", "deepspeed"))
    assert facts(document) == {
        "model.attn_implementation": "flash_attention_2",
        "training.evaluates": True,
        "training.gradient_accumulation_steps": 4,
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": 2,
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "fused",
        "training.packing": True,
        "training.sequence_length": 8192,
        "training.trainer": "causal_lm",
    }
    assert document.unread == ()
    assert document.skipped == ()


def test_fsdp_2_with_parallel_dimensions_and_plugins() -> None:
    (document,) = read_file(axolotl, str(CONFIGS / "fsdp2.yaml")).documents
    stated = facts(document)
    assert document.unread == ()
    assert document.skipped == ()
    assert stated["training.sharding"] == "fsdp"
    assert stated["training.fsdp_version"] == 2
    assert stated["training.fsdp_cpu_ram_efficient_loading"] is True
    assert stated["training.fsdp_reshard_after_forward"] is True
    assert stated["training.fsdp_state_dict_type"] == "full_state_dict"
    assert stated["training.tensor_parallel"] == 2
    assert stated["training.context_parallel"] == 2
    assert stated["training.hsdp_shard_size"] == 8  # a shard is of ranks that split a sequence, too
    assert stated["training.use_reentrant"] is False
    assert stated["training.loss_implementation"] == "fused_linear"
    assert stated["training.mixed_precision"] == "bf16"
    assert stated["model.load_dtype"] == "bfloat16"
    assert stated["model.attn_implementation"] == "flash_attention_2"
    assert stated["training.optimizer"] == "ao_adamw_8bit"  # torchao's, not that of bitsandbytes
    assert "training.use_liger_kernel" not in stated  # the plugin is not the HF Trainer's switch


def test_fsdp_1_as_old_releases_spell_it() -> None:
    (document,) = read_file(axolotl, str(CONFIGS / "fsdp1.yml")).documents
    stated = facts(document)
    assert document.unread == ()
    assert stated["training.sharding"] == "fsdp"
    assert stated["training.fsdp_sharding_strategy"] == "full_shard"
    assert stated["training.fsdp_offload_params"] is True
    assert stated["training.fsdp_state_dict_type"] == "sharded_state_dict"
    assert stated["training.fsdp_use_orig_params"] is False
    assert stated["training.peft"] == "dora"
    assert stated["model.quantization"] == "nf4"
    assert stated["training.lora_rank"] == 16
    assert stated["training.lora_dropout"] == 0.05
    assert stated["training.lora_target_modules"] == ("all-linear",)
    assert stated["training.lora_modules_to_save"] == ("embed_tokens", "lm_head")
    assert stated["training.optimizer"] == "paged_adamw_8bit"
    assert stated["model.attn_implementation"] == "sdpa"
    assert stated["training.activation_offloading"] is True
    assert "training.gradient_checkpointing" not in stated  # beside an adapter the release decides
    assert "training.mixed_precision" not in stated  # auto


def test_reinforcement_learning() -> None:
    (document,) = read_file(axolotl, str(CONFIGS / "grpo.yaml")).documents
    stated = facts(document)
    assert document.unread == ()
    assert stated["training.trainer"] == "grpo"
    assert stated["training.kl_coefficient"] == 0.001
    assert stated["training.num_generations"] == 16
    assert stated["training.max_prompt_length"] == 512
    assert stated["training.max_response_length"] == 1024
    assert stated["training.use_liger_kernel"] is True
    assert stated["rollout.engine"] == "vllm"
    assert stated["rollout.mode"] == "colocate"
    assert stated["rollout.sleep_mode"] is True
    assert stated["rollout.gpu_memory_utilization"] == 0.4
    assert stated["rollout.tensor_parallel"] == 2
    assert stated["rollout.enforce_eager"] is True


@pytest.mark.parametrize(
    ("keys", "trainer"),
    [
        ({}, "causal_lm"),
        ({"pretraining_dataset": "my/text"}, "pretrain"),
        ({"reward_model": True}, "reward"),
        ({"process_reward_model": True}, "prm"),
        ({"rl": "ipo"}, "dpo"),
        ({"rl": "simpo"}, "cpo"),
        ({"rl": "gdpo"}, "grpo"),
        ({"rl": "ebft"}, None),
        ({"rl": None}, "causal_lm"),
        ({"trainer_cls": "my.Trainer"}, None),
    ],
)
def test_what_tells_a_trainer(keys: dict[str, object], trainer: str | None) -> None:
    assert found(**keys).get("training.trainer") == trainer


def test_a_class_of_mamba_ssm_is_no_model_of_transformers_and_is_given_no_labels() -> None:
    stated = found(model_type="MambaLMHeadModel")
    assert stated["program.computes_loss"] == "program"
    assert stated["program.runs_transformers"] is stated["program.passes_labels"] is False
    assert "program.passes_labels" not in found(model_type="AutoModelForCausalLM")


@pytest.mark.parametrize(
    ("keys", "mixed", "dtype"),
    [
        ({"bf16": True}, "bf16", "bfloat16"),
        ({"bf16": "true", "fp16": True}, "bf16", "bfloat16"),
        ({"bf16": "full"}, "no", "bfloat16"),
        ({"bfloat16": True}, "bf16", "bfloat16"),
        ({"fp16": True}, "fp16", "float16"),
        ({"bf16": False, "fp16": True}, "fp16", "float16"),
        ({"bf16": False}, "no", "float32"),
        ({"bf16": False, "load_in_8bit": True, "adapter": "lora"}, "no", "float16"),
        ({"bf16": False, "float16": True}, "no", "float16"),
        ({"bf16": True, "fp8": True}, "fp8", "bfloat16"),
        ({"bf16": "auto", "fp16": False}, None, None),
        ({"bf16": None}, None, None),
    ],
)
def test_precision(keys: dict[str, object], mixed: str | None, dtype: str | None) -> None:
    stated = found(**keys)
    assert stated.get("training.mixed_precision") == mixed
    assert stated.get("model.load_dtype") == dtype


@pytest.mark.parametrize(
    ("keys", "reentrant", "offloads"),
    [
        ({"activation_offloading": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, False, True),
        ({"activation_offloading": "hidden_states"}, False, True),
        (
            {"activation_offloading": "hidden_states", "gradient_checkpointing_kwargs": {"use_reentrant": True}},
            True,
            True,
        ),
        ({"activation_offloading": "legacy"}, None, True),
        ({"activation_offloading": False}, None, False),
        ({"gradient_checkpointing": "offload"}, None, True),
        ({"selective_checkpointing": {"save": ["attention"]}}, False, None),
        ({"selective_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, False, None),
        ({"selective_checkpointing": False}, None, None),
        ({"selective_checkpointing": False, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, True, None),
    ],
)
def test_variant_of_checkpointing(*, keys: dict[str, Any], reentrant: bool | None, offloads: bool | None) -> None:
    stated = found(**{"gradient_checkpointing": True, **keys})
    assert stated["training.gradient_checkpointing"] is True
    assert stated.get("training.use_reentrant") is reentrant
    assert stated.get("training.activation_offloading") is offloads


@pytest.mark.parametrize(
    ("keys", "by_itself"),
    [
        ({"activation_offloading": True}, False),
        ({"activation_offloading": "legacy"}, True),
        ({"activation_offloading": "disk"}, True),
        ({"activation_offloading": "hidden_states"}, True),
        ({"gradient_checkpointing": "offload"}, False),
        ({"gradient_checkpointing": "offload_disk"}, True),
    ],
)
def test_only_streams_are_offloaded_by_trl(*, keys: dict[str, Any], by_itself: bool) -> None:
    stated = found(**{"gradient_checkpointing": True, **keys})
    assert stated.get("program.offloads_by_trl") is (False if by_itself else None)


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"flash_attention": True, "flex_attention": True}, "flex_attention"),
        ({"eager_attention": True}, "eager"),
        ({"flash_attention": False}, None),
        ({"xformers_attention": True, "flash_attention": True}, None),
        ({"attn_implementation": "xformers"}, None),
        ({"attn_implementation": "kernels-community/vllm-flash-attn3"}, "flash_attention_3"),
        ({"attn_implementation": "someone/kernel"}, None),
    ],
)
def test_attention(keys: dict[str, object], name: str | None) -> None:
    document = read(**keys)
    assert facts(document).get("model.attn_implementation") == name
    assert document.skipped == ()
    assert document.unread == ()


@pytest.mark.parametrize(
    ("keys", "fact", "value"),
    [
        ({"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_rope": True}, "loss_implementation", None),
        (
            {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_fused_linear_cross_entropy": True},
            "loss_implementation",
            "fused_linear",
        ),
        ({"liger_fused_linear_cross_entropy": True}, "loss_implementation", None),
        (
            {"plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"], "cut_cross_entropy": False},
            "loss_implementation",
            None,
        ),
        ({"chunked_cross_entropy": True}, "loss_implementation", "chunked"),
        ({"unfrozen_parameters": ["lm_head"]}, "peft", "freeze"),
        ({"unfrozen_parameters": ["lm_head"], "adapter": "lora"}, "peft", "lora"),
        ({"adapter": "llama-adapter"}, "peft", None),
        (
            {"lora_target_modules": "model.layers.[0-9]{1,2}.self_attn.q_proj"},
            "lora_target_modules",
            ("model.layers.[0-9]{1,2}.self_attn.q_proj",),
        ),
        ({"lora_target_parameters": ["mlp.experts.down_proj"]}, "lora_target_parameters", ("mlp.experts.down_proj",)),
        ({"peft_autocast_adapter_dtype": False}, "autocast_adapter_dtype", False),
        ({"quantize_moe_experts": True}, "quantize_moe_experts", True),
        ({"optimizer": "muon"}, "optimizer", "muon"),
        ({"optimizer": "optimi_adamw"}, "optimizer", "adamw"),
        ({"torch_compile": "auto"}, "compile", None),
        ({"batch_flattening": True}, "padding_free", True),
        ({"deepcompile": True}, "deepcompile", True),
        ({"sequence_parallel_degree": 4}, "context_parallel", 4),
        ({"expert_parallel_size": 8}, "expert_parallel", 8),
        ({"rl": "dpo", "rl_beta": 0.2}, "kl_coefficient", 0.2),
        ({"rl": "dpo", "dpo_loss_type": ["apo_zero"]}, "loss_type", "apo_zero"),
    ],
)
def test_keys_that_become_facts(keys: dict[str, object], fact: str, value: object) -> None:
    document = read(**keys)
    assert facts(document).get(f"training.{fact}") == value
    assert document.unread == ()
    assert document.skipped == ()


@pytest.mark.parametrize(
    ("keys", "quantization"),
    [
        ({"load_in_4bit": True, "bnb_config_kwargs": {"bnb_4bit_quant_type": "fp4"}}, "fp4"),
        ({"load_in_8bit": True}, "int8"),
        ({"gptq": True}, "gptq"),
        ({"model_quantization_config": "Mxfp4Config"}, "mxfp4"),
        ({"model_quantization_config": "Mxfp4Config", "model_quantization_config_kwargs": {"dequantize": True}}, None),
    ],
)
def test_quantisation(keys: dict[str, object], quantization: str | None) -> None:
    assert found(adapter="lora", **keys).get("model.quantization") == quantization


@pytest.mark.parametrize("keys", [{"activation_offloading": True}, {"gradient_checkpointing": "offload"}])
def test_offloading_beside_an_adapter_leaves_recomputation_to_the_release(keys: dict[str, object]) -> None:
    stated = found(**{"gradient_checkpointing": True, "adapter": "lora", **keys})
    assert "training.gradient_checkpointing" not in stated
    assert stated["training.activation_offloading"] is True


def test_a_resumed_run() -> None:
    assert found(resume_from_checkpoint="out/checkpoint-3")["run.resumes_checkpoint"] is True
    assert "run.resumes_checkpoint" not in found(resume_from_checkpoint=None)


def test_unread_keys_come_with_the_nearest_name() -> None:
    document = read(
        gradient_checkpoint=True,
        context_parapllel_size=2,
        wandb_projct="x",
        trl={"max_completion_lenght": 3},
        fsdp_config={"offload_param": True},
        gradient_checkpointing_kwargs={"use_reentrent": False},
        no_such_thing_at_all=1,
        another_odd_key=None,
    )
    assert dict(document.unread) == {
        "gradient_checkpoint": "gradient_checkpointing",
        "context_parapllel_size": "context_parallel_size",
        "wandb_projct": "wandb_project",
        "trl.max_completion_lenght": "trl.max_completion_length",
        "fsdp_config.offload_param": "fsdp_config.offload_params",
        "gradient_checkpointing_kwargs.use_reentrent": "gradient_checkpointing_kwargs.use_reentrant",
        "no_such_thing_at_all": None,
        "another_odd_key": None,
    }


def test_sections_without_a_schema_hold_anything() -> None:
    document = read(
        overrides_of_model_config={"output_router_logits": True},
        lr_scheduler_kwargs={"min_lr": 0},
        trl={"generation_kwargs": {"seed": {"deep": 1}}},
        accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}},
    )
    assert document.unread == ()


BAD = """base_model: llama-3-8b
datasets: []
micro_batch_size: two
sequence_len: [4096]
gradient_checkpointing: sometimes
gradient_checkpointing_kwargs:
  - use_reentrant: false
fsdp_config: [offload_params]
optimizer: adamw_trch
deepspeed: 3
plugins: {liger: true}
fsdp: {full_shard: true}
trl: {num_generations: many}
lora_r: -1
"""


def test_bad_values_name_file_line_key_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD, encoding="utf-8")
    (document,) = read_file(axolotl, str(path)).documents
    named = {
        (entry.source.key, LineFinder().with_line(entry.source).line): (entry.source.path, entry.hint)
        for entry in document.skipped
    }
    assert {place for place, _ in named.values()} == {str(path)}
    assert {place: hint for place, (_, hint) in named.items() if place[0] != "optimizer"} == {
        ("micro_batch_size", 3): "expected a whole number from 1 on",
        ("sequence_len", 4): "expected a whole number from 1 on",
        ("gradient_checkpointing", 5): "expected true or false",
        ("gradient_checkpointing_kwargs", 6): "expected a mapping of keys",
        ("fsdp_config", 8): "expected a mapping of keys",
        ("deepspeed", 10): "expected the path of a DeepSpeed configuration, or its content",
        ("plugins", 11): "expected a list of plugin classes",
        ("fsdp", 12): "expected a list of words such as full_shard and auto_wrap",
        ("trl.num_generations", 13): "expected a whole number from 1 on",
        ("lora_r", 14): "expected a whole number, not negative",
    }
    assert named["optimizer", 9][1] == "did you mean adamw_torch?"


@pytest.mark.parametrize(
    "key", sorted({name.split(".")[0] for name in axolotl.TABLE} | {"rl", "plugins", "fsdp", "bf16"})
)
@pytest.mark.parametrize("value", [[1, {"a": 2}], {"a": {"b": [1]}}, 10**30, -1, "", None, "${X}", [None]], ids=repr)
def test_a_value_of_any_type_is_read_or_named(key: str, value: object) -> None:
    document = read(**{key: value})
    assert {entry.source.key for entry in document.skipped} <= {key} | {f"{key}.{name}" for name in ("a", "a.b")}


def test_a_trainer_nobody_knows() -> None:
    (entry,) = read(rl="rlhf").skipped
    assert entry.source.key == "rl"
    assert str(entry.hint).startswith("expected dpo, ipo, kto")


def test_a_model_that_is_no_name() -> None:
    (entry,) = read(base_model=["llama"]).skipped
    assert entry.source.key == "base_model"
    assert entry.hint == "expected the path or hub id of a model"


def test_a_deepspeed_configuration_written_inside() -> None:
    document, inner = axolotl.read({**MINIMAL, "deepspeed": {"zero_optimization": {"stage": 2}}}, "a.yaml").documents
    assert document.references == (("model", "llama-3-8b", "base_model"),)
    assert facts(inner)["training.zero_stage"] == 2


@pytest.mark.parametrize(
    ("data", "ours"),
    [
        (MINIMAL, True),
        ({"base_model": "x", "rl": "dpo", "load_in_4bit": True}, True),
        ({"base_model": "x", "models": [], "merge_method": "ties"}, False),
        ({"model_name_or_path": "x", "learning_rate": 1, "output_dir": "o", "gradient_checkpointing": True}, False),
        ({"model_name_or_path": "x", "template": "llama3", "cutoff_len": 1, "stage": "sft"}, False),
    ],
)
def test_what_is_recognised(*, data: dict[str, object], ours: bool) -> None:
    assert axolotl.recognise(data) is ours


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.y*ml")), ids=lambda path: path.name)
def test_files_are_read_when_walked_into(file: Path) -> None:
    reading = read_configuration(str(file), named=False)
    assert reading is not None
    assert [document.reader for document in reading.documents] == ["axolotl"]


@pytest.mark.parametrize(("loop", "read"), [({}, None), ({"rl": "dpo"}, True), ({"rl": "kto"}, None)])
def test_a_loss_of_dpo_is_none_of_other_trainers(tmp_path: Path, loop: dict[str, str], read: bool | None) -> None:  # noqa: FBT001 (a value)
    path = tmp_path / "a.yml"
    stated = {"base_model": "x", "datasets": [], "sequence_len": 8, "dpo_use_liger_kernel": True, **loop}
    path.write_text(json.dumps(stated))
    (document,) = read_file(axolotl, str(path)).documents
    assert facts(document).get("training.use_liger_kernel") is read
    assert ("dpo_use_liger_kernel" in document.table) is bool(read)


def opened(**keys: object) -> dict[str, str | None]:
    return {str(entry.fact): entry.key for entry in read(**keys).unresolved}


@pytest.mark.parametrize(
    ("keys", "fact"),
    [
        ({"unsloth_cross_entropy_loss": True}, "training.loss_implementation"),
        ({"flash_attn_cross_entropy": True}, "training.loss_implementation"),
        ({"plugins": ["mine.plugins.Saves"]}, "training.loss_implementation"),
        ({"plugins": ["axolotl.integrations.kd.KDPlugin"]}, "training.loss_implementation"),
        ({"trainer_cls": "mine.Trainer"}, "training.loss_implementation"),
        ({"adapter": "llama-adapter"}, "training.peft"),
        ({"optimizer": "came_pytorch"}, "training.optimizer"),
        ({"rl": "ebft"}, "training.trainer"),
    ],
)
def test_what_no_reader_follows_is_open(keys: dict[str, object], fact: str) -> None:
    assert fact in opened(**keys)
    assert fact not in found(**keys)


@pytest.mark.parametrize("switch", ["unsloth_cross_entropy_loss", "flash_attn_cross_entropy", "tiled_mlp"])
def test_what_is_off_leaves_nothing_open(switch: str) -> None:
    document = read(**{switch: False})
    assert not document.unresolved
    assert not document.gaps


def test_weights_that_are_turned_back_are_not_quantised_and_kernels_of_the_hub_are_said() -> None:
    kind = {"model_quantization_config": "Mxfp4Config", "model_quantization_config_kwargs": {"dequantize": True}}
    document = read(**kind, use_kernels=True)
    assert facts(document)["model.quantization"] is None
    assert [(gap.source.key, gap.assumed) for gap in document.gaps] == [("use_kernels", True)]


def test_plugins_of_ones_own_are_an_assumption() -> None:
    mine, cut = "mine.plugins.Saves", "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
    assert [(gap.source.key, gap.assumed) for gap in read(plugins=[mine]).gaps] == [("plugins", True)]
    both = read(plugins=[cut, mine])
    assert facts(both)["training.loss_implementation"] == "fused_linear"
    assert [gap.source.key for gap in both.gaps] == ["plugins"]
    assert not read(plugins=[cut, "axolotl.integrations.liger.LigerPlugin"]).gaps


def test_keywords_of_the_model_are_read() -> None:
    eager = {"model_kwargs": {"attn_implementation": "eager"}}
    assert found(**eager)["model.attn_implementation"] == "eager"
    assert found(**eager, flash_attention=True)["model.attn_implementation"] == "flash_attention_2"
    assert found(**eager, attn_implementation="sdpa")["model.attn_implementation"] == "sdpa"
    assert found(overrides_of_model_kwargs=eager["model_kwargs"])["model.attn_implementation"] == "eager"


@pytest.mark.parametrize("section", ["model_kwargs", "model_config", "overrides_of_model_config"])
def test_keywords_of_the_model_that_nobody_knows_are_unread(section: str) -> None:
    assert {key for key, _ in read(**{section: {"bananas": 2}}).unread} == {f"{section}.bananas"}
    assert read(model_config={"rope_scaling": {"type": "linear", "factor": 2}}).unread == ()


@pytest.mark.parametrize(
    "section", ["model_kwargs", "overrides_of_model_kwargs", "model_config", "overrides_of_model_config"]
)
def test_fields_laid_over_config_json_count(section: str) -> None:
    document = read(**{section: {"output_router_logits": True, "num_hidden_layers": 2}})
    stated = {one.fact: one.value for one in document.statements}
    assert stated["model.output_router_logits"] is True
    assert "model.parameters" in {one.fact for one in document.unresolved}


def test_a_batch_decides_accumulation_only_where_the_schemas_1_is_taken_back() -> None:
    steps = "training.gradient_accumulation_steps"
    assert steps not in found(batch_size=64, micro_batch_size=2)
    assert found(batch_size=64, micro_batch_size=2, gradient_accumulation_steps=None)[steps] == 32
    assert found(batch_size=64, micro_batch_size=2, gradient_accumulation_steps=4)[steps] == 4


def test_lisa_trains_blocks() -> None:
    stated = found(lisa_n_layers=4, lisa_step_interval=20, lisa_layers_attribute="model.layers")
    assert (stated["training.peft"], stated["training.trained_layers"]) == ("freeze", 4)


@pytest.mark.parametrize(
    ("keys", "evaluates"),
    [
        ({"val_set_size": 0}, False),
        ({}, False),
        ({"test_datasets": []}, False),
        ({"val_set_size": 0.05}, True),
        ({"test_datasets": [{"path": "x"}]}, True),
    ],
)
def test_without_a_set_to_evaluate_it_does_not(keys: dict[str, Any], *, evaluates: bool) -> None:
    assert found(evals_per_epoch=4, **keys)["training.evaluates"] is evaluates
