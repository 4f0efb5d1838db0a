"""Judge the nodes of one job together: where they differ, and every kind of node as `env` would judge it there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.checking.checks import open_criteria
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.report import add_plans, build_report
from compatcheck.checking.request import Gathered
from compatcheck.checking.shared import read_shared
from compatcheck.checking.subjects import build_subject
from compatcheck.checking.verdict import Variants
from compatcheck.core.environment import UNEQUAL, UNLIKE, Damage
from compatcheck.core.errors import NothingToCheckError, UsageError
from compatcheck.core.fleet import Fleet, Skew
from compatcheck.core.source import Skipped, Source
from compatcheck.fleet.skew import differing_files, find_skews, is_of_sizes, natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.checking.checks import Checks
    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.core.environment import Environment
    from compatcheck.core.node import Answers, Node
    from compatcheck.rules.database import RuleSet

MOST_SILENT = 8
"""Nodes that are named where none said anything; a list of nodes to leave out has all of them."""
MOST_VALUES = 8
"""Values that other nodes have that are named of one that each node may have its own of."""
MOST_FILES = 3
"""Files that are named of an editable installation that is not alike everywhere."""


def judge_nodes(
    answers: Answers, asked: Request | Inspection, rules: RuleSet, environ: Mapping[str, str], checks: Checks
) -> Fleet:
    """Compare the nodes of a job, and hold each kind of them against the rules.

    Args:
        answers: of the nodes; one that answered twice counts once where it said the same.
        asked: the run: model, training configuration, settings; its number of nodes is that of the job unless it says another.
        rules: the database.
        environ: variables of this process, for places of caches.
        checks: which rules take part, and what makes the job fail.

    Raises:
        NothingToCheckError: no node said anything.
        UsageError: the policy has several runs or targets.
    """
    inspection = as_inspection(asked)
    if len(inspection.requests) > 1:
        raise UsageError("the policy has several runs or targets", hint="choose one with --run and --target")
    criteria = open_criteria(inspection, rules, checks)
    compared, twice = _tell_apart(answers.nodes)
    missing = tuple(sorted(answers.lost, key=lambda entry: natural(entry[0])))
    request = inspection.requests[0]
    unread = list(answers.unread)
    total = len(compared) + len(missing)
    if request.nodes is not None and total < request.nodes:
        said = f"of {request.nodes - total} of {request.nodes} nodes nothing is known, not even the name"
        unread.append(Skipped(Source("--nodes"), said, "name them with --expect", named=True))
    if not compared:
        silent = [f"{name} {why}" for name, why in missing] or [entry.reason for entry in unread] or ["there is none"]
        more = f"; {len(silent) - MOST_SILENT} more" if len(silent) > MOST_SILENT else ""
        first = "; ".join(silent[:MOST_SILENT])
        raise NothingToCheckError(
            f"no node said anything of itself: {first}{more}", hint="`compatcheck env --dump` on each"
        )
    skews = find_skews(compared, rules)
    kinds = _group(compared, skews)
    count = request.nodes or len(compared)
    shared = read_shared(
        request._replace(here=False, nodes=count if request.gpu is None else request.nodes), rules, environ
    )
    damage = _find_damage(skews, compared)
    subjects = []
    for name, alike in kinds:
        environment = alike[0].environment
        environment = environment._replace(damage=(*environment.damage, *damage.get(alike[0].name, ())))
        subjects.append(build_subject(name, _of_node(environment, alike[0].name), shared.documents, shared))
    skipped = (*(Skipped(Source(name), why, named=True) for name, why in missing), *unread, *shared.skipped)
    gathered = Gathered(tuple(subjects), skipped, files=shared.files)
    variants = Variants(criteria)
    report = add_plans(build_report(gathered, criteria, variants=variants), gathered, criteria, variants)
    policy, waivers = inspection.policy, criteria.waivers
    report = report._replace(
        policy=None if policy is None else policy.path,
        waiver_notes=() if waivers is None else waivers.notes(complete=inspection.complete),
    )
    names = tuple((name, tuple(node.name for node in alike)) for name, alike in kinds)
    return Fleet(report, names, skews, missing, twice)


def _tell_apart(nodes: Iterable[Node]) -> tuple[list[Node], dict[str, str]]:
    """Return each node once, in the order of their names; two of one name that differ get a number: label → name."""
    known: dict[str, Node] = {}
    twice: dict[str, str] = {}
    for node in nodes:
        label, number = node.name, 1
        while label in known and known[label]._replace(name=node.name) != node:
            number += 1
            label = f"{node.name} ({number})"
        known[label] = node._replace(name=label)
        if number > 1:
            twice[label] = node.name
    return sorted(known.values(), key=lambda node: natural(node.name)), twice


def _group(nodes: Sequence[Node], skews: Sequence[Skew]) -> list[tuple[str, list[Node]]]:
    """Put nodes together that have alike what matters, and name each kind after its first; the largest comes first."""
    values: dict[str, list[tuple[str, str, str]]] = {node.name: [] for node in nodes}
    for skew in skews:
        for value, names in skew.values if skew.why is not None else ():
            for name in names:
                values[name].append((skew.kind, skew.name, value))
    kinds: dict[object, list[Node]] = {}
    for node in nodes:
        broken = frozenset((one.kind, one.package) for one in node.environment.damage)
        kinds.setdefault((tuple(values[node.name]), broken), []).append(node)
    alike = sorted(kinds.values(), key=len, reverse=True)
    return [(found[0].name + (f" and {len(found) - 1} alike" if found[1:] else ""), found) for found in alike]


def _find_damage(skews: Sequence[Skew], nodes: Sequence[Node]) -> Mapping[str, list[Damage]]:
    """Return what is unlike the other nodes, by node; where no value has most, all of them are."""
    found: dict[str, list[Damage]] = {}
    for skew in skews:
        if skew.why is None:
            continue
        files, kind = "", UNEQUAL if is_of_sizes(skew) else UNLIKE
        if skew.kind == "files":
            paths = differing_files(nodes, skew.name)
            files = f" ({', '.join(paths[:MOST_FILES])}{f' and {len(paths) - MOST_FILES} more' if paths[MOST_FILES:] else ''})"
        for value, names in skew.values:
            if value == skew.majority:
                continue
            rest = [f"{other} on {len(others)}" for other, others in skew.values[: MOST_VALUES + 1] if other != value]
            left = len(skew.values) - 1 - MOST_VALUES
            rest[MOST_VALUES:] = [f"{left} more values"] if left > 0 else []
            detail = f"{skew.name} {value} here{files}, {', '.join(rest)} of {skew.nodes} nodes"
            for name in names:
                found.setdefault(name, []).append(Damage(kind, skew.name, detail, (Source(name),)))
    return found


def _of_node(environment: Environment, name: str) -> Environment:
    """Say of what was not read on a node, on which."""
    placed = tuple(
        entry._replace(source=entry.source._replace(path=f"{name}: {entry.source.path}"), named=False)
        for entry in environment.skipped
    )
    hardware = environment.hardware
    if hardware is not None:
        unread = tuple(
            entry._replace(source=entry.source._replace(path=f"{name}: {entry.source.path}"))
            for entry in hardware.skipped
        )
        environment = environment._replace(hardware=hardware._replace(skipped=unread))
    return environment._replace(origin=f"{name}: {environment.origin}", skipped=placed)
