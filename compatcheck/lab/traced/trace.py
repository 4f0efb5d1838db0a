"""Trace a training step in the person's interpreter and estimate from it: peaks of every phase, allocated and reserved.

The program that does it imports nothing of compatcheck and is started by its path, as the probes' worker is. Both share that
worker's accounting and declared decisions; since this package lies below `probes`, it hands the program the worker's folder and
imports nothing of it.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from compatcheck.core.estimate import Assumption, Component, Estimate, Phase, Unmodelled, Verdict, exactly, total
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.process import run
from compatcheck.core.programs import trusted_path
from compatcheck.core.units import MIB, format_bytes
from compatcheck.lab.traced.allocator import Settings
from compatcheck.lab.traced.replay import Mark, PhasePeak, Replay, replay
from compatcheck.lab.traced.request import OwnSource, StepRequest, Untraceable, make_request
from compatcheck.memory.closed_form.context import CONTEXT, nccl_buffers
from compatcheck.memory.closed_form.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.core.facts import Fact, Value

PROGRAM = Path(__file__).with_name("program") / "__main__.py"
WORKER = Path(__file__).parents[1] / "probes" / "worker"
TIMEOUT_SECONDS = 600.0
BUCKET_BYTES = 25 * MIB
"""``bucket_cap_mb`` of DistributedDataParallel."""
_PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TMPDIR", "USER")
_KINDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_states": "optimizer_states",
    "logits": "logits",
    "masks": "masks",
    "communication": "communication",
    "live_parameters": "live_parameters",
    "workspace": "workspace",
    "optimizer temporaries": "workspace",
}
_SOURCE = "traced: the model's own code on fake tensors"


class Runtime(Protocol):
    """Where a model's class is run, as `compatcheck.lab.environments.interpreter.Interpreter` is."""

    @property
    def python(self) -> str:
        """The interpreter's program."""

    def environment(self) -> dict[str, str]:
        """Return the variables of its processes."""


class Peak(NamedTuple):
    """The tensor that makes the peak of a phase, or the allocation that reached it."""

    phase: str
    bytes: int
    """What was live, without the allocator's rounding."""
    operator: str
    """What ran when the peak was reached."""
    tensor_bytes: int
    shape: tuple[int, ...]
    dtype: str
    made_by: str
    """The operator that made the tensor."""
    module: str
    """Path of the module it was made in."""


class Trace(NamedTuple):
    """An estimate with what it was made from."""

    estimate: Estimate
    timeline: tuple[tuple[int, int, int], ...]
    """Event, allocated bytes and reserved bytes, over two steps."""
    marks: tuple[Mark, ...]
    """Where phases begin on the timeline; ``between`` is where one has ended."""
    peaks: tuple[Peak, ...]
    replay: Replay
    versions: Mapping[str, str]
    notes: Mapping[str, Any]
    """``class``, ``parameters``, ``attn_implementation``, ``attention_kernels``, ``decided``."""


def trace(
    facts: Mapping[str, Fact | Value],
    *,
    config: Mapping[str, Any],
    python: str | Runtime,
    own: OwnSource | None = None,
    versions: Mapping[str, tuple[int, ...]] | None = None,
) -> Trace | Untraceable:
    """Trace the training step that facts describe.

    Args:
        facts: of one role of a subject, by the vocabulary's names, as `Fact` or as plain values.
        config: the model's ``config.json``.
        python: the interpreter that has torch and transformers.
        own: the person's function that builds what is trained, in the place of a class of transformers.
        versions: releases of what is around the step, as `make_request` takes them.

    Returns:
        The trace, or the reason why there is none: nothing is raised for a model or a release that cannot be traced.
    """
    request = make_request(facts, config, own, versions)
    if isinstance(request, Untraceable):
        return request
    found = run_program([request.program], python)
    if isinstance(found, Untraceable):
        return found
    (result,) = found
    if result["status"] != "ok":
        return Untraceable(result["reason"])
    return conclude(result, request, facts)


