"""An environment made of what several inputs say of it: packages, variables, what facts files declare."""

from __future__ import annotations

from compatcheck.core.environment import Environment
from compatcheck.core.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Damage


def with_variables(
    environment: Environment,
    variables: Mapping[str, str],
    source: Source,
    *,
    complete: bool,
) -> Environment:
    """Add environment variables and what they ask for to an environment."""
    from compatcheck.collectors.machine.variables import attach, collect_variables  # noqa: PLC0415 (beside its use)

    return attach(environment, collect_variables(variables, source), complete=complete)


def merge_environments(base: Environment | None, declared: Environment) -> Environment:
    """Lay the packages and variables that a facts file declares over an environment; the declaration wins."""
    if base is None:
        return declared
    return base._replace(
        packages={**base.packages, **declared.packages},
        components={**base.components, **declared.components},
        python=declared.python or base.python,
        variables=base.variables if declared.variables is None else {**(base.variables or {}), **declared.variables},
        variables_complete=base.variables_complete or declared.variables_complete,
        hardware=declared.hardware or base.hardware,
        damage=(*(one for one in base.damage if not _is_settled(one, declared)), *declared.damage),
        skipped=(*base.skipped, *declared.skipped),
        notes=(*base.notes, *declared.notes),
        offered=base.offered | declared.offered,
        to_resolve=base.to_resolve and not declared.packages,
        facts={**base.facts, **declared.facts},
    )


def _is_settled(damage: Damage, declared: Environment) -> bool:
    """Tell whether requirements exclude each other on a package whose release is declared."""
    package = declared.packages.get(damage.package)
    return damage.kind == "contradictory" and package is not None and package.version is not None


def environment_of(
    declared: Environment | None, variables: Mapping[str, str], path: str, notes: tuple[str, ...] = ()
) -> Environment | None:
    """Return what a file says about the environment: what it declares, and the variables a launch script sets."""
    if not variables and not notes:
        return declared
    base = declared or Environment(path, {}, complete=False)
    base = base._replace(notes=(*base.notes, *notes))
    return with_variables(base, variables, Source(path), complete=False) if variables else base
