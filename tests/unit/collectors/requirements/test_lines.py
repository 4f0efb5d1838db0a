"""Requirement files are read as pip reads them, and no line is lost silently."""

from __future__ import annotations

import codecs
import logging
from pathlib import Path
from typing import Any

import packaging
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from compatcheck.collectors.requirements.lines import decode, logical_lines, read_constraints, read_requirements
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Selection
from tests import ROOT

FIXTURES = ROOT / "fixtures" / "environments" / "requirements"


def _write(directory: Path, text: str | bytes, name: str = "requirements.txt") -> str:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_training_stack_file() -> None:
    environment = read_requirements(str(FIXTURES / "training.txt"), selection=Selection(python="3.11"))
    packages = environment.packages
    assert not environment.complete
    assert packages["torch"].version == "2.6.0+cu124"
    assert packages["torch"].source.line == 7
    assert packages["deepspeed"].version == "0.16.4"  # by its tag
    assert packages["deepspeed"].details["revision"] == "v0.16.4"
    assert packages["flash-attn"].version == "2.7.4.post1+cu12torch2.6cxx11abiFALSE"
    assert packages["transformers"].specifier is not None
    assert set(packages["transformers"].specifier.split(",")) == {">=4.45", "<5", "!=4.50.0"}
    assert packages["transformers"].details["extras"] == "sentencepiece"
    assert packages["vllm"].version == "0.6.3.post1"
    assert packages["numpy"].specifier == "<2"  # from base.txt
    assert packages["numpy"].source.path.endswith("base.txt")
    assert packages["accelerate"].version == "1.2.1"  # narrowed by the constraints
    assert packages["openrlhf"].details["editable"] == "true"
    assert packages["wandb"].specifier == ""
    assert "pywin32" not in packages
    assert "peft" not in packages
    reasons = [(skipped.source.line, skipped.reason) for skipped in environment.skipped]
    assert [line for line, _ in reasons] == [25, 26, 27]
    assert "pin with '=='" in str(environment.skipped[0].hint)
    assert all(skipped.hint for skipped in environment.skipped)
    assert "ray" in " ".join(environment.notes)


def test_credentials_are_never_echoed(tmp_path: Path) -> None:
    text = (
        "--index-url https://user:hunter2@index.example/simple\n"
        "a @ https://user:hunter2@h.example/a-1.0.tar.gz?token=hunter2\n"
        "git+https://hunter2@h.example/x.git\n"
        "-r https://user:hunter2@h.example/base.txt\n"
        "b @@ https://user:hunter2@h.example/x\n"
        "--bogus=https://user:hunter2@h.example\n"
        "https://user:hunter2@h.example/whatever?sig=hunter2\n"
        "-e git+ssh://hunter2:hunter2@h.example/y.git@v1#egg=y\n"
    )
    environment = read_requirements(_write(tmp_path, text))
    assert "hunter2" not in repr(environment)
    assert environment.packages["a"].version == "1.0"
    assert environment.packages["y"].details["revision"] == "v1"
    assert [skipped.source.line for skipped in environment.skipped] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("line", "version", "specifier"),
    [
        ("a==1.2.3", "1.2.3", None),
        ("a == 1.2.3 # why", "1.2.3", None),
        ("a===1.2.3", "1.2.3", None),
        ("a==1.2.*", None, "==1.2.*"),
        ("a~=1.2", None, "~=1.2"),
        ("a (>=1,<2)", None, "<2,>=1"),
        ("A_.a", None, None),
        ("a==1.2 --hash=sha256:00", "1.2", None),
        ("a>=1,==1.5", "1.5", None),
        ("./dist/a-1.2-py3-none-any.whl", "1.2", None),
        ("https://h.example/a-1.2.post1-cp311-cp311-linux_x86_64.whl", "1.2.post1", None),
        ("https://h.example/a-1.2%2Bcu118-cp311-cp311-linux_x86_64.whl", "1.2+cu118", None),
        ("a @ https://h.example/archive/refs/tags/v0.16.4.tar.gz", "0.16.4", None),
        ("a @ https://h.example/archive/refs/tags/nightly.zip", None, ""),
        ("a @ git+https://h.example/a.git@v0.16.4", "0.16.4", None),
        ("a @ git+ssh://git@h.example/a.git@2.7.4.post1", "2.7.4.post1", None),
        ("a @ git+https://h.example/a.git@v0.16.4#subdirectory=part", None, ""),
        ("a @ git+https://h.example/a.git@core_v0.12.0", None, ""),
        ("a @ git+https://h.example/a.git@release/0.16", None, ""),
        ("a @ git+https://h.example/a.git@0.16", None, ""),
        ("a @ git+https://h.example/a.git@0a1b2c3", None, ""),
        ("a @ git+https://h.example/a.git", None, ""),
        ("git+https://h.example/a.git@v1#egg=a&subdirectory=x", None, ""),
    ],
)
def test_line_forms(tmp_path: Path, line: str, version: str | None, specifier: str | None) -> None:
    environment = read_requirements(_write(tmp_path, f"{line}\n"))
    assert not environment.skipped
    (package,) = environment.packages.values()
    assert package.version == version
    if version is None and specifier is not None:
        assert package.specifier == specifier


