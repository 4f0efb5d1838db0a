"""Which rule speaks under which program: every active rule, its first matching example, one small run per program.

    python -m tests.rules.program_matrix    # write fixtures/programs/matrix.txt anew
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from compatcheck.checking.verdict import _is_folded
from compatcheck.core.environment import Environment
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.frameworks.native import configuration as native
from compatcheck.frameworks.recognise import read_configurations
from compatcheck.matching.decision import AFFECTED
from compatcheck.matching.engine import RelevantRules, build, states_run
from compatcheck.matching.examples import EXPECTATION_KEYS
from compatcheck.resolution.resolve import TRAIN, resolve
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.load import load_rules
from compatcheck.rules.locate import open_rules
from compatcheck.rules.programs import find_program
from tests import ROOT

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import CompiledRule, RuleSet

PROGRAMS = ROOT / "fixtures" / "programs"
MATRIX = PROGRAMS / "matrix.txt"
SPEAKS, MAY, COUNTED, CANNOT = "S", "m", "c", "."
ALWAYS = ("training.framework", "training.trainer", "training.sharding")


class Program(NamedTuple):
    """A column: a run of one program, and what such a run can have."""

    name: str
    documents: tuple[Document, ...]
    role: str
    packages: Mapping[str, str]
    shards: tuple[str, ...]
    engines: tuple[str, ...]
    lacks: tuple[str, ...]
    fixed: frozenset[str]
    """Facts that an example does not change: which program it is, and what that does whatever its keys say."""

    def beside(self, example: Mapping[str, Any]) -> tuple[Document, ...]:
        """Return the run's documents without what the example states: a person can set that otherwise."""
        set_otherwise = {f"{section}.{name}" for section, names in example.items() if isinstance(names, dict) for name in names}
        return tuple(
            document._replace(
                statements=tuple(one for one in document.statements if one.fact not in set_otherwise - self.fixed)
            )
            for document in self.documents
        )

    def can_have(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run of this program can have of a rule's example; its releases win over the program's own."""
        kept: dict[str, Any] = {}
        sharding = _sharding(example.get("training", {}))
        engine = example.get("rollout", {}).get("engine")
        for section, value in example.items():
            if section in EXPECTATION_KEYS or section == "program":
                continue
            if not isinstance(value, dict) or section in {"packages", "env"}:
                kept[section] = value
                continue
            names = {name: one for name, one in value.items() if self._has(f"{section}.{name}")}
            if section == "training" and sharding is not None and sharding not in self.shards:
                names = {name: one for name, one in names.items() if not name.startswith(_OF_SHARDING)}
            if section == "rollout" and (not self.engines or engine not in {None, *self.engines}):
                names = {}
            if names:
                kept[section] = names
        kept["packages"] = {**self.packages, **example.get("packages", {})}
        return kept

    def _has(self, fact: str) -> bool:
        return fact not in self.fixed and not fact.startswith(self.lacks)


_OF_SHARDING = ("sharding", "zero", "fsdp", "offload", "hsdp", "reduce_bucket", "allgather_", "overlap_comm", "contiguous_",
                "prefetch_", "param_persistence", "model_persistence", "max_live", "max_reuse", "deepcompile", "grad_accum_dtype")  # fmt: skip


def _sharding(training: Mapping[str, Any]) -> str | None:
    """Return how an example shards, said or by what it says of it."""
    if training.get("sharding") is not None:
        return str(training["sharding"])
    if any(name.startswith("fsdp_") for name in training):
        return "fsdp"
    if any(name.startswith(("zero_", "offload_", "deepcompile")) for name in training):
        return "zero"
    return None


@cache
def read_programs() -> tuple[Program, ...]:
    """Read the columns."""
    index = yaml.safe_load((PROGRAMS / "programs.yaml").read_text(encoding="utf-8"))
    return tuple(_read_program(name, entry) for name, entry in index.items())


def _read_program(name: str, entry: Mapping[str, Any]) -> Program:
    readings = read_configurations(str(PROGRAMS / entry["file"]), named=True)
    documents = tuple(document for reading in readings for document in reading.documents)
    role = entry.get("role", TRAIN)
    fixed = {
        statement.fact
        for document in documents
        for statement in document.statements
        if statement.fact is not None
        and statement.role in {None, role}
        and (statement.fact in _WHICH or statement.key.startswith("(only "))
    }
    sections = open_rules().section
    readers = {document.reader for document in documents} | {
        str(one.value) for document in documents for one in document.statements if one.fact == "training.framework"
    }
    for reader in readers:
        if find_program(reader).kind == "program":
            rows = sections(f"defaults/{reader}") or ()
            fixed |= {row["fact"] for row in rows if row["key"] is None and not (row["when"] or row["present"] or row["absent"])}
    lacks = tuple(entry.get("lacks", ()))
    return Program(
        name,
        documents,
        role,
        entry["packages"],
        tuple(entry["shards"]),
        tuple(entry["engines"]),
        lacks,
        frozenset({*fixed, "training.framework", *([] if name in _ANY_TRAINER else ["training.trainer"])}),
    )


_WHICH = {"training.framework", "training.trainer", "training.sharding", "training.peft", "rollout.engine"}
_ANY_TRAINER = {"accelerate", "pytorch"}
"""Loops of one's own, which can be of any kind."""


def judge(rule: CompiledRule, subject: Subject, role: str, rules: RuleSet) -> str:
    """Return the letter of a rule for a subject."""
    scope = FactScope(subject.roles[role], subject.environment, rules)
    relevant = RelevantRules.of(subject, rules)
    if rule.id not in {one.id for one in relevant.rules}:
        return CANNOT
    found = relevant.decide(rule, scope, stated=states_run(subject.roles[role]))
    if found.decision is None:
        return COUNTED if found.waits or found.folded else CANNOT
    if found.decision.status == AFFECTED:
        return SPEAKS
    return COUNTED if _is_folded(build(rule, found.decision, subject, role, scope), subject) else MAY


def subject_of(program: Program, example: Mapping[str, Any], rules: RuleSet) -> Subject:
    """Resolve what a run of the program makes of an example."""
    given = program.can_have(example)
    document, environment = native.read_sections(given, "example")
    assert environment is not None
    documents: list[Document] = [*program.beside(given), document]
    documents += [find_model(reference, rules, {}) for kind, reference, _ in document.references if kind == "model"]
    return resolve(program.name, rules=rules, environment=environment, documents=documents)


def compute() -> Iterator[tuple[str, str]]:
    """Yield every active rule with its row of letters."""
    rules = open_rules()
    for rule in load_rules(ROOT / "rules"):
        if rule.status == "active" and rule.examples.match:
            compiled = rules.find(rule.id)
            assert compiled is not None
            example = rule.examples.match[0]
            yield rule.id, "".join(
                judge(compiled, subject_of(program, example, rules), program.role, rules) for program in read_programs()
            )
