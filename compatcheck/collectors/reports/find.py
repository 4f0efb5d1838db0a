"""Find the reports in a text, and the environments they are of.

Reports that one person pasted one after the other are of one environment, unless they contradict each other; those of two
people never are, unless they say the same. What contradicts what was said before begins a new environment: nothing of two
machines is mixed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.collectors.python.components import (
    CONDA_FORGE,
    TorchBuild,
    find_components,
    find_conda_forge,
    read_torch_build,
)
from compatcheck.collectors.reports import (
    collect_env,
    ds_report,
    hugging_face,
    nvcc,
    nvidia_smi,
    package_list,
    unread,
    unsloth,
    verl_diagnose,
)
from compatcheck.collectors.reports.devices import describe_devices, list_differs
from compatcheck.collectors.reports.report import is_prefix, is_same
from compatcheck.collectors.reports.text import Part, split_parts
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from compatcheck.collectors.python.conda_records import CondaPackage
    from compatcheck.collectors.reports.report import PastedReport
    from compatcheck.core.environment import Package

_PROGRAMS = (
    "torch|pytorch|transformers|huggingface|deepspeed|accelerate|vllm|verl|trl|peft|flash|python|llamafactory"
    "|bitsandbytes|xformers|liger|openrlhf|axolotl|unsloth|ms.swift|sglang|megatron|triton|ray|datasets|nvidia|driver"
)
MARKS = (
    "used to build pytorch", "pytorch version", "is cuda available", "gpu models and configuration", "nvidia driver version",
    "cuda runtime version", r"\[pip3?\] ", r"\[conda\] ", "deepspeed info", "torch cuda version", "nvcc version", "torch version",
    r"wheel compiled w\.", "nvidia-smi", "driver version", r"mib ?/ {0,8}\d", "nvsmi log", r"gpu {1,3}\d{1,2}: ",
    "driver_version", r"memory\.total", r"mig \dg", "transformers.{0,4} version", "accelerate.{0,4} version", "trl version",
    "peft version", "deepspeed version", "factory.{0,4} version", "huggingface_hub version", "==", "package +version",
    "name +version +build", "compilation tools", r"\nversion: \d", "marketing name:", "rocm version", "rocm-smi", r"gfx\d",
    "vllm version",
    r"unsloth:? (?:\d|fast)", "python info-", "pip info-", "verl info-", "system info-", "requirement already satisfied: ",
    "successfully installed ",
    rf"\n[^\w\n]{{0,8}}(?:{_PROGRAMS})\b.{{0,40}}\d\.\d",
    r"\n[^\S\n]*[\w.-]+ {2,}\d+\.\d",
    r"\n[^\w\n]{0,4}\|[^|\n]{2,40}\|[^\w\n]{0,4}v?\d+\.\d",
)  # fmt: skip
"""One of these stands on some line of every report, in lower case and with a line break in front of the text; each begins with a
literal, which is searched many times faster than a choice."""
KNOWN = (
    "collect_env, ds_report, transformers env, accelerate env, hf env, nvidia-smi, Unsloth's banner, verl's diagnose.py, "
    "pip list, name==version lines"
)
"""Reports in words."""
_READERS = (collect_env, ds_report, hugging_face, unsloth, verl_diagnose, nvidia_smi, nvcc, unread, package_list)
"""In order: what one has read is not looked at by the next."""
_MOST_REPORTS = 400
"""Different reports of one text at most."""
MOST = 64
"""Environments of one text at most; the tools of a thread are run a few times."""


class FoundReport(NamedTuple):
    """One environment of a text, and the configuration that was pasted with it."""

    environment: Environment
    accelerate: Mapping[str, Any] | None = None
    """accelerate's configuration as ``transformers env`` and ``accelerate env`` print it."""
    accelerate_source: Source | None = None


def looks_like_list(head: bytes) -> bool:
    """Tell whether most lines state the release of a package in words: "torch: 2.5.1", "transformers version 4.46"."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    stated = sum(package_list.states_release(line) for line in lines[:_LOOKED_AT])
    return stated > 1 and 2 * stated > len(lines[:_LOOKED_AT])


_LOOKED_AT = 200


def read_reports(path: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read the environments that the reports of a text file state."""
    return tuple(found.environment for found in read_found(path, files))


def read_found(path: str, files: Files = LOCAL) -> tuple[FoundReport, ...]:
    """Read the environments of a text file with what was pasted beside them."""
    found = find_reports(decode(read_bytes(path, files), path), path)
    if not found:
        message = "holds no report of an environment that is known here"
        hint = f"known: {KNOWN}"
        raise InputError(message, source=Source(path), hint=hint)
    return found


