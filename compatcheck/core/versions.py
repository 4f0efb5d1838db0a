"""Version ranges compiled to plain lists, and what a version or a requirement means against them.

``packaging.specifiers`` costs tens of milliseconds to import and answers only yes or no. Rules need less and more:
bounds that can stand in a JSON file, and a third answer for builds whose number does not tell on which side of a fix
they lie.

Bounds are a union (outer list) of conjunctions (middle list) of clauses (inner lists), each an operator and its
versions::

    >=0.16.0,<0.16.8 || ==0.17.*   →   [[[">=", "0.16.0"], ["<", "0.16.8"]], [[">=", "0.17"], ["<", "0.18"]]]

``~=`` and ``==….*`` become a pair of ordered clauses, ``!=1.2.*`` becomes ``["!=*", "1.2", "1.3"]``. ``[[]]`` holds
every version.
"""

from __future__ import annotations

import operator
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from packaging.version import Version

    Membership = Literal["yes", "no", "boundary", "unknown"]
    """Whether a range holds a version. ``boundary``: a pre-release, development, vendor or source build of a release that
    the range ends at. ``unknown``: not a PEP 440 version."""

    Verdict = Literal["all", "some", "none", "unknown"]
    """How many of the known releases a requirement allows lie in a range; ``unknown`` when it allows none that is known."""

Bounds = list[list[list[str]]]
"""A compiled range, ready for JSON."""

_OPERATORS = ("===", "~=", "==", "!=", "<=", ">=", "<", ">")
_HASH_LENGTHS = range(7, 41)
"""Digits of a git commit, from the short form to the whole."""
_HEX_DIGITS = frozenset("0123456789abcdef")
_COMPATIBLE_SEGMENTS = 2
_ECHO_CHARACTERS = 60
_MAX_DIGITS = 80
"""Of all numbers of a version together that is compared here; a longer one is left to `packaging`."""
_ANSWERS: tuple[Membership, ...] = ("no", "boundary", "yes")
"""A conjunction answers as its least clause does, a union as its greatest conjunction."""
_PRE_RELEASES = (".dev", "rc", "a", "b")
OPERATORS = {
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
}
_COMPARED = frozenset({*OPERATORS, "!=*", "==="})


class InvalidSpecifierError(ValueError):
    """A text is not a PEP 440 specifier set."""


@lru_cache(maxsize=8192)
def _parse(text: str) -> Version:
    from packaging.version import Version  # noqa: PLC0415 (6 ms; plain releases are compared without it)

    return Version(text)


@lru_cache(maxsize=8192)
def parse_version(text: str) -> Version | None:
    """Parse a version and drop its local label, or return None when it is not PEP 440."""
    try:
        version = _parse(text.strip())
    except ValueError:  # InvalidVersion, or more digits than Python converts
        return None
    return version if version.local is None else _parse(version.public)


def is_source_build(text: str) -> bool:
    """Tell whether a local label names a commit (``0.16.8+a1b2c3d``) instead of a build flavour (``2.6.0+cu124``).

    A checkout between two releases often carries the number of the *next* one (DeepSpeed's ``version.txt`` does), so
    such a build can lie on either side of that release.
    """
    segments = text.lower().partition("+")[2].split(".")
    return segments[-1] == "unknown" or any(map(_names_commit, segments))


def _names_commit(segment: str) -> bool:
    """Tell whether a part of a local label is a commit (``a1b2c3d``, ``ga1b2c3d``) or says that there is one."""
    digits = segment.removeprefix("g")
    return segment.startswith(("git", "dirty", "tree", "file")) or (
        len(digits) in _HASH_LENGTHS and set(digits) <= _HEX_DIGITS and not digits.isalpha()
    )


@lru_cache(maxsize=2048)  # what a file requires is asked of every release, rule and pin
def compile_specifier(text: str) -> Bounds:
    """Compile PEP 440 specifier sets joined by ``||`` into bounds; local labels are dropped, as ranges ignore them.

    Raises:
        InvalidSpecifierError: naming the clause that is not PEP 440.
    """
    if "||" not in text:
        return [_compile_set(text)]
    alternatives = text.split("||")
    if not all(part.strip() for part in alternatives):
        raise InvalidSpecifierError(f"an alternative of {text!r} is empty")
    return [_compile_set(part) for part in alternatives]


def _compile_set(text: str) -> list[list[str]]:
    clauses: list[list[str]] = []
    for part in text.split(","):
        if part.strip():
            clauses += _compile_clause(part)
    return clauses


