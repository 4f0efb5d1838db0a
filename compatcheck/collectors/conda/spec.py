"""Conda's match specifications, and what their versions mean as PEP 440.

A single ``=`` is a prefix in conda (``pytorch=2.5`` allows 2.5.1), unless a build follows; ``==`` and a bare version are
exact, ``|`` joins alternatives. https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html#package-match-specifications
"""

from __future__ import annotations

import re

from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.textfile import echo
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, parse_version

_ARCHIVE = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+)\.(?:conda|tar\.bz2)")
_NAME = re.compile(r"[A-Za-z0-9_*][\w.*-]*")
_BRACKET = re.compile(r"""(\w+)\s*=\s*(?:'([^']*)'|"([^"]*)"|([^,'"\]]*))\s*(?:,|$)""")
_CLAUSE = re.compile(r"\s*(===?|=|!=|~=|<=|>=|<|>)?\s*(\S+)\s*")
_MAX_ALTERNATIVES = 64
_MAX_CHARACTERS = 2000


class InvalidSpecError(ValueError):
    """A text is no match specification; the message says why."""


class MatchSpec(NamedTuple):
    """What one line asks for."""

    name: str
    """Conda's name, lower case; it is not always that of the distribution."""
    version: str | None = None
    """Version condition as conda writes it, ``2.5.1.*`` for ``=2.5.1``; None for any."""
    build: str | None = None
    """Build string or a pattern of it: ``*cuda*``."""
    channel: str | None = None
    exact: str | None = None
    """The version, where it is exactly one."""


def read_archive_name(url: str) -> tuple[str, str, str] | None:
    """Return name, version and build out of the file name or address of a conda package; None when it is none."""
    file = url.partition("#")[0].partition("?")[0].rstrip("/").rpartition("/")[2]
    match = _ARCHIVE.fullmatch(file)
    return None if match is None else (match["name"], match["version"], match["build"])


def read_channel(url: str) -> str | None:
    """Return the channel in the address of a package (``conda-forge``, ``pytorch``); None when it is no such address."""
    parts = url.partition("://")[2].split("/")
    return parts[-3] if len(parts) > 3 else None


def parse_match_spec(text: str) -> MatchSpec:
    """Parse one match specification.

    Raises:
        InvalidSpecError: saying what is wrong with it.
    """
    whole = text.strip()
    if len(whole) > _MAX_CHARACTERS:
        message = f"{echo(whole)} is too long for a package"
        raise InvalidSpecError(message)
    if "://" in whole:
        named = read_archive_name(whole)
        if named is None:
            message = f"{echo(whole)} names no conda package"
            raise InvalidSpecError(message)
        return MatchSpec(named[0].lower(), named[1], named[2], read_channel(whole), named[1])
    rest, options = _split_brackets(whole)
    prefix, separator, rest = rest.rpartition("::")
    rest = rest.strip()
    match = _NAME.match(rest)
    if match is None or "*" in match[0]:
        message = f"{echo(whole)} does not begin with the name of a package"
        raise InvalidSpecError(message)
    # conda passes over extras, which people copy from requirements: uvicorn[standard]=0.12
    behind = re.sub(r"^\[[^\]=]*\]", "", rest[match.end() :])
    if behind and behind[0] not in "=!<>~ ":
        message = f"{echo(whole)} is no package and version"
        raise InvalidSpecError(message)
    stated, stated_build = _split_condition(behind.strip())
    condition = options.get("version") or stated
    build = options.get("build") or stated_build
    channel = options.get("channel", prefix if separator else "") or None
    wanted, exact = _normalise(condition, build)
    return MatchSpec(match[0].lower(), wanted, build, channel, exact)


def _split_brackets(text: str) -> tuple[str, dict[str, str]]:
    """Take ``[version='>=2',build=*cuda*]`` off the end."""
    if not text.endswith("]") or "[" not in text:
        return text, {}
    rest, _, inside = text[:-1].partition("[")
    options = {}
    for key, single, double, bare in _BRACKET.findall(inside):
        options[key] = (single or double or bare).strip()
    return rest, options


def _split_condition(text: str) -> tuple[str | None, str | None]:
    """Split what stands behind the name into version and build: ``=2.5=py311_0``, ``2.5 py311_0``, ``>=2,<3``."""
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    if not text:
        return None, None
    text = "|".join(",".join(map(str.strip, part.split(","))) for part in text.split("|"))
    text = re.sub(r"([<>=!~])\s+", r"\1", text)
    version, blank, build = text.partition(" ")
    if blank:
        return version, build.strip().lstrip("=").strip() or None
    # name=version=build, name>=version=build, and name==version==build which older tools write
    match = re.fullmatch(r"(.*[^=<>!~,|])={1,2}([^=<>!~,|]+)", text)
    return (match[1], match[2]) if match is not None else (text, None)


def _normalise(version: str | None, build: str | None) -> tuple[str | None, str | None]:
    """Return the version condition with its prefix matches as ``….*``, and the one version it allows, if any."""
    if version is None or version in {"", "*", "=*", "==*"}:
        return None, None
    plain = re.fullmatch(r"(={0,2})([^=<>~,|*^$()]+)", version)
    if plain is None or plain[2].startswith("!"):
        return version, None
    signs, bare = plain.groups()
    if signs == "=" and build is None:  # with a build behind it, even a pattern, the version is exact
        return f"{bare}.*", None
    return bare, bare


def convert_version(condition: str | None) -> str:
    """Convert conda's version condition to PEP 440, alternatives joined by ``||``; ``""`` allows every release.

    Two differences remain that no release of the packages rules speak of meets: conda's ``>1.2`` holds 1.2.post1, and
    its ``<2`` holds 2.0rc1.

    Raises:
        InvalidSpecifierError: it is a pattern, or names versions that PEP 440 does not know.
    """
    if condition is None:
        return ""
    alternatives = condition.split("|")
    if len(alternatives) > _MAX_ALTERNATIVES:
        message = f"{echo(condition)} has more than {_MAX_ALTERNATIVES} alternatives"
        raise InvalidSpecifierError(message)
    converted = []
    for alternative in alternatives:
        clauses = [_convert_clause(part, condition) for part in alternative.split(",") if part.strip()]
        joined = ",".join(clause for clause in clauses if clause)
        compile_specifier(joined)
        converted.append(joined)
    return "" if "" in converted else " || ".join(dict.fromkeys(converted))


def _convert_clause(text: str, whole: str) -> str:
    match = _CLAUSE.fullmatch(text)
    operator, operand = (match[1] or "", match[2]) if match is not None else ("", "")
    if operator in {"", "=", "==", "!="} and operand in {"*", ".*"}:
        if operator == "!=":
            raise _unknown(whole)
        return ""
    bare = operand.removesuffix("*").removesuffix(".")
    if not bare or any(sign in bare for sign in "*^$()=<>~[]") or parse_version(bare) is None:
        raise _unknown(whole)
    prefix = operand.endswith("*") or operator == "="
    if operator in {">=", ">", "<=", "<"}:
        return operator + bare  # a '.*' behind them says nothing, for conda too
    if operator == "~=":
        return f"~={bare}" if "." in bare else f">={bare}"
    sign = "!=" if operator == "!=" else "=="
    # A prefix that ends in 'post0' or 'rc1' is as good as exact, and PEP 440 has no prefix of it.
    return f"{sign}{bare}.*" if prefix and bare.replace(".", "").replace("!", "").isdigit() else f"{sign}{bare}"


def _unknown(whole: str) -> InvalidSpecifierError:
    message = f"{echo(whole)} is a version condition that has no form in PEP 440"
    return InvalidSpecifierError(message)
