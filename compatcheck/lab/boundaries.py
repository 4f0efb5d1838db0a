"""Which boundaries of a rule's ranges were measured on both sides, by the pairs of its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import compile_specifier, contains, parse_version
from compatcheck.lab.proof import as_example, make_proof
from compatcheck.matching.decision import truth
from compatcheck.matching.examples import example_scope
from compatcheck.rules.expression import evaluate
from compatcheck.rules.measured import selects
from compatcheck.rules.syntax import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.rule_evidence import Proof
    from compatcheck.rules.database import RuleSet
    from compatcheck.rules.rule import Clause, Rule

_NO_RANGE = ("present", "absent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Two neighbouring releases of which a clause of ``affected`` holds one."""

    clause: int
    """Its place in ``affected``."""
    package: str
    bad: str
    good: str
    measured: bool
    """Whether a pair of the rule's evidence has a release on either side, with no other end of the clause between them; or one on
    the bad side, and the same run is unsupported in the good release: the thing begins with the bad one."""


class Coverage(NamedTuple):
    """How many active rules of kind ``regression`` were measured."""

    regressions: int
    whole: int
    """On both sides of each boundary."""
    part: int
    """On both sides of some, not of each."""
    gpu: int
    """Of the others those that only a GPU shows: ``verifiable`` names nothing else."""


def count_coverage(files: Iterable[Rule], rules: RuleSet, root: Path) -> Coverage:
    """Count what was measured.

    Args:
        files: rules of any kind.
        rules: as for `find_boundaries`.
        root: as for `find_boundaries`.
    """
    whole = part = gpu = regressions = 0
    for rule in files:
        if rule.kind != "regression" or rule.status != "active":
            continue
        regressions += 1
        measured = [one.measured for one in find_boundaries(rule, rules, root)]
        whole += bool(measured) and all(measured)
        part += any(measured) and not all(measured)
        gpu += not any(measured) and rule.verifiable == ("cuda",)
    return Coverage(regressions, whole, part, gpu)


def find_boundaries(rule: Rule, rules: RuleSet, root: Path) -> Iterator[Boundary]:
    """Yield the ends of a rule's ranges, oldest first; what nobody read (``unverified``) is none.

    Args:
        rule: of which.
        rules: known releases, and what conditions are evaluated with.
        root: folder that the paths of the evidence are relative to.
    """
    proof = make_proof(rules)
    pairs = list(_read_pairs(rule, proof, root))
    missing = [one for name in rule.evidence for one in proof.read(root / name) if one.status == "unsupported"]
    for index, clause in enumerate(rule.clauses):
        about = [(suspect, baseline) for suspect, baseline, facts in pairs if _is_about(clause, suspect, facts, rules)]
        for package, specifier in clause.packages.items():
            if specifier in _NO_RANGE:
                continue
            bounds, skipped = compile_specifier(specifier), compile_specifier(rule.unverified.get(package, "===none"))
            known = [one for one in rules.releases(package) if not _is_prerelease(one)]
            inside = [contains(bounds, one) == "yes" for one in known]
            ends = [place for place in range(1, len(known)) if inside[place] != inside[place - 1]]
            for end in ends:
                bad, good = (known[end], known[end - 1]) if inside[end] else (known[end - 1], known[end])
                if contains(skipped, good) == "yes":
                    continue
                measured = any(
                    _spans(known, ends, end, suspect.versions.get(package), other.versions.get(package))
                    for suspect, baseline in about
                    for other in (baseline, *(one for one in missing if _is_same_run(one, suspect)))
                )
                yield Boundary(clause=index, package=package, bad=bad, good=good, measured=measured)


def _read_pairs(rule: Rule, proof: Proof, root: Path) -> Iterator[tuple[Measurement, Measurement, dict[str, object]]]:
    """Yield both sides of each comparison that has two, and what is known of the first."""
    for comparison in rule.comparisons:
        if comparison.baseline is None:
            continue
        sides = []
        for part in (comparison.suspect, comparison.baseline):
            found = [one for one in proof.read(root / part.file) if selects(part, one.versions, one.parameters)]
            sides += found if len(found) == 1 else []
        if len(sides) == 2:
            yield sides[0], sides[1], {**proof.facts(sides[0]), **comparison.facts}


def _is_about(clause: Clause, suspect: Measurement, facts: dict[str, object], rules: RuleSet) -> bool:
    """Tell whether a clause's own condition does not leave a measured run out."""
    if clause.when is None:
        return True
    scope = example_scope(as_example(facts, suspect.versions), rules, "measurement")
    return truth(evaluate(parse(clause.when), scope)) is not False


def _is_same_run(one: Measurement, other: Measurement) -> bool:
    return (one.probe, one.backend, one.parameters) == (other.probe, other.backend, other.parameters)


def _spans(known: Sequence[str], ends: Sequence[int], end: int, one: str | None, other: str | None) -> bool:
    """Tell whether two releases lie on the two sides of an end, with no other end between."""
    if one not in known or other not in known:
        return False
    low, high = sorted((known.index(one), known.index(other)))
    return [place for place in ends if low < place <= high] == [end]


def _is_prerelease(release: str) -> bool:
    version = parse_version(release)
    return version is None or version.is_prerelease
