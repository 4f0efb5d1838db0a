"""Options as argparse reads them."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.command import Word
from compatcheck.core.source import Source
from compatcheck.frameworks.launch.flags import known_values, parse_flags
from tests.unit.frameworks.launch_script.written_commands import word


def parse(*words: str, **more: bool) -> dict[str, object]:
    return known_values(parse_flags(map(word, words), **more).options)  # type: ignore[arg-type]  # only ``single``


def test_values_switches_lists_and_repeats() -> None:
    words = ["--a", "1", "--b", "--c=x=y", "--d-e", "q", "k", "--a", "2", "--f", "-1", "--g", "1e-5", "--h", "True"]
    assert parse(*words) == {"a": 2, "b": True, "c": "x=y", "d_e": ["q", "k"], "f": -1, "g": 1e-5, "h": True}


def test_unknown_words_are_told_from_unknown_values() -> None:
    flags = parse_flags(map(word, ["$MORE", "--a", "$A", "--b=$B", "--c", "1", "x$C"]))
    assert [entry.written for entry in flags.unknown] == ["$MORE"]
    assert flags.options["a"].why == "depends on $A, which the script does not tell"
    assert flags.options["b"].why == "depends on $B, which the script does not tell"
    assert flags.options["c"].why == "depends on $C, which the script does not tell"


def test_words_behind_a_single_value_are_positional() -> None:
    flags = parse_flags(map(word, ["recipe", "--config", "c.yaml", "batch_size=2"]), single=True)
    assert [entry.text for entry in flags.positional] == ["recipe", "batch_size=2"]


@pytest.mark.parametrize("switches", [(), ("s",)])
def test_a_known_switch_takes_no_word(switches: tuple[str, ...]) -> None:
    flags = parse_flags(map(word, ["--s", "file"]), switches=switches)
    assert (flags.options["s"].value is True) == bool(switches)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["--a", "--b", "--c"]), st.sampled_from(["1", "x", "0.5", "/p/q", "-3"]), st.booleans()
        ),
        max_size=8,
    )
)
def test_argparse_agrees(pairs: list[tuple[str, str, bool]]) -> None:
    words = [part for name, value, joined in pairs for part in ([f"{name}={value}"] if joined else [name, value])]
    parser = argparse.ArgumentParser()
    for name in ("--a", "--b", "--c"):
        parser.add_argument(name)
    expected = {name: value for name, value in vars(parser.parse_args(words)).items() if value is not None}
    assert {name: str(value) for name, value in parse(*words).items()} == expected


def test_a_value_that_holds_the_next_option_is_not_known_and_neither_is_that_one() -> None:
    from compatcheck.frameworks.launch.values import Argument, part_joined

    known = {"a.batch", "a.length", "max_len", "micro_batch_size"}
    options = {"a.batch": Argument("64a.length=1024", 3), "max_len": Argument(["2048--micro-batch-size", 4], 5)}
    found = part_joined(options, known)
    assert {key: argument.line for key, argument in found.items()} == {
        "a.batch": 3,
        "a.length": 3,
        "max_len": 5,
        "micro_batch_size": 5,
    }
    assert found["a.length"].why == "'64a.length=1024' holds a.length as well: a blank is missing"
    assert not part_joined({"a.batch": Argument("'x a.length=1'", 1), "max_len": Argument("b=1", 2)}, known)


@pytest.mark.parametrize(
    "output", ["$(cd .. && pwd)", "$(dirname $0)", "`realpath x`", "$(readlink -f $0)", "$(ls | wc -l | tr -d ' ')"]
)
def test_a_directory_that_a_command_names_holds_no_options(output: str) -> None:
    found = parse_flags([word("--reward"), word(output)._replace(text=None, many=True, unresolved=(output,))])
    assert (found.unknown, list(found.options)) == ((), ["reward"])


@pytest.mark.parametrize("output", ["$(cat words)", "$(pwd; cat words)", "$(list pwdx)"])
def test_other_output_may_hold_options(output: str) -> None:
    assert parse_flags([word("--reward"), word(output)._replace(text=None, many=True, unresolved=(output,))]).unknown


@pytest.mark.parametrize("path", ["$BASE/aime.jsonl", "${BASE}/aime.jsonl", "/data/x_$(date +%Y)", "data/$NAME"])
def test_a_path_holds_no_options(path: str) -> None:
    unknown = word(path)._replace(text=None, many=True, unresolved=("$BASE",))
    assert parse_flags([word("--eval-prompt-data"), word("aime"), unknown]).unknown == ()
    assert parse_flags([word("--eval-prompt-data"), word("aime"), unknown._replace(written="$BASE")]).unknown


def test_a_word_that_begins_as_a_path_holds_no_options() -> None:
    place = Source("run.sh")
    words = [
        Word("--save", place, "--save"),
        Word(None, place, "dir>/output/$NAME", ("$NAME",), many=True),
        Word(None, place, "dir>/more/$(date)", ("$(date)",), many=True),
        Word(None, place, "$EXTRA", ("$EXTRA",), many=True),
    ]
    assert [word.written for word in parse_flags(words).unknown] == ["$EXTRA"]


@pytest.mark.parametrize("number", ["$(($bsz / $num_gpus))", "$(($num_args / 2))"])
def test_a_number_holds_no_options(number: str) -> None:
    def count(written: str) -> Word:
        return Word(None, Source("a.sh"), written, (written,), many=True)

    given = parse_flags([word("--steps"), count(number), word("--bf16")])
    assert not given.unknown
    assert given.options["steps"].why is not None
    assert parse_flags([word("--steps"), word("1"), count("$(more)")]).unknown
