"""Requirements are parsed without echoing secrets and brought together without guessing."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from compatcheck.core import requirement
from compatcheck.core.markers import describe_machine
from compatcheck.core.requirement import InvalidRequirementError, Requirement, combine, parse_requirement, read_url
from compatcheck.core.source import Source

HERE = Source("x.txt", line=1)


@pytest.mark.parametrize(
    ("url", "name", "version", "details"),
    [
        ("https://h.example/a_b-1.0-py3-none-any.whl", "a_b", "1.0", {}),
        ("https://h.example/a-1.0-1build-py3-none-any.whl?x=1", "a", "1.0", {}),
        ("https://h.example/a.b-1.0.tar.gz", "a.b", "1.0", {}),
        ("https://h.example/archive/v1.0.tar.gz", None, None, {}),
        ("git+https://h.example/a@v1#egg=a", "a", None, {"vcs": "git", "revision": "v1"}),
        ("git+ssh://git@h.example/o/a.git@abc", None, None, {"vcs": "git", "revision": "abc"}),
        ("git+ssh://git@h.example/o/a.git", None, None, {"vcs": "git"}),
        (".", None, None, {}),
        ("odd.whl", None, None, {}),
    ],
)
def test_urls_tell_what_they_can(url: str, name: str | None, version: str | None, details: dict[str, str]) -> None:
    found_name, found_version, found = read_url(url)
    assert (found_name, found_version) == (name, version)
    found.pop("direct_url")
    assert found == details


@pytest.mark.parametrize("name", ["a%2Bb", "%E2%82%AC%e2%82", "%", "%2", "%zz%41", "100%25", "ä%C3%A4"])
def test_escapes_are_resolved_as_urllib_does(name: str) -> None:
    assert requirement._unquote(name) == unquote(name)


def test_an_archive_of_another_name_gives_no_version() -> None:
    assert read_url("https://h.example/release-1.0.tar.gz", "deepspeed")[1] is None


@pytest.mark.parametrize("text", ["a==" + "9" * 5000, "a; " + "(" * 5000, "a @ ", "a==1 b", "", "a\0b"])
def test_odd_requirements_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequirementError) as caught:
        parse_requirement(text, HERE)
    assert len(str(caught.value)) < 400


def _required(*texts: str) -> list[Requirement]:
    return [parse_requirement(text, Source("x.txt", line=number)) for number, text in enumerate(texts, 1)]


def test_the_pin_is_the_source() -> None:
    package = combine(_required("a>=1", "a==1.5"), describe_machine()).packages["a"]
    assert (package.version, package.specifier, package.source.line) == ("1.5", None, 2)


def test_equal_pins_agree() -> None:
    assert combine(_required("a==1.0", "a==1.0.0"), describe_machine()).packages["a"].version == "1.0.0"


def test_wheel_version_against_a_constraint() -> None:
    required = _required("a @ https://h.example/a-2.0-py3-none-any.whl")
    combined = combine(required, describe_machine(), constraints=_required("a<2"))
    assert combined.packages["a"].version is None
    assert "no single release" in combined.notes[0]


def test_overrides_replace_every_range() -> None:
    combined = combine(_required("a<1", "b"), describe_machine(), overrides=_required("a==2", "c==3"))
    assert combined.packages["a"].version == "2"
    assert "c" not in combined.packages


def test_alternatives_are_distributed_over_a_constraint() -> None:
    either = Requirement("a", ">=1,<2 || >=3,<4", HERE)
    combined = combine([either], describe_machine(), constraints=_required("a!=3.5"))
    assert combined.packages["a"].specifier == ">=1,<2,!=3.5 || >=3,<4,!=3.5"


def test_constraint_markers_count() -> None:
    combined = combine(
        _required("a"),
        describe_machine(),
        constraints=_required("a==1; sys_platform == 'win32'", "a<3"),
    )
    assert combined.packages["a"].specifier == "<3"


@pytest.mark.parametrize("name", ["torch", "Flash_Attn", "a.b-c", "x-", "-x", "ä"])
@pytest.mark.parametrize("extras", ["", "[a]", " [b,a,b] ", "[]", "[a-b]"])
@pytest.mark.parametrize(
    "ranges",
    [
        "",
        "==1.0",
        ">= 2.10 , <3",
        "!=2.7.0.post2",
        "==1.0.POST1",
        "==1.0,==1.0.0",
        "==1.*",
        "~=1.2",
        "~=1",
        "<2.6.0+cu1",
        "==2.6.0+cu124",
        "==2.6.0+CU124,==2.6.0+cu124",
        "==2.6.0+cu124,~=2.6.0",
        "==2.6.0+a..b",
        "=1",
        ">=1,",
        ">=1 .2",
        "> =1",
        "~=1.2.post1",
        "~=1.2+a",
        "==1.post1.*",
        ">=1.2+cu1",
        "!=1.2+cu1",
        ">=1 <2",
        ">01",
    ],
)
def test_a_plain_line_reads_as_packaging_reads_it(
    name: str, extras: str, ranges: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> Requirement | str:
        try:
            return parse_requirement(name + extras + ranges, HERE)
        except InvalidRequirementError as error:
            return str(error)

    quick = read()
    monkeypatch.setattr(requirement, "_read_plain", lambda text, source: None)  # noqa: ARG005 (its names)
    assert quick == read()


@pytest.mark.parametrize("name", ["a", "a[x,y] "])
@pytest.mark.parametrize(
    "stated", ["", "== 1.*", "==1.*,!=1.3.*", "==0.*,==0", ">=1.*", "==01.*", " @ https://x.example/y"]
)
@pytest.mark.parametrize(
    "marker",
    [
        "",
        ";python_version<'3.11'",
        " ; sys_platform == 'win32' and  os_name=='or'",
        ' ; sys_platform == "win32" or os_name!="nt"',
        " ; sys_platform == 'win32' or os_name!='nt' and os_name == 'a'",
        " ; PYTHON_VERSION < '3.11'",
        " ; platform_machine == 'X86_64'",
        " ; python_version in '3.8'",
        " ; python_version == '3.8'and os_name == 'nt'",
        " ; os_name == 'a or b'",
        " ; python_full_version < '3.8.1rc1'",
        " ; extra == 'A_b'",
        " ; ",
    ],
)
def test_a_marker_or_url_reads_as_packaging_reads_it(
    name: str, stated: str, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_plain_line_reads_as_packaging_reads_it(name, stated, marker, monkeypatch)


@pytest.mark.parametrize(
    "url",
    [
        "git+https://git.example/a/b.git@v0.16.4",
        "https://u:p@x.example/y-1.0-py3-none-any.whl",
        "https://x.example/y.git#egg=b&subdirectory=c",
        "HTTPS://x.example/y.tar.gz",
        "file:///x/y",
        "./x",
        "https://x.example/y;z",
    ],
)
def test_a_url_reads_as_packaging_reads_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    test_a_plain_line_reads_as_packaging_reads_it("y", " @ ", url, monkeypatch)
