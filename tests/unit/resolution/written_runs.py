"""Launch scripts and configurations of every program, written in every form that people write them in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODEL = "meta-llama/Llama-3.1-8B"


class Program(NamedTuple):
    """A program with statements as its users write them."""

    name: str
    packages: dict[str, str]
    command: str
    style: str
    """``flags`` or ``hydra``."""
    statements: tuple[tuple[str, str], ...]
    """Keys and values that decide about memory."""
    fixed: str = ""
    """Words that every command of it has."""


PROGRAMS = (
    Program(
        "verl",
        {"verl": "0.6.1", "vllm": "0.11.0", "torch": "2.8.0"},
        "python3 -m verl.trainer.main_ppo",
        "hydra",
        (
            ("algorithm.adv_estimator", "grpo"),
            ("data.train_batch_size", "512"),
            ("data.max_prompt_length", "1024"),
            ("data.max_response_length", "2048"),
            ("actor_rollout_ref.actor.strategy", "fsdp2"),
            ("actor_rollout_ref.model.enable_gradient_checkpointing", "False"),
            ("actor_rollout_ref.model.use_remove_padding", "True"),
            ("actor_rollout_ref.actor.ppo_mini_batch_size", "128"),
            ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "8"),
            ("actor_rollout_ref.actor.use_kl_loss", "True"),
            ("actor_rollout_ref.actor.entropy_coeff", "0.01"),
            ("actor_rollout_ref.actor.ulysses_sequence_parallel_size", "2"),
            ("actor_rollout_ref.actor.fsdp_config.param_offload", "True"),
            ("actor_rollout_ref.actor.fsdp_config.optimizer_offload", "True"),
            ("actor_rollout_ref.rollout.name", "sglang"),
            ("actor_rollout_ref.rollout.n", "8"),
            ("actor_rollout_ref.rollout.tensor_model_parallel_size", "4"),
            ("actor_rollout_ref.rollout.gpu_memory_utilization", "0.8"),
            ("actor_rollout_ref.rollout.enforce_eager", "True"),
        ),
        f"actor_rollout_ref.model.path={MODEL}",
    ),
    Program(
        "verl-dynamic",
        {"verl": "0.5.0", "vllm": "0.8.5"},
        "python3 -m verl.trainer.main_ppo",
        "hydra",
        (
            ("algorithm.adv_estimator", "gae"),
            ("data.train_batch_size", "256"),
            ("actor_rollout_ref.actor.use_dynamic_bsz", "True"),
            ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "24000"),
            ("actor_rollout_ref.actor.ppo_mini_batch_size", "64"),
            ("critic.model.enable_gradient_checkpointing", "False"),
            ("critic.ppo_max_token_len_per_gpu", "98304"),
            ("critic.model.fsdp_config.param_offload", "True"),
            ("actor_rollout_ref.ref.fsdp_config.param_offload", "True"),
            ("actor_rollout_ref.model.lora_rank", "32"),
            ("actor_rollout_ref.rollout.n", "2"),
        ),
        f"actor_rollout_ref.model.path={MODEL} critic.model.path={MODEL}",
    ),
    Program(
        "verl-sft",
        {"verl": "0.4.0"},
        "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer",
        "hydra",
        (
            ("data.micro_batch_size_per_gpu", "8"),
            ("data.max_length", "4096"),
            ("data.train_batch_size", "128"),
            ("model.enable_gradient_checkpointing", "True"),
            ("model.lora_rank", "16"),
            ("model.fsdp_config.model_dtype", "bf16"),
            ("model.strategy", "fsdp2"),
            ("ulysses_sequence_parallel_size", "2"),
            ("use_remove_padding", "true"),
        ),
        f"model.partial_pretrain={MODEL}",
    ),
    Program(
        "easy-r1",
        {"verl": "0.3.2"},
        "python3 -m verl.trainer.main",
        "hydra",
        (
            ("algorithm.adv_estimator", "gae"),
            ("worker.actor.model.enable_gradient_checkpointing", "false"),
            ("worker.actor.micro_batch_size_per_device_for_update", "4"),
            ("worker.actor.fsdp.enable_cpu_offload", "true"),
            ("worker.rollout.n", "8"),
            ("worker.rollout.gpu_memory_utilization", "0.7"),
            ("worker.rollout.tensor_parallel_size", "4"),
            ("data.max_response_length", "8192"),
        ),
        f"worker.actor.model.model_path={MODEL} data.max_prompt_length=1024",
    ),
    Program(
        "openrlhf-ppo",
        {"openrlhf": "0.8.5", "deepspeed": "0.17.2", "vllm": "0.9.1"},
        "python3 -m openrlhf.cli.train_ppo_ray",
        "flags",
        (
            ("advantage_estimator", "group_norm"),
            ("init_kl_coef", "0"),
            ("zero_stage", "3"),
            ("micro_train_batch_size", "2"),
            ("train_batch_size", "64"),
            ("micro_rollout_batch_size", "2"),
            ("rollout_batch_size", "512"),
            ("n_samples_per_prompt", "8"),
            ("prompt_max_len", "2048"),
            ("generate_max_len", "4096"),
            ("vllm_gpu_memory_utilization", "0.6"),
            ("vllm_tensor_parallel_size", "2"),
            ("vllm_num_engines", "4"),
            ("actor_num_gpus_per_node", "4"),
            ("ref_num_gpus_per_node", "4"),
            ("param_dtype", "fp16"),
            ("gradient_checkpointing", ""),
            ("adam_offload", ""),
            ("colocate_all_models", ""),
            ("vllm_enable_sleep", ""),
            ("enforce_eager", ""),
        ),
        f"--pretrain {MODEL}",
    ),
    Program(
        "openrlhf-sft",
        {"openrlhf": "0.8.5", "deepspeed": "0.17.2"},
        "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft",
        "flags",
        (
            ("max_len", "8192"),
            ("micro_train_batch_size", "2"),
            ("train_batch_size", "256"),
            ("zero_stage", "3"),
            ("ring_attn_size", "2"),
            ("lora_rank", "64"),
            ("packing_samples", ""),
            ("gradient_checkpointing", ""),
            ("adam_offload", ""),
            ("overlap_comm", ""),
        ),
        f"--pretrain {MODEL}",
    ),
    Program(
        "hf-trainer",
        {"transformers": "4.51.3", "accelerate": "1.6.0", "torch": "2.6.0"},
        "torchrun --nproc_per_node 8 finetune.py",
        "flags",
        (
            ("gradient_accumulation_steps", "4"),
            ("gradient_checkpointing", "True"),
            ("bf16", "True"),
            ("optim", "adamw_8bit"),
            ("fsdp", "full_shard"),
            ("per_device_eval_batch_size", "1"),
            ("torch_compile", "True"),
            ("use_liger_kernel", "True"),
            ("full_determinism", "True"),
            ("eval_accumulation_steps", "4"),
        ),
        f"--model_name_or_path {MODEL} --per_device_train_batch_size 4 --max_seq_length 2048",
    ),
    Program(
        "trl-sft",
        {"trl": "0.17.0", "transformers": "4.51.3", "accelerate": "1.6.0", "peft": "0.15.2"},
        "trl sft",
        "flags",
        (
            ("per_device_train_batch_size", "1"),
            ("gradient_accumulation_steps", "8"),
            ("gradient_checkpointing", "true"),
            ("max_length", "4096"),
            ("packing", "true"),
            ("bf16", "true"),
            ("use_peft", "true"),
            ("lora_r", "64"),
            ("activation_offloading", "true"),
            ("optim", "adafactor"),
            ("torch_dtype", "bfloat16"),
            ("attn_implementation", "flash_attention_2"),
            ("use_liger_kernel", "true"),
        ),
        f"--model_name_or_path {MODEL}",
    ),
    Program(
        "trl-grpo",
        {"trl": "0.18.0", "transformers": "4.52.4", "accelerate": "1.7.0", "vllm": "0.8.5"},
        "accelerate launch --num_processes 8 grpo.py",
        "flags",
        (
            ("gradient_accumulation_steps", "8"),
            ("gradient_checkpointing", "true"),
            ("max_completion_length", "4096"),
            ("max_prompt_length", "1024"),
            ("num_generations", "16"),
            ("beta", "0.0"),
            ("use_vllm", "true"),
            ("vllm_mode", "colocate"),
            ("vllm_gpu_memory_utilization", "0.5"),
            ("bf16", "true"),
        ),
        f"--model_name_or_path {MODEL} --per_device_train_batch_size 4",
    ),
    Program(
        "llamafactory",
        {"llamafactory": "0.9.3", "transformers": "4.51.3", "accelerate": "1.6.0", "peft": "0.15.2"},
        "llamafactory-cli train",
        "flags",
        (
            ("finetuning_type", "lora"),
            ("lora_rank", "64"),
            ("lora_target", "q_proj,v_proj"),
            ("cutoff_len", "8192"),
            ("packing", "true"),
            ("per_device_train_batch_size", "1"),
            ("gradient_accumulation_steps", "8"),
            ("disable_gradient_checkpointing", "true"),
            ("bf16", "true"),
            ("optim", "adamw_8bit"),
            ("enable_liger_kernel", "true"),
            ("quantization_bit", "4"),
            ("flash_attn", "fa2"),
        ),
        f"--stage sft --do_train true --model_name_or_path {MODEL}",
    ),
    Program(
        "ms-swift",
        {"ms-swift": "3.4.0", "transformers": "4.51.3", "accelerate": "1.6.0", "peft": "0.15.2"},
        "swift sft",
        "flags",
        (
            ("train_type", "full"),
            ("per_device_train_batch_size", "2"),
            ("gradient_accumulation_steps", "4"),
            ("gradient_checkpointing", "false"),
            ("max_length", "4096"),
            ("packing", "true"),
            ("torch_dtype", "float16"),
            ("lora_rank", "64"),
            ("use_liger_kernel", "true"),
            ("attn_impl", "flash_attn"),
            ("optim", "adafactor"),
        ),
        f"--model {MODEL}",
    ),
    Program(
        "open-instruct",
        {"open-instruct": "0.1.0", "transformers": "4.51.3", "deepspeed": "0.16.7"},
        "accelerate launch --num_processes 8 --use_deepspeed open_instruct/finetune.py",
        "flags",
        (
            ("gradient_accumulation_steps", "8"),
            ("max_seq_length", "8192"),
            ("gradient_checkpointing", ""),
            ("packing", ""),
            ("use_lora", "true"),
            ("lora_rank", "64"),
            ("use_flash_attn", "true"),
            ("use_liger_kernel", ""),
            ("use_8bit_optimizer", ""),
        ),
        f"--exp_name sft --model_name_or_path {MODEL} --per_device_train_batch_size 1",
    ),
    Program(
        "deepspeed-chat",
        {"deepspeed": "0.16.4"},
        "deepspeed --num_gpus 8 main.py",
        "flags",
        (
            ("actor_zero_stage", "3"),
            ("critic_zero_stage", "3"),
            ("per_device_training_batch_size", "4"),
            ("max_prompt_seq_len", "512"),
            ("max_answer_seq_len", "512"),
            ("gradient_accumulation_steps", "2"),
            ("dtype", "bf16"),
            ("offload", ""),
            ("actor_gradient_checkpointing", ""),
            ("critic_gradient_checkpointing", ""),
            ("actor_lora_dim", "128"),
            ("offload_reference_model", ""),
        ),
        f"--actor_model_name_or_path {MODEL} --critic_model_name_or_path {MODEL} --data_path x",
    ),
    Program(
        "megatron",
        {"megatron-core": "0.12.0"},
        "torchrun --nproc_per_node 8 pretrain_gpt.py",
        "flags",
        (
            ("tensor-model-parallel-size", "4"),
            ("pipeline-model-parallel-size", "2"),
            ("context-parallel-size", "2"),
            ("sequence-parallel", ""),
            ("recompute-granularity", "full"),
            ("bf16", ""),
            ("use-distributed-optimizer", ""),
            ("swiglu", ""),
            ("ffn-hidden-size", "14336"),
            ("num-query-groups", "8"),
        ),
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1"
        " --global-batch-size 64",
    ),
    Program(
        "torchtitan",
        {"torchtitan": "0.2.0", "torch": "2.9.0"},
        "torchrun --nproc_per_node 8 -m torchtitan.train",
        "flags",
        (
            ("training.local_batch_size", "4"),
            ("training.seq_len", "8192"),
            ("parallelism.tensor_parallel_degree", "2"),
            ("parallelism.pipeline_parallel_degree", "2"),
            ("parallelism.data_parallel_replicate_degree", "2"),
            ("activation_checkpoint.mode", "none"),
            ("optimizer.name", "Adam"),
            ("training.mixed_precision_reduce", "bfloat16"),
            ("compile.enable", ""),
        ),
        "--model.name llama3 --model.flavor 8B",
    ),
)


def word(program: Program, key: str, value: str) -> str:
    """Write one statement as the program takes it."""
    if program.style == "hydra":
        return f"{key}={value}"
    return f"--{key} {value}".strip()


def _lines(words: list[str]) -> str:
    return " \\\n    ".join(words)


def write_forms(program: Program) -> Iterator[tuple[str, list[str], str]]:
    """Yield a form's name, its statements as the form writes them, and a template with a place for them.

    ``@WORDS@`` stands where the statements stand, ``@END@`` at the end of the command and ``@BEFORE@`` above it.
    """
    words = [word(program, key, value) for key, value in program.statements]
    head = f"{program.command} {program.fixed}".strip()
    yield "plain", words, f"#!/bin/bash\nset -x\n@BEFORE@\n{head} \\\n    @WORDS@ @END@\n"
    yield "array", words, f'#!/bin/bash\nARGS=(\n    @WORDS@\n)\n@BEFORE@\n{head} "${{ARGS[@]}}" @END@\n'
    yield "string", words, f'#!/bin/bash\nARGS="@WORDS@"\n@BEFORE@\n{head} $ARGS @END@\n'
    yield "eval", words, f'#!/bin/bash\n@BEFORE@\ncmd="{head} @WORDS@ @END@"\neval $cmd\n'
    yield "function", words, f'#!/bin/bash\nrun() {{\n    {head} "$@" @END@\n}}\n@BEFORE@\nrun @WORDS@\n'
    yield "loop", words, f"#!/bin/bash\nfor seed in 1; do\n@BEFORE@\n{head} @WORDS@ @END@\ndone\n"
    settings = "\n".join(f"V{n}={value}" for n, (_, value) in enumerate(program.statements) if value)
    named = [word(program, key, f"$V{n}" if value else "") for n, (key, value) in enumerate(program.statements)]
    yield "variables", named, f"#!/bin/bash\n{settings}\n@BEFORE@\n{head} @WORDS@ @END@\n"


def write_script(template: str, words: list[str], *, before: str = "", end: str = "") -> str:
    """Fill a form's template."""
    joined = "\n    ".join(words) if template.find("(\n    @WORDS@") >= 0 else _lines(words)
    return template.replace("@WORDS@", joined).replace("@BEFORE@", before).replace("@END@", end)


