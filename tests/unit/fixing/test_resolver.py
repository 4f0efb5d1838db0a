"""What uv is asked, and what a project cannot make it do."""

from __future__ import annotations

import shutil

import pytest

from compatcheck.core.fix import RESOLVED
from compatcheck.fixing.resolver import UvResolver, find_built


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
