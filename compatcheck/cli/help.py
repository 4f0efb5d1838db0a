"""Helps: what a command does, examples, its own options, its exit codes, its page; shared options stand apart, once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from compatcheck.cli.options import Row, TableOption, read_table
from compatcheck.core.data_file import read_text
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.nearest import find_nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOPICS = ("options", "exit-codes")


class Lesson(NamedTuple):
    """What the help of one command teaches."""

    page: str
    """Its page in ``docs/``."""
    codes: Mapping[int, str]
    """What its exit codes mean, in its words or those of every command."""
    examples: tuple[tuple[str, str], ...]
    """Exit code, ``N`` where the network or torch is needed, and command."""


class Command(click.Command):
    """A command whose help has the same sections as that of every other one."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, the command's own options, the names of the shared ones, exit codes and the page."""
        lesson = find_lesson(ctx)
        write_examples(lesson, formatter)
        own, shared = [], {}  # type: ignore[var-annotated]
        for option in (parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)):
            heading = option.row.heading if isinstance(option, TableOption) else None
            if heading is None:
                own.append(option.get_help_record(ctx))
            else:
                shared.setdefault(heading, []).append(_name(option))
        with formatter.section("Options"):
            formatter.write_dl([record for record in own if record is not None])
        if shared:
            with formatter.section("Shared options, which `compatcheck help options` describes"):
                formatter.write_dl([(heading, ", ".join(names)) for heading, names in shared.items()])
        write_end(lesson, formatter)


class Group(click.Group):
    """A group of commands with ``help`` among them."""

    command_class = Command

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command; ``help`` shows this group or one of its commands."""
        return super().get_command(ctx, name) or (make_help(self) if name == "help" else None)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, the commands and the page."""
        lesson = find_lesson(ctx)
        write_examples(lesson, formatter)
        self.format_commands(ctx, formatter)
        write_end(lesson, formatter)


