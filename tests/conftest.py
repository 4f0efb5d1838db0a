"""What every test shares."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from compatcheck.core import programs

os.environ["LC_ALL"] = "C.UTF-8"  # reports are read here as they are in English
# No test is timed: a busy machine is slow, and that is no defect of what is tested.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def nothing_is_inspected() -> Iterator[None]:
    """Let no test find what another one inspected in the same process."""
    kept = (programs._inspected, programs._named)
    tokens = [variable.set(frozenset()) for variable in kept]
    yield
    for variable, token in zip(kept, tokens, strict=True):
        variable.reset(token)
