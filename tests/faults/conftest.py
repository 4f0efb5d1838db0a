"""The desk of all commands, and what they do when nothing disturbs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compatcheck.lab.environments.overlay import Base
from tests.faults.desk import COMMANDS, Desk, Done, open_desk
from tests.unit.lab.local_packages import base, index, probe

__all__ = ["base", "index", "probe"]


@pytest.fixture
def desk(tmp_path: Path, base: Base, index: Path, probe: str) -> Desk:
    assert index.parent == tmp_path
    return open_desk(tmp_path, base.python, probe)


@pytest.fixture
def undisturbed(desk: Desk, tmp_path: Path) -> Callable[[str], Done]:
    """What a command does when nothing disturbs it."""

    def run(command: str) -> Done:
        done = desk.run(command, tmp_path / "undisturbed")
        assert done.code == COMMANDS[command].code, done.err
        return done

    return run
