"""The pages of the documentation site are made of the repository: complete, with links that lead somewhere."""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import pytest
from packaging.version import Version

from compatcheck.cli.group import group
from compatcheck.rules.locate import open_rules
from compatcheck.rules.named_rule import list_rules
from compatcheck.rules.vocabulary import vocabulary
from compatcheck.rules.words import find_functions, list_conditions, say
from docs.build import make_pages, tell_language, write_pages
from docs.generator import navigation
from docs.generator.documents import find_page, list_documents, list_pictures
from docs.generator.page import Page, escape_prose, link, write_table
from docs.generator.rule_pages import FOLKLORE, ID, KNOWN, rule_path
from docs.generator.strips import Band, Strip, draw_strips
from tests import ROOT

LINK = re.compile(r"\[[^\[\]]*\]\(([^()\s]+)\)")


@cache
def pages() -> dict[str, str]:
    made = make_pages()
    assert len({page.path for page in made}) == len(made)
    return {page.path: page.text for page in made}


def headings(text: str) -> set[str]:
    """Return the anchors of a page, as the generator makes them of headings of words."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*\\]", r"\1", heading).strip().lower() for heading in found)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading)) for heading in plain}


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.DOTALL | re.MULTILINE)


def test_every_active_rule_has_a_page() -> None:
    rules = open_rules()
    for rule in list_rules(rules, (), inactive=False):
        page = pages()[rule_path(rule.id)]
        parts = [
            "What happens",
            "Releases affected",
            "How it is known",
            *(["What it costs"] if rule.kind != FOLKLORE else []),
        ]
        assert page.startswith(f"# {ID.format(rule.id)} {escape_prose(rule.title)}\n"), (
            "a search for an id finds its page"
        )
        assert all(f"\n## {part}\n" in page for part in parts)
        assert ("it is not so" in page) == (rule.kind == FOLKLORE)
        assert KNOWN[rule.confidence] in page
        assert f"compatcheck explain {rule.id} ." in page
        assert f"]({rule_path(rule.id).removeprefix('rules/')})" in pages()["rules/index.md"]
        assert all(reference["url"] in page for reference in rules.texts(rule).references)
        assert ("<figure" in page.partition("## Measured")[2]) == (rules.texts(rule).measured is not None)


def test_a_page_of_a_rule_is_found_in_chinese() -> None:
    assert "梯度检查点" in pages()["rules/deepspeed/zero3-params-kept-in-backward.md"]


def test_chinese_pages_say_which_language_they_are_in(tmp_path: Path) -> None:
    for name in ("index.html", "index.zh.html"):
        (tmp_path / name).write_text('<!doctype html>\n<html lang="en" class="no-js">\n', encoding="utf-8")
    tell_language(tmp_path)
    assert 'lang="zh-CN"' in (tmp_path / "index.zh.html").read_text(encoding="utf-8")
    assert 'lang="en"' in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_steps_up_stand_in_the_order_of_releases_and_say_what_codes_stand_for() -> None:
    page = pages()["releases/index.md"]
    packages = re.findall(r"^### (\S+)\n\n(.*?)(?=\n#|\Z)", page, re.DOTALL | re.MULTILINE)
    assert [name for name, _ in packages] == sorted(name for name, _ in packages)
    for _, table in packages:
        grown = [
            Version(row.split("\u00a0→\u00a0")[1].split(" ")[0])
            for row in re.findall(r"^\| (\d.*)$", table, re.MULTILINE)
        ]
        assert grown == sorted(grown) != []
    assert "attention-default): implementation | sdpa or flash → eager |" in page


def test_a_page_of_a_rule_works_its_size_out() -> None:
    page = pages()["rules/deepspeed/zero3-params-kept-in-backward.md"]
    assert "For `llama-3-70b` with deepspeed 0.16.0: 136,904,704,000 bytes, **127.5 GiB** per rank." in page
    assert (
        "| `deepspeed` | >=0.16.0, <0.16.8 | 0.16.0 (2024-11-25) | 0.16.7 (2025-04-18) | 0.16.8 (2025-05-19) |" in page
    )
    assert "- `training.use_reentrant` is false\n" in page
    assert "| 0.16.0 to 0.16.7 | 8.00 MiB |" in page


def test_no_page_is_empty_and_each_has_one_title() -> None:
    for path, text in pages().items():
        assert len(text) > 200, path
        assert (
            len(re.findall(r"^# ", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE))
            == 1
        ), path


def test_links_inside_the_site_lead_somewhere() -> None:
    there = {**pages(), **dict.fromkeys(list_pictures(), "")}
    wrong = []
    for path, text in pages().items():
        for target in LINK.findall(without_code(text)):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
            if found not in there or (anchor and anchor not in headings(there[found])):
                wrong.append(f"{path}: {target}")
    assert wrong == []


def test_figures_tell_what_they_show_and_are_well_formed() -> None:
    class Figures(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.ids: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.open.append(tag)
            self.ids += [value or "" for name, value in attrs if name == "id"]
            if tag == "svg" and dict(attrs).get("role") == "img":
                assert (dict(attrs).get("aria-labelledby") or "").split()

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    seen = 0
    for path, text in pages().items():
        parser = Figures()
        for figure in re.findall(r"<figure class=\"plot\">.*?</figure>", text):
            assert "<title" in figure
            parser.feed(figure)
            seen += 1
        assert parser.open == [], path
        assert len(parser.ids) == len(set(parser.ids)), path
    assert seen > 200


def test_every_swept_package_has_a_page() -> None:
    folders = {path.parent.name for path in (ROOT / "fixtures" / "measurements").glob("*/releases*.jsonl")}
    for package in ("transformers", "trl", "peft", "accelerate", "deepspeed"):
        page = pages()[f"releases/{package}.md"]
        assert "<figure" in page
        folders -= {name for name in folders if f"compatcheck sweep {name} --package {package}" in page}
    assert folders == set()
    assert (
        "llama | 10 | 4.30.0 to 4.30.2: 5.938; 4.31.0 to 4.45.2: 11.88; 4.46.1 to 4.48.3: 13.88"
        in pages()["releases/transformers.md"]
    )


def test_the_reference_has_every_command_fact_and_key() -> None:
    text = pages()["reference/cli.md"]

    def walk(outer: click.Group, name: str) -> None:
        for word in outer.list_commands(click.Context(outer)):
            command = outer.get_command(click.Context(outer), word)
            assert word == "help" or f"\n## {name} {word}\n" in text
            if isinstance(command, click.Group):
                walk(command, f"{name} {word}")

    walk(group, "compatcheck")
    assert all(f"`{name}`" in pages()["reference/facts.md"] for name in vocabulary())
    schema = json.loads((ROOT / "compatcheck" / "reporters" / "report.schema.json").read_text(encoding="utf-8"))
    assert all(f"\n### report: {part}\n" in pages()["reference/json.md"] for part in schema["$defs"])
    assert all(f"\n| `{key}` |" in pages()["reference/json.md"] for key in schema["$defs"]["finding"]["properties"])


def test_programs_say_what_is_read_of_them() -> None:
    text = pages()["reference/programs.md"]
    assert "| `training.zero_stage` |" in text
    assert text.count("<details") >= 12
    assert "meta-llama/Meta-Llama-3-70B" in pages()["reference/models.md"]


def test_every_page_has_its_place() -> None:
    made = [Page(path, text) for path, text in pages().items()]
    sections = {name: value for entry in navigation.order_pages(made) for name, value in entry.items()}

    def leaves(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        return [leaf for inner in (value.values() if isinstance(value, dict) else value) for leaf in leaves(inner)]

    placed = leaves(sections)
    assert sorted(placed) == sorted(pages())
    evidence = leaves(sections["Evidence"])
    assert {"sweeps.md", "memory-model.md", "real-projects.md", "side-by-side.md", "peers-memory.md"} <= {*evidence}
    assert not {*evidence} & {*leaves(sections["Guides"]), *leaves(sections["Manual"])}


def test_the_configuration_is_toml(tmp_path: Path) -> None:
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    write_pages(tmp_path)
    project = tomllib.loads((tmp_path / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assert [*project["nav"][0]] == ["Guides"]
    assert all(
        (tmp_path / "pages" / name).is_file()
        for name in (*project["extra_css"], *project["extra_javascript"], *pages())
    )


@pytest.mark.parametrize(
    ("file", "page"),
    [
        ("README.md", "index.md"),
        ("docs/oom.md", "oom.md"),
        ("rules", "rules/index.md"),
        ("rules/_stack/run-does-not-fit.yaml", "rules/stack/run-does-not-fit.md"),
        ("docs/pictures/incident.svg", "pictures/incident.svg"),
        ("pyproject.toml", None),
    ],
)
def test_files_of_the_repository_are_shown_on_pages(file: str, page: str | None) -> None:
    assert find_page(file, list_documents()) == page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training.zero_stage == 3", "`training.zero_stage` is 3"),
        ("not training.packing", "`training.packing` is false"),
        ("not (training.packing and model.parameters < 3)", "`training.packing` is false or `model.parameters` is at least 3"),
        ("training.peft is not None", "`training.peft` is not none"),
        ("training.peft not in ('lora', 'dora')", "`training.peft` is none of `lora` or `dora`"),
        ("training.peft in ('lora',)", "`training.peft` is `lora`"),
        ("training.packing if declared('model.name') else False", "`model.name` is known and `training.packing` is true"),
        ("training.packing if declared('model.name') else True", "where `model.name` is known: `training.packing` is true"),
        ("env('NCCL_CUMEM_ENABLE') == '1'", "the variable `NCCL_CUMEM_ENABLE` is `1`"),
        ("installed('liger-kernel', 'present')", "`liger-kernel` is installed"),
        ("not installed('torch', '>=2.5')", "`torch >=2.5` is not installed"),
        ("environment.duplicated and training.packing", "`environment.duplicated` is not empty and `training.packing` is true"),
        ("not model.expert_parameters", "`model.expert_parameters` is 0"),
        ("model.parameters > 10**9", "`model.parameters` is above `10 ** 9`"),
    ],
)  # fmt: skip
def test_conditions_in_words(text: str, words: str) -> None:
    from compatcheck.rules.syntax import parse

    assert say(parse(text)) == words


def test_functions_of_an_expression_are_found() -> None:
    from compatcheck.rules import syntax

    assert find_functions(syntax.parse("ceil(dtype_bytes(training.param_dtype)) + 1")) == {"ceil", "dtype_bytes"}


def test_conditions_that_all_hold_are_told_one_by_one() -> None:
    from compatcheck.rules.syntax import parse

    assert list_conditions(parse("training.packing and training.zero_stage == 3")) == [
        "`training.packing` is true",
        "`training.zero_stage` is 3",
    ]


def test_prose_keeps_code_and_strong_and_nothing_else() -> None:
    assert escape_prose("`a_b` and **c** of __init__ <x> *d*") == r"`a_b` and **c** of \_\_init\_\_ &lt;x&gt; \*d\*"


def test_tables_and_links() -> None:
    assert write_table(("a", "b:"), [("x|y", "1")]) == "| a | b |\n| --- | ---: |\n| x&#124;y | 1 |"
    assert link("t", "rules/torch/a.md", "reference/facts.md#model") == "[t](../../reference/facts.md#model)"
    assert link("t", "rules/index.md", "rules/index.md#x") == "[t](#x)"


def test_strips_show_bands_in_words_too() -> None:
    strip = Strip("a label", (Band(0, 1, "none", "not affected"), Band(2, 4, "bad", "affected")))
    figure = draw_strips("name", "Title", ["1", "2", "3", "4", "5"], [strip])
    assert "a label: 1 to 2 not affected; 3 to 5 affected." in figure.svg
    assert "<title>3 to 5: affected</title>" in figure.svg


@pytest.mark.versions
@pytest.mark.ci
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Its generator is pinned in ``docs/requirements.txt``; a link or heading that is not there fails the build."""
    if sys.version_info < (3, 11):
        pytest.skip("the generator needs Python 3.11")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "-r", "docs/requirements.txt"], cwd=ROOT, check=True)
    write = "import pathlib, sys, docs.build; docs.build.write_pages(pathlib.Path(sys.argv[1]))"
    subprocess.run([python, "-c", write, tmp_path], cwd=ROOT, check=True)
    done = subprocess.run(
        [python, "-m", "zensical", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = (tmp_path / "site" / "rules" / "deepspeed" / "zero3-params-kept-in-backward.html").read_text(
        encoding="utf-8"
    )
    assert "127.5 GiB" in built
    assert 'role="img"' in built
