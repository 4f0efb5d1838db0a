"""Code that was compiled for another torch than the one beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.collectors.conda.packages import Record, build_environment
from compatcheck.collectors.python.installed import collect_installed
from compatcheck.collectors.python.interpreter import locate
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.matching.engine import match
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

PLACE = Source("lock")
RULE = "_stack/built-for-another-torch"


def _environment(packages: dict[str, str], cuda: str | None = None, **facts: object) -> Environment:
    if cuda is not None:
        facts |= {"runtime.torch_build": "cuda", "runtime.torch_cuda": cuda}
    return Environment(
        "lock",
        {name: Package(name, version, PLACE) for name, version in packages.items()},
        complete=False,
        facts={name: (value, PLACE) for name, value in facts.items()},
    )


def _misfits(environment: Environment) -> tuple[tuple[str, ...], str | None]:
    fact = resolve("lock", rules=open_rules(), environment=environment).roles["train"][
        "environment.built_for_another_torch"
    ]
    assert isinstance(fact.value, tuple)
    return fact.value, fact.note


@pytest.mark.parametrize(
    ("packages", "names"),
    [
        ({"torch": "2.5.1", "torchvision": "0.20.1", "torchaudio": "2.5.0"}, ()),
        ({"torch": "2.5.1", "torchvision": "0.19.1+cu121", "torchaudio": "2.4.0"}, ("torchaudio", "torchvision")),
        ({"torch": "2.6.0+cu124", "xformers": "0.0.28.post3"}, ("xformers",)),
        ({"torch": "2.6.0", "vllm": "0.8.5.post1"}, ()),
        ({"torch": "2.12.0", "torchaudio": "2.11.0", "xformers": "0.0.35"}, ()),
        ({"torch": "2.6.0a0+df5bbc09d1.nv24.11", "torchvision": "0.19.1"}, ()),
        ({"torch": "2.6.0", "torchvision": "0.99.0"}, ()),
        ({"torchvision": "0.19.1"}, ()),
        ({"torch": "2.8.0+rocm6.4", "torchvision": "0.22.0+gfx942", "vllm": "0.9.0+rocm641"}, ()),
        ({"torch": "2.8.0+rocm6.4", "torchvision": "0.22.0+rocm6.4"}, ("torchvision",)),
    ],
)
def test_pinned_distributions(packages: dict[str, str], names: tuple[str, ...]) -> None:
    assert _misfits(_environment(packages))[0] == names


def test_xformers_alone_is_imported_with_a_warning() -> None:
    def effects(**packages: str) -> dict[str, str]:
        found = match(resolve("lock", rules=open_rules(), environment=_environment(packages)), open_rules()).findings
        return {one.rule_id: one.impact.effect for one in found if one.impact and "another-torch" in one.rule_id}

    kernels = {"xformers/kernels-for-another-torch": "falls_back"}
    assert effects(torch="2.6.0+cu124", xformers="0.0.28.post3") == kernels
    assert effects(torch="2.11.0", xformers="0.0.34") == {}
    beside = effects(torch="2.6.0+cu124", xformers="0.0.28.post3", torchvision="0.20.1")
    assert beside == kernels | {RULE: "fails_to_start"}


def test_a_channel_of_conda_builds_for_other_releases_of_torch_than_pypi() -> None:
    """conda-forge has torchvision 0.20.1 for torch 2.6, and 0.24.0 for 2.7, 2.8 and 2.9."""
    records = (Record("pytorch", PLACE, version="2.6.0"), Record("torchvision", PLACE, version="0.20.1"))
    assert _misfits(build_environment("conda list", records))[0] == ()
    over = {"torchvision": Package("torchvision", "0.20.1", PLACE)}
    assert _misfits(build_environment("conda list", records[:1], pip=over))[0] == ("torchvision",)


@pytest.mark.parametrize(("channel", "names"), [("conda-forge", ()), ("pytorch", ("flash-attn",)), (None, ())])
def test_a_torch_of_conda_forge_has_the_abi_of_its_own_compilers(channel: str | None, names: tuple[str, ...]) -> None:
    build = "cuda126_py311h1_300" if channel != "pytorch" else "py3.11_cuda12.4_cudnn9.1.0_0"
    torch = Record("pytorch", PLACE, version="2.5.1", build=build, channel=channel)
    wheel = {"flash-attn": Package("flash-attn", "2.7.4.post1+cu12torch2.5cxx11abiTRUE", PLACE)}
    assert _misfits(build_environment("conda list", (torch,), pip=wheel))[0] == names


@pytest.mark.parametrize(
    ("torchvision", "names"),
    [("0.21.0+cu118", ("torchvision",)), ("0.21.0+cu126", ()), ("0.21.0+cpu", ()), ("0.21.0", ())],
)
def test_torchvision_compares_cuda_major_releases(torchvision: str, names: tuple[str, ...]) -> None:
    assert _misfits(_environment({"torch": "2.6.0+cu124", "torchvision": torchvision}, "12.4"))[0] == names


@pytest.mark.parametrize(
    ("torchaudio", "names"),
    [("2.6.0+cu118", ("torchaudio",)), ("2.6.0+cu126", ("torchaudio",)), ("2.6.0+cu124", ()), ("2.6.0", ())],
)
def test_torchaudio_compares_cuda_minor_releases(torchaudio: str, names: tuple[str, ...]) -> None:
    assert _misfits(_environment({"torch": "2.6.0+cu124", "torchaudio": torchaudio}, "12.4"))[0] == names


@pytest.mark.parametrize(
    ("torch", "cuda", "flash", "said"),
    [
        ("2.6.0", "12.4", "2.7.4.post1+cu12torch2.6cxx11abiFALSE", None),
        ("2.6.0", "12.4", "2.7.4.post1+cu12torch2.6cxx11abiTRUE", "C++11 ABI TRUE"),
        ("2.6.0", "12.6", "2.7.4.post1+cu12torch2.6cxx11abiFALSE", "C++11 ABI FALSE, and torch has TRUE"),
        ("2.7.1", "12.6", "2.7.4.post1+cu12torch2.6cxx11abiFALSE", "torch 2.6, and torch is 2.7.1"),
        ("2.8.0", "13.0", "2.8.3+cu12torch2.8cxx11abiTRUE", "CUDA 12, and torch is built for CUDA 13.0"),
        ("2.8.0", "12.8", "2.8.3+cu128torch2.8", None),
        ("2.11.0", "13.0", "2.8.1+cu13torch2.10cxx11abiTRUE", None),
        ("2.8.0", None, "2.8.3+cu12torch2.8cxx11abiFALSE", None),
        ("2.9.0", "12.8", "2.8.3", None),
    ],
)
def test_labels_of_flash_attn(torch: str, cuda: str | None, flash: str, said: str | None) -> None:
    names, note = _misfits(_environment({"torch": torch, "flash-attn": flash}, cuda))
    assert names == (() if said is None else ("flash-attn",))
    assert said is None or (note is not None and said in note)


@pytest.mark.parametrize(
    ("package", "version", "names"),
    [
        ("mamba-ssm", "1.2.0.post1+cu118torch2.1cxx11abiFALSE", ("mamba-ssm",)),
        ("causal-conv1d", "1.5.0.post8+cu12torch2.6cxx11abiFALSE", ("causal-conv1d",)),
        ("mamba-ssm", "2.2.4+cu12torch2.7cxx11abiTRUE", ()),
        ("mamba-ssm", "2.2.4", ()),
        ("torchao", "0.11.0+cu126", ()),
    ],
)
def test_a_label_counts_whatever_wears_it(package: str, version: str, names: tuple[str, ...]) -> None:
    assert _misfits(_environment({"torch": "2.7.1", package: version}, "12.6"))[0] == names


def test_what_torch_says_of_its_own_abi_wins() -> None:
    packages = {"torch": "2.6.0", "flash-attn": "2.7.4.post1+cu12torch2.6cxx11abiTRUE"}
    assert _misfits(_environment(packages, "12.4", **{"runtime.cxx11_abi": True}))[0] == ()


def _install(folder: Path, name: str, version: str, more: str = "", url: str | None = None) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}\n")
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps({"archive_info": {}, "url": url}))


def test_an_installed_wheel_tells_by_where_it_came_from(tmp_path: Path) -> None:
    _install(tmp_path, "torch", "2.7.1")
    url = "https://github.com/x/flash_attn-2.7.4.post1%2Bcu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"
    _install(tmp_path, "flash_attn", "2.7.4.post1", url=url)
    environment = collect_installed(locate(None, str(tmp_path), {}))
    assert _misfits(environment)[0] == ("flash-attn",)


def test_the_installed_metadata_wins_over_our_table(tmp_path: Path) -> None:
    _install(tmp_path, "torch", "2.6.0")
    _install(tmp_path, "torchvision", "0.20.1", "Requires-Dist: torch==2.6.0\n")
    environment = collect_installed(locate(None, str(tmp_path), {}))
    assert _misfits(environment)[0] == ()


def test_the_finding_says_what_and_where() -> None:
    rules = open_rules()
    subject = resolve("lock", rules=rules, environment=_environment({"torch": "2.6.0", "torchvision": "0.20.1"}))
    (finding,) = [found for found in match(subject, rules).findings if found.rule_id == RULE]
    assert finding.status == "affected"
    assert finding.severity == "critical"
    assert "torchvision 0.20.1 is built for torch 2.5, and torch is 2.6.0" in str(finding.facts[0].note)
