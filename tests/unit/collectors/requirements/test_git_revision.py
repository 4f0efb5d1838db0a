"""Files of a git revision: read without a checkout, called by their true names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from compatcheck.collectors.locks.poetry_lock import read_poetry_lock
from compatcheck.collectors.requirements import git_revision
from compatcheck.collectors.requirements.git_revision import open_revision, parse_revision
from compatcheck.collectors.requirements.lines import read_requirements
from compatcheck.core.errors import InputError
from compatcheck.core.process import run


def git(*arguments: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    Path("requirements").mkdir()
    Path("requirements/train.txt").write_text("-r base.txt\n-c ../constraints.txt\ndeepspeed==0.16.4\n")
    Path("requirements/base.txt").write_text("torch==2.6.0\n")
    Path("constraints.txt").write_text("numpy<2\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    Path("requirements/base.txt").write_text("torch==2.7.0\n")
    git("commit", "-qam", "two")
    Path("requirements/base.txt").write_text("torch==2.8.0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HEAD~1:uv.lock", ("HEAD~1", "uv.lock")),
        ("origin/main:a/requirements.txt", ("origin/main", "a/requirements.txt")),
        ("HEAD:./uv.lock", ("HEAD", "uv.lock")),
        ("uv.lock", None),
        ("-x:uv.lock", None),
        (":uv.lock", None),
        ("HEAD:", None),
    ],
)
def test_revision_and_path(text: str, expected: tuple[str, str] | None) -> None:
    assert parse_revision(text) == expected


def test_a_file_of_that_very_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("HEAD:uv.lock").write_text("")
    assert parse_revision("HEAD:uv.lock") is None


def test_a_revision_is_read_with_what_it_includes(repository: Path) -> None:
    before = sorted(path.name for path in repository.iterdir())
    for revision, torch in (("HEAD~1", "2.6.0"), ("HEAD", "2.7.0")):
        with open_revision(f"{revision}:requirements/train.txt") as file:
            environment = file.rename(read_requirements(file.path, file.files))
        assert environment.packages["torch"].version == torch
        assert environment.packages["deepspeed"].version == "0.16.4"
        assert environment.skipped == ()
        assert str(environment.packages["torch"].source) == f"{revision}:requirements/base.txt:1"
        assert environment.origin == f"{revision}:requirements/train.txt"
        assert not os.path.exists(file.path)
    assert sorted(path.name for path in repository.iterdir()) == before
    assert (repository / "requirements/base.txt").read_text() == "torch==2.8.0\n"


def test_a_path_that_starts_here(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "requirements")
    with open_revision("HEAD:./train.txt") as file:
        environment = file.rename(read_requirements(file.path, file.files))
    assert environment.origin == "HEAD:requirements/train.txt"
    assert (environment.packages["torch"].version, environment.skipped) == ("2.7.0", ())


def test_an_included_file_that_is_not_in_the_revision_is_named(repository: Path) -> None:
    Path("r.txt").write_text("-r gone.txt\ntorch==2.6.0\n")
    git("add", "r.txt")
    git("commit", "-qm", "three")
    Path("gone.txt").write_text("deepspeed==0.16.4\n")
    with open_revision("HEAD:r.txt") as file:
        environment = file.rename(read_requirements(file.path, file.files))
    assert "deepspeed" not in environment.packages
    assert [(str(entry.source), entry.reason) for entry in environment.skipped] == [
        ("HEAD:r.txt:1", "includes HEAD:gone.txt: no such file"),
    ]
    assert str(repository) not in str(environment)


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("text", ["nope:requirements/train.txt", "HEAD:nope.txt", "HEAD:requirements"])
def test_what_git_does_not_have_is_an_error_with_its_reason(text: str) -> None:
    with pytest.raises(InputError, match="git has no such file: exit code 128: fatal") as caught, open_revision(text):
        pass
    assert caught.value.source is not None
    assert caught.value.source.path == text
    assert caught.value.hint is not None


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(InputError, match="not a git repository"), open_revision("HEAD:uv.lock"):
        pass


def test_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="git could not be started"), open_revision("HEAD:uv.lock"):
        pass


@pytest.mark.parametrize("pipe", ["HEAD", "packed-refs", "included"])
@pytest.mark.parametrize("text", ["HEAD:constraints.txt", "HEAD:./constraints.txt", "v1:constraints.txt"])
def test_a_git_that_gives_no_answer_is_not_asked_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch, text: str, pipe: str
) -> None:
    if pipe == "included":
        git("config", "include.path", "included")
    (repository / ".git" / pipe).unlink(missing_ok=True)
    os.mkfifo(repository / ".git" / pipe)
    monkeypatch.setattr(git_revision, "TIMEOUT_SECONDS", 0.4)
    asked = []
    monkeypatch.setattr(
        git_revision, "run", lambda *command, **options: asked.append(command) or run(*command, **options)
    )
    with pytest.raises(InputError, match=r"git did not answer within 0\.4 s and was stopped"), open_revision(text):
        pass
    assert len(asked) == (2 if "./" in text and pipe == "packed-refs" else 1)  # the prefix needs no reference


def test_all_that_git_is_asked_about_a_file_has_ten_seconds(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = []
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(git_revision, "monotonic", lambda: next(clock))
    monkeypatch.setattr(
        git_revision,
        "run",
        lambda *command, **options: left.append(options["timeout_seconds"]) or run(*command, **options),
    )
    late = pytest.raises(InputError, match="git did not answer within 10 s")
    with late, open_revision("HEAD:requirements/train.txt") as file:
        assert file.files.is_file(os.path.join(file.root, "constraints.txt"))
    assert repository.exists()
    assert left == [10, 6, 2]


def test_behind_a_whole_hash_no_file_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{'a1' * 20}:requirements.txt"
    (tmp_path / name).write_text("torch==2.6.0\n", encoding="utf-8")
    assert parse_revision(name) == ("a1" * 20, "requirements.txt")


@pytest.mark.usefixtures("repository")
def test_behind_a_revision_that_git_knows_no_file_is_meant() -> None:
    git("branch", "base")
    for name in ("base:constraints.txt", "HEAD:constraints.txt"):
        Path(name).symlink_to("gone")
        assert parse_revision(name) == (name.partition(":")[0], "constraints.txt")
    assert parse_revision("./HEAD:constraints.txt") is None


def test_a_revision_is_what_its_hash_says(repository: Path) -> None:
    git("replace", "HEAD:requirements/base.txt", "HEAD~1:requirements/base.txt")
    with open_revision("HEAD:requirements/base.txt") as file:
        assert Path(file.path).read_text() == "torch==2.7.0\n"
    assert repository.exists()


@pytest.mark.parametrize("target", ["requirements.txt", "torch==2.6.0\ndeepspeed==0.16.8\n"])
def test_a_link_of_a_revision_is_not_taken_for_a_list(repository: Path, target: str) -> None:
    (repository / "link.txt").symlink_to(target)
    git("add", "-A")
    git("commit", "-qm", "a link")
    with pytest.raises(InputError, match="is a link to"), open_revision("HEAD:link.txt"):
        pass


LOCK = """[[package]]
name = "deepspeed"
version = "0.16.4"
optional = false
[[package]]
name = "torch"
version = "2.9.0"
optional = false
[metadata]
lock-version = "1.1"
python-versions = ">=3.8"
"""


@pytest.mark.usefixtures("repository")
def test_what_lies_beside_a_lock_comes_from_the_same_revision() -> None:
    for package in ("deepspeed", "torch"):
        Path("pyproject.toml").write_text(f'[tool.poetry.dependencies]\npython = "*"\n{package} = "*"\n')
        Path("poetry.lock").write_text(LOCK)
        git("add", "-A")
        git("commit", "-qm", package)
    for revision, package in (("HEAD~1", "deepspeed"), ("HEAD", "torch")):
        with open_revision(f"{revision}:poetry.lock") as file:
            assert list(read_poetry_lock(file.path, file.files).packages) == [package]


@pytest.mark.usefixtures("repository")
def test_what_git_warns_of_is_no_part_of_a_file() -> None:
    git("update-ref", "refs/heads/HEAD", "HEAD")
    with open_revision("HEAD:constraints.txt") as file:
        assert Path(file.path).read_text() == "numpy<2\n"


@pytest.mark.usefixtures("repository")
def test_a_file_is_read_byte_by_byte() -> None:
    Path("u.txt").write_text("torch==2.6.0\n", encoding="utf-16")
    git("add", "-A")
    git("commit", "-qm", "wide")
    with open_revision("HEAD:u.txt") as file:
        assert read_requirements(file.path, file.files).packages["torch"].version == "2.6.0"


@pytest.mark.usefixtures("repository")
def test_errors_call_a_file_by_its_name() -> None:
    Path("u.txt").write_bytes(b"# coding: utf-8\n\xe9\n")
    git("add", "-A")
    git("commit", "-qm", "broken")
    with pytest.raises(InputError) as caught, open_revision("HEAD:u.txt") as file:
        read_requirements(file.path, file.files)
    assert str(caught.value) == "HEAD:u.txt: is not utf-8, which it declares"