def decode(data: bytes, path: str) -> str:
    """Decode a pasted text; what is not UTF-8 in it is replaced, for a log may hold anything."""
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", errors="replace")
    if data.count(b"\0", 0, 65536) > 64:
        message = "is not a text"
        raise InputError(message, source=Source(path), hint="name the text of the report")
    return data.decode("utf-8-sig", errors="replace")


def find_reports(text: str, path: str) -> tuple[FoundReport, ...]:
    """Find the environments that a text states."""
    reports: list[PastedReport] = []
    parts, cut = split_parts(text, MARKS)
    for part in parts:
        reports += _read_part(part, path)
    reports.sort(key=lambda report: report.source.line or 0)
    groups, left_out = _group(reports)
    several = len(groups) > 1
    found = []
    for group in groups:
        environment = _describe(group, path, several=several)
        reasons = [cut] if cut is not None else []
        if left_out:
            reasons.append(f"{left_out} more reports differ from all of these and were not read")
        for reason in reasons:
            environment = environment._replace(
                skipped=(*environment.skipped, Skipped(Source(path), reason, "give a part of the text", named=True))
            )
        configured = next((report for report in group if report.accelerate is not None), None)
        found.append(
            FoundReport(environment)
            if configured is None
            else FoundReport(environment, configured.accelerate, configured.accelerate_source)
        )
    return tuple(found)


def _read_part(part: Part, path: str) -> Iterator[PastedReport]:
    for reader in _READERS:
        spans = []
        for report in reader.read(part, path):
            spans.append((report.start, report.end))
            if report.states_something:
                yield report
        if spans:
            part = part._replace(text=_blank(part.text, spans))


