"""Ranges agree with packaging where PEP 440 decides, and say ``boundary`` where it does not."""

from __future__ import annotations

import json
import subprocess
import sys

import packaging
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from compatcheck.core import versions
from compatcheck.core.versions import (
    InvalidSpecifierError,
    allowed_releases,
    compile_specifier,
    contains,
    exact_version,
    is_source_build,
    judge,
)

LEGACY_PACKAGING = Version(packaging.__version__) < Version("22")  # takes what came before PEP 440
OLD_PACKAGING = Version(packaging.__version__) < Version("24")  # its prefix matching mixes up epochs
NUMBERS = st.integers(min_value=0, max_value=3)
RELEASES = st.lists(NUMBERS, min_size=1, max_size=4).map(lambda numbers: ".".join(map(str, numbers)))
EPOCHS = st.sampled_from(["", "", "", "" if OLD_PACKAGING else "1!"])
POSTS = st.sampled_from(["", "", "", ".post0", ".post1"])
PRES = st.sampled_from(["", "", "", "a1", "b2", "rc1", ".dev0", "rc1.dev2", ".post1.dev0"])
LOCALS = st.sampled_from(["", "", "+cu128", "+cpu"])


@st.composite
def finals(draw: st.DrawFn) -> str:
    return draw(EPOCHS) + draw(RELEASES) + draw(POSTS) + draw(LOCALS)


@st.composite
def clauses(draw: st.DrawFn) -> str:
    operator = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "~=", "===", "==*", "!=*"]))
    if operator.endswith("*"):
        return f"{operator[:-1]}{draw(EPOCHS)}{draw(RELEASES)}.*"
    version = draw(EPOCHS) + draw(RELEASES) + draw(st.one_of(POSTS, PRES))
    if operator == "~=":
        assume(len(Version(version).release) > 1)
    return operator + version


SETS = st.lists(clauses(), max_size=4).map(",".join)


@settings(max_examples=500)
@given(SETS, finals())
def test_final_and_post_releases_follow_specifier_set(specifier: str, version: str) -> None:
    public = Version(version).public
    parts = [clause for clause in specifier.split(",") if clause.startswith(">") and not clause.startswith(">=")]
    for clause in parts:  # releases of packaging disagree on posts of a pre-release bound
        bound = Version(clause[1:])
        assume(not (bound.is_prerelease and Version(public).is_postrelease))
    expected = SpecifierSet(specifier).contains(public, prereleases=True)
    assert contains(compile_specifier(specifier), version) == ("yes" if expected else "no")


@settings(max_examples=300)
@given(SETS, EPOCHS, RELEASES, PRES.filter(bool))
def test_pre_releases_follow_order_away_from_bounds(specifier: str, epoch: str, release: str, suffix: str) -> None:
    version = Version(epoch + release + suffix)
    compiled = compile_specifier(specifier)
    bounds = [Version(text) for conjunction in compiled for op, *texts in conjunction if op != "===" for text in texts]
    near = any(Version(bound.base_version) == Version(version.base_version) for bound in bounds)
    answer = contains(compiled, str(version))
    if near:
        assert answer in {"yes", "no", "boundary"}
    else:
        expected = SpecifierSet(specifier).contains(version, prereleases=True)
        assert answer == ("yes" if expected else "no")


@settings(max_examples=500)
@given(SETS, RELEASES, st.one_of(POSTS, PRES), st.sampled_from(["", "+cu128", "+g1a2b3c4", "+dirty"]))
def test_tuples_answer_as_pep_440_does(specifier: str, release: str, suffix: str, label: str) -> None:
    compiled, version = compile_specifier(specifier), release + suffix + label
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "_contains_plain", lambda *_: None)
        expected = contains(compiled, version)
    assert contains(compiled, version) == expected


