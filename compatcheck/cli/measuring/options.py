"""The options that the measuring commands share."""

from __future__ import annotations

import click

from compatcheck.cli.options import OUTPUT, apply_options, grouped_option

ENVIRONMENT = "Environment"
MEASURING = "Measuring"

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
"""What every command has that measures releases; `compatcheck.lab.settings.Settings` takes their values."""

jobs_option = grouped_option(
    MEASURING, "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Releases measured at a time."
)