def _compile_clause(text: str) -> list[list[str]]:
    clause = text.strip()
    comparison = next((sign for sign in _OPERATORS if clause.startswith(sign)), "")
    operand = clause[len(comparison) :].strip()
    if not comparison or not operand:
        raise _invalid(text, "expected an operator and a version")
    if comparison == "===":
        if any(character.isspace() or character in ";)" for character in operand):
            raise _invalid(text, "a literal version holds no blank")
        return [["===", operand.lower().partition("+")[0]]]
    if comparison in OPERATORS and plain_release(operand) is not None:
        return [[comparison, operand]]
    wildcard = operand.endswith(".*")
    try:
        version = _parse(operand.removesuffix(".*"))
    except ValueError:
        raise _invalid(text, "what follows the operator is not a PEP 440 version") from None
    if wildcard:
        if comparison not in {"==", "!="} or not _is_plain_release(version):
            raise _invalid(text, "'.*' follows only a release number after == or !=")
        return _prefix_clauses(comparison, version, version.release)
    if version.local is not None and comparison not in {"==", "!="}:
        raise _invalid(text, "a local label stands only after == or !=")
    if comparison == "~=":
        if len(version.release) < _COMPATIBLE_SEGMENTS:
            raise _invalid(text, "~= needs at least two numbers")
        return [
            [">=", version.public],
            *_prefix_clauses("==", version, version.release[:-1])[1:],
        ]
    return [[comparison, version.public]]


def _invalid(text: str, reason: str) -> InvalidSpecifierError:
    shown = text.strip()
    shown = shown if len(shown) <= _ECHO_CHARACTERS else shown[:_ECHO_CHARACTERS] + "…"
    return InvalidSpecifierError(f"{shown!r} is not a version range: {reason}")


def _is_plain_release(version: Version) -> bool:
    return version.pre is None and version.post is None and version.dev is None and version.local is None


def _prefix_clauses(comparison: str, version: Version, release: Sequence[int]) -> list[list[str]]:
    epoch = f"{version.epoch}!" if version.epoch else ""
    low = epoch + ".".join(map(str, release))
    high = epoch + ".".join(map(str, (*release[:-1], release[-1] + 1)))
    return [["!=*", low, high]] if comparison == "!=" else [[">=", low], ["<", high]]


def contains(bounds: Iterable[Iterable[Sequence[str]]], version: str) -> Membership:
    """Tell whether a range holds a version.

    Local labels do not count. Final and post releases follow PEP 440. Pre-releases are always seen and ordered like
    any other version, except that a pre-release, development or source build of a release that a bound names is
    ``boundary``: its number does not tell whether it holds what that release changed.

    >>> contains(compile_specifier(">=0.16.0,<0.16.8"), "0.16.8rc1")
    'boundary'
    """
    plain = _contains_plain(bounds, version)
    if plain is not None:
        return plain
    parsed = parse_version(version)
    uncertain = (parsed is not None and parsed.is_prerelease) or is_source_build(version)
    answers = {_holds_all(clauses, version, parsed, uncertain=uncertain) for clauses in bounds}
    for answer in ("yes", "boundary", "unknown"):
        if answer in answers:
            return answer
    return "no"


@lru_cache(maxsize=8192)
def plain_release(text: str) -> tuple[tuple[int, ...], int] | None:
    """Return the numbers of a final or post release, without trailing zeros, and its post number, -1 for a final one.

    Returns:
        A pair that orders as the versions do; None for every other kind of version.
    """
    numbers, dot, post = text.partition(".post")
    digits = (numbers + post).replace(".", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < _MAX_DIGITS):
        return None
    try:
        release, after = list(map(int, numbers.split("."))), int(post or "0") if dot else -1
    except ValueError:  # a dot with nothing beside it, or one behind `.post`
        return None
    while release and not release[-1]:
        release.pop()
    return tuple(release), after


def read_final_release(text: str) -> tuple[int, ...] | None:
    """Return the numbers of a final or post release; None for a pre-release, and for what is not PEP 440."""
    public = text.partition("+")[0]
    if plain_release(public) is not None:
        return tuple(map(int, public.partition(".post")[0].split(".")))
    version = parse_version(text)
    return None if version is None or version.is_prerelease else version.release


