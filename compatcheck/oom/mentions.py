"""What a log says in passing about the run: the model, packages with versions, tensor parallelism, allocator settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pasted_text import fold_case
from compatcheck.core.versions import parse_version
from compatcheck.oom.needles import leave_out_digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_HUB_ID = re.compile(
    r"(?<![\w./@:-])([A-Za-z][\w.-]{1,40}/[A-Za-z][\w.-]{2,80})(?![\w/.-])", re.ASCII
)  # a sentence in Chinese has no blanks around it
_REPOSITORY = re.compile(r"(?: · |#\d|/(?:issues|pull|tree|blob)/)")
"""What stands behind the name of a repository of code."""
_DIRECTORIES = frozenset(
    {
        "output", "outputs", "out", "save", "saves", "saved", "data", "path", "ckpt", "ckpts", "checkpoint", "checkpoints",
        "models", "model", "results", "logs", "experiments", "work_dirs", "runs", "pretrained", "pretrained_models", "weights",
    }
)  # fmt: skip
"""First parts of local paths, which are no owners on the hub."""
_MIRRORS = frozenset({"unsloth"})
"""Owners that publish others' models under their names, as they are."""
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
_FAMILIES = (
    "llama", "qwen", "mistral", "mixtral", "gemma", "phi", "falcon", "bloom", "gpt", "opt-", "deepseek", "yi-", "baichuan",
    "internlm", "glm-", "chatglm", "starcoder", "vicuna", "olmo",
)  # fmt: skip
"""What one of stands in the name of a language model."""
_FAMILY = re.compile(
    "(?i)" + "|".join({"phi": r"phi-?\d"}.get(name, name + r"\d" * name.endswith("-")) for name in _FAMILIES)
)
_FILE_END = re.compile(r"(?i)\.(?:py|json|sh|yaml|yml|txt|md|so|c|cpp|cu|h|log|jsonl|git|html)$")
_NAMES = (
    "torch", "transformers", "deepspeed", "accelerate", "peft", "trl", "vllm", "verl", "bitsandbytes", "flash-attn", "flash_attn",
    "liger-kernel", "liger_kernel", "openrlhf", "axolotl", "xformers", "unsloth", "llamafactory", "ms-swift", "ms_swift",
    "sglang", "torchao", "ray", "triton", "transformer",
)  # fmt: skip
_CALLED = {"transformer": "transformers"}
"""What people write for a package's name."""
_BEFORE_NAME = frozenset("[](>'\"`-,，、（： \t\r\n\v\f将把从")
"""What stands in front of a package's name, unless it begins the text."""
_VERSION = re.compile(
    r"`?(?:\s*==\s*|\s+version\s*(?:\([^)]*\))?\s*[:=]?\s*|\s*[:=]\s*v?|[ \t]+v?(?=\d+\.\d+\.\d))(?P<version>\d+\.\d+[\w.+!-]*)",
    re.IGNORECASE | re.ASCII,
)
_CHANGE = re.compile(
    r"`?\s*(?:from|从)\s*`?v?(?P<before>\d+\.\d+[\w.+-]*)`?\s*(?:to|->|=>|→|(?:升级|更新|升)?到|升级为)\s*`?v?(?P<after>\d+\.\d+[\w.+-]*)",
    re.IGNORECASE | re.ASCII,
)
"""``transformers from 4.52.4 to 4.54.0``, behind the name."""
_MOST_RELEASES = 64
"""Of one package; a text that names more tells of none that it changed from one to the other."""
_TORCH = re.compile(r"pytorch version(?: \([^)]*\))?\s*[:=]\s*(?P<version>\d+\.\d+[\w.+-]*)")
_VALUE = r"['\"]?\s*[=:\s]\s*(\d{1,18})(?!\d)"
_SETTINGS = (
    ("rollout.tensor_parallel", re.compile(rf"tensor[-_](?:model[-_])?parallel[-_]size{_VALUE}")),
    ("rollout.max_num_batched_tokens", re.compile(rf"max[-_]num[-_]batched[-_]tokens{_VALUE}")),
    ("rollout.max_num_seqs", re.compile(rf"max[-_]num[-_]seqs{_VALUE}")),
    ("training.micro_batch_size", re.compile(rf"per_device_train_batch_size{_VALUE}")),
    ("training.micro_batch_size", re.compile(rf"instantaneous batch size per device{_VALUE}")),
    ("training.eval_batch_size", re.compile(rf"per_device_eval_batch_size{_VALUE}")),
    *(
        ("training.sequence_length", re.compile(f"{key}{_VALUE}"))
        for key in ("max_seq_length", "model_max_length", "cutoff_len", "block_size", "max_seq_len", "sequence_len")
    ),
)
"""Keys that name one fact whoever reads them, as logs and pasted commands write them in lower case."""
_EXPANDS = "allocator.expandable_segments"
_EXPANDS_IN_VAIN = "expandable_segments not supported on this platform"
"""torch's warning where the setting was asked for and is refused: c10/cuda/CUDAAllocatorConfig.h."""


