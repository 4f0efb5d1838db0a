"""The options of the commands, made from the table ``data/options.txt``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import click

from compatcheck.cli.completion import find_completion
from compatcheck.core.data_file import read_text
from compatcheck.core.errors import UsageError
from compatcheck.core.language import LANGUAGES, choose
from compatcheck.core.named_tuple import NamedTuple

F = TypeVar("F", bound=Callable[..., Any])

LABORATORY = ("interpreter", "releases", "measurement", "again", "progress")
"""Sections that every command has that measures releases; `compatcheck.lab.settings.Settings` takes their values."""


INPUTS = ("environment", "image", "inside image", "files")
"""Sections that name what is read."""


class Row(NamedTuple):
    """One option as the table has it."""

    names: tuple[str, ...]
    parameter: str | None
    """Name of the parameter, where it is not that of the option."""
    kind: str
    metavar: str | None
    help: str | None
    heading: str | None
    """What it stands under among the options that commands share; None for a command's own."""


class TableOption(click.Option):
    """An option that knows its row of the table."""

    def __init__(self, *args: Any, row: Row, **kwargs: Any) -> None:  # noqa: ANN401 (click's signature)
        """Keep the row beside what click wants."""
        super().__init__(*args, **kwargs)
        self.row = row


def take(*sections: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of these sections of the table, in this order.

    Args:
        sections: names of sections; ``report text,json`` takes the options of ``report`` with these formats alone.
    """

    def decorate(function: F) -> F:
        for section in reversed(sections):
            name, _, formats = section.rpartition(" ") if "," in section else (section, "", "")
            for row in reversed(read_table()[name]):
                chosen = row._replace(kind=f"{formats}=text") if formats and row.names == ("--format",) else row
                function = click.option(*_declare(chosen), cls=TableOption, row=chosen, **_settings(chosen))(function)
        return function

    return decorate


def take_check(*sections: str, formats: str = "") -> Callable[[F], F]:
    """Return a decorator that adds the options of a command that holds runs against the rules, behind sections of its own.

    Args:
        sections: names of sections that say what it does and reads.
        formats: those of its report, where it is not that of a check, which may name advisories, too.
    """
    report = (f"report {formats}",) if formats else ("security", "report")
    return take(*sections, "run", "select", "rules", "gate", *report, "language")


def make_option(row: Row) -> TableOption:
    """Make the option of a row outside of any command."""
    return TableOption(_declare(row), row=row, **_settings(row))


def argument(name: str, metavar: str, kind: str = "file", **settings: Any) -> Callable[[F], F]:  # noqa: ANN401 (click's)
    """Return an argument that is completed as values of a kind of the table are; the settings are click's."""
    return click.argument(name, metavar=metavar, shell_complete=find_completion(kind), **settings)


@lru_cache(maxsize=1)
def read_table() -> Mapping[str, tuple[Row, ...]]:
    """Read the rows of the table, by section."""
    sections: dict[str, list[Row]] = {}
    rows, heading = sections.setdefault("", []), ""
    for line in read_text(__file__, "options").splitlines():
        if line.startswith("["):
            name, _, heading = line.strip("[]").partition(": ")
            rows = sections.setdefault(name, [])
        elif line.startswith("-"):
            names, parameter, kind, metavar, text = (None if cell == "-" else cell for cell in line.split(" | ", 4))
            rows.append(Row(tuple((names or "").split()), parameter, kind or "", metavar, text, heading or None))
    return {name: tuple(rows) for name, rows in sections.items()}


def _declare(row: Row) -> tuple[str, ...]:
    return (*row.names, row.parameter) if row.parameter else row.names


def _settings(row: Row) -> dict[str, Any]:
    """Say in click's words what a row says."""
    kind, _, default = row.kind.partition("=")
    plain, _, least = kind.rstrip("*!").partition(" from ")
    settings: dict[str, Any] = {"help": row.help}
    if row.metavar:
        settings["metavar"] = row.metavar
    if kind.endswith("*"):
        settings["multiple"] = True
    if kind.endswith("!"):
        settings["required"] = True
    if default:
        settings |= {"default": default, "show_default": True}
    if plain == "flag":
        return {**settings, "is_flag": True}
    if plain == "count":
        return {**settings, "count": True}
    if plain == "switch":
        return {**settings, "default": None}
    if plain == "int":
        return {**settings, "type": click.IntRange(min=int(least))}
    if plain == "float":
        return {**settings, "type": click.FloatRange(min=float(least) if least else None)}
    if "," in plain:
        return {**settings, "type": click.Choice(plain.split(","))}
    if plain.startswith("new"):
        place = click.Path(file_okay=plain != "newdirectory", dir_okay=plain != "newfile")
        return {**settings, "type": place, "callback": _check_place}
    if plain == "language":
        return {**settings, "type": click.Choice(["en", *LANGUAGES]), "expose_value": False, "callback": _choose}
    if plain == "picture":
        return {**settings, "callback": _check_picture, "shell_complete": find_completion("file")}
    return {**settings, "shell_complete": find_completion(plain)}


def _choose(_: click.Context, __: click.Parameter, language: str | None) -> None:
    choose(language)


def _check_place(_: click.Context, option: click.Parameter, path: str | None) -> str | None:
    if path is not None:
        from compatcheck.core.programs import LED_ASTRAY, is_led_astray  # noqa: PLC0415 (only where something is written)

        if is_led_astray(path):
            raise UsageError(f"{option.opts[0]} {path} is not written: {LED_ASTRAY}", hint="name another file")
    return path


def _check_picture(context: click.Context, option: click.Parameter, path: str | None) -> str | None:
    if path is not None:
        from compatcheck.reporters.figure import check_picture  # noqa: PLC0415 (only when asked)

        check_picture(path)
    return _check_place(context, option, path)
