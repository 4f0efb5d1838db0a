import re

import pytest
import yaml

from compatcheck.collectors.machine.catalogue import build_catalogue, find_gpus, load_catalogue, parse_gpu
from compatcheck.core.errors import UsageError
from compatcheck.core.source import Source
from compatcheck.core.units import GIB, MIB
from compatcheck.rules.locate import open_builtin
from tests import ROOT

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("8xH100-80GB", "H100-80GB", 8),
        ("H100-80GB", "H100-80GB", None),
        ("h100", "H100-80GB", None),
        ("4 x NVIDIA A100-SXM4-40GB", "A100-40GB", 4),
        ("2×RTX 4090", "RTX-4090", 2),
        ("NVIDIA GeForce RTX 4090", "RTX-4090", None),
        ("NVIDIA H100 NVL", "H100-94GB-NVL", None),
        ("NVIDIA H100 PCIe", "H100-80GB-PCIe", None),
        ("NVIDIA GH200 480GB", "GH200-96GB", None),
        ("NVIDIA B300 SXM6 AC", "B300", None),
        ("Tesla T4", "T4", None),
        ("AMD Instinct MI300X", "MI300X", None),
        ("16*B200", "B200", 16),
    ],
)
def test_names_people_and_drivers_use(text, name, count):
    hardware = parse_gpu(text)
    assert (hardware.gpu, hardware.gpus_per_node) == (name, count)
    assert hardware.memory_bytes > GIB
    assert hardware.source.path == "--gpu"


def test_properties():
    hardware = parse_gpu("8xH100-80GB")
    assert (hardware.compute_capability, hardware.multiprocessors, hardware.nvlink) == (9.0, 132, True)
    assert hardware.memory_bytes == 81559 * MIB
    assert parse_gpu("P100").memory_bytes == 16 * GIB


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("8xH100-60GB", "H100-80GB"),
        ("A1000-80GB", "A100-80GB"),
        ("H10080", "H100-80GB"),
        ("RTX 4090 Ti", "RTX-4090"),
        ("mi300", "MI300X"),
    ],
)
def test_unknown_name_gets_suggestions(text, suggestion):
    with pytest.raises(UsageError, match="unknown device") as caught:
        parse_gpu(text)
    assert suggestion in caught.value.hint


@pytest.mark.parametrize("text", ["A100", "8xA100", "rtx 3080"])
def test_name_of_several_sizes_asks_which(text):
    with pytest.raises(UsageError, match="several sizes") as caught:
        parse_gpu(text)
    assert " or " in caught.value.hint


@pytest.mark.parametrize("text", ["", "  ", "0xT4", "zzzzzz", "8", "x", "8x"])
def test_nonsense(text):
    with pytest.raises(UsageError) as caught:
        parse_gpu(text)
    assert caught.value.hint


def test_every_name_and_alias_means_one_device_per_size():
    for gpu in CATALOGUE.values():
        assert find_gpus(gpu.name, CATALOGUE) == [gpu]
        for alias in gpu.aliases:
            assert gpu in find_gpus(alias, CATALOGUE)
            assert find_gpus(alias, CATALOGUE, gpu.memory_bytes) == [gpu]
            assert find_gpus(f"NVIDIA {alias}", CATALOGUE, gpu.memory_bytes) == [gpu]


def test_values_are_plausible():
    for gpu in CATALOGUE.values():
        assert 0.88 * gpu.marketed_gib * GIB <= gpu.memory_bytes <= 1.03 * gpu.marketed_gib * GIB, gpu.name
        assert gpu.compute_capability is None or 6.0 <= gpu.compute_capability <= 12.1
        assert gpu.multiprocessors is None or 10 <= gpu.multiprocessors <= 304


def test_catalogue_is_built_from_compiled_rows():
    rows = {"X1": {"gib": 8, "cc": 9.0, "sms": None, "architecture": "Test", "aliases": []}}
    assert find_gpus("X1", build_catalogue(rows))[0].memory_bytes == 8 * GIB


@pytest.mark.parametrize(
    ("name", "mib", "expected"),
    [
        ("NVIDIA H100", 81559, ["H100-80GB"]),
        ("NVIDIA H100", 95830, []),
        ("NVIDIA GeForce RTX 3060", 8192, []),
        ("NVIDIA GeForce RTX 5060 Ti", 8151, ["RTX-5060-Ti-8GB"]),
        ("NVIDIA A10", 24576, ["A10"]),
        ("NVIDIA A100-PG509-200", 40536, ["A100-40GB"]),
        ("NVIDIA GH200 144G HBM3e", 146831, ["GH200-144GB"]),
        ("Tesla V100", 32768, ["V100-32GB"]),
    ],
)
def test_reported_memory_decides_between_devices_of_one_name(name, mib, expected):
    assert [gpu.name for gpu in find_gpus(name, CATALOGUE, mib * MIB)] == expected


def test_every_row_says_where_it_is_from_and_the_database_leaves_that_out():
    path = ROOT / "rules" / "_gpus.yaml"
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    legend = {line[4:].split()[0] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#   ")}
    for name, row in rows.items():
        assert row["source"], name
        assert {re.sub(r"\(\d\)|/.*", "", source) for source in row["source"]} <= {
            re.sub("/.*", "", key) for key in legend
        }, name
        assert set(row.get("unverified", ())) <= set(row), name
    compiled = open_builtin().section("gpus")
    assert compiled.keys() == rows.keys()
    assert not any({"source", "unverified"} & row.keys() for row in compiled.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8xH100", "H100 is taken for H100-80GB; there are also H100-94GB-NVL, H100-96GB"),
        ("GH200", "GH200 is taken for GH200-96GB; there is also GH200-144GB"),
        ("8xH100-80GB", None),
        ("H100-SXM", None),
        ("H20", None),
        ("RTX-4070", None),
    ],
)
def test_a_name_without_a_size_says_which_it_is_taken_for(text: str, said: str | None) -> None:
    place = parse_gpu(text).sources.get("memory_bytes")
    assert (None if place is None else place.key) == said
    named = parse_gpu(text, source=Source("compatcheck.toml", "target.gpu")).sources.get("memory_bytes")
    assert (None if named is None else named.key) == (said and f"target.gpu: {said}")