@pytest.mark.parametrize(
    "line",
    [
        "torch=2.4",
        "torch>2.4.",
        "torch==",
        "==1.0",
        "torch 2.4",
        "a;b",
        "a; python_version >",
        "-r",
        "--hash",
        "-x",
        "--",
        "a['x",
        "a @ ",
        "-e",
        "=",
        "\u2014 index",
        "a==1.0 --hash 'x",
        "-e a",
    ],
)
def test_invalid_line_is_reported_with_place_and_remedy(tmp_path: Path, line: str) -> None:
    path = _write(tmp_path, f"first==1\n{line}\nlast==2\n")
    environment = read_requirements(path)
    assert environment.packages["first"].version == "1"
    assert environment.packages["last"].version == "2"
    assert [(skipped.source.path, skipped.source.line) for skipped in environment.skipped] == [(path, 2)]
    assert environment.skipped[0].hint


@pytest.mark.parametrize(("option", "kept"), [("-e .", False), ("-r x.txt", True), ("-c x.txt", True)])
def test_option_behind_a_requirement_is_reported(tmp_path: Path, option: str, kept: bool) -> None:  # noqa: FBT001 (a table)
    environment = read_requirements(_write(tmp_path, f"a {option}\n"))
    assert ("a" in environment.packages) == kept
    assert environment.skipped[0].hint == "write it on a line of its own"


def test_requirements_of_one_package_are_intersected(tmp_path: Path) -> None:
    environment = read_requirements(_write(tmp_path, "deepspeed>=0.15\nDeepSpeed<0.17\ndeepspeed!=0.16.0\n"))
    assert set((environment.packages["deepspeed"].specifier or "").split(",")) == {">=0.15", "<0.17", "!=0.16.0"}
    assert environment.packages["deepspeed"].source.line == 1


def test_contradiction_is_noted_and_not_guessed(tmp_path: Path) -> None:
    environment = read_requirements(_write(tmp_path, "a==1\na==2\nb==1\nb>=2\n"))
    assert environment.packages["a"].version is None
    assert environment.packages["b"].version is None
    assert sum("no single release" in note for note in environment.notes) == 2


def test_markers_are_decided_for_linux_and_the_given_python(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        'a==1; sys_platform == "win32"\nb==1; python_version < "3.10"\nc==1; python_version >= "3.10"\n'
        'd==1; platform_release >= "5"\ne==1; platform_machine != "aarch64"\nf==1; python_version > "2.7"\n',
    )
    known = read_requirements(path, selection=Selection(python="3.11.7"))
    assert set(known.packages) == {"c", "d", "e", "f"}
    assert [note.partition(":")[0] for note in known.notes] == ["d"]
    unknown = read_requirements(path)
    assert set(unknown.packages) == {"b", "c", "d", "e", "f"}
    assert {note.partition(":")[0] for note in unknown.notes} == {"b", "c", "d"}


