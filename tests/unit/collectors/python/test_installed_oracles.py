"""Real environments, made by uv and pip, against what pip, uv and the interpreter itself say is installed."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from packaging.utils import canonicalize_name

from compatcheck.collectors.python.installed import collect_installed
from compatcheck.collectors.python.interpreter import locate

pytestmark = [pytest.mark.versions, pytest.mark.slow]

SETUP = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "my.own_pkg"
version = "1.0"
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with wheels, a source distribution, two editable installs and old names."""
    root = tmp_path_factory.mktemp("env")
    prefix = root / "venv"
    subprocess.run([sys.executable, "-m", "venv", prefix], check=True)
    pip = [prefix / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    packages = [
        "ruamel.yaml",
        "PyYAML",
        "zope.interface",
        "jaraco.text",
        "typing_extensions",
        "Flask",
        "setuptools",
        "wheel",
    ]
    subprocess.run([*pip, "install", *packages], check=True)
    for folder, layout in (("flat", "own_pkg"), ("tree", "src/own_tree")):
        source = root / folder
        (source / layout).mkdir(parents=True)
        (source / layout / "__init__.py").touch()
        (source / "pyproject.toml").write_text(SETUP.replace("my.own_pkg", f"my.own_{folder}"))
        subprocess.run([*pip, "install", "--no-build-isolation", "--no-deps", "-e", source], check=True)
    return prefix


def ours(prefix):
    found = collect_installed(locate(None, str(prefix), {}))
    assert found.skipped == ()
    assert found.damage == ()
    return {name: package.version for name, package in found.packages.items()}


def listed(command):
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {canonicalize_name(row["name"]): row["version"] for row in rows}


def test_agrees_with_pip_list(environment):
    command = [environment / "bin" / "python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    assert ours(environment) == listed(command)


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not there")
def test_agrees_with_uv_pip_list(environment):
    assert ours(environment) == listed(
        ["uv", "pip", "list", "--format", "json", "-p", str(environment / "bin" / "python")]
    )


def test_editable_installs_are_known(environment):
    packages = collect_installed(locate(None, str(environment), {})).packages
    for folder in ("flat", "tree"):
        assert os.path.samefile(packages[f"my-own-{folder}"].details["editable"], environment.parent / folder)


def test_agrees_with_importlib_metadata_run_inside(environment):
    code = (
        "import importlib.metadata as m, json; print(json.dumps([{'name': d.metadata['Name'], 'version': d.version} "
        "for d in m.distributions()]))"
    )
    assert ours(environment) == listed([environment / "bin" / "python", "-I", "-c", code])
