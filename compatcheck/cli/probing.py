"""What the measuring commands share: options, the interpreter they measure in, parameters and the store."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from compatcheck.cli.options import apply_options, grouped_option
from compatcheck.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.cli.progress import Progress
    from compatcheck.lab.environments.overlay import Base, Overlays
    from compatcheck.lab.measuring import Laboratory, Store
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.rules.database import RuleSet

ENVIRONMENT = "Environment"
MEASURING = "Measuring"
OUTPUT = "Output"

environment_options = apply_options(
    [
        grouped_option(
            ENVIRONMENT,
            "--python",
            metavar="PYTHON",
            help="Interpreter with torch that releases are laid over; nothing is installed into it. "
            "Default: this one, else the active one, where it has torch.",
        ),
        grouped_option(
            ENVIRONMENT,
            "--torch",
            metavar="RELEASE",
            help="Build such an interpreter instead, with this release of torch: 2.13.0+cpu. Needs uv.",
        ),
        grouped_option(
            ENVIRONMENT,
            "--with",
            "beside",
            metavar="REQUIREMENT",
            multiple=True,
            help="Further package in every environment: transformers==4.57.6; repeatable.",
        ),
        grouped_option(
            ENVIRONMENT,
            "--installer",
            type=click.Choice(["uv", "pip"]),
            help="Default: uv where there is one.",
        ),
    ]
)

measuring_options = apply_options(
    [
        grouped_option(
            MEASURING,
            "--backend",
            type=click.Choice(["fake", "cpu", "cuda"]),
            help="Default: the first that the probe names.",
        ),
        grouped_option(
            MEASURING,
            "--param",
            "parameters",
            metavar="NAME=VALUE[,VALUE]",
            multiple=True,
            help="Parameter of the probe; several values are measured one by one; PROBE.NAME is for one of several probes.",
        ),
        grouped_option(
            MEASURING,
            "--timeout",
            "timeout_seconds",
            metavar="SECONDS",
            type=click.FloatRange(min=1),
            default=180.0,
            show_default=True,
            help="Time for one measurement.",
        ),
        grouped_option(MEASURING, "--no-store", is_flag=True, help="Keep nothing, and look nothing up."),
    ]
)


laboratory_options = apply_options(
    [
        environment_options,
        grouped_option(
            ENVIRONMENT,
            "--exclude-newer",
            metavar="DATE|release|never",
            default="release",
            show_default=True,
            help="Dependencies no newer than this; release: than the day each release came out (with uv).",
        ),
        measuring_options,
        grouped_option(MEASURING, "--fresh", is_flag=True, help="Measure again what was measured before."),
        grouped_option(OUTPUT, "--quiet", "-q", is_flag=True, help="No progress on standard error."),
    ]
)
"""What every command has that measures releases; `Settings` takes their values."""

jobs_option = grouped_option(
    MEASURING, "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Releases measured at a time."
)


class EnvironmentChoice(NamedTuple):
    """How the person wants environments to be made."""

    python: str | None
    torch: str | None
    beside: tuple[str, ...]
    installer: str | None

    def base(self) -> Base:
        """Find or build the interpreter with torch.

        Raises:
            UsageError: there is none.
            UnbuildableError: it could not be built.
        """
        from compatcheck.lab.environments.overlay import Base, build_base  # noqa: PLC0415 (beside its use)

        if self.torch is not None:
            return build_base(self.torch, python=self.python)
        if self.python is not None:
            return Base(self.python)
        for candidate in _candidates():
            try:
                return Base(candidate)
            except UsageError:
                continue
        msg = "no interpreter with torch was found"
        raise UsageError(msg, hint="name one: --python PYTHON, or build one: --torch 2.13.0+cpu (needs uv)")

    def overlays(self) -> Overlays:
        """Return the overlays over that interpreter.

        Raises:
            UsageError: there is none, or --with is no requirement.
            UnbuildableError: it could not be built.
        """
        from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 (beside its use)

        from compatcheck.lab.environments.installer import find_installer  # noqa: PLC0415 (beside its use)
        from compatcheck.lab.environments.overlay import Overlays  # noqa: PLC0415 (beside its use)

        for text in self.beside:
            try:
                Requirement(text)
            except InvalidRequirement as error:
                msg = f"--with {text!r} is no requirement: {str(error).splitlines()[0]}"
                raise UsageError(msg, hint="as --with transformers==4.57.6") from None
        end_cleanly()
        return Overlays(self.base(), installer=find_installer(self.installer))


class Settings(NamedTuple):
    """How the person wants releases to be measured: the values of `laboratory_options` and of `jobs_option`."""

    python: str | None
    torch: str | None
    beside: tuple[str, ...]
    installer: str | None
    exclude_newer: str
    backend: str | None
    parameters: tuple[str, ...]
    timeout_seconds: float
    no_store: bool
    fresh: bool
    quiet: bool
    jobs: int = 1

    @property
    def environment(self) -> EnvironmentChoice:
        """How environments are to be made."""
        return EnvironmentChoice(self.python, self.torch, self.beside, self.installer)


def open_laboratory(
    settings: Settings,
    package: str,
    releases: Sequence[str],
    rules: RuleSet,
    *,
    progress: Progress,
    overlays: Overlays | None = None,
) -> Laboratory:
    """Return what measures releases of a package.

    Args:
        settings: how.
        package: whose releases.
        releases: those that may be asked for.
        rules: the database, for the day each release came out.
        progress: told of each result.
        overlays: environments over an interpreter that was found before; None finds or builds it.

    Raises:
        UsageError: there is no interpreter with torch, or --exclude-newer makes no sense.
        UnbuildableError: the interpreter could not be built.
    """
    from compatcheck.lab.measuring import Laboratory  # noqa: PLC0415 (beside its use)

    overlays = overlays or settings.environment.overlays()
    with_uv = overlays.installer.name == "uv"
    return Laboratory(
        overlays=overlays,
        package=package,
        store=open_store(wanted=not settings.no_store),
        beside=settings.beside,
        dates=choose_dates(settings.exclude_newer, package, rules, releases, with_uv=with_uv),
        timeout_seconds=settings.timeout_seconds,
        fresh=settings.fresh,
        jobs=settings.jobs,
        progress=progress,
    )


def end_cleanly() -> None:
    """Treat a request to terminate, and an interrupt that a shell has switched off, like Ctrl-C: no process stays behind."""
    import signal  # noqa: PLC0415 (beside its use)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _candidates() -> list[str]:
    prefix = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    found = [sys.executable, os.path.join(prefix, "bin", "python") if prefix else None, shutil.which("python3")]
    return list(dict.fromkeys(path for path in found if path and os.path.exists(path)))


def parse_parameters(given: Sequence[str]) -> dict[str, list[Any]]:
    """Parse ``NAME=VALUE[,VALUE]``: each value is JSON, or a plain word.

    Raises:
        UsageError: no ``=``, or a name twice.
    """
    parsed: dict[str, list[Any]] = {}
    for text in given:
        name, separator, values = text.partition("=")
        if not separator or not name.strip() or name.strip() in parsed:
            msg = f"--param {text!r} is not NAME=VALUE" if not separator else f"--param {name} is given twice"
            raise UsageError(msg, hint="as --param layers=4 or --param layers=4,8")
        parsed[name.strip()] = [_value(value) for value in values.split(",")]
    return parsed


def parse_one_set(given: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` where a single measurement is meant.

    Raises:
        UsageError: several values for a parameter, or what `parse_parameters` refuses.
    """
    parsed = parse_parameters(given)
    for name, values in parsed.items():
        if len(values) > 1:
            msg = f"--param {name} has {len(values)} values, and one is wanted here"
            raise UsageError(msg, hint="`compatcheck probe run` and `compatcheck sweep` take several")
    return {name: value for name, (value,) in parsed.items()}


