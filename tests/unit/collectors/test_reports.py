"""Pasted reports: the formats of every tool, written here as it prints them, and what happens to them on their way."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatcheck.collectors.reports.find import FoundReport, find_reports, read_reports
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.units import GIB, MIB

COLLECT_ENV = """\
Collecting environment information...
PyTorch version: 2.5.1+cu124
Is debug build: False
CUDA used to build PyTorch: 12.4
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.5 LTS (x86_64)
GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
Clang version: Could not collect
CMake version: version 3.31.1
Libc version: glibc-2.35

Python version: 3.10.12 (main, Nov  6 2024, 20:22:13) [GCC 11.4.0] (64-bit runtime)
Python platform: Linux-5.15.0-122-generic-x86_64-with-glibc2.35
Is CUDA available: True
CUDA runtime version: 12.1.105
CUDA_MODULE_LOADING set to: LAZY
GPU models and configuration:
GPU 0: NVIDIA A100-SXM4-80GB
GPU 1: NVIDIA A100-SXM4-80GB

Nvidia driver version: 550.54.15
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.2
/usr/lib/x86_64-linux-gnu/libcudnn_adv_infer.so.8.9.2
HIP runtime version: N/A
MIOpen runtime version: N/A
Is XNNPACK available: True

CPU:
Architecture:                       x86_64
CPU(s):                             128
Model name:                         AMD EPYC 7543 32-Core Processor
Flags:                              fpu vme de pse tsc msr pae mce cx8

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-cudnn-cu12==9.1.0.70
[pip3] nvidia-nccl-cu12==2.21.5
[pip3] torch==2.5.1
[pip3] triton==3.1.0
[conda] Could not collect
"""

VLLM = """\
Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
GCC version                  : (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0

==============================
       PyTorch Info
==============================
PyTorch version              : 2.7.1+cu126
Is debug build               : False
CUDA used to build PyTorch   : 12.6
ROCM used to build PyTorch   : N/A

==============================
      Python Environment
==============================
Python version               : 3.12.10 | packaged by conda-forge | (main, Apr 10 2025) [GCC 13.3.0] (64-bit runtime)
Python platform              : Linux-6.8.0-58-generic-x86_64-with-glibc2.39

==============================
       CUDA / GPU Info
==============================
Is CUDA available            : True
CUDA runtime version         : Could not collect
CUDA_MODULE_LOADING set to   : LAZY
GPU models and configuration : GPU 0: NVIDIA H100 80GB HBM3
Nvidia driver version        : 570.133.20
cuDNN version                : Could not collect
HIP runtime version          : N/A
MIOpen runtime version       : N/A
Is XNNPACK available         : True

==============================
Versions of relevant libraries
==============================
[pip3] torch==2.7.1
[pip3] transformers==4.53.0
[conda] Could not collect

==============================
         vLLM Info
==============================
ROCM Version                 : Could not collect
Neuron SDK Version           : N/A
vLLM Version                 : 0.9.2
vLLM Build Flags:
  CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled
GPU Topology:
  \tGPU0\tCPU Affinity
GPU0\t X \t0-63

==============================
     Environment Variables
==============================
NVIDIA_VISIBLE_DEVICES=all
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
NCCL_CUMEM_ENABLE=0
LD_LIBRARY_PATH=/usr/local/cuda/lib64
"""

DS_REPORT = """\
--------------------------------------------------
DeepSpeed C++/CUDA extension op report
--------------------------------------------------
ninja .................. [OKAY]
op name ................ installed .. compatible
cpu_adam ............... [YES] ...... [OKAY]
--------------------------------------------------
DeepSpeed general environment info:
torch install path ............... ['/venv/lib/python3.10/site-packages/torch']
torch version .................... 2.5.1+cu124
deepspeed install path ........... ['/venv/lib/python3.10/site-packages/deepspeed']
deepspeed info ................... 0.16.4, unknown, unknown
torch cuda version ............... 12.4
torch hip version ................ None
nvcc version ..................... 12.1
deepspeed wheel compiled w. ...... torch 2.4, cuda 12.2
shared memory (/dev/shm) size .... 64.00 GB
"""

TRANSFORMERS = """\
Copy-and-paste the text below in your GitHub issue and FILL OUT the two last points.

- `transformers` version: 4.46.3
- Platform: Linux-5.15.0-122-generic-x86_64-with-glibc2.35
- Python version: 3.10.12
- Huggingface_hub version: 0.26.2
- Safetensors version: 0.4.5
- Accelerate version: 1.1.1
- Accelerate config:\t- compute_environment: LOCAL_MACHINE
\t- distributed_type: DEEPSPEED
\t- mixed_precision: bf16
\t- use_cpu: False
\t- num_processes: 8
\t- machine_rank: 0
\t- num_machines: 1
\t- deepspeed_config: {'offload_optimizer_device': 'cpu', 'zero3_init_flag': True, 'zero_stage': 3}
\t- downcast_bf16: no
- PyTorch version (GPU?): 2.5.1+cu124 (True)
- Tensorflow version (GPU?): not installed (NA)
- Flax version (CPU?/GPU?/TPU?): not installed (NA)
- Jax version: not installed
- Using distributed or parallel set-up in script?: yes
- Using GPU in script?: yes
- GPU type: NVIDIA A100-SXM4-80GB
"""

NVIDIA_SMI = """\
Sat Nov 16 10:00:00 2024
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   34C    P0             61W /  400W |   70123MiB /  81920MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0B:00.0 Off |                    0 |
| N/A   33C    P0             60W /  400W |       2MiB /  81920MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|=========================================================================================|
|    0   N/A  N/A      1234      C   python                                      70114MiB |
+-----------------------------------------------------------------------------------------+
"""

OLD_NVIDIA_SMI = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 418.67       Driver Version: 418.67       CUDA Version: 10.1     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:00:04.0 Off |                    0 |
| N/A   34C    P0    38W / 300W |      0MiB / 32480MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|  No running processes found                                                 |
+-----------------------------------------------------------------------------+
"""

MIG_TABLE = """\
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA A100 80GB PCIe          On  | 00000000:E8:00.0 Off |                   On |
| N/A   37C    P0              72W / 300W |    829MiB / 81920MiB |     N/A      Default |
|                                         |                      |              Enabled |
+-----------------------------------------+----------------------+----------------------+

+---------------------------------------------------------------------------------------+
| MIG devices:                                                                          |
+------------------+--------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                   Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                     BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |
|==================+================================+===========+=======================|
|  0    1   0   0  |              37MiB / 40192MiB  | 42      0 |  3   0    2    0    0 |
|                  |               0MiB / 65535MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+
|  0    5   0   1  |              25MiB / 19968MiB  | 28      0 |  2   0    1    0    0 |
|                  |               0MiB / 32767MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+

+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  No running processes found                                                           |
+---------------------------------------------------------------------------------------+
"""


def find(text: str) -> list[Environment]:
    return [found.environment for found in find_reports(text, "issue.txt")]


def one(text: str) -> Environment:
    environments = find(text)
    assert len(environments) == 1, [environment.origin for environment in environments]
    return environments[0]


def versions(environment: Environment) -> dict[str, str | None]:
    return {name: package.version for name, package in environment.packages.items()}


def facts(environment: Environment) -> dict[str, object]:
    return {name: value for name, (value, _) in environment.facts.items()}


def test_the_cuda_of_torch_of_nvcc_and_of_the_driver_are_three_facts() -> None:
    environment = one(COLLECT_ENV + "\n" + NVIDIA_SMI)
    stated = facts(environment)
    assert stated["runtime.torch_cuda"] == "12.4"
    assert stated["runtime.nvcc"] == "12.1.105"
    assert stated["hardware.driver_cuda"] == "12.4"
    assert environment.hardware is not None
    assert environment.hardware.driver == "550.54.15"


def test_reads_collect_env_of_torch() -> None:
    environment = one(COLLECT_ENV)
    assert versions(environment) == {
        "torch": "2.5.1+cu124",
        "numpy": "1.26.4",
        "nvidia-cudnn-cu12": "9.1.0.70",
        "nvidia-nccl-cu12": "2.21.5",
        "triton": "3.1.0",
    }
    assert environment.python == "3.10.12"
    assert not environment.complete
    assert environment.components["cudnn"].version == "9.1.0.70"
    hardware = environment.hardware
    assert hardware is not None
    assert (hardware.gpu, hardware.memory_bytes, hardware.gpus_per_node) == ("A100-80GB", 81920 * MIB, 2)
    assert hardware.catalogued >= {"memory_bytes", "compute_capability"}


def test_says_on_which_line_a_value_stands() -> None:
    environment = one("first\nsecond\n" + COLLECT_ENV)
    assert environment.packages["torch"].source.line == 4
    assert environment.packages["triton"].source.line == 3 + COLLECT_ENV.split("\n").index("[pip3] triton==3.1.0")
    assert environment.hardware is not None
    assert environment.hardware.sources["driver"].line == 3 + COLLECT_ENV.split("\n").index(
        "Nvidia driver version: 550.54.15"
    )


def test_cudnn_of_the_system_is_not_what_torch_loads() -> None:
    text = COLLECT_ENV.replace("[pip3] nvidia-cudnn-cu12==9.1.0.70\n", "")
    environment = one(text)
    assert "cudnn" not in environment.components
    assert any("cuDNN of the system" in note for note in environment.notes)


def test_reads_the_report_of_vllm_with_its_sections_and_variables() -> None:
    environment = one(VLLM)
    assert versions(environment) == {"torch": "2.7.1+cu126", "transformers": "4.53.0", "vllm": "0.9.2"}
    assert environment.python == "3.12.10"
    assert environment.variables is not None
    assert environment.variables["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert not environment.variables_complete
    assert facts(environment)["allocator.expandable_segments"] is True
    assert "runtime.nvcc" not in environment.facts


def test_a_command_behind_a_report_is_no_variable_of_it() -> None:
    environment = one(COLLECT_ENV + "\nCUDA_VISIBLE_DEVICES=0 python train.py\nNCCL_DEBUG=INFO\n")
    assert environment.variables is None


def test_reads_ds_report() -> None:
    environment = one(DS_REPORT)
    assert versions(environment) == {"torch": "2.5.1+cu124", "deepspeed": "0.16.4"}
    assert facts(environment)["runtime.nvcc"] == "12.1"
    assert facts(environment)["hardware.shm_bytes"] == 64 * GIB
    assert facts(environment)["runtime.torch_build"] == "cuda"


def test_a_wheel_compiled_with_another_torch_is_not_the_installed_torch() -> None:
    environment = one(DS_REPORT.replace("torch version .................... 2.5.1+cu124\n", ""))
    assert "torch" not in environment.packages


def read_training(text: str) -> FoundReport:
    (found,) = find_reports(text, "issue.txt")
    return found


def test_reads_the_list_of_transformers_and_the_configuration_of_accelerate_in_it() -> None:
    found = read_training(TRANSFORMERS)
    stated = versions(found.environment)
    assert {name: stated[name] for name in ("torch", "transformers", "accelerate")} == {
        "torch": "2.5.1+cu124",
        "transformers": "4.46.3",
        "accelerate": "1.1.1",
    }
    assert found.accelerate is not None
    assert found.accelerate["deepspeed_config"]["zero_stage"] == 3
    assert found.accelerate["use_cpu"] is False
    hardware = found.environment.hardware
    assert hardware is not None
    assert (hardware.gpu, hardware.gpus_per_node) == ("A100-80GB", None)


@pytest.mark.parametrize("lines", range(2, 9))
def test_a_configuration_that_may_be_cut_off_is_not_read(lines: int) -> None:
    head, configuration = TRANSFORMERS.split("- Accelerate config:")
    found = read_training(head + "- Accelerate config:" + "".join(configuration.splitlines(keepends=True)[:lines]))
    assert found.accelerate is None
    (entry,) = found.environment.skipped
    assert (entry.named, entry.source.key) == (True, "accelerate config")


def test_what_is_stated_not_to_be_installed_is_absent() -> None:
    text = (
        "- `transformers` version: 4.50.0\n"
        "- DeepSpeed version: not installed\n"
        "- PEFT version: not installed\n"
        "- PyTorch version (GPU?): not installed (NA)\n"
    )
    environment = one(text)
    assert environment.packages["deepspeed"].specifier == "absent"
    assert "torch" not in environment.packages
    assert any("too old" in note for note in environment.notes)


def test_unknown_absent_and_not_collected_are_different_answers() -> None:
    cpu = COLLECT_ENV.replace("CUDA used to build PyTorch: 12.4", "CUDA used to build PyTorch: None").replace(
        "+cu124", "+cpu"
    )
    assert facts(one(cpu))["runtime.torch_cuda"] is None
    assert facts(one(cpu))["runtime.torch_build"] == "cpu"
    missing = COLLECT_ENV.replace("Nvidia driver version: 550.54.15", "Nvidia driver version: Could not collect")
    environment = one(missing)
    assert environment.hardware is not None
    assert environment.hardware.driver is None
    assert [entry.fact for entry in environment.skipped] == ["hardware.driver"]
    without = one(COLLECT_ENV.replace("Nvidia driver version: 550.54.15\n", ""))
    assert without.hardware is not None
    assert without.hardware.driver is None
    assert not without.skipped
    none = one(COLLECT_ENV.replace("CUDA runtime version: 12.1.105", "CUDA runtime version: No CUDA"))
    assert facts(none)["runtime.nvcc"] is None
    assert "runtime.nvcc" not in one(COLLECT_ENV.replace("12.1.105", "Could not collect")).facts


def test_what_one_report_could_not_collect_another_gives() -> None:
    missing = COLLECT_ENV.replace("Nvidia driver version: 550.54.15", "Nvidia driver version: Could not collect")
    environment = one(missing + NVIDIA_SMI)
    assert environment.hardware is not None
    assert environment.hardware.driver == "550.54.15"
    assert not environment.skipped


def test_a_torch_that_could_not_be_imported_is_not_known() -> None:
    text = (
        "PyTorch version: N/A\n"
        "Is debug build: N/A\n"
        "CUDA used to build PyTorch: N/A\n"
        "ROCM used to build PyTorch: N/A\n"
        "\n"
        "Python version: 3.11.8 (main, x)\n"
        "Is CUDA available: N/A\n"
    )
    environment = one(text)
    assert not environment.packages
    assert not environment.facts
    assert environment.python == "3.11.8"


def test_a_list_of_another_interpreter_is_not_used() -> None:
    environment = one(COLLECT_ENV.replace("[pip3] torch==2.5.1", "[pip3] torch==1.13.1"))
    assert versions(environment) == {"torch": "2.5.1+cu124"}
    assert any("another interpreter" in note for note in environment.notes)


def test_conda_tells_the_build_of_torch() -> None:
    text = """\
PyTorch version: 2.5.1
Is debug build: False
CUDA used to build PyTorch: 12.4
Versions of relevant libraries:
[conda] pytorch                   2.5.1           py3.11_cuda12.4_cudnn9.1.0_0    pytorch
[conda] pytorch-cuda              12.4                 hc786d27_7    pytorch
[conda] numpy                     2.0.1                    pypi_0    pypi
"""
    environment = one(text)
    assert versions(environment) == {"torch": "2.5.1", "numpy": "2.0.1"}
    assert environment.components["cudnn"].version == "9.1.0"


def test_reads_the_old_spelling_of_lists() -> None:
    text = (
        "PyTorch version: 1.0.0\n"
        "Is debug build: No\n"
        "CUDA used to build PyTorch: 9.0.176\n"
        "\n"
        "Versions of relevant libraries:\n"
        "[pip] numpy (1.15.4)\n"
        "[pip] torch (1.0.0)\n"
        "[conda] Could not collect\n"
    )
    assert versions(one(text)) == {"torch": "1.0.0", "numpy": "1.15.4"}


def test_reads_rocm() -> None:
    text = COLLECT_ENV.replace("PyTorch: 12.4", "PyTorch: N/A").replace(
        "ROCM used to build PyTorch: N/A", "ROCM used to build PyTorch: 6.2.41133-dd7f95766"
    )
    text = re.sub(
        r"configuration:\n.*?\n\n",
        "configuration: AMD Instinct MI300X (gfx942:sramecc+:xnack-)\n",
        text,
        flags=re.DOTALL,
    )
    environment = one(text.replace("+cu124", "+rocm6.2"))
    assert facts(environment)["runtime.torch_build"] == "rocm"
    assert facts(environment)["runtime.torch_cuda"] is None
    assert environment.hardware is not None
    assert (environment.hardware.gpu, environment.hardware.gpus_per_node) == ("MI300X", None)


def test_reads_the_table_of_nvidia_smi() -> None:
    environment = one(NVIDIA_SMI)
    hardware = environment.hardware
    assert hardware is not None
    assert (hardware.gpu, hardware.memory_bytes, hardware.gpus_per_node) == ("A100-80GB", 81920 * MIB, 2)
    assert any("70123 MiB of GPU 0" in note for note in environment.notes)


def test_reads_the_table_of_an_old_driver_with_a_name_cut_off() -> None:
    hardware = one(OLD_NVIDIA_SMI).hardware
    assert hardware is not None
    assert (hardware.gpu, hardware.memory_bytes, hardware.driver, hardware.gpus_per_node) == (
        "V100-32GB",
        32480 * MIB,
        "418.67",
        1,
    )


def test_reads_the_head_of_driver_610() -> None:
    text = NVIDIA_SMI.replace(
        "Driver Version: 550.54.15      CUDA Version: 12.4 ", "KMD Version: 610.43.02     CUDA UMD Version: 13.3"
    )
    environment = one(text)
    assert facts(environment)["hardware.driver_cuda"] == "13.3"
    assert environment.hardware is not None
    assert environment.hardware.driver == "610.43.02"


def test_the_instances_of_mig_are_the_devices() -> None:
    hardware = one(MIG_TABLE).hardware
    assert hardware is not None
    assert (hardware.memory_bytes, hardware.gpus_per_node) == (19968 * MIB, 2)
    assert "MIG" in str(hardware.gpu)


@pytest.mark.parametrize("lines", range(6, 18))
def test_a_device_that_is_split_never_counts_whole(lines: int) -> None:
    text = "\n".join(MIG_TABLE.split("\n")[:lines]) + "\n"
    hardware = one(text).hardware
    assert hardware is not None
    assert hardware.memory_bytes is None or hardware.memory_bytes < 80 * GIB
    assert hardware.gpus_per_node is None


def test_reads_the_list_of_devices() -> None:
    text = (
        "$ nvidia-smi -L\n"
        "GPU 0: NVIDIA L40S (UUID: GPU-12345678-aaaa-bbbb-cccc-1234567890ab)\n"
        "GPU 1: NVIDIA L40S (UUID: GPU-22345678-aaaa-bbbb-cccc-1234567890ab)\n"
    )
    unended = one(text).hardware
    assert unended is not None
    assert (unended.gpu, unended.gpus_per_node) == ("L40S", None)
    ended = one(text + "$\n").hardware
    assert ended is not None
    assert ended.gpus_per_node == 2


def test_reads_the_instances_in_the_list_of_devices() -> None:
    text = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1234)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n"
        "  MIG 1g.5gb      Device  1: (UUID: MIG-2)\n"
        "$\n"
    )
    hardware = one(text).hardware
    assert hardware is not None
    assert (hardware.memory_bytes, hardware.gpus_per_node) == (5 * GIB, 2)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("==============NVSMI LOG==============\n\nDriver Version            : 535.104.05\n", "nvidia-smi -q"),
        (
            "index, name, driver_version, memory.total [MiB]\n0, NVIDIA H100 80GB HBM3, 535.1, 81559 MiB\n",
            "nvidia-smi --query-gpu",
        ),
        ("====== ROCm System Management Interface ======\nGPU[0] : Card series: AMD Instinct MI300X\n", "rocm-smi"),
        ("ROCk module is loaded\n  Marketing Name:          AMD Instinct MI300X\n", "rocminfo"),
    ],
)
def test_forms_that_are_not_read_are_said(text: str, option: str) -> None:
    environment = one(text)
    assert environment.hardware is None
    (entry,) = environment.skipped
    assert entry.reason == f"what {option} prints is not read"
    assert ("the table that nvidia-smi prints" if "nvidia" in option else "--gpu") in (entry.hint or "")


