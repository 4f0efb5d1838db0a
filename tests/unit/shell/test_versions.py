"""Versions of a mapping are what copies of a dictionary would be, and their differences are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.shell import versions as module
from compatcheck.shell.versions import Versions

NAMES = st.sampled_from("abcd")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 9), NAMES, st.integers(0, 2)),
        st.tuples(st.just("drop"), st.integers(0, 9), NAMES, st.just(0)),
        st.tuples(st.just("copy"), st.integers(0, 9), st.just(""), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 9), NAMES, st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("apart", [0, 2, 64])
@given(operations=OPERATIONS)
def test_versions_are_as_copies_of_a_dictionary(apart: int, operations: list[tuple[str, int, str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_APART", apart)
        _compare_with_dictionaries(operations)


def _compare_with_dictionaries(operations: list[tuple[str, int, str, int]]) -> None:
    versions, plain = [Versions({"a": 1})], [{"a": 1}]
    for kind, which, name, value in operations:
        n = which % len(versions)
        if kind == "set":
            versions[n][name] = plain[n][name] = value
        elif kind == "drop":
            assert versions[n].pop(name, None) == plain[n].pop(name, None)
        elif kind == "copy":
            versions.append(versions[n].copy())
            plain.append(dict(plain[n]))
        else:
            assert versions[n].get(name) == plain[n].get(name)
            assert (name in versions[n]) == (name in plain[n])
    for one, expected in zip(versions, plain, strict=True):
        assert dict(one.items()) == expected
        assert len(one) == len(expected)
        assert set(one) == set(expected)
    for one, expected in zip(versions, plain, strict=True):
        for other, others in zip(versions, plain, strict=True):
            told = one.differing(other)
            names = {name for name in {*expected, *others} if expected.get(name) != others.get(name)}
            assert names <= set(told)
            assert all(told[name] == (expected.get(name), others.get(name)) for name in told)
            assert (one == other) == (expected == others)


def test_versions_of_other_mappings_are_compared_whole() -> None:
    assert Versions({"a": 1, "b": 2}).differing(Versions({"b": 2, "c": 3})) == {"a": (1, None), "c": (None, 3)}
    assert Versions({"a": 1}) == Versions({"a": 1})
    assert Versions({"a": 1}) != {"a": 1}


def test_a_version_far_behind_is_not_walked_to_again(monkeypatch) -> None:
    swaps = []
    put = module._put
    monkeypatch.setattr(module, "_put", lambda *given: (swaps.append(1), put(*given)))
    ahead = Versions(dict.fromkeys("abc", 0))
    behind = []
    for n in range(1000):
        behind.append(ahead.copy())
        ahead["a"] = n
    swaps.clear()
    for _ in range(10):
        for one in behind:
            assert one["b"] == ahead["b"] == 0
            assert set(one.differing(ahead)) == {"a"}
    assert len(swaps) < 200 * len(behind)
