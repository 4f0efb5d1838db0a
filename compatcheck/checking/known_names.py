"""What the database and a policy have by name: rules, models, devices, facts, packages; runs and targets."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from compatcheck.checking.inspection import load_policy
from compatcheck.core.errors import CompatcheckError
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_builtin
from compatcheck.rules.vocabulary import vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator


def list_of_policy(kind: str, path: str | None) -> Iterator[str]:
    """List the runs or targets of the policy; of one that cannot be read there are none."""
    with suppress(CompatcheckError):
        policy = load_policy(path, disabled=False)
        entries = () if policy is None else policy.runs if kind == "run" else policy.targets
        yield from (entry.name for entry in entries if entry.name is not None)


def list_data(kind: str) -> Iterator[tuple[str, str | None]]:
    """List what the rules' data have of a kind, each with a line about it."""
    if kind == "rule":
        yield from ((rule.id, rule.title) for rule in RuleSet((open_builtin(),)).all_rules() if rule.status == "active")
    elif kind == "model":
        for name, row in open_builtin().section("models").items():
            yield from ((alias, None) for alias in (name, *row["aliases"]))
    elif kind == "gpu":
        yield from ((name, None) for section in ("gpus", "instances") for name in open_builtin().section(section))
    elif kind == "fact":
        yield from ((f"{term.name}=", term.meaning) for term in vocabulary().values())
    elif kind == "package":
        yield from ((name.partition("/")[2], None) for name in open_builtin().sections("releases/"))