@settings(max_examples=200)
@given(st.lists(SETS, min_size=1, max_size=3), finals())
def test_alternatives_are_a_union(sets: list[str], version: str) -> None:
    assume(all(sets))
    answers = {contains(compile_specifier(text), version) for text in sets}
    assert contains(compile_specifier(" || ".join(sets)), version) == ("yes" if "yes" in answers else "no")


@settings(max_examples=200)
@given(SETS)
def test_bounds_survive_json(specifier: str) -> None:
    compiled = compile_specifier(specifier)
    assert json.loads(json.dumps(compiled)) == compiled


@pytest.mark.skipif(LEGACY_PACKAGING, reason="this packaging takes any text as a version")
@settings(max_examples=400)
@given(st.text(alphabet="=<>!~.*+0123a-_ rcpost,vd", max_size=12))
def test_acceptance_agrees_with_packaging(text: str) -> None:
    assume("===" not in text)  # packaging takes any text after ===
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        with pytest.raises(InvalidSpecifierError):
            compile_specifier(text)
    else:
        compile_specifier(text)


@settings(max_examples=300)
@given(SETS, SETS, st.lists(finals(), max_size=8))
def test_judge_agrees_with_enumeration(rule: str, requirement: str, releases: list[str]) -> None:
    bounds = compile_specifier(rule)
    assume(exact_version(requirement) is None)
    answers = [contains(bounds, release) for release in allowed_releases(requirement, releases)]
    verdict = judge(bounds, requirement, releases)
    if not answers and verdict != "unknown":  # all that is allowed is newer than what is known
        assert releases
        assert SpecifierSet(requirement).contains("1000000")
        assert not any(SpecifierSet(requirement).contains(release) for release in releases)
    elif answers:
        assert (verdict == "all") == all(answer == "yes" for answer in answers)
        assert (verdict == "none") == all(answer == "no" for answer in answers)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.15.4", "no"),
        ("0.16.0", "yes"),
        ("0.16.0rc1", "boundary"),
        ("0.16.4rc1", "yes"),
        ("0.16.4+cu128", "yes"),
        ("0.16.7.post1", "yes"),
        ("0.16.8rc1", "boundary"),
        ("0.16.8.dev20250501", "boundary"),
        ("0.16.8+a1b2c3d", "boundary"),
        ("0.16.8+unknown", "boundary"),
        ("0.16.5+a1b2c3d", "yes"),
        ("0.16.8", "no"),
        ("0.16.8.post1", "no"),
        ("0.16.9.dev1", "no"),
        ("0.16.8.0", "no"),
        ("not a version", "unknown"),
        ("", "unknown"),
    ],
)
def test_zero3_release_range(version: str, expected: str) -> None:
    assert contains(compile_specifier(">=0.16.0,<0.16.8"), version) == expected


@pytest.mark.parametrize(
    ("specifier", "version", "expected"),
    [
        (">=2.9", "2.9.0a0+git.nv25.09", "boundary"),
        ("<2.9", "2.9.0a0+50eac811a6.nv25.09", "boundary"),
        ("<2.10", "2.9.0a0+git.nv25.09", "yes"),
        ("==2.9.*", "2.9.0a0", "boundary"),
        ("==2.9.*", "2.9.1rc1", "yes"),
        ("!=2.9.*", "2.9.0a0", "boundary"),
        ("!=2.9.*", "2.9.1a0", "no"),
        (">=1.0rc2", "1.0rc3", "yes"),
        (">=1.0rc2", "1.0rc1", "no"),
        ("==1.0rc2", "1.0rc2", "yes"),
        ("==1.0.dev5", "1.0.dev5", "yes"),
        (">=1.0rc2", "1.0.dev9", "boundary"),
        ("===1.0", "1.0+cu128", "yes"),
        ("===oddball", "Oddball", "yes"),
        ("===1.0", "1.0.0", "no"),
        ("==2.6.0+cu124", "2.6.0", "yes"),
        (">1.0", "1.0.post1", "no"),
        (">1.0.post1", "1.0.post2", "yes"),
        (">=1!1.0", "2.0", "no"),
        ("", "anything", "yes"),
        ("<1.0 || >=2.0", "1.5", "no"),
        ("<1.0 || >=2.0", "2.0rc1", "boundary"),
        ("<2.0 || >=2.0rc1", "1.9", "yes"),
    ],
)
def test_membership(specifier: str, version: str, expected: str) -> None:
    assert contains(compile_specifier(specifier), version) == expected


