"""Compare the closed form with public reports of peak memory and of runs that fitted or did not.

    python benchmarks/memory_cases.py CASES.yaml [--all] [--source NAME]

CASES.yaml lists reports (model dimensions, hardware, framework, configuration, outcome, source). Each is translated to facts by
the framework it is of; what a report leaves out is taken from the scripts its source names, or assumed as `estimate` assumes
it. A report whose needed settings are not stated is not evaluated and says why. Like is compared with like: what a report calls
allocated, reserved or memory of the GPU with the estimate's peak of that kind, GB as 10**9 and GiB as 2**30 bytes.

Output: for each source the median error, the share of peaks inside low..high, the median width of that range, what was
called fits, marginal or does_not_fit; then the same over the sources; then every case whose error is large, and every case that
was not evaluated. docs/memory-model.md discusses the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck import __version__
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.core.units import GIB
from compatcheck.memory.closed_form.estimate import estimate
from compatcheck.rules.strict_yaml import load_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.estimate import Estimate, Size

LARGE_ERROR = 0.25
UNITS = {"GB": 10**9, "GiB": GIB, "bytes": 1}


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


class Result(NamedTuple):
    """One report beside the estimate."""

    case: str
    source: str
    reported: float | None
    size: Size | None
    outcome: str
    verdict: str
    doubt: str
    estimate: Estimate | None = None
    """All of it, for `--json`."""

    @property
    def error(self) -> float | None:
        """Signed relative error of the expected peak."""
        if self.reported is None or self.size is None:
            return None
        return self.size.expected / self.reported - 1


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
    model = case["model"]["hf_id"].replace("-Instruct-1M", "")  # the same dimensions under a well-known name
    if case["framework"]["name"] == "OpenRLHF":
        kept = {name: value for name, value in config.items() if name != "deepspeed"}
        flags = (f"--{name}" if value is True else f"--{name} {value}" for name, value in kept.items())
        return f"python3 -m openrlhf.cli.train_ppo_ray --pretrain {model} {' '.join(flags)}\n"
    hardware = case["hardware"]
    devices = {
        "trainer.nnodes": hardware["nodes"],
        "trainer.n_gpus_per_node": hardware["gpus_total"] // hardware["nodes"],
    }
    overrides = {"actor_rollout_ref.model.path": model, **devices, **config}
    words = (f"{name}={value}" for name, value in overrides.items() if name != "max_turns")
    return f"python3 -m verl.trainer.main_ppo {' '.join(words)}\n"


def evaluate_script(case: Mapping[str, Any]) -> Result | str:
    """Read a report's launch command as `compatcheck estimate` does, price its roles together, and add what rules find."""
    # only these reports need what follows
    from compatcheck.cli.inputs import Request, gather  # noqa: PLC0415
    from compatcheck.matching.engine import match  # noqa: PLC0415
    from compatcheck.memory.job import estimate_job  # noqa: PLC0415
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415

    rules = open_rules()
    with tempfile.TemporaryDirectory() as directory:
        script, releases = Path(directory) / "train.sh", Path(directory) / "requirements.txt"
        script.write_text(write_script(case))
        pins = {"torch": "2.4.0", "transformers": "4.47.1", "vllm": "0.6.3"}
        if "deepspeed" in case["config"]:  # of the release of OpenRLHF of those days
            deepspeed = str(case["config"]["deepspeed"]).replace("*", "3")
            pins = {"deepspeed": deepspeed, "transformers": "4.48.2", "vllm": "0.7.2"}
        releases.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        settings = (f"hardware.memory_bytes={case['hardware']['mem_gib']}GiB",)
        request = Request(paths=(str(script), str(releases)), settings=settings, here=False)
        (subject,) = gather(request, rules, {}).subjects
    found = estimate_job(subject.roles, subject.environment)
    if found.needs:
        return f"needs {', '.join(found.needs)}"
    verdict, doubt = found.verdict.outcome, f"confidence {case['confidence'].partition(' ')[0]}"
    for finding in match(subject, rules).findings:
        impact, limit = finding.impact, found.verdict.limit_bytes
        known = finding.status == "affected" and impact is not None and impact.memory == "device" and limit is not None
        if known and (impact.expected_bytes or 0) > limit:  # more than the whole device by itself
            verdict, doubt = "does_not_fit", f"{doubt}; alone {verdict}, and {finding.rule_id} is found"
    return Result(case["id"], _source(case), None, found.device, str(case["outcome"]["result"]), verdict, doubt, found)


def evaluate(case: Mapping[str, Any]) -> Result | str:
    """Estimate one case, or say why it was not evaluated."""
    if str(case["framework"]["name"]).startswith(("Search-R1", "Logic-RL", "OpenRLHF")):
        return evaluate_script(case)
    translation = translate(case)
    if isinstance(translation, str):
        return translation
    packages = {name: Package(name, version, Source("case")) for name, version in translation.packages.items()}
    found = estimate(translation.facts, Environment(case["id"], packages, complete=False))
    if found.needs:
        return f"needs {', '.join(found.needs)}"
    outcome = case["outcome"]
    reported = _reported(outcome, case)
    size = None
    if reported is not None:
        size = _peak(found, translation.measure)
        size = type(size)(*(value * translation.devices for value in size))
    return Result(
        case["id"],
        _source(case),
        reported,
        size,
        str(outcome["result"]),
        found.verdict.outcome,
        translation.doubt,
        found,
    )


def _peak(found: Estimate, measure: str) -> Size:
    return {"allocated": found.allocated, "reserved": found.reserved, "device": found.device}[measure]


