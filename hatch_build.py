"""Build hook: the wheel carries the rules as one compiled file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class CompileRules(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling's generic parameter is its own
    """Compile ``rules/`` into ``compatcheck/_database.jsonl`` of the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected; an editable install reads the checkout instead."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, str(ROOT))
        try:
            from compatcheck.rules.compile import compile_directory  # noqa: PLC0415 (the source tree is not on the path before)
        finally:
            sys.path.remove(str(ROOT))
        self.compiled = Path(tempfile.mkdtemp()) / "_database.jsonl"
        self.compiled.write_bytes(compile_directory(ROOT / "rules"))
        build_data["force_include"][str(self.compiled)] = "compatcheck/_database.jsonl"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 (hatchling's signature)
        """Remove the compiled file; the wheel holds it now."""
        if hasattr(self, "compiled"):
            shutil.rmtree(self.compiled.parent)
