"""A run checked before its first step, and its measured peak set beside what was estimated."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from compatcheck.architectures.dimensions import ATTENTION
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import format_bytes
from compatcheck.integrations.answers import Answer, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from compatcheck.core.report import Report

LOG = logging.getLogger("compatcheck")
_LOOKED_AT = 100
"""Sequences of a dataset whose length is looked at where nobody says the longest."""


class FailsError(RuntimeError):
    """The run has a finding that fails, and it was asked to stop then; the text is the report."""


class Peak(NamedTuple):
    """What one process held at the highest since the watch began, in bytes."""

    allocated: int
    reserved: int | None
    counted: str
    """``cuda``, the caching allocator of the current device, or ``storages``, those of all tensors made since."""


class MemoryWatch:
    """Checks a run where it is entered and keeps its peak until it is left.

    Args:
        files: documents of the run by file name, written for the check into a folder of its own: a name and what stands in it.
        model: the model that is trained; its configuration and what is trained of it are read.
        settings: further facts by name; they win.
        stop: whether a finding that fails raises `FailsError` instead of a warning.
        told: whether this process logs; one of a run is enough.
        count_storages: whether, without CUDA, all tensor storages are counted; it takes time at every operator.
        asked: what `compatcheck.check` takes beside it.
    """

    def __init__(
        self,
        files: Mapping[str, Any],
        model: Any = None,  # noqa: ANN401 (a torch.nn.Module)
        *,
        settings: Mapping[str, object] | None = None,
        stop: bool = False,
        told: bool = True,
        count_storages: bool = False,
        **asked: Any,  # noqa: ANN401 (see `Asked`)
    ) -> None:
        self._files, self._model = files, model
        self._settings = {**_read_model(model), **(settings or {})}
        self._stop, self._told, self._count, self._asked = stop, told, count_storages, asked
        self._stack = ExitStack()
        self._accounting: Any = None
        self.answer: Answer[Report] | None = None
        """What was found, from `__enter__` on."""
        self.peak: Peak | None = None
        """What was measured, from `__exit__` on; None where there was nothing to measure it with."""

    def __enter__(self) -> Self:
        """Check the run, say what fails, and begin to measure.

        Raises:
            FailsError: something fails, and that stops the run.
        """
        self.answer = self._check()
        if any(finding.fails for finding in self.answer.value.findings):
            if self._stop:
                raise FailsError(str(self.answer))
            if self._told:
                LOG.warning("%s", self.answer)
        import torch  # noqa: PLC0415 (a run has it)

        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        elif self._count:
            from compatcheck.lab.probes.worker.accounting import StorageAccounting  # noqa: PLC0415 (torch)

            self._accounting = self._stack.enter_context(StorageAccounting())
            for tensor in (*self._model.parameters(), *self._model.buffers()) if self._model is not None else ():
                self._accounting._count(tensor)  # noqa: SLF001 (what was made before it began)
            self._accounting.reset()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop measuring, and say how it compares."""
        import torch  # noqa: PLC0415 (see above)

        if torch.cuda.is_available():
            self.peak = Peak(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), "cuda")
        elif self._accounting is not None:
            self.peak = Peak(self._accounting.peak(), None, "storages")
        self._stack.close()
        if self._told and error[0] is None:
            LOG.info("%s", self.describe())

    def _check(self) -> Answer[Report]:
        with tempfile.TemporaryDirectory(prefix="compatcheck-") as folder:
            paths = []
            for name, content in self._files.items():
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(content, file, default=str, indent=1)
                paths.append(path)
            configuration: Any = getattr(self._model, "config", None)
            if hasattr(configuration, "save_pretrained"):
                configuration.save_pretrained(folder)
                self._asked["model"] = os.path.join(folder, "config.json")
            return check(training=paths, settings=self._settings, **self._asked)

    def describe(self) -> str:
        """Say in one line what was measured and what was estimated."""
        estimated = self.estimated()
        said = "no estimate" if estimated is None else f"estimated {format_bytes(estimated[1])}"
        if estimated is not None:
            said += f" ({format_bytes(estimated[0])} to {format_bytes(estimated[2])})"
        if self.peak is None:
            return f"compatcheck: {said}; nothing measured: no CUDA device"
        kept = "" if self.peak.reserved is None else f", {format_bytes(self.peak.reserved)} with the allocator's cache"
        return f"compatcheck: peak {format_bytes(self.peak.allocated)}{kept} on this process's device; {said}"

    def estimated(self) -> tuple[int, int, int] | None:
        """Return the estimated peak of what PyTorch allocates on a device, in bytes: low, expected, high; None without one."""
        if self.answer is None:
            return None
        found = (one.estimate for one in self.answer.value.subjects)
        needed = next((one.allocated for one in found if one is not None and one.phases), None)
        return None if needed is None else (needed.low, needed.expected, needed.high)

    def record(self) -> dict[str, Any]:
        """Return all of it as plain data: what was found, estimated and measured, sizes in bytes."""
        estimated = self.estimated()
        return {
            "findings": [] if self.answer is None else [one.rule_id for one in self.answer.value.findings if one.fails],
            "estimated_bytes": None
            if estimated is None
            else dict(zip(("low", "expected", "high"), estimated, strict=True)),
            "measured_bytes": None if self.peak is None else self.peak._asdict(),
        }


def _read_model(model: Any) -> dict[str, object]:  # noqa: ANN401 (a torch.nn.Module)
    """Read what the module itself tells and no file does."""
    if model is None:
        return {}
    found: dict[str, object] = {}
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if attention in ATTENTION:
        found["model.attn_implementation"] = attention
    dtypes = {str(one.dtype).removeprefix("torch.") for one in model.parameters() if one.is_floating_point()}
    if len(dtypes) == 1 and not getattr(model, "quantization_method", None):
        found["model.load_dtype"] = dtypes.pop()
    for adapter in getattr(model, "peft_config", {}).values():
        method, rank, targets = adapter.peft_type, getattr(adapter, "r", None), getattr(adapter, "target_modules", None)
        found["training.peft"] = str(getattr(method, "value", method)).lower()
        if rank is not None:
            found["training.lora_rank"] = rank
        if isinstance(targets, (set, list, tuple)):
            found["training.lora_target_modules"] = ",".join(sorted(targets))
    return found


def find_length(dataset: Any) -> int | None:  # noqa: ANN401 (whatever a loader takes)
    """Return the tokens of the longest of the first sequences of a dataset, None where it tells nothing.

    A dataset is anybody's code and may raise anything; what is wrong with it the run itself will meet.
    """
    try:
        items = [dataset[i] for i in range(min(_LOOKED_AT, len(dataset)))]
        return max((len(one["input_ids"]) for one in items), default=None)
    except Exception:  # noqa: BLE001 (see above)
        return None
