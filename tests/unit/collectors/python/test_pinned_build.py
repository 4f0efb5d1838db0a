"""What torch is built for, from a pin: its label, its index, CUDA's wheels beside it, or the public wheel's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.collectors.python.pinned_build import read_index, rebuild
from compatcheck.collectors.read import read_environments
from compatcheck.core.environment import Environment
from compatcheck.rules.locate import open_builtin


def _requirements(directory: Path, text: str) -> Environment:
    (directory / "requirements.txt").write_text(text)
    (environment,) = read_environments(str(directory / "requirements.txt"), "requirements")
    return environment


def _cuda(environment: Environment) -> object:
    return environment.facts["runtime.torch_cuda"][0] if "runtime.torch_cuda" in environment.facts else "unknown"


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("torch==2.11.0+cu126\n", "12.6"),
        ("torch==2.5.1+cpu\n", None),
        ("torch==2.9.0\n", "12.8"),
        ("torch==2.6\n", "12.4"),
        ("torch==2.11.0\n", "13.0"),
        ("--extra-index-url https://download.pytorch.org/whl/cu118\ntorch==2.1.0\n", "11.8"),
        ("--index-url=https://download.pytorch.org/whl/nightly/cu128\ntorch>=2.7\n", "12.8"),
        ("-f https://download.pytorch.org/whl/torch_stable.html\ntorch==2.1.0\n", "12.1"),
        ("torch @ https://download.pytorch.org/whl/cu124/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl\n", "12.4"),
        ("torch==2.9.0\nnvidia-cuda-runtime-cu12==12.6.77\n", "12.6"),
        ("torch==2.9.0a0+145a3a7bda.nv25.10\n", "13.0"),
        ("torch==2.6.0a0+ecf3bae40a.nv25.01\n", "12.8"),
        ("torch==2.7.0a0+6c54963f75.nv25.02\n", "unknown"),  # CUDA of 25.02 was not established
        ("torch==2.5.0a0+0000000000.nv25.10\n", "unknown"),  # another build under the same label, as for Jetson
        ("torch>=2.5\n", "unknown"),
        ("torch==2.9.0rc1\n", "unknown"),
        ("torch==2.99.0\n", "unknown"),
        ("torch==2.7.1\ntorch-npu==2.7.1\n", "unknown"),
        ("transformers==4.48.0\n", "unknown"),
    ],
)
def test_cuda_of_a_requirement(tmp_path: Path, text: str, cuda: str | None) -> None:
    assert _cuda(_requirements(tmp_path, text)) == cuda


def test_the_public_wheel_is_named_as_the_source(tmp_path: Path) -> None:
    environment = _requirements(tmp_path, "torch==2.9.0\n")
    source = environment.facts["runtime.torch_cuda"][1]
    assert (source.key, source.line) == ("public wheel of torch 2.9.0", 1)


def test_the_public_wheel_brings_the_libraries_it_requires(tmp_path: Path) -> None:
    def cudnn(text: str) -> tuple[str | None, str | None] | None:
        package = _requirements(tmp_path, text).components.get("cudnn")
        return None if package is None else (package.version, package.source.key)

    assert cudnn("torch==2.9.1\n") == ("9.10.2.21", "public wheel of torch 2.9.1")
    assert cudnn("torch==2.9.1\nnvidia-cudnn-cu12==9.16.0.29\n") == ("9.16.0.29", None)
    assert cudnn("torch==2.9.1\nnvidia-cudnn-cu12>=9.15\n") is None, "which one is left open"
    assert cudnn("torch==2.9.1+cu128\n") is None, "another index's wheel"
    assert cudnn("torch>=2.9\n") is None
    environment = _requirements(tmp_path, "torch==2.9.1\n")
    torch = environment.packages["torch"]._replace(version="2.8.0")
    again = rebuild(environment._replace(packages={**environment.packages, "torch": torch}))
    assert (again.components["nccl"].version, environment.components["nccl"].version) == ("2.27.3", "2.27.5")


def test_a_lock_tells_by_the_wheels_it_holds(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(
        'version = 1\nrequires-python = ">=3.11"\n'
        '[[package]]\nname = "torch"\nversion = "2.9.0"\nsource = { registry = "https://pypi.org/simple" }\n'
        '[[package]]\nname = "nvidia-cuda-runtime-cu12"\nversion = "12.8.90"\nsource = { registry = "https://pypi.org/simple" }\n'
        '[[package]]\nname = "nvidia-cudnn-cu12"\nversion = "9.10.2.21"\nsource = { registry = "https://pypi.org/simple" }\n'
    )
    (environment,) = read_environments(str(lock), "uv_lock")
    assert _cuda(environment) == "12.8"
    assert environment.components["cudnn"].version == "9.10.2.21"


def test_a_lock_without_cuda_wheels_is_not_guessed(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text('version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "torch"\nversion = "2.9.0"\n')
    (environment,) = read_environments(str(lock), "uv_lock")
    assert environment.complete
    assert _cuda(environment) == "unknown"


def test_the_table_says_what_torch_pins() -> None:
    """The table is what our own snapshot of torch's requirements says of CUDA's runtime, for every release it has."""
    database = open_builtin()
    table = database.section("tables/torch-public-cuda")
    checked = 0
    for releases, pins, *_ in database.section("pins/torch"):
        pin = next((pins[name] for name in ("cuda-toolkit", *_RUNTIMES) if name in pins), None)
        if pin is None:
            continue
        for release in releases:
            minor = ".".join(release.split(".")[:2])
            assert table[minor] == ".".join(pin.removeprefix("==").split(".")[:2]), release
        checked += len(releases)
    assert checked > 20


_RUNTIMES = ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")


@pytest.mark.parametrize(
    ("address", "build"),
    [
        ("https://download.pytorch.org/whl/cu128", ("cuda", "12.8")),
        ("https://download.pytorch.org/whl/test/cu130/", ("cuda", "13.0")),
        ("https://download.pytorch.org/whl/cpu", ("cpu", None)),
        ("https://download.pytorch.org/whl/rocm6.2", ("rocm", None)),
        ("https://pypi.org/simple", None),
        ("", None),
    ],
)
def test_index_of_a_build(address: str, build: tuple[str, str | None] | None) -> None:
    assert read_index(address) == build
