"""An environment made of what several inputs say."""

from __future__ import annotations

import pytest

from compatcheck.checking.environments import merge_environments
from compatcheck.core.environment import Damage, Environment, Package
from compatcheck.core.source import Source

_FILE = Source("requirements.txt")
_CLASH = Damage("contradictory", "torch", "no release of torch satisfies ==2.6.0 and <2.6", (_FILE,))


@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        ({"torch": Package("torch", "2.6.0", Source("facts.yaml"))}, ()),
        ({"numpy": Package("numpy", "2.0.0", Source("facts.yaml"))}, (_CLASH,)),
        ({"torch": Package("torch", None, Source("facts.yaml"), ">=2")}, (_CLASH,)),
    ],
)
def test_a_declared_release_settles_what_excludes_each_other(
    declared: dict[str, Package], kept: tuple[Damage, ...]
) -> None:
    base = Environment("requirements.txt", {}, complete=False, damage=(_CLASH,))
    assert merge_environments(base, Environment("facts.yaml", declared, complete=False)).damage == kept
