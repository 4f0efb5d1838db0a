"""Turn an environment, documents, hardware and settings into a subject with facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.facts import Fact, Facts, Value
from compatcheck.core.source import Source
from compatcheck.resolution.auto import drop_unowned, fill_in
from compatcheck.resolution.defaults import apply_defaults
from compatcheck.resolution.derive import derive
from compatcheck.resolution.merge import DECLARED, INSTALLED, MEASURED, SETTING, Claim, claims_of, merge
from compatcheck.resolution.scope import FactScope
from compatcheck.resolution.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.core.hardware import Hardware
    from compatcheck.rules.database import RuleSet

TRAIN = "train"
"""The only role outside reinforcement learning."""

_FRAMEWORKS = {"hf_trainer", "trl", "openrlhf", "verl", "llamafactory", "axolotl", "torchtune"}
"""Readers of a framework's own configuration; a DeepSpeed or accelerate file does not tell which program reads it."""

_ROUNDS = 3
"""Derived facts open defaults and defaults open derived facts; longer chains than this do not exist."""


def resolve(
    subject_id: str,
    *,
    rules: RuleSet,
    environment: Environment | None = None,
    documents: Sequence[Document] = (),
    hardware: Sequence[tuple[Hardware, bool]] = (),
    settings: Mapping[str, tuple[Value, Source]] | None = None,
) -> Subject:
    """Resolve one subject.

    Args:
        subject_id: short name of the subject in reports.
        rules: default rows, releases and tables.
        environment: what is installed, locked or required.
        documents: configuration files as their readers understood them.
        hardware: devices, each with whether it was declared (``--gpu``) and not measured.
        settings: ``--set`` values by fact.
    """
    claims = claims_of(documents)
    for name, (value, source) in (settings or {}).items():
        claims.setdefault(name, []).append(Claim(SETTING, "set", value, source))
    for device, declared in hardware:
        _claim_hardware(device, DECLARED if declared else MEASURED, claims)
    if environment is not None:
        _claim_environment(environment, claims)
    merged = merge(claims)
    facts = merged.facts
    readers = _readers(documents, facts)
    if merged.conflicts:
        names = tuple(sorted(conflict.fact for conflict in merged.conflicts))
        sources = tuple(source for conflict in merged.conflicts for _, source in conflict.values)
        facts["configuration.conflicts"] = Fact("configuration.conflicts", names, "derived", sources)
    elif documents:
        facts["configuration.conflicts"] = Fact("configuration.conflicts", (), "derived")
    _describe_gpu(facts, rules)
    scope = FactScope(facts, environment, rules)
    unresolved: dict[str, str] = {}
    for _ in range(_ROUNDS):
        before = len(facts)
        if merged.automatic:
            filled, unresolved = fill_in(merged.automatic, facts, set(readers))
            for name, fact in filled.items():
                facts.setdefault(name, fact)
        derive(facts)
        if readers:
            apply_defaults(readers, drop_unowned(documents, facts), scope, facts)
        if len(facts) == before:
            break
    pending = tuple((name, merged.automatic[name], why) for name, why in unresolved.items() if name not in facts)
    return Subject(
        id=subject_id,
        environment=environment,
        roles={TRAIN: Facts(facts)},
        documents=tuple(documents),
        conflicts=merged.conflicts,
        unresolved=pending,
        unread=tuple(
            (document.source._replace(key=key), near) for document in documents for key, near in document.unread
        ),
        skipped=(
            *(environment.skipped if environment is not None else ()),
            *(skipped for document in documents for skipped in document.skipped),
            *(skipped for device, _ in hardware for skipped in device.skipped),
        ),
    )


def _readers(documents: Sequence[Document], facts: dict[str, Fact]) -> list[str]:
    """List the programs that read this run's configuration and state the framework they imply."""
    readers = list(dict.fromkeys(document.reader for document in documents))
    frameworks = [(document.reader, document.source) for document in documents if document.reader in _FRAMEWORKS]
    if frameworks and "training.framework" not in facts:
        reader, source = frameworks[0]
        facts["training.framework"] = Fact(
            "training.framework",
            reader,
            "derived",
            (source,),
            "the program this file is for",
        )
    framework = facts.get("training.framework")
    if framework is not None and isinstance(framework.value, str) and framework.value not in readers:
        readers.insert(0, framework.value)
    stage = facts.get("training.zero_stage")
    if stage is not None and stage.value and "deepspeed" not in readers:
        readers.append("deepspeed")
    return [reader for reader in readers if reader not in {"native", "model", "script"}]


def _describe_gpu(facts: dict[str, Fact], rules: RuleSet) -> None:
    """Fill in what the catalogue knows of a device that a facts file names."""
    gpu = facts.get("hardware.gpu")
    if gpu is None or "hardware.memory_bytes" in facts:
        return
    from compatcheck.collectors.gpu import build_catalogue, find_gpus  # noqa: PLC0415 (only with a named device)

    found = find_gpus(str(gpu.value), build_catalogue(rules.section("gpus") or {}))
    if len(found) != 1:
        return
    for name in ("memory_bytes", "compute_capability", "multiprocessors"):
        value = getattr(found[0], name)
        if value is not None:
            facts.setdefault(
                f"hardware.{name}",
                Fact(f"hardware.{name}", value, "derived", gpu.sources, f"{found[0].name} in the catalogue"),
            )


def _claim_hardware(device: Hardware, rank: int, claims: dict[str, list[Claim]]) -> None:
    for name in (
        "gpu",
        "memory_bytes",
        "compute_capability",
        "multiprocessors",
        "gpus_per_node",
        "nodes",
        "driver",
        "host_memory_bytes",
        "nvlink",
    ):
        value = getattr(device, name)
        if value is not None:
            claims.setdefault(f"hardware.{name}", []).append(Claim(rank, "hardware", value, device.source))


def _claim_environment(environment: Environment, claims: dict[str, list[Claim]]) -> None:
    def claim(name: str, value: Value, source: Source) -> None:
        claims.setdefault(name, []).append(Claim(INSTALLED, "environment", value, source))

    place = Source(environment.origin)
    for name, (value, source) in environment.facts.items():
        claim(name, value, source)  # type: ignore[arg-type]  # collectors state vocabulary values
    if environment.python is not None:
        claim("runtime.python", environment.python, place)
    for component in ("cudnn", "nccl", "cublas", "triton"):
        package = environment.components.get(component) or environment.packages.get(component)
        if package is not None and package.version is not None:
            claim(f"runtime.{component}", package.version, package.source)
    driver = environment.components.get("driver")
    if driver is not None and driver.version is not None:
        claim("hardware.driver", driver.version, driver.source)
    if environment.complete and "peft" not in environment.packages and "transformers" in environment.packages:
        claim("training.peft", None, Source(f"peft is not in {environment.origin}"))
    for kind in ("duplicated", "mismatched", "pip_over_conda"):
        names = tuple(sorted(damage.package for damage in environment.damage if damage.kind == kind))
        if names or environment.complete:
            claim(f"environment.{kind}", names, place)
