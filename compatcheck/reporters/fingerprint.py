"""The identity of a finding or advisory from one run to the next.

Apart because hashing is imported only by formats that print it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.reporters.checkout import find_root

if TYPE_CHECKING:
    from compatcheck.core.advisory import Advisory
    from compatcheck.core.report import Finding


def fingerprint(finding: Finding) -> str:
    """Return 16 hex digits of rule, subject and role; the place of the checkout on this machine leaves no trace in them."""
    return _identify(finding.rule_id, finding.subject, finding.role)


def fingerprint_advisory(advisory: Advisory) -> str:
    """Return 16 hex digits of advisory, subject and package."""
    return _identify(advisory.id, advisory.subject, advisory.package)


def _identify(name: str, subject: str, part: str) -> str:
    from hashlib import sha256  # noqa: PLC0415 (10 ms; only for formats that print it)

    root = find_root(os.getcwd())
    subject = subject if root == os.sep else subject.replace(root + os.sep, "")
    identity = f"{name}\0{subject}\0{part}"
    return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:16]
