import json
import time

import pytest

from compatcheck.collectors.image.wanted_files import (
    judge_directory,
    judge_file,
    judge_link,
    keep_dpkg_fields,
    keep_headers,
    keep_python_script,
    keep_record,
    keep_script,
)
from compatcheck.collectors.python.version_files import VERSION_FILES

SITE = "opt/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    "path",
    [
        f"{SITE}/torch-2.5.0.dist-info/METADATA",
        f"{SITE}/torch-2.5.0.dist-info/direct_url.json",
        f"{SITE}/torch-2.5.0.dist-info/INSTALLER",
        f"{SITE}/torch-2.5.0.DIST-INFO/METADATA",
        f"{SITE}/old.egg-info",
        f"{SITE}/old.egg-info/PKG-INFO",
        f"{SITE}/easy.pth",
        "usr/lib/python3/dist-packages/_distutils.pth",
        f"{SITE}/project.egg-link",
        "opt/venv/pyvenv.cfg",
        *(f"{SITE}/{path}" for path, _ in VERSION_FILES.values()),
        f"{SITE}/torch/share/cmake/Torch/TorchConfig.cmake",
        "opt/conda/conda-meta/pytorch-2.5.0-py3.11_cuda12.4_0.json",
        "etc/os-release",
        "usr/lib/os-release",
        "var/lib/dpkg/status",
        "var/lib/dpkg/status.d/libc6",
        "var/lib/rpm/rpmdb.sqlite",
        "usr/local/cuda-12.4/version.json",
        "usr/local/cuda/version.txt",
        "usr/include/cudnn_version_v9.h",
        "etc/ld.so.conf.d/cuda.conf",
        "usr/local/bin/torchrun",
        "docker-entrypoint.sh",
        "app/start.sh",
        "start",
    ],
)
def test_content_is_kept_of_what_says_what_is_installed(path):
    assert judge_file(path.encode()).limit > 0


@pytest.mark.parametrize(
    "path",
    [
        "usr/bin/python3.11",
        "opt/venv/bin/python",
        "opt/pypy/bin/pypy3.10",
        "usr/lib/python3.11/os.py",
        "usr/local/cuda/lib64/libcudart.so.12.4.127",
        "usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0",
        f"{SITE}/eggs/old-1.0-py3.11.egg",
        "root/.cache/uv/CACHEDIR.TAG",
        "var/lib/rpm/Packages",
        "usr/lib/sysimage/rpm/Packages.db",
    ],
)
def test_other_files_are_kept_by_name(path):
    assert judge_file(path.encode()).limit == 0


@pytest.mark.parametrize(
    "path",
    [
        "models/weights.pth",
        f"{SITE}/torch/os.py",
        f"{SITE}/torch/lib/libtorch_cuda.so",
        f"{SITE}/pkg/data.json",
        f"{SITE}/torch-2.5.0.dist-info/licenses/LICENSE",
        "usr/share/doc/python3/version.txt",
        "home/user/.config/status",
        "usr/lib/version.py",
        f"{SITE}/mytorch/version.py",
        "usr/share/x/run.sh",
        "var/lib/dpkg/status.d/libc6.md5sums",
        "data/images/00001",
    ],
)
def test_everything_else_is_passed_over(path):
    assert judge_file(path.encode()) is None


def test_directories_and_links_that_may_lead_to_an_environment_are_kept():
    assert all(map(judge_directory, (SITE.encode(), b"opt/conda/conda-meta", b"a-1.dist-info", b"a.egg-info")))
    assert not judge_directory(b"usr/lib")
    assert all(
        map(
            judge_link,
            (b"lib", b"usr/bin/python3", b"etc/alternatives/cuda", b"usr/local/cuda", b"usr/lib64/libcudnn.so.9"),
        )
    )
    assert not any(
        map(judge_link, (b"usr/lib/libz.so.1", b"usr/share/doc/a", b"etc/ssl/certs/0.pem", b"etc/alternatives/vi"))
    )


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_of_metadata_the_headers_are_kept(ending):
    headers = b"Name: a" + ending + b"Version: 1" + ending
    assert keep_headers(headers + ending + b"Long text" + ending + ending + b"more") == headers
    assert keep_headers(headers) == headers


def test_of_scripts_of_python_the_first_line_is_kept():
    assert keep_script(b"#!/opt/venv/bin/python3\nimport sys\n") == b"#!/opt/venv/bin/python3\n"
    assert keep_script(b"#!/bin/sh\nexec python train.py\n") == b"#!/bin/sh\nexec python train.py\n"
    assert keep_python_script(b"#!/usr/bin/env python3\nx\n") == b"#!/usr/bin/env python3\n"
    assert keep_python_script(b"#!/usr/bin/perl\nx\n") is None


def test_of_dpkg_the_fields_that_name_versions_are_kept():
    status = b"Package: libc6\nStatus: install ok installed\nDescription: long\n more\n\nPackage: b\nVersion: 1"
    assert keep_dpkg_fields(status) == b"Package: libc6\nStatus: install ok installed\n\nPackage: b\nVersion: 1\n"


def test_of_a_conda_record_scalars_and_metadata_are_kept():
    record = {
        "build": "py311_0",
        "build_number": 0,
        "channel": "https://conda.example/main",
        "depends": ["python >=3.11"],
        "files": [
            "lib/python3.11/site-packages/numpy-1.26.4.dist-info/METADATA",
            "lib/python3.11/site-packages/numpy/a.py",
        ],
        "name": "numpy",
        "version": "1.26.4",
    }
    for indent in (None, 2):
        kept = json.loads(keep_record(json.dumps(record, indent=indent).encode()))
        assert kept == {
            **{key: record[key] for key in ("build", "build_number", "channel", "name", "version")},
            "files": ["site-packages/numpy-1.26.4.dist-info/METADATA"],
        }
    assert json.loads(keep_record(b'{"name": "cut o')) == {"files": []}


@pytest.mark.parametrize(
    "unit",
    [b"a", b'"', b"\n", b" ", b"site-packages/", b'"name": "', b'"name" ', b"\\", b"Package: a\n", b"#!", b"\r\n"],
)
def test_what_is_kept_is_found_in_linear_time(unit):
    def spend(size):
        data = unit * (size // len(unit))
        start = time.process_time()
        for reduce in (keep_record, keep_dpkg_fields, keep_headers, keep_script, keep_python_script):
            reduce(data)
        return time.process_time() - start

    # A MiB takes up to 0.3 s here; what is quadratic takes hours.
    assert min(spend(2**20) for _ in range(2)) < 3.0