def test_of_different_devices_the_smallest_is_taken_where_all_are_known() -> None:
    hardware = one(COLLECT_ENV.replace("GPU 1: NVIDIA A100-SXM4-80GB", "GPU 1: NVIDIA GeForce RTX 3090")).hardware
    assert hardware is not None
    assert (hardware.gpu, hardware.gpus_per_node) == ("RTX-3090", 2)
    unknown = one(COLLECT_ENV.replace("GPU 1: NVIDIA A100-SXM4-80GB", "GPU 1: Quadro M2000")).hardware
    assert unknown is not None
    assert (unknown.gpu, unknown.memory_bytes, unknown.gpus_per_node) == (None, None, 2)


def test_reads_nvcc() -> None:
    text = (
        "nvcc: NVIDIA (R) Cuda compiler driver\n"
        "Cuda compilation tools, release 12.1, V12.1.105\n"
        "Build cuda_12.1.r12.1/compiler.32688072_0\n"
    )
    assert facts(one(text)) == {"runtime.nvcc": "12.1.105"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch==2.5.1\ntransformers==4.46.3\n", {"torch": "2.5.1", "transformers": "4.46.3"}),
        ("- torch: 2.5.1\n- transformers version: 4.46\n", {"torch": "2.5.1", "transformers": "4.46"}),
        (
            "Package      Version\n------------ -------\nfoo          1.2\ntorch        2.5.1\n",
            {"foo": "1.2", "torch": "2.5.1"},
        ),
        ("Name: torch\nVersion: 2.5.1\nSummary: Tensors\n", {"torch": "2.5.1"}),
        ("PyTorch 2.5.1\n", {"torch": "2.5.1"}),
        ("**PyTorch version**: `2.5.1`\n**DeepSpeed**: 0.16.4\n", {"torch": "2.5.1", "deepspeed": "0.16.4"}),
    ],
)
def test_reads_lists_written_by_hand(text: str, expected: dict[str, str]) -> None:
    assert versions(one(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "It works with torch==2.4.0 but not with 2.5.1.\n",
        "pip install torch==2.4.0\n",
        "I upgraded torch from 2.4.0 to 2.5.1 and it died.\n",
        "torch>=2.4.0\n",
        "CUDA 12.4\n",
        "Could you print PyTorch version: and the driver?\n",
    ],
)
def test_prose_and_commands_state_nothing(text: str) -> None:
    assert find(text) == []


