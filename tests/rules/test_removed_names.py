"""Rules about a name that one release imports and another no longer has: each boundary, read in the released files."""

from __future__ import annotations

import io
import re
import tarfile
from typing import NamedTuple

import pytest
import yaml
from packaging.version import Version

from tests import ROOT


class Reading(NamedTuple):
    """A line that is in a file of some releases and in none of their neighbours."""

    rule: str
    package: str
    file: str
    line: str
    there: tuple[str, ...]
    """Releases that have the line: the bounds of the rule, for what imports; what stands before them, for what is imported."""
    absent: tuple[str, ...]


_CACHE = ("transformers", r"transformers/cache_utils\.py", r"class HybridCache\b", ("4.57.6",), ("5.0.0", "5.23.0"))
_PEFT, _LIGER = "peft/imports-removed-cache-class", "liger-kernel/imports-removed-cache-class"
_VLLM, _BNB = "vllm/reads-removed-tokenizer-attribute", "bitsandbytes/imports-removed-triton-module"
_ELASTIC, _TORCHAO = "deepspeed/imports-removed-elastic-log", "peft/torchao-older-than-it-accepts"
READINGS = (
    Reading(
        _PEFT,
        "peft",
        r"peft_model\.py",
        r"^from transformers import .*HybridCache",
        ("0.16.0", "0.17.1"),
        ("0.15.2", "0.18.0"),
    ),
    Reading(_PEFT, *_CACHE),
    Reading(
        _LIGER,
        "liger-kernel",
        r"model/gemma2\.py",
        r"^from .*import HybridCache",
        ("0.4.1", "0.6.4"),
        ("0.4.0", "0.6.5"),
    ),
    Reading(_LIGER, *_CACHE),
    Reading(
        _VLLM,
        "vllm",
        r"transformers_utils/tokenizer\.py",
        r"tokenizer\.all_special_tokens_extended",
        ("0.4.0", "0.11.0"),
        ("0.3.3",),
    ),
    Reading(
        _VLLM,
        "transformers",
        r"tokenization_utils_base\.py",
        r"def all_special_tokens_extended",
        ("4.57.6",),
        ("5.0.0", "5.23.0"),
    ),
    Reading(
        _BNB,
        "bitsandbytes",
        r"bitsandbytes/triton/.*\.py",
        r"^ +from triton\.ops",
        ("0.38.1", "0.45.0"),
        ("0.38.0.post2", "0.45.1"),
    ),
    Reading(
        _BNB, "triton", r"triton/ops/matmul_perf_model\.py", r"def early_config_prune", ("3.1.0",), ("3.2.0", "3.9.0")
    ),
    Reading(
        _ELASTIC,
        "deepspeed",
        r"elastic_agent\.py",
        r"agent\.server\.api import log\b",
        ("0.7.0", "0.14.0"),
        ("0.6.7", "0.14.1"),
    ),
    Reading(_ELASTIC, "torch", r"elastic/agent/server/api\.py", r"^log = ", ("2.3.1",), ("2.4.0", "2.15.0")),
    Reading(
        _TORCHAO,
        "peft",
        r"peft/import_utils\.py",
        r'TORCHAO_MINIMUM_VERSION = .*"0\.16\.0"',
        ("0.19.0", "0.21.2"),
        ("0.18.1",),
    ),
)


@pytest.mark.parametrize("reading", READINGS, ids=lambda one: f"{one.rule}-{one.package}")
def test_the_readings_stand_on_both_sides_of_the_rules_bounds(reading: Reading) -> None:
    rule = yaml.safe_load((ROOT / "rules" / f"{reading.rule}.yaml").read_text(encoding="utf-8"))
    bounds = dict(re.findall(r"(>=|<)([\w.]+)", rule["affected"][reading.package]))
    read = set(map(Version, reading.there + reading.absent))
    if reading.package == reading.rule.partition("/")[0]:
        assert Version(bounds[">="]) == min(map(Version, reading.there))
        assert all(Version(bound) in read for sign, bound in bounds.items() if sign == ">=" or len(reading.absent) > 1)
    else:
        assert Version(bounds[">="]) == min(map(Version, reading.absent))
    assert Version(rule.get("checked_through", {}).get(reading.package, reading.there[-1])) in read


@pytest.mark.versions
@pytest.mark.parametrize("reading", READINGS, ids=lambda one: f"{one.rule}-{one.package}")
def test_the_line_is_in_the_released_files_and_not_in_their_neighbours(reading: Reading) -> None:
    from compatcheck.core.errors import InputError

    try:
        found = {version: has_line(reading, version) for version in (*reading.there, *reading.absent)}
    except InputError as error:
        pytest.skip(f"no package index: {error.message}")
    assert found == {**dict.fromkeys(reading.there, True), **dict.fromkeys(reading.absent, False)}


def has_line(reading: Reading, version: str) -> bool:
    """Look for the line in the wheel of a release, or in its source archive where there is none."""
    from compatcheck.services import releases

    files = [
        one
        for one in releases.list_files(reading.package)
        if releases.release_of(one.filename, reading.package) == Version(version)
    ]
    linux = [one for one in files if re.search(r"(x86_64|any)\.whl$", one.filename)]
    if linux:
        with releases.open_wheel(linux[0].url) as wheel:
            texts = [wheel.read(name) for name in wheel.namelist() if re.search(reading.file, name)]
    else:
        with releases._open(files[0].url, {}) as answer, tarfile.open(fileobj=io.BytesIO(answer.read())) as archive:
            members = [one for one in archive.getmembers() if one.isfile() and re.search(reading.file, one.name)]
            texts = [stream.read() for member in members if (stream := archive.extractfile(member)) is not None]
    return any(re.search(reading.line, text.decode(), re.MULTILINE) for text in texts)
