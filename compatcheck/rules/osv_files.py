"""Files of OSV records: a list, an archive, or a directory with one each."""

from __future__ import annotations

import json
import os
import zipfile
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.rules.osv import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compatcheck.rules.osv import Record


def format_list(records: Sequence[Record]) -> str:
    """Format records as one list."""
    return _format([dict(record.data) for record in records])


def write_osv_files(records: Sequence[Record], path: str) -> None:
    """Write records into an archive (``.zip``), whose bytes depend on nothing else, or into a directory.

    Raises:
        UsageError: they cannot be written there.
    """
    files = {f"{record.id}.json": _format(record.data) for record in records}
    try:
        if path.endswith(".zip"):
            _write_archive(files, path)
        else:
            _write_directory(files, path)
    except OSError as error:
        raise UsageError(f"--output {path} cannot be written: {error.strerror}") from None


def _format(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _write_archive(files: Mapping[str, str], path: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


def _write_directory(files: Mapping[str, str], path: str) -> None:
    os.makedirs(path, exist_ok=True)
    stale = sorted(name for name in os.listdir(path) if name.startswith(PREFIX) and name not in files)
    if stale:
        raise UsageError(
            f"{path} holds {stale[0]}, which is not among these rules",
            hint="remove the records of the earlier export, or name another directory",
        )
    for name, text in files.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text)