def run_program(requests: Sequence[Mapping[str, Any]], python: str | Runtime) -> list[dict[str, Any]] | Untraceable:
    """Run requests of `StepRequest.program` in one process of an interpreter and return their results."""
    program = python if isinstance(python, str) else python.python
    environ = plain_environment() if isinstance(python, str) else python.environment()
    with tempfile.TemporaryDirectory(prefix="compatcheck-trace-") as folder:
        asked, answered = os.path.join(folder, "requests.json"), os.path.join(folder, "results.json")
        Path(asked).write_text(json.dumps({"worker": str(WORKER), "requests": list(requests)}), encoding="utf-8")
        completed = run(
            [program, str(PROGRAM), asked, answered],
            timeout_seconds=TIMEOUT_SECONDS,
            environ={**environ, "TMPDIR": folder, "CUDA_VISIBLE_DEVICES": ""},
        )
        try:
            results: list[dict[str, Any]] = json.loads(Path(answered).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            lines = [line.strip() for line in completed.output.splitlines() if line.strip()]
            if any("No module named 'torch'" in line for line in lines):
                return Untraceable(f"{program} has no torch")
            return Untraceable(f"{completed.describe()}: {lines[-1][:300]}" if lines else completed.describe())
    return results


def plain_environment() -> dict[str, str]:
    """Return the variables of an interpreter of the person's: nothing is downloaded, nothing is asked of a GPU."""
    return {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        "PATH": trusted_path(os.environ.get("PATH", "")),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONWARNINGS": "ignore",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
    }


def allocator_settings(facts: Mapping[str, Fact | Value]) -> Settings:
    """Return the allocator's settings as facts have them; what is unknown is torch's default."""
    value = {name: getattr(fact, "value", fact) for name, fact in facts.items() if name.startswith("allocator.")}
    split = value.get("allocator.max_split_size_mb")
    return Settings(
        expandable_segments=bool(value.get("allocator.expandable_segments")),
        max_split_size_bytes=int(split) * MIB if isinstance(split, (int, float)) else None,
        garbage_collection_threshold=float(value.get("allocator.garbage_collection_threshold") or 0.0),  # type: ignore[arg-type]
    )


def conclude(result: Mapping[str, Any], request: StepRequest, facts: Mapping[str, Fact | Value]) -> Trace:
    """Replay the events of a program's result and put the components of every phase together."""
    events = [tuple(event) for event in result["events"]]
    marks = tuple(Mark(begin, name) for begin, name in result["marks"])
    sharded = request.program["fsdp"] is not None
    if sharded:
        events, marks = _without_loading(events, marks)
    buckets = 0
    if request.buckets:
        buckets = result["notes"]["trainable_bytes"]
        events, marks = _with_buckets(events, marks, buckets)
    outside = _outside(facts)
    settings = allocator_settings(facts)
    free = replay(events, marks, settings)
    last: dict[str, PhasePeak] = {}
    for (
        phase
    ) in free.phases:  # the last step counts, or the highest of micro batches that are not as long as each other
        if request.program.get("shorter") is None or phase.allocated >= last.get(phase.name, phase).allocated:
            last[phase.name] = phase
    phases = []
    for found in result["phases"]:
        if sharded and found["name"] == "load":
            continue
        numbers = last[found["name"]]
        parts = [_component(name, part) for name, part in found["components"].items()]
        if buckets and found["name"] != "load":
            parts.append(_bucket_component(buckets, result["notes"]["trainable_parameters"]))
        known = sum(part.size.expected for part in parts)
        parts.append(
            Component(
                "rounding of blocks",
                "workspace",
                exactly(max(numbers.allocated - known, 0)),
                f"{numbers.allocated:,} B in blocks for {known:,} B asked for",
                "replay of c10/cuda/CUDACachingAllocator.cpp",
            )
        )
        cached = max(numbers.reserved - max(numbers.allocated, known), 0)
        formula = f"{numbers.reserved:,} B reserved - {max(numbers.allocated, known):,} B allocated"
        parts.append(Component("cached blocks", "reserve", exactly(cached), formula, parts[-1].source))
        phases.append(Phase(found["name"], "train", (*parts, *outside)))
    estimate = Estimate(
        method="traced",
        phases=tuple(phases),
        verdict=_judge(tuple(phases), events, marks, settings, plain(facts, "hardware.memory_bytes")),
        assumptions=(*request.assumptions, *_load_assumption(sharded=sharded)),
        unmodelled=tuple(_unmodelled(result["notes"])),
    )
    return Trace(
        estimate,
        free.timeline,
        marks,
        tuple(_peak(found) for found in result["phases"]),
        free,
        result["versions"],
        result["notes"],
    )


def _without_loading(
    events: list[tuple[int, ...]], marks: tuple[Mark, ...]
) -> tuple[list[tuple[int, ...]], tuple[Mark, ...]]:
    """Leave out what was freed before the first forward pass: a sharded model is not loaded whole on its device."""
    begin = next(mark.begin for mark in marks if mark.name == "forward")
    freed = {event[0] for event in events[:begin] if not event[1]}
    kept = [event for event in events[:begin] if event[0] not in freed]
    moved = begin - len(kept)
    later = tuple(Mark(max(mark.begin - moved, 0) if mark.begin >= begin else 0, mark.name) for mark in marks)
    return [*kept, *events[begin:]], later


def _with_buckets(
    events: list[tuple[int, ...]], marks: tuple[Mark, ...], total: int
) -> tuple[list[tuple[int, ...]], tuple[Mark, ...]]:
    """Put DDP's buckets, which it makes when it takes the model, in front of the first forward pass."""
    begin = next(mark.begin for mark in marks if mark.name == "forward")
    sizes = [BUCKET_BYTES] * (total // BUCKET_BYTES) + ([total % BUCKET_BYTES] if total % BUCKET_BYTES else [])
    made: list[tuple[int, ...]] = [(-number, size, 0) for number, size in enumerate(sizes, 1)]
    later = tuple(Mark(mark.begin + (len(made) if mark.begin > begin else 0), mark.name) for mark in marks)
    return [*events[:begin], *made, *events[begin:]], later


def _bucket_component(total: int, parameters: int) -> Component:
    return Component(
        "gradient buckets of DDP",
        "communication",
        exactly(total),
        f"{total:,} B of {parameters:,} trainable parameters",
        "torch/csrc/distributed/c10d/reducer.cpp, Reducer::initialize_buckets, without gradient_as_bucket_view",
    )


def _component(name: str, part: Mapping[str, Any]) -> Component:
    tensors = ", ".join(
        f"{tensor['dtype'] or 'bytes'}{tensor['shape']} of {tensor['operator']}"
        + (f" in {tensor['module']}" if tensor["module"] else "")
        for tensor in part["largest"]
    )
    formula = f"{format_bytes(part['bytes'])} of tensors; the largest: {tensors}"
    return Component(name.replace("_", " "), _KINDS.get(name, "activations"), exactly(part["bytes"]), formula, _SOURCE)


def _peak(found: Mapping[str, Any]) -> Peak:
    tensor = found["peak"] or {"bytes": 0, "shape": [], "dtype": "", "operator": "", "module": ""}
    return Peak(
        phase=found["name"],
        bytes=found["peak_bytes"],
        operator=found["operator"] or "",
        tensor_bytes=tensor["bytes"],
        shape=tuple(tensor["shape"]),
        dtype=tensor["dtype"],
        made_by=tensor["operator"],
        module=tensor["module"],
    )


def _outside(facts: Mapping[str, Fact | Value]) -> tuple[Component, ...]:
    """Return what the device holds beside the allocator's memory, as the closed form has it."""
    source = "memory/closed_form/context.py, with its sources"
    parts = [Component("CUDA context", "context", CONTEXT, "kernels are loaded as they are used", source)]
    world = plain(facts, "hardware.world_size") or 1
    if world > 1:
        parts.append(Component("NCCL", "context", nccl_buffers(world), "a communicator", source))
    if others := plain(facts, "run.other_resident_bytes"):
        parts.append(Component("other processes", "other", exactly(others), "stated", "run.other_resident_bytes"))
    return tuple(parts)


def plain(facts: Mapping[str, Fact | Value], name: str) -> int | None:
    """Return a number among facts, None when it is unknown."""
    found = facts.get(name)
    value = getattr(found, "value", found)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _judge(
    phases: tuple[Phase, ...],
    events: Sequence[tuple[int, ...]],
    marks: tuple[Mark, ...],
    settings: Settings,
    limit: int | None,
) -> Verdict:
    """Replay the run on a device of this size.

    It fits when nothing is in want with the largest CUDA context, does not when something is with the smallest, and is marginal
    in between, or when the cache has to be emptied.
    """
    # Reserved memory stays from phase to phase: the first of those that judge finds equal is the one that needs most.
    verdict = judge(tuple(sorted(phases, key=lambda phase: -phase.needed.expected)), limit)
    if limit is None:
        return verdict
    outside = total(part.size for part in phases[-1].components if part.kind in {"context", "other"})
    most, least = (
        replay(events, marks, settings, device_bytes=max(limit - size, 0))  # type: ignore[arg-type]
        for size in (outside.low, outside.high)
    )
    if most.out_of_memory is not None:
        outcome = "does_not_fit"
    else:
        outcome = "fits" if least.out_of_memory is None and not least.retries else "marginal"
    return verdict._replace(outcome=outcome)


def _load_assumption(*, sharded: bool) -> tuple[Assumption, ...]:
    if not sharded:
        return ()
    return (Assumption("load", None, "how a sharded model is loaded differs by launcher; that phase is left out"),)


def _unmodelled(notes: Mapping[str, Any]) -> list[Unmodelled]:
    found = [
        Unmodelled(
            "other workspaces", "more", "what cuBLASLt and kernels take inside is seen for flash attention only"
        ),
    ]
    for kernel in ("efficient", "cudnn"):
        if notes.get("attention_kernels", {}).get(kernel):
            reason = f"the {kernel} attention kernel takes memory in its backward pass that is not counted"
            found.append(Unmodelled(f"workspace of {kernel} attention", "more", reason))
    return found
