"""Whether another machine has the same inputs at the same paths: by names, sizes and times, as on a shared file system."""

from __future__ import annotations

import os
from glob import iglob
from hashlib import sha256
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Likeness(NamedTuple):
    """Files and directories as one machine has them."""

    folder: str
    """What paths are relative to."""
    hub: str
    """Cache of the hub that models are looked for in: its snapshots."""
    states: Mapping[str, str | None]
    """Path → what tells its states apart; None where nothing is there."""

    def require(self) -> None:
        """Refuse a machine that has them otherwise.

        Raises:
            InputError: with the first of them.
        """
        for path, state in self.states.items():
            here = _describe(os.path.join(self.folder, path)) if path != self.hub else _describe_hub(path)
            if here != state:
                said = "is not there" if here is None else "is another one there"
                raise InputError(
                    said, source=Source(path), hint="keep inputs where all nodes see them at the same path"
                )


def describe(paths: Iterable[str], hub: str) -> Likeness:
    """Describe inputs as this machine has them."""
    return Likeness(os.getcwd(), hub, {**{path: _describe(path) for path in paths}, hub: _describe_hub(hub)})


def _describe(path: str) -> str | None:
    if os.path.isdir(path):
        return _digest(_walk(path))
    return _tell(path)


def _describe_hub(folder: str) -> str | None:
    snapshots = sorted(iglob(os.path.join(folder, "models--*", "snapshots", "*")))
    return _digest(snapshots) if snapshots else None


def _walk(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            yield f"{os.path.relpath(path, folder)} {_tell(path)}"


def _tell(path: str) -> str | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a NUL in the name
        return None
    return f"{status.st_size} {status.st_mtime_ns}"


def _digest(lines: Iterable[str]) -> str:
    digest = sha256()
    for line in lines:
        digest.update(f"{line}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
