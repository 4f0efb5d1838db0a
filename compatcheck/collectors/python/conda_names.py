"""Which distribution a conda package installs: conda names packages as their feedstocks do, not as PyPI does."""

from __future__ import annotations

import re
from functools import lru_cache

from compatcheck.core.data_file import read_data
from compatcheck.core.markers import canonical_name
from compatcheck.core.named_tuple import NamedTuple

_PYTHON_BUILD = re.compile(r"(?:^|_)(?:py|pypy)(?:\d|h|_|$)|(?:^|[a-z]\d+)py\d{2,3}(?:h|_|$)")
"""``py311h06a4308_0``, ``pyhd8ed1ab_0``, ``py_0``, ``py3.11_cuda12.4_cudnn9.1.0_0``, ``cuda126_py311h…``, and that of
the channel defaults, ``gpu_cuda124py311h…``."""


class _Names(NamedTuple):
    distributions: dict[str, str]
    """Conda's name → canonical name of the distribution, where the two differ."""
    others: frozenset[str]
    """Conda packages that install no distribution: libraries, compilers, fonts, metapackages."""


@lru_cache(maxsize=1)
def _read_names() -> _Names:
    table = read_data(__file__, "conda_names")
    return _Names(table["distributions"], frozenset(table["others"]))


def find_distribution(name: str) -> str | None:
    """Return the distribution of a conda package whose name is another; None where it is the same or there is none."""
    return _read_names().distributions.get(name)


def identify(name: str, build: str | None = None) -> str | None:
    """Tell which distribution a conda package installs, by the table of names or its build string; None when it installs none."""
    names = _read_names()
    distribution = names.distributions.get(name)
    if distribution is not None:
        return distribution
    if name in names.others or name.startswith("_"):
        return None
    if build and "*" not in build:
        return canonical_name(name) if _PYTHON_BUILD.search(build) else None
    return canonical_name(name)
