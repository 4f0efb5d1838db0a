"""The lists of ``transformers env``, ``accelerate env``, ``trl env``, ``diffusers-cli env`` and ``llamafactory-cli env``.

They are Markdown lists of "X version: Y" that people fill in, shorten and copy line by line, so each line counts alone. "not
installed" is what the program found no usable release of: for torch and accelerate that may be one that is too old for it.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.reports.collect_env import is_device_name
from compatcheck.collectors.reports.report import (
    Device,
    Field,
    PastedReport,
    find_fields,
    is_version,
    open_report,
    place,
    tidy,
)
from compatcheck.core.data_file import read_data
from compatcheck.core.python_code import parse_python
from compatcheck.core.source import Skipped
from compatcheck.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.reports.text import Part

_TABLE = read_data(__file__, "hugging_face")
_PACKAGES: dict[str, str] = _TABLE["packages"]
"""How the lists write a distribution, lower case → its name."""
_UNSURE = frozenset({"torch", "accelerate", "safetensors", "vllm", "liger-kernel", "bitsandbytes", "tensorflow"})
"""What "not installed" may mean too old of, or unusable."""
_OTHERS: list[str] = _TABLE["others"]
"""Labels of other lines."""
_HUB: dict[str, str] = _TABLE["hub"]
"""How ``huggingface-cli env`` writes a distribution, lower case → its name; it writes no "version" behind it."""
_LABEL = re.compile(
    r"(?<![A-Za-z0-9_.-])((?:"
    + "|".join(re.escape(name) for name in _PACKAGES)
    + r") version(?: \((?:gpu|accelerator)\?\))?"
    r"|" + "|".join(re.escape(name) for name in _OTHERS) + r"|(?<=- )(?:" + "|".join(_HUB) + r")) {0,3}: {0,8}",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"(?:transformers|accelerate|huggingface_hub|hf hub|trl|peft|llamafactory|diffusers|datasets) version"
    r"|pytorch version \(|accelerate (?:default )?config|using (?:gpu|distributed)",
    re.IGNORECASE,
)
_TORCH = re.compile(r"(\S{1,60})(?: \((?:True|False|GPU|NPU|NA|CUDA|NPU|XPU|HPU|MPS|None|CPU|cuda|yes|no)\))?")
_GAP = 2_500
_MEMORY = re.compile(r"(\d{1,4}\.\d{2}) ?GB")
_BULLET = re.compile(r" {0,8}[-*•] {0,3}| {1,8}(?=\w)")


def read(part: Part, path: str) -> Iterator[PastedReport]:
    """Read the reports of a part."""
    fields = find_fields(
        part.text, _LABEL, ("accelerate config", "accelerate default config", "accelerate config passed")
    )
    current: list[Field] = []
    seen: set[str] = set()
    for entry in fields:
        entry = entry._replace(label=entry.label.lower())  # noqa: PLW2901 (the same, as it is looked up)
        if current and (entry.label in seen or entry.start - current[-1].end > _GAP):
            yield from _report(current, part, path)
            current, seen = [], set()
        current.append(entry)
        seen.add(entry.label)
    if current:
        yield from _report(current, part, path)


def _report(fields: list[Field], part: Part, path: str) -> Iterator[PastedReport]:
    if len(fields) < 2 or not any(_OWN.match(entry.label) for entry in fields):
        return
    of_hub = any(entry.label == "huggingface_hub version" for entry in fields)
    report = open_report("environment list", part, path, fields[0].start, fields[-1].end)
    for entry in fields:
        if entry.label not in _HUB:
            _take(entry, report, part, path)
            continue
        value, source = _without_next_bullet(entry.value), place(part, entry.start, path, entry.label)
        if value != "N/A":
            _take_package(_HUB[entry.label], value, report, source)
        elif of_hub:
            _take_package(_HUB[entry.label], "not installed", report, source)
    count = report.values.pop("gpu number", None)
    if count is not None and len(report.devices) == 1:
        report.devices *= count[0]
        report.whole, report.others = True, False
    memory = report.values.pop("gpu memory", None)
    if memory is not None:
        report.devices = [device._replace(memory_bytes=memory[0]) for device in report.devices]
    if report.states_something:
        yield report


def _take(entry: Field, report: PastedReport, part: Part, path: str) -> None:
    label, value = entry.label, _without_next_bullet(entry.value)
    source = place(part, entry.start, path, label)
    name, found, _ = label.partition(" version")
    if found and name in _PACKAGES:
        _take_package(_PACKAGES[name], value, report, source)
        return
    match label:
        case "python version":
            if re.fullmatch(r"3\.\d{1,2}\.\d{1,2}", value):
                report.values["python"] = (value, source)
        case "gpu type" | "cuda device":
            if is_device_name(value):
                report.devices, report.devices_source, report.others = [Device(value)], source, True
        case "gpu number":
            if re.fullmatch(r"[1-9]\d?", value):
                report.values["gpu number"] = (int(value), source)
        case "gpu memory":
            size = _MEMORY.fullmatch(value)
            if size is not None:
                report.values["gpu memory"] = (round(float(size[1]) * GIB), source)
        case "cuda device(s)" | "accelerator(s)":
            names = [piece.strip() for piece in value.split(",")]
            if all(map(is_device_name, names)) and value.lower() not in {"not available", "cpu", "mps"}:
                report.devices, report.devices_source, report.whole = [Device(name) for name in names], source, True
        case "system ram":
            size = re.fullmatch(r"(\d{1,6}\.\d{2}) GB", value)
            if size is not None:
                report.values["hardware.host_memory_bytes"] = (round(float(size[1]) * GIB), source)
        case "accelerate config" | "accelerate default config" | "accelerate config passed":
            _take_configuration(entry, report, source)
        case _:
            pass


def _without_next_bullet(value: str) -> str:
    """Remove the bullet of the next entry, where line breaks were lost."""
    return tidy(re.sub(r" [-*•]$", "", value))


def _take_package(name: str, value: str, report: PastedReport, source: Any) -> None:  # noqa: ANN401 (a Source)
    if value.lower().startswith("not installed"):
        if name in _UNSURE:
            report.notes.append(f"{source}: {name} is not installed, or too old for the program that wrote the list")
        elif value.lower() == "not installed":
            report.add_absent(name, source)
        return
    first, _, rest = value.partition(" ")
    if rest.startswith("(") and ")" not in rest and is_version(first):  # a remark that goes on in the next line
        value = first
    if name == "torch":
        found = _TORCH.fullmatch(value)
        value = found[1] if found is not None else ""
    if name == "trl" and re.fullmatch(r"[\d.]{3,12}(?:\.dev\d)?\+[0-9a-f]{7}", value):
        value = value.partition("+")[0] if ".dev" not in value else value
    if value and is_version(value):
        report.add_package(name, value, source)


def _take_configuration(entry: Field, report: PastedReport, source: Any) -> None:  # noqa: ANN401 (a Source)
    """Take accelerate's configuration: a list below the line, its values written as Python writes them."""
    if "not found" in entry.rest[:40].lower() or "\n" not in entry.rest:
        return
    data: dict[str, Any] = {}
    text, glued = _GLUED.subn("\n", entry.rest)
    lines = text.split("\n")
    for line in lines[:-1]:  # transformers prints the first key behind the label
        bullet = _BULLET.match(line)
        key, colon, text = line[bullet.end() if bullet else 0 :].partition(": ")
        if not line.strip() and not data:
            continue
        if not colon or re.fullmatch(r"[a-z_0-9]{2,60}", key) is None:
            break
        data[key] = _read_value(text.strip())
    if data.keys() & {"compute_environment", "distributed_type"}:
        section = _SECTIONS.get(str(data.get("distributed_type")))
        whole = not (glued and _is_torn(data)) and data.keys() >= _WHOLE and section in {None, *data}
        report.accelerate, report.accelerate_source = (data if whole else None), source
        if not whole:
            reason = "the configuration of accelerate may be cut off or has lost its line breaks"
            report.skipped.append(Skipped(source, reason, "name the file of accelerate itself", named=True))


