"""Why something found does not count: a waiver, as it applies."""

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source


class Suppression(NamedTuple):
    """Why a finding does not count."""

    reason: str
    expires: str | None
    """Last day it holds, ``2027-01-31``."""
    until: str | None = None
    """Range that ends it once it is satisfied, ``deepspeed>=0.16.8``."""
    owner: str | None = None
    source: Source | None = None
    """Where the waiver stands."""