def test_two_releases_in_one_list_are_not_chosen_between() -> None:
    environment = one("working:\ntorch==2.4.0\ntransformers==4.46.3\nfailing:\ntorch==2.5.1\n")
    assert versions(environment) == {"transformers": "4.46.3"}
    assert any("neither is taken" in note for note in environment.notes)


OTHER = (
    COLLECT_ENV.replace("2.5.1+cu124", "2.4.0+cu121")
    .replace("torch==2.5.1", "torch==2.4.0")
    .replace("PyTorch: 12.4", "PyTorch: 12.1")
    .replace("A100-SXM4-80GB", "A100-SXM4-40GB")
)


def test_reports_of_two_machines_are_two_environments() -> None:
    first, second = find(COLLECT_ENV + "\nAnd here:\n\n" + OTHER)
    assert first.packages["torch"].version == "2.5.1+cu124"
    assert second.packages["torch"].version == "2.4.0+cu121"
    assert first.hardware is not None
    assert second.hardware is not None
    assert (first.hardware.gpu, second.hardware.gpu) == ("A100-80GB", "A100-40GB")
    assert first.origin != second.origin
    assert "line 2" in first.origin


def test_reports_of_two_people_are_not_merged() -> None:
    text = (
        "alice commented on Jan 5, 2025\n"
        + COLLECT_ENV.replace("Nvidia driver version: 550.54.15\n", "")
        + "bob commented on Jan 6, 2025\n"
        + DS_REPORT.replace("2.5.1+cu124", "2.6.0+cu124")
    )
    first, second = find(text)
    assert "deepspeed" not in first.packages
    assert second.packages["torch"].version == "2.6.0+cu124"
    assert "bob" in second.origin