def _blank(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Put blanks in the place of what was read, so that positions stay."""
    pieces, position = [], 0
    for start, end in sorted(spans):
        if end <= position:
            continue
        begin = max(start, position)
        pieces.append(text[position:begin])
        pieces.append(re.sub(r"[^\n]", " ", text[begin:end]))
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def _group(reports: Iterable[PastedReport]) -> tuple[list[list[PastedReport]], int]:
    """Put the reports of one environment together."""
    groups: list[list[PastedReport]] = []
    left_out = 0
    seen: set[object] = set()
    for report in reports:
        content = _content(report)
        if content in seen:
            continue
        if len(seen) == _MOST_REPORTS:
            left_out += 1
            continue
        seen.add(content)
        same = next((group for group in groups if any(_repeats(report, known) for known in group)), None)
        if same is not None and not any(contradict(report, known) for known in same):
            same.append(report)
            continue
        own = [group for group in groups if (group[0].writer, group[0].depth) == (report.writer, report.depth)]
        if own and not any(contradict(report, known) for known in own[-1]):
            own[-1].append(report)
        elif len(groups) < MOST:
            groups.append([report])
        else:
            left_out += 1
    return groups, left_out


def _content(report: PastedReport) -> object:
    """Return what tells a report from one that says the same again."""
    return (
        report.kind,
        report.writer,
        report.depth,
        tuple((name, package.version) for name, package in sorted(report.packages.items())),
        tuple(sorted((name, str(value)) for name, (value, _) in report.values.items())),
        tuple(report.devices),
        tuple(sorted(report.conda)),
        tuple(sorted(report.variables.items())),
        report.whole,
        len(report.skipped),
        report.accelerate is None,
    )


def _repeats(report: PastedReport, known: PastedReport) -> bool:
    """Tell whether a report says again what another of the same tool says, as every rank and every quotation does."""
    if report.kind != known.kind or contradict(report, known):
        return False
    mine, other = set(report.packages) | set(report.values), set(known.packages) | set(known.values)
    return len(mine & other) >= _ENOUGH or (mine == other and bool(mine) and report.devices == known.devices)


_ENOUGH = 3
_SHORTENED = frozenset({"python", "runtime.nvcc"})


def contradict(first: PastedReport, second: PastedReport) -> bool:
    """Tell whether two reports cannot be of one environment."""
    for name in first.packages.keys() & second.packages.keys():
        one, other = first.packages[name], second.packages[name]
        if one.version is None or other.version is None:
            if (one.version is None) != (other.version is None):
                return True
        elif not is_same(one.version, other.version):
            return True
    for name in first.values.keys() & second.values.keys():
        one_value, other_value = first.values[name][0], second.values[name][0]
        if one_value == other_value or name in _ROUNDED:
            continue
        if name in _SHORTENED and one_value and other_value and is_prefix(str(one_value), str(other_value)):
            continue
        return True
    return list_differs(first, second) or _builds_differ(first, second)


_ROUNDED = frozenset({"hardware.shm_bytes", "hardware.host_memory_bytes"})


def _builds_differ(first: PastedReport, second: PastedReport) -> bool:
    """Tell whether a label such as ``+cu118`` says another CUDA than the other report."""
    for one, other in ((first, second), (second, first)):
        package, stated = one.packages.get("torch"), other.values.get("runtime.torch_cuda")
        label = re.search(r"\+cu(\d{2})(\d)$", package.version or "") if package is not None else None
        if label is not None and stated is not None and stated[0] != f"{label[1]}.{label[2]}":
            return True
    return False


def _describe(group: list[PastedReport], path: str, *, several: bool) -> Environment:
    """Make an environment of the reports of one."""
    from compatcheck.collectors.machine.variables import attach, collect_variables  # noqa: PLC0415 (beside its use)

    packages, values, conda = _merge(group)
    build = _read_build(packages.get("torch"), values, conda)
    components, remarks = find_components(
        {name: package for name, package in packages.items() if package.version is not None}, conda, build
    )
    first = group[0]
    kinds = list(dict.fromkeys(report.kind for report in group))
    who = f"{first.writer}, " if first.writer else ""
    origin = f"{path} ({who}line {first.source.line}: {', '.join(kinds)})" if several else path
    facts = {name: value for name, value in values.items() if "." in name}
    if build is not None and build.build is not None:
        facts.setdefault("runtime.torch_build", (build.build, build.source))
        facts.setdefault("runtime.torch_cuda", (build.cuda, build.source))
        forge = find_conda_forge(packages["torch"], conda) if "torch" in packages else None
        if forge is not None:
            facts.setdefault(CONDA_FORGE, (True, forge))
    host = facts.pop("hardware.host_memory_bytes", None)
    hardware = describe_devices(group, values.get("driver"), host)
    python = values.get("python")
    environment = Environment(
        origin,
        packages,
        complete=False,
        python=None if python is None else str(python[0]),
        components=components,
        facts=facts,
        hardware=hardware,
        skipped=tuple(
            dict.fromkeys(
                entry for report in group for entry in report.skipped if not _is_known(entry, values, hardware)
            )
        ),
        notes=(*dict.fromkeys(note for report in group for note in report.notes), *remarks),
    )
    stated = next((report for report in group if report.variables), None)
    if stated is not None:
        source = stated.variables_source or stated.source
        environment = attach(environment, collect_variables(stated.variables, source), complete=False)
    return environment


def _read_build(
    torch: Package | None, values: Mapping[str, tuple[Any, Source]], conda: Mapping[str, CondaPackage]
) -> TorchBuild | None:
    """Return the build of torch; None where nothing says anything of it.

    "CUDA used to build PyTorch: None" says that it is no CUDA build; which other one it is, only a label tells.
    """
    stated = values.get("runtime.torch_cuda")
    if stated is not None and stated[0] is not None:
        return TorchBuild("cuda", str(stated[0]), stated[1])
    other = values.get("runtime.torch_build")
    if other is not None:
        return TorchBuild(str(other[0]), None, other[1])
    told = read_torch_build(torch, None, conda) if torch is not None and torch.version is not None else None
    if stated is not None:
        return TorchBuild(told.build if told is not None and told.cuda is None else None, None, stated[1])
    return told


def _merge(group: list[PastedReport]) -> tuple[dict[str, Any], dict[str, tuple[Any, Source]], dict[str, Any]]:
    """Put together what the reports of one environment state; of two spellings of a release the more exact one stands."""
    packages: dict[str, Any] = {}
    values: dict[str, tuple[Any, Source]] = {}
    conda: dict[str, Any] = {}
    for report in group:
        for name, package in report.packages.items():
            known = packages.get(name)
            longer = known is not None and len(package.version or "") > len(known.version or "")
            if name not in report.torn and (known is None or longer):
                packages[name] = package
        for name, value in report.values.items():
            known_value = values.get(name)
            if name not in report.torn and (
                known_value is None
                or (name in _SHORTENED and len(str(value[0] or "")) > len(str(known_value[0] or "")))
            ):
                values[name] = value
        conda = {**report.conda, **conda}
    return packages, values, conda


def _is_known(entry: Skipped, values: Mapping[str, object], hardware: Any) -> bool:  # noqa: ANN401 (Hardware)
    """Tell whether another report of the same environment gives what this one could not collect."""
    if entry.fact == "hardware.driver":
        return "driver" in values
    return entry.fact == "hardware.gpu" and hardware is not None and hardware.gpu is not None
