"""Rules about a name that one release imports and another does not have: each boundary, read in the released files."""

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
    """Releases that have the line: the bounds of the rule, for what imports; what is outside, for what is imported."""
    absent: tuple[str, ...]
    clause: int = 0
    """Which of the rule's clauses, where it has several."""


_CACHE = ("transformers", r"transformers/cache_utils\.py", r"class HybridCache\b", ("4.57.6",), ("5.0.0", "5.24.0"))
_PEFT, _LIGER = "peft/imports-removed-cache-class", "liger-kernel/imports-removed-cache-class"
_DOCSTRINGS = "liger-kernel/imports-removed-docstrings"
_VLLM, _BNB = "vllm/reads-removed-tokenizer-attribute", "bitsandbytes/imports-removed-triton-module"
_ELASTIC, _TORCHAO = "deepspeed/imports-removed-elastic-log", "peft/torchao-older-than-it-accepts"
_SOCKET, _NUMPY = "deepspeed/imports-removed-socket-helper", "deepspeed/imports-removed-numpy-constant"
_FILTER, _DECODING = "trl/imports-removed-sampling-filter", "trl/imports-removed-decoding-class"
_PREFIX, _LOFTQ = "peft/imports-cache-class-of-newer-transformers", "peft/imports-function-of-newer-accelerate"
_AIMV2, _VISION = "vllm/registers-model-type-that-transformers-has", "verl/imports-removed-vision-class"
_OLDER = "transformers/turns-off-older-torch"
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
        _DOCSTRINGS,
        "liger-kernel",
        r"model/llama\.py",
        r"_CONFIG_FOR_DOC",
        ("0.0.0", "0.5.9"),
        ("0.5.10",),
    ),
    Reading(
        _DOCSTRINGS,
        "transformers",
        r"models/llama/modeling_llama\.py",
        r"^_CONFIG_FOR_DOC",
        ("4.51.3",),
        ("4.52.0", "5.24.0"),
    ),
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
        ("5.0.0", "5.24.0"),
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
        r'TORCHAO_MINIMUM_VERSION = .*"0\.4\.0"',
        ("0.14.0", "0.18.1"),
        ("0.13.2", "0.19.0"),
    ),
    Reading(
        _TORCHAO,
        "peft",
        r"peft/import_utils\.py",
        r'TORCHAO_MINIMUM_VERSION = .*"0\.16\.0"',
        ("0.19.0", "0.21.2"),
        ("0.18.1",),
        clause=1,
    ),
    Reading(
        _SOCKET,
        "deepspeed",
        r"elastic_agent\.py",
        r"agent\.server\.api import _get_socket_with_port",
        ("0.14.1", "0.14.3"),
        ("0.14.0", "0.14.4"),
    ),
    Reading(
        _SOCKET,
        "torch",
        r"elastic/agent/server/api\.py",
        r"^def _get_socket_with_port",
        ("2.3.1",),
        ("2.4.0", "2.15.0"),
    ),
    Reading(
        _NUMPY,
        "deepspeed",
        r"autotuning/scheduler\.py",
        r"^from numpy import BUFSIZE",
        ("0.5.7", "0.14.3"),
        ("0.5.6", "0.14.4"),
    ),
    Reading(_NUMPY, "numpy", r"numpy/__init__\.pyi", r"^BUFSIZE: |^ +BUFSIZE as ", ("1.26.4",), ("2.0.0", "2.5.5")),
    Reading(
        _FILTER,
        "trl",
        r"trl/core\.py",
        r"^from transformers import top_k_top_p_filtering",
        ("0.2.0", "0.7.11"),
        ("0.1.0", "0.8.0"),
    ),
    Reading(
        _FILTER,
        "transformers",
        r"transformers/__init__\.py",
        r"^ +top_k_top_p_filtering,",
        ("4.38.2",),
        ("4.39.0", "5.24.0"),
    ),
    Reading(
        _DECODING,
        "trl",
        r"trainer/grpo_trainer\.py",
        r"^    from vllm\.sampling_params import GuidedDecodingParams",
        ("0.18.0", "0.26.2"),
        ("0.17.0", "0.27.0"),
    ),
    Reading(
        _DECODING,
        "trl",
        r"trainer/rloo_trainer\.py",
        r"^    from vllm\.sampling_params import GuidedDecodingParams",
        ("0.22.0", "0.26.2"),
        ("0.21.0", "0.27.0"),
        1,
    ),
    Reading(
        _DECODING,
        "trl",
        r"online_dpo_trainer\.py",
        r"^    from vllm\.sampling_params import GuidedDecodingParams",
        ("0.23.0", "0.26.2"),
        ("0.22.2", "0.27.0"),
        2,
    ),
    Reading(
        _DECODING,
        "trl",
        r"scripts/vllm_serve\.py",
        r"^    from vllm\.sampling_params import GuidedDecodingParams",
        ("0.16.0", "0.26.2"),
        ("0.15.2", "0.27.0"),
        3,
    ),
    Reading(
        _DECODING,
        "vllm",
        r"vllm/sampling_params\.py",
        r"^class GuidedDecodingParams\b",
        ("0.11.2",),
        ("0.12.0", "0.33.0"),
    ),
    Reading(
        _PREFIX,
        "peft",
        r"peft/peft_model\.py",
        r"^from transformers import .*EncoderDecoderCache",
        ("0.14.0", "0.21.2"),
        ("0.13.2",),
    ),
    Reading(
        _PREFIX, "transformers", r"cache_utils\.py", r"^class EncoderDecoderCache\b", ("4.43.0", "5.24.0"), ("4.42.4",)
    ),
    Reading(
        _PREFIX,
        "peft",
        r"peft/peft_model\.py",
        r"^from transformers import .*HybridCache",
        ("0.16.0", "0.17.1"),
        ("0.15.2", "0.18.0"),
        1,
    ),
    Reading(_PREFIX, "transformers", r"transformers/__init__\.py", r'^ +"HybridCache"', ("4.44.0",), ("4.43.4",), 1),
    Reading(
        _PREFIX,
        "peft",
        r"tuners/lora/model\.py",
        r"^from transformers\.modeling_layers import",
        ("0.18.0",),
        ("0.17.1", "0.18.1"),
        2,
    ),
    Reading(
        _PREFIX,
        "transformers",
        r"transformers/modeling_layers\.py",
        r"^class GradientCheckpointingLayer\b",
        ("4.52.0",),
        ("4.51.3",),
        2,
    ),
    Reading(
        _LOFTQ,
        "peft",
        r"utils/loftq_utils\.py",
        r"^from accelerate\.utils\.memory import clear_device_cache",
        ("0.15.0", "0.21.2"),
        ("0.14.0",),
    ),
    Reading(_LOFTQ, "accelerate", r"utils/memory\.py", r"^def clear_device_cache\b", ("0.32.0", "1.15.0"), ("0.31.0",)),
    Reading(
        _AIMV2,
        "vllm",
        r"transformers_utils/configs/.*\.py",
        r'AutoConfig\.register\("aimv2", ',
        ("0.9.0", "0.9.2"),
        ("0.8.5.post1", "0.10.0"),
    ),
    Reading(
        _AIMV2,
        "transformers",
        r"models/auto/.*\.py",
        r'\("aimv2", "Aimv2Config"\)',
        ("4.54.0", "5.24.0"),
        ("4.53.3",),
    ),
    Reading(
        _VISION, "verl", r"verl/utils/model\.py", r"^ +AutoModelForVision2Seq,$", ("0.6.0", "0.7.0"), ("0.5.0", "0.7.1")
    ),
    Reading(
        _VISION,
        "verl",
        r"workers/fsdp_workers\.py",
        r"from transformers import .*AutoModelForVision2Seq",
        ("0.3.0.post0", "0.5.0"),
        ("0.2.0.post2",),
        1,
    ),
    Reading(
        _VISION,
        "transformers",
        r"models/auto/modeling_auto\.py",
        r"^class AutoModelForVision2Seq\b",
        ("4.57.6",),
        ("5.0.0", "5.24.0"),
    ),
    *(
        Reading(
            _OLDER, "transformers", r"utils/import_utils\.py", rf"PyTorch >= {least} is required", there, absent, clause
        )
        for clause, (least, there, absent) in enumerate(
            (
                (r"2\.1", ("4.52.0", "4.57.6"), ("4.51.3", "5.0.0")),
                (r"2\.2", ("5.0.0",), ("4.57.6", "5.1.0")),
                (r"2\.4", ("5.1.0", "5.14.1"), ("5.0.0", "5.15.0")),
                (r"2\.5", ("5.15.0", "5.19.0"), ("5.14.1", "5.20.0")),
                (r"2\.6", ("5.20.0", "5.24.0"), ("5.19.0",)),
            )
        )
    ),
)