def _contains_plain(bounds: Iterable[Iterable[Sequence[str]]], version: str) -> Membership | None:
    """Decide what most runs ask by comparing tuples.

    A pre-release, or a build of a commit, lies where its release does, and at the boundary where a bound names that very one.

    Returns:
        None when a version or an operator needs the rules of PEP 440.
    """
    text, _, label = version.partition("+")
    place = _place(text)
    if place is None:
        return None
    release, final = place
    final = final and not (label and is_source_build(version))
    held = 0
    for clauses in bounds:
        fits = len(_ANSWERS) - 1
        for clause in clauses:
            comparison = clause[0]
            low = high = _place(clause[1])
            if comparison == "!=*":
                high = _place(clause[2])
            if low is None or high is None or comparison not in _COMPARED:
                return None
            bound, end = low[0], high[0]
            if release[0] == bound[0] or release[0] == end[0]:
                if comparison == "===" or not (low[1] and high[1]):
                    return None
                if not final:
                    fits = min(fits, _ANSWERS.index("boundary"))
                    continue
            if comparison == "!=*":
                fits = 0 if bound <= release < end else fits
            elif comparison == ">" and release[0] == bound[0] and release[1] >= 0 > bound[1]:
                fits = 0  # PEP 440: ">1.0" leaves out 1.0.post1
            elif not OPERATORS.get(comparison, operator.eq)(release, bound):  # another release is not "===" either
                fits = 0
            if not fits:
                break
        held = max(held, fits)
    return _ANSWERS[held]


@lru_cache(maxsize=8192)
def _place(text: str) -> tuple[tuple[tuple[int, ...], int], bool] | None:
    """Return the release, as `plain_release`, that a version is (True), or that one like ``5.0.0rc1`` comes before."""
    release = plain_release(text)
    if release is not None:
        return release, True
    base = text.rstrip("0123456789")
    mark = next((mark for mark in _PRE_RELEASES if base.endswith(mark)), None)
    release = None if mark is None or base == text else plain_release(base.removesuffix(mark))
    return None if release is None else (release, False)


def _holds_all(
    clauses: Iterable[Sequence[str]],
    text: str,
    version: Version | None,
    *,
    uncertain: bool,
) -> Membership:
    result: Membership = "yes"
    for clause in clauses:
        answer = _holds(clause, text, version, uncertain=uncertain)
        if answer == "no":
            return "no"
        if answer != "yes" and result != "unknown":
            result = answer
    return result


def _holds(clause: Sequence[str], text: str, version: Version | None, *, uncertain: bool) -> Membership:
    comparison, bound_text = clause[0], clause[1]
    if comparison == "===":
        public = text.strip().partition("+")[0] if version is None else version.public
        return "yes" if public.lower() == bound_text else "no"
    if version is None:
        return "unknown"
    bound = _parse(bound_text)
    if comparison == "!=*":
        end = _parse(clause[2])
        if uncertain and (_undecidable(version, bound, text) or _undecidable(version, end, text)):
            return "boundary"
        return "no" if bound <= version < end else "yes"
    if uncertain and _undecidable(version, bound, text):
        return "boundary"
    return "yes" if _compare(comparison, version, bound) else "no"


def _undecidable(version: Version, bound: Version, text: str) -> bool:
    """Tell whether an uncertain build belongs to the very release a bound names, and the number does not order them."""
    if version.epoch != bound.epoch or _padded(version) != _padded(bound):
        return False
    if is_source_build(text):
        return True
    # Two tagged pre-releases of one release are ordered by their tags; a development build is not, unless it is the
    # bound.
    return version != bound and not (bound.is_prerelease and version.dev is None and "+" not in text)


def _padded(version: Version) -> tuple[int, ...]:
    release = version.release
    end = len(release)
    while end and release[end - 1] == 0:
        end -= 1
    return release[:end]


def _compare(comparison: str, version: Version, bound: Version) -> bool:
    compare = OPERATORS.get(comparison)
    if compare is None:
        raise ValueError(f"{comparison!r} is not an operator of compiled bounds")
    if comparison == ">" and version > bound:
        # PEP 440: ">1.0" leaves out 1.0.post1.
        # https://packaging.python.org/en/latest/specifications/version-specifiers/
        is_post_of_bound = (
            version.post is not None
            and _is_plain_release(bound)
            and version.epoch == bound.epoch
            and _padded(version) == _padded(bound)
        )
        return not is_post_of_bound
    return bool(compare(version, bound))


