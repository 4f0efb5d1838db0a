"""Package URLs, by which SBOMs name packages: ``pkg:pypi/torch@2.5.1``, ``pkg:conda/pytorch@2.5.1?build=…``.

https://github.com/package-url/purl-spec
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from compatcheck.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_CHARACTERS = 4096


class Purl(NamedTuple):
    """The parts of a package URL, decoded."""

    type: str
    """``pypi``, ``conda``, ``deb``, ``rpm``, ``generic``, …; lower case."""
    namespace: str
    name: str
    version: str | None
    qualifiers: Mapping[str, str]


def parse_purl(text: str) -> Purl | None:
    """Parse a package URL; None when it is none."""
    scheme, colon, rest = text.strip().partition(":")
    if scheme.lower() != "pkg" or not colon or len(text) > _MAX_CHARACTERS:
        return None
    rest = rest.lstrip("/").partition("#")[0]
    path, _, query = rest.partition("?")
    qualifiers = {}
    for part in query.split("&"):
        key, equals, value = part.partition("=")
        if equals and value:
            qualifiers[key.lower()] = unquote(value)
    path = path.rstrip("/")
    # '@' before the last '/' belongs to a namespace, as in npm's scopes.
    head, at, version = path.rpartition("@")
    if not at or "/" in version:
        head, version = path, ""
    kind, slash, name = head.partition("/")
    namespace, _, name = name.strip("/").rpartition("/")
    if not slash or not kind or not name:
        return None
    return Purl(kind.lower(), unquote(namespace), unquote(name), unquote(version) or None, qualifiers)
