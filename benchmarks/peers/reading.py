"""Makes a `Run` from a report, with what the report's own source says and the report leaves out.

The reports keep what a page's table says. Scripts, configurations and threads that the page belongs to say more (that
checkpointing was on, which rank LoRA had); those are read here, each beside its source, and the rest is `Run.assumed`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from benchmarks.peers.runs import Adapter, Peak, Run, Shape, count_lora

if TYPE_CHECKING:
    from collections.abc import Mapping

    Report = Mapping[str, Any]

GIB = 2**30
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
EVERY_LINEAR = (*ATTENTION, *MLP)
UNITS = {"bytes": 1, "GiB": GIB, "GB": GIB}
"""GB is read as GiB: torch and nvidia-smi count in powers of two, and where a page gives a percentage of the card beside its GB
(PEFT's "64 GB (80%)" of an 80 GB card) that reading agrees."""
QWEN_GIGABYTE = 1000 * 2**20
"""Qwen's table has 162.0 G on two cards of 80 GiB, so its G is less than a GiB: a thousand of nvidia-smi's MiB (81,000 of
81,920), or 10**9 bytes, 5 % less. The former is taken."""
TOGETHER = "several models and an inference engine take turns on one device (actor, reference, rollout)"
CHECKPOINTING = "gradient checkpointing on, batch of 1 and a kernel without a score matrix: the thread does not say"


def read_run(report: Report) -> Run:
    """Make the run of one report.

    Raises:
        KeyError: the report is of a framework that is not known here.
    """
    name = report["framework"]["name"]
    for prefix, reader in READERS.items():
        if name.startswith(prefix):
            return reader(report)
    raise KeyError(f"{report['id']}: no reader for reports of {name!r}; add one to READERS in {__file__}")


def _read_qwen(report: Report) -> Run:
    """Read a row of Qwen's table.

    Its scripts (`finetune/*.sh`, `finetune.py` of QwenLM/Qwen) have checkpointing on, rank 64 on c_attn, c_proj, w1 and w2,
    ZeRO-3 for full training, GPTQ Int4 with fp16 for Q-LoRA; QwenLM/Qwen#424 says that rank, targets and stage were the scripts'.
    """
    method, shape = report["config"]["method"], _shape(report)
    run = _base(report, "Qwen README", "device", gigabyte=QWEN_GIGABYTE, stated=False)._replace(
        shape=shape, batch=1, tokens=report["config"]["seq_len"], recompute="full"
    )
    if method == "Full":
        return run._replace(weights="bf16+master", sharding="zero3")
    width, inner = shape.hidden, shape.intermediate
    lora = shape.layers * 64 * ((width + 3 * width) + 2 * width + 3 * (width + inner))
    copies = 2 * shape.vocab * width if method == "LoRA(emb)" else 0
    kind = "lora and embeddings" if copies else "lora"
    run = run._replace(adapter=Adapter(kind, lora + copies, lora + copies, 64, EVERY_LINEAR))
    if method == "Q-LoRA":
        return run._replace(quantization="gptq4", besides=("GPTQ",))
    return run._replace(sharding="zero3") if method == "LoRA+ZeRO3" else run


def _read_torchtune(report: Report) -> Run:
    """Read a row of torchtune's tables; configurations are those of recipes/configs at the commits that wrote the rows.

    The table (30b8519e8) gives none; `8B_full_single_device` and meta-pytorch/torchtune#2168 give checkpointing, 8-bit AdamW,
    optimizer in backward and chunked loss. The ladder (1814feb17) gives its settings row by row.
    """
    method, case = report["config"]["method"], report["id"]
    ladder = "cumulative ladder" in method
    run = _base(report, "torchtune README", "allocated" if ladder else "reserved", stated=ladder)._replace(
        shape=_shape(report), batch=report["config"]["batch"], tokens=report["config"]["seq_len"]
    )
    return _torchtune_ladder(run, _shape(report), case) if ladder else _torchtune_table(run, _shape(report), case)


def _torchtune_table(run: Run, shape: Shape, case: str) -> Run:
    run = run._replace(besides=("compile", "chunked loss"))
    if "70b" in case:
        run = run._replace(sharding="fsdp")
        if "full" in case:
            besides = ("compile", "chunked loss", "everything offloaded to the host")
            return run._replace(offload_optimizer=True, offload_parameters=True, besides=besides)
        return run._replace(adapter=_lora(shape, 16, ("q_proj", "k_proj", "v_proj")))
    roomy = "a6000" in case
    run = run._replace(
        recompute="none" if roomy and "lora" in case else "full",
        assumed=("which configuration the row is of; checkpointing off in the larger of two LoRA rows",),
    )
    if "qlora" in case:
        return run._replace(quantization="nf4", adapter=_lora(shape, 8, EVERY_LINEAR))
    if "lora" in case:
        return run._replace(adapter=_lora(shape, 8, ("q_proj", "v_proj")))
    return run._replace(optimizer="adamw8bit", besides=(*run.besides, "optimizer in backward"))


STEPS = (
    ("baseline-unpacked", ""), ("p-packed", ""), ("p-compile", "compile"), ("p-chunked-ce", "chunked loss"),
    ("p-activation-checkpointing", ""), ("p-optimizer-in-bwd", "optimizer in backward"),
    ("p-activation-offloading", "activations offloaded"), ("p-adamw8bit", ""),
)  # fmt: skip
"""Rows of the ladder in order, and what each adds that no peer has an input for."""


def _torchtune_ladder(run: Run, shape: Shape, case: str) -> Run:
    row = case.removeprefix("torchtune-3b-")
    if row in {"lora", "qlora"}:
        adapter = _lora(shape, 64, ("q_proj", "v_proj", "o_proj", *MLP))
        besides = ("compile", "chunked loss", "activations offloaded")
        return run._replace(adapter=adapter, quantization="nf4" if row == "qlora" else None, besides=besides)
    names = [name for name, _ in STEPS]
    position = names.index(row)
    assumed = ("every sequence as long as the limit, though the rows are not packed",) if position == 0 else ()
    return run._replace(
        recompute="full" if position >= names.index("p-activation-checkpointing") else "none",
        optimizer="adamw8bit" if row == "p-adamw8bit" else "adamw",
        besides=tuple(left for _, left in STEPS[: position + 1] if left),
        assumed=assumed,
    )


def _read_torchtitan(report: Report) -> Run:
    """Read a row of torchtitan's benchmark: fp32 shards, bf16 compute; its memory is `max_reserved_gib` (metrics.py, 9dec370)."""
    config = report["config"]
    context = config.get("cp", 1)
    besides = tuple(word for word, key in (("compile", "compile"), ("float8", "float8")) if config.get(key))
    return _base(report, "torchtitan benchmark", "reserved")._replace(
        shape=_shape(report),
        weights="fp32",
        batch=config["local_batch"],
        tokens=config["seq_len"] // context,
        recompute={"full": "full", "selective": "selective"}[config["ac"]],
        sharding="fsdp",
        tensor_parallel=config.get("tp", 1),
        besides=besides,
        assumed=("context parallelism as shorter sequences",) if context > 1 else (),
    )


def _read_peft_benchmark(report: Report) -> Run:
    """Read a result of PEFT's method comparison: bf16 base, fp32 adapters, peak reserved of the whole process (utils.py)."""
    config, shape = report["config"], _shape(report)
    run = _base(report, "PEFT method comparison", "reserved")._replace(
        shape=shape, batch=config["batch"], tokens=config["max_seq_len"], recompute="none"
    )
    if config["method"] == "full-finetuning":
        return run
    trainable = config["trainable_params"]
    added = 0 if config["method"] in {"ln_tuning", "trainable_tokens"} else trainable
    if config["method"] not in {"lora", "adalora"}:
        return run._replace(adapter=Adapter(config["method"], trainable, added))
    targets = tuple(name for name in EVERY_LINEAR if name in config["target_modules"])
    each = count_lora(shape, 1, targets)
    return run._replace(adapter=Adapter("lora", trainable, added, max(1, round(trainable / each)), targets))


def _read_peft_docs(report: Report) -> Run:
    """Read an example of PEFT's guides; their figures are off screenshots of the card.

    Without 4-bit weights the example's `train.py` loads in fp32: DeepSpeed casts that to bf16, FSDP shards it as it is.
    """
    config, shape = report["config"], _shape(report)
    fsdp = "fsdp" in report["framework"]["name"]
    quantized = config["method"].startswith("qlora")
    adapter = _lora(shape, 8, EVERY_LINEAR)
    return _base(report, "PEFT guides", "device")._replace(
        shape=shape,
        weights="fp32" if fsdp and not quantized else "bf16",
        quantization="nf4-double" if quantized else None,
        adapter=adapter,
        batch=config["per_device_batch"],
        tokens=config["seq_len"],
        sharding="fsdp" if fsdp else "zero3",
        offload_parameters="offload" in str(config.get("fsdp")),
    )


def _read_unsloth(report: Report) -> Run:
    """Read a row of unsloth's table of longest contexts, in its column for transformers with FlashAttention-2."""
    longest = report["outcome"]["hf_fa2_max_tokens"]
    shape = _shape(report)
    return _base(report, "unsloth README", "device")._replace(
        shape=shape,
        quantization="nf4",
        adapter=_lora(shape, 32, EVERY_LINEAR),
        batch=1,
        tokens=SHORTEST if longest == "OOM" else longest,
        outcome="oom" if longest == "OOM" else "fits",
        assumed=("the row that never fits is asked at 932 tokens, the longest that fits 12 GB",)
        if longest == "OOM"
        else (),
    )


SHORTEST = 932


def _read_thread(report: Report) -> Run:
    """Read a claim of QwenLM/Qwen3#300."""
    config = report["config"]
    found = re.findall(r"\d+", str(config.get("seq_len") or config.get("seq_len_max") or "2"))
    tokens = int(found[-1]) * (1024 if int(found[-1]) < 100 else 1)
    silent = () if "seq_len" in config or "seq_len_max" in config else ("2048 tokens",)
    outcome = "oom" if report["outcome"]["result"] == "oom" else "fits"
    return _base(report, "Qwen3 issue 300", "device")._replace(
        shape=_shape(report),
        weights="bf16+master",
        batch=1,
        tokens=tokens,
        sharding="zero3",
        outcome=outcome,
        assumed=(CHECKPOINTING, *silent),
    )


def _read_openrlhf(report: Report) -> Run:
    """Read OpenRLHF#776: the actor has 32 devices of its own, so that its update is an ordinary ZeRO-3 training step."""
    config = report["config"]
    return _base(report, "OpenRLHF issue 776", "device")._replace(
        shape=_shape(report),
        weights="bf16+master",
        batch=config["micro_train_batch_size"],
        tokens=config["prompt_max_len"] + config["generate_max_len"],
        ranks=config["actor_num_nodes"] * config["actor_num_gpus_per_node"],
        ranks_per_node=config["actor_num_gpus_per_node"],
        sharding="zero3",
        offload_optimizer=True,
        besides=("the release of DeepSpeed",),
    )


def _read_megatron(report: Report) -> Run:
    """Read DeepSpeed's ZeRO tutorial (docs/_tutorials/zero.md): GPT-2 with 48 layers of 1600, nothing recomputed."""
    run = _base(report, "DeepSpeed ZeRO tutorial", "device")._replace(
        shape=Shape("gpt2", 1600, 48, 16, 16, 100, 6400, 50257, tied=True),
        weights="bf16+master",
        batch=1,
        tokens=1024,
        recompute="none",
        sharding="zero1" if report["config"]["zero_stage"] == 1 else "ddp",
        assumed=("1024 tokens, Megatron's example",),
    )
    # The figure of the ZeRO-1 row is 18 GB of optimizer states divided by 8, not a peak.
    return run._replace(peak=None)


def _read_together(report: Report) -> Run:
    return _base(report, report["framework"]["name"].split(" ")[0], "device")._replace(inexpressible=TOGETHER)


def _read_vllm(report: Report) -> Run:
    return _base(report, "vLLM issue 11251", "device")._replace(inexpressible="the thread does not name the model")


READERS = {
    "Qwen finetune.py": _read_qwen,
    "torchtune": _read_torchtune,
    "torchtitan": _read_torchtitan,
    "peft method_comparison": _read_peft_benchmark,
    "trl+peft": _read_peft_docs,
    "HF Transformers+FA2 / unsloth": _read_unsloth,
    "HF Trainer + DeepSpeed ZeRO-3": _read_thread,
    "OpenRLHF": _read_openrlhf,
    "DeepSpeed Megatron": _read_megatron,
    "Search-R1": _read_together,
    "Logic-RL": _read_together,
    "vllm": _read_vllm,
}
"""Beginning of a framework's name → what reads its reports."""


def _base(report: Report, group: str, kind: str, *, gigabyte: int = GIB, stated: bool = True) -> Run:
    hardware, outcome = report["hardware"], report["outcome"]
    ranks = hardware["gpus_total"] if isinstance(hardware["gpus_total"], int) else 1
    peak = _read_peak(outcome["peak"], ranks, gigabyte) if outcome.get("peak") else None
    return Run(
        case=report["id"],
        group=group,
        outcome="oom" if outcome["result"] == "oom" else "fits",
        device_bytes=int(hardware["mem_gib"] * GIB),
        gpu=str(hardware["gpu"]),
        ranks=ranks,
        ranks_per_node=max(1, ranks // hardware["nodes"]),
        peak=peak._replace(kind=kind, stated=stated) if peak else None,
    )


def _read_peak(peak: Mapping[str, Any], ranks: int, gigabyte: int) -> Peak:
    bounds = [float(text) for text in str(peak["value"]).split("-")]
    unit = {**UNITS, "GB": gigabyte}[peak["unit"]]
    scale = unit / (ranks if peak["what"] == "total over GPUs" else 1)
    decimal = 10**9 / unit if peak["unit"] == "GB" else 1.0
    return Peak(round(bounds[0] * scale), round(bounds[-1] * scale), "device", decimal)


def _shape(report: Report) -> Shape:
    model = report["model"]
    heads, hidden = model["num_attention_heads"], model["hidden_size"]
    return Shape(
        family="qwen2" if model["hf_id"].startswith("Qwen/") else "llama",
        hidden=hidden,
        layers=model["num_hidden_layers"],
        heads=heads,
        kv_heads=model["num_key_value_heads"],
        head_dim=model.get("head_dim") or hidden // heads,
        intermediate=model["intermediate_size"],
        vocab=model["vocab_size"],
        tied=model["tie_word_embeddings"],
    )


def _lora(shape: Shape, rank: int, targets: tuple[str, ...]) -> Adapter:
    count = count_lora(shape, rank, targets)
    return Adapter("lora", count, count, rank, targets)
