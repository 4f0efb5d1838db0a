"""What uv is asked, and what a project cannot make it do."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from compatcheck.core.fix import RESOLVED
from compatcheck.core.toml import parse_toml
from compatcheck.fixing.resolver import UvResolver, find_built, write_unbuildable


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")
def test_a_project_does_not_choose_where_uv_writes(tmp_path) -> None:
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = []\n'
    hostile = f'{project}[tool.uv]\ncache-dir = "{tmp_path}/hostile"\n'
    resolver = UvResolver(shutil.which("uv") or "")
    answer = resolver.lock({"pyproject.toml": hostile}, ())
    assert answer.verdict == RESOLVED
    assert not (tmp_path / "hostile").exists()
    assert resolver.asked == 1


STATIC = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = []\n'
LOCK = 'version = 1\n[[package]]\nname = "x"\nversion = "1"\nsource = { editable = "." }\n'


@pytest.mark.parametrize(
    ("files", "built"),
    [
        ({"pyproject.toml": STATIC, "uv.lock": LOCK}, ()),
        ({"pyproject.toml": STATIC, "uv.lock": f'{LOCK}wheels = [{{ path = "x-1-py3-none-any.whl" }}]\n'}, ()),
        ({"pyproject.toml": '[tool.uv.workspace]\nmembers = ["a"]\n', "a/pyproject.toml": STATIC}, ()),
        ({"pyproject.toml": f'{STATIC}dynamic = ["readme"]\n'}, ()),
        ({"pyproject.toml": f'{STATIC}[tool.hatch.version]\npath = "x.py"\n'}, ()),
        ({"pyproject.toml": STATIC, "a/pyproject.toml": STATIC, "uv.lock": LOCK.replace('"."', '"a"')}, ()),
        ({"pyproject.toml": STATIC.replace('version = "1"', 'dynamic = ["version"]')}, ("pyproject.toml",)),
        ({"pyproject.toml": STATIC.replace('version = "1"', "")}, ("pyproject.toml",)),
        ({"pyproject.toml": f"{STATIC}[tool.poetry]\n"}, ("pyproject.toml",)),
        ({"pyproject.toml": STATIC, "a/pyproject.toml": "[build-system]\n"}, ("a/pyproject.toml",)),
        ({"pyproject.toml": "["}, ("pyproject.toml",)),
        ({"pyproject.toml": f'{STATIC}[tool.uv.sources]\ny = {{ path = "/y", editable = true }}\n'}, ("/y",)),
        ({"pyproject.toml": f'{STATIC}[tool.uv.sources]\ny = [{{ path = "../y" }}]\n'}, ("../y",)),
        ({"pyproject.toml": STATIC, "uv.lock": LOCK.replace('"."', '"/elsewhere"')}, ("/elsewhere",)),
    ],
)
def test_what_uv_would_build_is_not_locked(files: dict[str, str], built: tuple[str, ...], monkeypatch) -> None:
    assert find_built(files) == built
    if built:
        monkeypatch.setattr(UvResolver, "_run", None)
        assert UvResolver("/uv").lock(files, ()).unbuilt == built


BACKEND = """\
open({mark!r}, "w").close()
def prepare_metadata_for_build_editable(folder, settings=None):
    raise SystemExit(1)
"""
HOSTILE = {
    "a requirement that is none": 'dependencies = ["a !! b"]',
    "a marker that is none": 'dependencies = ["a ; foo == 1"]',
    "an extra that is none": '[project.optional-dependencies]\na = ["b !! c"]',
    "a source that contradicts": 'dependencies = ["a @ https://127.0.0.1:1/a"]\n[tool.uv.sources]\na = {index = "q"}',
}


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")
@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_of_a_project_is_built_whatever_it_states(case: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("evil.py", BACKEND.format(mark=str(tmp_path / "ran")))
        wheel.writestr("evil-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
        wheel.writestr("evil-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("evil-1.dist-info/RECORD", "")
    build = '\n[build-system]\nrequires = ["evil"]\nbuild-backend = "evil"\n'
    index = f'\n[tool.uv]\nfind-links = ["{tmp_path}"]\nno-index = true\n'
    project = f"{STATIC.replace('dependencies = []', '')}{HOSTILE[case]}{build}{index}"
    answer = UvResolver(shutil.which("uv") or "").lock({"pyproject.toml": project, "uv.lock": LOCK}, ())
    assert not (tmp_path / "ran").exists()
    assert answer.files == {}


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")
def test_a_workspace_has_no_members_elsewhere(tmp_path: Path) -> None:
    member = '[project]\nname = "m"\ndynamic = ["version"]\n[build-system]\nrequires = []\nbuild-backend = "evil"\n'
    (tmp_path / "m").mkdir()
    (tmp_path / "m/pyproject.toml").write_text(f'{member}backend-path = ["."]\n')
    (tmp_path / "m/evil.py").write_text(BACKEND.format(mark=str(tmp_path / "ran")))
    project = f'{STATIC}[tool.uv.workspace]\nmembers = ["{tmp_path}/*"]\n'
    UvResolver(shutil.which("uv") or "").lock({"pyproject.toml": project, "uv.lock": LOCK}, ())
    assert not (tmp_path / "ran").exists()


def test_a_project_that_cannot_be_built_says_the_rest_as_before() -> None:
    text = f"""{STATIC}license = {{text = "\\u007f\\n\\"é"}}
[dependency-groups]
dev = ["a", {{include-group = "b"}}]
[build-system]
requires = ["evil"]
build-backend = "os; import evil"
[tool.evil]
x = 1
[tool.uv]
no-index = true
workspace.members = ["/*", "a"]
sources.a = [{{index = "q"}}]
"""
    before, after = (
        parse_toml(text, "a"),
        parse_toml(write_unbuildable(text, ["pyproject.toml", "a/[b]/pyproject.toml"]), "b"),
    )
    assert (after["project"], after["dependency-groups"]) == (before["project"], before["dependency-groups"])
    assert after["build-system"]["requires"] == []
    assert after["build-system"]["build-backend"] != before["build-system"]["build-backend"]
    wanted = {"uv": before["tool"]["uv"] | {"workspace": {"members": ["a/?b?"]}, "package": True}}
    assert after["tool"] == wanted
