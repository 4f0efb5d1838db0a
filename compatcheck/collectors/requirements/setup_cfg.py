"""``setup.cfg``: the requirements in its ``[options]``, as setuptools reads them; what it leaves to other files is said."""

from __future__ import annotations

import configparser
import io
from typing import TYPE_CHECKING

from compatcheck.collectors.requirements.pyproject import Stated
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.markers import canonical_name
from compatcheck.core.requirement import InvalidRequirementError, Requirement, parse_requirement
from compatcheck.core.selection import DEFAULT, Selection
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import read_text
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.environment import Environment

MAX_BYTES = MIB
_OPTIONS, _EXTRAS = "options", "options.extras_require"


def _undash(key: str) -> str:
    """Return a key as setuptools takes it, which warns of ``install-requires`` and reads it."""
    return key.replace("-", "_")


def read_setup_cfg(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read ``install_requires`` and ``extras_require``.

    Raises:
        InputError: it cannot be read, is malformed, or states no requirements.
    """
    text = io.StringIO(read_text(path, files, limit=MAX_BYTES), newline=None).read()  # a line ends in any way
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = _undash  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text, path)
    except configparser.Error as error:
        source = Source(path, line=getattr(error, "lineno", None))
        raise InputError(f"is not INI: {type(error).__name__}", source=source, hint="mend it there") from None
    skipped: list[Skipped] = []
    lines = text.splitlines()

    def read(section: str, key: str) -> Iterator[Requirement]:
        value = parser.get(section, key, fallback="")
        for entry in value.splitlines() if "\n" in value else value.split(";"):
            written = entry.strip()
            if not written or written.startswith("#"):
                continue
            line = next((number for number, one in enumerate(lines, 1) if written in one), None)
            source = Source(path, key, line)
            if written.startswith(("file:", "attr:")):
                skipped.append(
                    Skipped(source, f"{key} stands elsewhere: {written}", "check that file, too", named=True)
                )
                continue
            try:
                yield parse_requirement(written, source)
            except InvalidRequirementError as error:
                skipped.append(Skipped(source, str(error), "write it as name==1.2.3 or name>=1.2,<2", named=True))

    required = tuple(read(_OPTIONS, "install_requires"))
    names = parser.options(_EXTRAS) if parser.has_section(_EXTRAS) else []
    extras = {canonical_name(name): tuple(read(_EXTRAS, name)) for name in names}
    python = parser.get(_OPTIONS, "python_requires", fallback=None)
    return Stated(required, extras, {}, python).select(path, selection, skipped, missing="states no requirements")
