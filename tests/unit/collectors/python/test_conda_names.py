"""Conda's names are told apart from those of distributions."""

from __future__ import annotations

import pytest

from compatcheck.collectors.python.conda_names import identify


@pytest.mark.parametrize(
    ("name", "build", "expected"),
    [
        ("pytorch", "py3.11_cuda12.4_cudnn9.1.0_0", "torch"),
        ("torchtriton", "py311", "triton"),
        ("flash-attn", None, "flash-attn"),
        ("huggingface_hub", "pyhd8ed1ab_0", "huggingface-hub"),
        ("msgpack-python", "py311h_0", "msgpack"),
        ("numpy-base", "py39h_0", "numpy"),
        ("some-new-package", "py311h06a4308_0", "some-new-package"),
        ("some-new-package", "gpu_cuda124py311h1_0", "some-new-package"),
        ("some-new-package", "cuda126_py312h7_300", "some-new-package"),
        ("some-new-package", "py_0", "some-new-package"),
        ("some-new-package", None, "some-new-package"),
        ("some-new-library", "h7f8727e_0", None),
        ("some-new-library", "happy_1", None),
        ("cudnn", None, None),
        ("cudatoolkit", None, None),
        ("nccl", "h1_0", None),
        ("libcublas", None, None),
        ("cuda-cudart", None, None),
        ("pytorch-cuda", "h1_5", None),
        ("openssl", None, None),
        ("_libgcc_mutex", "main", None),
    ],
)
def test_distribution_of_a_conda_package(name: str, build: str | None, expected: str | None) -> None:
    assert identify(name, build) == expected
