"""Build hook: the wheel carries the rules as one compiled file, and what their evidence holds as others."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class CompileRules(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling's generic parameter is its own
    """Compile ``rules/`` and ``fixtures/measurements/`` into files of the wheel: what an installation knows of both."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected; an editable install reads the checkout instead."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, str(ROOT))
        try:
            # The source tree is not on the path before.
            from compatcheck.lab.evidence.last_measured import compile_last  # noqa: PLC0415
            from compatcheck.lab.evidence_pairs import compile_pairs  # noqa: PLC0415
            from compatcheck.lab.probes.probe import probe_names  # noqa: PLC0415
            from compatcheck.rules.compile import compile_directory  # noqa: PLC0415
            from compatcheck.rules.load import load_rules  # noqa: PLC0415
        finally:
            sys.path.remove(str(ROOT))
        self.compiled = Path(tempfile.mkdtemp())
        (self.compiled / "_database.jsonl").write_bytes(compile_directory(ROOT / "rules"))
        pairs = compile_pairs(load_rules(ROOT / "rules"), ROOT)
        measured = compile_last(probe_names(), str(ROOT / "fixtures" / "measurements"))
        for name, data in (("_pairs.json", pairs), ("_measured.json", measured)):
            (self.compiled / name).write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")
        places = {
            "_database.jsonl": "compatcheck",
            "_pairs.json": "compatcheck/lab",
            "_measured.json": "compatcheck/lab/evidence",
        }
        for name, folder in places.items():
            build_data["force_include"][str(self.compiled / name)] = f"{folder}/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 (hatchling's signature)
        """Remove the compiled files; the wheel holds them now."""
        if hasattr(self, "compiled"):
            shutil.rmtree(self.compiled)
