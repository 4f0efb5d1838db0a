import pytest

from compatcheck.collectors.image.environments import read_image
from compatcheck.collectors.image.system_packages import read_dpkg, read_system
from tests.unit.collectors.image.trees import PROGRAM, To, conda, dist, make_image, python, site, torch

STATUS = """Package: cuda-cudart-12-4
Status: install ok installed
Architecture: amd64
Version: 12.4.127-1

Package: cuda-compat-12-4
Status: install ok installed
Version: 550.54.15-1

Package: cuda-nvcc-12-4
Status: hold ok installed
Version: 12.4.131-1

Package: libcudnn9-cuda-12
Status: install ok installed
Version: 9.1.0.70-1

Package: libcudnn8
Status: deinstall ok config-files
Version: 8.9.7.29-1+cuda12.2

Package: libnccl2
Status: install ok installed
Version: 2.21.5-1+cuda12.4

Package: libnccl-dev
Status: install ok installed
Version: 2.21.5-1+cuda12.4

Package: libcublas-12-4
Status: install ok installed
Version: 1:12.4.5.8-1

Package: bash
Status: install ok installed
Version: 5.2
"""
SYSTEM = {"/var/lib/dpkg/status": STATUS}
BASE = python("/usr/local")
SITE = site("/usr/local")


def system(files, **environ):
    return read_system(make_image(files).files, environ)


def versions(found):
    return {name: package.version for name, package in found.components.items()}


def environment(files, **options):
    (entry,) = read_image(make_image(files, **options), ()).environments
    return entry.environment


def components(read):
    return {name: package.version for name, package in read.components.items()}


def test_dpkg_says_what_is_installed():
    found = system(SYSTEM)
    assert versions(found) == {
        "cuda": "12.4.127",
        "cudnn": "9.1.0.70",
        "nccl": "2.21.5",
        "cublas": "12.4.5.8",
        "nvcc": "12.4.131",
    }
    assert found.components["cudnn"].details == {"system": "libcudnn9-cuda-12 9.1.0.70-1"}
    assert found.compatibility_driver.version == "550.54.15"


def test_distroless_has_a_file_for_each_package():
    files = {"/var/lib/dpkg/status.d/libnccl2": "Package: libnccl2\nVersion: 2.21.5-1+cuda12.4\nSource: nccl\n"}
    assert versions(system(files)) == {"nccl": "2.21.5"}


def test_link_tells_which_of_several_releases_counts():
    text = "".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n\n"
        for name, version in (
            ("cuda-cudart-11-8", "11.8.89-1"),
            ("cuda-cudart-12-4", "12.4.127-1"),
            ("libcudnn8", "8.9.6.50-1+cuda11.8"),
            ("libcudnn9-cuda-12", "9.1.0.70-1"),
        )
    )
    files = {"/var/lib/dpkg/status": text, "/usr/local/cuda": To("/etc/alternatives/cuda")}
    twelve = {**files, "/etc/alternatives/cuda": To("/usr/local/cuda-12.4"), "/usr/local/cuda-12.4/lib64/": ""}
    found = system(twelve)
    assert versions(found) == {"cuda": "12.4.127", "cudnn": "9.1.0.70"}
    assert any("cuda-cudart-11-8 11.8.89-1" in note for note in found.notes)
    eleven = {**files, "/etc/alternatives/cuda": To("/usr/local/cuda-11.8"), "/usr/local/cuda-11.8/lib64/": ""}
    assert versions(system(eleven)) == {"cuda": "11.8.89", "cudnn": "8.9.6.50"}


def test_version_file_of_a_toolkit_without_packages():
    text = '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, "libcublas": {"version": "12.4.5.8"}, "x": 1}'
    found = system({"/usr/local/cuda-12.4/version.json": text})
    assert versions(found) == {"cuda": "12.4.1", "cublas": "12.4.5.8"}
    assert found.components["cuda"].source.key == "cuda"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"cuda": 1}', '{"cuda": {"version": []}}', "[" * 100_000])
def test_broken_version_file_says_nothing(text):
    assert versions(system({"/usr/local/cuda/version.json": text})) == {}


