"""The grammar accepts what bash accepts, names what it refuses, and takes time in proportion."""

from __future__ import annotations

import subprocess

import pytest

from compatcheck.shell import read_script
from compatcheck.shell.grammar import Parser
from tests import ROOT
from tests.effort import cpu_of
from tests.unit.shell.test_against_bash import EXPANSIONS, STATEMENTS

SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "fixtures").rglob("*.sh"))
BROKEN = (
    "a\nfi\nb",
    "if a; then b",
    "if a; b; fi",
    "for x in a; b; done",
    "for; do a; done",
    "while a; do b; end",
    "case x in a b;; esac",
    "case x in a) b;;",
    "case x a) b;; esac",
    "{ a; ",
    "{ a; )",
    "( a; }",
    "a && ; b",
    "a | | b",
    "a ;; b",
    "f() ; a",
    "function f; a",
    "a (b)",
    "{ a; } b",
    "x=<a>\nb",
    "! ) a",
    "echo 'a",
    "x=$(if a; then b)",
    "done",
    "if a; then b; else c; elif d; then e; fi",
)
WHOLE = (
    "if a; then b; fi | c && ! d || e &",
    "f() (a); g() [[ -n x ]]; function h { a; } > b",
    "for x\ndo a; done; for y in 1 2; { a; }; for ((;;)); do b; done; select z in a; do b; done",
    "case x in (a|b) c ;& d) e ;;& *) ;; esac; case y in esac",
    "{ { a; } } 2>&1; ((1+1)) && [[ a == @(b|c) ]] > d",
    "if a; then { b; } fi; time -p a | b; ! a; time; cat <<A <<-B; c\n1\nA\n\t2\n\tB\nd",
    "a() { b; }\nuntil a; do b; done < c > d; (a; (b)); $(case x in a) b;; esac)",
    "echo if then fi done esac { } ! function case; a={ b=}; x=(1 # c )\n2); y=$((1)); z=`a \\`b\\``",
)


def refuses(text: str) -> bool:
    return subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("text", [*WHOLE, *EXPANSIONS.values(), *STATEMENTS.values()])
def test_what_bash_accepts_has_no_problem(text: str) -> None:
    assert Parser(text).parse().problems == ()


@pytest.mark.parametrize("text", BROKEN)
def test_what_bash_refuses_is_a_problem_and_the_rest_is_not_certain(text: str) -> None:
    assert refuses(text)
    assert Parser(text).parse().problems
    script = read_script("x.sh", f"first\n{text}\nlast\n")
    assert script.skipped
    assert [command.words[0].text for command in script.commands if command.certain][:1] == ["first"]
    assert not any(command.certain for command in script.commands if command.words[0].text == "last")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_accepted_as_bash_does(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8").replace("\r\n", "\n")
    assert bool(Parser(text).parse().problems) == refuses(text)


HOSTILE = (
    *(
        "(",
        "((",
        "$(",
        "$((",
        "'",
        '"',
        "`",
        "{ ",
        "{",
        "if a; then ",
        "case x in a) ",
        "a=(",
        "${x:-",
        "[[ (",
        "<(",
        "$[",
    ),
    *(
        "a && ",
        "a | ",
        "f() ",
        "{a,b}",
        "$a",
        '"$a\n"',
        "fi ",
        "esac;",
        ")",
        "<<E\n",
        "@(",
        "! ",
        "X=$X$X\n",
        "~",
        "\\\n",
        "${a[} ",
    ),
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_twice_the_text_takes_twice_the_time(unit: str) -> None:
    def spend(count: int) -> float:
        return cpu_of(lambda: read_script("x.sh", unit * count))

    spend(100)
    # beside each other, and again where another process took its time from one of them
    assert any(spend(20_000) < 3 * spend(10_000) + 0.5 for _ in range(4))


@pytest.mark.parametrize("line", ["A[{0}]=1\n", "A+=({0})\n"])
def test_an_array_that_grows_is_not_copied_again(line: str) -> None:
    def spend(count: int) -> float:
        text = "".join(line.format(n) for n in range(count))
        assert read_script("x.sh", text).skipped == ()
        return cpu_of(lambda: read_script("x.sh", text))

    # four times the text; copying it each time would cost sixteen times
    assert any(spend(19_000) < 10 * spend(4_750) for _ in range(6))
