"""Projects state requirements in five places; each is read with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from compatcheck.collectors.requirements.pyproject import convert_poetry_range, read_pyproject
from compatcheck.core.environment import Environment
from compatcheck.core.errors import InputError
from compatcheck.core.selection import DEFAULT, Choice, Selection
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, contains
from tests import ROOT
from tests.effort import at_most
from tests.unit.collectors.certain import certain

UV_PROJECT = str(ROOT / "fixtures" / "environments" / "uv-project" / "pyproject.toml")


def _read(tmp_path: Path, text: str, selection: Selection = DEFAULT) -> Environment:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    return read_pyproject(str(path), selection=selection)


PROJECT = """\
[build-system]
requires = ["setuptools>=61"]

[project]
name = "demo"
requires-python = ">=3.11"
dependencies = [
    "torch==2.6.0",  # pinned
    'transformers>=4.45,<5',
    "numpy<2; python_version < '3.9'",
    "deepspeed @ git+https://github.example/DeepSpeed@v0.16.4",
]

[project.optional-dependencies]
vLLM = ["vllm==0.8.5"]
sgl = ["sglang", "torch==2.5.1", "vllm==0.6.3"]

[dependency-groups]
test = ["pytest>=8", {include-group = "Lint"}]
lint = ["ruff"]

