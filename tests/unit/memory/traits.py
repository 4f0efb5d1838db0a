"""Facts with what the records say of the program that trains, as resolution adds it."""

from __future__ import annotations

from collections.abc import Mapping

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact, Value
from compatcheck.core.source import Source
from compatcheck.resolution.defaults import apply_traits
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.locate import open_rules

RULES = open_rules()


def with_traits(facts: Mapping[str, Fact | Value], packages: Mapping[str, Package] | None = None) -> dict[str, Fact]:
    """Return resolved facts; a plain value becomes one that was set."""
    found = {
        name: value if isinstance(value, Fact) else Fact(name, value, "set", (Source("--set"),))
        for name, value in facts.items()
    }
    apply_traits(FactScope(found, Environment("test", dict(packages or {}), complete=False), RULES), found)
    return found
