"""Whatever an unknown condition turns out to be, bash runs what was read: random scripts, run with several environments."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatcheck.core.command import Command
from compatcheck.shell import read_script

CONDITIONS = st.sampled_from(
    [
        '[ "$U" = x ]',
        "probe",
        "! probe",
        "[[ $U == y* ]]",
        '[ "$A" = 1 ]',
        "true",
        "false",
        "((C > 2))",
        '[ "$B" = b ] && probe',
        "f",
    ],
)
SIMPLE = st.sampled_from(
    [
        "A=1",
        "A=2",
        "B=$A",
        "B+=b",
        "C=$((C+1))",
        "((C+=A))",
        "L+=($A)",
        "A=$U",
        "unset B",
        "set -- $A x",
        "shift",
        "export A",
        "D=$(echo $A; probe && echo 1)",
        "echo $C > file",
        'read E < <(echo "$A z")',
    ],
)
RUN = st.just('run % "$A" "$B" "$C" "${#L[@]}" "${L[*]}" "$#" "$D" "${V:-d}" "$E" "$(cat file 2>/dev/null)"')
JUMPS = st.sampled_from(
    [
        "break",
        "continue",
        "return",
        "exit",
        "probe && break",
        "probe || continue",
        "probe && return",
        "probe && exit",
        "f",
    ]
)


def block(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=4).map("\n".join)
    return st.one_of(
        st.builds("if {}; then\n{}\nelse\n{}\nfi".format, CONDITIONS, body, body),
        st.builds("if {}; then\n{}\nfi".format, CONDITIONS, body),
        st.builds("{} && {{\n{}\n}}".format, CONDITIONS, body),
        st.builds("{} || {{\n{}\n}}".format, CONDITIONS, body),
        st.builds("for i in 1 2; do\n{}\ndone".format, body),
        st.builds("for i in $U; do\n{}\ndone".format, body),
        st.builds("while ((S++ < 2)); do\n{}\ndone".format, body),
        st.builds("while probe && ((S++ < 4)); do\n{}\ndone".format, body),
        st.builds("for ((j=0; j<2 && S++<6; j++)); do\n{}\ndone".format, body),
        st.builds('case "$U" in\nx) {};;\ny*) {};;\nesac'.format, body, body),
        st.builds('case "$A" in\n1) {};;\n*) {};;\nesac'.format, body, body),
        st.builds("(\n{}\n)".format, body),
        st.builds("{{\n{}\n}} > /dev/null".format, body),
        st.builds("g() {{\nlocal A=9\n{}\n}}\ng".format, body),
        st.builds("f() {{\n{}\n{}\n}}".format, SIMPLE, st.sampled_from(["probe && return 1", "exit", "B=f", "false"])),
        st.builds("echo $A | {{\n{}\n}}".format, body),
    )


STATEMENTS = st.recursive(st.one_of(SIMPLE, RUN, JUMPS), block, max_leaves=12)
SCRIPTS = st.lists(st.one_of(STATEMENTS, RUN), min_size=2, max_size=6).map("\n".join)


def agrees(command: Command, words: tuple[str, ...]) -> bool:
    found = [word.text for word in command.words[1:]]
    return len(found) == len(words) and all(
        one is None or one == other for one, other in zip(found, words, strict=True)
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(SCRIPTS)
def test_what_bash_runs_was_read(bash, text) -> None:
    numbers = itertools.count()
    text = "".join(part if not n else f"{next(numbers)}{part}" for n, part in enumerate(text.split("%")))
    start = "A=0 B=b C=3; L=(); D= E= S=0\n"
    script = read_script("x.sh", f"{start}f() {{ A=f; }}\n{text}\n", arguments=["p"])
    assert not script.skipped
    read = [command for command in script.commands if command.words[0].text == "run"]
    for environment in ({}, {"U": "x"}, {"U": "y z"}):
        program = f'rm -f file; probe() {{ [ "${{U:0:1}}" = x ]; }}; {start}f() {{ A=f; }}\n{text}\n'
        for words in bash(program, ["p"], environment):
            assert any(agrees(command, words) for command in read), (environment, words)


@pytest.mark.parametrize(
    "body",
    ["(break; run a)", "(continue; run a)", "true | { break; run a; }", "{ break; run a; } & wait", "break; run a"],
)
def test_a_subshell_does_not_know_of_the_loops_around_it(bash, body) -> None:
    text = f"for i in 1 2; do {body}; done; run b"
    script = read_script("x.sh", text, arguments=[])
    found = {command.words[1].text for command in script.commands if command.words[0].text == "run"}
    assert found == {words[0] for words in bash(text, [], {})}


@pytest.mark.parametrize(
    "text",
    [
        '(probe && exit; echo 1 > file); run "$(cat file 2>/dev/null)"',
        'echo 1 | { probe && exit; cat > file; }; run "$(cat file 2>/dev/null)"',
        'f() { (probe && return; echo 1 > file); }; f; run "$(cat file 2>/dev/null)"',
        'echo 0 > file; (probe && exec true; echo 1 > file); run "$(cat file)"',
        'x=$(echo 0; probe && exit; echo 1); run "$x"',
    ],
)
def test_what_a_subshell_does_not_get_to_is_not_known(bash, text) -> None:
    (command,) = [one for one in read_script("x.sh", text, arguments=[]).commands if one.words[0].text == "run"]
    for environment in ({}, {"U": "x"}):
        (words,) = bash(f'rm -f file; probe() {{ [ "${{U:0:1}}" = x ]; }}; {text}', [], environment)
        assert agrees(command, words), (environment, words)
    assert command.words[1].text is None
