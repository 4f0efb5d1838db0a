"""What an environment holds in any case, without what unselected extras and groups would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatcheck.core.environment import Environment, Package


def certain(environment: Environment) -> dict[str, Package]:
    return {name: package for name, package in environment.packages.items() if not package.is_optional}