def test_versions_by_python_stay_alternatives(tmp_path: Path) -> None:
    path = _write(tmp_path, 'numpy==1.26.4; python_version < "3.12"\nnumpy==2.1.0; python_version >= "3.12"\n')
    assert read_requirements(path).packages["numpy"].specifier == "==1.26.4 || ==2.1.0"
    known = read_requirements(path, selection=Selection(python="3.12"))
    assert known.packages["numpy"].version == "2.1.0"
    assert known.packages["numpy"].source.line == 2


def test_includes_are_relative_to_the_including_file(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    root = _write(tmp_path, "-r sub/base.txt\n")
    _write(tmp_path / "sub", "--requirement=deep/more.txt\nb==1\n", "base.txt")
    _write(tmp_path / "sub" / "deep", "-r../../last.txt\nc==1\n", "more.txt")
    _write(tmp_path, "d==1\n", "last.txt")
    environment = read_requirements(root)
    assert set(environment.packages) == {"b", "c", "d"}
    assert environment.packages["d"].source.path == str(tmp_path / "last.txt")


def test_cycle_is_named_and_ends(tmp_path: Path) -> None:
    root = _write(tmp_path, "-r b.txt\na==1\n")
    _write(tmp_path, "-r requirements.txt\n-r b.txt\nb==1\n", "b.txt")
    environment = read_requirements(root)
    assert set(environment.packages) == {"a", "b"}
    assert len(environment.skipped) == 2
    assert "requirements.txt → " in environment.skipped[0].reason
    assert all(skipped.source.path.endswith("b.txt") for skipped in environment.skipped)


def test_doubling_includes_stay_linear(tmp_path: Path) -> None:
    for index in range(40):
        _write(tmp_path, f"-r {index + 1}.txt\n-r ./{index + 1}.txt\np{index}==1\n", f"{index}.txt")
    _write(tmp_path, "last==1\n", "40.txt")
    assert len(read_requirements(str(tmp_path / "0.txt")).packages) == 41


def test_long_chain_of_includes_is_reported(tmp_path: Path) -> None:
    for index in range(60):
        _write(tmp_path, f"p{index}==1\n-r {index + 1}.txt\n", f"{index}.txt")
    environment = read_requirements(str(tmp_path / "0.txt"))
    assert len(environment.packages) == 50
    assert "deep" in environment.skipped[0].reason


@pytest.mark.parametrize(
    "included",
    ["missing.txt", ".", "latin.txt", "nul.txt", "${BASE}/x.txt", "https://h.example/x.txt"],
)
def test_unreadable_include_is_skipped_at_its_line(tmp_path: Path, included: str) -> None:
    _write(tmp_path, b"# coding: utf-8\na==1 # \xe9\n", "latin.txt")
    _write(tmp_path, b"a==1\0\n", "nul.txt")
    environment = read_requirements(_write(tmp_path, f"b==1\n-r {included}\n"))
    assert set(environment.packages) == {"b"}
    assert environment.skipped[0].source.line == 2
    assert environment.skipped[0].hint


def test_constraints_narrow_only_what_is_required(tmp_path: Path) -> None:
    root = _write(tmp_path, "-c constraints.txt\ntorch\n")
    path = _write(tmp_path, "torch==2.4.0\nvllm==0.6\n", "constraints.txt")
    environment = read_requirements(root)
    assert environment.packages["torch"].version == "2.4.0"
    assert environment.packages["torch"].source.path == path
    assert "vllm" not in environment.packages
    assert any("vllm" in note for note in environment.notes)
    alone = read_constraints(path)
    assert all(package.is_optional for package in alone.packages.values())
    assert any("holds constraints" in note for note in alone.notes)


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + "# é\na==1".encode(),
        codecs.BOM_UTF16_LE + "# é\na==1".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "# é\na==1".encode("utf-16-be"),
        codecs.BOM_UTF32_LE + "# é\na==1".encode("utf-32-le"),
        "# -*- coding: latin-1 -*-\n# é\na==1".encode("latin-1"),
        "# x\n# coding=cp1252\n# é\na==1".encode("cp1252"),
        "# é\r\na==1\r\n".encode("latin-1"),
    ],
)
def test_encodings(tmp_path: Path, data: bytes) -> None:
    environment = read_requirements(_write(tmp_path, data))
    assert environment.packages["a"].version == "1"
    assert not environment.skipped


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"# coding: klingon\na==1", "declares the encoding 'klingon', which is not read"),
        (b"# coding: punycode\na==1", "declares the encoding 'punycode', which is not read"),
        (b"# coding: utf-8\n\xe9", "is not utf-8"),
        (b"a==1\n\0\0", "requirements.txt:2.*NUL"),
        (codecs.BOM_UTF16_LE + b"a", "is not utf-16-le"),
    ],
)
def test_unreadable_root_is_an_error(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        read_requirements(_write(tmp_path, data))
    assert caught.value.hint


def test_missing_directory_and_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_requirements(str(tmp_path / "nope.txt"))
    with pytest.raises(InputError, match="is a directory"):
        read_requirements(str(tmp_path))
    assert not read_requirements(_write(tmp_path, "\n# nothing\n")).packages


# pip itself as the judge; it is not needed to run the other tests.
@pytest.fixture(scope="module")
def pip_reader() -> Any:
    return pytest.importorskip("pip._internal.req.req_file", reason="pip is not installed here")


@settings(max_examples=600)
@given(text=st.text(alphabet="ab=#\\ \t\n\r-\x0c\u2028", max_size=40))
def test_logical_lines_agree_with_pip(pip_reader: Any, text: str) -> None:
    ours = [(line.number, line.text) for line in logical_lines(text)]
    assert ours == list(pip_reader.preprocess(text))


LEGACY_PACKAGING = Version(packaging.__version__) < Version("22")
NAMES = st.sampled_from(["a", "Torch", "deep_speed", "x.y", "a[b]", "a [b,c]", "1a", "-", "é", "a b"])
SPECIFIERS = st.sampled_from(
    [
        "",
        "==1",
        " >= 1.0, <2",
        "==1.*",
        "~=1",
        "~=1.2",
        "=1",
        "===1",
        "(>=1)",
        "== 1.0+cu1",
        "<>1",
        ">=1.*",
        " @ https://h.example/a-1.zip",
        "@git+https://h.example/a@v1",
    ],
)
TAILS = st.sampled_from(
    [
        "",
        " # c",
        "#c",
        ' ; python_version > "3"',
        ";os_name=='posix'",
        " ; x",
        " --hash=sha256:aa",
        " --hash sha256:aa",
        " --nope",
        " \\\n --hash=sha256:bb",
        "\\\n",
        ";",
        "  ",
    ],
)
OTHERS = st.sampled_from(
    [
        "",
        "# c",
        "-i https://h.example",
        "--index-url=x",
        "--pre",
        "--extra-index-url x --pre",
        "--no-binary :all:",
        "-f x",
        "--nope",
        "--requ",
        "--trusted-host",
        "-e git+https://h.example/a#egg=a",
        "--editable=git+https://h.example/b@c#egg=b",
        "--require-hashes",
        "--use-feature=fast-deps",
        "-q",
        "git+https://h.example/a.git#egg=a",
        "https://h.example/a-1.0-py3-none-any.whl",
    ],
)
LINES = st.one_of(st.builds("{}{}{}".format, NAMES, SPECIFIERS, TAILS), OTHERS)


@pytest.mark.skipif(LEGACY_PACKAGING, reason="this packaging reads === up to the next blank, a marker included")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=LINES)
def test_lines_agree_with_pip(pip_reader: Any, tmp_path: Path, line: str) -> None:
    constructors = pytest.importorskip("pip._internal.req.constructors")
    logging.disable(logging.CRITICAL)
    path = _write(tmp_path, line)
    expected: dict[str, str | None] = {}
    accepted = True
    try:
        for parsed in pip_reader.parse_requirements(path, session=None):
            installed = constructors.install_req_from_parsed_requirement(parsed, isolated=True)
            if installed.match_markers() or installed.req is None:
                name = canonicalize_name(installed.name)
                expected[name] = None if installed.link else str(installed.req.specifier)
    except (Exception, SystemExit):  # noqa: BLE001 (pip raises a dozen kinds, and optparse exits)
        accepted = False
    finally:
        logging.disable(logging.NOTSET)
    environment = read_requirements(path, selection=Selection(python="3.11.7"))
    refused = [entry for entry in environment.skipped if "stands behind an option" not in entry.reason]  # pip is silent
    assert bool(refused) == (not accepted)
    if not accepted:
        return
    assert set(environment.packages) == set(expected)
    for name, wanted in expected.items():
        package = environment.packages[name]
        found = f"=={package.version}" if package.version else str(SpecifierSet(package.specifier or ""))
        if wanted is not None and "direct_url" not in package.details:
            assert found == wanted.replace("===", "==")


