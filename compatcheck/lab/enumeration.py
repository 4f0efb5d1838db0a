"""Runs of every option that a release's own configuration classes declare: each value alone, and those that tell in pairs.

Nobody chooses these settings: the classes are asked in both releases what fields they have (`probes/worker/fields.py`). Pairs are of
what can be run alone, one value of a field, and one of the two changes a number of the plain run by itself; what they are beside is
otherwise the plain run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
    r"^(output_dir|overwrite_output_dir|report_to|disable_tqdm|use_cpu|no_cuda|max_steps|num_train_epochs)$": "the probe tells these",
    r"^(num_generations|rloo_k|per_(device|gpu)_|max_(prompt|completion)_length$)": "the probe tells these",
    r"^(run_name|logging_|log_|save_|hub_|push_to_hub|trackio|project$|resume_|load_best_|full_determinism$)": "what is written and where",
    r"^(vllm_|use_vllm|use_transformers_paged|ds3_gather)": "a server of vLLM, or its memory on a GPU",
    r"^(fp16|half_precision|tf32|tpu_|mps|use_mps|use_ipex|jit_mode|debug$|torch_empty_cache|optim_target|dataset_num_proc$)": "hardware that a CPU is not",
    r"^(torch_compile|torchdynamo)": "compiles for minutes",
    r"^(ddp_|fsdp|local_rank|sharded_|parallelism_)": "ranks",
    r"^(do_|past_index|greater_is_better|metric_for|ignore_data_skip|seed$|data_seed|lr_scheduler_type$|skip_memory_metrics$)": "moves no tensor",
}
"""Pattern of fields that are left out → why."""


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
    older, newer = (read_fields(laboratory.interpreter(version), kinds) for version in (before, after))
    new, plans = [], []
    for kind in kinds:
        settings = _settings(newer.get(kind.classes, {}))
        known = _settings(older.get(kind.classes, {}))
        name = kind.classes.partition(",")[0].partition(":")[2]
        new += [f"{name}.{one}={_show(value)}" for one, value in settings if (one, value) not in known] if known else []
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
        if not any(re.search(pattern, name) for pattern in EXCLUDED)
        for value in values
        if "+" not in str(value)
    ]


def _task(kind: Kind, settings: Sequence[tuple[str, Any]], backend: str) -> Task:
    told = "+".join(f"{kind.prefix if kind.parameter == 'options' else ''}{name}:{_show(value)}" for name, value in settings)
    if told and kind.parameter != "options":
        told = kind.prefix + told
    return make_task(find_probe(PROBE), {**kind.base, **({kind.parameter: told} if told else {})}, backend)


def _show(value: Any) -> str:  # noqa: ANN401 (a value of an option)
    return value if isinstance(value, str) else json.dumps(value)


def _differs(task: Task, one: Measurement, other: Measurement) -> bool:
    """Tell whether a number that is compared differs by more than a probe varies."""
    values = [(metric, one.metric(metric), other.metric(metric)) for metric in task.probe.compared]
    return any(a is not None and b is not None and differ(metric, a, b) for metric, a, b in values)
