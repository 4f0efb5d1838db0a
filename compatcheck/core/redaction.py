"""Credentials taken out of text before it is shown: index URLs, direct URLs, environment variables."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_USER_INFO = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_QUERY = re.compile(
    r"([?&;](?:access_)?(?:token|key|api_?key|signature|sig|secret|password|passwd|pwd|auth|credential|x-amz-[a-z-]+|"
    r"x-goog-[a-z-]+|awsaccesskeyid|googleaccessid)=)[^&#\s'\"]+",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|pypi-[\w-]{16,}|sk-[\w-]{16,}|"
    r"xox[abprs]-[\w-]{10,}|nvapi-[\w-]{16,}|AKIA[A-Z0-9]{12,}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)",
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/._=-]{8,}", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|KEY|APIKEY|ACCESS_KEY_ID|SIGNATURE|DSN)"
    r"(?:_(?:ID|VALUE|B64|BASE64))?$",
    re.IGNORECASE,
)
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD"})


def redact(text: str) -> str:
    """Return the text without user names and passwords in URLs, secret query parameters and tokens of known services.

    >>> redact("https://me:pass@example.org/simple")
    'https://[redacted]@example.org/simple'
    """
    text = _USER_INFO.sub(REDACTED, text)
    text = _QUERY.sub(rf"\1{REDACTED}", text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    return _TOKEN.sub(REDACTED, text)


def redact_variable(name: str, value: str) -> str:
    """Return the value of an environment variable, hidden whole when its name says that it is a secret."""
    if value and name not in _HARMLESS_NAMES and _SECRET_NAME.search(name) is not None and not value.isdigit():
        return REDACTED
    return redact(value)
