"""What adds measurements to findings: whoever calls `check` gives it, for the checker itself measures nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compatcheck.core.report import Finding
    from compatcheck.core.source import Skipped
    from compatcheck.rules.database import RuleSet


class Annotator(Protocol):
    """Says on certain findings what was measured on this machine under the very releases they are about."""

    def __call__(
        self, findings: Sequence[Finding], rules: RuleSet, /
    ) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
        """Return the findings in their order, with ``measured_here`` where there is such a measurement, and what was not read."""
