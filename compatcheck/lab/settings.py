"""How the person wants releases to be measured, and the laboratory made so."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.errors import UsageError
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.measuring import Laboratory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.lab.environments.overlay import Overlays
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.measuring import Store
    from compatcheck.rules.database import RuleSet


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
    progress: Callable[[str, Measurement], None],
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
    overlays = overlays or settings.environment.overlays()
    with_uv = overlays.installer.name == "uv"
    return Laboratory(
        overlays=overlays,
        interpreter_options=settings.environment.options,
        package=package,
        store=open_store(wanted=not settings.no_store),
        beside=settings.beside,
        dates=choose_dates(settings.exclude_newer, package, rules, releases, with_uv=with_uv),
        timeout_seconds=settings.timeout_seconds,
        fresh=settings.fresh,
        jobs=settings.jobs,
        progress=progress,
    )


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
    try:
        date.fromisoformat(wanted)
    except ValueError:
        msg = f"--exclude-newer {wanted!r} is no date"
        raise UsageError(msg, hint="as 2025-05-19, or `release`, or `never`") from None
    return dict.fromkeys(releases, wanted)


def _day_after(day: str) -> str:
    """Return the next day: a release's own files must not be too new for its own date."""
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def open_store(*, wanted: bool) -> Store | None:
    """Open the person's store of measurements."""
    return EvidenceStore() if wanted else None