def test_several_reports_of_one_person_are_one_environment() -> None:
    environment = one(COLLECT_ENV + DS_REPORT + TRANSFORMERS + NVIDIA_SMI)
    assert {"torch", "deepspeed", "transformers", "accelerate"} <= environment.packages.keys()
    assert environment.hardware is not None
    assert environment.hardware.gpus_per_node == 2


def test_a_quotation_of_a_report_is_not_another_environment() -> None:
    quoted = "".join(f"> {line}\n" for line in COLLECT_ENV.split("\n"))
    assert len(find(COLLECT_ENV + "\nbob commented on Jan 6, 2025\n" + quoted + "\nUpgrade your driver.\n")) == 1


def test_a_text_that_ends_in_a_value_does_not_state_it() -> None:
    text = COLLECT_ENV[: COLLECT_ENV.index("550.54.15") + len("550.5")]
    hardware = one(text).hardware
    assert hardware is not None
    assert hardware.driver is None


UNSLOTH = """\
==((====))==  Unsloth 2025.3.19: Fast Llama patching. Transformers: 4.50.3. vLLM: 0.8.2.
   \\\\   /|    NVIDIA A100-SXM4-40GB. Num GPUs = 1. Max memory: 39.557 GB. Platform: Linux.
O^O/ \\_/ \\    Torch: 2.6.0+cu124. CUDA: 8.0. CUDA Toolkit: 12.4. Triton: 3.2.0
\\        /    Bfloat16 = TRUE. FA [Xformers = 0.0.29.post3. FA2 = False]
 "-____-"     Free license: http://github.com/unslothai/unsloth
Unsloth: Fast downloading is enabled - ignore downloading bars which are red colored!
"""
OLD_UNSLOTH = """\
==((====))==  Unsloth: Fast Llama patching release 2024.3
   \\\\   /|    GPU: Tesla T4. Max memory: 14.748 GB. Platform = Linux.
O^O/ \\_/ \\    Pytorch: 2.1.2+cu121. CUDA = 7.5. CUDA Toolkit = 12.1.
\\        /    Bfloat16 = FALSE. Xformers = 0.0.23.post1. FA = False.
 "-____-"     Free Apache license: http://github.com/unslothai/unsloth
"""
HUB = """\
- huggingface_hub version: 0.30.1
- Platform: Linux-5.15.0-122-generic-x86_64-with-glibc2.35
- Python version: 3.10.12
- Running in iPython ?: No
- Running in Google Colab ?: No
- Token path ?: /root/.cache/huggingface/token
- Has saved token ?: False
- Configured git credential helpers: store
- FastAI: N/A
- Tensorflow: N/A
- Torch: 2.6.0+cu124
- Jinja2: 3.1.6
- Pillow: 11.1.0
- hf_transfer: 0.1.9
- hf_xet: N/A
- numpy: 1.26.4
- pydantic: 2.11.3
- ENDPOINT: https://huggingface.co
- HF_HUB_ETAG_TIMEOUT: 10
"""
VERL = """\
----------Python Info----------
Version      : 3.10.12
Compiler     : GCC 11.4.0
Build        : ('main', 'Feb  4 2025 14:57:36')
Arch         : ('64bit', 'ELF')
------------Pip Info-----------
Version      : 25.0.1
Directory    : /usr/local/lib/python3.10/dist-packages/pip
vllm\t     : 0.8.4
sglang\t     : not found.
ray\t     : 2.44.1
torch\t     : 2.6.0
----------verl Info-----------
Version      : 0.3.1.dev
Directory    : /workspace/verl/verl
Commit Hash  : 5fbe0f38287aa09b9acfa6f85046bc31a3060ce3
----------Platform Info----------
Platform     : Linux-5.15.0-122-generic-x86_64-with-glibc2.35
system       : Linux
version      : #132-Ubuntu SMP
----------Environment----------
CUDA Runtime : 12.4
CUDA Compiler : Cuda compilation tools, release 12.4, V12.4.131
----------System Info----------
CPU Memory\t: 1007.66 GB
GPU Count\t: 2
GPU 1\tType    : NVIDIA A100-SXM4-80GB
GPU 1\tMemory  : 80.00 GB
GPU 2\tType    : NVIDIA A100-SXM4-80GB
GPU 2\tMemory  : 80.00 GB
"""


