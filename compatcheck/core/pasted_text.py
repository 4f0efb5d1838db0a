"""What surrounds the lines of a pasted text: colours, quotes, times, levels, and the prefixes that tell ranks apart."""

from __future__ import annotations

import re

from compatcheck.core.pattern import lazy_compile

_CONTROL = lazy_compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|␛\[[0-9;]*m|\[(?:0|1|\d\d)(?:;\d+)*m"
)
_STREAM = lazy_compile(
    r"""\s*(?:
    (?P<rank>\[(?:rank|default)?\s?\d+\])\s*:\s?
    |(?P<ray>\((?:[\w.]+[ ])?[\w.]*(?:\[\w+=\d+\])?\s?(?:Worker\d+[ ])?pid=\d+(?:,\s?ip=[^)]*)?\))\s?
    |(?P<mpi>\[\d+,\d+\]<std(?:err|out)>):\s?
    |(?P<worker>worker-?\d+|\d{1,3}(?:\.\d{1,3}){3}):\s
    |(?P<compose>[\w.-]+-\d+)\s+\|\s
    )""",
    re.VERBOSE,
)
_DECORATION = lazy_compile(
    r"""\s*(?:
    (?:>\s?)+
    |\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?\]?:?\s*
    |\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+
    |\[?(?:ERROR|WARNING|INFO|DEBUG|CRITICAL|FATAL)\]?\s*\|?:?\s+(?=\S)
    |\d\d-\d\d\s\d\d:\d\d:\d\d\s+(?:\[[\w./-]+:\d+\]|[\w./-]+:\d+\])\s?
    |\[[\w./-]+\.py:\d+(?::\w+)?\]\s?
    |\|\s+(?=\S)
    )""",
    re.VERBOSE,
)
_LAYERS = 8
"""Prefixes taken off one line at most: quote, container, time, level, place, rank, …"""


def fold_case(text: str) -> str:
    """Return a text in lower case with every position where it was: a search for a literal in it is fast."""
    return text.replace("\u0130", "I").lower()  # the one character whose lower case is two


def remove_colours(line: str) -> str:
    """Remove what colours a terminal, also where only the visible part of it was copied."""
    return _CONTROL.sub("", line)


def strip_prefixes(text: str) -> tuple[str, str]:
    """Take the prefixes off a line; return those that tell a rank or process, and the rest."""
    names: list[str] = []
    for _ in range(_LAYERS):
        found = _STREAM.match(text)
        if found is not None:
            names.append(next(group for group in found.groups() if group))
        else:
            found = _DECORATION.match(text)
        if found is None or found.end() == 0:
            break
        text = text[found.end() :]
    return " ".join(dict.fromkeys(names)), text


_REPORT = lazy_compile(
    rb"used to build PyTorch|GPU models and configuration|Nvidia driver version|PyTorch version ?\(|deepspeed wheel compiled"
    rb"|torch install path|NVIDIA-SMI|NVSMI LOG|\(UUID: (?:GPU|MIG)-|transformers.{0,4} version:|Accelerate.{0,4} version:"
    rb"|\[pip3?\] [\w.-]+==|\[conda\] \w|driver_version, |, driver_version|ROCk module"
    rb"|Cuda compilation tools, release|ROCm System Management|llamafactory.{0,4} version:|TRL version:|huggingface_hub version:"
    rb"|=  Unsloth:? (?:\d|Fast)|-(?:verl|Pip) Info-|Requirement already satisfied: \S|Successfully installed \S+-\d",
    needs=(
        *(
            b"version",
            b"PyTorch",
            b"GPU models and",
            b"wheel compiled",
            b"install path",
            b"NVIDIA-SMI",
            b"NVSMI LOG",
            b"(UUID: ",
        ),
        *(
            b"[pip",
            b"[conda] ",
            b"ROCk module",
            b"Cuda compilation",
            b"ROCm System",
            b"Unsloth",
            b" Info-",
            b"already satisfied",
        ),
        b"Successfully installed",
    ),
)
"""What no other file that is checked holds; tells a report of what is read as something else."""


LAUNCHERS = r"accelerate|torchrun|deepspeed|python[\d.]*|vllm|swift|llamafactory-cli|axolotl|tune|ray|trl|uv"
"""Programs that people start a training or a server with, as they stand in a command."""
_STARTS = lazy_compile(rf"(?:^|[\s/])(?:{LAUNCHERS})[ \t]+[^\s=<>!~;@,]".encode(), needs=(b" ", b"\t"))


def may_start_program(content: bytes) -> bool:
    """Tell whether a text may hold a command: the name of a launcher with something behind it that is no release."""
    return _STARTS.search(content) is not None


def looks_like_report(content: bytes) -> bool:
    """Tell whether a text holds a report of a known tool."""
    return _REPORT.search(content) is not None