def make_help(group: click.Group) -> click.Command:
    """Make the command that shows the help of a group or of what is named below it."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in (*group.list_commands(ctx), *TOPICS) if name.startswith(incomplete)]

    @click.command("help", cls=Command)
    @click.argument("names", nargs=-1, metavar="[COMMAND]...", shell_complete=complete)
    @click.pass_context
    def command(ctx: click.Context, names: tuple[str, ...]) -> None:
        """Show the help of a command, `options` that commands share, or `exit-codes`."""
        outer = ctx.parent
        assert outer is not None  # noqa: S101 (a command of a group)
        if outer.parent is None and names in {(topic,) for topic in TOPICS}:
            formatter = ctx.make_formatter()
            _write_shared(ctx, formatter) if names == ("options",) else _write_codes(read_codes(), formatter)
            click.echo(formatter.getvalue().strip("\n"))
            return
        found: click.Command = group
        for name in names:
            inner = found.get_command(outer, name) if isinstance(found, click.Group) else None
            if inner is None:
                known = found.list_commands(outer) if isinstance(found, click.Group) else []
                near = find_nearest(name, (*known, *TOPICS) if found is group else known, cutoff=0.6)
                ctx.fail(f"There is no command {' '.join(names)!r}." + (f" Did you mean {near!r}?" if near else ""))
            outer, found = click.Context(inner, info_name=name, parent=outer), inner
        click.echo(found.get_help(outer))

    return command


def read_codes() -> dict[int, str]:
    """Read what exit codes mean, whatever the command."""
    rows = (line.partition(" ") for line in read_text(__file__, "exit_codes").splitlines())
    return {int(code): words for code, _, words in rows if code.isdecimal()}


def read_lessons() -> dict[str, Lesson]:
    """Read what helps teach, by the name of the command."""
    lessons, common = {}, read_codes()
    for block in read_text(__file__, "help").split("\n[")[1:]:
        head, *lines = block.splitlines()
        name, _, page = head.partition("] ")
        given = [line.partition(" ") for line in lines if line]
        codes = {int(code): words or common[int(code)] for code, _, words in given if code.isdecimal()}
        lessons[name] = Lesson(page, codes, tuple((code[1:], text) for code, _, text in given if code[0] == "$"))
    return lessons


def find_lesson(ctx: click.Context) -> Lesson:
    """Find what the help of a command teaches; of its exit codes what its options can bring about."""
    lesson = read_lessons().get(ctx.command_path.partition(" ")[2], Lesson("commands.md", {}, ()))
    taken = {name for parameter in ctx.command.params for name in parameter.opts}
    return lesson._replace(codes={code: _narrow(words, taken) for code, words in lesson.codes.items()})


def find_page(name: str) -> str:
    """Return where a page of the documentation is: its address where the package states one, else the file of a checkout."""
    from importlib.metadata import PackageNotFoundError, metadata  # noqa: PLC0415 (beside its use)
    from pathlib import Path  # noqa: PLC0415 (beside its use)

    from compatcheck.rules.locate import CHECKOUT, is_checkout  # noqa: PLC0415 (beside its use)

    try:
        urls = [row.partition(", ") for row in metadata("compatcheck").get_all("Project-URL") or ()]
    except PackageNotFoundError:
        urls = []
    base = next((url for label, _, url in urls if label == "Documentation"), None)
    if base is not None:
        return f"{base.rstrip('/')}/{name}"
    return Path(CHECKOUT).with_name("docs").joinpath(name).as_uri() if is_checkout() else f"docs/{name} of the sources"


def write_examples(lesson: Lesson, formatter: click.HelpFormatter) -> None:
    """Write the examples, each on lines of its own that can be pasted."""
    if lesson.examples:
        with formatter.section("Examples"):
            for _, text in lesson.examples:
                formatter.write("".join(_fold(text, formatter)))


def write_end(lesson: Lesson, formatter: click.HelpFormatter) -> None:
    """Write the exit codes and the page."""
    if lesson.codes:
        _write_codes(lesson.codes, formatter)
    formatter.write(f"\nRead on: {find_page(lesson.page)}\n")


def _narrow(words: str, taken: set[str]) -> str:
    """Leave out of the words of an exit code the clauses about options that a command does not take."""

    def keep(clause: re.Match[str]) -> str:
        return clause[0] if all(name in taken for name in re.findall(r"`(--[\w-]+)", clause[0])) else ""

    return re.sub(r" \([^()]*\)|; [^;()]*", keep, words)


def _fold(command: str, formatter: click.HelpFormatter) -> Iterator[str]:
    """Break a command that is wider than the help before an option or another command."""
    line = " " * formatter.current_indent
    for part in re.split(r"(?= --| \|)", command):
        if len(line) + len(part) + 2 > formatter.width:
            yield f"{line} \\\n"
            line = " " * (formatter.current_indent + 3)
        line += part
    yield f"{line}\n"


def _name(option: click.Option) -> str:
    choices = f" {'|'.join(option.type.choices)}" if option.name == "format_name" else ""  # type: ignore[attr-defined]
    return option.opts[0] + choices


def _write_codes(codes: Mapping[int, str], formatter: click.HelpFormatter) -> None:
    with formatter.section("Exit codes" if 2 in codes else "Exit codes, beside those of `compatcheck help exit-codes`"):
        formatter.write_dl([(str(code), words) for code, words in codes.items()])


def _write_shared(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Describe what several commands take; which ones a command takes, its own help says."""
    from compatcheck.cli.options import make_option  # noqa: PLC0415 (beside its use)

    sections: dict[str, list[Row]] = {}
    for row in (row for rows in read_table().values() for row in rows if row.heading is not None):
        sections.setdefault(row.heading or "", []).append(row)
    for heading, rows in sections.items():
        with formatter.section(heading):
            formatter.write_dl([record for row in rows if (record := make_option(row).get_help_record(ctx))])
