import re

import pytest
import yaml

from compatcheck.checking import Request, gather
from compatcheck.checking.shared import parse_settings
from compatcheck.collectors.machine.catalogue import UnknownDeviceError, load_catalogue, parse_gpu
from compatcheck.collectors.machine.instances import (
    build_instances,
    find_instance,
    instances_by_memory,
    instances_with,
    load_instances,
    parse_hardware,
)
from compatcheck.core.errors import UsageError
from compatcheck.core.source import Source
from compatcheck.core.units import GIB, MIB
from compatcheck.rules.locate import open_builtin, open_rules
from tests import ROOT

INSTANCES = load_instances()
PATH = ROOT / "rules" / "_instances.yaml"
FACTS = ROOT / "fixtures" / "cases" / "openrlhf-llama3-70b" / "facts.yaml"


@pytest.mark.parametrize(
    ("text", "gpu", "count", "nodes", "host_gib", "nvlink"),
    [
        ("p4de.24xlarge", "A100-80GB", 8, None, 1152, True),
        ("2xp4d.24xlarge", "A100-40GB", 8, 2, 1152, True),
        ("4 x P5.48xlarge", "H100-80GB", 8, 4, 2048, True),
        ("ml.g5.12xlarge", "A10G", 4, None, 192, False),
        ("p5.4xlarge", "H100-80GB", 1, None, 256, False),
        ("g6.48xlarge", "L4", 8, None, 768, None),
        ("nd96asr_v4", "A100-40GB", 8, None, 900, True),
        ("Standard_NC48ads_A100_v4", "A100-80GB-PCIe", 2, None, 440, None),
        ("a2-megagpu-16g", "A100-40GB", 16, None, 1360, True),
        ("a3-ultragpu-8g", "H200", 8, None, None, True),
        ("gpu_1x_gh200", "GH200-96GB", 1, None, 432, False),
        ("BM.GPU.H100.8", "H100-80GB", 8, None, None, True),
        ("3*gd-8xh100ib-i128", "H100-80GB", 8, 3, None, True),
    ],
)
def test_instances_by_the_names_people_write(text, gpu, count, nodes, host_gib, nvlink):
    hardware = parse_hardware(text)
    assert (hardware.gpu, hardware.gpus_per_node, hardware.nodes, hardware.nvlink) == (gpu, count, nodes, nvlink)
    assert hardware.host_memory_bytes == (None if host_gib is None else host_gib * GIB)
    assert hardware.memory_bytes == load_catalogue()[gpu].memory_bytes


def test_every_fact_names_the_instance_it_comes_from():
    gathered = gather(Request(training=(), paths=(str(FACTS),), gpu="2xp4d.24xlarge"), open_rules(), {})
    facts = gathered.subjects[0].roles["train"]
    expected = {
        "hardware.gpu": "A100-40GB",
        "hardware.memory_bytes": 40960 * MIB,
        "hardware.gpus_per_node": 8,
        "hardware.nodes": 2,
        "hardware.world_size": 16,
        "hardware.host_memory_bytes": 1152 * GIB,
        "hardware.nvlink": True,
    }
    assert {name: facts[name].value for name in expected} == expected
    assert {(facts[name].origin, facts[name].sources[0]) for name in expected} == {
        ("declared", Source("--gpu", "p4d.24xlarge")),
    }


def test_a_policy_keeps_its_own_place():
    place = Source("compatcheck.toml", "runs.a.gpu")
    assert parse_hardware("p4d.24xlarge", source=place).source == place


@pytest.mark.parametrize(
    ("nodes", "gpu", "expected"),
    [(None, "p4d.24xlarge", 4), (3, "p4d.24xlarge", 3), (2, "2xp4d.24xlarge", 2), (None, "2xp4d.24xlarge", 2)],
)
def test_nodes(nodes, gpu, expected):
    request = Request(paths=(str(FACTS),), gpu=gpu, nodes=nodes)
    subject = gather(request, open_rules(), {}).subjects[0]
    assert subject.roles["train"]["hardware.nodes"].value == expected


def test_two_numbers_of_nodes_are_a_mistake():
    with pytest.raises(UsageError, match="is 2 nodes, not 4"):
        gather(Request(paths=(str(FACTS),), gpu="2xp4d.24xlarge", nodes=4), open_rules(), {})


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("p4dn.24xlarge", "p4d.24xlarge"),
        ("2xp5.48xlage", "p5.48xlarge"),
        ("p4de", "p4de.24xlarge"),
        ("Standard_ND96isr_H100", "Standard_ND96isr_H100_v5"),
        ("a3-highgpu", "a3-highgpu-1g"),
        ("8xH100-60GB", "H100-80GB"),
    ],
)
def test_near_misses_get_suggestions(text, suggestion):
    with pytest.raises(UnknownDeviceError, match="unknown device") as caught:
        parse_hardware(text)
    assert suggestion in caught.value.hint


