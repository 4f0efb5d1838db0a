"""Builds of PyTorch's own distributions and the command that fetches them."""

import pytest

from compatcheck.core.builds import label_beside, write_install

INDEX = "--extra-index-url https://download.pytorch.org/whl/"


@pytest.mark.parametrize(
    ("pins", "command"),
    [
        ({"torch": "2.6.0+cu118"}, f"pip install 'torch==2.6.0+cu118' {INDEX}cu118"),
        (
            {"torchvision": "0.21.0+cpu", "peft": "0.19.0"},
            f"pip install 'torchvision==0.21.0+cpu' 'peft==0.19.0' {INDEX}cpu",
        ),
        ({"torch": "2.6.0"}, "pip install 'torch==2.6.0'"),
        ({"vllm": "0.8.5+cu121"}, "pip install 'vllm==0.8.5'"),
        ({"torch": "2.6.0+das.opt1"}, "pip install 'torch==2.6.0'"),
    ],
)
def test_a_label_is_kept_with_the_index_that_has_it(pins: dict[str, str], command: str) -> None:
    assert write_install(pins) == command


@pytest.mark.parametrize(
    ("name", "version", "torch", "label"),
    [
        ("torchvision", "0.21.0+cu124", "2.6.0+cu118", "cu118"),
        ("torchvision", "0.21.0", "2.6.0+cu118", "cu118"),
        ("torchvision", "0.21.0+cu118", "2.6.0", ""),
        ("torchvision", "0.21.0+cu118", None, "cu118"),
        ("torchaudio", "2.5.0", "2.6.0a0+df5bbc09d1.nv24.11", ""),
        ("torch", "2.6.0+cu118", "2.6.0+cu118", "cu118"),
        ("vllm", "0.8.5", "2.6.0+cu118", ""),
    ],
)
def test_what_pytorch_builds_has_the_label_of_the_torch_beside_it(
    name: str, version: str, torch: str | None, label: str
) -> None:
    assert label_beside(name, version, torch) == label
