"""Build the distributions of this checkout with the build backend itself, without the network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs compatcheck with these arguments."""


def build(target: str, source: Path, out: Path) -> Path:
    """Build ``wheel`` or ``sdist``; return the file."""
    out.mkdir(parents=True, exist_ok=True)
    script = f"import sys; from hatchling.build import build_{target} as b; print(b(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(out)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.strip().splitlines()[-1]
