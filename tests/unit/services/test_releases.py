"""Reading an index and the requirements of its files, offline."""

from __future__ import annotations

import base64
import http.client
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.services import releases

HTML = """<!DOCTYPE html><html><body>
<a href="../../files/demo-1.0.tar.gz#sha256=0" data-upload-time="2024-01-02T00:00:00Z">demo-1.0.tar.gz</a>
<a href="../../files/demo-1.0-py3-none-any.whl#sha256=0" data-upload-time="2024-01-01T00:00:00Z">demo-1.0-py3-none-any.whl</a>
<a href="../../files/demo-1.1-py3-none-any.whl" data-yanked="broken">demo-1.1-py3-none-any.whl</a>
<a href="../../files/demo-2.0rc1-1-py3-none-any.whl">demo-2.0rc1-1-py3-none-any.whl</a>
<a href="../../files/demo-extra-9.0.tar.gz">demo-extra-9.0.tar.gz</a>
</body></html>"""


@pytest.fixture(autouse=True)
def _index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up an index with one package on disk."""
    folder = tmp_path / "simple/demo"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(HTML)
    files = tmp_path / "files"
    files.mkdir()
    with zipfile.ZipFile(files / "demo-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            "demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nRequires-Dist: torch==2.6.0\n\nText\n"
        )
    with tarfile.open(files / "demo-1.0.tar.gz", "w:gz") as archive:
        data = b'numpy\n\n[vllm]\nvllm==0.8.3\n\n[:python_version < "3.8"]\nold\n'
        member = tarfile.TarInfo("demo-1.0/demo.egg-info/requires.txt")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/simple")


def test_releases_come_sorted_with_date_yank_and_prerelease() -> None:
    found = releases.fetch_releases("Demo")
    assert [row.version for row in found] == ["1.0", "1.1", "2.0rc1"]
    assert found[0].date == "2024-01-01"
    assert found[1].yanked
    assert not found[0].yanked
    assert found[2].prerelease
    assert found[2].date is None


@pytest.mark.parametrize("text", ["", "<html>", '{"files": [], "files": []}', "[" * 100_000])
def test_an_answer_that_is_no_json_is_an_error_with_its_address(text: str) -> None:
    with pytest.raises(InputError) as caught:
        list(releases._parse_json(text, "https://index.example/simple/demo/"))
    assert caught.value.source is not None
    assert caught.value.source.path == "https://index.example/simple/demo/"


def test_json_form_is_read_like_the_html_form() -> None:
    text = json.dumps(
        {
            "files": [
                {
                    "filename": "demo-1.0.tar.gz",
                    "url": "demo-1.0.tar.gz",
                    "upload-time": "2024-01-02T00:00:00Z",
                    "yanked": "x",
                }
            ]
        }
    )
    (file,) = releases._parse_json(text, "file:///simple/demo/")
    assert (file.url, file.uploaded, file.yanked) == ("file:///simple/demo/demo-1.0.tar.gz", "2024-01-02", True)


def test_unknown_package_is_an_input_error_without_the_index_in_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did not answer") as caught:
        releases.fetch_releases("absent")
    assert str(tmp_path) not in str(caught.value)


def test_wheel_metadata_is_preferred_over_the_archive() -> None:
    assert releases.read_requirements("demo", "1.0") == ("torch==2.6.0",)


def test_archive_requirements_carry_extra_and_marker(tmp_path: Path) -> None:
    (tmp_path / "files/demo-1.0-py3-none-any.whl").unlink()
    with zipfile.ZipFile(tmp_path / "files/demo-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("nothing", "")
    lines = releases.read_requirements("demo", "1.0")
    assert lines == ("numpy", 'vllm==0.8.3; extra == "vllm"', 'old; (python_version < "3.8")')


@pytest.mark.parametrize(
    ("filename", "version"),
    [
        ("nvidia_cudnn_cu12-9.1.0.70-py3-none-any.whl", "9.1.0.70"),
        ("nvidia-cudnn-cu12-9.1.0.70.tar.gz", "9.1.0.70"),
        ("nvidia_cudnn_cu12-9.1.0.70.zip", "9.1.0.70"),
        ("nvidia_cudnn_cu12_extra-1.0.tar.gz", None),
        ("nvidia_cudnn_cu12-weird.tar.gz", None),
        ("nvidia_cudnn_cu12-1.0.exe", None),
    ],
)
def test_version_is_read_from_the_file_name(filename: str, version: str | None) -> None:
    found = releases.release_of(filename, "nvidia-cudnn-cu12")
    assert (str(found) if found else None) == version


def test_configured_index_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "file:///second/simple")
    monkeypatch.setenv("PIP_INDEX_URL", "file:///first/simple")
    assert releases.find_index_url() == "file:///first/simple"


def test_credentials_of_an_index_go_to_that_host_alone(monkeypatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:p%40ss@index.example/simple")
    asked = []

    def answer(request, timeout):
        asked.append((request.full_url, request.unredirected_hdrs.get("Authorization"), timeout))
        raise http.client.IncompleteRead(b"")

    monkeypatch.setattr("urllib.request.urlopen", answer)
    with pytest.raises(InputError, match="x: the package index did not answer"):
        releases.list_files("x")
    (only,) = asked
    assert only[:2] == ("https://index.example/simple/x/", "Basic " + base64.b64encode(b"me:p@ss").decode())
