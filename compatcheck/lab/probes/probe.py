"""The shape of a probe, and the catalogue of them."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import os
import pkgutil
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from compatcheck.core.errors import UsageError
from compatcheck.core.source import Source
from compatcheck.lab.cache import make_folder
from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.pairwise import cover_together
from compatcheck.lab.probes import catalog as _catalog
from compatcheck.lab.probes.fingerprint import hash_code
from compatcheck.lab.release_series import differ

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.probes.worker.recorder import Recorder


class ProbeModule(Protocol):
    """What a file of ``probes/catalog`` defines; it runs inside foreign interpreters and imports nothing but what it measures.

    Its docstring's first line says what is measured and ends with a full stop; the rest derives the prediction, in full sentences
    (300 characters at least). ``tests/probes/test_catalog.py`` holds every probe to this.
    """

    # ``SHARES`` may name files of this folder, without their underscore, that it gets by `Recorder.load`; ``shares(parameters)``
    # may return those of them that such a run gets: a measurement is of its own files alone, and no run gets others.
    # ``CHOICES`` maps each parameter that has a closed set of values to them; a shared file may have it too.
    # ``VARIED`` maps parameters to values that may change what is measured, although no rule asks for them; experiments try them.
    # ``counted(parameters)`` may return another accounting than ``ACCOUNTING`` for some.
    # ``further_facts(parameters)`` may return what else holds of the run, or holds instead of what ``facts`` says.
    # ``on_a_gpu(versions)`` may say what releases do on a GPU alone, so that a measurement on a CPU says nothing of them.
    # ``COMPARED`` names metrics that are compared between releases beside ``METRIC``; ``needs(parameters)`` returns the packages
    # that a run uses, and ``is_sensible(parameters)`` whether there is such a run (`Probe.matrix`); or ``NAME.txt`` beside its
    # file lists the runs that tell most (`compatcheck.lab.matrix`).
    # ``FORKS = True`` has one process import what ``prepare(parameters)`` names and fork one off for each run, on a CPU.
    # ``ALONE = True`` gives it a process of its own. ``environ(parameters)`` may return the variables that this process must have
    # before torch starts (name -> value; None takes one away); a probe that has it is alone too.
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
        """Describe the measured run in the vocabulary's names, so that a rule's formula can be set beside it.

        ``env.NAME`` is what a rule asks as ``env("NAME")``.
        """

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
        self._hashes: dict[tuple[str, ...], str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another machine as a name where that has it from this package, else with all of its files."""
        if os.path.dirname(self.path) == os.path.dirname(_catalog.__file__):
            return find_probe, (self.name,)
        return _carry, (self.name, self._files)

    @cached_property
    def _files(self) -> dict[str, str]:
        """The texts of the probe's file and of those beside it that it shares with others, by name; its own is the first."""
        beside = os.path.dirname(self.path)
        texts = {}
        for name in (os.path.basename(self.path), *(find_shared(beside, name) for name in self._shares)):
            with open(os.path.join(beside, name), encoding="utf-8") as file:
                texts[name] = file.read()
        return texts

    def shares(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in ``SHARES`` of the files that a run with these parameters gets."""
        stated = getattr(self.module, "shares", None)
        return self._shares if stated is None else tuple(stated({**self.module.DEFAULTS, **parameters}))

    def hash_for(self, parameters: Mapping[str, Any]) -> str:
        """Return `hash_code` of the files that a run with these parameters gets: what was measured, not its words."""
        shares = self.shares(parameters)
        if shares not in self._hashes:
            own, beside = os.path.basename(self.path), os.path.dirname(self.path)
            names = (own, *(find_shared(beside, name) for name in shares))
            self._hashes[shares] = hash_code([self._files[name] for name in names])
        return self._hashes[shares]

    @cached_property
    def choices(self) -> Mapping[str, tuple[Any, ...]]:
        """Return the values of each parameter that has a closed set of them."""
        beside = os.path.dirname(self.path)
        names = [name for name in self._shares if find_shared(beside, name).startswith("_")]
        modules = (import_module(f"compatcheck.lab.probes.catalog._{name}") for name in names)
        found = {name: values for module in (*modules, self.module) for name, values in _choices(module).items()}
        return {name: values for name, values in found.items() if name in self.module.DEFAULTS}

    @property
    def _shares(self) -> tuple[str, ...]:
        return getattr(self.module, "SHARES", ())

    @cached_property
    def documentation(self) -> str:
        """What it measures, and the derivation of its prediction."""
        return inspect.cleandoc(self.module.__doc__ or "")

    @property
    def title(self) -> str:
        """The first line of its documentation."""
        return self.documentation.partition("\n")[0]

    @property
    def alone(self) -> bool:
        """Whether each run needs a process of its own: it changes process-wide state, or reads variables at torch's start."""
        return bool(getattr(self.module, "ALONE", False)) or hasattr(self.module, "environ")

    @property
    def compared(self) -> tuple[str, ...]:
        """The metrics that are compared between releases."""
        return tuple(dict.fromkeys((self.module.METRIC, *getattr(self.module, "COMPARED", ()))))

    def needs(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the packages that a run with these parameters uses, torch aside."""
        stated = getattr(self.module, "needs", None)
        return self.module.PACKAGES if stated is None else tuple(stated(self.complete(parameters)))

    def matrix(self, package: str, axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        """Return the runs that tell most of a package: the most usual one of each kind, then few that cover pairs of settings.

        Args:
            package: that all of them use.
            axes: parameter → values instead of the probe's own choices.
        """
        module: Any = self.module
        if not hasattr(module, "is_sensible"):
            return [{}] if package in self.needs({}) else []
        given = {name: values for name, values in axes.items() if name in module.DEFAULTS}
        every = {**_choices(module), "world_size": (1, 2), **given}

        def is_wanted(row: Mapping[str, Any]) -> bool:
            return bool(module.is_sensible({**module.DEFAULTS, **row})) and package in self.needs(row)

        return cover_together(every, is_wanted, next(iter(_choices(module))))

    @property
    def forks(self) -> bool:
        """Whether runs share what was imported and nothing else."""
        return bool(getattr(self.module, "FORKS", False))

    def accounting(self, parameters: Mapping[str, Any]) -> str:
        """Return what is counted on a CPU: ``storages`` or ``allocator``."""
        stated = getattr(self.module, "counted", None)
        return self.module.ACCOUNTING if stated is None else str(stated(parameters))

    def environ(self, parameters: Mapping[str, Any]) -> Mapping[str, str | None]:
        """Return the variables its process must have before torch starts; None stands for one that must not be set."""
        stated = getattr(self.module, "environ", None)
        return {} if stated is None else stated(parameters)

    def complete(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults with these parameters over them.

        Raises:
            UsageError: an unknown parameter, a value of another type than the default's, one that is none of its choices, or a
                size below 1 (below 0 where the default is 0, which then has a meaning of its own).
        """
        return {**self.module.DEFAULTS, **{name: self._check(name, value) for name, value in parameters.items()}}

    def list_changed(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that are not as they are by default."""
        return tuple(name for name, value in parameters.items() if self.module.DEFAULTS.get(name) != value)

    def _check(self, name: str, value: Any) -> Any:  # noqa: ANN401 (a parameter)
        if name not in self.module.DEFAULTS:
            msg = f"probe {self.name} has no parameter {name!r}"
            hint = _suggest(name, self.module.DEFAULTS) or f"it has {', '.join(self.module.DEFAULTS)}"
            raise UsageError(msg, hint=hint)
        default, choices = self.module.DEFAULTS[name], self.choices.get(name)
        whose = f"parameter {name!r} of probe {self.name}"
        if choices is not None:
            if not any(value == one and type(value) is type(one) for one in choices):
                near = _suggest(value, [one for one in choices if isinstance(one, str)])
                words = [show_parameter(one) for one in choices]
                listed = f"it is {', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else f"it is {words[0]}"
                msg = f"{whose} cannot be {show_parameter(value)}"
                raise UsageError(msg, hint=near or listed)
            return value
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            msg = f"{whose} is {_KINDS[type(default)]}, not {show_parameter(value)}"
            raise UsageError(msg, hint=f"its default is {show_parameter(default)}")
        if isinstance(value, int | float) and not isinstance(value, bool) and value < (1 if default else 0):
            msg = f"{whose} is {1 if default else 0} or more, not {value}"
            raise UsageError(msg, hint=f"its default is {default}")
        return value

    def judge(self, measurement: Measurement, metric: str | None = None) -> tuple[str, float | None, float | None]:
        """Compare a measurement with the prediction for a healthy release.

        Args:
            measurement: of this probe.
            metric: the quantity; None is the probe's own.

        Returns:
            ``good``, ``bad``, ``below`` or ``skipped``; the value measured; the value predicted.
        """
        name = metric or self.module.METRIC
        predicted = self.module.predict(measurement.parameters).get(name)
        value = measurement.metric(name)
        if not measurement.succeeded or value is None or predicted is None:
            return "skipped", value, predicted
        allowed = self.module.tolerance(measurement.parameters)
        if value > predicted + allowed:
            return "bad", value, predicted
        below = value < predicted - allowed and differ(name, value, predicted)
        return ("below" if below else "good"), value, predicted


def find_shared(folder: str, name: str) -> str:
    """Return the file of a name in ``SHARES``: ``_NAME.py``, which is no probe, or another probe's ``NAME.py``."""
    return f"_{name}.py" if os.path.exists(os.path.join(folder, f"_{name}.py")) else f"{name}.py"


_OFFERS = (*ProbeModule.__annotations__, "predict", "tolerance", "facts", "run")
"""Names that every probe defines."""
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def _choices(module: Any) -> Mapping[str, tuple[Any, ...]]:  # noqa: ANN401 (a module of the catalogue)
    return getattr(module, "CHOICES", {})


def _suggest(word: object, known: Iterable[str]) -> str | None:
    """Ask whether the nearest known word was meant; None where nothing is near."""
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    near = get_close_matches(str(word), known, n=1)
    return f"did you mean {near[0]!r}?" if near else None


def probe_names() -> list[str]:
    """Return the names of all probes, sorted."""
    names = (module.name for module in pkgutil.iter_modules(_catalog.__path__))
    return sorted(name for name in names if not name.startswith("_"))


@lru_cache
def _of_catalogue(plain: str) -> Probe:
    module: Any = import_module(f"compatcheck.lab.probes.catalog.{plain}")
    return Probe(plain, module, module.__file__)


def find_probe(name: str) -> Probe:
    """Return one probe: of the catalogue, of a file ``….py``, or what an installed package offers.

    A package offers probes as entry points of the group ``compatcheck.probes``; the module is read by its path, and nothing of
    the package is imported.

    Raises:
        UsageError: there is none of this name, or its file lacks what a probe offers.
    """
    if name.endswith(".py"):
        return _load(os.path.abspath(name))
    plain = name.replace("-", "_")
    if plain in probe_names():
        return _check_offers(_of_catalogue(plain))
    offered = offered_probes()
    if plain in offered:
        return _load(offered[plain], plain)
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    near = get_close_matches(plain, [*probe_names(), *offered], n=3)
    msg = f"there is no probe {name!r}"
    raise UsageError(
        msg, hint=f"did you mean {' or '.join(near)}?" if near else "`compatcheck probe list` has them all"
    )


def offered_probes() -> dict[str, str]:
    """Return name → file of the probes that installed packages offer."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (only for a name that the catalogue lacks)

    found = {}
    for entry in entry_points(group="compatcheck.probes"):
        path = None if entry.dist is None else str(entry.dist.locate_file(f"{entry.module.replace('.', '/')}.py"))
        if path is not None and os.path.exists(path):
            found[entry.name.replace("-", "_")] = path
    return found


def _load(path: str, name: str | None = None) -> Probe:
    """Read a probe from a file.

    Raises:
        UsageError: there is no such file, or it is no probe.
    """
    name = name or os.path.splitext(os.path.basename(path))[0].replace("-", "_")
    spec = importlib.util.spec_from_file_location(f"compatcheck_probe_{name}", path)
    assert spec is not None  # noqa: S101 (the name ends in .py)
    assert spec.loader is not None  # noqa: S101
    module: Any = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError:
        msg = f"there is no file {path}"
        raise UsageError(msg) from None
    except Exception as error:  # noqa: BLE001 (a person's file may do anything)
        msg = f"cannot be read as a probe: {type(error).__name__}: {error}"
        hint = "a probe imports what it measures inside `run`; only the interpreter under test has it"
        raise UsageError(msg, source=Source(path), hint=hint) from None
    return _check_offers(Probe(name, module, path))


def _carry(name: str, files: Mapping[str, str]) -> Probe:
    """Read a probe from the texts of its files, which are written into the cache."""
    content = json.dumps([name, dict(files)]).encode()
    folder = make_folder("probes", hashlib.sha256(content).hexdigest()[:20])
    for file, text in files.items():
        scratch = folder / f"{file}.{os.getpid()}"
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(folder / file)
    return _load(str(folder / next(iter(files))), name)


def _check_offers(probe: Probe) -> Probe:
    missing = [offer for offer in _OFFERS if not hasattr(probe.module, offer)]
    if missing:
        msg = f"probe {probe.name} does not define {', '.join(missing)}"
        raise UsageError(msg, source=Source(probe.path), hint="`ProbeModule` of lab/probes/probe.py says what each is")
    return probe
