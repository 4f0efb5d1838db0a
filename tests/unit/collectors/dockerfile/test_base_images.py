"""Names of images: what each form of tag promises."""

from __future__ import annotations

import pytest

from compatcheck.collectors.dockerfile.base_images import read_image_name


@pytest.mark.parametrize(
    ("name", "packages", "cuda"),
    [
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", {"torch": "2.5.1"}, "12.4"),
        ("docker.io/pytorch/pytorch:2.1.0-cuda11.8-cudnn8-runtime", {"torch": "2.1.0"}, "11.8"),
        ("pytorch/pytorch:2.5.1", {"torch": "2.5.1"}, None),
        ("runpod/pytorch:2.4.0-py3.11-cuda12.4.1-devel-ubuntu22.04", {"torch": "2.4.0"}, "12.4"),
        ("nvcr.io/nvidia/pytorch:24.10-py3", {"torch": "2.5.0a0+e000cf0ad9.nv24.10"}, "12.6"),
        ("nvcr.io/nvidia/pytorch:25.12-py3", {"torch": "2.10.0a0+b4e4ee81d3.nv25.12"}, "13.1"),
        ("nvcr.io/nvidia/pytorch:25.03-py3", {"torch": "2.7.0a0+7c8ec84dab.nv25.03"}, "12.8"),
        ("nvcr.io/nvidia/pytorch:25.02-py3", {"torch": "2.7.0a0+6c54963f75.nv25.02"}, None),
        ("nvcr.io/nvidia/pytorch:99.01-py3", {}, None),
        ("vllm/vllm-openai:v0.6.3.post1", {"vllm": "0.6.3.post1"}, None),
        ("lmsysorg/sglang:v0.4.6.post1-cu124", {"sglang": "0.4.6.post1"}, "12.4"),
        ("huggingface/transformers-pytorch-gpu:4.41.3", {"transformers": "4.41.3"}, None),
        ("mosaicml/llm-foundry:2.3.1_cu121-latest", {"torch": "2.3.1"}, "12.1"),
        ("winglian/axolotl-base:main-base-py3.11-cu124-2.4.1", {"torch": "2.4.1"}, "12.4"),
        (
            "hiyouga/verl:ngc-th2.6.0-cu126-vllm0.8.4-flashinfer0.2.2-cxx11abi0",
            {"torch": "2.6.0", "vllm": "0.8.4"},
            "12.6",
        ),
        (
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:2.1.0-transformers4.36.0-gpu-py310-cu121-x",
            {"torch": "2.1.0", "transformers": "4.36.0"},
            "12.1",
        ),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel@sha256:00ff", {"torch": "2.5.1"}, "12.4"),
    ],
)
def test_packages_and_cuda_of_a_tag(name: str, packages: dict[str, str], cuda: str | None) -> None:
    found = read_image_name(name)
    assert found is not None
    assert (dict(found.packages), found.cuda) == (packages, cuda)


def test_rocm_images_are_no_cuda_builds() -> None:
    found = read_image_name("rocm/pytorch:rocm6.2_ubuntu22.04_py3.10_pytorch_release_2.3.0")
    assert found is not None
    assert (dict(found.packages), found.build, found.cuda) == ({"torch": "2.3.0"}, "rocm", None)
    latest = read_image_name("rocm/pytorch:latest")
    assert latest is not None
    assert (dict(latest.packages), latest.build) == ({}, "rocm")


def test_cuda_images_bring_compatibility_libraries_and_no_packages() -> None:
    found = read_image_name("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04")
    assert found is not None
    assert (dict(found.packages), found.cuda, found.compat, found.bare) == ({}, None, "12.4", True)


@pytest.mark.parametrize(
    "name", ["ubuntu:22.04", "pytorch/pytorch", "pytorch/pytorch:latest", "nvidia/cuda", "scratch", "", ":::", "@"]
)
def test_names_that_promise_nothing(name: str) -> None:
    assert read_image_name(name) is None
