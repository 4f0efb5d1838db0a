"""Files are recognised by name and first bytes; directories are walked in one order, without endless loops."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compatcheck.collectors.image.layers import Budget
from compatcheck.collectors.image.rootfs import scan_directory
from compatcheck.collectors.recognise import (
    SNIFFED_BYTES,
    recognise,
    recognise_content,
    recognise_named,
    tell_by_name,
    walk,
)
from tests import ROOT

TEXT = "# x\ntorch==2.6.0\n-r base.txt\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("requirements.txt", "requirements"),
        ("requirements-dev.txt", "requirements"),
        ("requirements_gpu.in", "requirements"),
        ("dev-requirements.txt", "requirements"),
        ("Requirements.TXT", "requirements"),
        ("requirements/base.txt", "requirements"),
        ("requirements/constraints.txt", "constraints"),
        ("constraints.txt", "constraints"),
        ("constraints-3.11.txt", "constraints"),
        ("upper-constraints.txt", "constraints"),
        ("gpu-constraints-cu121.txt", "constraints"),
        ("myconstraints.txt", "constraints"),
        ("constraints.lock", "constraints"),
        ("constraints.pip", "constraints"),
        ("requirements-with-constraints-cu121.txt", "requirements"),
        ("pylock.toml", "pylock"),
        ("pylock.gpu.toml", "pylock"),
        ("uv.lock", "uv_lock"),
        ("pyproject.toml", "pyproject"),
        ("base.txt", None),
        ("poetry.lock", "poetry_lock"),
        ("pdm.lock", "pdm_lock"),
        ("pdm.dev.lock", "pdm_lock"),
        ("Pipfile.lock", "pipfile_lock"),
        ("Pipfile", "pipfile"),
        ("train.py.lock", "uv_lock"),
        ("pip-freeze.txt", "requirements"),
        ("train.py", None),
        ("data.json", None),
        ("packages.txt", None),
        ("pylock.toml.bak", None),
        ("requirements.md", None),
    ],
)
def test_names(tmp_path: Path, name: str, kind: str | None) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(TEXT)
    assert recognise(str(path)) == kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "requirements"),
        ("torch==2\n".encode("utf-16"), "requirements"),
        (b"The system shall be fast.\nIt shall be cheap.\n", None),
        (b"\x89PNG\r\n\0\0\0", None),
        (b"git+https://h.example/a.git#egg=a\n./local\n-e .\n", "requirements"),
        (b"torch==2 \\\n  --hash=sha256:aa\n" * SNIFFED_BYTES, "requirements"),
    ],
)
def test_ambiguous_names_are_looked_into(tmp_path: Path, content: bytes, kind: str | None) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes(content)
    assert recognise(str(path)) == kind


def test_a_name_is_enough_for_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    assert recognise(str(tmp_path / "requirements.txt")) == "requirements"
    os.mkfifo(tmp_path / "constraints.txt")
    assert recognise(str(tmp_path / "constraints.txt")) == "constraints"


def test_walk_is_ordered_and_leaves_out_what_is_not_ours(tmp_path: Path) -> None:
    for name in (
        "b/requirements.txt",
        "a.txt",
        "a/uv.lock",
        ".git/requirements.txt",
        "node_modules/x/requirements.txt",
        "lib/site-packages/pkg/requirements.txt",
        "env/requirements.txt",
        "a/__pycache__/requirements.txt",
        "pkg.egg-info/requires.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT)
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr\n")
    (tmp_path / "env" / "bin").mkdir()
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "b" / "self").symlink_to("self")
    os.mkfifo(tmp_path / "b" / "pipe")
    found = [(os.path.relpath(path, tmp_path), kind) for path, kind in walk(str(tmp_path))]
    assert found == [
        ("a.txt", None),
        ("a/uv.lock", "uv_lock"),
        ("b/pipe", None),
        ("b/requirements.txt", "requirements"),
        ("b/self", None),
    ]


def test_what_lies_too_deep_is_said_and_not_entered(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 102)
    deep.mkdir(parents=True)
    for folder in (deep, deep.parent, deep.parent.parent):
        (folder / "requirements.txt").write_text(TEXT)
    said: list[tuple[str, ...]] = []
    found = [path for path, _ in walk(str(tmp_path), lambda *entry: said.append(entry))]
    assert found == [str(deep.parent.parent / "requirements.txt")]
    assert said == [(str(deep.parent), "lies below 100 directories, and is not entered", "name it")]
    scan = scan_directory(str(tmp_path), Budget())
    assert len(scan.problems) == 1
    assert "lies below 100 directories" in scan.problems[0]


def test_a_directory_by_the_name_of_a_file_is_listed_where_nothing_lies_in_it(tmp_path: Path) -> None:
    for name in ("dockerfile", "requirements.txt"):
        (tmp_path / name).mkdir()
    (tmp_path / "dockerfile" / "Dockerfile").write_text("FROM a\n")
    found = sorted(os.path.relpath(path, tmp_path) for path, _ in walk(str(tmp_path)))
    assert found == [os.path.join("dockerfile", "Dockerfile"), "requirements.txt"]


def test_walk_of_a_file_lists_itself(tmp_path: Path) -> None:
    path = tmp_path / "uv.lock"
    path.write_text("version = 1\n")
    assert list(walk(str(path))) == [(str(path), "uv_lock")]


def test_a_named_virtual_environment_is_walked(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("")
    (tmp_path / "requirements.txt").write_text(TEXT)
    assert [kind for _, kind in walk(str(tmp_path))] == [None, "requirements"]


@pytest.mark.parametrize("name", ["issue.md", "job.log", "pasted.txt", "slurm-12.out"])
def test_a_named_text_with_a_report_is_one_and_a_walked_one_is_not(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("x\n" * 40_000 + "CUDA used to build PyTorch: 12.4\n", encoding="utf-8")
    assert recognise_named(str(path)) == "report"
    assert list(walk(str(tmp_path))) == [(str(path), None)]


def test_a_named_text_without_a_report_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "pins.txt"
    path.write_text("torch==2.6.0\n", encoding="utf-8")
    assert recognise_named(str(path)) == "requirements"


@pytest.mark.parametrize("name", ["requirements.txt", "requirements/gpu.txt", "constraints.txt"])
def test_prose_in_a_list_makes_no_report_of_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("torch==2.6.0\npip install deepspeed==0.16.4\n", encoding="utf-8")
    assert recognise_named(str(path)) == "requirements"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PyTorch version: 2.5.1\nCUDA used to build PyTorch: 12.4\n", "report"),
        (b"| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15 |\n", "report"),
        (b"torch: 2.5.1\ntransformers version: 4.46\n", "report"),
        (b"torch==2.5.1\n", "requirements"),
        (b"compatcheck: 1\npackages:\n  torch: 2.5.1\n", None),
        (b"learning_rate: 0.1\nbf16: true\n", None),
    ],
)
def test_content_tells_a_report_from_other_inputs(content: bytes, kind: str | None) -> None:
    assert recognise_content(content) == kind


ENVIRONMENTS = ROOT / "fixtures" / "environments"
KINDS = {
    "poetry-project/poetry.lock": "poetry_lock",
    "poetry-project/pyproject.toml": "pyproject",
    "pdm-project/pdm.lock": "pdm_lock",
    "pipenv-project/Pipfile": "pipfile",
    "pipenv-project/Pipfile.lock": "pipfile_lock",
    "uv-project/uv.lock": "uv_lock",
    "uv-project/pylock.toml": "pylock",
    "script/train.py": "script",
    "script/train.py.lock": "uv_lock",
    "listed/pip-freeze.txt": "requirements",
    "listed/pip-list.txt": "pip_list",
    "listed/pip-list.json": "pip_list",
    "listed/pip-inspect.json": "pip_inspect",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_every_kind_is_told_by_its_name_and_by_its_content(name: str, kind: str) -> None:
    path = ENVIRONMENTS / name
    assert recognise(str(path)) == kind
    assert recognise_content(path.read_bytes()) == kind
    if kind != "uv_lock":
        assert recognise_content(path.read_bytes().replace(b"\n", b"\r\n")) == kind


@pytest.mark.parametrize(
    "mark", [b"# This file is automatically @generated by Poetry", b"# This file is @generated by PDM"]
)
def test_locks_without_the_comment_of_their_tool(mark: bytes) -> None:
    names = {b"Poetry": "poetry-project/poetry.lock", b"PDM": "pdm-project/pdm.lock"}
    name = names[mark.rpartition(b" ")[2]]
    content = ENVIRONMENTS.joinpath(name).read_bytes()
    assert recognise_content(content.replace(mark, b"#")) == KINDS[name]


def test_a_pylock_of_pdm_is_no_lock_of_pdm() -> None:
    text = b'# This file is @generated by PDM.\n# It is not intended for manual editing.\n\nlock-version = "1.0"\n[[packages]]\n'
    assert recognise_content(text) == "pylock"


def test_walked_scripts_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("# /// script\n# dependencies = []\n# ///\n")
    assert [kind for _, kind in walk(str(tmp_path))] == [None]
    assert [kind for _, kind in walk(str(tmp_path / "train.py"))] == ["script"]


def test_a_long_run_of_blanks_is_looked_at_once() -> None:
    assert recognise_content(b"a" + b" " * SNIFFED_BYTES + b"x") in {None, "requirements"}


@pytest.mark.parametrize("name", ["thing", "thing.lock", "thing.toml"])
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("torch==2.5.1\n", "requirements"),
        ('version = 1\n\n[[package]]\nname = "torch"\n', "uv_lock"),
        ('lock-version = "1.0"\n', "pylock"),
        ("[packages]\ntorch = '*'\n", "pipfile"),
        ("Package Version\n------- -------\ntorch   2.5.1\n", "pip_list"),
        ('[tool.poetry]\nname = "x"\n', "pyproject"),
        ("", None),
        ("[tasks]\nrun = 1\nbuild = 2\n", None),
    ],
)
def test_a_named_file_of_any_name_is_told_by_its_content(
    tmp_path: Path, name: str, content: str, kind: str | None
) -> None:
    path = tmp_path / name
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_bytes(content.encode(encoding) if content else b"")
        assert recognise_named(str(path)) == kind


def test_a_lock_of_pipenv_may_have_another_name(tmp_path: Path) -> None:
    path = tmp_path / "locked.json"
    path.write_text('{"_meta": {"hash": {}, "pipfile-spec": 6}, "default": {}}')
    assert recognise_named(str(path)) == "pipfile_lock"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("conda-lock.yml", "package:\n- name: torch\n  manager: conda\n  platform: linux-64\n", "conda_lock"),
        ("env.yml", "dependencies:\n- torch\n", "conda_environment"),
        ("pixi.yaml", "version: 6\nenvironments:\n  default: {}\n", "pixi_lock"),
        ("syft.json", '{"artifacts": [{"foundBy": "x"}]}', "syft_json"),
        ("train.py", "# /// script\n# dependencies = []\n# ///\n", "script"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_hides_nothing(tmp_path: Path, name: str, content: str, kind: str, encoding: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode(encoding))
    assert recognise_named(str(path)) == kind
    assert recognise_content(content.encode(encoding)) == kind


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("Dockerfile", True), ("Dockerfile2", True), ("Dockerfile2.gpu", True), ("DockerfileSglang", True),
        ("Dockerfile.gpu", True), ("Containerfile-cu121", True), ("train.dockerfile", True), ("Dockerfile.dockerignore", False),
        ("Dockerfile2~", False), ("Dockerfiles", False), ("Dockerfiles.md", False), ("gpu-constraints-cu121.txt", True),
        ("myconstraints.in", True), ("constraints.pip", True), ("my-constraint-solver.txt", False),
    ],
)  # fmt: skip
def test_a_name_that_says_what_a_file_is_says_it_whatever_follows(tmp_path: Path, name: str, *, is_told: bool) -> None:
    (tmp_path / name).write_text("FROM python:3.11\n" if "file" in name else TEXT)
    assert (recognise(str(tmp_path / name)) is not None) is is_told
    assert (tell_by_name(str(tmp_path / name)) is not None) is is_told