@settings(max_examples=300)
@given(data=st.binary(max_size=60))
def test_any_bytes_end_in_text_or_an_input_error(data: bytes) -> None:
    try:
        text, _ = decode(data, "x")
    except InputError:
        return
    assert isinstance(text, str)
    list(logical_lines(text))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from(list("ab=<>~!;@#\\ \n-r.c:/[]()'\"${}A1,é")), max_size=60))
def test_no_line_is_lost(tmp_path: Path, text: str) -> None:
    path = _write(tmp_path, text)
    environment = read_requirements(path)
    seen = {package.source.line for package in environment.packages.values()}
    seen |= {skipped.source.line for skipped in environment.skipped}
    for line in logical_lines(decode(text.encode(), path)[0]):
        if line.text.startswith("-") or ";" in line.text:
            continue
        try:
            name = Requirement(line.text).name
        except ValueError:
            assert line.number in seen
        else:
            assert line.number in seen or any(name.lower() == known for known in environment.packages)


LISTED = ROOT / "fixtures" / "environments" / "listed"


def test_comments_of_pip_freeze_name_editable_installs() -> None:
    environment = read_requirements(str(LISTED / "pip-freeze.txt"))
    assert {name: package.version for name, package in environment.packages.items()} == {
        "accelerate": "1.3.0",
        "trainer": None,
        "my-project": "0.1.0",
        "tools": "2.0",
        "flash-attn": "2.7.4.post1",
        "torch": "2.6.0+cu124",
    }
    assert environment.packages["my-project"].details == {"editable": "true", "direct_url": "/home/me/project"}
    assert environment.packages["tools"].source.line == 7
    assert [entry.source.line for entry in environment.skipped] == [9]


