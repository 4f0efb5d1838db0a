"""What a shell completes where a value is taken: files, rules, models, devices, facts, probes, words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from click.shell_completion import BashComplete, CompletionItem, ZshComplete, add_completion_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click import Context, Parameter


@add_completion_class
class _Bash(BashComplete):
    """Puts no blank behind ``NAME=`` and ``FORMAT:``, as fish does by itself."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *[=:] ]] && compopt -o nospace"
    )


@add_completion_class
class _Zsh(ZshComplete):
    """Does so in zsh."""

    source_template = ZshComplete.source_template.replace(
        "        _describe -V unsorted completions_with_descriptions -U",
        "        local -a ends=(${(M)completions_with_descriptions:#*=:*}) joined\n"
        "        (( $#ends )) && joined=(-S '')\n"
        '        _describe -V unsorted completions_with_descriptions -U "${joined[@]}"',
    )


class Complete(Protocol):
    """Completes a value, as click asks for it."""

    def __call__(self, ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
        """Return what the value that was begun may be."""


def find_completion(kind: str) -> Complete:
    """Return what completes values of a kind of the table of options; of plain text there is nothing to say."""

    def complete(ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:
        if kind in {"file", "directory"}:
            return [CompletionItem(incomplete, type=kind.removesuffix("ectory"))]
        typed = {"gpu": r"\d*x", "axis": ".*,"}.get(kind, "")
        begun = re.match(f"{typed}|", incomplete)[0]  # type: ignore[index]  # always a match
        values = ((begun + value, text) for value, text in _list_values(kind, ctx, param))
        found = [CompletionItem(value, help=text) for value, text in values if value.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type="file")] if kind == "model" else [])

    return complete


def _list_values(kind: str, ctx: Context, param: Parameter) -> Iterator[tuple[str, str | None]]:
    """List what there is of a kind, each with a line about it."""
    from compatcheck.checking.known_names import list_data, list_of_policy  # noqa: PLC0415 (not to start a command)
    from compatcheck.cli.laboratory import list_probes  # noqa: PLC0415 (see above)

    if kind == "word":
        yield from ((word, None) for word in (param.metavar or "").split("|") if word.islower())
    elif kind == "output":
        formats = next(other for other in ctx.command.params if other.name == "format_name")
        yield from ((f"{name}:", None) for name in formats.type.choices)  # type: ignore[attr-defined]
    elif kind == "axis":
        from compatcheck.memory.largest_settings import AXES  # noqa: PLC0415 (not to start a command)

        yield from ((name, fact) for name, (fact, _) in AXES.items())
    elif kind == "level":
        from compatcheck.core.report import SEVERITIES  # noqa: PLC0415 (see above)

        yield from ((name, None) for name in (*SEVERITIES, "never"))
    elif kind in {"run", "target"}:
        yield from ((name, None) for name in list_of_policy(kind, ctx.params.get("policy")))
    elif kind == "probe":
        yield from ((name, None) for name in list_probes())
    else:
        yield from list_data(kind)
