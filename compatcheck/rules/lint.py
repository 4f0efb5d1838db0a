"""Static checks of a rule: vocabulary, types, ranges, references, and examples that cover each boundary and each atom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import RuleError, UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, contains, parse_version
from compatcheck.rules.expression import conjuncts, write
from compatcheck.rules.rule import COMPONENTS, Rule
from compatcheck.rules.syntax import parse
from compatcheck.rules.types import BOOL, NUMBER, check_expression
from compatcheck.rules.values import parse_value

if TYPE_CHECKING:
    from pathlib import Path


class Problem(NamedTuple):
    """One thing to mend in a rule file."""

    source: Source
    message: str


Truth = Callable[[str, Mapping[str, Any]], bool | None]
"""Evaluates an expression over an example: True, False, or None when undecided."""

CheckEvidence = Callable[["Rule", "Path"], Iterator[tuple[str, str]]]
"""Yields key and message of what is wrong with a rule's probe and evidence, which is relative to a folder."""


def lint_rule(
    rule: Rule,
    releases: Callable[[str], tuple[str, ...]],
    truth: Truth,
    root: Path,
    check_evidence: CheckEvidence | None,
) -> Iterator[Problem]:
    """Yield what is wrong with a rule."""
    for key, message in _messages(rule, releases, truth):
        yield Problem(Source(rule.path, key), message)
    for key, message in () if check_evidence is None else check_evidence(rule, root):
        yield Problem(Source(rule.path, key), message)


def _messages(
    rule: Rule,
    releases: Callable[[str], tuple[str, ...]],
    truth: Truth,
) -> Iterator[tuple[str, str]]:
    yield from _check_expressions(rule)
    broken = list(_check_ranges(rule, releases))
    yield from broken
    yield from _check_remedies(rule)
    yield from _check_texts(rule)
    if rule.status == "active":
        if not broken:
            yield from _check_boundaries(rule, releases)
        yield from _check_atoms(rule, truth)
    if rule.confidence == "measured" and not rule.evidence:
        yield "evidence", "`confidence: measured` needs evidence"


def _check_expressions(rule: Rule) -> Iterator[tuple[str, str]]:
    conditions = [("when", rule.when), ("unless", rule.unless)]
    conditions += [(f"affected.{index}.when", clause.when) for index, clause in enumerate(rule.clauses)]
    impact = rule.impact
    sizes = [("bytes", impact.expected), ("low", impact.low), ("high", impact.high), ("passing", impact.passing)]
    sizes = [(f"impact.{key}", text) for key, text in sizes]
    for wanted, expressions in ((BOOL, conditions), (NUMBER, sizes)):
        for key, text in expressions:
            if text is not None:
                for problem in check_expression(text, wanted):
                    yield key, problem


def _check_ranges(rule: Rule, releases: Callable[[str], tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    for clause in rule.clauses:
        for name, specifier in clause.packages.items():
            if specifier in {"present", "absent"}:
                continue
            try:
                bounds = compile_specifier(specifier)
            except ValueError as error:
                yield f"affected.{name}", str(error)
                continue
            known = releases(name)
            if known and not any(contains(bounds, release) == "yes" for release in known):
                yield f"affected.{name}", f"{specifier} holds no known release of {name}"
            newest = [release for release in known if not _is_prerelease(release)][-1:]
            is_open = newest and contains(bounds, newest[0]) == "yes"
            if is_open and name not in rule.checked_through and name not in COMPONENTS and rule.kind == "regression":
                yield "checked_through", f"{specifier} is open: say up to which release of {name} it was checked"


def _check_remedies(rule: Rule) -> Iterator[tuple[str, str]]:
    """Every remedy names facts, values and releases that exist."""
    for index, remedy in enumerate(rule.remedies):
        if rule.status == "active" and remedy.verb == "note" and not (remedy.done or remedy.unseen):
            yield (
                f"remedies.{index}.note",
                "a note says what holds once it was done (`done`), or why no file can show that (`unseen`)",
            )
        for name, value in remedy.target.items():
            place = f"remedies.{index}.{remedy.verb}.{name}"
            try:
                if remedy.verb == "set":
                    parse_value(name, value, Source(rule.path, place))
                elif remedy.verb in {"upgrade", "downgrade"}:
                    compile_specifier(str(value))
            except UsageError as error:
                yield place, error.message + (f" ({error.hint})" if error.hint else "")
            except InvalidSpecifierError as error:
                yield place, str(error)


def _is_prerelease(release: str) -> bool:
    version = parse_version(release)
    return version is None or version.is_prerelease


def _check_texts(rule: Rule) -> Iterator[tuple[str, str]]:
    if len(rule.title) > 80:
        yield "title", "longer than 80 characters"
    if not rule.references and rule.status == "active":
        yield "references", "an active rule needs at least one reference"
    if rule.kind == "folklore" and not rule.debunks:
        yield "debunks", "folklore names the rules under which it is shown"
    if rule.kind != "folklore" and rule.debunks:
        yield "debunks", "only folklore debunks"
    if not rule.remedies and rule.status == "active" and rule.kind != "folklore":
        yield "remedies", "an active rule says what to do"


def _check_boundaries(rule: Rule, releases: Callable[[str], tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Every boundary needs a match on its bad side and a no_match on its good side, at the nearest known releases."""
    for name, specifier in {(n, s) for clause in rule.clauses for n, s in clause.packages.items()}:
        if specifier in {"present", "absent"}:
            continue
        known = [release for release in releases(name) if not _is_prerelease(release)]
        if not known:
            continue
        whole = [part for clause in rule.clauses for part in compile_specifier(_text(clause.packages.get(name)))]
        skipped = compile_specifier(rule.unverified[name]) if name in rule.unverified else []
        matches, silences = _versions(rule.examples.match, name), _versions(rule.examples.no_match, name)
        sides = [contains(whole, release) == "yes" for release in known]
        for index in range(1, len(known)):
            if sides[index] == sides[index - 1]:
                continue
            bad, good = (known[index], known[index - 1]) if sides[index] else (known[index - 1], known[index])
            if skipped and contains(skipped, good) == "yes":
                continue
            if bad not in matches:
                yield "examples.match", f"no match at {name} {bad}, the affected side of a boundary"
            if good not in silences:
                yield "examples.no_match", f"no no_match at {name} {good}, the unaffected side of a boundary"


def _text(specifier: str | None) -> str:
    return specifier if specifier not in {None, "present", "absent"} and specifier is not None else "===none"


def _versions(examples: tuple[Mapping[str, Any], ...], name: str) -> set[str]:
    return {str((example.get("packages") or {}).get(name)) for example in examples}


def _check_atoms(rule: Rule, truth: Truth) -> Iterator[tuple[str, str]]:
    """For every atom of ``when`` some no_match differs in that atom alone."""
    if rule.when is None:
        return
    try:
        atoms = [write(atom) for atom in conjuncts(parse(rule.when))]
    except RuleError:
        return  # told by the check of expressions
    table = [[truth(atom, example) for atom in atoms] for example in rule.examples.no_match]
    for index, atom in enumerate(atoms):
        if not any(
            row[index] is False and all(value is True for place, value in enumerate(row) if place != index)
            for row in table
        ):
            yield "examples.no_match", f"no no_match in which only `{atom}` is false"
