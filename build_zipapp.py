"""Build ``compatcheck.pyz``: one file that needs nothing but Python 3.10 or newer, made of the wheel and its dependencies.

``python build_zipapp.py dist/compatcheck-0.1.0-py3-none-any.whl dist/compatcheck.pyz``. The same wheel gives the same bytes.

What it is without, and what becomes of it: the measuring laboratory (confirm, bisect, sweep, probe, evidence and --trace say that
they need the package), whose programs run as files in other interpreters; libyaml (large YAML files are read more slowly); a
decompressor for zstd before Python 3.14 (layers of images, unless the interpreter that runs it has ``backports.zstd``).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("zipapp-requirements.txt")
LEFT_OUT = ("compatcheck/lab/",)
START = """\
import sys

if sys.version_info < (3, 10):
    sys.stderr.write("error: compatcheck needs Python 3.10 or newer, and this is " + sys.version.split()[0] + "\\n")
    sys.exit(2)
from compatcheck.cli.__main__ import main

main()
"""
EARLIEST = 315532800
"""Seconds of 1980-01-01, the first day that an archive can tell."""


def read_wheel(path: Path) -> dict[str, bytes]:
    """Return what the archive takes of the wheel: the package without its laboratory, and the licence."""
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if not name.startswith(LEFT_OUT)]
        kept = [name for name in names if ".dist-info/" not in name or name.endswith(("METADATA", "LICENSE"))]
        return {name: wheel.read(name) for name in kept}


def install_dependencies() -> dict[str, bytes]:
    """Install the pinned dependencies into a folder of their own and return what the archive takes of them."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", folder]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
        return read_modules(Path(folder))


def read_modules(folder: Path, packages: tuple[str, ...] = ("*",)) -> dict[str, bytes]:
    """Return the modules and licences of installed packages, without what is compiled."""
    files = [path for package in packages for path in sorted(folder.glob(f"{package}/**/*")) if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if path.suffix == ".py" or (".dist-info" in str(path) and path.name.upper().startswith("LICENSE"))
    }


def write_archive(members: dict[str, bytes], target: Path) -> None:
    """Write an archive that Python runs; its members have one time, SOURCE_DATE_EPOCH or the earliest there is."""
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST)), EARLIEST))[:6]
    with target.open("wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in sorted({**members, "__main__.py": START.encode()}.items()):
                member = zipfile.ZipInfo(name, moment)
                member.external_attr = 0o644 << 16
                member.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(member, data)
    target.chmod(0o755)


def main() -> None:
    """Build it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    write_archive({**install_dependencies(), **read_wheel(given.wheel)}, given.target)
    print(f"{given.target}: {given.target.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
