"""Draw the pictures of both READMEs: ``python docs/picture.py`` (needs rich, which pip-audit brings)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from compatcheck.core.columns import measure
from compatcheck.core.language import choose, speaking, translate

ROOT = Path(__file__).parents[1]
COMMAND = ("check", "fixtures/cases/openrlhf-llama3-70b")
PICTURES = ROOT / "docs" / "pictures"
LANGUAGES = {"en": "", "zh": ".zh"}
"""What stands in front of the suffix of a picture in each language."""
COLUMNS = 80
_WIDTH = COLUMNS + 2
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def place_of(name: str, language: str) -> Path:
    """Return the file of a picture."""
    return PICTURES / f"{name}{LANGUAGES[language]}.svg"


def choose_lines(language: str = "en") -> list[str]:
    """Return what is shown of the output, colours included: the verdict, the worst finding up to its fix, and the plan."""
    choose(language)
    with speaking({}):
        critical, what, because, fix, plan = map(translate, ("critical", "what", "because", "fix", "plan: x"))
    choose(None)
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": ""}
    command = [sys.executable, "-m", "compatcheck", "--lang", language, *COMMAND, "--color", "always"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    plain = [_COLOUR.sub("", line) for line in lines]
    finding = next(index for index, line in enumerate(plain) if line.startswith((critical, critical.upper())))
    first, second, third = (
        next(index for index in range(finding, len(plain)) if plain[index].lstrip().startswith(f"{word} "))
        for word in (what, because, fix)
    )
    begin = next(index for index, line in enumerate(plain) if line.startswith(plan[:-1].strip()))
    end = next(index for index in range(begin, len(plain)) if not plain[index].strip())
    return [*lines[:first], "  …", *lines[second:third], "  …", "", *lines[begin:end]]


def show(line: str) -> str:
    """Return a line as the picture shows it: without colours, and cut off at its edge."""
    line = _COLOUR.sub("", line)
    if measure(line) <= _WIDTH:
        return line
    kept = next(length for length in range(len(line), 0, -1) if measure(line[:length]) < _WIDTH)
    return f"{line[:kept]}…"


def draw(language: str) -> str:
    """Return the picture as SVG that needs no network."""
    from rich.console import Console  # noqa: PLC0415 (not there where only the lines are compared)
    from rich.text import Text  # noqa: PLC0415

    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=_WIDTH, file=nowhere, force_terminal=True, color_system="standard")
        for line in choose_lines(language):
            console.print(Text.from_ansi(line), highlight=False, no_wrap=True, overflow="ellipsis")
        picture = console.export_svg(title=f"compatcheck {' '.join(COMMAND)}", unique_id="incident")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace")


def draw_upgrade(path: Path, language: str = "en") -> None:
    """Draw what the upgrade of `fixtures/upgrade` does to memory."""
    files = [f"fixtures/upgrade/{name}" for name in ("before.txt", "after.txt")]
    options = ["--training", "fixtures/upgrade/train.yaml", "--gpu", "8xH100-80GB", "--nodes", "2", "--plot", str(path)]
    command = [sys.executable, "-m", "compatcheck", "--lang", language, "diff", *files, *options]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)  # it ends with 1: something entered


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for spoken in LANGUAGES:
        draw_upgrade(place_of("upgrade", spoken), spoken)
        place_of("incident", spoken).write_text(draw(spoken), encoding="utf-8")
