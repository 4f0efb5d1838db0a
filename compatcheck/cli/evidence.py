"""`compatcheck evidence`: the measurements that were made here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.core.errors import (
    EXIT_CLEAN,
    EXIT_NOTHING_TO_CHECK,
    EXIT_UNREADABLE_INPUT,
    CompatcheckError,
    InputError,
    UsageError,
)
from compatcheck.core.measurement import BACKENDS, STATUSES, to_json
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, contains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from compatcheck.core.measurement import Measurement
    from compatcheck.lab.evidence.store import EvidenceStore, Stored

SHOWN = 20


@click.group("evidence", short_help="List, show, export and import measurements.")
def command() -> None:
    """List, show, export and import measurements.

    They are kept in $COMPATCHECK_EVIDENCE, by default in the user's data directory. `env` and `check` say of a finding what
    was measured here under the same releases.
    """


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose measurements."""
    for decorate in reversed(
        (
            click.argument("probes", nargs=-1, metavar="[PROBE]..."),
            click.option(
                "--package",
                "packages",
                multiple=True,
                metavar="NAME[RANGE]",
                help="Measured with it: 'deepspeed>=0.16'.",
            ),
            click.option("--backend", type=click.Choice(BACKENDS), help="Measured on this back end."),
            click.option("--status", type=click.Choice(STATUSES), help="That came out so."),
            click.option(
                "--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Of a run with this parameter."
            ),
            click.option("--since", metavar="DATE", help="Measured on this day or later: 2026-11-21."),
        )
    ):
        function = decorate(function)
    return function


_format_option = click.option(
    "--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@command.command("list", cls=options.GroupedCommand)
@_filters
@click.option(
    "--limit", type=click.IntRange(min=0), default=SHOWN, show_default=True, help="At most so many; 0 lists all."
)
@_format_option
def list_command(limit: int, format_name: str, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """List measurements, the newest first; PROBE is a name or a pattern of names."""
    with _open() as store:
        chosen = list(_choose(store, **given))
        total, place = len(store), store.path + ("" if store.exists else " (not there yet)")
    shown = chosen[:limit] if limit else chosen
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps([_describe(stored) for stored in shown], indent=2, ensure_ascii=False))
        return EXIT_CLEAN
    from compatcheck.lab.reporters.evidence import format_list  # noqa: PLC0415 (one format)

    click.echo(format_list(shown), nl=False)
    click.echo(f"{len(shown)} of {len(chosen)} chosen, {total} kept · {place}", err=True)
    return EXIT_CLEAN


@command.command("show", cls=options.GroupedCommand)
@click.argument("name", metavar="ID")
@_format_option
def show_command(name: str, format_name: str) -> int:
    """Show one measurement: phases, results, releases, and how to run it again. The start of its ID is enough."""
    with _open() as store:
        found = store.get(name)
        place = store.path
    if len(found) != 1:
        if not found:
            msg = f"there is no measurement {name!r} in {place}"
            raise UsageError(msg, hint="see `compatcheck evidence list`")
        msg = f"{len(found)} measurements start with {name!r}"
        raise UsageError(msg, hint=f"give more of it: {', '.join(stored.id for stored in found[:3])}")
    if format_name == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps(_describe(found[0]), indent=2, ensure_ascii=False))
        return EXIT_CLEAN
    from compatcheck.lab.reporters.evidence import format_measurement  # noqa: PLC0415 (one format)

    click.echo(format_measurement(*found[0]), nl=False)
    return EXIT_CLEAN


