"""What a script does not tell stays unknown and named; what is assumed instead is said."""

# ruff: noqa: E501 (a snippet is one line)

from __future__ import annotations

import pytest

from compatcheck.core.command import Command, Word
from compatcheck.shell import Script, read_script


def read(text: str, **options) -> Script:
    return read_script("x.sh", text, **options)


def runs(script: Script) -> list[Command]:
    return [command for command in script.commands if command.words[0].text == "run"]


def only(text: str, **options) -> tuple[Word, ...]:
    (command,) = runs(read(text, **options))
    return command.words[1:]


def test_a_variable_nobody_sets_is_named() -> None:
    (word,) = only('run trainer.nnodes="$N_NODES"')
    assert (word.text, word.unresolved, word.many) == (None, ("$N_NODES",), False)
    assert word.written == "trainer.nnodes=$N_NODES"


def test_an_unknown_value_without_quotes_may_be_several_words() -> None:
    first, second, third = only('run $EXTRA --a "${EXTRA}"')
    assert first.many
    assert second.text == "--a"
    assert not third.many


def test_what_is_known_of_a_value_survives_around_what_is_not() -> None:
    words = only('OPTS="--lr 1e-6 --path $HOME/x --bs 4"; run $OPTS')
    assert [word.text for word in words] == ["--lr", "1e-6", "--path", None, "--bs", "4"]
    assert words[3].written == "$HOME/x"


def test_an_unknown_word_in_an_array_keeps_its_place() -> None:
    words = only('A=(--a 1 $EXTRA --b 2); run "${A[@]}"; echo ${#A[@]}')
    assert [(word.text, word.many) for word in words] == [
        ("--a", False),
        ("1", False),
        (None, True),
        ("--b", False),
        ("2", False),
    ]
    assert only('A=($EXTRA b); run "${A[1]}" ${#A[@]}')[0].text is None


@pytest.mark.parametrize(
    ("word", "text", "assumes"),
    [
        ("${N:-8}", "8", ("$N is not set",)),
        ("${N-8}", "8", ("$N is not set",)),
        ("${2:-d}", "d", ("$2 is not given",)),
        ("${N:-${M:-3}}", "3", ("$M is not set", "$N is not set")),
        ("$((${N:-8} / 2))", "4", ("$N is not set",)),
    ],
)
def test_a_default_is_taken_and_its_assumption_said(word: str, text: str, assumes: tuple[str, ...]) -> None:
    (found,) = only(f"run {word}")
    assert found.text == text
    assert set(found.assumes) == set(assumes)


@pytest.mark.parametrize(
    "word", ["${HOME:-/root}", "${HOSTNAME:-x}", "${RANDOM:-1}", "${X:?must be set}", "$0", "$RANDOM", "$$"]
)
def test_what_is_surely_set_elsewhere_never_takes_its_default(word: str) -> None:
    assert only(f"run {word}")[0].text is None


def test_variables_of_a_batch_job_never_take_their_default() -> None:
    script = read("#!/bin/bash\n#SBATCH --nodes=2\nrun ${SLURM_NNODES:-1} ${OTHER:-1}")
    assert [word.text for word in runs(script)[0].words[1:]] == [None, "1"]
    assert only("run ${SLURM_NNODES:-1}")[0].text == "1"
    for text in ("##SBATCH --nodes=2", "#SBATCH", "true\n#SBATCH --nodes=2"):
        assert only(f"{text}\nrun ${{SLURM_NNODES:-1}}")[0].text == "1"


@pytest.mark.parametrize(
    "value",
    [
        "$(hostname)",
        "$(nvidia-smi -L | wc -l)",
        "`date +%s`",
        "$(python -c 'print(1)')",
        "$(nproc)",
        "$(cat /etc/hostname)",
    ],
)
def test_what_a_program_prints_is_unknown_and_the_program_is_a_query(value: str) -> None:
    script = read(f'X={value}; run "$X" "${{X:-d}}" $((X+1))')
    (command,) = runs(script)
    assert [word.text for word in command.words[1:]] == [None, None, None]
    assert all(word.unresolved for word in command.words[1:])
    assert all(query.words[0].text != "run" for query in script.queries)


@pytest.mark.parametrize("pattern", ["*.py", "data/?.json", "a*"])
def test_a_pattern_of_file_names_is_unknown(pattern: str) -> None:
    (word,) = only(f"run {pattern}")
    assert (word.text, word.written, word.many) == (None, pattern, True)


