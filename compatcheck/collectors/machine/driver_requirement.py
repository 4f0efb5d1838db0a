"""Which drivers a container starts on: ``NVIDIA_REQUIRE_CUDA``, which NVIDIA's images set and its container runtime enforces.

So it does with every other variable of that beginning but ``NVIDIA_REQUIRE_JETPACK``, and the container starts where all of them
are met (NVIDIA Container Toolkit 1.18 ``internal/config/image/cuda_image.go`` ``GetRequirements()``). A value holds alternatives
apart by blanks, each a list of conditions joined by commas: ``cuda>=12.8 brand=tesla,driver>=535,driver<536``. The container
starts where one of them holds.
https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/requirements/requirements.go
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUIRES = "NVIDIA_REQUIRE_"
_OF_JETSON = "NVIDIA_REQUIRE_JETPACK"
_MOST_ALTERNATIVES = 1_000
_CONDITION = r"(cuda|driver|arch|brand)(>=|<=|!=|=|<|>)([\w.]+)"
_COMPAT = r"cuda-compat-(\d+)-(\d+)"
_LONGEST = 20_000
"""Most characters read of a value; NVIDIA's longest has 2,000."""

NATIVE_DRIVERS = "cuda-native-driver"
"""The table of the first driver of each CUDA release."""


def read_requirements(environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the drivers that all variables of an image let it start on, and which variables say so.

    A variable that is not understood is left out, so that the range is never too narrow.
    """
    texts = {
        name: value for name, value in environ.items() if name.startswith(REQUIRES) and not name.startswith(_OF_JETSON)
    }
    found = {name: text for name in texts if (text := read_driver_requirement(texts[name])) is not None}
    together = {
        ",".join(clauses) for clauses in itertools.islice(itertools.product(*_split(found)), _MOST_ALTERNATIVES + 1)
    }
    if not found or len(together) > _MOST_ALTERNATIVES:
        return None
    return next(iter(found.values())) if len(found) == 1 else " || ".join(sorted(together)), tuple(found)


def _split(found: Mapping[str, str]) -> list[list[str]]:
    return [text.split(" || ") for text in found.values()]


def read_driver_requirement(text: str) -> str | None:
    """Return the drivers a value lets the container start on, as ranges joined by ``||``.

    Conditions on brand and architecture are taken as met, so the range is never too narrow.

    Returns:
        The range; None where a condition is not understood, which then may hold anywhere, or nothing is required.
    """
    alternatives: dict[str, None] = {}
    for alternative in text[:_LONGEST].split():
        clauses: dict[str, None] = {}
        for condition in alternative.split(","):
            match = re.fullmatch(_CONDITION, condition)
            if match is None:
                return None
            clause = _driver_clause(*match.groups())
            if clause is None:
                return None
            if clause:
                clauses[clause] = None
        if not clauses:
            return None
        alternatives[",".join(clauses)] = None
    return " || ".join(alternatives) or None


def _driver_clause(subject: str, comparison: str, value: str) -> str | None:
    """Return one condition as a clause about the driver, empty where it is about something else; None where unknown."""
    if subject in {"brand", "arch"}:
        return ""
    comparison = {"=": "=="}.get(comparison, comparison)
    if not re.fullmatch(r"\d+(?:\.\d+)*", value):
        return None
    if subject == "driver":
        return f"{comparison}{value}"
    native = _native_branch(value)
    return f">={native}" if native is not None and comparison == ">=" else None


def _native_branch(cuda: str) -> str | None:
    """Return the driver branch of a CUDA release: each of its drivers reports that release, those before the toolkit's own too.

    550.40.07 reports CUDA 12.4, whose toolkit came with 550.54.14, and the branches on Windows bear the same numbers.
    """
    from compatcheck.rules.locate import open_builtin  # noqa: PLC0415 (only with such a variable)

    table = open_builtin().section(f"tables/{NATIVE_DRIVERS}") or {}
    driver = table.get(".".join(cuda.split(".")[:2]))
    return driver.partition(".")[0] if isinstance(driver, str) else None


def read_compat_package(text: str) -> str | None:
    """Return the CUDA release of a forward-compatibility package by its name: ``cuda-compat-12-4``."""
    match = re.search(_COMPAT, text)
    return f"{match[1]}.{match[2]}" if match is not None else None
