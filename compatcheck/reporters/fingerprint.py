"""The identity of a finding or advisory from one run to the next.

Apart because hashing is imported only by formats that print it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.reporters.checkout import find_root

try:  # the one hash: hashlib loads all of OpenSSL, which is most of what JSON costs beyond text
    from _sha2 import sha256  # type: ignore[import-not-found]  # Python 3.12
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256

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
    root = find_root(os.getcwd())
    subject = subject if root == os.sep else subject.replace(root + os.sep, "")
    identity = f"{name}\0{subject}\0{part}"
    return str(sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:16])
