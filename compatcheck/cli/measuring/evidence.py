"""`compatcheck evidence`: the measurements that were made here."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.cli.help import Group
from compatcheck.cli.output import write_error
from compatcheck.core.errors import EXIT_CLEAN, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT, UsageError
from compatcheck.lab.evidence.choice import choose_measurements, choose_one
from compatcheck.lab.evidence.files import SUFFIXES, export_measurements, write_measurements
from compatcheck.lab.evidence.foreign_files import read_foreign
from compatcheck.lab.evidence.store import EvidenceStore
from compatcheck.lab.measurement import to_json
from compatcheck.lab.reporters.evidence import format_list, format_measurement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.lab.evidence.store import Stored


@click.group("evidence", cls=Group)
def command() -> None:
    """List, show, export and import measurements.

    They are kept in $COMPATCHECK_EVIDENCE, by default in the user's data directory. `env` and `check` say of a finding what
    was measured here under the same releases.
    """


@command.command("list")
@options.argument("probes", "[PROBE]...", "probe", nargs=-1)
@options.take("evidence list", "measurements", "text json")
def list_command(limit: int, format_name: str, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """List measurements, the newest first; PROBE is a name or a pattern of names."""
    with _open() as store:
        chosen = list(choose_measurements(store, **given))
        total, place = len(store), store.path + ("" if store.exists else " (not there yet)")
    shown = chosen[:limit] if limit else chosen
    if format_name == "json":
        click.echo(json.dumps([_describe(stored) for stored in shown], indent=2, ensure_ascii=False))
        return EXIT_CLEAN
    click.echo(format_list(shown), nl=False)
    click.echo(f"{len(shown)} of {len(chosen)} chosen, {total} kept · {place}", err=True)
    return EXIT_CLEAN


@command.command("show")
@options.argument("name", "ID", "text")
@options.take("text json")
def show_command(name: str, format_name: str) -> int:
    """Show one measurement: phases, results, releases, and how to run it again. The start of its ID is enough."""
    with _open() as store:
        found = choose_one(store, name)
    if format_name == "json":
        click.echo(json.dumps(_describe(found), indent=2, ensure_ascii=False))
        return EXIT_CLEAN
    click.echo(format_measurement(*found), nl=False)
    return EXIT_CLEAN


@command.command("export")
@options.argument("target", "FILE|DIRECTORY")
@options.argument("probes", "[PROBE]...", "probe", nargs=-1)
@options.take("evidence export", "measurements")
def export_command(target: str, name: str | None, overwrite: bool, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Write measurements to a FILE (.json or .jsonl), or to DIRECTORY/PROBE/SLUG.json, .jsonl for several of a probe.

    Evidence of rules stands in fixtures/measurements.
    """
    with _open() as store:
        chosen = [stored.measurement for stored in choose_measurements(store, **given)]
        place = store.path
    if not chosen:
        click.echo(f"nothing to export: {place} holds no such measurement", err=True)
        return EXIT_NOTHING_TO_CHECK
    if target.endswith(SUFFIXES) and not os.path.isdir(target):
        if os.path.exists(target) and not overwrite:
            msg = f"{target} is there already"
            raise UsageError(msg, hint="--overwrite replaces it")
        write_measurements(target, chosen)
        paths: Sequence[str] = (target,)
    else:
        paths = export_measurements(target, chosen, slug=name, overwrite=overwrite)
    for path in paths:
        click.echo(path)
    click.echo(f"{len(chosen)} measurements in {len(paths)} file{'' if len(paths) == 1 else 's'}", err=True)
    return EXIT_CLEAN


@command.command("import")
@options.argument("paths", "PATH...", nargs=-1, required=True)
def import_command(paths: tuple[str, ...]) -> int:
    """Keep the measurements of files, or of all files below directories. What is there already is not kept twice."""
    found = read_foreign(paths)
    for error in found.errors:
        write_error(f"error: {error}\n" + (f"  {error.hint}\n" if error.hint else ""))
    with EvidenceStore() as store:
        new = store.add_all(found.measurements) if found.measurements else 0
        place = store.path
    click.echo(f"{new} new, {len(found.measurements) - new} already there, from {found.files} files · {place}")
    if found.others:
        click.echo(f"{found.others} other files hold no measurements", err=True)
    return EXIT_UNREADABLE_INPUT if found.errors else EXIT_CLEAN


def _open() -> EvidenceStore:
    return EvidenceStore(read_only=True, follows=False)


def _describe(stored: Stored) -> dict[str, Any]:
    return {"id": stored.id, **to_json(stored.measurement)}
