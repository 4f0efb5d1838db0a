"""What a log says in passing about the run: the model, packages with versions, tensor parallelism, allocator settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HUB_ID = re.compile(r"(?<![\w./@:-])([A-Za-z][\w.-]{1,40}/[A-Za-z][\w.-]{2,80})(?![\w/])")
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
_FAMILY = re.compile(
    r"(?i)llama|qwen|mistral|mixtral|gemma|phi-?\d|falcon|bloom|gpt|opt-\d|deepseek|yi-\d|baichuan|internlm|chatglm|glm-\d|starcoder|vicuna|olmo"
)
_FILE_END = re.compile(r"(?i)\.(?:py|json|sh|yaml|yml|txt|md|so|c|cpp|cu|h|log|jsonl|git|html)$")
_PACKAGE = re.compile(
    r"(?im)(?:^|[\s\[\]>'\"`-])(?:\[pip3?\]\s*|\[conda\]\s*)?`?(?P<name>torch|transformers|deepspeed|accelerate|peft|trl|vllm|verl|bitsandbytes|flash[-_]attn"
    r"|liger[-_]kernel|openrlhf|axolotl|xformers|unsloth|llamafactory|ms[-_]swift|sglang|torchao|ray|triton)`?"
    r"(?:\s*==\s*|\s+version\s*(?:\([^)]*\))?\s*[:=]?\s*|\s*[:=]\s*v?)(?P<version>\d+\.\d+[\w.+!-]*)"
)
_TORCH = re.compile(r"(?i)PyTorch version(?: \([^)]*\))?\s*[:=]\s*(?P<version>\d+\.\d+[\w.+-]*)")
_SETTINGS = {
    "rollout.tensor_parallel": re.compile(r"(?i)tensor[-_](?:model[-_])?parallel[-_]size['\"]?\s*[=:\s]\s*(\d+)"),
    "rollout.max_num_batched_tokens": re.compile(r"(?i)max[-_]num[-_]batched[-_]tokens['\"]?\s*[=:\s]\s*(\d+)"),
    "rollout.max_num_seqs": re.compile(r"(?i)max[-_]num[-_]seqs['\"]?\s*[=:\s]\s*(\d+)"),
    "training.micro_batch_size": re.compile(r"(?i)(?:--|\b)per_device_train_batch_size['\"]?\s*[=:\s]\s*(\d+)"),
    "training.eval_batch_size": re.compile(r"(?i)(?:--|\b)per_device_eval_batch_size['\"]?\s*[=:\s]\s*(\d+)"),
    "training.sequence_length": re.compile(
        r"(?i)(?:--|\b)(?:max_seq_length|model_max_length|cutoff_len|block_size|max_seq_len|sequence_len)['\"]?\s*[=:\s]\s*(\d+)"
    ),
}
"""Keys that name one fact whoever reads them, as logs and pasted commands write them."""


class Mentions(NamedTuple):
    """What a log says in passing."""

    model: str | None
    """Name of the one known model it names; None when it names none or several."""
    unknown_models: tuple[str, ...]
    """Hub ids of what look like language models and are not in the catalogue."""
    packages: Mapping[str, str]
    """Version by canonical name; a package that the log gives two versions is left out."""
    settings: Mapping[str, int]
    """Facts by vocabulary name; one that the log gives two values is left out."""


_COMMENT = re.compile(r"(?m)(?<=\S)[ \t]{1,80}#[ \t!].*$|^[ \t]*#(?:[^\n=]*=|[ \t]*[\"']).*$|^[ \t]{2,}#.*$")
"""Comments of code: behind it, indented, or with an assignment or a quoted string; a heading of Markdown is none."""


def _without_comments(log: str) -> str:
    """Remove the comments of code, which name models that are not used."""
    return _COMMENT.sub("", log) if "#" in log else log


_EDGE = 2 * 2**20


def read_mentions(log: str, models: Mapping[str, Iterable[str]]) -> Mentions:
    """Read what a log mentions."""
    if len(log) > 2 * _EDGE:  # configurations are printed at the start, errors at the end
        log = log[:_EDGE] + "\n" + log[-_EDGE:]
    said = _without_comments(log)
    names = {alias.lower(): short for short, aliases in models.items() for alias in (short, *aliases)}
    known: dict[str, None] = {}
    unknown: dict[str, None] = {}
    cached = (f"{owner}/{name}" for owner, name in _CACHED.findall(log))
    for found in (*(match.group(1) for match in _HUB_ID.finditer(said)), *cached):
        name = found.rstrip(".")
        short = names.get(name.lower())
        if short is not None:
            known[short] = None
        elif _FAMILY.search(name.partition("/")[2]) and not _FILE_END.search(name):
            unknown[name] = None
    for name, short in names.items():
        if "/" not in name and re.search(
            rf"(?i)(?<![\w.-]){re.escape(name)}(?:-instruct|-hf|-chat|-base)?(?![\w.-])", said
        ):
            known[short] = None
    packages: dict[str, set[str]] = {}
    for match in (*_PACKAGE.finditer(log), *_TORCH.finditer(log)):
        name = match.groupdict().get("name") or "torch"
        packages.setdefault(name.lower().replace("_", "-"), set()).add(match.group("version").rstrip(".,;)-"))
    settings: dict[str, set[int]] = {}
    for fact, pattern in _SETTINGS.items():
        for match in pattern.finditer(log):
            settings.setdefault(fact, set()).add(int(match.group(1)))
    return Mentions(
        model=next(iter(known)) if len(known) == 1 and not unknown else None,
        unknown_models=tuple(unknown),
        packages={name: next(iter(versions)) for name, versions in packages.items() if len(versions) == 1},
        settings={
            fact: next(iter(values)) for fact, values in settings.items() if len(values) == 1 and min(values) > 0
        },
    )