def exact_version(specifier: str) -> str | None:
    """Return the version that a specifier set pins with ``==`` or ``===``, local label included; None for a range."""
    if "||" in specifier:
        return None
    pins = [part.strip() for part in specifier.split(",") if part.strip().startswith("==")]
    exact = [pin.lstrip("=").strip() for pin in pins if not pin.endswith(".*")]
    if len(exact) == 1:
        return exact[0]
    distinct = {parse_version(pin) or pin for pin in exact}
    labels = {_local_label(pin) for pin in exact} - {None}
    return max(exact, key=len) if len(distinct) == 1 and len(labels) <= 1 else None


def _local_label(text: str) -> str | None:
    """Return what a version has behind ``+``, as it is compared."""
    try:
        return _parse(text).local if "+" in text else None
    except ValueError:
        return text.partition("+")[2]


def allowed_releases(specifier: str, releases: Iterable[str]) -> tuple[str, ...]:
    """Select the known releases a requirement allows, in the given order.

    Final and post releases only, unless the requirement itself names a pre-release, as installers have it. An exact pin
    allows its own version whether it is a known release or not.

    Raises:
        InvalidSpecifierError: ``specifier`` is not PEP 440.
    """
    return _allowed(specifier, tuple(releases))


@lru_cache(maxsize=256)  # every rule about a package asks for the same requirement
def _allowed(specifier: str, known: tuple[str, ...]) -> tuple[str, ...]:
    allowed: dict[str, None] = {}
    for part in specifier.split("||"):
        wanted = compile_specifier(part)
        pin = exact_version(part)
        if pin is not None:
            if contains(wanted, pin) == "yes" or is_source_build(pin):
                allowed[pin] = None
            continue
        pre_releases = any(
            _parse(version).is_prerelease
            for comparison, *versions in wanted[0]
            if comparison != "==="
            for version in versions
        )
        for release in known:
            version = parse_version(release)
            if version is None or (version.is_prerelease and not pre_releases):
                continue
            if all_ordered(wanted, version):
                allowed[release] = None
    return tuple(allowed)


def all_ordered(bounds: Bounds, version: Version) -> bool:
    """Tell whether a range holds a version by plain PEP 440 order, with no boundary: what an installer would accept."""
    return any(all(_holds(clause, "", version, uncertain=False) == "yes" for clause in clauses) for clauses in bounds)


def judge(bounds: Bounds, specifier: str, releases: Iterable[str]) -> Verdict:
    """Tell how many of the known releases that a requirement allows lie in a range.

    Releases newer than the given ones do not count, unless a requirement allows no others (a checkout of what is not released
    yet): then its least version counts, and one beyond all.

    Args:
        bounds: the compiled range of a rule.
        specifier: what is required, ``>=0.15,<0.17``; ``""`` allows every release.
        releases: the known releases, in any order.

    Raises:
        InvalidSpecifierError: ``specifier`` is not PEP 440.
    """
    answers: set[str] = set()
    for release in allowed_releases(specifier, releases := tuple(releases)) or _beyond(specifier, releases):
        answers.add(contains(bounds, release))
        if len(answers) > 1:
            return "some"
    if not answers or answers == {"unknown"}:
        return "unknown"
    if answers == {"yes"}:
        return "all"
    return "none" if answers == {"no"} else "some"


def _beyond(specifier: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the least version of a requirement that asks for more than all known releases, and one that none exceeds."""
    bounds = compile_specifier(specifier) if "||" not in specifier else []
    if len(bounds) != 1 or not bounds[0] or any(comparison not in {">", ">="} for comparison, *_ in bounds[0]):
        return ()
    least = max(_parse(version) for _, version in bounds[0])
    if least.epoch:
        return ()
    ordered = [version for version in map(parse_version, known) if version is not None]
    return (str(least), f"{_MAX_RELEASE}") if ordered and least > max(ordered) else ()


_MAX_RELEASE = 10**6


def order_of(text: str) -> tuple[tuple[int, ...], float] | None:
    """Return a key that orders a version among final and post releases; a pre-release stands just before its release."""
    plain = plain_release(text.strip().partition("+")[0])
    if plain is not None:
        return plain
    version = parse_version(text)
    if version is None:
        return None
    post = -1.0 if version.post is None else float(version.post)
    return _padded(version), post - 0.5 if version.is_prerelease else post


def order_of_final(text: str) -> tuple[tuple[int, ...], float] | None:
    """Return the place of a final or post release as `order_of`; None for every other version."""
    place = order_of(text)
    return None if place is None or place[1] % 1 else place
