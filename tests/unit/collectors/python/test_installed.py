import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from compatcheck.collectors.python.installed import collect_installed
from compatcheck.collectors.python.interpreter import locate
from compatcheck.core.environment import Package
from tests import ROOT
from tests.unit.collectors.python.layouts import add_conda, add_dist, add_torch, make_prefix, make_venv, site_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")


@pytest.fixture
def prefix(tmp_path):
    return make_prefix(tmp_path / "python")


@pytest.fixture
def site(prefix):
    return site_of(prefix)


def collect(prefix, environ=None):
    return collect_installed(locate(None, str(prefix), environ or {}))


def versions(environment):
    return {name: package.version for name, package in environment.packages.items()}


def damage(environment):
    return {(damage.kind, damage.package): damage.detail for damage in environment.damage}


def test_names_and_versions_come_from_directory_names(prefix, site):
    for name, version in (
        ("flash-attn", "2.7.4.post1"),
        ("ruamel.yaml", "0.18.6"),
        ("PyYAML", "6.0.2"),
        ("x", "1!2.0+cu118"),
    ):
        add_dist(site, name, version)
    environment = collect(prefix)
    assert versions(environment) == {
        "flash-attn": "2.7.4.post1",
        "ruamel-yaml": "0.18.6",
        "pyyaml": "6.0.2",
        "x": "1!2.0+cu118",
    }
    assert environment.complete
    assert environment.packages["pyyaml"].source.path == str(site / "PyYAML-6.0.2.dist-info")
    assert environment.skipped == ()


@pytest.mark.parametrize(
    ("directory", "name", "version"),
    [
        ("my-legacy-name-1.0.dist-info", "my-legacy-name", "1.0"),
        ("pkg-1.0-1.dist-info", "pkg", "1.0-1"),
        ("pkg-1.0_1.dist-info", "pkg", "1.0-1"),
        ("pkg.dist-info", "pkg", "2.0"),
        ("pkg-v1.0.dist-info", "pkg", "1.0"),
        ("UPPER_name-1.0.dist-info", "Upper.Name", "1.0"),
    ],
)
def test_metadata_decides_where_the_directory_name_is_ambiguous(prefix, site, directory, name, version):
    add_dist(site, name, version, directory=directory)
    assert versions(collect(prefix)) == {canonicalize_name(name): version}


def test_endings_in_capitals_count_as_for_importlib(prefix, site):
    add_dist(site, "deepspeed", "0.16.4")
    (site / "deepspeed-0.16.4.dist-info").rename(site / "deepspeed-0.16.4.DIST-INFO")
    assert [dist.version for dist in importlib.metadata.distributions(path=[str(site)])] == ["0.16.4"]
    assert versions(collect(prefix)) == {"deepspeed": "0.16.4"}


def test_earlier_directories_win(tmp_path):
    base = make_prefix(tmp_path / "base")
    prefix = make_venv(tmp_path / "venv", base, system=True)
    shared = tmp_path / "shared"
    for folder, version in ((shared, "3"), (site_of(prefix), "2"), (site_of(base), "1")):
        add_dist(folder, "pkg", version)
    add_dist(site_of(base), "other", "1")
    assert versions(collect(prefix)) == {"pkg": "2", "other": "1"}
    assert versions(collect(prefix, {"PYTHONPATH": str(shared)})) == {"pkg": "3", "other": "1"}
    assert collect(prefix).damage == ()


def test_vendored_copies_do_not_count(prefix, site):
    add_dist(site / "setuptools" / "_vendor", "packaging", "26.0")
    add_dist(site / "ray" / "thirdparty_files", "psutil", "5.0")
    assert versions(collect(prefix)) == {}


