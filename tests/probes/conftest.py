"""The interpreter with torch that probes are tried in."""

from __future__ import annotations

import os
import sys

import pytest

from compatcheck.core.errors import CompatcheckError
from compatcheck.lab.environments.overlay import Base, Overlays, build_base

TORCH = "2.13.0+cpu"


@pytest.fixture(scope="session")
def overlays() -> Overlays:
    """COMPATCHECK_TEST_PYTHON, else this interpreter where it has torch, else one that is built (CPU, never CUDA)."""
    stated = os.environ.get("COMPATCHECK_TEST_PYTHON")
    if stated:
        return Overlays(Base(stated))
    try:
        return Overlays(Base(sys.executable))
    except CompatcheckError:
        pass
    try:
        return Overlays(build_base(TORCH))
    except CompatcheckError as error:
        pytest.skip(f"{error}; name an interpreter with torch in COMPATCHECK_TEST_PYTHON")
