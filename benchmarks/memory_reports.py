"""Public reports of memory in the terms of an estimate: one translation for each source, with what its own scripts say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping


class Translation(NamedTuple):
    """A report in the terms of an estimate."""

    facts: Mapping[str, Any]
    packages: Mapping[str, str] = {}
    measure: str = "device"
    """``allocated``, ``reserved`` or ``device``: what the report's number is."""
    devices: int = 1
    """Devices the report adds up."""
    doubt: str = ""
    """Why the report or its translation is not to be trusted."""


MODEL_TYPES = (
    ("qwen/qwen-", "qwen"), ("qwen/qwen", "qwen2"), ("meta-llama", "llama"), ("01-ai/yi", "llama"), ("codellama", "llama"),
)  # fmt: skip


def model_facts(model: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a model's dimensions."""
    names = {
        "hidden_size": "hidden_size", "num_hidden_layers": "num_hidden_layers", "num_attention_heads": "num_attention_heads",
        "num_key_value_heads": "num_key_value_heads", "intermediate_size": "intermediate_size", "vocab_size": "vocab_size",
        "tie_word_embeddings": "tie_word_embeddings", "head_dim": "head_dim", "num_params": "parameters",
    }  # fmt: skip
    facts = {f"model.{fact}": model[name] for name, fact in names.items() if model.get(name) is not None}
    name = str(model.get("hf_id", "")).lower()
    for prefix, model_type in MODEL_TYPES:
        if name.startswith(prefix):
            facts["model.model_type"] = model_type
            break
    return facts


def hardware_facts(hardware: Mapping[str, Any]) -> dict[str, Any]:
    """Translate devices; what a job can use is the whole of what nvidia-smi calls its memory."""
    facts: dict[str, Any] = {}
    if isinstance(hardware.get("mem_gib"), int):
        facts["hardware.memory_bytes"] = hardware["mem_gib"] * GIB
    if isinstance(hardware.get("gpus_total"), int):
        facts["hardware.world_size"] = hardware["gpus_total"]
    if "H100" in str(hardware.get("gpu")):
        facts["hardware.compute_capability"] = 9.0
    return facts


def translate(case: Mapping[str, Any]) -> Translation | str:
    """Translate a report, or say why it cannot be."""
    name = str(case["framework"].get("name", ""))
    for prefix, translator in TRANSLATORS.items():
        if name.startswith(prefix):
            return translator(case)
    return f"no translation for {name!r}"


def _base(case: Mapping[str, Any]) -> dict[str, Any]:
    return {**model_facts(case["model"]), **hardware_facts(case.get("hardware") or {})}


def of_qwen(case: Mapping[str, Any]) -> Translation:
    """Translate Qwen's README: finetune.py and the scripts beside it (QwenLM/Qwen at 2df8e8a, finetune/)."""
    config, facts = case["config"], _base(case)
    method = config["method"]
    facts |= {
        "model.attn_implementation": "flash_attention_2",
        "training.micro_batch_size": config["batch"],
        "training.sequence_length": config["seq_len"],
        "training.gradient_accumulation_steps": config["grad_accum"],
        "training.gradient_checkpointing": True,  # in every script
        "training.optimizer": "adamw",
        "training.optimizer_by_deepspeed": True,  # the section `optimizer` of both files
        "training.mixed_precision": "bf16",
        "training.framework": "hf_trainer",
    }
    if method != "Full":
        facts |= {
            "training.peft": "lora",
            "training.lora_rank": 64,
            "training.lora_dropout": 0.05,
            "training.lora_target_modules": ("c_attn", "c_proj", "w1", "w2"),
            "model.load_dtype": "bfloat16",
        }
    if method == "LoRA(emb)":
        facts["training.lora_modules_to_save"] = ("wte", "lm_head")
    if method == "Q-LoRA":
        facts |= {
            "model.quantization": "gptq",
            "model.load_dtype": "float16",
            "training.mixed_precision": "fp16",
            "training.sharding": "zero",
            "training.zero_stage": 2,
            "training.reduce_bucket_size": 200_000_000,
            "training.allgather_bucket_size": 200_000_000,
            "training.overlap_comm": True,
        }
    if method in {"Full", "LoRA+ZeRO3"}:
        hidden = facts["model.hidden_size"]
        facts |= {
            "training.sharding": "zero",
            "training.zero_stage": 3,
            "training.reduce_bucket_size": hidden**2,
            "training.prefetch_bucket_size": int(0.9 * hidden**2),
            "training.max_live_parameters": 10**9,
        }
    devices = case["hardware"]["gpus_total"]
    # The rows of 7B and 14B are in the README since 2023-10-11 (peft 0.5.0 then), those of 1.8B and 72B since 2023-11-30.
    peft = "0.5.0" if facts["model.hidden_size"] in {4096, 5120} else "0.6.2"
    return Translation(facts, {"transformers": "4.32.0", "torch": "2.0.1", "peft": peft}, "device", devices)


def of_peft(case: Mapping[str, Any]) -> Translation | str:
    """Translate peft's method comparison: run.py, data.py, default_training_params.json of method_comparison/MetaMathQA.

    768 tokens are an upper limit: data.py leaves out texts above 1304 characters, so the longest batch is shorter.
    """
    config, facts = case["config"], _base(case)
    method = config["method"]
    targets = tuple(part.strip(" '\"") for part in str(config["target_modules"]).strip("[]").split(",") if part.strip())
    facts |= {
        "model.attn_implementation": "sdpa",
        "model.load_dtype": "bfloat16",
        "training.param_dtype": "bfloat16",
        "training.mixed_precision": "no",
        "training.compute_dtype": "bfloat16",
        "training.micro_batch_size": config["batch"],
        "training.sequence_length": config["max_seq_len"],
        "training.gradient_checkpointing": config["gradient_checkpointing"],
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "foreach",
        "run.attention_mask": "padding",
        "run.outputs_kept": True,  # `outputs` is a local variable of the loop
    }
    if method == "full-finetuning":
        facts["training.peft"] = None
    elif method == "lora":
        facts |= {
            "training.peft": "dora" if "dora" in case["id"] else "lora",
            "training.lora_rank": int(config["r"]),
            "training.lora_target_modules": targets,
            "model.trainable_parameters": config["trainable_params"],
        }
    else:
        names = {
            "ia3": "ia3", "oft": "oft", "boft": "boft", "vera": "vera", "adalora": "adalora", "prefixtuning": "prefix_tuning",
            "prompt_tuning": "prompt_tuning", "ln_tuning": "freeze", "trainable_tokens": "freeze",
        }  # fmt: skip
        if method not in names:
            return f"{method} is no method of the vocabulary"
        facts |= {
            "training.peft": names[method],
            "training.lora_target_modules": () if targets == ("None",) else targets,
            "model.trainable_parameters": config["trainable_params"],
        }
        if method == "adalora":
            facts["training.lora_rank"] = 64  # trains at twice the final rank: init_r in adapter_config.json
    return Translation(facts, _packages(case), "reserved", doubt="the longest batch has fewer tokens than the limit")


def of_torchtune(case: Mapping[str, Any]) -> Translation | str:
    """Translate torchtune's README: the table of recipes, and the ladder of settings for the 3B model."""
    config, facts, name = case["config"], _base(case), case["id"]
    facts |= {
        "model.attn_implementation": "sdpa",
        "run.attention_mask": "none",
        "training.framework": "torchtune",
        "training.param_dtype": "bfloat16",
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "fused",
        "training.micro_batch_size": config["batch"],
        "training.sequence_length": config["seq_len"],
        "training.compile": bool(config.get("compile")),
        "training.autocast_adapter_dtype": False,
    }
    lora = {
        "training.peft": "lora",
        "training.lora_rank": 8,
        "training.lora_target_modules": ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    }
    if name.startswith("torchtune-3b"):
        if "unpacked" in name:
            return "samples are not packed: their lengths are not stated"
        ladder = (
            "packed",
            "compile",
            "chunked-ce",
            "activation-checkpointing",
            "optimizer-in-bwd",
            "activation-offloading",
            "adamw8bit",
        )
        step = name.removeprefix("torchtune-3b-").removeprefix("p-")
        at = ladder.index(step) if step in ladder else len(ladder)
        facts |= {
            "training.compile": at >= 1,
            "training.loss_implementation": "chunked" if at >= 2 else "cross_entropy",
            "training.gradient_checkpointing": at >= 3,
            "training.optimizer_in_backward": at >= 4 and at < len(ladder),
            "training.activation_offloading": at >= 5,
            "training.optimizer": "adamw_8bit" if at == len(ladder) - 1 else "adamw",
        }
        if step in {"lora", "qlora"}:
            facts |= lora
        if step == "qlora":
            facts["model.quantization"] = "nf4"
        return Translation(facts, {}, "allocated")
    if name.endswith("a6000") or "offload" in config["method"]:
        return "which settings of the recipe were changed is not stated"
    facts |= {"training.gradient_checkpointing": True, "training.loss_implementation": "chunked"}
    if "lora" in config["method"]:
        facts |= lora
    if config["method"] == "qlora":
        facts["model.quantization"] = "nf4"
    if "full" in config["method"]:
        facts |= {"training.optimizer": "paged_adamw_8bit", "training.optimizer_in_backward": True}
    if case["hardware"]["gpus_total"] > 1:
        facts |= {"training.sharding": "fsdp", "training.fsdp_version": 2}
    return Translation(facts, {}, "allocated", doubt="settings are those of the recipe as shipped")


def of_torchtitan(case: Mapping[str, Any]) -> Translation:
    """Translate torchtitan's benchmark at 9dec370: FSDP2, float32 shards, compiled blocks; the number is max_reserved_gib."""
    config, facts = case["config"], _base(case)
    facts |= {
        "model.attn_implementation": "sdpa",
        "run.attention_mask": "none",
        "training.framework": "torchtitan",
        "allocator.expandable_segments": True,  # run_llama_train.sh of that commit
        "training.sharding": "fsdp",
        "training.fsdp_version": 2,
        "training.param_dtype": "float32",
        "training.mixed_precision": "bf16",
        "training.compute_dtype": "bfloat16",
        "training.reduce_dtype": "float32",
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "fused",
        "training.micro_batch_size": config["local_batch"],
        "training.sequence_length": config["seq_len"],
        "training.gradient_checkpointing": True,
        "training.checkpointing_policy": "full" if config["ac"] == "full" else "every_other_product",
        "training.compile": bool(config.get("compile")),
        "training.context_parallel": config.get("cp", 1),
        "training.tensor_parallel": config.get("tp", 1),
    }
    return Translation(facts, {}, "reserved")


def of_peft_docs(case: Mapping[str, Any]) -> Translation:
    """Translate peft's guides on DeepSpeed and FSDP: LoRA and QLoRA of Llama-2-70B with trl."""
    config, facts = case["config"], _base(case)
    quantised = "qlora" in config["method"]
    facts |= {
        "model.attn_implementation": "flash_attention_2",
        "model.load_dtype": "bfloat16",
        "training.peft": "qlora" if quantised else "lora",
        "training.lora_rank": 8,
        "training.lora_target_modules": ("all-linear",),
        "training.lora_dropout": 0.1,
        "training.mixed_precision": "bf16",
        "training.param_dtype": "bfloat16",
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": config["per_device_batch"],
        "training.sequence_length": config["seq_len"],
        "training.gradient_accumulation_steps": 4,
        "training.optimizer": "adamw",
    }
    if quantised:
        facts["model.quantization"] = "nf4"
    if config.get("zero_stage") == 3:
        facts |= {"training.sharding": "zero", "training.zero_stage": 3}
        facts["training.reduce_bucket_size"] = facts["model.hidden_size"] ** 2
    else:
        facts |= {
            "training.sharding": "fsdp",
            "training.fsdp_version": 1,
            "training.fsdp_sharding_strategy": "full_shard",
        }
        if "offload" in config["fsdp"]:
            facts["training.fsdp_offload_params"] = True
    return Translation(facts, {"transformers": "4.38.0"}, "device")


def of_unsloth(case: Mapping[str, Any]) -> Translation | str:
    """Translate Unsloth's README: the longest context that QLoRA with transformers and FA2 reaches; there the device is full."""
    config, facts = case["config"], _base(case)
    tokens = case["outcome"]["hf_fa2_max_tokens"]
    if not isinstance(tokens, int):
        return "out of memory at a length that is not stated"
    facts |= {
        "model.attn_implementation": "flash_attention_2",
        "model.quantization": "nf4",
        "model.load_dtype": "bfloat16",
        "training.peft": "qlora",
        "training.lora_rank": 32,
        "training.lora_target_modules": ("all-linear",),
        "training.mixed_precision": "bf16",
        "training.gradient_checkpointing": True,
        "training.micro_batch_size": config["batch"],
        "training.sequence_length": tokens,
    }
    return Translation(facts, {"transformers": "4.48.0"}, "device", doubt="optimizer and settings are not stated")


def of_thread(case: Mapping[str, Any]) -> Translation | str:
    """Translate QwenLM/Qwen3#300: full fine-tuning under ZeRO-3, nothing more said."""
    config, facts = case["config"], _base(case)
    length = config.get("seq_len", config.get("seq_len_max"))
    if length == "2k-4k":
        length = 4096
    if not isinstance(length, int):
        return "the sequence length is not stated"
    facts |= {
        "training.sharding": "zero",
        "training.zero_stage": 3,
        "training.param_dtype": "bfloat16",
        "training.peft": None,
        "training.micro_batch_size": 1,
        "training.sequence_length": length,
        "training.optimizer": "adamw",
    }
    doubt = "checkpointing is not stated: taken as on"
    facts["training.gradient_checkpointing"] = True
    return Translation(facts, {"transformers": "4.39.3"}, "device", doubt=doubt)


TRANSLATORS = {
    "Qwen finetune.py": of_qwen,
    "peft method_comparison": of_peft,
    "torchtune": of_torchtune,
    "torchtitan": of_torchtitan,
    "trl+peft": of_peft_docs,
    "HF Transformers+FA2": of_unsloth,
    "HF Trainer + DeepSpeed": of_thread,
    "DeepSpeed Megatron": lambda _: "the model's dimensions are not stated",
    "vllm": lambda _: "the model is not stated",
}


def _packages(case: Mapping[str, Any]) -> dict[str, str]:
    names = ("transformers", "torch", "peft")
    return {name: str(case["framework"][name]) for name in names if name in case["framework"]}


def write_script(case: Mapping[str, Any]) -> str:
    """Write the launch command of a reinforcement-learning report: Hydra overrides for verl's forks, flags for OpenRLHF."""
    config = {name: value for name, value in case["config"].items() if not name.startswith("_")}
    model = case["model"]["hf_id"]
    if case["framework"]["name"] == "OpenRLHF":
        kept = {name: value for name, value in config.items() if name != "deepspeed"}
        flags = (f"--{name}" if value is True else f"--{name} {value}" for name, value in kept.items())
        return f"python3 -m openrlhf.cli.train_ppo_ray --pretrain {model} {' '.join(flags)}\n"
    hardware = case["hardware"]
    devices = {
        "trainer.nnodes": hardware["nodes"],
        "trainer.n_gpus_per_node": hardware["gpus_total"] // hardware["nodes"],
    }
    # by its project name Logic-RL's fork is told from verl
    fork = {"trainer.project_name": "GRPO_logic_KK"} if case["framework"]["name"].startswith("Logic-RL") else {}
    overrides = {"actor_rollout_ref.model.path": model, **fork, **devices, **config}
    words = (f"{name}={value}" for name, value in overrides.items() if name != "max_turns")
    return f"python3 -m verl.trainer.main_ppo {' '.join(words)}\n"
