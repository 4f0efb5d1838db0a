"""Credentials taken out of text before it is shown: index URLs, direct URLs, environment variables."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

# Patterns are compiled where a text has what they start with: most have not.
_USER_INFO = r"(?:(?<=://)|(?<=http:/)|(?<=https:/))[^/\s'\"]+(?=@)"
"""With one slash where an address was taken for a path."""
_BARE_USER_INFO = r"(?<![\w./:@+%-])[\w.+%-]+:(?!/)[^\s/'\"@:<>&]+(?=@(?!sha\d)[\w.-]+(?::\d+)?/)"
"""Of an address without its scheme, as images have them: ``user:password@host/name``; a digest behind a tag is none."""
_QUERY = (
    r"(?i)([?&;#](?:[\w-]{0,40}(?:token|secret|password|passwd|pwd|signature|credential)|(?:access_|api_?|private_)?key|sig|auth|"
    r"x-amz-[a-z-]+|x-goog-[a-z-]+|awsaccesskeyid|googleaccessid)=)[^&#\s'\"]+"
)
_QUERY_STARTS = frozenset("?&;#")
_QUERY_WORDS = ("token", "secret", "passw", "pwd", "credential", "key", "sig", "auth", "x-amz-", "x-goog-", "accessid")
"""Of which each name of such a parameter holds one."""
_ISSUED = (
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|pypi-[\w-]{16,}|"
    r"sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|nvapi-[\w-]{16,}|AKIA[A-Z0-9]{12,}|AIza[\w-]{30,})"
)
_SIGNED_WORD = r"(?<![\w-])(?=((?:[\w-]*?-)??)(eyJ[\w-]{10,}))\1\2\.[\w-]{10,}\.[\w-]+"
"""Tried once for each word: what is looked ahead for is not taken back, and ``-eyJ-eyJ-eyJ`` is no work for each of them."""
_ISSUED_STARTS = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "pypi-"),
    *("sk-", "xox", "nvapi-", "AKIA", "AIza"),
)
_CONDA_CHANNEL = r"(?<=/t/)[^/\s'\"]+(?=/)"
"""A token of a conda channel: ``https://conda.anaconda.org/t/TOKEN/channel``."""
_BEARER = r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/._=-]{8,}"
_SECRET_WORDS = frozenset(
    [
        "TOKEN",
        "TOKENS",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWORDS",
        "PASSWD",
        "PWD",
        "PASSPHRASE",
        "PASS",
        "PAT",
        "WEBHOOK",
        "CREDENTIAL",
        "CREDENTIALS",
        "AUTH",
        "COOKIE",
        "KEY",
        "APIKEY",
        "SIGNATURE",
        "DSN",
    ]
)
_VALUE = r"((?<=\")[^\"\n]+|(?<=')[^'\n]+|[^\s\"',;)}\]]+)"
_STATED = (
    rf"(?<![\w-])(-{{0,2}}[A-Za-z_][\w-]*)([\"']?\]?[ \t]*[:=][ \t]*[\"']?){_VALUE}",
    rf"(?<!\S)(--[A-Za-z][\w-]*)([ \t]+[\"']?)(?!-){_VALUE}",
    rf"(?:(?<=ENV )|(?<=setenv ))([A-Z]\w*)([ \t]+[\"']?){_VALUE}",
)
"""A name, what stands between, and a value, as scripts, configurations and code have them; an option and the value behind it."""
_HARMLESS_VALUES = (
    r"[-+]?[\d.]+|[$<{(\[].*|[A-Za-z_]\w*[.(\[].*"
    r"|(?i:true|false|none|null|auto|str|int|float|bool|optional|any|lambda)\b.*"
)
"""Numbers, switches, what stands for a value elsewhere, types, and code."""
_USER_OPTIONS = frozenset({"-u", "--user"})
"""Of curl and others: a name and a password."""
_OF_USERS = r"((?<!\S)(?:-u|--user)[ \t=]+[\"']?[^\s:\"']+:)(?!\d+(?!\S))[^\s\"'/][^\s\"']*"
_FORM_WORDS = frozenset({"ID", "VALUE", "B64", "BASE64"})
"""Words behind the one that tells: ``AWS_ACCESS_KEY_ID``."""
_ENDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "CONNECTION_STRING")
"""How names end that say so without a break between words: ``ACCESSTOKEN``, ``hfToken``."""
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD"})
_KEYS_THAT_OPEN = frozenset(
    (
        *("ACCESS", "ACCOUNT", "API", "APP", "AUTH", "CLIENT", "DEPLOY", "ENCRYPTION", "LICENSE", "MASTER", "PRIVATE"),
        *("SECRET", "SERVICE", "SHARED", "SIGNING", "SSH", "SSL", "STORAGE", "SUBSCRIPTION", "TLS", "USER", "WANDB"),
    )
)
"""Words before ``key`` where it opens something; another names a column or a field: ``--input_key question``."""


