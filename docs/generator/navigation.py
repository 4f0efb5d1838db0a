"""What the site is called and how its pages are ordered: the configuration of its generator."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from docs.generator.documents import ROOT, list_documents
from docs.generator.rule_pages import INDEX as RULES
from docs.generator.rule_pages import STACK
from docs.generator.series import INDEX as RELEASES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from docs.generator.page import Page

GUIDES = ("out-of-memory", "platform", "maintainer", "rule-author")
"""One for each kind of reader."""
MANUAL = (
    "installation", "tour", "commands", "reading", "inputs", "targets", "images", "fleet", "bulk", "reports", "ci",
    "fix", "estimate", "oom", "diff", "security", "python", "measuring", "threat-model", "faults", "architecture",
    "contributing", "changelog",
)  # fmt: skip
"""Pages for who uses it, in the order in which they are met."""
REFERENCE = (
    "reference/cli.md",
    "reference/json.md",
    "reference/facts.md",
    "reference/programs.md",
    "reference/models.md",
)


def write_configuration(pages: Sequence[Page]) -> str:
    """Return the configuration of the generator: what the file beside this one says, and the pages in order."""
    text = (ROOT / "docs" / "generator" / "zensical.toml").read_text(encoding="utf-8")
    return text.replace("nav = []", f"nav = {_write(order_pages(pages))}")


def order_pages(pages: Sequence[Page]) -> list[Any]:
    """Return sections of pages; what no section names is evidence for the makers."""
    titles = {page.path: _title(page) for page in pages}
    manual = [f"{name}.md" for name in MANUAL]
    guides = [f"guides/{name}.md" for name in GUIDES]
    chinese = ["guides/index.zh.md", *(f"guides/{name}.zh.md" for name in GUIDES)]
    named = {"index.md", *manual, *guides, *chinese}
    evidence = [page for page in list_documents().values() if page not in named]
    rules: dict[str, list[str]] = {}
    for path in titles:
        if path.startswith("rules/") and path != RULES:
            rules.setdefault(path.split("/")[1], []).append(path)
    packages = [{STACK if name == "stack" else name: _entries(found, titles)} for name, found in rules.items()]
    releases = [path for path in titles if path.startswith("releases/") and path != RELEASES]
    return [
        {"Guides": ["index.md", *_entries(guides, titles)]},
        {"Rules": [RULES, *packages]},
        {"Memory across releases": [RELEASES, *_entries(releases, titles)]},
        {"Manual": [*_entries(manual, titles)]},
        {"Reference": [*_entries(REFERENCE, titles)]},
        {"Evidence": [*_entries(evidence, titles)]},
        {"简体中文": [*_entries(chinese, titles)]},
    ]


def _entries(paths: Sequence[str], titles: Mapping[str, str]) -> list[dict[str, str]]:
    return [{titles[path]: path} for path in paths]


def _title(page: Page) -> str:
    found = re.search(r"^# (?:<code.*?</code> )?(.+)$", page.text, re.MULTILINE)
    return (
        re.sub(r"\\(.)|`", r"\1", found[1]).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        if found
        else page.path
    )


def _write(entry: Any) -> str:  # noqa: ANN401 (nested as the sections are)
    """Write an entry of the navigation as TOML: texts, lists, and tables of one key."""
    if isinstance(entry, str):
        return json.dumps(entry, ensure_ascii=False)
    if isinstance(entry, dict):
        return "{ " + ", ".join(f"{_write(name)} = {_write(value)}" for name, value in entry.items()) + " }"
    return "[" + ", ".join(map(_write, entry)) + "]"