def test_two_dist_infos_of_one_distribution(prefix, site):
    old = add_dist(site, "deepspeed", "0.15.4")
    new = add_dist(site, "deepspeed", "0.16.4")
    os.utime(old, (1, 1))
    environment = collect(prefix)
    assert versions(environment) == {"deepspeed": "0.16.4"}
    detail = damage(environment)["duplicated", "deepspeed"]
    assert "0.16.4 and 0.15.4" in detail
    assert {source.path for source in environment.damage[0].sources} == {str(old), str(new)}


def test_two_dist_infos_with_names_written_differently(prefix, site):
    add_dist(site, "Flash_Attn", "2.0", directory="Flash_Attn-2.0.dist-info")
    add_dist(site, "flash.attn", "2.0", directory="flash.attn-2.0.dist-info")
    assert ("duplicated", "flash-attn") in damage(collect(prefix))


def test_version_file_decides_between_two_dist_infos(prefix, site):
    right = add_torch(site, "2.5.1+cu124", cuda="12.4", metadata_version="2.5.1")
    add_dist(site, "torch", "2.6.0")
    os.utime(right, (1, 1))
    environment = collect(prefix)
    assert versions(environment) == {"torch": "2.5.1"}
    assert set(damage(environment)) == {("duplicated", "torch")}


@pytest.mark.parametrize("metadata", ["", None, "Summary: no name\n\n", "Name: pkg\n\n"])
def test_broken_dist_info_is_reported_and_its_version_unknown(prefix, site, metadata):
    folder = add_dist(site, "pkg", "1.0", directory="pkg.dist-info" if metadata else None, metadata=metadata or "")
    if metadata is None:
        (folder / "METADATA").unlink()
    environment = collect(prefix)
    assert environment.packages["pkg"].version is None
    assert environment.packages["pkg"].specifier == ""
    (skipped,) = environment.skipped
    assert skipped.source.path == str(folder)
    assert "METADATA" in skipped.reason
    assert "pkg" in skipped.hint


def test_broken_dist_info_beside_a_sound_one(prefix, site):
    add_dist(site, "pkg", "1.0", metadata="")
    add_dist(site, "pkg", "2.0")
    environment = collect(prefix)
    assert versions(environment) == {"pkg": "2.0"}
    assert len(environment.skipped) == 1


def test_file_named_like_a_dist_info(prefix, site):
    (site / "pkg-1.0.dist-info").write_text("")
    environment = collect(prefix)
    assert environment.packages["pkg"].version is None
    assert "METADATA" in environment.skipped[0].reason


def test_leftovers_of_an_interrupted_pip(prefix, site):
    add_dist(site, "torch", "2.0", directory="~orch-2.0.dist-info")
    environment = collect(prefix)
    assert environment.packages == {}
    assert "interrupted pip" in environment.skipped[0].reason
    assert environment.complete


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_unreadable_directory_leaves_the_environment_incomplete(prefix, site):
    site.chmod(0)
    try:
        environment = collect(prefix)
    finally:
        site.chmod(0o755)
    assert not environment.complete
    assert "could not be listed" in environment.skipped[0].reason


def test_metadata_that_is_not_utf8(prefix, site):
    folder = add_dist(site, "pkg", "1.0", directory="p-k-g-1.0.dist-info")
    (folder / "METADATA").write_bytes(b"Name: p-k-g\nVersion: 1.0\nAuthor: \xff\xfe\n\n")
    assert versions(collect(prefix)) == {"p-k-g": "1.0"}


