"""Settings that no formula of the estimate has: which of them the configuration of a run turns on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from compatcheck.core.document import TAKEN_AS_IDLE, Document
from compatcheck.core.facts import Fact
from compatcheck.rules.programs import lineage

if TYPE_CHECKING:
    from compatcheck.core.source import Source
    from compatcheck.rules.database import RuleSet

UNPRICED = "training.unpriced"
TABLE = "unpriced-settings"
_OFF = (None, False, 0, "", "0", "none", "None", "null", "false", "False", "no", "1F1B", "GPipe")
"""Values that leave a setting off, or are the one that formulas have."""


def describe_unpriced(documents: Sequence[Document], role: str, rules: "RuleSet", facts: dict[str, Fact]) -> None:
    """State which features of a run no formula has, where its documents turn on any.

    A key counts that is known and has no meaning in the vocabulary, or that leaves a fact open: one with a value is priced. One
    that may change anything and that no row names is a feature by its own name.
    """
    if UNPRICED in facts:
        return
    found: dict[str, Source] = {}
    cells: Mapping[str, Mapping[str, str]] = rules.section(f"tables/{TABLE}") or {}
    for document in documents:
        keys = {
            gap.source.key: gap.source.key.rpartition(".")[2]
            for gap in document.gaps
            if gap.source.key and gap.why.endswith(TAKEN_AS_IDLE)
        }
        keys |= {
            key: word for one in reversed(lineage(document.reader)) for key, word in cells.get(one.name, {}).items()
        }
        if not keys:
            continue
        stated = [(one.key, one.role) for one in document.statements if one.fact is None and not _is_off(one.value)]
        stated += [(one.key, one.role) for one in document.unresolved if one.fact is not None]
        for key, of in stated:
            if key in keys and of in {None, role} and not (_is_counted(keys[key], facts)):
                found.setdefault(keys[key], document.place(key))
    if found:
        facts[UNPRICED] = Fact(UNPRICED, tuple(sorted(found)), "derived", tuple(found.values()))


def _is_counted(feature: str, facts: Mapping[str, Fact]) -> bool:
    """Tell whether counts of parameters hold a feature: of the model's, or its experts', or of the teacher that GKD distils."""
    if feature == "distillation":
        told = [facts[name].value if name in facts else None for name in ("training.trainer", "training.sharding")]
        return told[0] == "gkd" and told[1] != "megatron" and "training.teacher_parameters" in facts
    return feature == "dense_layers" and not _SIZES.isdisjoint(facts)


_SIZES = frozenset({"model.parameters", "model.expert_parameters"})


def _is_off(value: object) -> bool:
    return any(value is off or (value == off and type(value) is type(off)) for off in _OFF)
