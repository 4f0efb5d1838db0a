"""Requirements that no release satisfies: which lines disagree, and when that is certain."""

import pytest

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
        ">=2,<1 || ==3",
        ">=2.0rc1,<2.0",
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


def test_lines_for_different_pythons_do_not_contradict() -> None:
    texts = ("a==1; python_version < '3.10'", "a==2; python_version >= '3.10'")
    assert combined(*texts).damage == ()
    lines = [parse_requirement(text, Source("r.txt", line=number)) for number, text in enumerate(texts, 1)]
    assert combine(lines, describe_machine()).damage == ()


def test_lines_for_machines_nobody_knows_leave_both_possible() -> None:
    found = combined("a==1; platform_release == '6.1'", "a==2; platform_release != '6.1'")
    assert found.damage == ()
    assert found.packages["a"].specifier == "==1 || ==2"