@pytest.mark.parametrize("reading", READINGS, ids=lambda one: f"{one.rule}-{one.package}")
def test_the_readings_stand_on_both_sides_of_the_rules_bounds(reading: Reading) -> None:
    rule = yaml.safe_load((ROOT / "rules" / f"{reading.rule}.yaml").read_text(encoding="utf-8"))
    affected = rule["affected"]
    clause = affected[reading.clause] if isinstance(affected, list) else affected
    bounds = dict(re.findall(r"(>=|<)([\w.]+)", clause[reading.package]))
    read = set(map(Version, reading.there + reading.absent))
    if reading.package == reading.rule.partition("/")[0]:
        assert Version(bounds[">="]) == min(map(Version, reading.there))
        assert all(Version(bound) in read for sign, bound in bounds.items() if sign == ">=" or len(reading.absent) > 1)
    else:
        # a name that has come: too late for what imports it, or in the way of what registers it; else one that has gone
        came = max(map(Version, reading.absent)) < min(map(Version, reading.there))
        bound = bounds.get("<", bounds.get(">=")) if came else bounds[">="]
        assert Version(str(bound)) == min(map(Version, reading.there if came else reading.absent))
    if "<" not in bounds:
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
        with tarfile.open(fileobj=io.BytesIO(releases._fetch(files[0].url, {}).body)) as archive:
            members = [one for one in archive.getmembers() if one.isfile() and re.search(reading.file, one.name)]
            texts = [stream.read() for member in members if (stream := archive.extractfile(member)) is not None]
    return any(re.search(reading.line, text.decode(), re.MULTILINE) for text in texts)