@pytest.mark.parametrize("text", ["", "0xp4d.24xlarge", "zzzzzz", "2x"])
def test_nonsense(text):
    with pytest.raises(UsageError) as caught:
        parse_hardware(text)
    assert caught.value.hint


def test_an_instance_is_more_than_a_device():
    with pytest.raises(UsageError, match="how many devices") as caught:
        parse_settings(["hardware.gpu=p4de.24xlarge"])
    assert caught.value.hint is not None
    assert "--gpu p4de.24xlarge" in caught.value.hint


def test_the_smallest_comes_first():
    ordered = instances_by_memory()
    assert len(ordered) == len(INSTANCES)
    sizes = [instance.gpus * instance.gpu.memory_bytes for instance in ordered]
    assert sizes == sorted(sizes)
    names = [instance.name for instance in ordered]
    assert names.index("p4d.24xlarge") < names.index("p4de.24xlarge") < names.index("p5e.48xlarge")
    smallest = next(item for item in ordered if item.gpu.memory_bytes >= 80 * GIB and item.gpus == 8)
    assert smallest.gpu.name == "A100-80GB"


def test_equal_device_memory_is_ordered_by_devices_then_main_memory():
    rows = {
        "many": {"cloud": "c", "gpu": "A100-40GB", "gpus": 2, "host_gib": 1},
        "unknown": {"cloud": "c", "gpu": "A100-80GB", "gpus": 1},
        "large": {"cloud": "c", "gpu": "A100-80GB", "gpus": 1, "host_gib": 2},
        "small": {"cloud": "c", "gpu": "A100-80GB", "gpus": 1, "host_gib": 1},
    }
    ordered = instances_by_memory(build_instances(rows, load_catalogue()).values())
    assert [instance.name for instance in ordered] == ["small", "large", "unknown", "many"]


@pytest.mark.parametrize(
    ("gpu", "gpus", "nodes", "name", "held"),
    [
        ("A100-80GB", 1, 1, "a2-ultragpu-1g", 1),
        ("A100-80GB", 16, 2, "p4de.24xlarge", 16),
        ("A100-40GB", 16, 1, "a2-megagpu-16g", 16),
        ("H200", 1, 1, "Standard_ND96isr_H200_v5", 8),
        ("T4", 3, 3, "g4dn.xlarge", 3),
        ("T4", 4, 1, "g4dn.12xlarge", 4),
    ],
)
def test_the_instances_that_hold_some_devices(gpu, gpus, nodes, name, held):
    fitting = instances_with(gpu, gpus, INSTANCES.values())
    assert (fitting[0][0], fitting[0][1].name) == (nodes, name)
    assert {count * instance.gpus for count, instance in fitting} == {held}


def test_a_device_nobody_rents_out():
    assert instances_with("RTX-3060", 1, INSTANCES.values()) == ()


def test_at_least_sixty_with_a_name_of_their_own():
    assert len(INSTANCES) >= 60
    assert {"AWS", "GCP", "Azure", "Lambda", "CoreWeave", "OCI"} == {item.cloud for item in INSTANCES.values()}
    for instance in INSTANCES.values():
        assert find_instance(instance.name) == instance
        assert find_instance(instance.name.upper()) == instance
        assert 1 <= instance.gpus <= 16
        assert instance.host_memory_bytes is None or GIB < instance.host_memory_bytes <= 4096 * GIB
        with pytest.raises(UsageError):  # none hides a device, whose name is looked for first
            parse_gpu(instance.name)


def test_every_row_says_where_it_is_from_and_the_database_leaves_that_out():
    text = PATH.read_text(encoding="utf-8")
    rows = yaml.safe_load(text)
    legend = {line[4:].split()[0] for line in text.splitlines() if line.startswith("#   ")}
    legend = {re.sub("/.*", "", key) for key in legend}
    for name, row in rows.items():
        assert row["source"], name
        assert {re.sub("/.*", "", source) for source in row["source"]} <= legend, name
        assert set(row.get("unverified", ())) <= {"nvlink", *row}, name
    compiled = open_builtin().section("instances")
    assert compiled.keys() == rows.keys()
    assert not any({"source", "unverified"} & row.keys() for row in compiled.values())