def test_a_list_in_brackets_is_taken_as_written() -> None:
    (word,) = only("run data.files=[a,b]")
    assert word.text == "data.files=[a,b]"
    assert word.assumes == ("no file matches data.files=[a,b]",)


@pytest.mark.parametrize("pattern", ["[0]*3+[1]*89", "([1]*3+[0]*1)*3", "[1]*62", "[0]+[1]*23"])
def test_a_list_that_is_repeated_is_no_name_of_a_file(pattern: str) -> None:
    (word,) = only(f"LAYERS='{pattern}'\nrun $LAYERS")
    assert (word.text, word.assumes) == (pattern, (f"no file matches {pattern}",))


@pytest.mark.parametrize("pattern", ["[0]*", "[01]*.pt", "shard[0]*3"])
def test_a_pattern_that_may_be_names_of_files_is_unknown(pattern: str) -> None:
    (word,) = only(f"run {pattern}")
    assert word.text is None


def test_a_home_directory_is_unknown_but_a_hydra_deletion_is_not() -> None:
    assert [word.text for word in only("run ~/data ~ --x=~/y ~trainer.logger ~actor.a=1")] == [
        None,
        None,
        "--x=~/y",
        "~trainer.logger",
        "~actor.a=1",
    ]


def test_both_ways_of_an_unknown_condition_are_read() -> None:
    script = read('if [ "$MODE" = fast ]; then run a; BS=8; else run b; BS=4; fi; run "$BS" $BS')
    a, b, after = runs(script)
    assert (a.certain, a.condition) == (False, '[ "$MODE" = fast ]')
    assert (b.certain, b.condition) == (False, 'not ([ "$MODE" = fast ])')
    assert after.certain
    assert after.words[1].text is None
    assert after.words[1].unresolved == ("$BS",)


def test_what_both_ways_agree_on_is_known() -> None:
    (word,) = only('BS=1; if [ "$MODE" = fast ]; then BS=8; X=1; else BS=8; fi; run $BS')
    assert word.text == "8"


def test_a_variable_set_in_one_way_is_unknown_afterwards() -> None:
    words = only('BS=1; [ -f config ] && BS=8; A=(x); [[ -d $D ]] && A+=(y); run "$BS" "${A[@]}" ${N:-2}')
    assert [(word.text, word.many) for word in words] == [(None, False), ("x", False), (None, True), ("2", False)]


def test_a_way_that_ends_the_script_leaves_nothing_behind() -> None:
    (command,) = runs(read("X=1; if [ ! -f model ]; then X=2; exit 1; fi; run $X; [ -d x ] || exit"))
    assert command.certain
    assert command.words[1].text == "1"


def test_a_missing_argument_does_not_end_the_reading() -> None:
    script = read('if [ $# -lt 2 ]; then echo usage; exit 1; fi\nif [ -z "$1" ]; then exit 1; fi\nrun "$1" --x')
    (command,) = runs(script)
    assert [word.text for word in command.words] == ["run", None, "--x"]
    assert command.certain
    assert not runs(read("if [ $# -lt 2 ]; then exit 1; fi; run x", arguments=["one"]))


def test_loops_over_unknown_arguments_leave_the_defaults() -> None:
    script = read(
        'A=1\nwhile [[ $# -gt 0 ]]; do case $1 in --a) A=$2; shift 2;; esac; done\nfor x in "$@"; do A=$x; done\nrun $A "$@"'
    )
    (command,) = runs(script)
    assert command.words[1].text == "1"
    assert len(command.words) == 2
    assert command.words[0].assumes == ("no arguments are given",)
    assert "no arguments are given" in {assumption.text for assumption in script.assumptions}


def test_what_only_an_argument_sets_is_not_set_where_none_is_given() -> None:
    loop = 'while [[ $# -gt 0 ]]; do case $1 in --m) M="$2"; shift 2;; *) break;; esac; done'
    script = read(f'{loop}\nif [ -z "$M" ]; then M=model; fi\nrun $M "${{@:1}}"')
    (command,) = runs(script)
    assert [word.text for word in command.words] == ["run", "model"]
    assert command.words[0].assumes == ("no arguments are given",)
    assert {one.text for one in script.assumptions} == {"no arguments are given", "$M is not set"}
    given = read(f'{loop}\nif [ -z "$M" ]; then M=model; fi\nrun $M "${{@:1}}"', arguments=["--m", "mine", "more"])
    assert [word.text for word in runs(given)[0].words] == ["run", "mine", "more"]