@pytest.mark.parametrize(
    "header",
    [
        "# This file was autogenerated by uv via the following command:\n#    uv export",
        "#\n# This file is autogenerated by pip-compile with Python 3.11",
    ],
)
def test_a_local_project_of_a_compiled_file_is_a_note(tmp_path: Path, header: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"{header}\n-e .\n./member\ntorch==2.6.0 \\\n    --hash=sha256:aa\n    # via demo\n")
    environment = read_requirements(str(path))
    assert not environment.skipped
    assert sum("local project" in note for note in environment.notes) == 2
    path.write_text("-e .\ntorch==2.6.0\n")
    assert len(read_requirements(str(path)).skipped) == 1


def test_lines_too_long_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("a" * 10_000 + "\ntorch==2.6.0\nb==1 " + "--hash=sha256:aa " * 20_000 + "\n")
    environment = read_requirements(str(path))
    assert set(environment.packages) == {"torch"}
    assert [entry.source.line for entry in environment.skipped] == [1, 3]


def test_a_wheel_whose_name_holds_no_version_has_none(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("demo @ https://files.example/demo-2.!0-py3-none-any.whl\ndemo>=1\n")
    assert read_requirements(str(path)).packages["demo"].version is None


def test_versions_that_are_none_stay_pinned_by_identity(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("a===1.pos; python_version < '3.10'\na==2; python_version >= '3.10'\n")
    assert read_requirements(str(path)).packages["a"].specifier == "===1.pos || ==2"
