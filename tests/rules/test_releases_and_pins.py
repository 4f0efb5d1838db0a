"""The snapshots of releases and pins are whole, and agree with each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.fixing.companions import Companions
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_builtin
from tests import ROOT

RULES = ROOT / "rules"
RELEASES = sorted((RULES / "_releases").glob("*.yaml"))
PINS = sorted((RULES / "_pins").glob("*.yaml"))


def load(path: Path) -> dict[str, Any]:
    """Read one snapshot."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_releases_are_ordered_dated_and_named_after_their_file(path: Path) -> None:
    document = load(path)
    versions = [Version(version) for version in document["releases"]]
    assert document["package"] == path.stem
    assert versions == sorted(versions)
    assert all(isinstance(version, str) for version in document["releases"])
    assert all(date is None or re.fullmatch(r"20\d\d-\d\d-\d\d", date) for date in document["releases"].values())
    assert set(document["prereleases"]) == {str(version) for version in versions if version.is_prerelease}
    assert set(document["yanked"]) <= set(document["releases"])


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.stem)
def test_pins_are_about_released_versions_and_valid_specifiers(path: Path) -> None:
    document = load(path)
    released = load(RULES / f"_releases/{path.stem}.yaml")["releases"]
    versions = [version for row in document["rows"] for version in row["versions"]]
    assert set(versions) <= set(released)
    assert len(versions) == len(set(versions))
    for row in document["rows"]:
        for specifier in row["requires"].values():
            assert str(SpecifierSet(specifier))


@pytest.mark.parametrize(
    ("framework", "version", "package", "specifier"),
    [
        ("openrlhf", "0.5.5.post1", "deepspeed", "==0.16.2"),
        ("openrlhf", "0.5.5.post2", "deepspeed", "==0.15.0"),
        ("openrlhf", "0.8.0.post1", "deepspeed", "==0.16.7"),
        ("openrlhf", "0.8.1", "deepspeed", "==0.16.8"),
        ("torch", "2.10.0", "nvidia-cudnn-cu12", "==9.10.2.21"),
        ("torch", "2.5.1", "nvidia-nccl-cu12", "==2.21.5"),
        ("torch", "2.15.0", "triton", "~=3.9.0"),
        ("torchvision", "0.20.1", "torch", "==2.5.1"),
        ("torchaudio", "2.8.0", "torch", "==2.8.0"),
        ("xformers", "0.0.29.post2", "torch", "==2.6.0"),
        ("vllm", "0.8.5", "torch", "==2.6.0"),
        ("vllm", "0.11.1", "transformers", "<5,>=4.56.0"),
        ("sglang", "0.5.23", "torch", "==2.14.1"),
        ("transformers", "4.55.0", "tokenizers", "<0.22,>=0.21"),
    ],
)
def test_pins_that_rules_lean_on(framework: str, version: str, package: str, specifier: str) -> None:
    (row,) = [row for row in load(RULES / f"_pins/{framework}.yaml")["rows"] if version in row["versions"]]
    assert row["requires"][package] == specifier


@pytest.mark.parametrize(
    ("holder", "release"),
    [
        *(("torchaudio", release) for release in ("2.11.0",)),
        *(("xformers", release) for release in ("0.0.35",)),
    ],
)
def test_releases_of_a_stable_interface_pin_no_torch(holder: str, release: str) -> None:
    (row,) = [row for row in load(RULES / f"_pins/{holder}.yaml")["rows"] if release in row["versions"]]
    assert not row["requires"].get("torch", "").startswith("==")


def test_every_release_of_a_binary_pins_the_torch_that_the_table_says() -> None:
    table = load(RULES / "_tables/torch-minor-of-binaries.yaml")["rows"]
    for holder in ("torchvision", "torchaudio", "xformers", "vllm"):
        minors = {release: minor for name, release, minor in table if name == holder}
        for row in load(RULES / f"_pins/{holder}.yaml")["rows"]:
            torch = row["requires"].get("torch", "")
            for release in row["versions"]:
                wanted = minors.get(release)
                assert (wanted is None) is not torch.startswith("=="), (holder, release)
                assert wanted is None or torch.startswith(f"=={wanted}."), (holder, release)


@pytest.mark.parametrize(
    ("stack", "move", "along"),
    [
        ("torch==2.6.0 torchvision==0.21.0 torchaudio==2.6.0 xformers==0.0.29.post2 vllm==0.8.5", "torch==2.7.0",
         "vllm==0.9.0 torchaudio==2.7.0 torchvision==0.22.0 xformers==0.0.30"),
        ("torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 xformers==0.0.28.post3 vllm==0.7.3", "vllm==0.8.3",
         "torch==2.6.0 torchaudio==2.6.0 torchvision==0.21.0 xformers==0.0.29.post2"),
        ("torch==2.9.0 torchvision==0.24.0 torchaudio==2.9.0 vllm==0.12.0", "vllm==0.16.0",
         "torch==2.9.1 torchaudio==2.9.1 torchvision==0.24.1"),
        ("torch==2.3.0 torchvision==0.18.0 xformers==0.0.26.post1", "torch==2.7.1", "torchvision==0.22.1 xformers==0.0.31"),
        ("torch==2.5.1 torchvision==0.20.1 triton==3.1.0 nvidia-cudnn-cu12==9.1.0.70 nvidia-nccl-cu12==2.21.5", "torch==2.2.0",
         "nvidia-cudnn-cu12==8.9.2.26 nvidia-nccl-cu12==2.19.3 triton==2.2.0 torchvision==0.17.0"),
        ("transformers==4.48.3 tokenizers==0.21.4", "transformers==4.46.1", "tokenizers==0.20.3"),
        ("vllm==0.11.0 transformers==4.57.0 torch==2.8.0", "transformers==5.3.0", ""),
        ("vllm==0.12.0 transformers==4.57.1 torch==2.9.0", "transformers==5.3.0", None),
        ("vllm==0.12.0 torch==2.9.0", "torch==2.14.1", None),
    ],
)  # fmt: skip
def test_what_moves_along_is_what_the_releases_require(stack: str, move: str, along: str | None) -> None:
    """Each of these sets was resolved by uv 0.13.9; None stands for moves that a release refuses."""
    pins = dict(pin.split("==") for pin in stack.split())
    packages = {name: Package(name, version, Source("requirements.txt")) for name, version in pins.items()}
    companions = Companions(Environment("requirements.txt", packages, complete=False), RuleSet((open_builtin(),)))
    found = companions.complete(dict([move.split("==")]))
    moved = {name: release for name, (release, _) in found.items()} if isinstance(found, dict) else None
    assert moved == (None if along is None else dict(pin.split("==") for pin in along.split()))


@pytest.mark.versions
@pytest.mark.parametrize(
    ("package", "version"),
    [("torchvision", "0.20.1"), ("torchaudio", "2.11.0"), ("xformers", "0.0.35"), ("vllm", "0.8.5")],
)
def test_binaries_pin_what_the_index_says(package: str, version: str) -> None:
    from compatcheck.core.errors import InputError
    from compatcheck.services.releases import read_requirements

    try:
        lines = read_requirements(package, version)
    except InputError as error:
        pytest.skip(f"no package index: {error.message}")
    pins = [line for line in lines if re.match(r"torch\s*\(?==", line)]
    rows = {
        (name, release): minor for name, release, minor in load(RULES / "_tables/torch-minor-of-binaries.yaml")["rows"]
    }
    minor = rows.get((package, version))
    assert (minor is not None) is bool(pins)
    assert minor is None or f"=={minor}." in pins[0]