def test_an_emptiness_test_assumes_that_nobody_sets_the_variable() -> None:
    script = read('if [ -z "$N" ]; then N=4; fi\nrun $N')
    assert runs(script)[0].words[1].text == "4"
    assert [(one.text, one.source.line) for one in script.assumptions] == [("$N is not set", 1)]


def test_a_loop_of_unknown_length_is_read_once_and_what_it_changes_is_unknown() -> None:
    script = read('i=0; K=1\nfor h in $HOSTS; do i=$((i+1)); run "$h" $i $K; done\nrun $i $K')
    inside, after = runs(script)
    assert (inside.certain, inside.condition) == (False, "for h in $HOSTS")
    assert [word.text for word in inside.words] == ["run", None, None, "1"]
    assert [word.text for word in after.words] == ["run", None, "1"]


def test_a_waiting_loop_does_not_make_the_rest_uncertain() -> None:
    first, second = runs(read("until ray status; do run wait; done\nrun train"))
    assert not first.certain
    assert second.certain


def test_a_loop_left_by_an_unknown_condition() -> None:
    commands = runs(
        read(
            "for i in 1 2; do if [ -f $i ]; then break; fi; run $i; done; run end; while true; do run x; [ -f y ] && break; done; run last"
        )
    )
    assert [(command.words[1].text, command.certain) for command in commands] == [
        ("1", False),
        ("2", False),
        ("end", True),
        ("x", True),
        ("x", False),
        ("last", True),
    ]


def test_a_function_that_may_return_early() -> None:
    inside, after = runs(read("X=1; f() { [ -f a ] && return; X=2; run in; }; f; run $X"))
    assert not inside.certain
    assert (after.certain, after.words[1].text) == (True, None)


def test_a_case_of_unknown_text_reads_every_way() -> None:
    script = read('case "$SIZE" in 7b) run a; N=1;; 70b) run b; N=8;; *) exit 1;; esac; run $N')
    assert [command.certain for command in runs(script)] == [False, False, True]
    assert runs(script)[0].condition == 'case "$SIZE" in 7b'
    assert runs(script)[2].words[1].text is None


def test_only_one_way_prints() -> None:
    assert only('X=$(if [ -f a ]; then echo 1; else echo 2; fi); run "$X"')[0].text is None
    assert only('f() { [ -f a ] && return; echo 1; }; run "$(f)"')[0].text is None


def test_arithmetic_on_something_unknown_is_unknown() -> None:
    words = only('W=$((N*8)); let V=N+1; ((U=N)); M=4; ((M+=N)); run "$W" "$V" "$U" "$M" $((3 > 2 ? 1 : N))')
    assert [word.text for word in words] == [None, None, None, None, "1"]
    assert words[0].unresolved == ("$N",)


def test_a_sourced_file_may_set_what_the_script_does_not() -> None:
    script = read("A=1\nsource ./env.sh\nrun $A ${B:-2}\n. ~/.bashrc")
    assert [word.text for word in runs(script)[0].words[1:]] == ["1", None]
    assert [(skip.source.line, skip.reason.split(",")[0]) for skip in script.skipped] == [
        (2, "sources ./env.sh"),
        (4, "sources ~/.bashrc"),
    ]
    assert only("source activate verl; run ${B:-2}")[0].text == "2"
    assert only("source /usr/local/Ascend/nnal/atb/set_env.sh; run ${B:-2}")[0].text == "2"


def test_eval_of_unknown_output_is_said() -> None:
    script = read('eval "$(conda shell.bash hook)"\nrun a')
    assert len(runs(script)) == 1
    assert "eval of $(conda …)" in script.skipped[0].reason


def test_eval_keeps_unknown_parts_apart() -> None:
    (command,) = runs(read('CMD="run --n $N --x \'a b\'"; eval "$CMD --y"'))
    assert [word.text for word in command.words] == ["run", "--n", None, "--x", "a b", "--y"]
    assert command.words[2].unresolved == ("$N",)


def test_exported_variables_go_with_a_command() -> None:
    script = read(
        "export A=1 B\nC=2\nB=3\nD=4 run x\nunset A\nexport E=$HOST; PATH=$PATH:/x\nrun y\nset -a; F=1; set +a; run z"
    )
    first, second, third = runs(script)
    assert {name: word.text for name, word in first.variables.items()} == {"A": "1", "B": "3", "D": "4"}
    assert {name: word.text for name, word in second.variables.items()} == {"B": "3", "E": None, "PATH": None}
    assert third.variables["F"].text == "1"
    assert second.variables["E"].unresolved == ("$HOST",)


