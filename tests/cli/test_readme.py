"""README, tour and picture show what the commands print."""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs import picture
from tests import ROOT

PAGES = (ROOT / "README.md", ROOT / "docs" / "tour.md", ROOT / "README.zh-CN.md")
BLOCKS = [
    (page, command, shown)
    for page in PAGES
    for command, shown in re.findall(
        r"```console\n\$ (compatcheck [^\n]*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    )
]
PICTURE = ROOT / "docs" / "pictures" / "incident.svg"


def run(command: str) -> str:
    """Run a compatcheck command in the checkout and hide what changes with every release of the rules."""
    environment = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "COLUMNS"}}
    done = subprocess.run(
        [sys.executable, "-m", "compatcheck", *shlex.split(command)[1:]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return mask(done.stdout)


def mask(text: str) -> str:
    text = re.sub(r"db \S+ \(\d+ rules, [0-9a-f]+\) · [\d.]+ s", "db … · … s", text)
    return text.rstrip() + "\n"


@pytest.mark.parametrize(("page", "command", "shown"), BLOCKS, ids=[command for _, command, _ in BLOCKS])
def test_pages_show_what_the_command_prints(page: Path, command: str, shown: str) -> None:
    assert mask(shown) == run(command), f"python tests/cli/test_readme.py writes {page.name} anew"


def test_the_pages_have_commands() -> None:
    assert [sum(page is one for one, _, _ in BLOCKS) for page in PAGES] == [1, 4, 1]


def test_the_picture_shows_what_the_command_prints() -> None:
    rows: dict[str, list[str]] = {}
    for row, text in re.findall(
        r'<text class="incident-r\d+"[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', PICTURE.read_text()
    ):
        rows.setdefault(row, []).append(html.unescape(text).replace("\xa0", " "))
    shown = ["".join("".join(row).split()) for row in rows.values()]  # spaces between colours are no text there
    made = ["".join(picture.show(line).split()) for line in picture.choose_lines()]
    assert shown == [line for line in made if line], "python docs/picture.py draws it anew"


def test_the_picture_of_the_upgrade_is_what_the_command_draws(tmp_path: Path) -> None:
    picture.draw_upgrade(tmp_path / "upgrade.svg")
    drawn = (tmp_path / "upgrade.svg").read_text(encoding="utf-8")
    assert drawn == picture.UPGRADE.read_text(encoding="utf-8"), "python docs/picture.py draws it anew"


def test_the_front_pages_are_short() -> None:
    assert PAGES[0].stat().st_size <= 9_000
    assert PAGES[2].stat().st_size <= 9_000


def test_the_front_pages_start_alike() -> None:
    """The Chinese page is written for its readers; what is typed to begin with is the same."""
    commands = [
        re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL) for page in (PAGES[0], PAGES[2])
    ]
    assert commands[0] == commands[1] != []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def write() -> None:
    """Refresh the blocks: ``python tests/cli/test_readme.py``."""
    for page, command, shown in BLOCKS:
        text = page.read_text(encoding="utf-8")
        old = f"```console\n$ {command}\n{shown}```"
        page.write_text(text.replace(old, f"```console\n$ {command}\n{run(command)}```"), encoding="utf-8")


if __name__ == "__main__":
    write()
