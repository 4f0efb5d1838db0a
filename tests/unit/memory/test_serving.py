"""Servers: held against what vLLM printed at its start, and against what makes it refuse to start."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compatcheck import check, estimate
from compatcheck.core.units import GIB

if TYPE_CHECKING:
    from compatcheck.core.estimate_report import EstimateReport

RUNS = json.loads((Path(__file__).parents[3] / "fixtures/estimates/servers.json").read_text("utf-8"))["runs"]
WORK = frozenset({"forward and sampling", "workspace of experts", "images and audio"})


def _estimate(
    folder: Path, command: str, gpu: str | None, vllm: str = "0.19.0", sglang: str = "0.5.5"
) -> EstimateReport:
    script, pins = folder / "serve.sh", folder / "requirements.txt"
    script.write_text(command + "\n", encoding="utf-8")
    pins.write_text(f"vllm=={vllm}\nsglang=={sglang}\n", encoding="utf-8")
    (report,) = estimate(pins, training=[script], gpu=gpu).value.reports
    return report


def _sizes(report: EstimateReport, phase: str) -> dict[str, int]:
    (found,) = (one for one in report.estimate.phases if one.name == phase)
    return {part.name: part.size.expected for part in found.components}


def test_what_vllm_printed_at_its_start(tmp_path: Path) -> None:
    weights, work, cache = [], [], []
    for model, tensor, pipeline, options, *truth in RUNS:
        command = f"vllm serve {model} -tp {tensor} -pp {pipeline} --max-model-len 8192 --gpu-memory-utilization 0.95 {options}"
        report = _estimate(tmp_path, command, f"{tensor * pipeline}xH100-80GB")
        of_weights, of_work, of_cache, tokens = truth
        loaded, profiled = _sizes(report, "load"), _sizes(report, "profile")
        if of_weights:
            weights.append(sum(size for name, size in loaded.items() if "weights" in name) / GIB / of_weights - 1)
        if of_work:
            work.append(sum(size for name, size in profiled.items() if name in WORK) / GIB / of_work - 1)
        if of_cache:
            cache.append(_sizes(report, "rollout")["KV cache"] / GIB / of_cache - 1)
        if tokens:
            assert report.estimate.capacity is not None
            low, expected, high = report.estimate.capacity.tokens
            assert low <= tokens <= high, command
            assert expected == pytest.approx(tokens, rel=0.01)
    assert max(map(abs, weights)) < 0.01
    assert max(map(abs, cache)) < 0.006
    assert statistics.median(map(abs, work)) < 0.015
    assert max(map(abs, work)) < 0.10


@pytest.mark.parametrize(
    ("gpu", "vllm", "command", "outcome"),
    [  # the first two: vllm issues 13061 (one sequence of 131,072 tokens, 81,536 fit) and 21348 (178,880 tokens)
        (
            "2xRTX4090",
            "0.7.2",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B -tp 2 --gpu-memory-utilization 0.98",
            "does_not_fit",
        ),
        ("4xH100-80GB", "0.9.2", "Qwen/Qwen3-235B-A22B-FP8 --tensor-parallel-size 4", "fits"),
        ("A100-80GB", "0.11.0", "Qwen/Qwen2.5-32B-Instruct --max-model-len 131072", "does_not_fit"),
        ("A100-80GB", "0.11.0", "Qwen/Qwen2.5-32B-Instruct --max-model-len auto", "fits"),
        ("A100-80GB", "0.11.0", "Qwen/Qwen2.5-32B-Instruct --max-model-len 32k", "marginal"),
        ("A100-80GB", "0.11.0", "Qwen/Qwen2.5-32B-Instruct --max-model-len 16k", "fits"),
        ("A100-80GB", "0.11.0", "Qwen/Qwen2.5-72B-Instruct", "does_not_fit"),
    ],
)
def test_an_engine_starts_where_its_cache_holds_one_sequence(
    tmp_path: Path, gpu: str, vllm: str, command: str, outcome: str
) -> None:
    found = _estimate(tmp_path, f"vllm serve {command}", gpu, vllm).estimate
    assert found.verdict.outcome == outcome
    assert (found.needed.low > found.verdict.limit_bytes) == (outcome == "does_not_fit")


def test_one_that_does_not_start_needs_what_its_cache_lacks(tmp_path: Path) -> None:
    found = _estimate(
        tmp_path, "vllm serve Qwen/Qwen2.5-32B-Instruct --max-model-len 131072", "A100-80GB", "0.11.0"
    ).estimate
    assert found.capacity is not None
    each = 2 * 2 * 8 * 128 * 64
    missing = each * 131072 - each * found.capacity.tokens.expected
    assert -found.verdict.margin_bytes == pytest.approx(missing, abs=2 * each)


def test_a_server_is_told_by_what_decides_about_it(tmp_path: Path) -> None:
    base = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192"
    tokens = {}
    for options in (
        "",
        "--kv-cache-dtype fp8",
        "--quantization fp8",
        "-tp 2",
        "--kv-cache-memory-bytes 4G",
        "--enforce-eager",
    ):
        capacity = _estimate(tmp_path, f"{base} {options}", "2xH100-80GB", "0.20.0").estimate.capacity
        assert capacity is not None
        tokens[options] = capacity.tokens.expected
    assert tokens["--kv-cache-dtype fp8"] == 2 * tokens[""]
    assert tokens["-tp 2"] > 2 * tokens[""]
    assert tokens["--quantization fp8"] > tokens[""]
    assert tokens["--enforce-eager"] > tokens[""]  # graphs are in the budget from 0.20 on
    assert tokens["--kv-cache-memory-bytes 4G"] == 4 * GIB // (2 * 2 * 4 * 128 * 28)
    report = _estimate(tmp_path, f"{base} --cpu-offload-gb 20", "H100-80GB")
    assert report.doubts.gaps
    drafted = _estimate(tmp_path, base + """ --speculative-config '{"model": "x"}'""", "H100-80GB").estimate
    assert [one.name for one in drafted.unmodelled] == ["speculative decoding"]


def test_sglang_shares_what_is_free(tmp_path: Path) -> None:
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3-235B-A22B-FP8 --tp 4 --mem-fraction-static 0.93"
    found = _estimate(tmp_path, command, "4xH100-80GB", sglang="0.4.9").estimate
    assert found.capacity is not None  # vllm issue 21348: 367,404 tokens
    assert found.capacity.tokens.low <= 367_404 <= found.capacity.tokens.high
    assert found.capacity.tokens.expected == pytest.approx(367_404, rel=0.1)


def test_without_a_device_the_least_is_told(tmp_path: Path) -> None:
    found = _estimate(tmp_path, "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192", None).estimate
    assert found.verdict.outcome == "unknown"
    assert found.capacity is None
    assert (
        _sizes(_estimate(tmp_path, "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192", None), "rollout")[
            "KV cache, at least"
        ]
        == 8192 * 2 * 2 * 4 * 128 * 28
    )


def test_a_model_of_no_stated_length_is_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "new", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                                  "vocab_size": 1000}), encoding="utf-8")  # fmt: skip
    found = _estimate(tmp_path, f"vllm serve {tmp_path}", "H100-80GB").estimate
    assert found.needs == ("rollout.max_model_len",)


def test_a_server_needs_as_many_devices_as_it_splits_its_model_over(tmp_path: Path) -> None:
    found = _estimate(tmp_path, "vllm serve Qwen/Qwen2.5-7B-Instruct -tp 2 -pp 2", "2xH100-80GB").estimate
    assert not found.phases
    assert found.verdict.primary is not None
    assert "needs 4 devices, and there are 2" in found.verdict.primary
    assert _estimate(tmp_path, "vllm serve Qwen/Qwen2.5-7B-Instruct -tp 2", "8xH100-80GB").estimate.phases


@pytest.mark.parametrize(
    "options",
    [
        "--max-model-len 9e999k",
        "--max-model-len infk",
        "--max-model-len ٣k",
        "--max-model-lenn 4096",
        "--config serve.yaml",
    ],
)
def test_what_is_not_understood_is_said(tmp_path: Path, options: str) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(f"vllm serve {options} Qwen/Qwen2.5-7B-Instruct\n", encoding="utf-8")
    found = check(training=[script], gpu="A100-80GB")
    assert found.exit_code == 4 or any(one.gaps for one in found.value.subjects)


@pytest.mark.parametrize("share", ["-0.5", "0", "1.5", "1e308"])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: str) -> None:
    found = _estimate(
        tmp_path, f"vllm serve Qwen/Qwen2.5-7B-Instruct --gpu-memory-utilization {share}", "A100-80GB"
    ).estimate
    assert not found.phases
    assert "is no share of a device" in str(found.verdict.primary)


def test_a_switch_takes_no_model(tmp_path: Path) -> None:
    report = _estimate(
        tmp_path, "vllm serve --enforce-eager --max-model-len 8192 Qwen/Qwen2.5-7B-Instruct", "A100-80GB"
    )
    assert report.subject.startswith("Qwen/Qwen2.5-7B-Instruct")
    assert report.estimate.phases
