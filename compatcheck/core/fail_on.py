"""From which finding on a run fails: a severity, a size or a share of the device."""

from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.report import SEVERITIES, Finding, severity_rank
from compatcheck.core.units import GIB, parse_bytes


class Threshold(NamedTuple):
    """A parsed ``--fail-on``."""

    text: str
    severity: str | None = None
    size_bytes: int | None = None
    share: float | None = None
    """Fraction of one device's memory."""

    def reached_by(self, finding: Finding, device_bytes: int | None) -> bool:
        """Tell whether a finding counts; a device of unknown memory has 80 GiB."""
        if self.severity is not None:
            return severity_rank(finding.severity) >= severity_rank(self.severity)
        if finding.severity == "critical":
            return self.text != "never"
        size = finding.impact.high_bytes if finding.impact is not None else None
        if self.size_bytes is not None:
            return size is not None and size >= self.size_bytes
        if self.share is not None:
            return size is not None and size >= self.share * (device_bytes or 80 * GIB)
        return False


def parse_threshold(text: str) -> Threshold:
    """Parse ``medium``, ``5GiB``, ``10%`` or ``never``.

    Raises:
        UsageError: it is none of these.
    """
    word = text.strip()
    if word == "never":
        return Threshold(word)
    if word in SEVERITIES:
        return Threshold(word, severity=word)
    if word.endswith("%"):
        try:
            share = float(word[:-1]) / 100
        except ValueError:
            share = -1.0
        if 0 < share <= 1:
            return Threshold(word, share=share)
    size = parse_bytes(word) if any(character.isalpha() for character in word) else None
    if size:
        return Threshold(word, size_bytes=size)
    raise UsageError(
        f"--fail-on {text!r} is not understood",
        hint=f"one of {', '.join(SEVERITIES)}, a size (5GiB), a share (10%), or never",
    )
