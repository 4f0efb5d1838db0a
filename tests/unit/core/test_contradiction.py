"""Requirements that no release satisfies: which lines disagree, and when that is certain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from compatcheck.core.markers import describe_machine
from compatcheck.core.requirement import Combined, combine, is_satisfiable, parse_requirement
from compatcheck.core.source import Source

MACHINE = {"python_full_version": "3.11.7"}


def combined(*texts: str, constraints: tuple[str, ...] = ()) -> Combined:
    lines = [parse_requirement(text, Source("r.txt", line=number)) for number, text in enumerate(texts, 1)]
    limits = [parse_requirement(text, Source("c.txt", line=number)) for number, text in enumerate(constraints, 1)]
    return combine(lines, describe_machine(MACHINE), constraints=limits)


@pytest.mark.parametrize(
    "specifier",
    [
        "",
        ">=1,<2",
        ">1,<1.0.1",
        "==1.0,==1.0.0",
        "==2.5.1,==2.5.1+cu124",
        "~=1.4,>=1.4.2",
        "==1.*,!=1.2",
        ">=2,<=2",
        "===weird",
        "===weird,>=1",
        ">=2,<1 || ==3",
        "==2.6.0+cu118,!=2.6.0+cu121",
        "==2.6.0+cu118,<=2.6.0",
        "==2.6.0+CU118,==2.6.0+cu118",
        "==5.0.0rc1,<5.0.0rc2",
        ">=2.0rc1,<2.0.1",
        "==4.*,<=4.0rc1",
        ">=4.9,<=5.0rc1,!=4.9.*",
    ],
)
def test_satisfiable(specifier: str) -> None:
    assert is_satisfiable(specifier)


@pytest.mark.parametrize(
    "specifier",
    [
        ">=2,<1",
        ">=2,<2",
        ">2,<=2",
        "==1,==2",
        "==1.5,>=2",
        "==1.*,==2.*",
        "==1.*,!=1.*",
        ">=2,<=2,!=2",
        "~=1.4,>=2",
        ">=2,<1 || ==1,==2",
        "==2.6.0+cu118,==2.6.0+cu121",
        "==2.6.0+cu118,!=2.6.0+cu118",
        "==5.0.0rc1,<5",
        "==4.50.0.dev0,<4.50",
        ">=2.0rc1,<2.0",
        ">2.5,<2.5.post3",
        ">=1.2,<1.3,!=1.2.*",
        "==1.4.*,!=1.4.0.*,<1.4.1",
    ],
)
def test_not_satisfiable(specifier: str) -> None:
    assert not is_satisfiable(specifier)


def test_two_pins_are_named_with_their_lines() -> None:
    found = combined("deepspeed==0.15.0", "deepspeed>=0.14", "deepspeed==0.16.4")
    (damage,) = found.damage
    assert (damage.kind, damage.package) == ("contradictory", "deepspeed")
    assert [(source.line, text) for source, text in zip(damage.sources, damage.statements, strict=True)] == [
        (1, "==0.15.0"),
        (3, "==0.16.4"),
    ]
    assert damage.detail == "no release of deepspeed satisfies ==0.15.0 (r.txt:1) and ==0.16.4 (r.txt:3)"
    assert found.packages["deepspeed"].version is None


def test_one_line_may_contradict_itself() -> None:
    (damage,) = combined("deepspeed>=2,<1").damage
    assert damage.detail == "no release of deepspeed satisfies <1,>=2 (r.txt:1)"


def test_three_lines_may_be_needed() -> None:
    (damage,) = combined("a>=1", "a<=1", "a!=1").damage
    assert len(damage.sources) == 3


def test_a_constraint_counts() -> None:
    (damage,) = combined("a @ https://h.example/a-2.0-py3-none-any.whl", constraints=("a<2",)).damage
    assert [str(source) for source in damage.sources] == ["r.txt:1", "c.txt:1"]
    assert damage.statements == ("==2.0", "<2")


@pytest.mark.parametrize(
    "texts",
    [
        ("torch==2.6.0+cu118", "torch==2.6.0+cu121"),
        ("transformers==5.0.0rc1", "transformers<5"),
        ("torch @ https://h.example/torch-2.6.0%2Bcu118-cp311-cp311-linux_x86_64.whl", "torch==2.6.0+cu121"),
    ],
)
def test_labels_and_pre_releases_are_compared_as_installers_do(texts: tuple[str, ...]) -> None:
    (damage,) = combined(*texts).damage
    assert [source.line for source in damage.sources] == [1, 2]


def test_a_label_settles_a_pin_without_one() -> None:
    found = combined("torch==2.6.0+cu118", "torch==2.6.0", "torch>=2.5")
    assert found.damage == ()
    assert found.packages["torch"].version == "2.6.0+cu118"


_RELEASES = ("0.9", "1", "1.0", "1.0.1", "1.1", "2.0", "1!1.0")
_ENDS = ("", "", "", ".dev2", "a1", "rc1", "rc2.dev1", ".post1", ".post1.dev0", "+cu118", "+cu121", "rc1+cu118")
VERSIONS = tuple({release + end: None for release in _RELEASES for end in _ENDS})
GRID = (
    *VERSIONS,
    *(f"{release}.{end}" for release in _RELEASES for end in ("dev0", "dev1", "0.1", "0.1rc1", "99", "post9")),
)
ORDERED = st.tuples(
    st.sampled_from(["<", "<=", ">", ">="]), st.sampled_from([one for one in VERSIONS if "+" not in one])
)
EQUAL = st.tuples(st.sampled_from(["==", "!="]), st.sampled_from(VERSIONS))
PREFIX = st.tuples(st.sampled_from(["==", "!="]), st.sampled_from(_RELEASES).map(lambda release: f"{release}.*"))
COMPATIBLE = st.tuples(
    st.just("~="), st.sampled_from([one for one in VERSIONS if "+" not in one and len(Version(one).release) > 1])
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(ORDERED, EQUAL, PREFIX, COMPATIBLE), min_size=1, max_size=4))
def test_what_packaging_finds_a_version_for_is_satisfiable(clauses: list[tuple[str, str]]) -> None:
    text = ",".join(f"{sign}{version}" for sign, version in clauses)
    wanted = SpecifierSet(text)
    if any(wanted.contains(version, prereleases=True) for version in GRID):
        assert is_satisfiable(text)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), st.lists(st.one_of(ORDERED, EQUAL, PREFIX, COMPATIBLE), max_size=3))
def test_a_pin_is_satisfiable_where_packaging_takes_it(pin: str, others: list[tuple[str, str]]) -> None:
    text = ",".join([f"=={pin}", *(f"{sign}{version}" for sign, version in others)])
    labelled = [pin, *(version for sign, version in others if sign == "==" and "+" in version)]
    assert is_satisfiable(text) is any(SpecifierSet(text).contains(one, prereleases=True) for one in labelled)


def test_lines_for_different_pythons_do_not_contradict() -> None:
    texts = ("a==1; python_version < '3.10'", "a==2; python_version >= '3.10'")
    assert combined(*texts).damage == ()
    lines = [parse_requirement(text, Source("r.txt", line=number)) for number, text in enumerate(texts, 1)]
    assert combine(lines, describe_machine()).damage == ()


def test_lines_for_machines_nobody_knows_leave_both_possible() -> None:
    found = combined("a==1; platform_release == '6.1'", "a==2; platform_release != '6.1'")
    assert found.damage == ()
    assert found.packages["a"].specifier == "==1 || ==2"
