"""Markers agree with packaging where everything is known, and stay open where it is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.markers import Marker

from compatcheck.core.markers import PYTHONS, InvalidMarkerError, describe_machine, evaluate

COMPLETE = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "platform_system": "Linux",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}

ATOMS = st.one_of(
    st.builds(
        "{} {} '{}'".format,
        st.sampled_from(["python_version", "python_full_version"]),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "~="]),
        st.sampled_from(["3.8", "3.10", "3.11", "3.11.4", "3.12.0"]),
    ),
    st.builds(
        "'{}' {} python_version".format,
        st.sampled_from(["3.9", "3.11"]),
        st.sampled_from(["<", "<=", "==", ">"]),
    ),
    st.builds("python_full_version {} '3.11.*'".format, st.sampled_from(["==", "!="])),
    st.builds(
        "{} {} '{}'".format,
        st.sampled_from(sorted(COMPLETE)),
        st.sampled_from(["==", "!="]),
        st.sampled_from(["linux", "win32", "x86_64", "CPython", "posix"]),
    ),
    st.sampled_from(["python_version in '3.9 3.10'", "python_version not in '3.9, 3.11'", "'lin' in sys_platform"]),
)
MARKERS = st.recursive(
    ATOMS,
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
    max_leaves=5,
)


@settings(max_examples=400)
@given(MARKERS, st.sampled_from(["3.8.1", "3.10.0", "3.11.4", "3.11.7", "3.12.0"]))
def test_known_machine_agrees_with_packaging(text: str, python: str) -> None:
    known = {**COMPLETE, "python_full_version": python, "python_version": python.rpartition(".")[0]}
    environment = describe_machine(known)
    assert environment.pythons == (python,)
    assert evaluate(text, environment, python) == Marker(text).evaluate(known)


@settings(max_examples=200)
@given(MARKERS)
def test_normalised_form_means_the_same(text: str) -> None:
    environment = describe_machine()
    for python in PYTHONS[::3]:
        assert evaluate(text, environment, python) == evaluate(str(Marker(text)), environment, python)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("platform_release > '5'", None),
        ("platform_release > '5' and sys_platform == 'win32'", False),
        ("sys_platform == 'win32' and platform_release > '5'", False),
        ("platform_release > '5' or sys_platform == 'linux'", True),
        ("platform_release > '5' and sys_platform == 'linux'", None),
        ("extra == 'gpu'", True),
        ("extra == 'GPU'", True),
        ("extra != 'gpu'", False),
        ("'gpu' in extras", True),
        ("'gpu' not in extras", False),
        ("'dev' in dependency_groups", False),
        ("os.name == 'posix'", True),
    ],
)
def test_three_values(text: str, expected: bool | None) -> None:  # noqa: FBT001 (a table)
    environment = describe_machine(extras=["gpu"])
    assert evaluate(text, environment, "3.11.0") is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x == 'a'",
        "python_version",
        "python_version >",
        "(os_name == 'a'",
        "os_name == 'a' and",
        "os_name == 'a' 'b'",
        "os_name ~ 'a'",
    ],
)
def test_malformed_marker(text: str) -> None:
    with pytest.raises(InvalidMarkerError, match="is not an environment marker"):
        evaluate(text, describe_machine(), "3.11.0")


def test_endless_markers_are_refused() -> None:
    for text in ("(" * 5000, " or ".join(["os_name == 'a'"] * 5000)):
        with pytest.raises(InvalidMarkerError):
            evaluate(text, describe_machine(), "3.11.0")


def test_pythons_are_narrowed() -> None:
    assert describe_machine({"python_version": "3.11"}).pythons == ("3.11.0", "3.11.99")
    assert {text.rpartition(".")[0] for text in describe_machine(requires_python=">=3.13").pythons} == {
        "3.13",
        "3.14",
        "3.15",
    }
    assert describe_machine(requires_python=">=9").pythons == PYTHONS
    assert describe_machine(requires_python="nonsense").pythons == PYTHONS