def test_a_program_in_front_of_a_program_is_left_to_the_reader_of_commands() -> None:
    (command,) = read("nohup env A=1 python x.py > log 2>&1 &").commands
    assert [word.text for word in command.words] == ["nohup", "env", "A=1", "python", "x.py"]


def test_exec_ends_the_script() -> None:
    assert [command.words[0].text for command in read("exec python a\npython b").commands] == ["python"]


def test_words_know_their_lines() -> None:
    text = "N=4\nOPTS=(\n  --a 1\n  --b 2\n)\nX='--c 3\n--d 4'\nrun \\\n  --n=$N \\\n  $N \\\n  ${OPTS[@]} \\\n  $X \\\n  ${U:-9}"
    assert {word.source.used for word in only(text)[:2]} == {9, 10}  # and the lines they are used in
    assert [(word.text, word.source.line) for word in only(text)] == [
        ("--n=4", 1),
        ("4", 1),
        ("--a", 3),
        ("1", 3),
        ("--b", 4),
        ("2", 4),
        ("--c", 6),
        ("3", 6),
        ("--d", 7),
        ("4", 7),
        ("9", 13),
    ]
    assert runs(read(text))[0].source.line == 8


def test_a_file_that_the_script_writes_is_kept() -> None:
    script = read(
        'N=2\ncat <<EOF > ds_config.json\n{"stage": $N, "note": "\\$x"}\nEOF\ncat > "out/b.json" <<\'EOF\'\n{"a": "$N"}\nEOF\n'
        "tee c.yaml <<-EOF > /dev/null\n\tk: ${M:-1}\n\tEOF\necho 'x: 1' > d.yaml; echo 'y: 2' >> d.yaml\ncat <<EOF > e\n$HOSTNAME 1\nEOF\n"
        "python x > log.txt",
    )
    assert {path: word.text for path, word in script.files.items()} == {
        "ds_config.json": '{"stage": 2, "note": "$x"}\n',
        "out/b.json": '{"a": "$N"}\n',
        "c.yaml": "k: 1\n",
        "d.yaml": "x: 1\ny: 2\n",
        "e": None,
        "log.txt": None,
    }
    assert script.files["ds_config.json"].source.line == 3
    assert script.files["e"].written == "$HOSTNAME 1\n"


def test_text_on_standard_input_is_kept() -> None:
    (command,) = read("python - <<'EOF'\nprint(1)\nEOF").commands
    assert command.stdin is not None
    assert command.stdin.text == "print(1)\n"
    assert read("python x").commands[0].stdin is None


@pytest.mark.parametrize(
    "text",
    [
        'A=(a); [[ -n $X ]] && A+=(--x); run "${A[@]}"',
        'A=a; if [ -n "$X" ]; then A="$A --x"; fi; run $A',
        'A=a; if [ -z "$X" ]; then A="$A --x"; fi; run $A',
        "run a ${X:+--x}",
        "run a ${X:-}",
        'run a $(test -n "$X" && echo --x)',
        'A=(a); eval "$HOOK"; run "${A[@]}"',
        'A=(a); while [ $# -gt 0 ]; do case $1 in --x) A+=(--x);; esac; shift; done; run "${A[@]}"',
        'A=(a); while getopts "x" o; do case $o in x) A+=(--x);; esac; done; run "${A[@]}"',
        'A=(a); for o in "$@"; do A+=("$o"); done; run "${A[@]}"',
        'A=(a); [ $# -gt 0 ] && A+=("$@"); run "${A[@]}"',
    ],
)
def test_what_is_given_from_outside_leaves_open_what_it_may_set(text: str) -> None:
    *_, command = runs(read(text))
    assert any(word.text is None and word.many for word in command.words[1:])


def test_a_text_that_what_is_given_replaces_is_a_default() -> None:
    text = '[ -n "$M" ] || M=m; if [ -n "$1" ]; then K=$1; else K=k; fi; S=s; [ -n "$X" ] && S=$X; run $M $K $S'
    (command,) = runs(read(text))
    assert [(word.text, word.assumes) for word in command.words[1:]] == [
        ("m", ("$M is not set",)),
        ("k", ("$1 is not given",)),
        ("s", ("$X is not set",)),
    ]
