"""What METADATA itself says, against the name of its directory, for the packages that rules are about."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compatcheck.collectors.python import metadata_check as records
from compatcheck.collectors.python.installed import collect_installed
from compatcheck.collectors.python.interpreter import locate
from compatcheck.core.environment import Environment
from tests.unit.collectors.python.layouts import add_dist, make_prefix, site_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")

Collect = Callable[..., Environment]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return site_of(make_prefix(tmp_path / "python"))


@pytest.fixture
def collect(tmp_path: Path) -> Collect:
    def check(*names: str) -> Environment:
        layout = locate(None, str(tmp_path / "python"), {})
        return records.check_records(collect_installed(layout), names, layout.site_packages)

    return check


def test_a_version_that_differs_is_damage_and_metadata_is_taken(site: Path, collect: Collect) -> None:
    folder = add_dist(site, "deepspeed", "0.16.8", directory="deepspeed-0.16.4.dist-info")
    environment = collect("deepspeed")
    (damage,) = environment.damage
    assert (damage.kind, damage.package) == ("mismatched", "deepspeed")
    assert damage.detail == "its directory says 0.16.4, its METADATA 0.16.8, which pip reports and is taken"
    assert [source.path for source in damage.sources] == [str(folder), str(folder / "METADATA")]
    assert environment.packages["deepspeed"].version == "0.16.8"


def test_a_name_that_differs_is_damage_and_the_directory_is_kept(site: Path, collect: Collect) -> None:
    add_dist(site, "torch-nightly", "2.5.1", directory="torch-2.5.1.dist-info")
    environment = collect("torch")
    (damage,) = environment.damage
    assert damage.detail == "its directory is that of torch, its METADATA that of torch-nightly"
    assert environment.packages["torch"].version == "2.5.1"


@pytest.mark.parametrize(
    ("name", "version", "directory"),
    [
        ("deepspeed", "0.16.4", None),
        ("Flash_Attn", "2.7.4", "flash_attn-2.7.4.dist-info"),
        ("torch", "2.5.1", "torch-2.5.1+cu124.dist-info"),
        ("torch", "2.5.1.0", "torch-2.5.1.dist-info"),
    ],
)
def test_another_spelling_is_no_damage(
    name: str, version: str, directory: str | None, site: Path, collect: Collect
) -> None:
    add_dist(site, name, version, directory=directory)
    assert collect("deepspeed", "flash-attn", "torch").damage == ()


def test_a_component_is_looked_at_too(site: Path, collect: Collect) -> None:
    add_dist(site, "nvidia-cudnn-cu12", "9.10.2.21", directory="nvidia_cudnn_cu12-9.1.0.70.dist-info")
    add_dist(site, "torch", "2.5.1")
    environment = collect()
    assert [damage.package for damage in environment.damage] == ["nvidia-cudnn-cu12"]
    assert environment.packages["nvidia-cudnn-cu12"].version == "9.10.2.21"
    assert environment.components["cudnn"].version == "9.10.2.21"


def test_packages_that_no_rule_is_about_are_not_opened(
    site: Path, collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_dist(site, "requests", "2.0", directory="requests-1.0.dist-info")
    add_dist(site, "deepspeed", "0.16.4")
    opened: list[str] = []
    read = records.read_name_and_version
    monkeypatch.setattr(records, "read_name_and_version", lambda path: opened.append(path) or read(path))
    assert collect("deepspeed", "absent").damage == ()
    assert opened == []


def test_a_package_without_metadata_is_there_and_of_an_unknown_release(site: Path, collect: Collect) -> None:
    (site / "flash_attn").mkdir()
    (site / "flash_attn/__init__.py").write_text("")
    (site / "yaml").mkdir()
    environment = collect("flash-attn", "torch")
    assert {name: package.version for name, package in environment.packages.items()} == {"flash-attn": None}
    (entry,) = environment.skipped
    assert (entry.source.path, entry.named) == (str(site / "flash_attn"), True)


def test_absent_packages_cost_no_look_each(site: Path, collect: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "deepspeed").mkdir()
    (site / "deepspeed" / "__init__.py").touch()
    looked: list[str] = []
    is_file = type(records.LOCAL).is_file
    monkeypatch.setattr(type(records.LOCAL), "is_file", lambda self, path: looked.append(path) or is_file(self, path))
    environment = collect("deepspeed", *(f"absent-{number}" for number in range(10, 20)))
    assert environment.packages["deepspeed"].version is None
    assert not any("/absent_1" in path for path in looked)