class Mentions(NamedTuple):
    """What a log says in passing."""

    model: str | None
    """Name of the one known model it names; None when it names none or several."""
    unknown_models: tuple[str, ...]
    """Hub ids of what look like language models and are not in the catalogue."""
    packages: Mapping[str, str]
    """Version by canonical name; a package that the log gives two versions is left out."""
    changes: Mapping[str, tuple[str, str]]
    """Oldest and newest release of packages that it names in several: with one it worked, by what people write."""
    settings: Mapping[str, int]
    """Facts by vocabulary name; one that the log gives two values is left out."""


_COMMENT = re.compile(r"(?m)(?<=\S)[ \t]{1,80}#[ \t!].*$|^[ \t]*#(?:[^\n=]*=|[ \t]*[\"']).*$|^[ \t]{2,}#.*$")
"""Comments of code: behind it, indented, or with an assignment or a quoted string; a heading of Markdown is none."""


def read_mentions(log: str, models: Mapping[str, Iterable[str]]) -> Mentions:
    """Read what a log mentions.

    Every pattern is tried only where a literal stands without which it cannot match: a log is long and names little.
    """
    folded = fold_case(log)
    known, unknown = _read_models(log, folded, models)
    packages = _find_packages(log, folded)
    settings: dict[str, set[int]] = {}
    for fact, pattern in _SETTINGS:
        for match in pattern.finditer(folded):
            if not fact.startswith("training.") or not _is_word(log[match.start() - 1 : match.start()]):
                settings.setdefault(fact, set()).add(int(match.group(1)))
    if _EXPANDS_IN_VAIN in folded:
        settings[_EXPANDS] = {True}
    return Mentions(
        model=next(iter(known)) if len(known) == 1 and not unknown else None,
        unknown_models=tuple(unknown),
        packages={name: next(iter(versions)) for name, versions in packages.items() if len(versions) == 1},
        changes={
            name: (str(releases[0]), str(releases[-1]))
            for name, versions in packages.items()
            if len(versions) <= _MOST_RELEASES
            and len(releases := sorted({one for one in map(parse_version, versions) if one is not None})) > 1
        },
        settings={
            fact: next(iter(values)) for fact, values in settings.items() if len(values) == 1 and min(values) > 0
        },
    )


def read_packages(log: str) -> dict[str, tuple[str, int]]:
    """Return the packages that a text names with one version alone: version and line by canonical name."""
    found = _find_packages(log, fold_case(log))
    one = {name: next(iter(versions.items())) for name, versions in found.items() if len(versions) == 1}
    return {name: (version, log.count("\n", 0, position) + 1) for name, (version, position) in one.items()}


def _find_packages(log: str, folded: str) -> dict[str, dict[str, int]]:
    """Return where a text first names each version of each package, by canonical name."""
    packages: dict[str, dict[str, int]] = {}
    for name, version, position in _read_packages(log, folded):
        packages.setdefault(name.replace("_", "-"), {}).setdefault(version.rstrip(".,;)-"), position)
    return packages


