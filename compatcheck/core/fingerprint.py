"""The identity of a finding from one run to the next; apart because hashing is imported only by formats that print it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.checkout import find_root

if TYPE_CHECKING:
    from compatcheck.core.report import Finding


def fingerprint(finding: Finding) -> str:
    """Return 16 hex digits of rule, subject and role; the place of the checkout on this machine leaves no trace in them."""
    from hashlib import sha256  # noqa: PLC0415 (10 ms; only for formats that print it)

    root = find_root(os.getcwd())
    subject = finding.subject if root == os.sep else finding.subject.replace(root + os.sep, "")
    identity = f"{finding.rule_id}\0{subject}\0{finding.role}"
    return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:16]
