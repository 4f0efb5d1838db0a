"""Runs of every option that a release's own configuration classes declare: each value alone, and those that tell in pairs.

Nobody chooses these settings: the classes are asked in both releases what fields they have (`probes/worker/fields.py`). A pair is
of two that run alone, one value of a field, one of which changes a number of the plain run by itself. What is not told is as in
that run: float32 weights, one rank, no adapter.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.process import run
from compatcheck.lab.pairwise import join_pairs
from compatcheck.lab.probes.probe import find_probe
from compatcheck.lab.probes.runner import make_task
from compatcheck.lab.release_series import differ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.lab.environments.interpreter import Interpreter
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Laboratory
    from compatcheck.lab.probes.runner import Task

PROBE = "configured_run"
TOGETHER = 4
"""Values that a run has beside the plain one: each more makes runs fewer, and fail more often."""
_FIELDS = Path(__file__).with_name("probes") / "worker" / "fields.py"
_SECONDS = 300.0


class Kind(NamedTuple):
    """Runs of one trainer, and the class that configures them."""

    classes: str
    """``MODULE:NAME``, a comma between those of which the first that is there counts."""
    base: Mapping[str, Any]
    """Parameters of the plain run."""
    parameter: str = "options"
    prefix: str = ""


def _of_trl(trainer: str, stem: str) -> Kind:
    classes = f"trl:{stem}Config,trl.experimental.{trainer}:{stem}Config"
    return Kind(classes, {"trainer": trainer, "length": 128})


KINDS: Mapping[str, tuple[Kind, ...]] = {
    "trl": (
        _of_trl("sft", "SFT"),
        _of_trl("dpo", "DPO"),
        _of_trl("grpo", "GRPO"),
        _of_trl("rloo", "RLOO"),
        _of_trl("kto", "KTO"),
        _of_trl("reward", "Reward"),
    ),
    "transformers": (Kind("transformers:TrainingArguments", {"trainer": "hf", "length": 128}),),
    "peft": (Kind("peft:LoraConfig", {"trainer": "hf", "length": 128, "adapter": "lora"}, "adapter", "lora+"),),
    "deepspeed": (
        Kind(
            "deepspeed.runtime.zero.config:DeepSpeedZeroConfig",
            {"trainer": "deepspeed", "dtype": "bfloat16", "length": 64, "hidden": 128, "vocab": 512},
            prefix="zero_optimization.",
        ),
    ),
}
EXCLUDED: Mapping[str, str] = {
    "the probe tells these": (
        r"output_dir|overwrite_output_dir|report_to|disable_tqdm|use_cpu|no_cuda|max_steps|num_train_epochs|num_generations"
        r"|rloo_k|per_(device|gpu)_\w+|max_(prompt|completion)_length"
    ),
    "what is written, and where": (
        r"run_name|log(ging)?_\w+|save_\w+|hub_\w+|push_to_hub\w*|trackio\w*|project|resume_\w+|load_best_\w+|full_determinism"
    ),
    "another machine or another kind of it": (
        r"vllm_\w+|use_vllm|use_transformers_paged|ds3_gather_\w+|fp16\w*|half_precision_backend|tf32|tpu_\w+|use_mps_device"
        r"|use_ipex|jit_mode_eval|debug|torch_empty_cache_steps"
    ),
    "further processes": r"ddp_\w+|fsdp\w*|local_rank|parallelism_config|dataset_num_proc|dataloader_num_workers",
    "compiles for minutes": r"torch_compile\w*|torchdynamo",
    "moves no tensor": (
        r"do_\w+|past_index|greater_is_better|metric_for_best_model|ignore_data_skip|data_seed|lr_scheduler_type"
        r"|skip_memory_metrics"
    ),
}
"""Why a field is left out → the names of such fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumerated:
    """What is run of two releases, and what only the newer one has."""

    tasks: tuple[Task, ...]
    new: tuple[str, ...]
    """Options, or values of them, that the older release has not: ``SFTConfig.loss_type=dft``."""
    failed: tuple[Measurement, ...] = field(repr=False)
    """Values that cannot be run alone in the newer release."""


