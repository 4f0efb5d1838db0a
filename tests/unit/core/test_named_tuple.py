"""Our named tuples behave as those of `typing`, which stay what type checkers see."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple as TypingTuple

import pytest

import compatcheck
from compatcheck.core.named_tuple import NamedTuple


class Theirs(TypingTuple):
    """A place."""

    name: str
    line: int = 0
    more: tuple[str, ...] = ()


class Pair(NamedTuple):
    first: object
    second: object


class OtherPair(NamedTuple):
    left: object
    right: object = 7


def test_values_are_given_by_place_or_name_and_defaults_fill_the_rest():
    assert Pair(1, 2) == Pair(second=2, first=1) == (1, 2)
    assert Pair(1, 2)._asdict() == {"first": 1, "second": 2}
    assert OtherPair(1) == (1, 7)
    assert OtherPair(left=1)._asdict() == {"left": 1, "right": 7}  # of as many fields as Pair, and under its own names


@pytest.mark.parametrize("kind", [OtherPair, Theirs])
def test_wrong_arguments_are_refused(kind: type):
    first, *rest = kind._fields
    for values, named in [((), {}), ((1,) * (len(rest) + 2), {}), ((1,), {first: 1}), ((1,), {"other": 1})]:
        with pytest.raises(TypeError):
            kind(*values, **named)
    with pytest.raises(TypeError):
        kind._make([1])
    with pytest.raises(ValueError, match="other"):
        kind(1)._replace(other=2)


def test_an_object_is_small_fixed_and_found_by_its_fields():
    place = Theirs("a", 3), OtherPair("a", 3)
    for one in place:
        assert not hasattr(one, "__dict__")
        with pytest.raises(AttributeError):
            setattr(one, one._fields[0], "b")
    assert hash(place[1]) == hash(("a", 3))
    match place[1]:
        case OtherPair(left, right=right):
            assert (left, right) == ("a", 3)


def test_methods_texts_and_copies_are_as_of_typing():
    ours, theirs = OtherPair("a"), Theirs("a")
    assert repr(ours) == "OtherPair(left='a', right=7)"
    assert repr(theirs) == "Theirs(name='a', line=0, more=())"
    assert (OtherPair._fields, OtherPair._field_defaults) == (("left", "right"), {"right": 7})
    assert copy.copy(ours) == copy.deepcopy(ours) == pickle.loads(pickle.dumps(ours)) == ours
    assert type(pickle.loads(pickle.dumps(ours))) is OtherPair
    assert type(ours._replace(left=2)) is OtherPair
    assert OtherPair._make(iter((1, 2))) == (1, 2)


def test_no_module_of_a_command_defines_named_tuples_in_another_way():
    """What runs in another environment than this program's own has nothing of it."""
    alone = ("lab/probes/", "lab/traced/program/")
    root = Path(compatcheck.__file__).parent
    others = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "NamedTuple" in (text := path.read_text(encoding="utf-8"))
        and "from typing import" in text
        and any("NamedTuple" in line for line in text.splitlines() if line.startswith("from typing import"))
    ]
    assert [path for path in others if not path.startswith(alone)] == []


def test_it_is_read_without_typing():
    program = "import sys; from compatcheck.core.named_tuple import NamedTuple; print('typing' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(compatcheck.__file__).parents[1],
    )
    assert done.stdout == "False\n"