class TestPaths:
    """``.pth`` files, editable installs and eggs."""

    def test_path_lines_are_followed_and_code_is_listed(self, prefix, site, tmp_path):
        add_dist(tmp_path / "extra", "pkg", "1.0")
        add_dist(site / "relative", "other", "2.0")
        text = f"# comment\n\n{tmp_path}/extra\nrelative\n/nowhere\nimport os; os.mkdir({str(tmp_path / 'ran')!r})\n"
        (site / "extra.pth").write_text(text)
        environment = collect(prefix)
        assert versions(environment) == {"pkg": "1.0", "other": "2.0"}
        assert str(site / "extra.pth") in environment.notes[0]
        assert not (tmp_path / "ran").exists()

    def test_path_lines_without_end_are_given_up_and_said(self, prefix, site, tmp_path):
        add_dist(tmp_path / "extra", "pkg", "1.0")
        (site / "a.pth").write_text("/nowhere\n" * 2000)
        (site / "b.pth").write_text(f"{tmp_path}/extra\n")
        environment = collect(prefix)
        assert versions(environment) == {}
        assert not environment.complete
        assert [(entry.source.path, entry.reason) for entry in environment.skipped] == [
            (str(site / "b.pth"), "the .pth files here name more than 2,000 directories; the rest is not read")
        ]

    def test_path_lines_come_after_their_own_directory(self, prefix, site, tmp_path):
        add_dist(tmp_path / "extra", "pkg", "1.0")
        add_dist(site, "pkg", "2.0")
        (site / "extra.pth").write_text(f"{tmp_path}/extra\n")
        assert versions(collect(prefix)) == {"pkg": "2.0"}

    def test_files_named_by_path_lines_are_not_followed_further(self, prefix, site, tmp_path):
        add_dist(tmp_path / "b", "pkg", "1.0")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "next.pth").write_text(f"{tmp_path}/b\n")
        (site / "extra.pth").write_text(f"{tmp_path}/a\n")
        assert versions(collect(prefix)) == {}

    def test_path_file_that_names_its_own_directory(self, prefix, site):
        (site / "self.pth").write_text(".\n")
        add_dist(site, "pkg", "1.0")
        environment = collect(prefix)
        assert versions(environment) == {"pkg": "1.0"}
        assert environment.damage == ()

    def test_python_path_has_its_path_files_ignored(self, prefix, tmp_path):
        add_dist(tmp_path / "b", "pkg", "1.0")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x.pth").write_text(f"{tmp_path}/b\n")
        assert versions(collect(prefix, {"PYTHONPATH": str(tmp_path / "a")})) == {}

    def test_byte_order_mark(self, prefix, site, tmp_path):
        add_dist(tmp_path / "extra", "pkg", "1.0")
        (site / "extra.pth").write_text(f"\ufeff{tmp_path}/extra\n", encoding="utf-8")
        assert versions(collect(prefix)) == {"pkg": "1.0"}

    @pytest.mark.parametrize("url", ["file:///src/my%20fork", "file:///src/my fork"])
    def test_editable_install(self, prefix, site, url):
        folder = add_dist(site, "deepspeed", "0.16.4+abc")
        (folder / "direct_url.json").write_text(f'{{"dir_info": {{"editable": true}}, "url": "{url}"}}')
        (site / "__editable__.deepspeed-0.16.4.pth").write_text("import __editable___deepspeed_finder\n")
        assert collect(prefix).packages["deepspeed"].details == {"editable": "/src/my fork"}

    def test_install_from_a_url_is_not_editable(self, prefix, site):
        folder = add_dist(site, "pkg", "1.0")
        (folder / "direct_url.json").write_text('{"archive_info": {}, "url": "https://me:secret@example.org/pkg.whl"}')
        assert collect(prefix).packages["pkg"].details == {"direct_url": "https://[redacted]@example.org/pkg.whl"}

    def test_develop_install(self, prefix, site, tmp_path):
        source = tmp_path / "fork"
        (source / "deepspeed.egg-info").mkdir(parents=True)
        (source / "deepspeed.egg-info" / "PKG-INFO").write_text("Name: deepspeed\nVersion: 0.14.0\n")
        (site / "deepspeed.egg-link").write_text(f"{source}\n.")
        (site / "easy-install.pth").write_text(f"{source}\n")
        package = collect(prefix).packages["deepspeed"]
        assert (package.version, package.details) == ("0.14.0", {"editable": str(source)})

    def test_develop_install_of_a_tree_that_is_gone(self, prefix, site):
        (site / "pkg.egg-link").write_text("/nowhere\n.")
        assert "could not be read" in collect(prefix).skipped[0].reason

    def test_egg_infos(self, prefix, site):
        (site / "PyYAML-5.3.1.egg-info").write_text("Name: PyYAML\nVersion: 5.3.1\n")
        (site / "six-1.16.0-py3.11.egg-info").mkdir()
        (site / "plain.egg-info").mkdir()
        (site / "plain.egg-info" / "PKG-INFO").write_text("Name: plain\nVersion: 3\n")
        (site / "broken.egg-info").mkdir()
        environment = collect(prefix)
        assert versions(environment) == {"pyyaml": "5.3.1", "six": "1.16.0", "plain": "3", "broken": None}
        assert "no version of broken" in environment.skipped[0].reason

    def test_eggs(self, prefix, site):
        (site / "pkg-1.2-py3.11.egg" / "EGG-INFO").mkdir(parents=True)
        (site / "zipped-2.0-py3.11.egg").write_bytes(b"PK")
        (site / "easy-install.pth").write_text("./pkg-1.2-py3.11.egg\n./zipped-2.0-py3.11.egg\n")
        assert versions(collect(prefix)) == {"pkg": "1.2", "zipped": "2.0"}

    def test_archive_on_the_path_is_said(self, prefix, site, tmp_path):
        (tmp_path / "libs.zip").write_bytes(b"PK")
        (site / "x.pth").write_text(f"{tmp_path}/libs.zip\n")
        environment = collect(prefix)
        assert "archive" in environment.skipped[0].reason
        assert not environment.complete