def read_fields(interpreter: Interpreter, kinds: Sequence[Kind]) -> dict[str, dict[str, list[Any]]]:
    """Ask an environment for the fields of the classes of these kinds, and the values to try; nothing where it cannot say."""
    command = (interpreter.python, str(_FIELDS), *(kind.classes for kind in kinds))
    done = run(command, timeout_seconds=_SECONDS, environ=interpreter.environment(), errors=False)
    lines = done.output.splitlines()
    return json.loads(lines[-1]) if done.succeeded and lines else {}


def enumerate_runs(laboratory: Laboratory, before: str, after: str, backend: str) -> Enumerated:
    """Return the runs of every option that both releases have; each is measured alone in the newer one for it.

    Raises:
        UnbuildableError: a release could not be installed.
    """
    kinds = KINDS.get(laboratory.package, ())
    if not kinds:
        return Enumerated(tasks=(), new=(), failed=())
    older, newer = (read_fields(laboratory.interpreter(version), kinds) for version in (before, after))
    new, plans = [], []
    for kind in kinds:
        settings = _settings(newer.get(kind.classes, {}))
        known = _settings(older.get(kind.classes, {}))
        name = kind.classes.partition(",")[0].partition(":")[2]
        if kind.classes in newer and not older.get(kind.classes):
            new += [name] if newer[kind.classes] else []
            continue
        new += [f"{name}.{one}={_show(value)}" for one, value in settings if (one, value) not in known]
        plans.append((kind, [one for one in settings if one in known]))
    alone = [[_task(kind, (), backend), *(_task(kind, (one,), backend) for one in shared)] for kind, shared in plans]
    measured = iter(laboratory.measure(after, [task for tasks in alone for task in tasks]))
    tasks: list[Task] = []
    failed: list[Measurement] = []
    for (kind, shared), own in zip(plans, alone, strict=True):
        plain, *found = [next(measured) for _ in own]
        ran = [one for one, result in zip(shared, found, strict=True) if result.succeeded]
        failed += [result for result in found if not result.succeeded]
        telling = {
            one
            for one, result in zip(shared, found, strict=True)
            if result.succeeded and _differs(own[0], plain, result)
        }
        # In pairs a field has one value: the first that tells, else the first that runs.
        first = dict(reversed([*((one[0], one) for one in ran if one in telling), *((one[0], one) for one in ran)]))
        values = [one for one in ran if first[one[0]] == one]
        rows = join_pairs(values, lambda one, other: not telling.isdisjoint((one, other)), most=TOGETHER)  # noqa: B023
        tasks += [own[0], *(_task(kind, (one,), backend) for one in ran), *(_task(kind, row, backend) for row in rows)]
    return Enumerated(tasks=tuple(tasks), new=tuple(new), failed=tuple(failed))


def _settings(fields: Mapping[str, Sequence[Any]]) -> list[tuple[str, Any]]:
    """Return each field with each value to try, those left out that nothing can be seen of."""
    return [
        (name, value)
        for name, values in fields.items()
        if not any(re.fullmatch(names, name) for names in EXCLUDED.values())
        for value in values
        if "+" not in str(value)
    ]


def _task(kind: Kind, settings: Sequence[tuple[str, Any]], backend: str) -> Task:
    told = "+".join(
        f"{kind.prefix if kind.parameter == 'options' else ''}{name}:{_show(value)}" for name, value in settings
    )
    if told and kind.parameter != "options":
        told = kind.prefix + told
    return make_task(find_probe(PROBE), {**kind.base, **({kind.parameter: told} if told else {})}, backend)


def _show(value: Any) -> str:  # noqa: ANN401 (a value of an option)
    return value if isinstance(value, str) else json.dumps(value)


def _differs(task: Task, one: Measurement, other: Measurement) -> bool:
    """Tell whether a number that is compared differs by more than a probe varies."""
    values = [(metric, one.metric(metric), other.metric(metric)) for metric in task.probe.compared]
    return any(a is not None and b is not None and differ(metric, a, b) for metric, a, b in values)