def test_reads_the_banner_of_unsloth() -> None:
    environment = one(UNSLOTH)
    assert versions(environment) == {
        "unsloth": "2025.3.19",
        "transformers": "4.50.3",
        "vllm": "0.8.2",
        "torch": "2.6.0+cu124",
        "triton": "3.2.0",
        "xformers": "0.0.29.post3",
    }
    assert environment.facts["runtime.torch_cuda"][0] == "12.4"
    assert environment.hardware is not None
    assert (environment.hardware.gpu, environment.hardware.gpus_per_node) == ("A100-40GB", 1)


def test_reads_the_old_banner_of_unsloth() -> None:
    environment = one(OLD_UNSLOTH)
    assert versions(environment) == {"unsloth": "2024.3", "torch": "2.1.2+cu121", "xformers": "0.0.23.post1"}
    assert environment.facts["runtime.torch_cuda"][0] == "12.1"
    assert environment.hardware is not None
    assert (environment.hardware.gpu, environment.hardware.gpus_per_node) == ("T4", None)


def test_reads_the_list_of_the_hub() -> None:
    environment = one(HUB)
    stated = {name: package.version for name, package in environment.packages.items()}
    assert stated["torch"] == "2.6.0+cu124"
    assert (stated["huggingface-hub"], stated["jinja2"], stated["hf-transfer"]) == ("0.30.1", "3.1.6", "0.1.9")
    assert (stated["hf-xet"], stated["fastai"]) == (None, None)
    assert environment.python == "3.10.12"