def _hide_in_variable(_program: Program, _key: str, _value: str) -> dict[str, str]:
    return {"end": "$HIDDEN_ARGS"}


def _hide_in_array(_program: Program, _key: str, _value: str) -> dict[str, str]:
    return {"end": '"${HIDDEN[@]}"'}


def _hide_under_condition(program: Program, key: str, value: str) -> dict[str, str]:
    probe = "$(python3 -c 'import torch_npu' && echo npu || echo gpu)"
    written = word(program, key, value)
    return {
        "before": f'EXTRA=()\nDEVICE=${{DEVICE:-{probe}}}\nif [ "$DEVICE" = gpu ]; then\n    EXTRA+=({written})\nfi',
        "end": '"${EXTRA[@]}"',
    }


def _hide_in_text_under_condition(program: Program, key: str, value: str) -> dict[str, str]:
    return {"before": f'EXTRA=""\n[ -f /etc/hidden ] && EXTRA="{word(program, key, value)}"', "end": "$EXTRA"}


def _hide_in_sourced_file(_program: Program, _key: str, _value: str) -> dict[str, str]:
    return {"before": "source ./hidden.sh", "end": '"${HIDDEN[@]}"'}


def _hide_in_extended_array(_program: Program, _key: str, _value: str) -> dict[str, str]:
    return {"before": "EXTRA=()\nsource ./hidden.sh", "end": '"${EXTRA[@]}"'}


