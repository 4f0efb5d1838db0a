"""The options commands share, in help groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

INPUTS, CHECKS, OUTPUT = "Inputs", "Checks", "Output"


class GroupedOption(click.Option):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, *args: Any, group: str = "Options", **kwargs: Any) -> None:  # noqa: ANN401 (click's signature)
        """Keep the heading beside what click wants."""
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists options by heading."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)


def grouped_option(group: str, *names: str, **settings: Any) -> Callable[[F], F]:  # noqa: ANN401 (click's signature)
    """Return an option under a heading of its own in the help; the settings are click's."""
    return click.option(*names, cls=GroupedOption, group=group, **settings)


def apply_options(options: list[Callable[[F], F]]) -> Callable[[F], F]:
    """Return one decorator that adds options in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


environment_options = apply_options(
    [
        grouped_option(
            INPUTS, "--python", metavar="PYTHON", help="Interpreter whose environment is checked; it is not run."
        ),
        grouped_option(INPUTS, "--prefix", metavar="DIR", help="Environment, or directory of packages, to check."),
    ],
)

inside_image_options = apply_options(
    [
        grouped_option(
            INPUTS,
            "--environment",
            "image_environments",
            metavar="PREFIX",
            multiple=True,
            help="Environment inside the image, /opt/venv; repeatable. Default: the one the image starts.",
        ),
        grouped_option(INPUTS, "--no-cache", is_flag=True, help="Read every layer of the image again."),
    ],
)
image_options = apply_options(
    [
        grouped_option(
            INPUTS,
            "--image",
            metavar="TAR|DIR|-",
            help="Container image whose environment is checked: archive, layout or root directory.",
        ),
        inside_image_options,
    ]
)

file_options = apply_options(
    [
        grouped_option(
            INPUTS,
            "--extra",
            "extras",
            metavar="NAME",
            multiple=True,
            help="Extra of the project that is installed; repeatable. Packages of other extras and groups may be there or not.",
        ),
        grouped_option(INPUTS, "--all-extras", is_flag=True, help="Every extra is installed."),
        grouped_option(
            INPUTS,
            "--group",
            "groups",
            metavar="NAME",
            multiple=True,
            help="Dependency group that is installed, or section of a Pipfile; repeatable.",
        ),
        grouped_option(
            INPUTS, "--python-version", metavar="VERSION", help="Python that locks and requirements are for: 3.11."
        ),
        grouped_option(
            INPUTS, "--stage", metavar="NAME", help="Stage of a Dockerfile that is built. Default: the last."
        ),
        grouped_option(
            INPUTS,
            "--script-args",
            "script_arguments",
            metavar="ARGS",
            help="What launch scripts that are named are started with: '8 llama'.",
        ),
    ]
)

input_options = apply_options(
    [
        grouped_option(
            INPUTS,
            "--model",
            metavar="PATH|ID",
            help="config.json, model directory, cached hub id or known model.",
        ),
        grouped_option(
            INPUTS,
            "--training",
            metavar="FILE",
            multiple=True,
            help="DeepSpeed, accelerate, HF Trainer or TRL configuration, or a facts file; repeatable.",
        ),
        grouped_option(
            INPUTS,
            "--gpu",
            metavar="[Nx]NAME",
            help="Devices of a node, 8xH100-80GB, or cloud instances, 2xp4d.24xlarge.",
        ),
        grouped_option(
            INPUTS,
            "--nodes",
            metavar="N",
            type=click.IntRange(min=1),
            help="Number of nodes; 1 when only --gpu is given.",
        ),
        grouped_option(
            INPUTS, "--driver", metavar="VERSION", help="NVIDIA driver version of the machine that will run."
        ),
        grouped_option(
            INPUTS,
            "--set",
            "settings",
            metavar="NAME=VALUE",
            multiple=True,
            help="State a fact; repeatable, wins over files.",
        ),
        grouped_option(
            INPUTS, "--env-file", metavar="FILE", help="Environment variables of the run, as NAME=VALUE lines."
        ),
        grouped_option(
            INPUTS, "--run", metavar="NAME", multiple=True, help="Inputs of a named run of the policy; repeatable."
        ),
        grouped_option(
            INPUTS,
            "--target",
            metavar="NAME",
            multiple=True,
            help="Machine of the policy to check for; all of them by default.",
        ),
        grouped_option(
            INPUTS,
            "--policy",
            metavar="FILE",
            help="Policy file. Default: the nearest compatcheck.toml or pyproject.toml with [tool.compatcheck].",
        ),
        grouped_option(INPUTS, "--no-policy", is_flag=True, help="Use no policy."),
    ],
)

rule_directory_option = grouped_option(
    CHECKS,
    "--rules",
    "rule_directories",
    metavar="DIR",
    multiple=True,
    help="Further directory of rule files.",
)

selection_options = apply_options(
    [
        grouped_option(
            CHECKS, "--select", metavar="GLOB", multiple=True, help="Only rules whose id matches; repeatable."
        ),
        grouped_option(
            CHECKS,
            "--ignore",
            metavar="GLOB",
            multiple=True,
            help="Leave out rules whose id matches; repeatable.",
        ),
        rule_directory_option,
    ],
)

rule_check_options = apply_options(
    [
        selection_options,
        grouped_option(
            CHECKS,
            "--fail-on",
            metavar="LEVEL|SIZE",
            default=None,
            help="Exit 1 from this severity (info … critical), size (5GiB) or share (10%); never. Default: medium.",
        ),
        grouped_option(
            CHECKS,
            "--strict/--no-strict",
            default=None,
            help="Possible findings and unreadable files fail too; waivers need an end.",
        ),
        grouped_option(
            CHECKS,
            "--fail-unread/--no-fail-unread",
            default=None,
            help="Exit 4 also where a file found in a directory could not be read, or not whole.",
        ),
    ],
)

check_options = apply_options(
    [
        rule_check_options,
        grouped_option(
            CHECKS,
            "--security",
            is_flag=True,
            help="Run pip-audit on the same versions; an advisory fails the run. Asks a service on the network.",
        ),
        grouped_option(
            CHECKS,
            "--security-service",
            metavar="pypi|osv|URL",
            default=None,
            help="Whom pip-audit asks; URL is an OSV query endpoint. Default: pip-audit's own. Implies --security.",
        ),
    ],
)


def picture_option(what: str) -> Callable[[F], F]:
    """Return the option of a command that draws its result."""
    return grouped_option(OUTPUT, "--plot", metavar="FILE", callback=_check_picture, help=f"Draw {what}: .svg.")


def _check_picture(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    if path is not None:
        from compatcheck.reporters.figure import check_picture  # noqa: PLC0415 (only when asked)

        check_picture(path)
    return path


def output_options(formats: tuple[str, ...]) -> Callable[[F], F]:
    """Return the output options for a command with these formats."""
    return apply_options(
        [
            grouped_option(
                OUTPUT,
                "--format",
                "format_name",
                type=click.Choice(formats),
                default=formats[0],
                show_default=True,
                help="Format on standard output.",
            ),
            grouped_option(
                OUTPUT,
                "--output",
                "outputs",
                metavar="FORMAT:FILE",
                multiple=True,
                help="Also write a report to a file; repeatable.",
            ),
            grouped_option(OUTPUT, "-q", "--quiet", is_flag=True, help="One line per finding."),
            grouped_option(OUTPUT, "-v", "--verbose", count=True, help="More detail; -vv shows every fact used."),
            grouped_option(
                OUTPUT,
                "--color",
                type=click.Choice(["auto", "always", "never"]),
                default="auto",
                show_default=True,
                help="Colour.",
            ),
        ],
    )