[tool.uv]
constraint-dependencies = ["transformers!=4.50.0", "ray==2.40"]
override-dependencies = []
"""


def test_project_requirements_with_lines(tmp_path: Path) -> None:
    environment = _read(tmp_path, PROJECT)
    packages = environment.packages
    assert not environment.complete
    assert packages["torch"].version == "2.6.0"
    assert (packages["torch"].source.line, packages["torch"].source.key) == (8, "project.dependencies[0]")
    assert set((packages["transformers"].specifier or "").split(",")) == {">=4.45", "<5", "!=4.50.0"}
    assert packages["transformers"].source.line == 9
    assert packages["deepspeed"].details["revision"] == "v0.16.4"
    assert "numpy" not in packages
    assert "setuptools" not in packages
    assert "pytest" not in certain(environment)
    assert not environment.skipped
    assert "dependency groups not selected: lint, test" in environment.notes
    assert any("ray" in note for note in environment.notes)


def test_unselected_extras_are_possible_not_required(tmp_path: Path) -> None:
    packages = _read(tmp_path, PROJECT).packages
    assert packages["vllm"].is_optional
    assert packages["vllm"].brought_by == (Choice("extra", "sgl"), Choice("extra", "vllm"))
    assert packages["pytest"].brought_by == (Choice("group", "test"),)
    assert packages["vllm"].specifier == "==0.6.3 || ==0.8.5"
    assert packages["torch"].version == "2.6.0"
    assert not packages["torch"].is_optional


def test_selected_extras_and_groups_are_required(tmp_path: Path) -> None:
    environment = _read(tmp_path, PROJECT, Selection(extras=("vllm",), groups=("test",)))
    assert environment.packages["vllm"].version == "0.8.5"
    assert {"pytest", "ruff"} <= set(certain(environment))


def test_overrides_replace(tmp_path: Path) -> None:
    text = PROJECT.replace("override-dependencies = []", 'override-dependencies = ["torch==2.7.0"]')
    assert _read(tmp_path, text).packages["torch"].version == "2.7.0"


def test_project_that_uv_reads() -> None:
    environment = read_pyproject(UV_PROJECT)
    assert environment.packages["packaging"].specifier == ">=23"
    assert environment.packages["demo-vcs"].details["vcs"] == "git"
    assert environment.packages["tomli"].details["marker"]


POETRY = """\
[tool.poetry]
name = "demo"
[tool.poetry.dependencies]
python = "^3.10"
torch = "^2.4"
Deep_Speed = { version = "~0.16.2", optional = true }
vllm = { git = "https://tok:en@github.example/vllm.git", tag = "v0.8.5" }
numpy = [
    { version = "<2", python = "<3.12" },
    { version = ">=2", python = ">=3.12" },
]
pywin32 = { version = "*", platform = "win32" }
broken = "hello world"
[tool.poetry.extras]
zero = ["deep-speed"]
[tool.poetry.group.dev.dependencies]
ruff = "*"
"""


def test_poetry_tables(tmp_path: Path) -> None:
    environment = _read(tmp_path, POETRY, Selection(python="3.11.7"))
    packages = environment.packages
    assert packages["torch"].specifier == ">=2.4,<3"
    assert packages["torch"].source.line == 5
    assert packages["numpy"].specifier == "<2"
    assert packages["deep-speed"].brought_by == (Choice("extra", "zero"),)
    assert packages["vllm"].details["revision"] == "v0.8.5"
    assert "tok" not in repr(environment)
    assert "pywin32" not in packages
    assert [skipped.source.line for skipped in environment.skipped] == [13]
    assert _read(tmp_path, POETRY, Selection(extras=("zero",))).packages["deep-speed"].specifier == ">=0.16.2,<0.17"
    assert "ruff" in certain(_read(tmp_path, POETRY, Selection(groups=("dev",))))


@pytest.mark.parametrize(
    ("poetry", "expected"),
    [  # the tables of https://python-poetry.org/docs/dependency-specification/
        ("^1.2.3", ">=1.2.3,<2"),
        ("^1.2", ">=1.2,<2"),
        ("^1", ">=1,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0.0", ">=0.0,<0.1"),
        ("^0", ">=0,<1"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1.2", ">=1.2,<1.3"),
        ("~1", ">=1,<2"),
        ("~=1.2", "~=1.2"),
        ("1.2.3", "==1.2.3"),
        ("1.*", "==1.*"),
        ("*", ""),
        (">=1.2 <2.0", ">=1.2,<2.0"),
        (">= 1.2, !=1.5", ">=1.2,!=1.5"),
        ("^1.2 || ^2.0", ">=1.2,<2 || >=2.0,<3"),
        ("^1.2|~3", ">=1.2,<2 || >=3,<4"),
        ("v1.2", "==1.2"),
        ("=1.2", "==1.2"),
        ("<>1.2", "!=1.2"),
    ],
)
def test_poetry_ranges(poetry: str, expected: str) -> None:
    assert convert_poetry_range(poetry) == expected


@settings(max_examples=200)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_caret_keeps_the_leftmost_number_that_is_not_zero(base: list[int], version: list[int]) -> None:
    text = ".".join(map(str, base))
    padded = [*version, 0, 0, 0][:3]
    fixed = next((index + 1 for index, number in enumerate(base) if number), len(base))
    expected = padded >= [*base, 0, 0, 0][:3] and padded[:fixed] == base[:fixed]
    answer = contains(compile_specifier(convert_poetry_range("^" + text)), ".".join(map(str, version)))
    assert (answer == "yes") == expected
    assert SpecifierSet(convert_poetry_range("^" + text))


@pytest.mark.parametrize("text", ["^", "^x", "hello", ">=", "^1 ^"])
def test_malformed_poetry_range_is_an_error(text: str) -> None:
    with pytest.raises(InvalidSpecifierError):
        convert_poetry_range(text)


def test_dynamic_dependencies_are_skipped_with_the_files_named(tmp_path: Path) -> None:
    text = (
        '[project]\nname = "demo"\ndynamic = ["version", "dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["requirements.txt"]}\n'
    )
    (skipped,) = _read(tmp_path, text).skipped
    assert skipped.source.line == 3
    assert "requirements.txt" in str(skipped.hint)


def test_a_project_without_requirements_says_so(tmp_path: Path) -> None:
    assert "states no requirements" in _read(tmp_path, "[tool.ruff]\nline-length = 100\n").skipped[0].reason


def test_group_cycles_and_missing_groups(tmp_path: Path) -> None:
    text = '[dependency-groups]\na = ["x", {include-group = "b"}]\n'
    text += 'b = ["y", {include-group = "a"}, {include-group = "c"}, 3]\n'
    environment = _read(tmp_path, text, Selection(groups=("a",)))
    assert {"x", "y"} <= set(environment.packages)
    reasons = " ".join(skipped.reason for skipped in environment.skipped)
    assert "a → b → a" in reasons
    assert "'c', which does not exist" in reasons
    assert all(skipped.hint and skipped.named for skipped in environment.skipped)


def test_doubling_groups_stay_linear(tmp_path: Path) -> None:
    lines = [
        f'g{index} = ["p{index}", {{include-group = "g{index + 1}"}}, {{include-group = "g{index + 1}"}}]'
        for index in range(40)
    ]
    environment = _read(
        tmp_path, "[dependency-groups]\n" + "\n".join(lines) + '\ng40 = ["last"]\n', Selection(groups=("g0",))
    )
    assert len(environment.packages) == 41


def test_a_group_that_many_include_is_not_written_out_for_each(tmp_path: Path) -> None:
    names = [f"p{index}" for index in range(1500)]
    lines = ["base = " + str(names), *(f'g{index} = [{{include-group = "base"}}, "own{index}"]' for index in names)]
    with at_most(16):
        environment = _read(tmp_path, "[dependency-groups]\n" + "\n".join(lines))
    assert len(environment.packages) == 3000


def test_a_circle_of_many_groups_is_shown_by_its_ends(tmp_path: Path) -> None:
    lines = [f'g{index} = [{{include-group = "g{(index + 1) % 2000}"}}]' for index in range(2000)]
    (skipped,) = (
        skipped
        for skipped in _read(tmp_path, "[dependency-groups]\n" + "\n".join(lines)).skipped
        if "includes itself" in skipped.reason
    )
    assert "g0 → … → g1992" in skipped.reason
    assert skipped.reason.endswith("g1999 → g0")


def test_what_cannot_be_used_costs_its_length(tmp_path: Path) -> None:
    with at_most(6):
        skipped = _read(tmp_path, "[project]\ndependencies = [\n" + '"= 1",\n' * 8000 + "]\n").skipped
    assert len(skipped) > 1


def test_groups_of_poetry_include_others(tmp_path: Path) -> None:
    text = """\