@command.command("export", cls=options.GroupedCommand)
@click.argument("target", metavar="FILE|DIRECTORY")
@_filters
@click.option("--name", metavar="SLUG", help="Name of the files in DIRECTORY; by default after the releases in them.")
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
def export_command(target: str, name: str | None, overwrite: bool, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Write measurements to a FILE (.json or .jsonl), or to DIRECTORY/PROBE/SLUG.json, .jsonl for several of a probe.

    Evidence of rules stands in fixtures/measurements.
    """
    from compatcheck.lab.evidence.files import SUFFIXES, export_measurements, write_measurements  # noqa: PLC0415

    with _open() as store:
        chosen = [stored.measurement for stored in _choose(store, **given)]
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


@command.command("import", cls=options.GroupedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def import_command(paths: tuple[str, ...]) -> int:
    """Keep the measurements of files, or of all files below directories. What is there already is not kept twice."""
    from compatcheck.core.measurement_files import read_measurements  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.evidence.files import measurement_files  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.evidence.store import EvidenceStore  # noqa: PLC0415 (SQLite)

    read: list[Measurement] = []
    files = unread = 0
    code = EXIT_CLEAN
    for path in paths:
        try:
            found = measurement_files(path)
        except InputError as error:
            click.echo(_sentence(error), err=True)
            code = EXIT_UNREADABLE_INPUT
            continue
        for file in found:
            try:
                read += read_measurements(file)
                files += 1
            except InputError as error:
                if os.path.isdir(path):
                    unread += 1  # other data may stand beside measurements
                    continue
                click.echo(_sentence(error), err=True)
                code = EXIT_UNREADABLE_INPUT
    with EvidenceStore() as store:
        new = store.add_all(read) if read else 0
        place = store.path
    click.echo(f"{new} new, {len(read) - new} already there, from {files} files · {place}")
    if unread:
        click.echo(f"{unread} other files hold no measurements", err=True)
    return code


def _open() -> EvidenceStore:
    from compatcheck.lab.evidence.store import EvidenceStore  # noqa: PLC0415 (SQLite)

    return EvidenceStore(read_only=True, follows=False)


def _sentence(error: CompatcheckError) -> str:
    return f"error: {error}" + (f"\n  {error.hint}" if error.hint else "")


def _describe(stored: Stored) -> dict[str, Any]:
    return {"id": stored.id, **to_json(stored.measurement)}


def _choose(
    store: EvidenceStore,
    probes: tuple[str, ...],
    packages: tuple[str, ...],
    parameters: tuple[str, ...],
    **exact: str | None,
) -> Iterator[Stored]:
    """Yield the measurements that options choose, the newest first.

    Args:
        store: where to look.
        probes: patterns.
        packages: ``--package``.
        parameters: ``--param``.
        exact: ``backend``, ``status`` and ``since`` of `EvidenceStore.list`.

    Raises:
        UsageError: an option that makes no sense.
    """
    ranges = [_parse_package(text) for text in packages]
    wanted = dict(_parse_parameter(text) for text in parameters)
    if exact["since"] is not None:
        _check_date(exact["since"])
    patterns = [pattern.replace("-", "_") for pattern in probes]
    from fnmatch import fnmatchcase  # noqa: PLC0415 (beside its use)

    found = store.list(parameters=wanted, backend=exact["backend"], status=exact["status"], since=exact["since"])
    for stored in found:
        measurement = stored.measurement
        if patterns and not any(fnmatchcase(measurement.probe, pattern) for pattern in patterns):
            continue
        if all(
            name in measurement.versions and contains(bounds, measurement.versions[name]) == "yes"
            for name, bounds in ranges
        ):
            yield stored


def _parse_package(text: str) -> tuple[str, Any]:
    from compatcheck.core.markers import canonical_name  # noqa: PLC0415 (beside its use)

    length = next((index for index, sign in enumerate(text) if sign in "<>=!~ "), len(text))
    name, specifier = canonical_name(text[:length].strip()), text[length:].strip()
    try:
        return name, compile_specifier(specifier) if specifier else [[]]
    except InvalidSpecifierError as error:
        msg = f"--package {text!r}: {error}"
        raise UsageError(msg, hint="write 'deepspeed', 'deepspeed==0.16.7' or 'deepspeed>=0.16,<0.17'") from None


def _parse_parameter(text: str) -> tuple[str, Any]:
    import json  # noqa: PLC0415 (beside its use)

    name, equals, value = text.partition("=")
    if not name or not equals:
        msg = f"--param {text!r} is not NAME=VALUE"
        raise UsageError(msg, hint="write --param layers=4")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _check_date(text: str) -> None:
    from datetime import datetime  # noqa: PLC0415 (beside its use)

    try:
        datetime.fromisoformat(text)
    except ValueError:
        msg = f"--since {text!r} is not a date"
        raise UsageError(msg, hint="write it as 2026-11-21") from None