class TestTorch:
    """What torch's own version file and the wheels around it tell."""

    def test_cuda_build_with_wheels(self, prefix, site):
        add_torch(site, "2.8.0+cu128", cuda="12.8", metadata_version="2.8.0")
        wheels = {"nvidia-cuda-runtime-cu12": "12.8.90", "nvidia-cudnn-cu12": "9.10.2.21", "nvidia-nccl-cu12": "2.27.3"}
        for name, version in {**wheels, "nvidia-cublas-cu12": "12.8.4.1", "triton": "3.4.0"}.items():
            add_dist(site, name, version)
        environment = collect(prefix)
        found = {name: package.version for name, package in environment.components.items()}
        assert found == {
            "cuda": "12.8.90",
            "cudnn": "9.10.2.21",
            "nccl": "2.27.3",
            "cublas": "12.8.4.1",
            "triton": "3.4.0",
        }
        assert environment.facts["runtime.torch_cuda"][0] == "12.8"
        assert environment.facts["runtime.torch_build"][0] == "cuda"
        assert environment.facts["runtime.torch_cuda"][1].path == str(site / "torch" / "version.py")
        assert environment.components["cudnn"].source.path.endswith("nvidia_cudnn_cu12-9.10.2.21.dist-info")
        assert environment.damage == ()

    def test_unsuffixed_wheels_of_cuda_13(self, prefix, site):
        add_torch(site, "2.11.0+cu130", cuda="13.0")
        names = {
            "cuda-toolkit": "13.0.2",
            "nvidia-cublas": "13.1.0.3",
            "nvidia-cudnn-cu13": "9.15.1.9",
            "nvidia-nccl-cu13": "2.28.9",
        }
        for name, version in names.items():
            add_dist(site, name, version)
        found = {name: package.version for name, package in collect(prefix).components.items()}
        assert found == {"cuda": "13.0.2", "cublas": "13.1.0.3", "cudnn": "9.15.1.9", "nccl": "2.28.9"}

    def test_wheels_of_another_cuda_are_left_over(self, prefix, site):
        add_torch(site, "2.0.1+cu118", cuda="11.8")
        add_dist(site, "nvidia-cudnn-cu12", "9.1.0.70")
        add_dist(site, "nvidia-cudnn-cu11", "8.9.6.50")
        add_dist(site, "nvidia-nccl-cu12", "2.20.5")
        environment = collect(prefix)
        assert environment.components["cudnn"].version == "8.9.6.50"
        assert "nccl" not in environment.components
        assert "nvidia-nccl-cu12 2.20.5 is installed and not counted" in " ".join(environment.notes)

    def test_cuda_build_without_wheels_leaves_components_unknown(self, prefix, site):
        add_torch(site, "1.13.1+cu117", cuda="11.7")
        assert set(collect(prefix).components) == {"cuda"}

    def test_cpu_build(self, prefix, site):
        add_torch(site, "2.13.0+cpu")
        add_dist(site, "nvidia-cudnn-cu12", "9.1.0.70")
        environment = collect(prefix)
        assert environment.facts["runtime.torch_cuda"][0] is None
        assert environment.facts["runtime.torch_build"][0] == "cpu"
        assert environment.components == {}
        assert "torch is not built for CUDA" in environment.notes[0]

    @pytest.mark.parametrize(
        ("version", "hip", "build"),
        [("2.5.1+rocm6.2", "6.2.41133", "rocm"), ("2.5.1+xpu", None, "xpu"), ("2.5.1", None, "cpu")],
    )
    def test_other_builds(self, prefix, site, version, hip, build):
        add_torch(site, version, hip=hip)
        facts = collect(prefix).facts
        assert (facts["runtime.torch_build"][0], facts["runtime.torch_cuda"][0]) == (build, None)

    @pytest.mark.parametrize(
        ("version", "expected"), [("2.5.1+cu124", "12.4"), ("1.13.1+cu117", "11.7"), ("2.9.0+cu130", "13.0")]
    )
    def test_label_tells_without_a_version_file(self, prefix, site, version, expected):
        add_dist(site, "torch", version)
        environment = collect(prefix)
        assert environment.facts["runtime.torch_cuda"][0] == expected
        assert "version file was not found" in environment.skipped[0].reason

    def test_nothing_tells(self, prefix, site):
        add_dist(site, "torch", "2.5.1")
        assert collect(prefix).facts == {}

    def test_torch_without_metadata(self, prefix, site):
        add_torch(site, "2.4.0a0+git1234", cuda="12.4")
        for path in (site / "torch-2.4.0a0+git1234.dist-info").iterdir():
            path.unlink()
        (site / "torch-2.4.0a0+git1234.dist-info").rmdir()
        package = collect(prefix).packages["torch"]
        assert package == Package("torch", "2.4.0a0+git1234", package.source)
        assert package.source.path == str(site / "torch" / "version.py")

    def test_abi_where_the_build_states_it(self, prefix, site):
        add_torch(site, "2.5.1+cu124", cuda="12.4")
        cmake = site / "torch" / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
        cmake.parent.mkdir(parents=True)
        cmake.write_text('  set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
        assert collect(prefix).facts["runtime.cxx11_abi"][0] is False
        cmake.write_text("nothing\n")
        assert "runtime.cxx11_abi" not in collect(prefix).facts

    @pytest.mark.parametrize(
        ("metadata", "own", "mismatch"),
        [
            ("2.5.1", "2.5.1+cu124", False),
            ("2.5.1+cu124", "2.5.1+cu121", True),
            ("2.6.0", "2.5.1+cu124", True),
            ("2.3.0a0+6ddf5cf85e.nv24.4", "2.3.0a0+6ddf5cf85e.nv24.04", False),
            ("2.5", "2.5.0", False),
            ("not a version", "2.5.0", True),
        ],
    )
    def test_metadata_and_version_file(self, prefix, site, metadata, own, mismatch):
        add_torch(site, own, cuda="12.4", metadata_version=metadata, directory="torch.dist-info")
        found = damage(collect(prefix))
        assert (("mismatched", "torch") in found) is mismatch
        if mismatch:
            assert found["mismatched", "torch"] == f"metadata says {metadata}, its own version file {own}"

    def test_version_files_of_others(self, prefix, site):
        files = {"deepspeed/git_version_info_installed.py": "version='0.16.4+abc'\ngit_hash='abc'\n"}
        add_dist(site, "deepspeed", "0.15.4", files=files)
        files = {"transformers/__init__.py": '# Copyright\n\n__version__ = "4.49.0"\n\nfrom typing import X\n'}
        add_dist(site, "transformers", "4.48.0", files=files)
        assert set(damage(collect(prefix))) == {("mismatched", "deepspeed"), ("mismatched", "transformers")}

    def test_editable_source_tree_has_moved_on(self, prefix, site, tmp_path):
        source = tmp_path / "transformers" / "src" / "transformers"
        source.mkdir(parents=True)
        (source / "__init__.py").write_text('__version__ = "4.50.0.dev0"\n')
        folder = add_dist(site, "transformers", "4.48.0.dev0")
        url = (tmp_path / "transformers").as_uri()
        (folder / "direct_url.json").write_text(f'{{"url": "{url}", "dir_info": {{"editable": true}}}}')
        assert "4.50.0.dev0" in damage(collect(prefix))["mismatched", "transformers"]

    @pytest.mark.parametrize(
        "text", ["", "\0\0", "__version__ = get_version()\n", "cuda: Optional[str] = open('/etc/passwd')\n"]
    )
    def test_version_file_that_says_nothing(self, prefix, site, text):
        add_dist(site, "torch", "2.5.1+cpu", files={"torch/version.py": text})
        environment = collect(prefix)
        assert environment.damage == ()
        assert environment.facts["runtime.torch_build"][0] == "cpu"

    def test_several_cudnn_and_no_torch(self, prefix, site):
        add_dist(site, "nvidia-cudnn-cu11", "8.9.6.50")
        add_dist(site, "nvidia-cudnn-cu12", "9.1.0.70")
        environment = collect(prefix)
        assert "cudnn" not in environment.components
        assert "nothing tells which" in environment.notes[0]


class TestConda:
    """Hand-made prefixes laid out as conda lays them out."""

    def test_components_of_the_pytorch_channel(self, prefix, site):
        add_torch(site, "2.1.0", cuda="12.1", installer="conda")
        add_conda(
            prefix,
            "pytorch-2.1.0-py3.11_cuda12.1_cudnn8.9.2_0",
            "cuda-cudart-12.1.105-0",
            "pytorch-cuda-12.1-ha16c6d3_5",
        )
        found = {name: package.version for name, package in collect(prefix).components.items()}
        assert found == {"cuda": "12.1.105", "cudnn": "8.9.2"}

    def test_components_of_conda_forge(self, prefix, site):
        add_torch(site, "2.5.1", cuda="12.6", installer="conda")
        add_conda(
            prefix, "pytorch-2.5.1-cuda126_py311h5bf9a54_306", "cudnn-9.3.0.75-h93bb076_0", "nccl-2.23.4.1-h52f6c39_3",
            "libcublas-12.6.4.1-hbd13f7d_0", "cuda-version-12.6-h7480c83_3",
        )  # fmt: skip
        found = {name: package.version for name, package in collect(prefix).components.items()}
        assert found == {"cuda": "12.6", "cudnn": "9.3.0.75", "nccl": "2.23.4.1", "cublas": "12.6.4.1"}

    def test_torch_of_pip_does_not_load_what_conda_has(self, prefix, site):
        add_torch(site, "2.5.1+cu124", cuda="12.4")
        add_conda(prefix, "cudnn-8.9.2.26-cuda12_0")
        assert set(collect(prefix).components) == {"cuda"}

    def test_pip_over_conda(self, prefix, site):
        listed = {"numpy": ["lib/python3.11/site-packages/numpy-1.26.4.dist-info/METADATA"]}
        add_conda(prefix, "numpy-1.26.4-py311h64a7726_0", files=listed)
        add_dist(site, "numpy", "2.1.0", installer="pip")
        environment = collect(prefix)
        detail = damage(environment)["pip_over_conda", "numpy"]
        assert detail == "conda installed 1.26.4, pip wrote 2.1.0 over it"

    def test_pip_beside_conda(self, prefix, site):
        listed = {"pytorch": ["lib/python3.11/site-packages/torch-2.1.0-py3.11.egg-info/PKG-INFO"]}
        add_conda(prefix, "pytorch-2.1.0-py3.11_cuda12.1_cudnn8.9.2_0", files=listed)
        add_torch(site, "2.1.0", cuda="12.1", installer="conda")
        add_dist(site, "torch", "2.5.1", installer="pip")
        assert set(damage(collect(prefix))) == {("pip_over_conda", "torch"), ("duplicated", "torch")}

    @pytest.mark.parametrize(
        ("record", "files", "name", "version", "installer"),
        [
            (
                "numpy-1.26.4-py311_0",
                ["lib/python3.11/site-packages/numpy-1.26.4.dist-info/METADATA"],
                "numpy",
                "1.26.4",
                "pip",
            ),
            ("tzdata-2024b-hc8b5060_0", ["share/zoneinfo/UTC"], "tzdata", "2025.2", "pip"),
            (
                "numpy-1.26.4-py311_0",
                ["lib/python3.11/site-packages/numpy-1.26.4.dist-info/METADATA"],
                "numpy",
                "2.0",
                "conda",
            ),
            ("pytz-2024.1-pyhd8ed1ab_0", ["site-packages/pytz-2024.1.dist-info/METADATA"], "pytz", "2024.1.0", "uv"),
        ],
    )
    def test_not_pip_over_conda(self, prefix, site, record, files, name, version, installer):  # noqa: PLR0917
        add_conda(prefix, record, files={record.rsplit("-", 2)[0]: files})
        add_dist(site, name, version, installer=installer)
        assert collect(prefix).damage == ()

    def test_records_that_are_no_records(self, prefix):
        add_conda(prefix)
        (prefix / "conda-meta" / "history").touch()
        (prefix / "conda-meta" / "x.json").write_text("{")
        assert collect(prefix).skipped == ()


def test_agrees_with_importlib_metadata_on_this_environment():
    layout = locate(None, None, {})
    expected = {}
    for distribution in importlib.metadata.distributions(path=list(layout.site_packages)):
        expected.setdefault(canonicalize_name(distribution.name), distribution.version)
    assert expected
    found = versions(collect_installed(layout))
    for folder in layout.site_packages:
        for pth in Path(folder).glob("*.pth"):
            if any(not line.startswith(("import", "#")) and line.strip() for line in pth.read_text().splitlines()):
                found = {name: version for name, version in found.items() if name in expected}
    assert found == expected


def test_the_usual_path_imports_little(prefix, site):
    """Each of these costs more than reading a whole environment."""
    add_torch(site, "2.8.0+cu128", cuda="12.8", metadata_version="2.8.0")
    add_dist(site, "nvidia-cudnn-cu12", "9.10.2.21")
    code = (
        "import sys\n"
        "from compatcheck.collectors.python import installed, interpreter\n"
        "from compatcheck.collectors.machine import driver, variables\n"
        "from compatcheck.core.source import Source\n"
        f"installed.collect_installed(interpreter.locate(None, {str(prefix)!r}, {{}}))\n"
        "variables.collect_variables({'NCCL_DEBUG': 'INFO'}, Source('environment'))\n"
        f"driver.collect_hardware({{'PATH': ''}}, root={str(prefix)!r})\n"
        "print(*sys.modules)"
    )
    environ = {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=environ)
    heavy = {
        "json",
        "importlib.metadata",
        "packaging",
        "yaml",
        "subprocess",
        "pathlib",
        "dataclasses",
        "email",
        "difflib",
    }
    assert heavy.isdisjoint(loaded.stdout.split())
    assert "compatcheck.collectors.python.conda_records" not in loaded.stdout
