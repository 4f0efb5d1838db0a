"""The command group: commands are imported when they are asked for."""

from __future__ import annotations

from importlib import import_module

import click

from compatcheck import __version__
from compatcheck.cli import laboratory
from compatcheck.cli.help import Group, make_help

COMMANDS = {
    "env": ("compatcheck.cli.env", "Check an installed environment."),
    "check": ("compatcheck.cli.check", "Check files: requirements, locks, configurations, directories."),
    "image": ("compatcheck.cli.image", "Check a container image: archive, layout or root directory."),
    "bulk": ("compatcheck.cli.bulk", "Check thousands of inputs, a line of JSON for each."),
    "fleet": ("compatcheck.cli.fleet", "Compare the nodes of one job: on Ray, or by what each wrote."),
    "facts": ("compatcheck.cli.facts", "Show what was understood: every fact, its origin and line."),
    "explain": ("compatcheck.cli.explain", "Show why a rule matches here, or which fact rules it out."),
    "diff": ("compatcheck.cli.diff", "Compare two environments or lock files: regressions entered and left."),
    "fix": ("compatcheck.cli.fix", "Show or write the smallest changes that clear the findings."),
    "estimate": ("compatcheck.cli.estimate", "Estimate the memory of a run, and what would make it fit."),
    "oom": ("compatcheck.cli.oom", "Explain an out-of-memory message or log."),
    **laboratory.COMMANDS,
    "rules": ("compatcheck.cli.rules", "List, show, lint, start and export rules."),
    "mcp": ("compatcheck.cli.mcp", "Serve these answers to an assistant, over the Model Context Protocol."),
    "doctor": ("compatcheck.cli.doctor", "Show what this installation can do, and how to get the rest."),
    "help": ("compatcheck.cli.help", "Show a help, the options that commands share, or exit codes."),
}
"""Command → module that defines it, and its line of help, so that help imports nothing."""


class LazyGroup(Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002 (click's signature)
        """Import and return one command."""
        if name in laboratory.COMMANDS:
            laboratory.require_laboratory(f"`compatcheck {name}`")
        if name == "help":
            return make_help(self)
        entry = COMMANDS.get(name)
        return None if entry is None else import_module(entry[0]).command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; files and text that come without a command are given to the one that they are for."""
        if not ctx.resilient_parsing and (not args or args[0] not in COMMANDS):
            from compatcheck.cli.bare import complete_line, is_input  # noqa: PLC0415 (without a command)

            named = next((word for word in args if word in COMMANDS), None) if args and args[0][:1] == "-" else None
            if named is not None:  # options that stand in front of it
                args = [named, *args[: args.index(named)], *args[args.index(named) + 1 :]]
            elif not args or is_input(args[0]) or (args[0][:1] == "-" and args[0] not in {"-h", "--help", "--version"}):
                args = complete_line(args) or args
        return super().parse_args(ctx, args)

    def resolve_command(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command when there is none of this name."""
        if args and args[0] not in COMMANDS:
            from compatcheck.core.nearest import find_nearest  # noqa: PLC0415 (only on the way to an error)

            near = find_nearest(args[0], COMMANDS, cutoff=0.6)
            ctx.fail(f"No such command or file {args[0]!r}." + (f" Did you mean {near!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's signature)
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="compatcheck", message="%(prog)s %(version)s")
def group() -> None:
    """Find known memory regressions in a training stack, sized in GiB for your model.

    Start with `compatcheck env`, `compatcheck check DIRECTORY`, or the text of a failed run: `compatcheck < thread.txt`.
    Without a command text and files are answered by `oom` where they hold an out-of-memory message, else by `check`; a file
    that has the name of a command is written `./env`.

    Nothing inspected is imported or executed.
    Only commands that measure releases (bisect, sweep, watch, confirm, probe run, and --trace) use the network, to install
    them in environments of their own; fix, to ask an index what fits together; and --security, which asks for advisories.
    """