def _read_models(log: str, folded: str, models: Mapping[str, Iterable[str]]) -> tuple[dict[str, None], dict[str, None]]:
    """Return the models of the catalogue that a log names, and the ids of the hub that look like others."""
    names = {alias.lower(): short for short, aliases in models.items() for alias in (short, *aliases)}
    by_last = {name.partition("/")[2] or name: short for name, short in names.items()}
    lasts = set(by_last)
    # a line is looked at for the family in a name, else for how the name begins: each literal is one pass through the log
    begins = {name[:5] for name in lasts if not any(family in name for family in _FAMILIES)}
    kinds = b"\n".join(leave_out_digits(folded.encode("utf-8", "replace")))
    literals = (one for one in (*_FAMILIES, *begins) if one.translate(_NO_DIGITS).encode() in kinds)
    said = _COMMENT.sub("", _lines_with(log, folded, literals))
    known: dict[str, None] = {}
    unknown: dict[str, None] = {}
    cached = (f"{owner}/{name}" for owner, name in _CACHED.findall(log))
    ids = (match.group(1) for match in _HUB_ID.finditer(said) if _REPOSITORY.match(said, match.end()) is None)
    for found in (*ids, *cached):
        name = found.rstrip(".")
        owner, _, last = name.lower().partition("/")
        mirrored = owner in _DIRECTORIES or owner in _MIRRORS
        short = names.get(name.lower()) or (by_last.get(last) if mirrored else None)
        if short is None and owner in _DIRECTORIES:
            continue
        if short is not None:
            known[short] = None
        elif _FAMILY.search(name.partition("/")[2]) and not _FILE_END.search(name):
            unknown[name] = None
    lowered = said.lower()
    bare = lowered.translate(_JOINED)
    short_names = (name for name in names if "/" not in name and name.translate(_JOINED) in bare)
    for name in sorted(short_names, key=len, reverse=True):  # what names a model with its ending names no other
        lowered, times = re.subn(_spell(name), "\n", lowered, flags=re.ASCII)
        if times:
            known[names[name]] = None
    return known, unknown


_SIZED = re.compile(r"(?:[a-z]+-?\d|\w+-\w+-).*[-.\w]\d[bm](?:-instruct)?")
_JOINED = str.maketrans("", "", "-_ ")
_NO_DIGITS = str.maketrans("", "", "0123456789")


def _spell(name: str) -> str:
    """Return the pattern of a model's name; of one with generation and size as people write it, too: ``Qwen2.5-VL 7B``."""
    if _SIZED.fullmatch(name) is None:
        return rf"(?<![\w.-]){re.escape(name)}(?:-instruct|-hf|-chat|-base)?(?![\w.-])"
    words = re.sub(r"(?<=\d)-(?=\d)", "[-_ ]", re.escape(name).replace(r"\-", "-"))
    words = re.sub(r"(?<!\[)-", "[-_ ]?", words)
    return rf"(?<![\w.-]){words}(?:[-_ ](?:instruct|hf|chat|base))?(?![\w.-])(?! (?:vl|coder|math|mini|moe|omni|a\d))"


def _lines_with(log: str, folded: str, literals: Iterable[str]) -> str:
    """Return the lines on which one of some literals stands, in their order."""
    begins: dict[int, int] = {}
    for literal in literals:
        end = 0
        while (position := folded.find(literal, end)) >= 0:
            begin = log.rfind("\n", 0, position) + 1
            end = log.find("\n", position)
            begins[begin] = end = len(log) if end < 0 else end
    return "\n".join(log[begin:end] for begin, end in sorted(begins.items()))


def _read_packages(log: str, folded: str) -> Iterator[tuple[str, str, int]]:
    """Yield the packages that a log names with a version, and where."""
    for name in _NAMES:
        end = 0
        while (begin := folded.find(name, end)) >= 0:
            end = begin + len(name)
            if begin == 0 or log[begin - 1] in _BEFORE_NAME:
                match = _VERSION.match(log, end) or _CHANGE.match(log, end)
                for version in () if match is None else match.groups():
                    yield _CALLED.get(name, name), version, begin
    for match in _TORCH.finditer(folded):
        yield "torch", log[match.start("version") : match.end("version")], match.start()


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
