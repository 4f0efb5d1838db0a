"""How far a run of many measurements is, on standard error."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from compatcheck.cli.output import write_notice
from compatcheck.lab.measurement import show_parameter

if TYPE_CHECKING:
    from collections.abc import Collection

    from compatcheck.lab.environments.choice import EnvironmentChoice
    from compatcheck.lab.measurement import Measurement


def announce(command: str, choice: EnvironmentChoice, *, quiet: bool = False, installs: bool = True) -> None:
    """Say on standard error what a command will run, and which index it asks, before it does."""
    if not quiet:
        write_notice(f"{command} {choice.describe(installs=installs)}")


class Progress:
    """One line per result on standard error, and an estimate of what is left."""

    def __init__(self, total: int | None, *, quiet: bool, varying: Collection[tuple[str, str]] = frozenset()) -> None:
        """Start counting.

        Args:
            total: how many results there will be at first, None when that is not known; what grew is measured again.
            quiet: show nothing.
            varying: probe and name of each parameter that is shown, see `compatcheck.lab.sweep.find_varying`.
        """
        self.total = total
        self.done = 0
        self.quiet = quiet
        self.varying = varying
        self._clock = time.monotonic
        self._start = time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, version: str, measurement: Measurement) -> None:
        """Show one result."""
        self.done += 1
        if self.total is not None and self.done > self.total:
            self.total = None
        if self.quiet:
            return
        seconds = self._clock() - self._start
        left = f", about {self._duration(seconds / self.done * (self.total - self.done))} left" if self.total else ""
        count = f"{self.done}/{self.total}" if self.total else str(self.done)
        shown = [
            f" {name}={show_parameter(value)}"
            for name, value in measurement.parameters.items()
            if (measurement.probe, name) in self.varying
        ]
        text = f"[{count}{left}] {version} {measurement.probe}{''.join(shown)}: {measurement.status}"
        if measurement.reason and measurement.status != "ok":
            text += f" ({measurement.reason})"
        width = min(shutil.get_terminal_size().columns, 160) - 1
        click.echo(("\r" + text[:width].ljust(width)) if self._live else text, err=True, nl=not self._live)

    def close(self) -> None:
        """End the line."""
        if self._live and self.done and not self.quiet:
            click.echo(err=True)

    @staticmethod
    def _duration(seconds: float) -> str:
        return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
