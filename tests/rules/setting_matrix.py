"""What every rule says when one setting beside the usual is laid over its first matching example.

python -m tests.rules.setting_matrix            # write fixtures/programs/settings.txt anew
python -m tests.rules.setting_matrix RULE...    # print the cells of these rules, with sizes and what they wait for
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from compatcheck.core.errors import CompatcheckError
from compatcheck.core.units import GIB
from compatcheck.matching.decision import AFFECTED, SILENT, decide, size
from compatcheck.matching.examples import example_scope
from compatcheck.rules.load import load_rules
from compatcheck.rules.locate import open_rules
from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.rules.database import CompiledRule, RuleSet
    from compatcheck.rules.rule import Rule

FIXTURES = ROOT / "fixtures" / "programs"
MATRIX = FIXTURES / "settings.txt"
SAME, OTHER_SIZE, MAY, SILENT_HERE, REFUSED = "SsM.x"


class Answer(NamedTuple):
    """What a rule says of one example."""

    status: str
    needs: tuple[str, ...]
    bytes: int | None

    def __str__(self) -> str:
        """Return it as a person reads it."""
        sized = "" if self.bytes is None else f" {self.bytes / GIB:.3f} GiB"
        return self.status + sized + (f" needs {', '.join(self.needs)}" if self.needs else "")


@cache
def read_settings() -> Mapping[str, Mapping[str, Any]]:
    """Read the columns: name → sections laid over an example."""
    return yaml.safe_load((FIXTURES / "settings.yaml").read_text(encoding="utf-8"))


def lay_over(example: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return an example with a setting in it, which wins; a model that it names takes the place of the example's."""
    laid = dict(example)
    for section, value in setting.items():
        if isinstance(value, str):
            laid[section] = value
            continue
        own = laid.get(section, {})
        laid[section] = {**({"from": own} if isinstance(own, str) else own), **value}
    return laid


def answer(rule: CompiledRule, example: Mapping[str, Any], rules: RuleSet) -> Answer | None:
    """Return what a rule says of an example, None where the example contradicts itself."""
    try:
        scope = example_scope(example, rules, "example")
    except CompatcheckError:
        return None
    decision = decide(rule, scope)
    expected = None if decision.status == SILENT else size(rules.texts(rule).sizes.expected, scope)[0]
    return Answer(decision.status, decision.needs, expected)


def cells(rule: Rule, rules: RuleSet) -> Iterator[tuple[str, str, Answer | None]]:
    """Yield each setting with its letter and answer."""
    compiled = rules.find(rule.id)
    assert compiled is not None
    base = answer(compiled, rule.examples.match[0], rules)
    for name, setting in read_settings().items():
        found = answer(compiled, lay_over(rule.examples.match[0], setting), rules)
        if found is None:
            letter = REFUSED
        elif found.status == SILENT:
            letter = SILENT_HERE
        elif found.status == AFFECTED:
            letter = SAME if base is not None and found.bytes == base.bytes else OTHER_SIZE
        else:
            letter = MAY
        yield name, letter, found


def active_rules() -> list[Rule]:
    """Return the rules that have a row."""
    return [rule for rule in load_rules(ROOT / "rules") if rule.status == "active" and rule.examples.match]


def compute() -> dict[str, str]:
    """Return every active rule with its row of letters."""
    rules = open_rules()
    return {rule.id: "".join(letter for _, letter, _ in cells(rule, rules)) for rule in active_rules()}


HEADER = """\
# What each rule says of its first matching example when one setting is laid over it: S the same, s with another size, M it may,
# . it is silent, x the example cannot have it. Columns: settings.yaml. Written by `python -m tests.rules.setting_matrix`.
"""


def write(rows: Mapping[str, str]) -> str:
    """Return the matrix as text, columns in groups of five."""
    names = "".join(f"# {number:2} {name}\n" for number, name in enumerate(read_settings(), 1))
    lines = (f"{' '.join(row[at : at + 5] for at in range(0, len(row), 5))}  {rule}\n" for rule, row in rows.items())
    return HEADER + names + "".join(lines)


def read_matrix() -> dict[str, str]:
    """Read the stored matrix: rule → letters."""
    lines = (line.rsplit(maxsplit=1) for line in MATRIX.read_text(encoding="utf-8").splitlines() if line[0] != "#")
    return {rule: row.replace(" ", "") for row, rule in lines}


def show(wanted: list[str]) -> None:
    """Print the cells of some rules."""
    rules = open_rules()
    for rule in active_rules():
        if rule.id in wanted:
            compiled = rules.find(rule.id)
            assert compiled is not None
            print(f"{rule.id}\n  as it stands: {answer(compiled, rule.examples.match[0], rules)}")
            for name, letter, found in cells(rule, rules):
                print(f"  {letter} {name}: {found}")


if __name__ == "__main__":
    if sys.argv[1:]:
        show(sys.argv[1:])
    else:
        MATRIX.write_text(write(compute()), encoding="utf-8")
