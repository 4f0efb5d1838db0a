import json
import sys

import pytest

from compatcheck.collectors.python.dump import NOT_COLLECTED, collect_dump, format_dump
from compatcheck.collectors.python.interpreter import locate
from tests.unit.collectors.python.layouts import add_conda, add_dist, add_torch, make_prefix, site_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")

COLLECT_ENV = {
    "torch_version": ("torch", "version"),
    "is_debug_build": ("torch", "debug"),
    "cuda_compiled_version": ("torch", "built_for_cuda"),
    "hip_compiled_version": ("torch", "built_for_rocm"),
    "gcc_version": ("tools", "gcc"),
    "clang_version": ("tools", "clang"),
    "cmake_version": ("tools", "cmake"),
    "cuda_runtime_version": ("tools", "nvcc"),
    "os": ("system", "os"),
    "libc_version": ("system", "libc"),
    "python_platform": ("system", "platform"),
    "python_version": ("python", "version"),
    "nvidia_driver_version": ("gpu", "driver"),
    "nvidia_gpu_models": ("gpu", "name"),
    "cudnn_version": ("cudnn_files",),
    "pip_version": ("packages",),
    "pip_packages": ("packages",),
    "conda_packages": ("conda_packages",),
    "cuda_module_loading": ("variables",),
    "caching_allocator_config": ("variables",),
    "cpu_info": ("cpu",),
}
"""Every field of SystemEnv of torch 2.13 and where the dump has it; the others are in ``not_collected``."""


@pytest.fixture
def prefix(tmp_path):
    prefix = make_prefix(tmp_path / "python")
    site = site_of(prefix)
    add_torch(site, "2.5.1+cu124", cuda="12.4")
    folder = add_dist(site, "pkg", "1.0")
    (folder / "direct_url.json").write_text('{"url": "https://me:hunter2@example.org/pkg.whl"}')
    add_dist(site / "setuptools" / "_vendor", "packaging", "26.0")
    library = site / "nvidia" / "cudnn" / "lib"
    library.mkdir(parents=True)
    (library / "libcudnn.so.9").touch()
    add_conda(prefix, "nccl-2.23.4.1-h52f6c39_3")
    return prefix


@pytest.fixture
def dump(prefix, tmp_path):
    environ = {
        "PATH": str(tmp_path),
        "HF_TOKEN": "hf_secretsecretsecret",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:true",
    }
    return collect_dump(locate(None, str(prefix), {}), environ)


def test_is_json(dump):
    assert json.loads(json.dumps(dump)) == dump


def test_is_a_superset_of_collect_env(dump):
    for field, path in COLLECT_ENV.items():
        value = dump
        for key in path:
            assert key in value, field
            value = value[key]
    assert not set(COLLECT_ENV) & set(NOT_COLLECTED)


def test_what_it_holds(dump, prefix):
    assert dump["torch"]["built_for_cuda"] == "12.4"
    assert dump["vendored"] == [
        {
            "name": "packaging",
            "version": "26.0",
            "source": str(site_of(prefix) / "setuptools/_vendor/packaging-26.0.dist-info"),
        }
    ]
    assert {package["name"] for package in dump["packages"]} == {"torch", "pkg"}
    assert dump["packages"][0]["installer"] == "pip"
    assert dump["conda_packages"] == ["nccl 2.23.4.1 h52f6c39_3"]
    assert any(path.endswith("libcudnn.so.9") for path in dump["cudnn_files"])
    assert dump["limits"]["memory_bytes"] is None or dump["limits"]["memory_bytes"] > 2**20
    assert "expandable_segments cannot be 'true'" in dump["skipped"][0]


def test_holds_no_credentials(dump):
    for text in (json.dumps(dump), format_dump(dump)):
        assert "hunter2" not in text
        assert "hf_secret" not in text


def test_text(dump):
    text = format_dump(dump)
    assert "pkg==1.0 (installer: pip" in text or "pkg==1.0 (direct_url" in text
    assert "  HF_TOKEN: [redacted]" in text
    assert "gcc: not found" in text


def test_tools_that_hang_are_named(prefix, tmp_path, monkeypatch):
    monkeypatch.setattr("compatcheck.collectors.python.dump.TOOL_SECONDS", 0.2)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in {"gcc": "sleep 60", "nvcc": "exit 1", "cmake": "echo cmake version 3.30.1"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    tools = collect_dump(locate(None, str(prefix), {}), {"PATH": f"{folder}:/usr/bin:/bin"})["tools"]
    assert tools["gcc"].startswith("could not be read: gcc did not answer")
    assert tools["nvcc"] == "could not be read: exit code 1"
    assert tools["cmake"] == "3.30.1"
