"""What nodes are sent runs without anything else of compatcheck, and is the same for the same code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import compatcheck
from compatcheck.fleet.cluster import pack_code
from compatcheck.rules.locate import open_rules


def test_what_is_sent_is_this_code_with_these_rules(tmp_path: Path) -> None:
    code = pack_code()
    assert code == pack_code()
    zipfile.ZipFile(BytesIO(code)).extractall(tmp_path)
    ask = "import compatcheck; from compatcheck.rules.locate import open_rules as o; print(compatcheck.__file__, o(()).id)"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {ask}"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(tmp_path / "compatcheck" / "__init__.py"), open_rules(()).id]
    assert compatcheck.__file__ != said[0]
