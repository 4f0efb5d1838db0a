"""The hand-written pages as the site has them: guides, manual and evidence, with links that lead somewhere there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from docs.generator.page import Page

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
SOURCES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files outside of ``docs/`` that are pages."""
HOME = "docs/guides/index.md"
_FRONT = ("README.md", "README.zh-CN.md")
MADE = {
    "rules": "rules/index.md",
    "rules/_programs": "reference/programs.md",
    "rules/_models.yaml": "reference/models.md",
    "rules/_gpus.yaml": "reference/models.md",
    "fixtures/measurements": "releases/index.md",
    "compatcheck/rules/data/vocabulary.txt": "reference/facts.md",
    "compatcheck/reporters/report.schema.json": "reference/json.md",
    "compatcheck/cli/data/help.txt": "reference/cli.md",
}
"""What a link leads to in the repository, and the page that is made of it; a rule's file has a page of its own."""
_RULE = re.compile(r"rules/_?([a-z0-9-]+/[a-z0-9-]+)\.yaml")
_CHINESE = "[\u3000-\u9fff\uff00-\uffef]"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def list_documents() -> dict[str, str]:
    """Return file → page of everything written by hand; files are relative to the repository."""
    folders = [ROOT / "docs", ROOT / "docs" / "guides", ROOT / "docs" / "upstream"]
    found = [path.relative_to(ROOT).as_posix() for folder in folders for path in sorted(folder.glob("*.md"))]
    pages = {path: path.removeprefix("docs/") for path in found}
    return pages | SOURCES | {HOME: "index.md"}


def list_pictures() -> dict[str, Path]:
    """Return the place of each picture in the site, and its file."""
    return {f"pictures/{path.name}": path for path in sorted((ROOT / "docs" / "pictures").glob("*.svg"))}


def make_documents() -> list[Page]:
    """Make the pages of what is written by hand."""
    pages = list_documents()
    return [Page(page, _rewrite(source, page, pages)) for source, page in pages.items()]


def find_page(file: str, pages: Mapping[str, str]) -> str | None:
    """Return the page, or the picture, of the site that a file of the repository is shown on."""
    if file in _FRONT:
        return pages[HOME]
    rule = _RULE.fullmatch(file)
    if rule is not None:
        return f"rules/{rule[1]}.md"
    if file.startswith("docs/pictures/"):
        return file.removeprefix("docs/")
    return pages.get(file) or MADE.get(file)


def _rewrite(source: str, page: str, pages: dict[str, str]) -> str:
    """Return a file's text with links to pages of the site; a link to another file of the repository names the file."""

    def replace(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        path, hash_, heading = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        there = find_page(file, pages)
        if there is None:
            return text if file in text else f"{text} (`{file}`)"
        relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{mark}[{text}]({relative}{hash_}{heading})"

    text = (ROOT / source).read_text(encoding="utf-8")
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    written = "".join(part if part.startswith("```") else _LINK.sub(replace, part) for part in parts)
    if not source.endswith(".zh.md"):
        return written
    joined = re.sub(rf"(?<={_CHINESE})\n(?={_CHINESE})", "", written)  # a line's end would be a space
    return f'<div lang="zh-Hans" markdown="1">\n\n{joined}\n\n</div>\n'