def share_parameters(
    probes: Sequence[Probe], given: Mapping[str, list[Any]]
) -> list[tuple[Probe, dict[str, list[Any]]]]:
    """Give each probe its parameters: ``PROBE.NAME`` is for one of them, ``NAME`` for all that have it.

    Raises:
        UsageError: a parameter that none of them has.
    """
    known = {name for probe in probes for name in probe.module.DEFAULTS}
    known |= {f"{probe.name}.{name}" for probe in probes for name in probe.module.DEFAULTS}
    for name in given:
        if name not in known:
            from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

            near = get_close_matches(name, known, n=1)
            msg = f"no probe here has a parameter {name!r}"
            raise UsageError(
                msg, hint=f"did you mean {near[0]!r}?" if near else f"they have {', '.join(sorted(known))}"
            )
    shared = []
    for probe in probes:
        own = {name: values for name, values in given.items() if name in probe.module.DEFAULTS}
        start = f"{probe.name}."
        own |= {name.removeprefix(start): values for name, values in given.items() if name.startswith(start)}
        shared.append((probe, own))
    return shared


def _value(text: str) -> Any:  # noqa: ANN401 (a parameter)
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def choose_dates(
    wanted: str, package: str, rules: RuleSet, releases: Sequence[str], *, with_uv: bool
) -> Mapping[str, str]:
    """Return release → date for the dependencies.

    Raises:
        UsageError: neither a date nor one of the words.
    """
    if wanted == "never" or (wanted == "release" and not with_uv):
        return {}
    if wanted == "release":
        known = rules.dates(package)
        return {release: _day_after(known[release]) for release in releases if release in known}
    from datetime import date  # noqa: PLC0415 (beside its use)

    try:
        date.fromisoformat(wanted)
    except ValueError:
        msg = f"--exclude-newer {wanted!r} is no date"
        raise UsageError(msg, hint="as 2025-05-19, or `release`, or `never`") from None
    return dict.fromkeys(releases, wanted)


def _day_after(day: str) -> str:
    """Return the next day: a release's own files must not be too new for its own date."""
    from datetime import date, timedelta  # noqa: PLC0415 (beside its use)

    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def open_store(*, wanted: bool) -> Store | None:
    """Open the person's store of measurements."""
    if not wanted:
        return None
    from compatcheck.lab.evidence.store import EvidenceStore  # noqa: PLC0415 (beside its use)

    return EvidenceStore()


def exported_evidence() -> str | None:
    """Return the folder of exported measurements of this checkout, None for an installed package."""
    from compatcheck.rules.locate import CHECKOUT, is_checkout  # noqa: PLC0415 (beside its use)

    return os.path.join(os.path.dirname(CHECKOUT), "fixtures", "measurements") if is_checkout() else None
