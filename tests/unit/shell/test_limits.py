"""What a script builds up is counted, known or not, and a limit is named when it bites; none of it is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.shell import builtins, reading, started, state, versions
from compatcheck.shell.expand import Expander, compact
from compatcheck.shell.limits import MAX_WORK
from compatcheck.shell.patterns import PatternError, matches, translate
from compatcheck.shell.script import read_script
from compatcheck.shell.values import from_text, text_of, unknown

if TYPE_CHECKING:
    from types import ModuleType


def said(text: str) -> list[str]:
    return [skipped.reason for skipped in read_script("a.sh", text).skipped]


@pytest.mark.parametrize(
    "text",
    [
        "A=$A$B\n" * 4000,
        "while true; do A=$A$A; done",
        'printf -v A "%s%s" $A $A\n' * 30,
        f"set -- {'a ' * 20_001}",
        "---\n" * 5001,
        'set -- "$*" a\n' * 1100,
    ],
    ids=["appended", "doubled", "printed", "words", "commands", "joined"],
)
def test_what_grows_is_given_up_and_said(text: str) -> None:
    assert any("more than" in reason or "longer than" in reason for reason in said(f"{text}\ndeepspeed train.py\n"))


def test_the_work_for_a_script_is_bounded(monkeypatch) -> None:
    put_together = []
    check = Expander.check
    monkeypatch.setattr(Expander, "check", staticmethod(lambda length: (put_together.append(1), check(length))))
    said("A=$A$B\n" * 4000)
    assert sum(put_together) < 2000


@pytest.mark.parametrize(
    "line",
    [
        "if [ $X = 1 ]; then V{0}=1; fi",
        'if [ "$X{0}" ]; then V{0}=1; fi',
        "V{0}=1; [ $X ] && W{0}=1",
        "f{0}() {{ A=$X; }}; f{0}",
    ],
)
def test_many_branches_over_many_variables_are_read(line: str) -> None:
    text = "".join(line.format(n) + "\n" for n in range(1500))
    script = read_script("a.sh", f"{text}deepspeed train.py --a $V1499\n")
    assert script.skipped == ()
    assert len(script.commands) == 1


def test_what_a_branch_costs_does_not_grow_with_what_is_set(monkeypatch) -> None:
    steps = []
    between = versions._between
    monkeypatch.setattr(versions, "_between", lambda one, two: (steps.append(1) or step for step in between(one, two)))
    counts = []
    for branches in (200, 400):
        steps.clear()
        said("".join(f'if [ "$X{n}" ]; then V{n}=1; fi\n' for n in range(branches)))
        counts.append(len(steps))
    assert counts[1] < 2.2 * counts[0]


def test_an_array_that_grows_is_not_sorted_again() -> None:
    text = "".join(f"A+=(--a{n} {n})\n" for n in range(3000))
    (command,) = read_script("a.sh", f'{text}deepspeed train.py "${{A[@]}}"\n').commands
    assert [word.text for word in command.words[-2:]] == ["--a2999", "2999"]


def test_an_array_of_each_way_keeps_its_own_elements() -> None:
    text = 'A=(a); if [ "$X" ]; then A[1]=b; A[2]=c; B=("${A[@]}"); else A[1]=d; C=("${A[@]}"); fi\n'
    (one, two, three) = read_script(
        "a.sh", f'{text}deepspeed "${{B[@]}}"\ndeepspeed "${{C[@]}}"\ndeepspeed "$A"'
    ).commands
    assert [word.text for word in three.words] == ["deepspeed", "a"]
    assert (one.words[-1].text, two.words[-1].text) == (None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=(a b c); A[1]=x; A[5]=z; A[3]=y", ["a", "x", "c", "y", "z"]),
        ("A=(a b); A+=([1]=x [0]=y w)", ["y", "w"]),
        ("A[7]=a; A+=(b); A[-1]=c; A[2]=d", ["d", "a", "c"]),
    ],
)
def test_elements_stand_in_the_order_of_their_keys(text: str, words: list[str]) -> None:
    (command,) = read_script("a.sh", f'{text}\ndeepspeed "${{A[@]}}"\n').commands
    assert [word.text for word in command.words] == ["deepspeed", *words]


def test_variables_that_no_branch_touched_are_not_compared(monkeypatch) -> None:
    compared = []
    same = state._same_variable
    monkeypatch.setattr(state, "_same_variable", lambda one, two: compared.append(1) or same(one, two))
    names = "".join(f"V{n}={n}\n" for n in range(1000))
    assert said(names + "if [ $X = 1 ]; then A=1; else A=2; fi\n" * 100) == []
    assert len(compared) <= 400


def test_known_parts_of_one_line_are_one() -> None:
    hidden = unknown("$B", 2)
    value = (*from_text("a", 2), *from_text(",b", 2), *hidden, *from_text("c", 2), *from_text("d", 3))
    assert [(piece.text, piece.line) for piece in compact(value)] == [("a,b", 2), (None, 2), ("c", 2), ("d", 3)]


def test_a_list_that_a_loop_writes_stays_within_the_limit() -> None:
    script = read_script("a.sh", 'for i in $(seq 1 1999); do LIST="$LIST,$i"; done\ndeepspeed train.py --list $LIST\n')
    assert script.skipped == ()
    assert MAX_WORK >= 1_000_000


@pytest.mark.parametrize(
    "text", ['if [ -n "$X" ]; then LOOP; fi', '[ "${X:-a}" = b ] && { LOOP; }', "while read -r x; do LOOP; done"]
)
def test_a_limit_that_is_met_on_a_way_that_may_be_taken_is_said(text: str) -> None:
    loop = "for i in $(seq 3000); do run $i; done"
    assert any("more than 2000 rounds" in reason for reason in said(text.replace("LOOP", loop)))


@pytest.mark.parametrize("pattern", ["*(*(*(a)))b", "+(a|aa)b", "*(a|[a-z])b", "+(a*)b", "*a*a*a*a*a*b"])
def test_patterns_that_match_in_ways_without_number_are_not_tried(pattern: str) -> None:
    with pytest.raises(PatternError):
        matches("a" * 400, translate([(pattern, False)]))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("+([[:space:]])", "  "), ("*([0-9])", "12"), ("+(ab|cd)", "abcdab"), ("*(a|b)", "abba"), ("*x*(ab)", "1xabab")],
)
def test_patterns_that_repeat_clearly_are_read(pattern: str, text: str) -> None:
    assert matches(text, translate([(pattern, False)]))


def count_texts(monkeypatch: pytest.MonkeyPatch, module: ModuleType, text: str) -> int:
    """Return how many words of values a script asks for."""
    asked = []
    monkeypatch.setattr(module, "text_of", lambda value: (asked.append(1), text_of(value))[1])
    read_script("a.sh", text, open_file=lambda _: None)
    return len(asked)


def test_a_round_of_getopts_does_not_look_at_every_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(arguments: int) -> int:
        text = f"set -- {'-a ' * arguments}\nwhile getopts a o; do A=$o; done\n"
        return count_texts(monkeypatch, builtins, text) + count_texts(monkeypatch, reading, text)

    assert count(800) < 2.5 * count(400)


@pytest.mark.parametrize("wrapper", ["env", "srun", "nohup"])
def test_wrappers_around_wrappers_end(monkeypatch: pytest.MonkeyPatch, wrapper: str) -> None:
    def count(wrappers: int) -> int:
        return count_texts(monkeypatch, started, f"{wrapper} " * wrappers + "deepspeed train.py\n")

    assert count(800) < 2.5 * count(400)
    script = read_script("a.sh", f"{wrapper} " * 13 + "bash a.sh\n", open_file=lambda _: None)
    assert [entry.reason for entry in script.skipped] == [
        "a command stands behind more than 12 others that start one another"
    ]


def test_a_case_that_goes_on_without_end_is_given_up_and_said() -> None:
    script = read_script("t.sh", f"case a in {'a) V=1;;& ' * 4000}esac\ncase $X in {'a) V=1;;& b) V=2;;& ' * 40}esac\n")
    assert [(skip.source.line, skip.reason) for skip in script.skipped] == [
        (line, "goes on behind ;;&, where it is not followed") for line in (1, 2)
    ]


def test_a_condition_that_every_round_adds_is_written_once() -> None:
    script = read_script("a.sh", "for _ in $(seq 1 1000); do check || break; wait_for; done\ndeepspeed train.py\n")
    assert {command.condition for command in script.commands} == {None, "not (not (check))"}


def test_a_list_handed_on_is_not_split_anew(monkeypatch) -> None:
    split: list[int] = []
    finish = Expander._finish
    monkeypatch.setattr(Expander, "_finish", lambda self, field, line: split.append(1) or finish(self, field, line))
    text = "A=()\n" + 'A=("${A[@]}" "b c" "*")\n' * 100 + 'deepspeed train.py "${A[@]}"\n'
    (command,) = read_script("a.sh", text).commands
    assert [word.text for word in command.words[2:]] == ["b c", "*"] * 100
    assert len(split) < 500