def _hide_in_output(_program: Program, _key: str, _value: str) -> dict[str, str]:
    return {"end": "$(python3 hidden.py)"}


def _hide_in_loop(_program: Program, _key: str, _value: str) -> dict[str, str]:
    return {"before": 'EXTRA=()\nfor one in $HIDDEN; do EXTRA+=("$one"); done', "end": '"${EXTRA[@]}"'}


def _hide_in_unknown_option(program: Program, key: str, value: str) -> dict[str, str]:
    if program.style == "hydra":
        return {"end": f"+hidden.{key.rpartition('.')[2]}={value}"}
    return {"end": f"--hidden_option {value}".strip()}


def _hide_in_option_of_options(program: Program, key: str, value: str) -> dict[str, str]:
    if program.style == "hydra":
        return {"end": "--config-name hidden"}
    return {"end": f"--hidden_args '{key}={value}'"}


def _hide_behind(before: str, end: str) -> Callable[[Program, str, str], dict[str, str]]:
    """Return what hides a word by shell text that holds it as ``WORD``."""

    def hide(program: Program, key: str, value: str) -> dict[str, str]:
        written = word(program, key, value)
        return {"before": before.replace("WORD", written), "end": end.replace("WORD", written)}

    return hide


_ARRAY, _NAMED = '"${EXTRA[@]}"', "while [ $# -gt 0 ]; do case $1 in --x) EXTRA+=(WORD);; esac; shift; done"
_FROM_OUTSIDE = {
    "set from outside": _hide_behind("EXTRA=()\n[[ -n $GIVEN ]] && EXTRA+=(WORD)", _ARRAY),
    "set from outside, in text": _hide_behind('EXTRA=\nif [ -n "$GIVEN" ]; then EXTRA="WORD"; fi', "$EXTRA"),
    "not set from outside": _hide_behind('EXTRA=(WORD)\nif [ -n "$GIVEN" ]; then EXTRA=(); fi', _ARRAY),
    "alternative": _hide_behind("", "${GIVEN:+WORD}"),
    "empty default": _hide_behind("", "${EXTRA:-}"),
    "output of a condition": _hide_behind("", '$(test -n "$GIVEN" && echo WORD)'),
    "eval": _hide_behind('EXTRA=()\neval "$HOOK"', _ARRAY),
    "named arguments": _hide_behind(f"EXTRA=()\n{_NAMED}", _ARRAY),
    "getopts": _hide_behind("EXTRA=()\nwhile getopts x o; do case $o in x) EXTRA+=(WORD);; esac; done", _ARRAY),
    "arguments": _hide_behind('EXTRA=()\nfor one in "$@"; do EXTRA+=("$one"); done', _ARRAY),
}  # fmt: skip
HIDES = {
    **_FROM_OUTSIDE,
    "variable": _hide_in_variable,
    "array": _hide_in_array,
    "condition": _hide_under_condition,
    "text under a condition": _hide_in_text_under_condition,
    "sourced file": _hide_in_sourced_file,
    "extended by a sourced file": _hide_in_extended_array,
    "output": _hide_in_output,
    "loop": _hide_in_loop,
    "unknown option": _hide_in_unknown_option,
    "option of options": _hide_in_option_of_options,
}
"""How a statement is kept from the reader."""


