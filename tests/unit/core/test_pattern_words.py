"""Words that a pattern needs: none may be missing of a text that matches."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatcheck.checking import pasted_blocks
from compatcheck.collectors import recognise, signatures
from compatcheck.collectors.python import components, pinned_build
from compatcheck.collectors.requirements import lines
from compatcheck.core import builds, pasted_text
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks import recipe_files

MODULES: tuple[ModuleType, ...] = (
    *(pasted_blocks, recognise, signatures, components, pinned_build, lines, builds, pasted_text, recipe_files),
)
GUARDED: list[Any] = [
    pattern
    for pattern in (
        *(value for module in MODULES for value in vars(module).values()),
        *(recogniser.pattern for recogniser in recognise.RECOGNISERS),
        *(pattern for _, pattern in (*recognise._TELLING, *recognise._LOCK_MARKS)),
    )
    if hasattr(pattern, "needs") and hasattr(pattern, "compiled")
]


@pytest.mark.parametrize("pattern", GUARDED, ids=lambda pattern: str(pattern.compiled._text)[:40])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_matches_holds_a_word_that_is_needed(pattern: Any, data: st.DataObject):
    compiled = re.compile(pattern.compiled._text, pattern.compiled._flags)
    text = data.draw(st.from_regex(compiled, fullmatch=True))
    if not compiled.flags & re.IGNORECASE:
        assert any(word in text for word in pattern.needs)
    assert pattern.search(text) is not None


def test_a_text_without_the_word_compiles_nothing():
    pattern: Any = lazy_compile("a+b", needs=("b",))
    assert pattern.search("aaa") is pattern.match("aaa") is pattern.fullmatch("aaa") is None
    assert pattern.sub("c", "aaa") == "aaa"
    assert set(vars(pattern.compiled)) == {"_text", "_flags"}
    assert (pattern.sub("c", "xaab"), bool(pattern.fullmatch("aab"))) == ("xc", True)
