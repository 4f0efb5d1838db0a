"""``NVIDIA_REQUIRE_CUDA`` as NVIDIA's images set it, and which drivers it lets a container start on."""

from __future__ import annotations

import pytest

from compatcheck.collectors.machine.driver_requirement import read_compat_package, read_driver_requirement
from compatcheck.collectors.machine.variables import collect_variables
from compatcheck.core.source import Source
from compatcheck.core.versions import compile_specifier, contains

CUDA_124 = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 brand=geforce,driver>=525,driver<526 "
    "brand=tesla,driver>=535,driver<536"
)
"""Shortened from the image nvidia/cuda:12.4.0, as `docker inspect` prints it."""


def _starts(requirement: str, driver: str) -> bool:
    text = read_driver_requirement(requirement)
    assert text is not None
    return contains(compile_specifier(text), driver) == "yes"


@pytest.mark.parametrize(
    ("driver", "starts"),
    [("550.54.15", True), ("545.23.08", False), ("535.230.02", True), ("525.147.05", True), ("510.47.03", False)],
)
def test_image_of_cuda_12_4(driver: str, *, starts: bool) -> None:
    assert _starts(CUDA_124, driver) is starts


def test_every_driver_of_a_branch_reports_its_cuda() -> None:
    assert _starts(
        "cuda>=12.4", "550.40.07"
    )  # nvidia-smi of that driver, from before the toolkit's 550.54.14: CUDA Version 12.4
    assert _starts("cuda>=12.8", "570")
    assert not _starts("cuda>=12.8", "566.07")


def test_reports_of_refused_drivers() -> None:
    assert not _starts("cuda>=12.8 brand=unknown,driver>=535,driver<536", "550.144.03")  # tabbyAPI#324
    assert not _starts("cuda>=12.8", "551.78")  # PETRIC2#27


@pytest.mark.parametrize(
    "text", ["", "cuda>=99.0", "memory>=3", "cuda~=12.0", "cuda>=x", "driver>=", "brand=tesla", "a" * 100_000]
)
def test_what_is_not_understood_requires_nothing(text: str) -> None:
    assert read_driver_requirement(text) is None


@pytest.mark.parametrize(
    ("text", "release"), [("cuda-compat-12-4", "12.4"), ("cuda-compat-13-0=580.65.06-1", "13.0"), ("x", None)]
)
def test_compatibility_package(text: str, release: str | None) -> None:
    assert read_compat_package(text) == release


def test_variables_of_an_image_become_facts() -> None:
    found = collect_variables(
        {"NVIDIA_REQUIRE_CUDA": "cuda>=12.8", "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-12-8"}, Source("image")
    )
    assert {name: value for name, (value, _) in found.facts.items()} == {
        "runtime.driver_required": ">=570",
        "runtime.cuda_compat": "12.8",
    }


@pytest.mark.parametrize(
    ("environ", "drivers"),
    [
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "NVIDIA_REQUIRE_DRIVER": "driver>=560"}, ">=550,>=560"),
        (
            {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4 driver>=470,driver<471", "NVIDIA_REQUIRE_DRIVER": "driver!=555"},
            ">=470,<471,!=555 || >=550,!=555",
        ),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "NVIDIA_REQUIRE_ARCH": "arch>=8.0"}, ">=550"),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "NVIDIA_REQUIRE_JETPACK": "cuda>=13.0"}, ">=550"),
        ({"NVIDIA_REQUIRE_CUDA": "memory>3", "NVIDIA_REQUIRE_DRIVER": "driver>=560"}, ">=560"),
        ({"NVIDIA_REQUIRE_ARCH": "arch>=8.0"}, None),
    ],
)
def test_all_variables_of_an_image_count(environ: dict[str, str], drivers: str | None) -> None:
    fact = collect_variables(environ, Source("image")).facts.get("runtime.driver_required")
    assert (None if fact is None else fact[0]) == drivers