def test_reads_what_the_diagnose_script_of_verl_prints() -> None:
    environment = one(VERL)
    stated = {"vllm": "0.8.4", "ray": "2.44.1", "torch": "2.6.0", "verl": "0.3.1.dev", "sglang": None}
    assert versions(environment) == stated
    assert environment.python == "3.10.12"
    assert environment.facts["runtime.torch_cuda"][0] == "12.4"
    assert environment.hardware is not None
    assert (environment.hardware.gpu, environment.hardware.gpus_per_node) == ("A100-80GB", 2)


def test_reads_what_pip_install_says() -> None:
    text = (
        "Requirement already satisfied: torch>=1.13 in /usr/lib/python3/dist-packages (from accelerate) (2.6.0)\n"
        "Requirement already satisfied: numpy<3,>=1.17 in ./venv/lib (from torch==2.6.0->-r r.txt (line 3)) (1.26.4)\n"
        "Requirement already satisfied: transformers[torch] in /usr/lib (4.50.3)\n"
        "Requirement already satisfied: pip in /usr/lib\n"
        "Successfully installed accelerate-1.2.0 flash-attn-2.7.4.post1\n"
    )
    assert versions(one(text)) == {
        "torch": "2.6.0",
        "numpy": "1.26.4",
        "transformers": "4.50.3",
        "accelerate": "1.2.0",
        "flash-attn": "2.7.4.post1",
    }


def test_reads_a_markdown_table() -> None:
    text = "| Package | Version |\n|---|---|\n| **PyTorch** | 2.5.1+cu124 |\n| transformers | `4.46.3` | pinned |\n"
    text += "| Python | 3.11.4 |\n"
    environment = one(text)
    assert versions(environment) == {"torch": "2.5.1+cu124", "transformers": "4.46.3"}
    assert environment.python == "3.11.4"


def test_a_remark_that_goes_on_in_the_next_line_ends_a_value() -> None:
    text = "- `transformers` version: 5.14.1 (see the matrix of\n  versions below)\n"
    text += "- Python version: 3.11.4\n- PyTorch version: 2.9.0\n"
    assert versions(one(text))["transformers"] == "5.14.1"


def test_two_keys_of_accelerate_in_one_line_are_two_keys() -> None:
    joined = TRANSFORMERS.replace("\n\t- num_machines:", " - num_machines:")
    assert joined != TRANSFORMERS
    (found,) = find_reports(joined, "issue.txt")
    (whole,) = find_reports(TRANSFORMERS, "issue.txt")
    assert found.accelerate == whole.accelerate


def test_the_paths_of_ds_report_tell_the_minor_of_python() -> None:
    text = "torch install path ............... ['/opt/conda/lib/python3.10/site-packages/torch']\n" + DS_REPORT
    assert one(text).python == "3.10"


