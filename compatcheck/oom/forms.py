"""The messages of other programs than torch's caching allocator, as data: what marks one, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_text
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.oom.sizes import SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator


class Form(NamedTuple):
    """One message of one program."""

    name: str
    allocator: str
    memory: str
    """``device``, ``host``, ``shm``, ``none`` for what only looks like a shortage, ``unknown`` for what may be one."""
    needle: str
    """Lower-case texts between bars, rare in logs, one of which stands in every match: the first sieve."""
    pattern: str
    """Case-insensitive; groups named like fields of `Message` are sizes, those that start with ``d_`` are details."""
    rounding: str = "exact"
    releases: str | None = None
    says: str = ""
    """What it tells where the tensor cannot be; a name in braces is one of its details."""


def _read_forms() -> Iterator[Form]:
    for record in read_text(__file__, "forms").split("\n\n")[1:]:
        fields = dict(line.split(": ", 1) for line in record.splitlines() if not line.startswith("#"))
        yield Form(**{**fields, "pattern": fields["pattern"].replace("<SIZE>", SIZE)})


FORMS = tuple(_read_forms())
"""A message is recognised by the first that matches."""
TORCH_NEEDLE = "tried to allocate"
"""What stands in every message of torch's caching allocator."""