def test_compiled_form_is_compact() -> None:
    assert compile_specifier(">=0.16.0,<0.16.8 || ==0.17.*") == [
        [[">=", "0.16.0"], ["<", "0.16.8"]],
        [[">=", "0.17"], ["<", "0.18"]],
    ]
    assert compile_specifier("~=1.4.5, !=1.4.6.*") == [[[">=", "1.4.5"], ["<", "1.5"], ["!=*", "1.4.6", "1.4.7"]]]
    assert compile_specifier("") == [[]]


@pytest.mark.parametrize(
    "text",
    [
        "0.16",
        ">=",
        ">=x",
        "~=1",
        ">=1.*",
        "==1.0a1.*",
        ">=1.0+cpu",
        "=1.0",
        ">=1 ||",
        "^1.2",
        ">=1 <2",
    ],
)
def test_malformed_range_names_the_clause(text: str) -> None:
    with pytest.raises(InvalidSpecifierError, match=r"not a version range|is empty"):
        compile_specifier(text)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("cu128", False),
        ("cpu", False),
        ("cxx11abi", False),
        ("rocm6.2", False),
        ("computecanada", False),
        ("cu12torch2.6", False),
        ("abcdefab", False),
        ("unknown.1", False),
        ("a1b2c3d", True),
        ("g1a2b3c4.d20250101", True),
        ("git1234", True),
        ("tree1a2b3c4d5e6f", True),
        ("cu124.fileabcdef012345", True),
        ("unknown", True),
        ("ubuntu.dirty", True),
        ("ubuntu.unknown", True),
        ("cu128.ga1b2c3d", True),
    ],
)
def test_source_builds_are_told_from_flavours(label: str, expected: bool) -> None:  # noqa: FBT001 (a table)
    assert is_source_build(f"1.0+{label}") is expected


DEEPSPEED = [
    "0.14.5",
    "0.15.4",
    "0.16.0",
    "0.16.1",
    "0.16.7",
    "0.16.8rc1",
    "0.16.8",
    "0.16.9",
    "0.17.0",
]


@pytest.mark.parametrize(
    ("specifier", "expected"),
    [
        (">=0.15", "some"),
        (">=0.16,<0.16.8", "all"),
        (">=0.16.8", "none"),
        ("<0.15", "none"),
        (">=99", "none"),
        (">=0.16.7,>=99", "none"),
        (">=99,<100", "unknown"),
        (">=0.18.5.dev", "none"),
        ("==0.16.4", "all"),
        ("==0.16.8rc1", "some"),
        ("==0.16.*,!=0.16.8,!=0.16.9", "all"),
        (">=0.16.8rc1,<0.16.8", "some"),
        ("", "some"),
        ("==1.0,==2.0", "unknown"),
    ],
)
def test_requirement_is_judged_over_known_releases(specifier: str, expected: str) -> None:
    assert judge(compile_specifier(">=0.16.0,<0.16.8"), specifier, DEEPSPEED) == expected


def test_pre_releases_count_only_when_the_requirement_names_one() -> None:
    assert allowed_releases(">=0.16.7,<0.16.9", DEEPSPEED) == ("0.16.7", "0.16.8")
    assert allowed_releases(">=0.16.8rc1,<0.16.9", DEEPSPEED) == ("0.16.8rc1", "0.16.8")


def test_import_stays_light() -> None:
    code = "import sys, compatcheck.core.versions; print('packaging.specifiers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
