"""Every way a system tool can misbehave, with programs named nvidia-smi in front of PATH."""

import os
import sys
import time

import pytest

from compatcheck.collectors.machine import driver
from compatcheck.collectors.machine.driver import collect_hardware
from compatcheck.core.units import GIB, MIB

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")

H100 = "NVIDIA H100 80GB HBM3, 81559, 550.54.15, Disabled, 9.0"


@pytest.fixture
def machine(tmp_path):
    """Return a function that makes a machine: files below a root, and an nvidia-smi that runs a shell script."""

    def make(body=None, files=()):
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        for name, text in dict(files).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        if body is not None:
            tool = folder / "nvidia-smi"
            tool.write_text("#!/bin/sh\n" + body)
            tool.chmod(0o755)
        started = time.monotonic()
        hardware = collect_hardware({"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"}, root=str(root))
        assert time.monotonic() - started < 5
        assert hardware.gpus_per_node != 0
        return hardware

    return make


def reasons(hardware):
    return " | ".join(skipped.reason for skipped in hardware.skipped)


def test_machine_without_driver_says_nothing_about_devices(machine):
    hardware = machine()
    assert hardware.gpu is None
    assert hardware.gpus_per_node is None
    assert hardware.skipped == ()


def test_machine_without_driver_starts_no_process(machine, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    assert machine().gpu is None


def test_eight_devices(machine):
    hardware = machine(f"for i in 1 2 3 4 5 6 7 8; do echo '{H100}'; done\n")
    assert hardware.gpu == "H100-80GB"
    assert hardware.memory_bytes == 81559 * MIB
    assert hardware.compute_capability == 9.0
    assert hardware.multiprocessors == 132
    assert hardware.gpus_per_node == 8
    assert hardware.driver == "550.54.15"
    assert hardware.nvlink is True
    assert hardware.skipped == ()


def test_names_of_two_sizes_are_told_apart_by_memory(machine):
    assert machine("echo 'NVIDIA GeForce RTX 3080, 12288, 535.1.1, [N/A], 8.6'\n").gpu == "RTX-3080-12GB"


def test_device_outside_the_catalogue_keeps_what_the_tool_says(machine):
    hardware = machine("echo 'NVIDIA X900, 65536, 600.1, [N/A], 13.1'\n")
    assert hardware.gpu == "NVIDIA X900"
    assert hardware.memory_bytes == 64 * GIB
    assert hardware.compute_capability == 13.1
    assert hardware.multiprocessors is None


def test_old_driver_without_newer_fields(machine):
    body = """case "$1" in
    *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;;
    *) echo 'Tesla V100-SXM2-32GB, 32510, 450.80.02';;
    esac
    """
    hardware = machine(body)
    assert (hardware.gpu, hardware.compute_capability, hardware.driver) == ("V100-32GB", 7.0, "450.80.02")


def test_tool_that_hangs(machine):
    started = time.monotonic()
    hardware = machine(
        "sleep 60\n",
        {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu\n"},
    )
    assert 3 < time.monotonic() - started < 5
    assert "could not be read: nvidia-smi did not answer" in reasons(hardware)
    assert hardware.driver == "535.129.03"
    assert hardware.gpus_per_node is None


def test_tool_that_hangs_after_its_first_line(machine, monkeypatch):
    monkeypatch.setattr(driver, "BUDGET_SECONDS", 0.5)
    hardware = machine(f"echo '{H100}'\nsleep 60\n")
    assert "could not be read" in reasons(hardware)
    assert hardware.gpu is None


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_tool_that_floods(machine, stream):
    assert "could not be read: nvidia-smi printed more than" in reasons(machine(f"yes {stream}\n"))


@pytest.mark.parametrize(
    "body",
    [
        "echo 'segmentation fault in libnvidia'\n",
        "echo '1, 2, 3, 4, 5'\n",
        "echo '[N/A], [N/A], [N/A], [N/A], [N/A]'\n",
        "printf '\\360x\\b, \\001, \\002, \\003, \\004\\n'\n",
        "echo '<html>, <b>, x'\n",
        "true\n",
    ],
)
def test_tool_that_prints_something_else(machine, body):
    hardware = machine(body)
    assert hardware.gpu is None
    assert "could not be read" in reasons(hardware)
    assert all(skipped.hint for skipped in hardware.skipped)


@pytest.mark.parametrize(
    "message",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is running.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.",
    ],
)
def test_tool_that_fails(machine, message):
    hardware = machine(f'echo "{message}"\nexit 9\n')
    assert hardware.gpus_per_node is None
    assert f"could not be read: exit code 9: {message}" in reasons(hardware)


def test_tool_that_finds_no_devices(machine):
    hardware = machine("echo 'No devices were found'\nexit 6\n")
    assert reasons(hardware) == "nvidia-smi found no devices"
    assert hardware.gpus_per_node is None


def test_memory_that_is_not_available_comes_from_the_catalogue(machine):
    hardware = machine("echo 'NVIDIA H100 80GB HBM3, [N/A], 550.54.15, [N/A], [N/A]'\n")
    assert hardware.memory_bytes == 81559 * MIB
    assert hardware.compute_capability == 9.0
    assert "memory of NVIDIA H100 80GB HBM3 could not be read" in reasons(hardware)
    assert origins(hardware)["memory_bytes"] == ("GPU catalogue (H100-80GB)", True)


def origins(hardware):
    return {
        name: (hardware.sources.get(name, hardware.source).path, name in hardware.catalogued)
        for name in hardware._fields
        if name not in {"source", "sources", "catalogued", "skipped"} and getattr(hardware, name) is not None
    }


def test_every_value_names_who_said_it(machine):
    hardware = machine(f"echo '{H100}'\n", {"proc/meminfo": "MemTotal:       1048576 kB\n"})
    place = hardware.sources["host_memory_bytes"].path
    assert place.endswith("proc/meminfo")
    said, looked_up = ("nvidia-smi", False), ("GPU catalogue (H100-80GB)", True)
    assert origins(hardware) == {
        "gpu": said,
        "memory_bytes": said,
        "compute_capability": said,
        "multiprocessors": looked_up,
        "gpus_per_node": said,
        "driver": said,
        "host_memory_bytes": (place, False),
        "nvlink": looked_up,
    }


def test_memory_of_zero_is_not_credited_to_the_tool(machine):
    hardware = machine("echo 'NVIDIA H100 80GB HBM3, 0, 550.54.15, Disabled, 9.0'\n")
    assert "memory of NVIDIA H100 80GB HBM3 could not be read: '0'" in reasons(hardware)
    assert origins(hardware)["memory_bytes"] == ("GPU catalogue (H100-80GB)", True)


def test_tool_that_hangs_is_not_credited_with_what_files_said(machine, monkeypatch):
    monkeypatch.setattr(driver, "BUDGET_SECONDS", 0.3)
    files = {
        "proc/meminfo": "MemTotal:       1048576 kB\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu\n",
    }
    found = origins(machine("sleep 60\n", files))
    assert {name: path.rsplit("/", 1)[-1] for name, (path, _) in found.items()} == {
        "driver": "version",
        "host_memory_bytes": "meminfo",
    }


def test_container_limit_is_credited_to_the_control_group(machine):
    files = {"proc/meminfo": "MemTotal:       1048576 kB\n", "sys/fs/cgroup/memory.max": f"{256 * MIB}\n"}
    assert machine(files=files).sources["host_memory_bytes"].path.endswith("sys/fs/cgroup/memory.max")


def test_implausible_answers_are_said_and_not_used(machine):
    hardware = machine("echo 'NVIDIA H100 80GB HBM3, 99999999999999999999999, abc, Disabled, 900'\n")
    said = reasons(hardware)
    assert "memory of NVIDIA H100 80GB HBM3 could not be read: '99999999999999999999999'" in said
    assert "driver version could not be read: 'abc'" in said
    assert "compute capability of NVIDIA H100 80GB HBM3 could not be read: '900'" in said
    assert hardware.driver is None
    assert hardware.compute_capability == 9.0
    assert origins(hardware)["compute_capability"] == ("GPU catalogue (H100-80GB)", True)


@pytest.mark.parametrize("memory", ["-5", "0", "1", "nan", "inf", "99999999"])
def test_memory_that_no_device_has_is_said(machine, memory):
    hardware = machine(f"echo 'NVIDIA X900, {memory}, 600.1, [N/A], 13.1'\n")
    assert hardware.memory_bytes is None
    assert f"memory of NVIDIA X900 could not be read: '{memory}'" in reasons(hardware)


@pytest.mark.parametrize("name", ["[Not Found]", "[Unknown Error]", "[GPU requires reset]", "ERR!"])
def test_placeholder_is_no_device_name(machine, name):
    hardware = machine(f"echo '{name}, [N/A], [N/A], [N/A], [N/A]'\n")
    assert (hardware.gpu, hardware.gpus_per_node) == (None, None)
    assert "could not be read: unexpected line" in reasons(hardware)


def test_devices_that_differ(machine):
    hardware = machine(f"echo '{H100}'\necho 'NVIDIA A100-SXM4-40GB, 40960, 550.54.15, Disabled, 8.0'\n")
    assert (hardware.gpu, hardware.gpus_per_node) == ("A100-40GB", 2)
    assert "devices differ" in reasons(hardware)


def test_mig_instances_are_the_devices(machine):
    body = """if [ "$1" = -L ]; then
    echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'
    echo '  MIG 3g.40gb     Device  0: (UUID: MIG-1)'
    echo '  MIG 3g.40gb     Device  1: (UUID: MIG-2)'
    else echo 'NVIDIA H100 80GB HBM3, 81559, 550.54.15, Enabled, 9.0'; fi
    """
    hardware = machine(body)
    assert hardware.memory_bytes == 40 * GIB
    assert hardware.gpus_per_node == 2
    assert hardware.multiprocessors is None
    assert "MIG is on" in reasons(hardware)


def test_mig_without_instances_leaves_memory_unknown(machine, monkeypatch):
    monkeypatch.setattr(driver, "BUDGET_SECONDS", 0.5)
    hardware = machine(
        "if [ $1 = -L ]; then sleep 60; fi; echo 'NVIDIA H100 80GB HBM3, 81559, 550.54.15, Enabled, 9.0'\n",
    )
    assert hardware.memory_bytes is None
    assert hardware.gpus_per_node is None
    assert "MIG instances could not be read" in reasons(hardware)


def test_whole_device_beside_unread_instances_does_not_say_what_memory_there_is(machine):
    body = """if [ "$1" = -L ]; then exit 1; fi
    echo 'NVIDIA H100 80GB HBM3, 81559, 550.54.15, Enabled, 9.0'
    echo 'NVIDIA H100 80GB HBM3, 81559, 550.54.15, Disabled, 9.0'
    """
    hardware = machine(body)
    assert (hardware.memory_bytes, hardware.gpus_per_node) == (None, None)


def test_driver_without_any_tool(machine):
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    hardware = machine(files={"proc/driver/nvidia/version": text})
    assert hardware.driver == "580.65.06"
    assert "could not be read" in reasons(hardware)


def test_directory_named_like_the_tool(machine, tmp_path):
    (tmp_path / "bin" / "nvidia-smi").mkdir(parents=True)
    assert machine().skipped == ()


def test_amd_driver_is_said(machine):
    assert reasons(machine(files={"dev/kfd": ""})) == "devices of AMD are not read"


def test_host_memory_is_what_the_container_may_use(machine):
    files = {"proc/meminfo": "MemTotal:       1048576 kB\n", "sys/fs/cgroup/memory.max": f"{256 * MIB}\n"}
    assert machine(files=files).host_memory_bytes == 256 * MIB
    assert machine(files={"sys/fs/cgroup/memory.max": "max\n"}).host_memory_bytes == GIB
