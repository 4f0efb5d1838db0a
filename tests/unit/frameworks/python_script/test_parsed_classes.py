"""Classes that a parser fills are found wherever they stand in the project."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.core.files import LOCAL
from compatcheck.frameworks.python_script.parsed_classes import find_parsed_classes
from tests.effort import at_most

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.frameworks.python_script.parsed_classes import ParsedClass


def find(folder: Path, text: str) -> dict[str, ParsedClass]:
    (folder / ".git").mkdir(exist_ok=True)
    return {one.name: one for one in find_parsed_classes(ast.parse(text), str(folder / "t.py"), LOCAL)}


def test_classes_are_followed_through_packages_and_other_names(tmp_path: Path) -> None:
    package = tmp_path / "pkg" / "args"
    package.mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("", encoding="utf-8")
    (package / "__init__.py").write_text("from .model import Inner as Model\n", encoding="utf-8")
    (package / "model.py").write_text(
        "from transformers import TrainingArguments as HF\nclass Base(HF): ...\nclass Inner(Base): ...\n",
        encoding="utf-8",
    )
    found = find(
        tmp_path, "from pkg.args import Model\nimport pkg.args.model as m\nHfArgumentParser((Model, m.Base))\n"
    )
    assert [node.name for _, node in found["Model"].nodes] == ["Base", "Inner"]
    assert found["Model"].roots == found["Base"].roots == {"TrainingArguments"}


def test_a_class_may_be_called_like_the_one_it_is_built_on(tmp_path: Path) -> None:
    text = "from transformers import TrainingArguments\nclass TrainingArguments(TrainingArguments): ...\n"
    found = find(tmp_path, f"{text}HfArgumentParser(TrainingArguments)\n")["TrainingArguments"]
    assert (len(found.nodes), found.roots) == (1, {"TrainingArguments"})


def test_names_that_lead_to_one_another_end(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.py").write_text(f"from {other} import A\n", encoding="utf-8")
    assert find(tmp_path, "from a import A\nHfArgumentParser(A)\n")["A"].roots == {"A"}
    assert find(tmp_path, "class A(B): ...\nclass B(A): ...\nHfArgumentParser(A)\n")["A"].nodes
    many = "".join(f"class A{n}(A{n + 1}): ...\n" for n in range(3_000))
    with at_most(50):
        find(tmp_path, f"{many}HfArgumentParser(({', '.join(f'A{n}' for n in range(3_000))}))\n")