def _reported(outcome: Mapping[str, Any], case: Mapping[str, Any]) -> float | None:
    """Return the reported peak in bytes; a range is its middle, the longest context that fits means a full device."""
    peak = outcome.get("peak")
    if outcome.get("result") == "max_context":
        return float(case["hardware"]["mem_gib"] * GIB)
    if not isinstance(peak, dict):
        return None
    value = peak["value"]
    if isinstance(value, str):
        low, _, high = value.partition("-")
        value = (float(low) + float(high)) / 2
    return float(value) * UNITS[peak["unit"]]


def _source(case: Mapping[str, Any]) -> str:
    url = str(case["source"])
    return next((name for key, name in SOURCES.items() if key in url), url)


SOURCES = {
    "QwenLM/Qwen/": "Qwen README", "MetaMathQA": "peft comparison", "pytorch/torchtune": "torchtune README",
    "pytorch/torchtitan": "torchtitan benchmark", "unsloth": "unsloth README", "peft/blob": "peft guides",
    "Qwen3/issues/300": "Qwen3 issue 300", "Search-R1": "Search-R1", "Logic-RL": "Logic-RL", "OpenRLHF": "OpenRLHF",
    "DeepSpeed": "DeepSpeed tutorial", "vllm": "vLLM issue",
}  # fmt: skip


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--all", action="store_true", help="print every case")
    parser.add_argument(
        "--json", type=Path, help="write every estimate, as benchmarks/peers/compare.py --ours reads it"
    )
    parser.add_argument("--source", help="only cases of this source")
    given = parser.parse_args()
    cases = load_strict(given.cases)[0]["cases"]
    results: list[Result] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        if given.source and given.source != _source(case):
            continue
        result = evaluate(case)
        if isinstance(result, str):
            left_out[result].append(case["id"])
        else:
            results.append(result)
    for line in (*_table(results), "", *_verdicts(results), "", *_cases(results, everything=given.all)):
        print(line)
    if given.json is not None:
        given.json.write_text(json.dumps(_as_column(results, left_out), indent=1), encoding="utf-8")
    print("\nNot evaluated:")
    for reason, names in left_out.items():
        print(f"- {reason}: {len(names)} ({', '.join(names[:4])}{', …' if len(names) > 4 else ''})")


def _as_column(results: list[Result], left_out: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the column that compare.py sets beside those of others."""
    cases: dict[str, Any] = {}
    for result in results:
        if result.estimate is not None:
            sizes = {name: getattr(result.estimate, name)._asdict() for name in ("allocated", "reserved", "device")}
            cases[result.case] = {**sizes, "verdict": result.verdict, "reason": None}
    for reason, names in left_out.items():
        empty = dict.fromkeys(("allocated", "reserved", "device"))
        cases.update({name: {**empty, "verdict": "unknown", "reason": reason} for name in names})
    return {"tool": f"compatcheck {__version__}", "cases": cases}


def _table(results: list[Result]) -> Iterator[str]:
    yield "| source | peaks | median error | median signed | inside low..high | median width |"
    yield "|---|---|---|---|---|---|"
    by_source: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.error is not None:
            by_source[result.source].append(result)
    medians = []
    for source, group in by_source.items():
        medians.append(statistics.median(abs(result.error or 0) for result in group))
        yield f"| {source} | {_row(group)} |"
    everything = [result for group in by_source.values() for result in group]
    if everything:
        yield f"| all peaks | {_row(everything)} |"
        yield f"| median over the sources | {len(medians)} | {statistics.median(medians):.1%} | | | |"


def _row(group: list[Result]) -> str:
    errors = [result.error or 0 for result in group]
    sizes = [
        (result.size, result.reported) for result in group if result.size is not None and result.reported is not None
    ]
    inside = sum(size.low <= reported <= size.high for size, reported in sizes) / len(sizes)
    width = statistics.median((size.high - size.low) / size.expected for size, _ in sizes)
    error, signed = statistics.median(map(abs, errors)), statistics.median(errors)
    return f"{len(group)} | {error:.1%} | {signed:+.1%} | {inside:.0%} | {width:.0%}"


def _verdicts(results: list[Result]) -> Iterator[str]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for result in results:
        outcome = "oom" if result.outcome == "oom" else "fits"
        counts[outcome, result.verdict] += 1
    yield "| reported | fits | marginal | does_not_fit | unknown |"
    yield "|---|---|---|---|---|"
    for outcome in ("fits", "oom"):
        yield (
            f"| {outcome} | "
            + " | ".join(str(counts[outcome, verdict]) for verdict in ("fits", "marginal", "does_not_fit", "unknown"))
            + " |"
        )


def _cases(results: list[Result], *, everything: bool) -> Iterator[str]:
    yield (
        "Cases with an error above 25 %, outside of low..high, or with a wrong verdict:"
        if not everything
        else "All cases:"
    )
    for result in results:
        wrong = result.verdict == ("fits" if result.outcome == "oom" else "does_not_fit")
        error, size = result.error, result.size
        if error is None or size is None or result.reported is None:
            if everything or wrong:
                sizes = "" if size is None else " .. ".join(f"{part / GIB:.1f}" for part in size) + " GiB, "
                yield f"- {result.case}: {sizes}reported {result.outcome}, called {result.verdict}{_doubt(result)}"
            continue
        outside = not size.low <= result.reported <= size.high
        if everything or outside or wrong or abs(error) > LARGE_ERROR:
            yield (
                f"- {result.case}: reported {result.reported / GIB:.1f}, {size.low / GIB:.1f} .. {size.expected / GIB:.1f} .. "
                f"{size.high / GIB:.1f} GiB, {error:+.0%}, {result.outcome} called {result.verdict}{_doubt(result)}"
            )


def _doubt(result: Result) -> str:
    return f" ({result.doubt})" if result.doubt else ""


if __name__ == "__main__":
    main()
