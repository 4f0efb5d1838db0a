"""The attention kernel that a GPU would take, by the conditions of torch's own selection."""

from __future__ import annotations

import pytest

from compatcheck.lab.traced.program.kernels import (
    CUDNN,
    EFFICIENT,
    FLASH,
    MATH,
    Call,
    Device,
    choose,
    flash_backward_bytes,
    matrix_workspace_bytes,
)

SHAPE = (2, 16, 512, 64)


def call(**changed: object) -> Call:
    return Call(dtype="bfloat16", query=SHAPE, key=SHAPE, value_size=64)._replace(**changed)


@pytest.mark.parametrize(
    ("changed", "device", "kernel"),
    [
        ({}, {}, FLASH),
        ({"causal": True}, {}, FLASH),
        ({"mask": True}, {}, EFFICIENT),
        ({"dtype": "float32"}, {}, EFFICIENT),
        ({"dtype": "float64"}, {}, MATH),
        ({}, {"capability": (7, 5)}, MATH),
        ({"dtype": "float16"}, {"capability": (7, 5)}, EFFICIENT),
        ({"query": (2, 16, 512, 256), "key": (2, 16, 512, 256), "value_size": 256}, {}, FLASH),
        ({"query": (2, 16, 512, 264), "key": (2, 16, 512, 264), "value_size": 264}, {}, EFFICIENT),
        ({"query": (2, 16, 512, 50), "key": (2, 16, 512, 50), "value_size": 50, "mask": True}, {}, MATH),
        ({"query": (2, 16, 512, 192), "key": (2, 16, 512, 192)}, {}, EFFICIENT),
        ({"causal": True, "key": (2, 16, 1024, 64)}, {}, EFFICIENT),
        ({"key": (2, 4, 512, 64)}, {}, MATH),
        ({"key": (2, 4, 512, 64), "grouped": True}, {}, FLASH),
        ({"key": (2, 4, 512, 64), "grouped": True, "mask": True}, {}, MATH),
        ({"key": (2, 4, 512, 64), "grouped": True, "mask": True}, {"torch": (2, 14)}, EFFICIENT),
        ({"query": (2, 16, 512, 224), "key": (2, 16, 512, 224), "value_size": 224}, {"capability": (8, 6)}, EFFICIENT),
        (
            {"query": (2, 16, 512, 224), "key": (2, 16, 512, 224), "value_size": 224, "gradients": False},
            {"capability": (8, 6)},
            FLASH,
        ),
        ({}, {"capability": (9, 0)}, FLASH),
        ({}, {"capability": (9, 0), "cudnn": 91300}, FLASH),
        ({}, {"capability": (9, 0), "cudnn": 91501}, CUDNN),
        ({"mask": True}, {"capability": (10, 0), "cudnn": 91501}, CUDNN),
        ({}, {"capability": (8, 0), "cudnn": 91501}, FLASH),
        ({}, {"capability": (9, 0), "cudnn": 91501, "torch": (2, 9)}, FLASH),
        ({}, {"enabled": (EFFICIENT, MATH)}, EFFICIENT),
        ({}, {"enabled": (MATH,)}, MATH),
    ],
)
def test_the_kernel_follows_from_the_call_and_the_device(
    changed: dict[str, object], device: dict[str, object], kernel: str
) -> None:
    assert choose(call(**changed), Device(**device)) == kernel  # type: ignore[arg-type]


def test_backward_of_flash_attention_sums_in_float32() -> None:
    sums, rows = 4 * 2 * 512 * 16 * 64, 4 * 2 * 16 * 512
    assert sorted(flash_backward_bytes(2, 16, 16, 512, 512, 64, 2)) == [rows, sums]
    grouped = flash_backward_bytes(2, 16, 4, 500, 500, 64, 2)
    assert sorted(grouped) == [rows, *[2 * 2 * 500 * 16 * 64] * 2, sums], "lengths are rounded to 128 for the sums"


def test_hopper_has_a_larger_workspace_for_matrix_products() -> None:
    assert matrix_workspace_bytes((8, 0)) == 8_519_680
    assert matrix_workspace_bytes((9, 0)) == 2**25
