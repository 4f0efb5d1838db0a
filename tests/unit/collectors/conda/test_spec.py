"""Match specifications mean in PEP 440 what they mean to conda."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.collectors.conda.spec import (
    InvalidSpecError,
    convert_version,
    parse_match_spec,
    read_archive_name,
    read_channel,
)
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier


@pytest.mark.parametrize(
    ("text", "name", "exact", "specifier", "build", "channel"),
    [
        ("pytorch", "pytorch", None, "", None, None),
        ("pytorch=2.5.1", "pytorch", None, "==2.5.1.*", None, None),
        ("pytorch=2.5", "pytorch", None, "==2.5.*", None, None),
        ("pytorch==2.5.1", "pytorch", "2.5.1", "==2.5.1", None, None),
        ("pytorch 2.5.1", "pytorch", "2.5.1", "==2.5.1", None, None),
        (
            "pytorch=2.5.1=py3.11_cuda12.4_cudnn9.1.0_0",
            "pytorch",
            "2.5.1",
            "==2.5.1",
            "py3.11_cuda12.4_cudnn9.1.0_0",
            None,
        ),
        ("pytorch==2.5.1=py3.11_0", "pytorch", "2.5.1", "==2.5.1", "py3.11_0", None),
        ("pytorch 2.5.1 *cuda*", "pytorch", "2.5.1", "==2.5.1", "*cuda*", None),
        ("pytorch=2.5.1=*cuda*", "pytorch", "2.5.1", "==2.5.1", "*cuda*", None),
        ("pytorch=2.5.*=*cuda*", "pytorch", None, "==2.5.*", "*cuda*", None),
        ("pytorch>=2.7.0=cuda12*", "pytorch", None, ">=2.7.0", "cuda12*", None),
        ("pytorch =*=cuda*", "pytorch", None, "", "cuda*", None),
        ("pytorch>=2.1,<2.2", "pytorch", None, ">=2.1,<2.2", None, None),
        ("pytorch >= 2.1 , < 2.2", "pytorch", None, ">=2.1,<2.2", None, None),
        ("conda-forge::pkg=1.2", "pkg", None, "==1.2.*", None, "conda-forge"),
        ("nvidia/label/cuda-11.8.0::cuda-nvcc", "cuda-nvcc", None, "", None, "nvidia/label/cuda-11.8.0"),
        ("numpy 2.1.*", "numpy", None, "==2.1.*", None, None),
        ("numpy 1.2|1.3", "numpy", None, "==1.2 || ==1.3", None, None),
        ("numpy >=1.2,<2|>=3", "numpy", None, ">=1.2,<2 || >=3", None, None),
        ("numpy!=1.24.*", "numpy", None, "!=1.24.*", None, None),
        ("numpy~=1.26.0", "numpy", None, "~=1.26.0", None, None),
        ("numpy >=1.2.*", "numpy", None, ">=1.2", None, None),
        ("pytorch[version='>=2.5',build='*cuda*']", "pytorch", None, ">=2.5", "*cuda*", None),
        ("uvicorn[standard]=0.12", "uvicorn", None, "==0.12.*", None, None),
        ("numpy (>=1.2)", "numpy", None, ">=1.2", None, None),
        ("x264=1!164.3095", "x264", None, "==1!164.3095.*", None, None),
        ("python-dateutil=2.9.0post0", "python-dateutil", None, "==2.9.0post0", None, None),
        (
            "https://conda.anaconda.org/conda-forge/linux-64/pytorch-2.5.1-cpu_generic_py311_0.conda#0123",
            "pytorch",
            "2.5.1",
            "==2.5.1",
            "cpu_generic_py311_0",
            "conda-forge",
        ),
    ],
)
def test_specifications(
    text: str, name: str, exact: str | None, specifier: str, build: str | None, channel: str | None
) -> None:
    spec = parse_match_spec(text)
    assert (spec.name, spec.exact, spec.build, spec.channel) == (name, exact, build, channel)
    assert convert_version(spec.version) == specifier
    compile_specifier(specifier)


@pytest.mark.parametrize("text", ["", "=1.2", "-r base.txt", "https://h.example/a.zip", "*", "x" * 3000, "num/py"])
def test_what_is_no_specification_is_said(text: str) -> None:
    with pytest.raises(InvalidSpecError):
        parse_match_spec(text)


@pytest.mark.parametrize("condition", ["1.1.1w", "^2.5.*$", "2.*.1", "|".join(["1"] * 100), "!=*", "(>=1|<2),3"])
def test_conditions_without_a_form_in_pep_440_are_said(condition: str) -> None:
    with pytest.raises(InvalidSpecifierError):
        convert_version(condition)


def test_archive_names() -> None:
    assert read_archive_name("https://h/c/noarch/a-b-1.0-pyhd8ed1ab_0.tar.bz2#ff") == ("a-b", "1.0", "pyhd8ed1ab_0")
    assert read_archive_name("a-1.0.tar.gz") is None
    assert read_channel("https://repo.anaconda.com/pkgs/main/linux-64/a-1-0.conda") == "main"
    assert read_channel("a-1-0.conda") is None


@given(st.text(max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        spec = parse_match_spec(text)
        compile_specifier(convert_version(spec.version))
    except (InvalidSpecError, InvalidSpecifierError):
        pass