[tool.poetry.group.test.dependencies]
deepspeed = "0.16.4"
[tool.poetry.group.all]
include-groups = ["Test", "gone", 3]
"""
    environment = _read(tmp_path, text, Selection(groups=("all",)))
    assert environment.packages["deepspeed"].version == "0.16.4"
    assert not environment.packages["deepspeed"].is_optional
    assert {skipped.reason for skipped in environment.skipped} == {
        "includes the group 'gone', which does not exist",
        "'3' is no name of a group",
    }
    assert {skipped.source.line for skipped in environment.skipped} == {4}


@pytest.mark.parametrize("table", ["dependency-groups", "project.optional-dependencies"])
def test_two_spellings_of_one_name_are_read_both(tmp_path: Path, table: str) -> None:
    environment = _read(tmp_path, f'[{table}]\nmy-group = ["torch==2.6.0"]\nMy_Group = ["deepspeed==0.16.4"]\n')
    assert {"torch", "deepspeed"} <= set(environment.packages)


@pytest.mark.parametrize(
    "text",
    [
        "[project]\ndependencies = 'torch'\n",
        "[project]\ndependencies = [3]\n",
        "[project]\ndependencies = ['torch=2']\n",
        "[dependency-groups]\na = 3\n",
        "[tool.poetry.dependencies]\na = 3\n",
        "[tool.poetry.dependencies]\na = 'not a range'\n",
        "[tool.uv]\nconstraint-dependencies = ['=']\n",
    ],
)
def test_odd_values_are_skipped_with_a_remedy(tmp_path: Path, text: str) -> None:
    skipped = _read(tmp_path, text).skipped[0]
    assert skipped.source.line == 2
    assert skipped.hint


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[project]\nname = 'a'\nname = 'b'\n", "pyproject.toml:3.*(overwrite a value|twice)"),
        (b"[project\n", "pyproject.toml:1.*column 9"),
        (b"[project]\nname = 'caf\xe9'\n", "pyproject.toml:2.*not UTF-8.*0xe9 at column 12"),
        (b"[project]\nname = 'a\0'\n", "pyproject.toml:2"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"a = " + b"[" * 100_000, "nested too deeply|not valid TOML"),
    ],
)
def test_unreadable_file_names_the_place(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(data)
    with pytest.raises(InputError, match=reason) as caught:
        read_pyproject(str(path))
    assert caught.value.hint


def test_development_requirements_of_uv_pdm_hatch_and_older_poetry_are_groups(tmp_path: Path) -> None:
    text = """\
[project]
name = "x"
dependencies = ["torch>=2"]
[tool.uv]
dev-dependencies = ["ruff>=0.5"]
[tool.pdm.dev-dependencies]
test = ["pytest>=8", "-e file:///${PROJECT_ROOT}/sub#egg=sub", "odd one"]
[tool.hatch.envs.train]
dependencies = ["deepspeed==0.16.4"]
extra-dependencies = ["local @ {root:uri}/local"]
[tool.poetry.dev-dependencies]
black = "^24"
"""
    environment = _read(tmp_path, text)
    assert set(certain(environment)) == {"torch"}
    assert "dependency groups not selected: dev, hatch-train, test" in environment.notes
    assert not any(entry.named for entry in environment.skipped)  # forms of their own are no mistake
    packages = _read(tmp_path, text, Selection(groups=("dev", "test", "hatch-train"))).packages
    assert packages["ruff"].specifier == ">=0.5"
    assert packages["black"].specifier == ">=24,<25"
    assert packages["sub"].details["editable"] == "true"
    assert (packages["deepspeed"].version, packages["deepspeed"].source.line) == ("0.16.4", 9)