def leave_out_words(written: str) -> str:
    """Return a word of a shell without the words of commands in it, which may be credentials: ``$(curl …)``."""
    if "(" not in written and "`" not in written:
        return written
    shown = written
    last = written.rfind(")")  # of the first that begins; what stands between is not looked through for each other one
    begins = re.search(r"[$<>]\(\s*([^\s()]+)", written[: max(last, 0)])
    if begins is not None:
        shown = f"{written[: begins.start() + 2]}{begins[1]} …{written[last:]}"
    return re.sub(r"`\s*([^\s`]+)[^`]*`", r"`\1 …`", shown)


def redact(text: str) -> str:
    """Return the text without user names and passwords in URLs, secret query parameters and tokens of known services.

    >>> redact("https://me:pass@example.org/simple")
    'https://[redacted]@example.org/simple'
    """
    if ":/" in text and "@" in text:
        text = re.sub(_USER_INFO, REDACTED, text)
    if "@" in text and ":" in text:
        text = re.sub(_BARE_USER_INFO, REDACTED, text)
    if "://" in text and "/t/" in text:
        text = re.sub(_CONDA_CHANNEL, REDACTED, text)
    if "=" in text and not _QUERY_STARTS.isdisjoint(text) and any(word in text.lower() for word in _QUERY_WORDS):
        text = re.sub(_QUERY, rf"\1{REDACTED}", text)
    if "earer" in text.lower() or "basic" in text.lower():
        text = re.sub(_BEARER, rf"\1 {REDACTED}", text)
    if any(start in text for start in _ISSUED_STARTS):
        text = re.sub(_ISSUED, REDACTED, text)
    if "eyJ" in text:
        text = re.sub(_SIGNED_WORD, rf"\1{REDACTED}", text)
    return text


def redact_variable(name: str, value: str) -> str:
    """Return the value of an environment variable, hidden whole when its name says that it is a secret."""
    words = name.upper().split("_")
    while len(words) > 1 and words[-1] in _FORM_WORDS:
        words.pop()
    tells = words[-1] in _SECRET_WORDS or "_".join(words).endswith(_ENDS)
    if value and tells and name not in _HARMLESS_NAMES:
        return REDACTED
    return redact(value)


def redact_lines(text: str) -> str:
    """Return lines of a file, each as long as it was but for the values of secret variables, options, keys and arguments.

    >>> redact_lines("HF_TOKEN=abc train.py  --hf-token abc --max_tokens 1")
    'HF_TOKEN=[redacted] train.py  --hf-token [redacted] --max_tokens 1'
    """

    def hide(match: re.Match[str]) -> str:
        name, between, value = match.groups()
        plain = name.lstrip("-").replace("-", "_")
        one_word = plain.upper() in {"KEY", "PASS", "PAT", "AUTH"} and re.search(r"=[ \t]*[\"']", between) is None
        if (
            (one_word and not name.startswith("-"))
            or re.fullmatch(_HARMLESS_VALUES, value)
            or redact_variable(plain, "value") != REDACTED
            or _names_field(plain, value)
        ):
            return match[0]
        return f"{name}{between}{REDACTED}"

    text = re.sub(_OF_USERS, rf"\1{REDACTED}", redact(text))
    for stated in _STATED:
        text = re.sub(stated, hide, text)
    return text


def _names_field(name: str, value: str) -> bool:
    """Tell whether a setting says under which word data stand: one of several small words, whose value is one, too."""
    words = name.split("_")
    return (
        words[-1] == "key"
        and len(words) > 1
        and words[-2].upper() not in _KEYS_THAT_OPEN
        and re.fullmatch(r"[a-z][a-z_]{0,30}", value) is not None
    )


def redact_command(text: str) -> str:
    """Return a command line with the values of secret variables and options hidden, and blanks folded.

    >>> redact_command("env API_KEY=abc train.py --hf-token abc --lr 1")
    'env API_KEY=[redacted] train.py --hf-token [redacted] --lr 1'
    """
    shown = []
    hides = False
    for word in redact(text).split():
        name, equals, value = word.partition("=")
        plain = name.lstrip("-'\"").replace("-", "_")
        if hides and not word.startswith("-"):
            shown.append(REDACTED)
        elif shown and shown[-1] in _USER_OPTIONS and ":" in word:
            shown.append(f"{word.partition(':')[0]}:{REDACTED}")
        else:
            shown.append(f"{name}={redact_variable(plain, value)}" if equals else word)
        named = name.startswith("--") or name.endswith(":")  # an option, or a header
        hides = not equals and named and redact_variable(plain.rstrip(":"), "value") == REDACTED
    return " ".join(shown)
