"""The shape of a probe, and the catalogue of them."""

from __future__ import annotations

import hashlib
import inspect
import os
import pkgutil
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from compatcheck.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.measurement import Measurement
    from compatcheck.probes.worker.recorder import Recorder


class ProbeModule(Protocol):
    """What a file of ``probes/catalog`` defines; it runs inside foreign interpreters and imports nothing but what it measures.

    Its docstring's first line says what is measured; the rest derives the prediction.
    """

    # ``SHARES`` may name files of this folder, without their underscore, that it gets by `Recorder.load`.
    PACKAGES: tuple[str, ...]
    """Distributions it needs beside torch; the first is the one it is usually bisected over."""
    BACKENDS: tuple[str, ...]
    """Back ends it can run on, the one to prefer first."""
    ACCOUNTING: str
    """``storages``, or ``allocator`` where memory is taken behind the back of operators (DeepSpeed, FSDP)."""
    DEFAULTS: Mapping[str, Any]
    """Every parameter with its default: sizes that run in seconds. ``world_size`` above 1 starts that many ranks."""
    SIZES: tuple[Mapping[str, Any], ...]
    """Two or more sets of parameters (over the defaults) at which prediction and measurement are equal on a CPU."""
    METRIC: str
    """The quantity a verdict is about: a name of `Measurement.metric`."""

    def predict(self, parameters: Mapping[str, Any]) -> dict[str, float]:
        """Return metric → value for a healthy release."""

    def tolerance(self, parameters: Mapping[str, Any]) -> float:
        """Return how far above the prediction the metric may be in a healthy release."""

    def facts(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Describe the measured run in the vocabulary's names, so that a rule's formula can be set beside it."""

    def run(self, parameters: Mapping[str, Any], recorder: Recorder) -> None:
        """Measure."""


class Probe:
    """One probe of the catalogue."""

    def __init__(self, name: str, module: ProbeModule, path: str) -> None:
        """Keep a catalogue module.

        Args:
            name: the module's, without a path.
            module: the probe itself.
            path: its file.
        """
        self.name = name
        self.module = module
        self.path = path

    @cached_property
    def hash(self) -> str:
        """First twelve digits of the SHA-256 of the probe's file and of those beside it that it shares with others."""
        digest = hashlib.sha256()
        beside = os.path.dirname(self.path)
        shared = (os.path.join(beside, f"_{name}.py") for name in getattr(self.module, "SHARES", ()))
        for path in (self.path, *shared):
            with open(path, "rb") as file:
                digest.update(file.read())
        return digest.hexdigest()[:12]

    @cached_property
    def documentation(self) -> str:
        """What it measures, and the derivation of its prediction."""
        return inspect.cleandoc(self.module.__doc__ or "")

    @property
    def title(self) -> str:
        """The first line of its documentation."""
        return self.documentation.partition("\n")[0]

    def complete(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults with these parameters over them.

        Raises:
            UsageError: an unknown parameter, or a value of another type than the default's.
        """
        for name, value in parameters.items():
            if name not in self.module.DEFAULTS:
                from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

                near = get_close_matches(name, self.module.DEFAULTS, n=1)
                msg = f"probe {self.name} has no parameter {name!r}"
                raise UsageError(
                    msg, hint=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self.module.DEFAULTS)}"
                )
            default = self.module.DEFAULTS[name]
            if default is not None and value is not None and type(value) is not type(default):
                msg = f"parameter {name!r} of probe {self.name} is {type(default).__name__}, not {value!r}"
                raise UsageError(msg)
        return {**self.module.DEFAULTS, **parameters}

    def judge(self, measurement: Measurement, metric: str | None = None) -> tuple[str, float | None, float | None]:
        """Compare a measurement with the prediction for a healthy release.

        Args:
            measurement: of this probe.
            metric: the quantity; None is the probe's own.

        Returns:
            ``good``, ``bad`` or ``skipped``; the value measured; the value predicted.
        """
        name = metric or self.module.METRIC
        predicted = self.module.predict(measurement.parameters).get(name)
        value = measurement.metric(name)
        if not measurement.succeeded or value is None or predicted is None:
            return "skipped", value, predicted
        bad = value > predicted + self.module.tolerance(measurement.parameters)
        return ("bad" if bad else "good"), value, predicted


def probe_names() -> list[str]:
    """Return the names of all probes, sorted."""
    from compatcheck.probes import catalog  # noqa: PLC0415 (beside its use)

    names = (module.name for module in pkgutil.iter_modules(catalog.__path__))
    return sorted(name for name in names if not name.startswith("_"))


def find_probe(name: str) -> Probe:
    """Return one probe.

    Raises:
        UsageError: there is none of this name.
    """
    plain = name.replace("-", "_")
    names = probe_names()
    if plain not in names:
        from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

        near = get_close_matches(plain, names, n=3)
        msg = f"there is no probe {name!r}"
        raise UsageError(
            msg, hint=f"did you mean {' or '.join(near)}?" if near else "`compatcheck probe list` has them all"
        )
    module: Any = import_module(f"compatcheck.probes.catalog.{plain}")
    return Probe(plain, module, module.__file__)
