"""What is read without the option parser is what the option parser would give."""

from __future__ import annotations

from typing import Any

import click
import pytest

from compatcheck.checking.asked import inspect
from compatcheck.cli.arguments import (
    ESTIMATE_FORMATS,
    LACKING_IN_ESTIMATE,
    PLAIN_LISTS,
    PLAIN_OPTIONS,
    parse_plain,
    split,
)
from compatcheck.cli.check import command as check
from compatcheck.cli.env import command
from compatcheck.cli.estimate import command as estimate


def parsed_by_click(arguments: list[str]) -> dict[str, Any]:
    return dict(command.make_context("env", list(arguments)).params)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--model", "llama-3-8b"],
        ["--training", "a.json", "--training", "b.yaml", "--gpu", "8xH100-80GB"],
        ["--set", "training.zero_stage=3", "--set", "model.hidden_size=1", "--fail-on", "5GiB"],
        ["--python", "python3", "--driver", "550.54.15", "--env-file", "x.env", "--select", "torch/*"],
        ["--gpu", "H100", "--gpu", "A100-80GB"],
        ["--format", "json", "--model", "llama-3-8b"],
    ],
)
def test_plain_options_split_alike(arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    plain = parse_plain(arguments)
    assert plain is not None
    assert split(plain, files=False) == split(parsed_by_click(arguments), files=False)
    arguments = ["a.txt", *arguments, "b/c.yaml", ""]
    plain = parse_plain(arguments, files=True)
    assert plain is not None
    assert split(plain, files=True) == split(check.make_context("check", list(arguments)).params, files=True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-q"],
        ["--model"],
        ["--model=x"],
        ["--strict"],
        ["--mod", "x"],
        ["--model", "--gpu"],
        ["x"],
        ["--nodes", "2"],
        ["--help"],
        ["--format", "xml"],
    ],
)
def test_everything_else_is_left_to_the_option_parser(arguments: list[str]) -> None:
    assert parse_plain(arguments) is None
    assert arguments == ["x"] or parse_plain(["a.txt", *arguments], files=True) is None


def test_a_path_that_looks_like_an_option_is_left_to_the_option_parser() -> None:
    assert parse_plain(["-"], files=True) is None
    assert parse_plain(["--", "-x"], files=True) is None


def test_an_estimate_is_asked_for_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["a.yaml", "--gpu", "H100", "--set", "training.zero_stage=3", "--format", "markdown", "--model", "x"]
    plain = parse_plain(arguments, files=True, estimate=True)
    known = estimate.make_context("estimate", list(arguments)).params
    assert plain is not None
    assert plain == {name: known[name] for name in plain}
    assert inspect(plain, files=True) == inspect(known, files=True)
    defaults = {name: value for name, value in known.items() if name not in plain and value}
    assert defaults == {}


@pytest.mark.parametrize("arguments", [["--fail-on", "high"], ["--format", "sarif"], ["--suggest"], ["--rules", "x"]])
def test_what_an_estimate_does_not_take_is_left_to_the_option_parser(arguments: list[str]) -> None:
    assert parse_plain(["a.yaml", *arguments], files=True, estimate=True) is None


@pytest.mark.parametrize(
    ("command", "lacking"), [(command, frozenset()), (check, frozenset()), (estimate, LACKING_IN_ESTIMATE)]
)
def test_every_plain_option_is_one_of_the_command(command: click.Command, lacking: frozenset[str]) -> None:
    known = {
        name: parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
    }
    assert lacking.isdisjoint(known)
    if lacking:
        assert tuple(known["--format"].type.choices) == ESTIMATE_FORMATS  # type: ignore[attr-defined]  # a choice
    for name, parameter in {**PLAIN_OPTIONS, **PLAIN_LISTS}.items():
        if name in lacking:
            continue
        assert known[name].name == parameter
        assert known[name].multiple == (name in PLAIN_LISTS)
        assert known[name].type is click.STRING
