"""Build the documentation site: ``python -m docs.build``, with ``docs/requirements.txt`` installed, ``--pages`` with compatcheck.

Pages are plain Markdown, made of what is written by hand, of ``rules/``, of the measurements and of the code. They and the site
are written to ``build/docs``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from compatcheck.reporters import figure
from compatcheck.rules.locate import open_rules
from docs.generator import strips
from docs.generator.documents import ROOT, list_pictures, make_documents
from docs.generator.navigation import write_configuration
from docs.generator.programs import make_program_pages
from docs.generator.reference import make_reference_pages
from docs.generator.rule_pages import make_rule_pages, rule_path
from docs.generator.series import make_release_pages

if TYPE_CHECKING:
    from pathlib import Path

    from docs.generator.page import Page

OUTPUT = ROOT / "build" / "docs"


def make_pages() -> list[Page]:
    """Make every page of the site."""
    rules = open_rules()
    made = [*make_rule_pages(rules), *make_release_pages(rules, rule_path), *make_program_pages(rules)]
    return [*make_documents(), *made, *make_reference_pages()]


def write_pages(output: Path) -> None:
    """Write pages, pictures, style and configuration below a folder, over what an earlier run left there."""
    pages = output / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    made = make_pages()
    for page in made:
        path = pages / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.text, encoding="utf-8")
    for place, picture in list_pictures().items():
        (pages / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, pages / place)
    style = (ROOT / "docs" / "generator" / "style.css").read_text(encoding="utf-8")
    (pages / "style.css").write_text(figure.STYLE + strips.STYLE + style, encoding="utf-8")
    shutil.copyfile(ROOT / "docs" / "generator" / "focus.js", pages / "focus.js")
    (output / "zensical.toml").write_text(write_configuration(made), encoding="utf-8")


def build_site(output: Path) -> int:
    """Run the generator over what was written; return its exit code."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    code = subprocess.run(command, cwd=output, check=False).returncode
    tell_language(output / "site")
    return code


def tell_language(site: Path) -> None:
    """Say of the Chinese pages which language they are in: the generator knows one for all pages."""
    for page in site.rglob("*.zh.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace('<html lang="en"', '<html lang="zh-CN"', 1), encoding="utf-8")


if __name__ == "__main__":
    write_pages(OUTPUT)
    sys.exit(0 if "--pages" in sys.argv[1:] else build_site(OUTPUT))
