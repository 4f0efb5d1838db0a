"""Which rule speaks under which program: every active rule, its first matching example, one small run per program.

python -m tests.rules.program_matrix    # write fixtures/programs/matrix.txt anew
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from compatcheck.checking.verdict import _is_folded
from compatcheck.core.versions import contains
from compatcheck.frameworks.model.lookup import find_model
from compatcheck.frameworks.native import configuration as native
from compatcheck.frameworks.recognise import read_configurations
from compatcheck.matching.decision import AFFECTED
from compatcheck.matching.engine import RelevantRules, build, states_run
from compatcheck.matching.examples import EXPECTATION_KEYS
from compatcheck.resolution.resolve import TRAIN, resolve
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.expression import fact_names
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


class Program(NamedTuple):
    """A column: a run of one program, and what such a run can have."""

    name: str
    documents: tuple[Document, ...]
    role: str
    packages: Mapping[str, str]
    shards: tuple[str, ...]
    engines: tuple[str, ...]
    lacks: tuple[str, ...]
    rows: tuple[tuple[str, Mapping[str, Any]], ...]
    """Facts that its code fixes, with the releases it does."""
    fixed: frozenset[str]
    """Facts that an example does not change: which program it is, and what that does whatever its keys say."""

    def beside(self, example: Mapping[str, Any]) -> tuple[Document, ...]:
        """Return the run's documents without what the example states: a person can set that otherwise."""
        set_otherwise = {
            f"{section}.{name}" for section, names in example.items() if isinstance(names, dict) for name in names
        }

        def stays(fact: str | None) -> bool:
            return (
                fact is None
                or fact in self.fixed
                or not (
                    fact in set_otherwise
                    or (fact.startswith("model.") and fact != "model.attn_implementation" and "model" in example)
                )
            )

        return tuple(
            document._replace(statements=tuple(one for one in document.statements if stays(one.fact)))
            for document in self.documents
        )

    def can_have(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run of this program can have of a rule's example; its releases win over the program's own."""
        packages = {**self.packages, **example.get("packages", {})}
        fixed = self.fixed | {
            fact
            for fact, ranges in self.rows
            if all(name in packages and contains(bounds, packages[name]) == "yes" for name, bounds in ranges.items())
        }
        kept: dict[str, Any] = {}
        sharding = _sharding(example.get("training", {}))
        engine = example.get("rollout", {}).get("engine")
        for section, value in example.items():
            if section in EXPECTATION_KEYS or section == "program":
                continue
            if not isinstance(value, dict) or section in {"packages", "env"}:
                kept[section] = value
                continue
            names = {name: one for name, one in value.items() if self._has(f"{section}.{name}", fixed)}
            if section == "training" and self.name == "peft" and names.get("peft", "") is None:
                del names["peft"]
            if section == "training" and sharding is not None and sharding not in self.shards:
                names = {name: one for name, one in names.items() if not name.startswith(_OF_SHARDING)}
            if section == "rollout" and (not self.engines or engine not in {None, *self.engines}):
                names = {}
            if names:
                kept[section] = names
        kept["packages"] = packages
        return kept

    def _has(self, fact: str, fixed: frozenset[str]) -> bool:
        return fact not in fixed and not fact.startswith(self.lacks)


_OF_SHARDING = (
    *("sharding", "zero", "fsdp", "offload", "hsdp", "reduce_bucket", "allgather_", "overlap_comm", "contiguous_"),
    *(
        "prefetch_",
        "param_persistence",
        "model_persistence",
        "max_live",
        "max_reuse",
        "deepcompile",
        "grad_accum_dtype",
    ),
)
"""What facts begin with that go with one way of sharding."""


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
    lacks = tuple(entry.get("lacks", ()))
    return Program(
        name,
        documents,
        role,
        entry["packages"],
        tuple(entry["shards"]),
        tuple(entry["engines"]),
        lacks,
        tuple(_rows_fixed_by({document.reader for document in documents} | _frameworks(documents))),
        frozenset({*fixed, "training.framework", *([] if name in _ANY_TRAINER else ["training.trainer"])}),
    )


def _frameworks(documents: tuple[Document, ...]) -> set[str]:
    return {str(one.value) for document in documents for one in document.statements if one.fact == "training.framework"}


def _rows_fixed_by(readers: set[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the facts that programs fix whatever their keys, with the releases."""
    for reader in readers:
        if find_program(reader).kind == "program":
            for row in open_rules().section(f"defaults/{reader}") or ():
                said = row["when"] is not None and fact_names(row["when"]) != {"training.sharding"}
                if row["key"] is None and not (said or row["present"] or row["absent"] or row.get("role")):
                    yield row["fact"], row["ranges"]


_WHICH = {"training.framework", "training.trainer", "training.sharding", "rollout.engine"}
_ANY_TRAINER = {"accelerate", "pytorch"}
"""Loops of one's own, which can be of any kind."""


def judge(rule: CompiledRule, subject: Subject, role: str, rules: RuleSet) -> str:
    """Return the letter of a rule for a subject."""
    scope = FactScope(subject.roles[role], subject.environment, rules)
    relevant = RelevantRules.of(subject, rules)
    if all(one.id != rule.id for one in relevant.rules):
        return CANNOT
    found = relevant.decide_anew(rule, scope, stated=states_run(subject.roles[role]))
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
            yield (
                rule.id,
                "".join(
                    judge(compiled, subject_of(program, example, rules), program.role, rules)
                    for program in read_programs()
                ),
            )


HEADER = """\
# What each rule says of its first matching example when a run of each program has it: S speaks, m may speak, c is only
# counted among what a further fact would decide, . cannot. Columns: programs.yaml.
# Written by `python -m tests.rules.program_matrix`.
"""


def write(rows: Mapping[str, str]) -> str:
    """Return the matrix as text, columns in groups of five."""
    names = "".join(f"# {number:2} {program.name}\n" for number, program in enumerate(read_programs(), 1))
    lines = (f"{' '.join(row[at : at + 5] for at in range(0, len(row), 5))}  {rule}\n" for rule, row in rows.items())
    return HEADER + names + "".join(lines)


def read_matrix() -> dict[str, str]:
    """Read the stored matrix: rule → letters."""
    lines = (line.rsplit(maxsplit=1) for line in MATRIX.read_text(encoding="utf-8").splitlines() if line[0] != "#")
    return {rule: row.replace(" ", "") for row, rule in lines}


class Derived(NamedTuple):
    """A cell as the program's code has it, found without the rule."""

    rule: str
    program: str
    allowed: str
    """Letters that agree with it."""


_AGREES = {"y": SPEAKS, "m": MAY + COUNTED, "n": CANNOT + COUNTED}


def derive_cells() -> Iterator[Derived]:
    """Yield the cells that follow from code.yaml, without those that are known to differ."""
    data = yaml.safe_load((PROGRAMS / "code.yaml").read_text(encoding="utf-8"))
    code = {name: letters.replace(" ", "") for name, letters in data["code"].items()}
    for rule, needed in data["derived"].items():
        for index, program in enumerate(read_programs()):
            weakest = min((code[name][index] for name in needed), key="nm?y".index)
            if weakest != "?" and program.name not in data["known"].get(rule, {}):
                yield Derived(rule, program.name, _AGREES[weakest])


if __name__ == "__main__":
    MATRIX.write_text(write(dict(compute())), encoding="utf-8")