class Configuration(NamedTuple):
    """A configuration file of one program."""

    reader: str
    packages: dict[str, str]
    data: dict[str, Any]


def write_configurations() -> Iterator[tuple[str, Configuration]]:
    """Yield configurations by name: of every program with files, nine selections of what one may state."""
    for name, (reader, packages, fixed, statements) in _FILES.items():
        for n in range(9):
            chosen = [one for place, one in enumerate(statements) if n == 0 or (place * 7 + n) % 9 > 2]
            data: dict[str, Any] = {}
            for key, value in [*fixed, *chosen]:
                _put(data, key, value)
            yield f"{name}-{n}", Configuration(reader, packages, data)


def _put(data: dict[str, Any], key: str, value: object) -> None:
    section = data
    *outer, last = key.split("|")
    for part in outer:
        section = section.setdefault(part, {})
    section[last] = value


def leaves(data: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)


def _flat(program: str) -> tuple[tuple[str, Any], ...]:
    found = next(one for one in PROGRAMS if one.name == program)
    return tuple((key, _typed(value)) for key, value in found.statements)


def _typed(value: str) -> object:
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value


_HF = {"transformers": "4.51.3", "accelerate": "1.6.0", "torch": "2.6.0", "deepspeed": "0.16.4"}
_FILES: dict[str, tuple[str, dict[str, str], tuple[tuple[str, Any], ...], tuple[tuple[str, Any], ...]]] = {
    "hf-trainer": (
        "hf_trainer",
        _HF,
        (
            ("model_name_or_path", MODEL),
            ("output_dir", "out"),
            ("per_device_train_batch_size", 2),
            ("learning_rate", 1e-5),
        ),
        _flat("hf-trainer"),
    ),
    "trl-sft": (
        "trl",
        {**_HF, "trl": "0.17.0", "peft": "0.15.2"},
        (
            ("model_name_or_path", MODEL),
            ("output_dir", "out"),
            ("dataset_text_field", "text"),
            ("completion_only_loss", True),
        ),
        _flat("trl-sft"),
    ),
    "trl-grpo": (
        "trl",
        {**_HF, "trl": "0.18.0", "vllm": "0.8.5"},
        (("model_name_or_path", MODEL), ("per_device_train_batch_size", 4), ("scale_rewards", True), ("epsilon", 0.2)),
        _flat("trl-grpo"),
    ),
    "llamafactory": (
        "llamafactory",
        {**_HF, "llamafactory": "0.9.3", "peft": "0.15.2"},
        (("stage", "sft"), ("do_train", True), ("model_name_or_path", MODEL), ("template", "llama3"), ("dataset", "x")),
        _flat("llamafactory"),
    ),
    "ms-swift": (
        "ms_swift",
        {**_HF, "ms-swift": "3.4.0", "peft": "0.15.2"},
        (("model", MODEL), ("tuner_backend", "peft"), ("model_type", "llama")),
        _flat("ms-swift"),
    ),
    "axolotl": (
        "axolotl",
        {**_HF, "axolotl": "0.9.2", "peft": "0.15.2"},
        (("base_model", MODEL), ("datasets", []), ("num_epochs", 1)),
        (
            ("sequence_len", 8192),
            ("sample_packing", True),
            ("micro_batch_size", 1),
            ("gradient_accumulation_steps", 8),
            ("gradient_checkpointing", True),
            ("adapter", "lora"),
            ("lora_r", 64),
            ("lora_dropout", 0.05),
            ("optimizer", "adamw_bnb_8bit"),
            ("bf16", True),
            ("load_in_8bit", True),
            ("flash_attention", True),
            ("eval_batch_size", 1),
            ("fsdp_version", 2),
            ("fsdp_config|reshard_after_forward", False),
            ("fsdp_config|offload_params", True),
        ),
    ),
    "torchtune": (
        "torchtune",
        {"torchtune": "0.6.1", "torch": "2.7.0"},
        (("model|_component_", "torchtune.models.llama3.lora_llama3_8b"), ("tokenizer|path", "x")),
        (
            ("batch_size", 2),
            ("tokenizer|max_seq_len", 4096),
            ("gradient_accumulation_steps", 8),
            ("enable_activation_checkpointing", True),
            ("enable_activation_offloading", True),
            ("dtype", "bf16"),
            ("compile", True),
            ("fsdp_cpu_offload", True),
            ("fsdp_reshard_after_forward", False),
            ("model|lora_rank", 64),
            ("optimizer|fused", True),
        ),
    ),
    "open-instruct": (
        "open_instruct",
        {**_HF, "open-instruct": "0.1.0"},
        (
            ("model_name_or_path", MODEL),
            ("exp_name", "x"),
            ("per_device_train_batch_size", 1),
            ("dataset_mixer_list", ["x"]),
        ),
        _flat("open-instruct"),
    ),
    "verl": (
        "verl",
        {"verl": "0.6.1", "vllm": "0.11.0"},
        (("actor_rollout_ref|model|path", MODEL),),
        tuple((key.replace(".", "|"), _typed(value)) for key, value in PROGRAMS[0].statements),
    ),
    "easy-r1": (
        "easy-r1",
        {"verl": "0.3.2"},
        (("worker|actor|model|model_path", MODEL), ("worker|rollout|seed", 1)),
        tuple((key.replace(".", "|"), _typed(value)) for key, value in PROGRAMS[3].statements),
    ),
    "torchtitan": (
        "torchtitan",
        {"torchtitan": "0.2.0", "torch": "2.9.0"},
        (("model|name", "llama3"), ("model|flavor", "8B"), ("training|steps", 10)),
        tuple((key.replace(".", "|"), _typed(value or "true")) for key, value in PROGRAMS[-1].statements),
    ),
    "accelerate": (
        "accelerate",
        _HF,
        (("compute_environment", "LOCAL_MACHINE"), ("distributed_type", "FSDP"), ("num_processes", 8)),
        (
            ("mixed_precision", "bf16"),
            ("fsdp_config|fsdp_version", 2),
            ("fsdp_config|fsdp_offload_params", True),
            ("fsdp_config|fsdp_sharding_strategy", "SHARD_GRAD_OP"),
            ("fsdp_config|fsdp_use_orig_params", False),
            ("fsdp_config|fsdp_activation_checkpointing", True),
            ("fsdp_config|fsdp_cpu_ram_efficient_loading", False),
        ),
    ),
    "deepspeed": (
        "deepspeed",
        _HF,
        (("train_micro_batch_size_per_gpu", 1),),
        (
            ("gradient_accumulation_steps", 8),
            ("bf16|enabled", True),
            ("zero_optimization|stage", 3),
            ("zero_optimization|overlap_comm", False),
            ("zero_optimization|contiguous_gradients", False),
            ("zero_optimization|reduce_bucket_size", 1000),
            ("zero_optimization|offload_optimizer|device", "cpu"),
            ("zero_optimization|offload_param|device", "cpu"),
            ("zero_optimization|stage3_max_live_parameters", 1000),
        ),
    ),
}
