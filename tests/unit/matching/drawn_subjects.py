"""Subjects made of plain values, for rules to be decided on."""

from __future__ import annotations

from typing import Any

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact, Facts
from compatcheck.core.source import Source
from compatcheck.resolution.scope import FactScope
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet


def stack(*, complete: bool = True, **versions: str) -> Environment:
    """Return an environment; a version that starts with an operator is a range."""
    packages = {}
    for name, text in versions.items():
        ranged = text[:1] in "<>=" or not text
        canonical = name.replace("_", "-")
        packages[canonical] = Package(canonical, None if ranged else text, Source("env"), text if ranged else None)
    return Environment("env", packages, complete=complete)


def facts_of(values: dict[str, Any]) -> Facts:
    """Return stated facts."""
    return Facts(
        {name: Fact(name, value, "configuration", (Source("f.yaml", name),)) for name, value in values.items()}
    )


def subject(values: dict[str, Any] | None = None, environment: Environment | None = None) -> Subject:
    """Return a subject with one role."""
    return Subject("s", environment or stack(deepspeed="0.16.4"), {"train": facts_of(values or {})})


def scope(rules: RuleSet, values: dict[str, Any] | None = None, environment: Environment | None = None) -> FactScope:
    """Return the scope of such a subject."""
    made = subject(values, environment)
    return FactScope(made.roles["train"], made.environment, rules)