def test_names_of_libraries_tell_versions():
    folder = "/usr/lib/x86_64-linux-gnu"
    files = {
        f"{folder}/libcudnn.so.9": To("libcudnn.so.9.1.0"),
        f"{folder}/libcudnn.so.9.1.0": PROGRAM,
        "/usr/local/cuda/lib64/libcudart.so.12.4.127": PROGRAM,
    }
    assert versions(system(files)) == {"cudnn": "9.1.0", "cuda": "12.4.127"}


def test_variables_of_nvidias_images_come_last():
    environ = {"CUDA_VERSION": "12.4.1", "NV_CUDNN_VERSION": "9.1.0.70-1", "NCCL_VERSION": "2.21.5-1"}
    found = system({}, **environ)
    assert versions(found) == {"cuda": "12.4.1", "cudnn": "9.1.0.70", "nccl": "2.21.5"}
    assert str(found.components["cudnn"].source) == "image configuration (NV_CUDNN_VERSION)"
    assert versions(system(SYSTEM, **environ))["cuda"] == "12.4.127"


def test_wheels_that_torch_loads_win_over_the_system():
    files = {
        **BASE,
        **SYSTEM,
        **torch(SITE, "2.6.0+cu124", "12.4"),
        **dist(SITE, "nvidia-cudnn-cu12", "9.5.1.17"),
        **dist(SITE, "nvidia-nccl-cu12", "2.23.4"),
    }
    read = environment(files)
    assert components(read) == {"cuda": "12.4", "cudnn": "9.5.1.17", "nccl": "2.23.4"}
    assert "the system's cudnn 9.1.0.70 is not what torch loads (9.5.1.17)" in read.notes
    assert "the system has cublas 12.4.5.8; nothing tells that torch loads it" in read.notes


def test_torch_built_in_the_image_loads_the_systems_libraries():
    read = environment({**BASE, **SYSTEM, **torch(SITE, "2.6.0a0+ecf3bae40a.nv25.1", "12.8")})
    assert components(read) == {"cuda": "12.8", "cudnn": "9.1.0.70", "nccl": "2.21.5", "cublas": "12.4.5.8"}
    assert read.components["nccl"].details == {"system": "libnccl2 2.21.5-1+cuda12.4"}
    assert read.components["nccl"].source.path == "train:1:/var/lib/dpkg/status"
    assert "the system's compiler is nvcc 12.4.131, and torch is built for CUDA 12.8" in read.notes


def test_torch_that_carries_its_libraries_does_not_load_the_systems():
    read = environment(
        {**BASE, **SYSTEM, **torch(SITE, "1.13.1+cu117", "11.7"), f"{SITE}/torch/lib/libcudnn.so.8": PROGRAM}
    )
    assert components(read) == {"cuda": "11.7"}


@pytest.mark.parametrize(("version", "cuda"), [("2.6.0+cpu", None), ("2.6.0", None)])
def test_cpu_build_loads_none(version, cuda):
    assert components(environment({**BASE, **SYSTEM, **torch(SITE, version, cuda)})) == {}


def test_condas_torch_has_condas_libraries():
    files = {
        **SYSTEM,
        **conda("/opt/conda", "pytorch-2.4.1-cuda124_generic_py311", "cudnn-9.3.0.75-h0_0", "nccl-2.23.4-h0_0"),
        **torch(site("/opt/conda"), "2.4.1", "12.4"),
    }
    assert components(environment(files)) == {"cuda": "12.4", "cudnn": "9.3.0.75", "nccl": "2.23.4"}


def test_what_the_image_asks_of_the_driver_is_said():
    env = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470,driver<471"}
    notes = read_image(make_image({**BASE, **SYSTEM}, env=env), ()).notes
    assert "starts on drivers that support CUDA 12.4 only (NVIDIA_REQUIRE_CUDA)" in notes
    assert any("cuda-compat 550.54.15" in note for note in notes)


def test_status_file_of_many_packages_is_read_in_linear_time():
    text = "Package: x\nVersion: 1\n\n" * 100_000 + "\n" * 100_000 + STATUS
    assert len(read_dpkg(text, "status")) == 6  # without libnccl-dev, bash and what was removed
