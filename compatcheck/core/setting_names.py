"""Words in the names of settings and functions: which are about memory, and which plainly about something else."""

import re
from functools import lru_cache

_MEMORY = frozenset({
    "accum", "accumulation", "adapter", "attention", "attn", "batch", "batches", "bits", "checkpointing",
    "dtype", "flash", "fsdp", "length", "len", "liger", "lora", "offload", "offloading", "optim",
    "optimizer", "pack", "packing", "parallel", "parallelism", "peft", "precision", "qlora", "quant",
    "quantization", "quantize", "rank", "remat", "seq", "sequence", "shard", "sharding", "tp", "pp", "cp",
    "tokens", "zero", "4bit", "8bit", "bf16", "fp16", "fp8",
})  # fmt: skip
"""Words in names of settings that decide memory."""
_ELSEWHERE = frozenset({
    "adam", "analyzing", "api", "beaker", "beta", "betas", "cache", "callback", "callbacks", "chat", "checkpoint", "ckpt",
    "cluster", "color", "colour", "comet", "cuda", "data", "dataset", "datasets", "debug", "decay", "dir", "directory", "early",
    "eps", "epsilon", "eta", "eval", "evaluation", "folder", "hub", "image", "images", "job", "label", "labels", "lazy", "log",
    "logger", "logging", "lr", "metadata", "metric", "metrics", "mixer", "momentum", "name", "output", "patience", "priority",
    "profiler", "project", "prompt", "report", "resume", "revision", "run", "save", "scheduler", "seed", "swanlab", "task",
    "template", "tensorboard", "test", "timeout", "token", "tokenizer", "user", "validation", "verbose", "version", "visible",
    "wandb", "warmup", "workers", "workspace",
})  # fmt: skip
"""Words in names of settings that are about data, schedules, logs and the like."""


@lru_cache(maxsize=4096)
def split_name(name: str) -> frozenset[str]:
    """Return the words of a key's or fact's name."""
    return frozenset(re.split(r"[^a-z0-9]+", name.lower()))


def words_about_memory(name: str) -> frozenset[str]:
    """Return the words of a name that sound like memory."""
    return split_name(name) & _MEMORY


def is_about_memory(key: str) -> bool:
    """Tell whether the name of a setting sounds like memory."""
    return bool(words_about_memory(key))


def is_elsewhere(name: str) -> bool:
    """Tell whether a name is plainly about something else than memory."""
    words = split_name(name)
    return words.isdisjoint(_MEMORY) and not words.isdisjoint(_ELSEWHERE)
