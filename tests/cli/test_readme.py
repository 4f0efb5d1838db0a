"""README, tour, guides and picture show what the commands print."""

from __future__ import annotations

import html
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import click
import pytest

from compatcheck.cli.group import group
from docs import picture
from tests import ROOT

GUIDES = tuple(sorted((ROOT / "docs" / "guides").glob("*.md")))
PAGES = (ROOT / "README.md", ROOT / "docs" / "tour.md", ROOT / "README.zh-CN.md", *GUIDES)
BLOCKS = [
    (page, command, shown)
    for page in PAGES
    for command, shown in re.findall(
        r"```console\n\$ (compatcheck [^\n]*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    )
]


@cache
def run(command: str, language: str) -> str:
    """Run a compatcheck command in the checkout and hide what changes with every release of the rules."""
    apart = {"FORCE_COLOR", "COLUMNS", "LC_ALL", "LC_MESSAGES", "LANGUAGE"}
    environment = {key: value for key, value in os.environ.items() if key not in apart}
    environment |= {"LANG": language, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "compatcheck", *shlex.split(command)[1:]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return mask(done.stdout)


def language_of(page: Path) -> str:
    """Return the locale that the commands of a page are run in: Chinese pages show what their readers see."""
    return "zh_CN.UTF-8" if ".zh" in page.name else "en_US.UTF-8"


def mask(text: str) -> str:
    text = re.sub(r"db \S+ \(\d+\srules(, [0-9a-f]+)?\) · [\d.]+ s", "db … · … s", text)
    text = re.sub(r"数据库\s\S+（\d+ 条规则(，[0-9a-f]+)?）\s·\s[\d.]+ s", "数据库 … · … s", text)
    return text.rstrip() + "\n"


@pytest.mark.parametrize(
    ("page", "command", "shown"), BLOCKS, ids=[f"{page.name}: {command}" for page, command, _ in BLOCKS]
)
def test_pages_show_what_the_command_prints(page: Path, command: str, shown: str) -> None:
    assert mask(shown) == run(command, language_of(page)), f"python tests/cli/test_readme.py writes {page.name} anew"


def test_the_pages_have_commands() -> None:
    assert [sum(page is one for one, _, _ in BLOCKS) for page in PAGES[:3]] == [1, 4, 1]
    assert {page.name: number for page in GUIDES if (number := sum(page is one for one, _, _ in BLOCKS))} == {
        f"{name}{language}.md": number
        for name, number in (("out-of-memory", 3), ("platform", 1), ("maintainer", 2), ("rule-author", 1))
        for language in ("", ".zh")
    }


@pytest.mark.parametrize("language", list(picture.LANGUAGES))
def test_the_picture_shows_what_the_command_prints(language: str) -> None:
    rows: dict[str, list[str]] = {}
    for row, text in re.findall(
        r'<text class="incident-r\d+"[^>]* y="([\d.]+)"[^>]*>(.*?)</text>',
        picture.place_of("incident", language).read_text(),
    ):
        rows.setdefault(row, []).append(html.unescape(text).replace("\xa0", " "))
    shown = ["".join("".join(row).split()) for row in rows.values()]  # spaces between colours are no text there
    made = ["".join(picture.show(line).split()) for line in picture.choose_lines(language)]
    assert shown == [line for line in made if line], "python docs/picture.py draws it anew"


@pytest.mark.parametrize("language", list(picture.LANGUAGES))
def test_the_picture_of_the_upgrade_is_what_the_command_draws(tmp_path: Path, language: str) -> None:
    picture.draw_upgrade(tmp_path / "upgrade.svg", language)
    drawn = (tmp_path / "upgrade.svg").read_text(encoding="utf-8")
    kept = picture.place_of("upgrade", language).read_text(encoding="utf-8")
    assert drawn == kept, "python docs/picture.py draws it anew"


def test_a_page_shows_the_pictures_of_its_language() -> None:
    for page in PAGES:
        shown = re.findall(r"pictures/(?:incident|upgrade)([\w.]*)\.svg", page.read_text(encoding="utf-8"))
        assert set(shown) <= {".zh" if language_of(page).startswith("zh") else ""}, page.name


def test_the_front_pages_are_short() -> None:
    assert PAGES[0].stat().st_size <= 9_000
    assert PAGES[2].stat().st_size <= 9_000


def test_the_front_pages_start_alike() -> None:
    """The Chinese page is written for its readers; what is typed to begin with is the same."""
    commands = [
        re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL) for page in (PAGES[0], PAGES[2])
    ]
    assert commands[0] == commands[1] != []


def test_what_is_run_from_nothing_is_what_the_first_lines_say() -> None:
    """`.ci/run` takes these two lines out of the page on a bare machine."""
    job, tests = re.findall(r"```sh\n(.*)\n```", PAGES[0].read_text(encoding="utf-8"))[:2]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    taken = [
        next(line for line in PAGES[0].read_text(encoding="utf-8").splitlines() if re.search(pattern, line))
        for pattern in re.findall(r"\$\(grep -m1 '(.*)' README\.md\)", script)
    ]
    assert taken == [job, tests]
    for line in taken:
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[test]' && ")
    assert ".venv/bin/compatcheck check fixtures/cases/openrlhf-llama3-70b; .venv/bin/compatcheck env" in job
    assert tests.endswith(" .venv/bin/pytest -n auto")


def test_pages_that_begin_with_a_virtual_environment_say_what_debian_needs_for_one() -> None:
    for page in (PAGES[0], PAGES[2], ROOT / "docs" / "installation.md"):
        assert "`apt install python3-venv`" in page.read_text(encoding="utf-8"), page.name


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_the_commands_of_guides_can_be_given(page: Path) -> None:
    """What is not shown with its output, for it needs files of a person's own or the network, is still what commands take."""
    for line in "".join(re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)).splitlines():
        words = shlex.split(line.rpartition(" | ")[2])
        assert words[0] == "compatcheck"
        context, arguments = click.Context(group, info_name="compatcheck"), words[1:]
        while isinstance(context.command, click.Group):
            command = context.command.get_command(context, arguments[0])
            assert command is not None, line
            context = command.make_context(arguments[0], arguments[1:], parent=context, resilient_parsing=False)
            arguments = [*context._protected_args, *context.args] if isinstance(command, click.Group) else []


def test_the_guides_say_the_same_in_both_languages() -> None:
    """Each is written for its readers; what is typed is the same, but for devices and what only one of them has."""
    for page in GUIDES:
        other = page.with_name(page.name.replace(".md", ".zh.md"))
        if not page.name.endswith(".zh.md"):
            assert [command for one, command, _ in BLOCKS if one == page] == [
                command for one, command, _ in BLOCKS if one == other
            ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def write() -> None:
    """Refresh the blocks: ``python tests/cli/test_readme.py``."""
    for page, command, shown in BLOCKS:
        text = page.read_text(encoding="utf-8")
        old = f"```console\n$ {command}\n{shown}```"
        page.write_text(
            text.replace(old, f"```console\n$ {command}\n{run(command, language_of(page))}```"), encoding="utf-8"
        )


if __name__ == "__main__":
    write()
