"""The releases of packages: those the database knows, and those the index has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.errors import CompatcheckError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.rules.database import RuleSet


class KnownReleases:
    """The releases of packages: those the database knows, and those the index has."""

    def __init__(self, rules: RuleSet, *, ask: bool) -> None:
        """Begin with nothing asked; ``ask`` tells whether the index may be."""
        self.rules = rules
        self.ask = ask
        self.problems: list[str] = []
        self._found: dict[str, Sequence[str]] = {}

    def __call__(self, package: str) -> Sequence[str]:
        """Return the releases of a package."""
        if package not in self._found:
            found = dict.fromkeys(self.rules.releases(package))
            try:
                if self.ask:
                    from compatcheck.services.releases import fetch_releases  # noqa: PLC0415 (only when asked)

                    found |= dict.fromkeys(one.version for one in fetch_releases(package) if not one.yanked)
            except CompatcheckError as error:
                self.problems.append(f"{package}: only the database's own releases: {error}")
            self._found[package] = tuple(found)
        return self._found[package]
