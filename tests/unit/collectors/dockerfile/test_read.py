"""Dockerfiles: the image they build, by the names of base images and the installs they pin."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.collectors.dockerfile.read import read_dockerfile
from compatcheck.collectors.read import read_environments
from compatcheck.collectors.recognise import recognise, recognise_content
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.selection import Selection
from tests.effort import at_most


def _read(directory: Path, text: str) -> Environment:
    path = directory / "Dockerfile"
    path.write_text(text)
    (environment,) = read_environments(str(path), "dockerfile")
    return environment


def _versions(environment: Environment) -> dict[str, str]:
    """Return releases and ranges; those that are not certain end in a question mark."""
    return {
        name: (package.version or package.specifier or "*") + ("?" if package.is_optional else "")
        for name, package in environment.packages.items()
    }


def _cuda(environment: Environment) -> object:
    return environment.facts["runtime.torch_cuda"][0] if "runtime.torch_cuda" in environment.facts else "unknown"


def test_base_image_pins_and_variables(tmp_path: Path) -> None:
    environment = _read(
        tmp_path,
        "ARG TAG=2.5.1-cuda12.4-cudnn9-devel\nFROM pytorch/pytorch:${TAG}\nARG DS=0.16.4\n"
        "ENV PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
        "RUN apt-get update && \\\n    pip install deepspeed==$DS \\\n      'transformers>=4.48,<5'\n",
    )
    assert _versions(environment) == {"torch": "2.5.1", "deepspeed": "0.16.4", "transformers": "<5,>=4.48"}
    assert _cuda(environment) == "12.4"
    assert environment.facts["allocator.expandable_segments"][0] is True
    assert not environment.complete
    assert environment.packages["torch"].source.key == "by the tag pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel"
    assert environment.packages["deepspeed"].source.line == 6
    assert environment.packages["transformers"].source.line == 7


def test_the_last_stage_counts_with_what_it_takes_over(tmp_path: Path) -> None:
    text = (
        "FROM python:3.11-slim AS build\n"
        "RUN pip install --prefix=/install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu126\n"
        "FROM build AS other\nRUN pip install vllm==0.8.5\n"
        "FROM nvidia/cuda:12.6.3-base-ubuntu22.04\nCOPY --from=build /install /usr/local\nRUN pip install trl==0.15.0\n"
    )
    environment = _read(tmp_path, text)
    assert _versions(environment) == {"torch": "2.6.0", "trl": "0.15.0"}
    assert _cuda(environment) == "12.6"
    assert environment.facts["runtime.cuda_compat"][0] == "12.6"
    other = read_dockerfile(str(tmp_path / "Dockerfile"), selection=Selection(stage="other"))
    assert other.packages["vllm"].version == "0.8.5"


def test_requirement_files_are_found_by_their_copy(tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "req").mkdir()
    (tmp_path / "req" / "train.txt").write_text("accelerate==1.3.0\n")
    (tmp_path / "extra.txt").write_text("peft==0.14.0\n")
    text = (
        "FROM ubuntu:22.04\nWORKDIR /app\nCOPY req/ /tmp/req/\nRUN pip install -r /tmp/req/train.txt\n"
        "RUN --mount=type=bind,source=extra.txt,target=e.txt pip install -r e.txt\nRUN pip install -r gone.txt\n"
    )
    environment = _read(tmp_path / "docker", text)
    assert _versions(environment) == {"accelerate": "1.3.0", "peft": "0.14.0"}
    assert environment.packages["accelerate"].source.path.endswith("train.txt")
    assert [entry.source.line for entry in environment.skipped] == [6]


def test_a_copied_file_is_not_taken_for_another_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.0\n")
    environment = _read(
        tmp_path, "FROM ubuntu\nCOPY a/requirements.txt requirements.txt\nRUN pip install -r requirements.txt\n"
    )
    assert not environment.packages
    assert "does not lie beside" in environment.skipped[0].reason


@pytest.mark.parametrize(
    ("commands", "torch", "cuda"),
    [
        ("pip install torch==2.4.0", "2.4.0", "12.1"),
        ("pip install torch", "2.5.1", "12.4"),
        ("pip install 'torch>=2.4'", "2.5.1", "12.4"),
        ("pip install 'torch>=2.6'", ">=2.6", "unknown"),
        ("pip install -U torch", "*", "unknown"),
        ("pip install torch==2.5.1", "2.5.1", "12.4"),
        ("pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu126", "2.6.0", "12.6"),
        ("UV_TORCH_BACKEND=cu126 uv pip install torch==2.6.0", "2.6.0", "12.6"),
        ("pip install vllm==0.8.5", "==2.6.*", "unknown"),
        ("pip install --no-deps vllm==0.8.5", "2.5.1", "12.4"),
        ("pip install vllm==0.6.6", "2.5.1", "12.4"),
        ("pip install vllm", "*", "unknown"),
        ("pip install xformers==0.0.29.post3 torch==2.6.0", "2.6.0", "12.4"),
        (
            "pip uninstall -y torch && pip install torch==2.4.0 --index-url https://download.pytorch.org/whl/cu124",
            "2.4.0",
            "12.4",
        ),
        ("if test -f x; then pip install torch==2.4.0; fi", "==2.5.1 || ==2.4.0?", "unknown"),
    ],
)
def test_which_torch_is_there_in_the_end(tmp_path: Path, commands: str, torch: str, cuda: str) -> None:
    environment = _read(tmp_path, f"FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN {commands}\n")
    assert (_versions(environment)["torch"], _cuda(environment)) == (torch, cuda)


def test_a_vendor_build_is_replaced_by_a_pin(tmp_path: Path) -> None:
    environment = _read(tmp_path, "FROM nvcr.io/nvidia/pytorch:24.05-py3\nRUN pip install torch==2.4.0\n")
    assert _versions(environment)["torch"] == "2.4.0"


def test_wheels_tell_what_they_were_built_for(tmp_path: Path) -> None:
    wheel = "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"
    environment = _read(tmp_path, f"FROM x\nRUN wget https://host/{wheel} && pip install {wheel}\n")
    assert environment.packages["flash-attn"].version == "2.7.4.post1+cu12torch2.6cxx11abiFALSE"


def test_conda_says_its_cuda_apart(tmp_path: Path) -> None:
    commands = "conda create -n e python=3.10 && conda install pytorch==2.4.1 pytorch-cuda=12.1 -c pytorch"
    text = f"FROM continuumio/miniconda3\nRUN {commands}\n"
    environment = _read(tmp_path, text)
    assert (_versions(environment), environment.python) == ({"torch": "2.4.1"}, "3.10")
    assert _cuda(environment) == "12.1"


@pytest.mark.parametrize(
    ("commands", "details"),
    [
        (
            "conda install pytorch=2.5.1\nRUN pip install torch==2.6.0",
            ["conda installs 2.5.1, pip writes 2.6.0 over it"],
        ),
        ("conda install pytorch=2.5.1 && pip install 'torch>=2.6'", ["conda installs 2.5.1, pip writes >=2.6 over it"]),
        ("conda install pytorch=2.5.1 && pip install 'torch>=2.5' peft", []),
        ("pip install torch==2.6.0 && conda install pytorch=2.5.1", []),
        ("conda install pytorch=2.5.1 && pip install torch==2.6.0 && conda install pytorch=2.6.0", []),
        ("conda install pytorch=2.5.1 && if [ -f a ]; then pip install torch==2.6.0; fi", []),
    ],
)
def test_pip_writes_over_what_conda_installed(tmp_path: Path, commands: str, details: list[str]) -> None:
    for text in (f"FROM x\nRUN {commands}\n", f"FROM x AS first\nRUN {commands}\nFROM first\nRUN true\n"):
        environment = _read(tmp_path, text)
        assert [(entry.kind, entry.detail) for entry in environment.damage] == [
            ("pip_over_conda", text) for text in details
        ]


def test_a_package_of_conda_brings_no_torch_of_pypis(tmp_path: Path) -> None:
    environment = _read(tmp_path, "FROM x\nRUN pip install torch==2.6.0\nRUN conda install torchvision=0.20.1\n")
    assert _versions(environment)["torch"] == "2.6.0"
    assert environment.packages["torchvision"].details["conda"] == "torchvision"


def test_other_forms_of_run(tmp_path: Path) -> None:
    text = (
        'FROM x\nRUN ["pip", "install", "a==1"]\nRUN ["bash", "-c", "pip install b==2"]\nRUN <<EOF\npip install c==3\nEOF\n'
        "RUN bash <<EOF\npip install d==4\nEOF\nRUN python3 <<EOF\npip install e==5\nEOF\n"
    )
    assert _versions(_read(tmp_path, text)) == {"a": "1", "b": "2", "c": "3", "d": "4"}


@pytest.mark.parametrize(
    "command",
    ["uv sync --frozen", "poetry install --no-root", "pdm install", "pipenv install --system", "pixi install"],
)
def test_what_installs_a_project_is_said(tmp_path: Path, command: str) -> None:
    environment = _read(tmp_path, f"FROM python:3.11\nRUN {command}\n")
    assert " ".join(command.split()[:2]) in " ".join(environment.notes)


def test_what_only_the_build_knows_is_listed(tmp_path: Path) -> None:
    text = "ARG B\nFROM $B\nRUN pip install torch==$(cat v) -r ${F}\nRUN uv sync\nRUN pip install .\n"
    environment = _read(tmp_path, text)
    assert [(entry.source.line, entry.named) for entry in environment.skipped] == [
        (2, False),
        (3, True),
        (3, True),
        (4, False),
        (5, False),
    ]
    notes = " ".join(environment.notes)
    assert "uv sync" in notes
    assert "pyproject.toml" in notes


def test_a_file_without_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no FROM"):
        _read(tmp_path, "RUN pip install a\n")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Dockerfile", True),
        ("Dockerfile.gpu", True),
        ("Dockerfile-cu121", True),
        ("Dockerfile_amd", True),
        ("train.Dockerfile", True),
        ("Containerfile", True),
        ("Dockerfile.dockerignore", False),
        ("Dockerfiles.md", False),
        ("mydockerfile", False),
    ],
)
def test_names_of_dockerfiles(tmp_path: Path, name: str, *, known: bool) -> None:
    (tmp_path / name).write_text("FROM ubuntu:22.04\n")
    assert (recognise(str(tmp_path / name)) == "dockerfile") is known


def test_a_dockerfile_on_standard_input_is_told_by_its_content() -> None:
    assert recognise_content(b"# c\nARG A=1\nFROM nvidia/cuda:${A} AS b\nRUN x\n") == "dockerfile"
    assert recognise_content(b"From the team\ntorch==2.0\nnumpy==1.26.4\n") == "requirements"
    assert recognise_content(b"torch==2.0\n") == "requirements"


@given(
    st.lists(
        st.sampled_from(
            [
                "FROM a\n",
                "FROM a AS b\n",
                "ARG A=$A\n",
                "ENV A $A$A\n",
                "RUN pip install a==$A\n",
                "COPY --from=b / /\n",
                "RUN <<E\n",
                "E\n",
                "WORKDIR $A\n",
                'RUN ["pip"\n',
                "\\\n",
                "COPY x\n",
                "RUN pip install -r /\n",
                "pip install 'a\n",
            ]
        ),
        max_size=30,
    )
)
def test_any_order_of_instructions_is_read(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "Dockerfile"
    path.write_text("FROM a\n" + "".join(lines))
    assert read_dockerfile(str(path)).origin == str(path)


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\n" + "".join(f"ENV A{i}=$A{i - 1}$A{i - 1}x\n" for i in range(20_000)),
        "FROM a\nENV A=" + "x" * 4_000 + "\nRUN pip install " + "$A" * 100_000,
        "FROM a\nRUN " + "if x; then " * 30_000,
        "FROM a\nRUN pip install " + "<" * 100_000,
        "FROM a\nRUN pip install " + "\"'" * 50_000,
        "".join(f"FROM s{i} AS s{i + 1}\n" for i in range(499)),
        "FROM a\nARG " + "=" * 50_000 + "\nARG a=" + "'\"" * 20_000 + "\n",
        "FROM a AS b\nRUN pip install x==1\nFROM c\nCOPY --from=b " + "a" * 500_000 + " /\n",
        "FROM a\nRUN pip install " + "a-" * 200_000 + ".tar.gz\n",
        "FROM a\nRUN <<A <<B <<C\n" + "\n" * 50_000,
        "FROM a\nRUN true" + " && true" * 30_000,
    ],
)
def test_hostile_files_take_bounded_time(tmp_path: Path, text: str) -> None:
    with at_most(50):
        _read(tmp_path, text)


@pytest.mark.parametrize(
    ("run", "script"),
    [
        ("RUN ./a.sh\n", "pip install a==1\n" * 2_000),
        ("RUN ./a.sh\n", "#" * 300_000),
        ("RUN for i in {1..1000}; do for j in {1..50}; do :; done; done\n", ""),
    ],
)
def test_what_is_run_again_and_again_is_bounded_and_said(tmp_path: Path, run: str, script: str) -> None:
    (tmp_path / "a.sh").write_text(script)
    found = _read(tmp_path, "FROM a\n" + run * 100 + "RUN pip install b==1\n")
    assert [entry.reason for entry in found.skipped] == [
        "more is run than is read of one Dockerfile; the rest is not read"
    ]
    assert "b" not in found.packages


def test_a_directory_beyond_any_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="working directory of more than 4096 characters"):
        _read(tmp_path, "FROM a\n" + "WORKDIR a\n" * 4_100)


def test_too_many_stages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="500 stages"):
        _read(tmp_path, "FROM a\n" * 501)


def test_only_shells_of_its_kind_are_read(tmp_path: Path) -> None:
    found = _read(
        tmp_path, 'FROM a AS b\nSHELL ["pwsh", "-Command"]\nFROM b\nRUN pip install x\nRUN ["pip", "install", "y"]\n'
    )
    assert list(found.packages) == ["y"]
    assert "a shell that is not read" in found.skipped[0].reason
    found = _read(tmp_path, 'FROM a\nSHELL ["conda", "run", "-n", "e", "/bin/bash", "-c"]\nRUN pip install x\n')
    assert list(found.packages) == ["x"]


def test_functions_arrays_loops_and_patterns_are_the_shells(tmp_path: Path) -> None:
    text = (
        'FROM a\nENV V=2.6.0+cu124\nRUN get() { pip install "$@"; }; P=(a b); for p in ${P[@]}; do get $p==1; done; \\\n'
        '  pip install "torch==${V%+*}" && X=$(date) && pip install c\n'
    )
    found = _read(tmp_path, text)
    assert {name: package.version for name, package in found.packages.items()} == {
        "a": "1", "b": "1", "torch": "2.6.0", "c": None,
    }  # fmt: skip
    assert found.packages["torch"].source.line == 4
    assert not any(package.details.get("presence") for package in found.packages.values())


@pytest.mark.parametrize(
    "command",
    [
        "sed -i /torch/d r.txt && pip install -r r.txt",
        "grep -v torch r.txt > r.txt && pip install -r r.txt",
        "cat r.txt | xargs -n 1 pip install",
        "pip install /wheels/*.whl",
        "wget https://x/d.whl && pip install deepspeed-0.16*.whl",
    ],
)
def test_what_the_build_alone_knows_is_never_passed_over(tmp_path: Path, command: str) -> None:
    (tmp_path / "r.txt").write_text("deepspeed==0.16.3\n")
    environment = _read(tmp_path, f"FROM python:3.11\nCOPY r.txt .\nRUN pip install torch==2.6.0\nRUN {command}\n")
    assert "deepspeed" not in environment.packages
    assert [skip.source.line for skip in environment.skipped] == [4]


@pytest.mark.parametrize(
    "command",
    [
        "echo deepspeed==0.16.4 > r.txt && pip install -r r.txt",
        "echo deepspeed==0.16.4 > r.txt\nRUN pip install -r r.txt",
        "echo deepspeed==0.16.4 | xargs pip install",
        "echo deepspeed==0.16.4 > c.txt && pip install -c c.txt deepspeed",
        "uv add deepspeed==0.16.4",
        "pixi add deepspeed==0.16.4",
    ],
)
def test_what_the_build_writes_and_passes_on_is_read(tmp_path: Path, command: str) -> None:
    (tmp_path / "r.txt").write_text("deepspeed==0.16.3\n")
    environment = _read(tmp_path, f"FROM python:3.11\nCOPY r.txt .\nRUN {command}\n")
    package = environment.packages["deepspeed"]
    assert (package.version or package.specifier) in {"0.16.4", "==0.16.4"}
    assert not environment.skipped


@pytest.mark.parametrize(
    "variable",
    [
        "ENV PIP_CONSTRAINT=c.txt\nRUN ",
        "RUN PIP_CONSTRAINT=c.txt ",
        "ENV PIP_CONSTRAINT=/w/c.txt\nCOPY c.txt /w/\nRUN ",
    ],
)
def test_constraints_of_a_variable_hold(tmp_path: Path, variable: str) -> None:
    (tmp_path / "c.txt").write_text("deepspeed==0.16.4\ntrl==0.15.0\n")
    packages = _read(tmp_path, f"FROM python:3.11\n{variable}pip install deepspeed\n").packages
    assert (packages["deepspeed"].version, "trl" in packages) == ("0.16.4", False)


def test_what_easy_install_installs_is_there(tmp_path: Path) -> None:
    assert (
        _read(tmp_path, "FROM python:3.11\nRUN easy_install deepspeed==0.16.4\n").packages["deepspeed"].version
        == "0.16.4"
    )


@pytest.mark.parametrize(
    "command",
    ["pip install deepspeed && python t.py", '["sh", "-c", "pip install deepspeed"]', '["pip", "install", "x"]'],
)
def test_an_install_when_the_container_starts_is_said(tmp_path: Path, command: str) -> None:
    skipped = _read(tmp_path, f"FROM python:3.11\nRUN pip install torch==2.6.0\nCMD {command}\n").skipped
    assert [(entry.source.line, "when the container starts" in entry.reason) for entry in skipped] == [(3, True)]


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        ("RUN pip install 'torch==2.6.0' 'torch<2.6'\n", ["torch"]),
        ("RUN pip install -r requirements.txt -c limits.txt\n", ["torch"]),
        ("RUN pip install torch==2.6.0\nRUN pip install 'torch<2.6'\n", []),
        ("RUN pip install -r requirements.txt\nRUN pip install -r limits.txt\n", []),
        ("RUN test -d x && pip install 'torch==2.6.0' 'torch<2.6'\n", []),
        ("RUN pip install 'torch==2.6.0' 'torch<2.6'\nFROM python:3.11\n", []),
        ("AS one\nRUN pip install 'torch==2.6.0' 'torch<2.6'\nFROM one\n", ["torch"]),
    ],
)
def test_one_command_asks_for_releases_that_exclude_each_other(tmp_path: Path, commands: str, names: list[str]) -> None:
    (tmp_path / "requirements.txt").write_text("torch>=2.0\n")
    (tmp_path / "limits.txt").write_text("torch<2.0\n")
    start = "FROM python:3.11" + (" " if commands.startswith("AS") else "\nCOPY . .\n")
    assert [damage.package for damage in _read(tmp_path, start + commands).damage] == names


@pytest.mark.parametrize(
    "install", ["torch==$(curl -u me:hidden h)", "-r $(curl -u me:hidden h)", "torch==`curl -u me:hidden h`"]
)
def test_words_of_commands_in_an_install_are_not_said(tmp_path: Path, install: str) -> None:
    (skipped,) = _read(tmp_path, f"FROM ubuntu\nRUN pip install {install}\n").skipped
    assert "curl …" in skipped.reason
    assert "hidden" not in skipped.reason