def _is_torn(data: dict[str, Any]) -> bool:
    """Tell whether lines that were put together may have lost a key between them, or hold a prefix of a log."""
    texts = (value for value in data.values() if isinstance(value, str))
    return not {"machine_rank", "num_machines"} <= data.keys() or any(" " in text for text in texts)


_GLUED = re.compile(r"(?<=\S)[ \t]+(?=[-*] {0,3}[a-z_0-9]{2,60}: )")
"""Between two keys in one line: its break was lost."""
_WHOLE = {"compute_environment", "distributed_type", "num_processes", "downcast_bf16"}
"""What accelerate prints of every configuration, the last behind the sections that matter (``ClusterConfig`` in
accelerate/commands/config/config_args.py)."""
_SECTIONS = {"DEEPSPEED": "deepspeed_config", "FSDP": "fsdp_config", "MEGATRON_LM": "megatron_lm_config"}
_LONGEST_VALUE = 4000


def _read_value(text: str) -> Any:  # noqa: ANN401 (a Python literal)
    """Read one value: ``no``, ``16``, ``None``, ``{'zero_stage': 3}``; what is no literal is text."""
    if len(text) <= _LONGEST_VALUE and text.count("[") + text.count("{") + text.count("(") <= 20:
        try:
            return ast.literal_eval(parse_python(text, "eval"))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            pass
    return text