def test_devices_without_their_identifiers_are_listed() -> None:
    text = "My node:\n\nGPU 0: NVIDIA A100-SXM4-80GB\nGPU 1: NVIDIA A100-SXM4-80GB\n\ntorch==2.5.1\ndeepspeed==0.16.4\n"
    environment = one(text)
    assert environment.hardware is not None
    assert (environment.hardware.gpu, environment.hardware.gpus_per_node) == ("A100-80GB", 2)


REPORTS = (COLLECT_ENV, VLLM, DS_REPORT, TRANSFORMERS, NVIDIA_SMI, OLD_NVIDIA_SMI, MIG_TABLE, UNSLOTH, HUB, VERL)


def claims(text: str) -> list[tuple[str, object]]:
    """List all that is stated, memory and number of devices with the name left out where that may be shortened."""
    stated: list[tuple[str, object]] = []
    for found in find_reports(text, "issue.txt"):
        environment = found.environment
        stated += [(name, package.version) for name, package in environment.packages.items()]
        stated += [(name, package.version) for name, package in environment.components.items()]
        stated += [(name, value) for name, (value, _) in environment.facts.items()]
        stated += [(f"${name}", value) for name, value in (environment.variables or {}).items()]
        stated.append(("python", environment.python))
        hardware = environment.hardware
        if hardware is not None:
            for field in ("gpu", "memory_bytes", "compute_capability", "multiprocessors", "gpus_per_node", "driver"):
                stated.append((field, getattr(hardware, field)))
        if found.accelerate is not None:
            kept = {key: value for key, value in found.accelerate.items() if not key.startswith("tpu_")}
            stated.append(("accelerate", repr(kept)))
    return stated


def is_true(claim: tuple[str, object], truth: set[tuple[str, object]]) -> bool:
    """Tell whether a claim is in what the whole report states; None is unknown except where the whole says so."""
    if claim in truth:
        return True
    name, value = claim
    known = dict(truth)
    if value is None:
        return name in {
            "python",
            "gpu",
            "memory_bytes",
            "compute_capability",
            "multiprocessors",
            "gpus_per_node",
            "driver",
        }
    # a version without its label, where the line that has the label is gone
    return isinstance(value, str) and name in known and str(known[name]).partition("+")[0] == value


# Of the devices of a list the smallest is taken, so that another may be while it has not been read.
ALLOWED = {("gpu", "NVIDIA A100 80GB PCIe MIG"), ("memory_bytes", 40192 * MIB)}


def assert_nothing_wrong(damaged: str, report: str, allowed: Collection[tuple[str, object]] = ()) -> None:
    truth = {*claims(report), *ALLOWED, *allowed}
    wrong = [claim for claim in claims(damaged) if not is_true(claim, truth)]
    assert not wrong, (wrong, damaged)


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_cut_off_anywhere_states_nothing_wrong(report: str) -> None:
    for end in range(0, len(report), 13):
        assert_nothing_wrong(report[:end], report)
    lines = report.splitlines(keepends=True)
    for end in range(len(lines)):
        assert_nothing_wrong("".join(lines[:end]), report)
        assert_nothing_wrong("".join(lines[end:]), report)


def keep_end(damaged: str, text: str) -> str:
    """End a text as it ended before: what is cut off inside a line stays so."""
    return damaged if text.endswith("\n") else damaged.rstrip("\n")


def colour(text: str, pick: random.Random) -> str:
    return keep_end(
        "".join(f"\x1b[{pick.choice(('32', '1;31', '0'))}m{line}\x1b[0m\n" for line in text.splitlines()), text
    )


def stamp(text: str, pick: random.Random) -> str:
    form = pick.choice(
        (
            "2024-11-16 10:00:{:02}.123 ",
            "[2024-11-16 10:00:{:02},123] [INFO] ",
            "2024-11-16T10:00:{:02}.1234567Z ",
            "INFO:report:",
            "Nov 16 10:00:{:02} node7 report[12]: ",
        )
    )
    return keep_end("".join(f"{form.format(index % 60)}{line}\n" for index, line in enumerate(text.splitlines())), text)


def rank(text: str, pick: random.Random) -> str:
    if not text.endswith("\n"):
        return text
    form = pick.choice(("[rank{}]: ", "(RayTrainWorker pid=123{}, ip=10.0.0.1) ", "{}: ", "[1,{}]<stdout>: "))
    streams = [[f"{form.format(number)}{line}" for line in text.splitlines()] for number in range(3)]
    result = []
    while any(streams):
        stream = pick.choice([stream for stream in streams if stream])
        result.append(stream.pop(0))
    return keep_end("\n".join(result) + "\n", text)


def flatten(text: str, pick: random.Random) -> str:
    return " ".join(text.split()) + (pick.choice((" ", "\n", "...")) if text.endswith("\n") else "")


def quote(text: str, pick: random.Random) -> str:
    mark = pick.choice(("> ", ">", "> > ", "&gt; "))
    return keep_end("".join(f"{mark}{line}\n" for line in text.splitlines()), text)


def fence(text: str, pick: random.Random) -> str:
    if not text.endswith("\n"):
        return "```\n" + text
    return pick.choice(
        (
            "```\n{}```\n",
            "<details>\n<summary>env</summary>\n\n```text\n{}\n```\n</details>\n",
            "`{}`\n",
            "<pre>{}</pre>\n",
        )
    ).replace("{}", text)


def odd_blanks(text: str, pick: random.Random) -> str:
    return text.replace(" ", pick.choice(("\u00a0", " \u200b", " ")))


def smart(text: str, _: random.Random) -> str:
    return text.replace("'", "\u2019").replace('"', "\u201d")


