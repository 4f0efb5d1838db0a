"""How the person wants releases to be measured, and the laboratory made so."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.place import HERE
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.environments.overlay import Overlays, build_base
from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.measuring import Laboratory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.core.place import Place
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Store
    from compatcheck.lab.releases import Axis


class Settings(NamedTuple):
    """How the person wants releases to be measured: the values of the options of its commands."""

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
    jobs: int | None = None
    """Releases measured at a time; None as many as the place can do at a time, where it says."""

    @property
    def environment(self) -> EnvironmentChoice:
        """How environments are to be made."""
        return EnvironmentChoice(self.python, self.torch, self.beside, self.installer)


def open_laboratory(
    settings: Settings,
    package: str,
    axis: Axis,
    *,
    progress: Callable[[str, Measurement], None],
    overlays: Overlays | None = None,
    place: Place = HERE,
) -> Laboratory:
    """Return what measures releases of a package.

    Args:
        settings: how.
        package: whose releases.
        axis: its releases or commits that may be asked for.
        progress: told of each result.
        overlays: environments over an interpreter that was found before; None finds or builds it.
        place: where probes run.

    Raises:
        UsageError: there is no interpreter with torch, or --exclude-newer makes no sense.
        UnbuildableError: the interpreter could not be built.
    """
    overlays = overlays or settings.environment.overlays()
    with_uv = overlays.installer.name == "uv"
    return Laboratory(
        overlays=overlays,
        choice=settings.environment,
        package=package,
        store=open_store(wanted=not settings.no_store),
        beside=settings.beside,
        sources=axis.sources,
        bases=_bases(settings.torch, settings, overlays) if settings.torch else None,
        dates=choose_dates(settings.exclude_newer, axis, with_uv=with_uv),
        timeout_seconds=settings.timeout_seconds,
        fresh=settings.fresh,
        jobs=settings.jobs or place.jobs or 1,
        place=place,
        progress=progress,
    )


def _bases(torch: str, settings: Settings, overlays: Overlays) -> Callable[[str], Overlays]:
    """Return what builds an interpreter with another release of torch, of the same build: ``+cpu``."""
    label = torch.partition("+")[1:]

    @cache
    def build(version: str) -> Overlays:
        base = build_base("".join((version, *label)), python=settings.python)
        return Overlays(base, installer=overlays.installer)

    return build


def choose_dates(wanted: str, axis: Axis, *, with_uv: bool) -> Mapping[str, str]:
    """Return release → date for the dependencies.

    Raises:
        UsageError: neither a date nor one of the words.
    """
    if wanted == "never" or (wanted == "release" and not with_uv):
        return {}
    if wanted == "release":
        return {name: _day_after(axis.dates[name]) for name in axis.names if name in axis.dates}
    try:
        date.fromisoformat(wanted)
    except ValueError:
        msg = f"--exclude-newer {wanted!r} is no date"
        raise UsageError(msg, hint="as 2025-05-19, or `release`, or `never`") from None
    return dict.fromkeys(axis.names, wanted)


def _day_after(day: str) -> str:
    """Return the next day: a release's own files must not be too new for its own date."""
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def open_store(*, wanted: bool) -> Store | None:
    """Open the person's store of measurements."""
    return EvidenceStore() if wanted else None
