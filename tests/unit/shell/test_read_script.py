"""Files, headers, syntax errors and limits of launch scripts."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import InputError
from compatcheck.core.textfile import read_text
from compatcheck.shell import read_script

if TYPE_CHECKING:
    from pathlib import Path


def texts(path: str, text: str | None = None) -> list[tuple[str | None, ...]]:
    text = read_text(path) if text is None else text
    return [tuple(word.text for word in command.words) for command in read_script(path, text).commands]


@pytest.mark.parametrize(
    "data",
    [
        b"python a \\\r\n  --b 1\r\nif true; then\r\n  python c\r\nfi\r\n",
        b"\xef\xbb\xbfpython a \\\n  --b 1\npython c",
        b"\tpython a\t\\\n\t--b\t1\n\tpython c",
    ],
)
def test_line_ends_byte_order_marks_and_tabs(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.sh"
    file.write_bytes(data)
    assert texts(str(file)) == [("python", "a", "--b", "1"), ("python", "c")]


def test_windows_line_ends_are_said() -> None:
    assert "Windows line ends" in read_script("x.sh", "python a\r\n").skipped[0].reason


def test_sources_name_the_script() -> None:
    (command,) = read_script("a/x.sh", "\npython a").commands
    assert str(command.words[1].source) == "a/x.sh:2"


def test_a_large_script_is_refused() -> None:
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_script("x.sh", "a\n" * (1 << 20))


@pytest.mark.parametrize(
    ("text", "line", "before"),
    [
        ("python a\npython b 'open\npython c\n", 2, 1),
        ('python a\nX="$(echo\npython b', 2, 1),
        ("python a\nfi\npython b", 2, 1),
        ("python a\nX=<PATH>\npython b\n", 2, 1),
        ("python a\nif true; then\npython b\n", 2, 1),
        ("python a\n{ python b\n", 2, 1),
    ],
)
def test_a_syntax_error_names_its_line_and_what_comes_before_is_read(text: str, line: int, before: int) -> None:
    script = read_script("x.sh", text)
    assert line in {skip.source.line for skip in script.skipped}
    assert [command.words[1].text for command in script.commands if command.certain] == ["a"] * before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python a\nf() { f; }\nf\npython b", "deep"),
        ("python a\nfor i in {1..99999}; do python $i; done\npython b", "words"),
        ("python a\nX=abcdefgh\nfor i in {1..30}; do X=$X$X; done\npython b", "longer"),
        ("python a\nfor i in {1..90}; do for j in {1..90}; do python $j; done; done", "commands"),
        ("python a\nfor i in {1..1000}; do for j in {1..1000}; do :; done; done", "statements"),
        ("python a\npython {1..300}{1..300}", "words"),
    ],
)
def test_limits_are_said_and_what_comes_before_is_kept(text: str, message: str) -> None:
    script = read_script("x.sh", text)
    assert message in script.skipped[-1].reason
    assert script.commands[0].words[1].text == "a"


def test_an_endless_loop_ends_the_reading() -> None:
    assert texts("x.sh", "python a & while true; do sleep 60; done\npython b") == [("python", "a"), ("sleep", "60")]
    assert texts("x.sh", "i=1; while [ $i -gt 0 ]; do i=$((i+1)); done; python b") == [("python", "b")]


def test_deep_nesting_is_no_crash() -> None:
    for opening in ("$(", "(", "${x:-", "$((", "{ ", "if true; then ", "`", '"$(', "[[ (", "a=(", "<("):
        read_script("x.sh", opening * 3000)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        read_script("x.sh", data.decode("utf-8", "replace"))


FRAGMENTS = st.sampled_from(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "while",
        "until",
        "case",
        "esac",
        "{",
        "}",
        "(",
        ")",
        "((",
        "))",
        "[[",
        "]]",
        "[",
        "]",
        ";",
        ";;",
        "&",
        "&&",
        "|",
        "||",
        "!",
        "\n",
        "\\\n",
        '"',
        "'",
        "`",
        "$",
        "${",
        "$(",
        "$((",
        "<<",
        "<<<",
        "<",
        ">",
        "EOF",
        "a=1",
        "a+=(",
        "x",
        "$x",
        "${x:-1}",
        "${x[@]}",
        "${#x}",
        "{1..3}",
        "{a,b}",
        "*",
        "?",
        "#",
        "=~",
        "==",
        "-z",
        "-gt",
        "1",
        "local",
        "export",
        "eval",
        "f()",
        "shift",
        "set",
        "--",
        "break",
        "continue",
        "return",
        "exit",
        "read",
        "${!x}",
        "${x/a/b}",
        "${x:1}",
        "$'\\n'",
        "~",
        "=",
        "echo",
    ],
)


@settings(max_examples=300)
@given(st.lists(FRAGMENTS, max_size=30), st.sampled_from(["", " "]))
def test_random_scripts_are_read(fragments: list[str], separator: str) -> None:
    read_script("x.sh", separator.join(fragments))


def test_nothing_is_run_and_nothing_else_opened(tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text(
        'touch made; echo x > "made2"; X=$(touch made3; cat other); . ./other; eval "touch made4"; python $X < other'
    )
    (tmp_path / "other").write_text("secret")
    code = (
        "import sys, os\n"
        "from compatcheck.shell import read_script\n"
        "text = open(sys.argv[1]).read()\n"
        "read_script(sys.argv[1], text)\n"  # what is imported late is loaded
        "seen = []\n"
        "sys.addaudithook(lambda name, args: seen.append((name, str(args[0]))) "
        "if name in ('open', 'subprocess.Popen', 'os.system', 'os.exec', 'os.posix_spawn') else None)\n"
        "read_script(sys.argv[1], text)\n"
        "print(seen)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert result.stdout.strip() == "[]"
    assert {file.name for file in tmp_path.iterdir()} == {"x.sh", "other"}


@pytest.mark.parametrize("text", ["for if [[ ${!x}", "[[ ${x", "if [[ a"])
def test_a_condition_that_is_not_closed_is_said(text: str) -> None:
    assert read_script("x.sh", text).skipped


def test_a_here_document_with_an_unclosed_expansion_is_said() -> None:
    script = read_script("x.sh", "cat <<E | torchrun train.py\na `=2\nE\ntorchrun other.py\n")
    assert any("back tick" in entry.reason for entry in script.skipped)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('A=$(dirname "$0")', "."),
        ("A=`dirname $0`", "."),
        ("A=${0%/*}", "."),
        ("A=$(basename $0 .sh)", "t"),
        ('A="$( cd "$( dirname "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"', "."),
        ('A=$(cd "$(dirname "$0")/.."; pwd)', ".."),
        ('A=$(dirname "$(readlink -f "$0")")', "."),
        ("A=$(dirname $(realpath $0))", "."),
        ('cd "$(dirname "$0")/.."\nA=$PWD/x', "../x"),
        ("A=$(cd - && pwd)", None),
        ("A=$(realpath /opt/x)", None),
    ],
)
def test_a_script_finds_its_own_directory(text: str, found: str | None) -> None:
    script = read_script("job/t.sh", text, variables={"0": "./t.sh", "PWD": "."}, open_file=lambda _: None)
    assert script.variables["A"].text == found


def test_a_file_that_is_sourced_or_started_has_a_name_of_its_own() -> None:
    files = {
        "./lib/env.sh": ("job/lib/env.sh", "B=$(dirname $BASH_SOURCE)/x C=$0"),
        "lib/go.sh": ("job/lib/go.sh", "run $0"),
    }
    text = "source $(dirname $0)/lib/env.sh\nA=$BASH_SOURCE\nbash lib/go.sh"
    script = read_script("job/t.sh", text, variables={"0": "./t.sh", "PWD": "."}, open_file=files.get)
    assert [script.variables[name].text for name in "ABC"] == ["./t.sh", "./lib/x", "./t.sh"]
    assert [word.text for word in script.commands[-1].words] == ["run", "./lib/go.sh"]


def test_a_directory_that_is_entered_to_be_named_keeps_what_lies_beneath_the_scripts_own() -> None:
    files = {"../slime/models.sh": ("slime/models.sh", "B=1"), "models.sh": ("job/models.sh", "B=2")}
    own = 'S="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"\n'
    text = own + 'R="$(cd -- "${S}/../slime" &>/dev/null && pwd)"\nsource "${R}/models.sh"'
    script = read_script("job/t.sh", text, open_file=files.get)
    assert script.variables["B"].text == "1"
    assert not script.skipped
    assert read_script("job/t.sh", own + 'source "$S/models.sh"', open_file=files.get).variables["B"].text == "2"