def bullets(text: str, pick: random.Random) -> str:
    mark = pick.choice(("- ", "* ", "1. "))
    return keep_end("".join(f"{mark}{line}\n" for line in text.splitlines()), text)


def escape(text: str, _: random.Random) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def carriage_returns(text: str, _: random.Random) -> str:
    return text.replace("\n", "\r\n")


def lose_lines(text: str, pick: random.Random) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if pick.random() > 0.15)


def lose_some_breaks(text: str, pick: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(
        line if pick.random() > 0.3 or index + 1 == len(lines) else line.rstrip("\n") + " "
        for index, line in enumerate(lines)
    )


def lose_pipes(text: str, _: random.Random) -> str:
    return text.replace("|", " ")


def cut(text: str, pick: random.Random) -> str:
    return text[: pick.randrange(len(text))] if text else text


DAMAGES = (
    colour,
    stamp,
    rank,
    flatten,
    quote,
    fence,
    odd_blanks,
    smart,
    bullets,
    escape,
    carriage_returns,
    lose_some_breaks,
    lose_pipes,
    cut,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    report=st.sampled_from(REPORTS),
    damages=st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
)
def test_a_damaged_report_never_states_a_wrong_fact(report: str, damages: list, seed: int) -> None:  # type: ignore[type-arg]  # functions
    pick = random.Random(seed)
    damaged = report
    for damage in damages:
        damaged = damage(damaged, pick)
    # the line of a device goes to another rank where its line break is lost
    fewer = [("gpus_per_node", number) for number in (1,) if rank in damages and lose_some_breaks in damages]
    assert_nothing_wrong(damaged, report, fewer)


@settings(max_examples=100)
@given(report=st.sampled_from(REPORTS[:5]), seed=st.integers(0, 2**32))
def test_lines_that_are_lost_can_make_devices_fewer_and_nothing_else_wrong(report: str, seed: int) -> None:
    damaged = lose_lines(report, random.Random(seed))
    truth = set(claims(report)) | {("gpus_per_node", 1)}
    wrong = [claim for claim in claims(damaged) if not is_true(claim, truth) and claim[0] != "accelerate"]
    assert not wrong, (wrong, damaged)


@pytest.mark.parametrize("damage", [colour, stamp, rank, quote, odd_blanks, smart, escape, carriage_returns, bullets])
def test_harmless_damage_loses_nothing(damage) -> None:  # type: ignore[no-untyped-def]
    for seed in range(5):
        damaged = damage(COLLECT_ENV, random.Random(seed))
        environment = one(damaged)
        assert versions(environment) == versions(one(COLLECT_ENV)), damaged
        assert environment.hardware is not None
        assert (environment.hardware.gpu, environment.hardware.gpus_per_node, environment.hardware.driver) == (
            "A100-80GB",
            2,
            "550.54.15",
        ), damaged


def test_one_line_still_states_what_labels_end() -> None:
    environment = one(" ".join(COLLECT_ENV.split()))
    assert environment.packages["torch"].version == "2.5.1+cu124"
    assert environment.hardware is not None
    assert (environment.hardware.gpu, environment.hardware.gpus_per_node, environment.hardware.driver) == (
        "A100-80GB",
        2,
        "550.54.15",
    )


HOSTILE = (
    "PyTorch version" + " " * 40,
    "PyTorch version: ",
    "[pip3] torch==2.5.1 ",
    "GPU models and configuration: GPU 0: A100 ",
    "| 0 NVIDIA A100 On | ",
    "NVIDIA-SMI 535.1 Driver Version: 535.1 ",
    "PyTorch version: \x1b]\x1b]\x1b]",
    "PyTorch version: &gt;&gt;<p <p **",
    "torch version ........ ",
    "PyTorch version: ==========",
    "torch==2.5.1\n",
    "torch    2.5.1\n",
    "GPU 0: NVIDIA A100 (UUID: GPU-1234)\n",
    "[rank0]: torch==2.5.1\n",
    "bob commented on x\ntorch==2.5.1\n",
    COLLECT_ENV,
    NVIDIA_SMI,
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_no_faster_than_the_text(piece: str) -> None:
    def cost(characters: int) -> float:
        text = piece * (characters // len(piece))
        best = float("inf")
        for _ in range(2):
            start = time.process_time()
            find_reports(text, "issue.txt")
            best = min(best, time.process_time() - start)
        return best

    small, large = cost(15_000), cost(120_000)  # one line of more is cut off
    assert large < 8 * 3 * max(small, 0.005)


def test_a_very_long_line_is_cut_off_and_says_so() -> None:
    environment = one(
        "PyTorch version: 2.5.1 Is debug build: False CUDA used to build PyTorch: 12.4 OS: Linux "
        + "x" * 400_000
        + "\n"
    )
    assert environment.packages["torch"].version == "2.5.1"
    assert any("characters long" in entry.reason for entry in environment.skipped)


def test_of_very_many_environments_the_first_are_read() -> None:
    text = "".join(
        f"torch==2.{minor}.{patch}\npeft==0.{minor}.{patch}\n" + "\n" * 14 for minor in range(10) for patch in range(10)
    )
    environments = find(text)
    assert len(environments) == 64
    assert any("more reports" in entry.reason for entry in environments[0].skipped)


def test_says_when_a_text_holds_no_report(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("no report here\n", encoding="utf-8")
    with pytest.raises(InputError, match="holds no report"):
        read_reports(str(path))


def test_refuses_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "core.log"
    path.write_bytes(b"NVIDIA-SMI" + b"\0" * 1000)
    with pytest.raises(InputError, match="is not a text"):
        read_reports(str(path))
