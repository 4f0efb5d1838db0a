"""Draw the pictures of the README: ``python docs/picture.py`` (needs rich, which pip-audit brings)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = ("check", "fixtures/cases/openrlhf-llama3-70b")
PICTURE = ROOT / "docs" / "pictures" / "incident.svg"
UPGRADE = ROOT / "docs" / "pictures" / "upgrade.svg"
COLUMNS = 80
_WIDTH = COLUMNS + 2
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def choose_lines() -> list[str]:
    """Return what is shown of the output, colours included: the verdict, the worst finding up to its fix, and the plan."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": ""}
    command = [sys.executable, "-m", "compatcheck", *COMMAND, "--color", "always"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    plain = [_COLOUR.sub("", line) for line in lines]
    finding = next(index for index, line in enumerate(plain) if line.startswith("CRITICAL"))
    what, because, fix = (
        next(index for index in range(finding, len(plain)) if plain[index].lstrip().startswith(word))
        for word in ("what ", "because ", "fix ")
    )
    plan = next(index for index, line in enumerate(plain) if line.startswith("plan:"))
    end = next(index for index in range(plan, len(plain)) if not plain[index].strip())
    return [*lines[:what], "  …", *lines[because:fix], "  …", "", *lines[plan:end]]


def show(line: str) -> str:
    """Return a line as the picture shows it: without colours, and cut off at its edge."""
    line = _COLOUR.sub("", line)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def draw() -> str:
    """Return the picture as SVG that needs no network."""
    from rich.console import Console  # noqa: PLC0415 (not there where only the lines are compared)
    from rich.text import Text  # noqa: PLC0415

    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=_WIDTH, file=nowhere, force_terminal=True, color_system="standard")
        for line in choose_lines():
            console.print(Text.from_ansi(line), highlight=False, no_wrap=True, overflow="ellipsis")
        picture = console.export_svg(title=f"compatcheck {' '.join(COMMAND)}", unique_id="incident")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace")


def draw_upgrade(path: Path) -> None:
    """Draw what the upgrade of `fixtures/upgrade` does to memory."""
    files = [f"fixtures/upgrade/{name}" for name in ("before.txt", "after.txt")]
    options = ["--training", "fixtures/upgrade/train.yaml", "--gpu", "8xH100-80GB", "--nodes", "2", "--plot", str(path)]
    command = [sys.executable, "-m", "compatcheck", "diff", *files, *options]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)  # it ends with 1: something entered


if __name__ == "__main__":
    draw_upgrade(UPGRADE)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
