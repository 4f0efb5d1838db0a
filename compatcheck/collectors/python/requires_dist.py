"""What an installed distribution itself requires, read from its metadata when a rule built on our pin data asks.

Our data says which releases a distribution pins (``rules/_pins``, and ranges in rules that were read from requirement
files). The installed one may have been built otherwise: its own ``Requires-Dist`` wins. Only the distribution such a rule
is about is read, and only when its other conditions hold; an environment without such a rule pays nothing.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from compatcheck.core.files import LOCAL
from compatcheck.core.markers import canonical_name
from compatcheck.core.requirement import InvalidRequirementError, Requirement, parse_requirement
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from compatcheck.core.environment import Package

_LIMIT_BYTES = 1 << 20
_FILES = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}


def read_own_requirements(package: Package, dependency: str) -> tuple[Requirement, ...] | None:
    """Return what the metadata of an installed distribution says about one dependency, extras included.

    Returns:
        The requirements on ``dependency``, none when the metadata lists others only; None when it lists no requirement at
        all or could not be read, which tells nothing.
    """
    file = _FILES.get(os.path.splitext(package.source.path)[1].lower())
    if file is None or package.version is None:
        return None
    lines = _requires_dist(os.path.join(package.source.path, file))
    if not lines:
        return None
    source = Source(f"METADATA of {package.name} {package.version}")
    found = []
    for line in lines:
        try:
            requirement = parse_requirement(line, source)
        except InvalidRequirementError:
            return None
        if requirement.name == canonical_name(dependency):
            found.append(requirement)
    return tuple(found)


@lru_cache(maxsize=64)
def _requires_dist(path: str) -> tuple[str, ...]:
    """Return the ``Requires-Dist`` fields of a metadata file; none when it cannot be read."""
    try:
        header = LOCAL.read_text(path, _LIMIT_BYTES).partition("\n\n")[0]
    except OSError:
        return ()
    fields = (line.partition(":") for line in header.splitlines())
    return tuple(value.strip() for name, _, value in fields if name.lower() == "requires-dist")
