"""The catalogue of probes and the page of one, in 80 columns."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.lab.measurement import show_parameter
from compatcheck.lab.probes.backends import BACKENDS
from compatcheck.lab.reporters.measurement import show_quantity, wrap_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compatcheck.lab.probes.probe import Probe


class Parameter(NamedTuple):
    """A parameter of a probe, its values as a person writes them."""

    name: str
    default: str
    choices: tuple[str, ...]
    """All its values where they are a closed set, else empty."""


def format_entry(name: str, last: str, title: str) -> str:
    """Format one probe of a list: its name, when it was last measured on each back end, and what it measures."""
    return "\n".join([*wrap_text(f"{name}  [{last}]", "", "    "), *wrap_text(title, "  ")]) + "\n"


def format_parameters(parameters: Iterable[Parameter]) -> str:
    """Format parameters, one in a line, with the values each can have."""
    lines = ["parameters:"]
    for one in parameters:
        start = f"  {one.name}={one.default}"
        lines += wrap_text(f"{start}  ({', '.join(one.choices)})" if one.choices else start, "", "      ")
    return "\n".join(lines) + "\n"


def format_documentation(text: str) -> str:
    """Format a probe's docstring: paragraphs and lists are filled anew, tables and what is indented stay as they are."""
    lines: list[str] = []
    for blank, group in groupby(text.splitlines(), key=lambda line: not line.strip()):
        lines += [""] if blank else _fill(list(group))
    return "\n".join(lines) + "\n"


def _fill(paragraph: Sequence[str]) -> Iterator[str]:
    if any(line.startswith("===") for line in paragraph):
        yield from paragraph
        return
    item: list[str] = []
    for line in paragraph:
        if line.startswith(("- ", "* ")) and item:
            yield from _fill_item(item)
            item = []
        item.append(line)
    yield from _fill_item(item)


def _fill_item(lines: Sequence[str]) -> list[str]:
    indent = "  " if lines[0].startswith(("- ", "* ")) else ""
    # A line after a list that is not indented is text again.
    inner = [line for line in lines[1:] if line.startswith("  ")] if indent else list(lines[1:])
    after = lines[1 + len(inner) :]
    filled = wrap_text(" ".join([lines[0], *(line.strip() for line in inner)]), "", indent)
    return [*filled, *(wrap_text(" ".join(after), "") if after else [])]


def format_page(probe: Probe) -> str:
    """Format the page of a probe: what it measures and why, its back ends, parameters and predictions."""
    module = probe.module
    lines = [f"{probe.name} ({probe.hash_for(module.DEFAULTS)})", "", format_documentation(probe.documentation)]
    lines += wrap_text(f"needs: {', '.join(dict.fromkeys(('torch', *module.PACKAGES)))}", "", "  ")
    lines.append(f"back ends: {', '.join(module.BACKENDS)}")
    for back_end in (BACKENDS[name] for name in module.BACKENDS):
        lines += wrap_text(f"{back_end.name}: counts {back_end.measures};", "  ", "    ")
        lines += wrap_text(f"cannot say: {back_end.cannot}", "    ")
    shown = [
        Parameter(name, show_parameter(value), tuple(map(show_parameter, probe.choices.get(name, ()))))
        for name, value in module.DEFAULTS.items()
    ]
    lines += format_parameters(shown).splitlines()
    for metric, value in module.predict(module.DEFAULTS).items():
        mark = " (decides the verdict)" if metric == module.METRIC else ""
        text = f"predicted with these: {metric} = {show_quantity(metric, value)}{mark}"
        lines += wrap_text(text, "", "  ")
    return "\n".join(lines) + "\n"
