import importlib.metadata
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import canonicalize_name
from packaging.version import Version

from compatcheck.collectors.python.distributions import canonical_name, same_version, split_egg_stem, split_stem

NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,12}[A-Za-z0-9])?", fullmatch=True)
VERSIONS = st.from_regex(
    r"([0-9]!)?[0-9]{1,4}(\.[0-9]{1,3}){0,3}((a|b|rc)[0-9]{1,2})?(\.post[0-9])?(\.dev[0-9])?(\+[a-z0-9]{1,4}(\.[0-9])?)?",
    fullmatch=True,
)


@given(NAMES)
def test_canonical_name_is_that_of_packaging(name):
    assert canonical_name(name) == canonicalize_name(name)


@given(NAMES, VERSIONS)
def test_what_wheels_write_is_read_back(name, version):
    stem = f"{re.sub(r'[-_.]+', '_', name)}-{version.replace('-', '_')}"
    found = split_stem(stem)
    assert found is not None
    assert (canonical_name(found[0]), found[1]) == (canonicalize_name(name), version)


@given(NAMES, VERSIONS)
def test_agrees_with_importlib_metadata_or_abstains(name, version):
    """`PathDistribution` reads the name off the directory in the same way; metadata is opened where it could differ."""
    stem = f"{name}-{version}"
    found = split_stem(stem)
    theirs = importlib.metadata.PathDistribution(Path(f"/x/{stem}.dist-info"))._normalized_name
    if found is not None:
        assert canonical_name(found[0]) == theirs.replace("_", "-")
    else:
        assert "-" in name


@given(st.text(max_size=30))
def test_any_text_is_split_or_left(stem):
    found = split_stem(stem)
    assert found is None or (found[0] and found[1][0].isdigit() and f"{found[0]}-{found[1]}" == stem)
    split_egg_stem(stem)
    canonical_name(stem)


@given(VERSIONS, VERSIONS)
def test_versions_are_the_same_when_packaging_says_so(one, other):
    first, second = Version(one), Version(other)
    public = Version(first.public) == Version(second.public)
    both = first.local is not None and second.local is not None
    assert same_version(one, other) is (public and (not both or first.local == second.local))


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("PyYAML-6.0-py3.11", ("PyYAML", "6.0")),
        ("pkg-1.0-py3.11-linux-x86_64", ("pkg", "1.0")),
        ("torch-2.1.0+cu118", ("torch", "2.1.0+cu118")),
        ("name", None),
        ("", None),
    ],
)
def test_eggs(stem, expected):
    assert split_egg_stem(stem) == expected
