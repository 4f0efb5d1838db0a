"""The release of a package in a checkout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.collectors.python.checkout import read_pin, read_release
from compatcheck.core.files import LOCAL

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = ("0.1rc0", "0.1", "0.2rc1", "0.2", "0.3.0")


@pytest.mark.parametrize(
    ("place", "text", "specifier"),
    [
        ("version/version", "0.1\n", ">=0.1,<=0.2"),  # any state up to the next release
        ("version.py", '__version__ = "0.1.dev3"\n', ">=0.1.dev3,<=0.1"),
        ("__init__.py", '"""A package."""\n__version__ = "0.3.0"\n', ">=0.3.0"),
        ("__init__.py", "from .version import __version__\n", None),
        ("version/version", "unknown\n", None),
        ("version/version", "0.3.0.dev\n", ">=0.2,<=0.3.0"),  # begun where the series before left
        ("../version.txt", "0.2\n", ">=0.2,<=0.3.0"),
        ("../VERSION", "0.3.0\n", ">=0.3.0"),
        ("../setup.py", 'import setuptools\nsetuptools.setup(name="a_package", version="0.2")\n', ">=0.2,<=0.3.0"),
        ("../setup.py", 'setup(name="another", version="0.2")\n', None),  # has this package among its own
        ("../setup.py", 'setup(name="a-package", version=read())\n', None),
        ("../setup.py", "setup(\n", None),
        ("../pyproject.toml", '[project]\nname = "a-package"\nversion = "0.2"\n', ">=0.2,<=0.3.0"),
        ("../pyproject.toml", '[project]\nname = "a-package"\ndynamic = ["version"]\n', None),
    ],
)
def test_sources_lie_between_their_own_release_and_the_next(
    tmp_path: Path, place: str, text: str, specifier: str | None
) -> None:
    file = tmp_path / "a_package" / place
    (tmp_path / "a_package").mkdir()
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    package = read_release("a-package", "a_package", str(tmp_path), RELEASES, LOCAL)
    assert (None if package is None else package.specifier) == specifier
    assert package is None or (package.version, package.details["editable"]) == (None, str(tmp_path))


def test_a_folder_of_sources_lies_in_its_project(tmp_path: Path) -> None:
    (tmp_path / "src/a_package").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a-package"\nversion = "0.3.0"\n')
    package = read_release("a-package", "a_package", str(tmp_path / "src"), RELEASES, LOCAL)
    assert package is not None
    assert package.specifier == ">=0.3.0"


@pytest.mark.parametrize(
    "line",
    ["x = a" + ".b()" * 400, f"setup(name=0x{'f' * 6000})", f"x = {{0x{'f' * 6000}: 1}}"],
    ids=["calls", "name", "number"],
)
def test_a_setup_that_nobody_writes_tells_no_release(tmp_path: Path, line: str) -> None:
    (tmp_path / "a_package").mkdir()
    (tmp_path / "setup.py").write_text(f"{line}\n")
    assert read_release("a-package", "a_package", str(tmp_path), RELEASES, LOCAL) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("MODE=pinned_tag\n TAG = v0.5.0\n", 2),
        ("\ufeffMODE=pinned_tag\r\nTAGS=none\r\nTAG=v0.5.0\r\n", 3),
        ("MODE=commit\nTAG=v0.5.0\n", None),
    ],
)
def test_a_recipe_names_its_release_however_it_is_spaced(tmp_path: Path, text: str, line: int | None) -> None:
    file = tmp_path / "REQUIRED.txt"
    file.write_bytes(text.encode())
    package = read_pin("a-package", str(file), LOCAL)
    assert (None if package is None else (package.version, package.source.line)) == (line and ("0.5.0", line))
