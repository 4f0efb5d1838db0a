"""An explanation of one rule, for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.columns import pad
from compatcheck.core.language import translate
from compatcheck.core.summary import place_text, shared_directory, value_text
from compatcheck.core.units import format_bytes
from compatcheck.reporters.text import wrap_names, wrap_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compatcheck.core.facts import Fact

_BULLET = "- "
_MARKS = {True: "yes", False: "no ", None: "?  "}


def format_explanation(explanation: Any) -> str:  # noqa: ANN401 (matching.explain.Explanation: reporters import only core)
    """Format an explanation."""
    return "\n".join(_lines(explanation)) + "\n"


def split_prose(text: str) -> list[str]:
    """Split Markdown into its paragraphs and items of lists, each on one line."""
    return [" ".join(part.split()) for part in re.split(rf"\n\n|\n(?={_BULLET})", text.strip())]


def _lines(explanation: Any) -> Iterator[str]:  # noqa: ANN401 (see format_explanation)
    rule, decision, texts = explanation.rule, explanation.decision, explanation.texts
    base = _base(explanation)
    yield from wrap_names(f"{rule.id}: {translate(_VERDICTS[decision.status])}", "", "  ")
    yield from wrap_names(rule.title, "  ", "  ")
    role = "" if explanation.role == "train" else f" ({explanation.role})"
    yield from wrap_names(f"{explanation.subject}{role}", "  ", "    ")
    if rule.status != "active":
        yield from wrap_names(f"this rule is {rule.status} and never matches: {texts.reason}", "  ", "    ")
    yield ""
    several = len(explanation.alternatives) > 1
    for index, alternative in enumerate(explanation.alternatives):
        if several:
            yield f"  {translate(f'affected, alternative {index + 1}')}"
        yield from _conditions(alternative, base)
    settled = any(all(part.outcome for part in alternative) for alternative in explanation.alternatives)
    if several and decision.status == "affected" and not settled:
        yield from wrap_names("each release that is allowed is in one of these alternatives", "  ", "    ")
    if explanation.conditions:
        yield f"  {translate('and')}"
        yield from _conditions(explanation.conditions, base)
    if explanation.exceptions:
        yield f"  {translate('unless')}"
        yield from _conditions(explanation.exceptions, base)
    yield ""
    yield from _size(explanation, base)
    if decision.needs:
        yield from wrap_names("would decide it: " + ", ".join(decision.needs), "  ", "    ")
    blocking = _blocking(explanation)
    if blocking:
        yield from wrap_names(f"ruled out by: {'; '.join(blocking)}", "  ", "    ")
    elif explanation.because is not None:
        yield from wrap_names(f"not among the findings: {translate(explanation.because)}", "  ", "    ")
    for assumption in decision.assumptions:
        yield from wrap_text(f"assumed: {assumption}", 2, 4)
    yield ""
    for heading, text in (("what", texts.what), ("why", texts.why), ("known problems", texts.known_problems)):
        if text:
            yield f"  {translate(heading)}"
            for part in split_prose(text):
                yield from wrap_text(part, 4, 6 if part.startswith(_BULLET) else 4)
    evidence = f": {_evidence(texts.evidence)}" if texts.evidence else ""
    yield from wrap_names(f"confidence: {rule.confidence}{evidence}", "  ", "    ")
    for reference in texts.references:
        yield f"  {pad(translate(reference['type'].lower()), 13)} {reference['url']}"
    yield ""


_VERDICTS = {
    "affected": "affects this subject",
    "possible": "may affect this subject",
    "silent": "does not affect this subject",
}


def _conditions(conditions: Any, base: str) -> Iterator[str]:  # noqa: ANN401 (see format_explanation)
    for condition in conditions:
        yield from wrap_names(f"{translate(_MARKS[condition.outcome])}  {condition.text}", " " * 4, " " * 9)
        yield from _facts(condition.facts, base)
        for name in condition.missing:
            yield f"           {translate(f'{name} is unknown')}"


def _facts(facts: Iterable[Fact], base: str) -> Iterator[str]:
    for fact in facts:
        yield from wrap_names(f"{_named(fact)}  [{translate(place_text(fact, base))}]", " " * 11, " " * 13)


def _size(explanation: Any, base: str) -> Iterator[str]:  # noqa: ANN401 (see format_explanation)
    formula = explanation.texts.formula
    if formula is None:
        yield f"  {translate('size: no formula is established')}"
        return
    yield from wrap_names(f"size: {formula}", "  ", " " * 8)
    yield from _facts(explanation.size_facts, base)
    if explanation.expected_bytes is None:
        yield from wrap_names("needs " + ", ".join(explanation.size_needs), " " * 8, " " * 10)
    else:
        size = explanation.expected_bytes
        yield f"        = {translate(f'{size:,} bytes')} = {translate(f'{format_bytes(size)} per {explanation.rule.scope}')}"


def _blocking(explanation: Any) -> list[str]:  # noqa: ANN401 (see format_explanation)
    if explanation.decision.status != "silent":
        return []
    if explanation.because is not None:
        return [translate(explanation.because)]
    texts = [condition.text for condition in explanation.conditions if condition.outcome is False]
    if explanation.exceptions and all(condition.outcome is True for condition in explanation.exceptions):
        texts.append("the exception " + " and ".join(condition.text for condition in explanation.exceptions))
    dead = [
        [condition for condition in alternative if condition.outcome is False]
        for alternative in explanation.alternatives
    ]
    if dead and all(dead):
        texts = [_because(condition) for alternative in dead for condition in alternative] + texts
    return list(dict.fromkeys(texts))


def _because(condition: Any) -> str:  # noqa: ANN401 (see format_explanation)
    found = ", ".join(f"{_named(fact)}" for fact in condition.facts)
    return f"{condition.text} (found {found})" if found else condition.text


def _base(explanation: Any) -> str:  # noqa: ANN401 (see format_explanation)
    """Return the directory, with its slash, that holds every file the explanation points at."""
    conditions = [
        *explanation.conditions,
        *explanation.exceptions,
        *(part for parts in explanation.alternatives for part in parts),
    ]
    facts = [fact for condition in conditions for fact in condition.facts] + list(explanation.size_facts)
    return shared_directory(source for fact in facts for source in fact.sources)


def _named(fact: Fact) -> str:
    """Write a fact with exact numbers: an explanation is arithmetic."""
    value = (
        f"{fact.value:,}"
        if isinstance(fact.value, int) and not isinstance(fact.value, bool)
        else value_text(fact.value)
    )
    return f"{fact.name} {value}" if "." not in fact.name else f"{fact.name} = {value}"


def _evidence(names: tuple[str, ...]) -> str:
    folders: dict[str, int] = {}
    for name in names:
        folder = name.rpartition("/")[0]
        folders[folder] = folders.get(folder, 0) + 1
    return ", ".join(
        f"{count} file{'s' if count > 1 else ''} of measurements in {folder}" for folder, count in folders.items()
    )
