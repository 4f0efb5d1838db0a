"""Releases of packages as a timeline has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable


def list_finals(releases: Iterable[str]) -> list[str]:
    """Return those that are no pre-releases."""
    return [release for release in releases if (version := parse_version(release)) is None or not version.is_prerelease]
