"""Requirements of one file brought together: lines, constraints and markers become one range per distribution."""

from __future__ import annotations

import re
from itertools import combinations

from compatcheck.core.environment import Damage, Environment, Package
from compatcheck.core.markers import InvalidMarkerError, MarkerEnvironment, canonical_name, describe_machine, evaluate
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.redaction import redact
from compatcheck.core.textfile import echo
from compatcheck.core.versions import (
    OPERATORS,
    InvalidSpecifierError,
    all_ordered,
    compile_specifier,
    exact_version,
    parse_version,
    read_final_release,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from packaging.version import Version

    from compatcheck.core.selection import Choice
    from compatcheck.core.source import Skipped, Source

_CLAUSE = (
    r"([<>=!]=|[<>]|~=) *\d{1,9}(\.\d{1,9})*(?:\.post\d{1,9})?(?:(\.\*)|(\+[a-z0-9]{1,40}(?:\.[a-z0-9]{1,40}){0,8}))?"
)
_NAME = r"([a-z0-9](?:[\w.-]*[a-z0-9])?) *(?:\[([a-z0-9]+(?:,[a-z0-9]+)*)\] *)?(@ *[a-z+]+://\S+|[<>=!~].*|)"
_MARKER = (
    "(?:sys_platform|os_name|platform_(?:machine|system)|python(?:_full)?_version) *(?:[<>=!]=|[<>]) *"
    "(?:'[A-Za-z0-9_.]+'|\"[A-Za-z0-9_.]+\")"
)
_SDIST = lazy_compile(r"(?P<name>.+)-(?P<version>[^-]+)\.(?:tar\.(?:gz|bz2|xz)|tgz|zip)")
_SHOWN_NAMES = 8
_MOST_STATEMENTS = 64
"""Different statements about one distribution that are combined; a project has a few."""
_MOST_ALTERNATIVES = 64
_MOST_CHOICES = 100
"""Extras and groups that are looked at one by one, further ones together; the largest project seen has 34."""
_MOST_BROUGHT = 50_000
"""Packages in all of those looked at one by one: what many choices all bring costs its size for each of them."""
_BEYOND = 10**6
"""A number in a version that none reaches."""
_LARGEST_CLASH = 3
"""Ranges on a line exclude each other in pairs; with ``!=`` it takes three."""


class InvalidRequirementError(ValueError):
    """A text is not a requirement; the message says why."""


class Requirement(NamedTuple):
    """One required distribution as one line of a file states it."""

    name: str
    """Canonical name."""
    specifier: str
    """PEP 440 specifier set, alternatives joined by ``||``; ``""`` allows every release."""
    source: Source
    version: str | None = None
    """Version named by a wheel or source archive that is required by URL or path."""
    marker: str | None = None
    details: Mapping[str, str] = {}


class Combined(NamedTuple):
    """What a set of requirements comes to."""

    packages: dict[str, Package]
    notes: tuple[str, ...]
    damage: tuple[Damage, ...] = ()
    """Distributions whose requirements no release satisfies; their version is unknown."""

    def describe(
        self,
        path: str,
        packages: Mapping[str, Package] | None = None,
        *,
        skipped: Iterable[Skipped],
        notes: Iterable[str] = (),
        offered: frozenset[Choice] = frozenset(),
    ) -> Environment:
        """Return the environment of a file that states requirements: whatever it does not name may be there too.

        Args:
            path: the file.
            packages: those of the environment where they are others than these, optional ones beside them.
            skipped: what of the file could not be used.
            notes: remarks, in front of these.
            offered: its extras and groups.
        """
        return Environment(
            path,
            self.packages if packages is None else packages,
            complete=False,
            damage=self.damage,
            skipped=tuple(skipped),
            notes=(*notes, *self.notes),
            offered=offered,
            to_resolve=True,
        )


def parse_requirement(text: str, source: Source) -> Requirement:
    """Parse a requirement as PEP 508 has it.

    Raises:
        InvalidRequirementError: saying what is wrong with it, credentials removed.
    """
    plain = _read_plain(text, source)
    if plain is not None:
        return plain
    from packaging.requirements import Requirement as Parsed  # noqa: PLC0415 (tens of milliseconds)

    try:
        parsed = Parsed(text)
        specifier = ",".join(sorted(str(parsed.specifier).split(",")))
    except (ValueError, RecursionError) as error:  # InvalidRequirement, endless digits, endless parentheses
        reason = redact(str(error).partition("\n")[0]).rstrip(".:")
        raise InvalidRequirementError(f"{echo(text)} is not a requirement: {reason}") from None
    details = {"extras": ",".join(sorted(parsed.extras))} if parsed.extras else {}
    version = None
    if parsed.url:
        _, version, more = read_url(parsed.url, parsed.name)
        details.update(more)
    try:
        compile_specifier(specifier)
    except InvalidSpecifierError as error:
        raise InvalidRequirementError(str(error)) from None
    marker = None if parsed.marker is None else str(parsed.marker)
    return Requirement(canonical_name(parsed.name), specifier, source, version, marker, details)


def _read_plain(text: str, source: Source) -> Requirement | None:
    """Read what nearly every line is without ``packaging.requirements``: ranges of final releases, plain markers, URLs."""
    stated, _, marker = text.partition(";")
    plain = re.fullmatch(_NAME, stated.rstrip(" "), re.ASCII | re.IGNORECASE)
    comparisons = re.split(" +and +" if " and " in marker else " +or +", marker.strip(" ")) if ";" in text else ()
    if plain is None or not all(re.fullmatch(_MARKER, one) for one in comparisons):
        return None
    name, extras, rest = plain.groups()
    details = {"extras": ",".join(sorted(set(extras.split(","))))} if extras else {}
    if rest.startswith("@"):
        _, version, more = read_url(rest[1:].strip(" "), name)
        return (
            None if comparisons else Requirement(canonical_name(name), "", source, version, None, {**details, **more})
        )
    stated_clauses = [clause.strip(" ") for clause in rest.split(",")] if rest else []
    clauses = sorted(clause.replace(" ", "") for clause in stated_clauses)
    if not all(map(_is_plain, stated_clauses)) or len(clauses) > len({one.lower().rstrip(".0") for one in clauses}):
        return None  # of two alike, `packaging` keeps one
    word = " and " if " and " in marker else " or "
    plain_marker = word.join(re.sub(r" *([<>=!]+) *['\"](.*)['\"]", r' \1 "\2"', one) for one in comparisons)
    return Requirement(canonical_name(name), ",".join(clauses), source, None, plain_marker or None, details)


def _is_plain(clause: str) -> bool:
    """Tell whether a clause of a range is one of a final release, whatever that is compared by."""
    found = re.fullmatch(_CLAUSE, clause, re.ASCII | re.IGNORECASE)
    if found is None:
        return False
    operator, minor, series, label = found.groups()
    if operator == "~=":
        return bool(minor) and "post" not in clause.lower() and not (series or label)
    return not (series and ("post" in clause.lower() or operator not in {"==", "!="})) and not (
        label and operator != "=="
    )


def read_url(url: str, name: str | None = None) -> tuple[str | None, str | None, dict[str, str]]:
    """Read name, version and details out of the URL or path of a distribution, as far as its text tells them.

    Returns:
        The name (the given one, that of a wheel, or ``#egg=``), the version of a wheel, source archive or tag, and details:
        ``direct_url`` without credentials, ``vcs``, ``revision``.
    """
    location, _, fragment = url.partition("#")
    details = {"direct_url": redact(location)}
    options = dict(part.partition("=")[::2] for part in fragment.split("&"))
    egg = re.match(r"[A-Za-z0-9][\w.-]*", options.get("egg", ""))
    name = name or (egg.group(0) if egg else None)
    vcs = re.match(r"(git|hg|svn|bzr)\+", location)
    if vcs:
        details["vcs"] = vcs.group(1)
        path = location.partition("://")[2].partition("/")[2] or location
        if "@" in path:
            details["revision"] = path.rpartition("@")[2]
        # a part of a repository may have releases of its own
        return name, None if "subdirectory" in options else read_tag(details.get("revision")), details
    tagged = re.search(r"/archive/refs/tags/([^/]+?)\.(?:tar\.gz|zip)$", location)
    if tagged and "subdirectory" not in options:
        return name, read_tag(tagged[1]), details
    filename = _unquote(location.partition("?")[0].rstrip("/").rpartition("/")[2])
    if filename.endswith(".whl"):
        parts = filename.removesuffix(".whl").split("-")
        if len(parts) in {5, 6}:
            return name or parts[0], parts[1] if parse_version(parts[1]) else None, details
    elif (match := _SDIST.fullmatch(filename)) and parse_version(match.group("version")):
        stated = match.group("name")
        if name is None or canonical_name(name) == canonical_name(stated):
            return name or stated, match.group("version"), details
    return name, None, details


def _unquote(text: str) -> str:
    """Resolve ``%2B``, as ``urllib.parse.unquote`` does, whose module takes 2 ms to import."""
    return re.sub(
        r"(?:%[0-9A-Fa-f]{2})+", lambda part: bytes.fromhex(part[0].replace("%", "")).decode("utf-8", "replace"), text
    )


def read_tag(revision: str | None) -> str | None:
    """Return the release that a tag of a repository names, ``v0.16.4``; None of a branch, a commit or another word."""
    version = (revision or "").removeprefix("v")
    return version if re.match(r"\d+\.\d+\.\d", version) and parse_version(version) else None


def combine(
    requirements: Sequence[Requirement],
    environment: MarkerEnvironment,
    *,
    constraints: Sequence[Requirement] = (),
    overrides: Sequence[Requirement] = (),
) -> Combined:
    """Intersect the requirements of each distribution, for every Python that is possible.

    Requirements that a marker rules out on all of them are left out; where the Pythons differ, the ranges are joined
    with ``||``. Constraints narrow what is required and add nothing; overrides replace it.
    """
    replaced = _group(overrides)
    narrowing = _group(constraints)
    packages: dict[str, Package] = {}
    notes: list[str] = []
    damage: list[Damage] = []
    for name, group in _group(requirements).items():
        wanted = replaced.get(name, group)
        limits = narrowing.get(name, [])
        settled, remarks = _settle(name, wanted, limits, environment)
        notes += remarks
        if settled is not None and settled.version is None and not is_satisfiable(settled.specifier or ""):
            clash = _find_clash(wanted, limits, environment)
            if clash:
                damage.append(_describe_clash(name, clash))
            else:  # lines for machines that are not known: any of them may hold
                either = " || ".join(dict.fromkeys(_range(item) for item in wanted))
                settled = settled._replace(specifier=either)
        if settled is not None:
            override = {"override": "yes"} if name in replaced else {}
            packages[name] = settled._replace(details={**settled.details, **override})
    idle = sorted(set(narrowing) - set(packages))
    if idle:
        more = f" and {len(idle) - _SHOWN_NAMES} more" if len(idle) > _SHOWN_NAMES else ""
        names = ", ".join(idle[:_SHOWN_NAMES])
        notes.append(f"constraints on packages that no line requires were not used: {names}{more}")
    return Combined(packages, tuple(notes), tuple(damage))


def add_unselected(
    packages: Mapping[str, Package],
    unselected: Iterable[Choice],
    bring: Callable[[frozenset[Choice]], Mapping[str, Package]],
) -> dict[str, Package]:
    """Add the packages that only extras and groups bring which are not selected: whether they are there is unknown.

    Each is taken by itself, for two may exclude each other; where several bring one package, what any of them brings is possible.

    Args:
        packages: what is there in any case.
        unselected: extras and groups.
        bring: tells what is there when these are selected, too.
    """
    left = sorted(unselected)
    found: dict[str, list[tuple[Choice, Package]]] = {}
    looked_at = count = 0
    while left:
        size = 1 if looked_at < _MOST_CHOICES and count < _MOST_BROUGHT else len(left)
        choice, brought = left[0], bring(frozenset(left[:size]))
        left = left[size:]
        looked_at, count = looked_at + 1, count + len(brought)
        for name, package in brought.items():
            if name not in packages:
                found.setdefault(name, []).append((choice, package))
    return {**packages, **{name: _join_optional(brought) for name, brought in found.items()}}


def _join_optional(brought: Sequence[tuple[Choice, Package]]) -> Package:
    first = brought[0][1]._replace(is_optional=True, brought_by=tuple(choice for choice, _ in brought))
    ranges = dict.fromkeys(
        part
        for _, package in brought
        for part in ([_pin(package.version)] if package.version else (package.specifier or "").split(" || "))
    )
    if len(ranges) == 1 and first.version:
        return first
    return first._replace(version=None, specifier="" if "" in ranges else " || ".join(ranges))


def is_satisfiable(specifier: str) -> bool:
    """Tell whether any release could satisfy specifier sets joined by ``||``.

    Raises:
        InvalidSpecifierError: it is not PEP 440.
    """
    return any(map(_can_hold, specifier.split("||")))


def _can_hold(specifier: str) -> bool:
    bounds = compile_specifier(specifier)
    clauses = bounds[0]
    if len(clauses) == 1 and clauses[0][0] == "==":
        return True  # itself
    if len(clauses) > 1 and not _names_finals(specifier, clauses):
        return _holds_any(specifier, clauses)
    pins = {operand for comparison, *operands in clauses if comparison in {"==", "==="} for operand in operands}
    if pins:
        parsed = [parse_version(pin) for pin in pins]
        return any(len(pins) == 1 if version is None else all_ordered(bounds, version) for version in parsed)
    lows = [(_bound(operands[0]), comparison == ">") for comparison, *operands in clauses if comparison in {">", ">="}]
    highs = [
        (_bound(operands[0]), comparison == "<=") for comparison, *operands in clauses if comparison in {"<", "<="}
    ]
    if not lows or not highs:
        return True
    (low, beyond), (high, included) = max(lows), min(highs)
    return low < high or (low == high and included and not beyond and all_ordered(bounds, low))


def _names_finals(specifier: str, clauses: Iterable[Sequence[str]]) -> bool:
    """Tell whether a range compares final releases alone, by order: labels, pre- and post-releases have rules of their own."""
    return "+" not in specifier and not any(
        comparison not in OPERATORS or "post" in operand or read_final_release(operand) is None
        for comparison, *operands in clauses
        if comparison != "==="
        for operand in operands
    )


def _holds_any(specifier: str, clauses: Iterable[Sequence[str]]) -> bool:
    """Tell whether a range holds any version: one that a clause names, or one close by.

    A range changes its answer at such versions alone. What is not PEP 440 is only ever pinned, and like nothing else.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 (tens of milliseconds; few lines need it)

    pins = {operands[0] for comparison, *operands in clauses if comparison == "==="}
    if any(parse_version(pin) is None for pin in pins):
        return len(pins) == 1
    wanted = SpecifierSet(specifier)
    named = {part.strip().lstrip("<>=!~").strip().removesuffix(".*") for part in specifier.split(",")}
    return any(wanted.contains(one, prereleases=True) for name in named for one in _list_around(name))


def _list_around(name: str) -> Iterator[str]:
    """List a version, what is next to it and to its release on either side, and the least and the greatest of that release."""
    version = parse_version(name)
    if version is None:
        return
    release, epoch = version.release, f"{version.epoch}!" if version.epoch else ""
    whole = epoch + ".".join(map(str, release))
    following = epoch + ".".join(map(str, (*release[:-1], release[-1] + 1)))
    yield from (name, whole, f"{whole}.dev0", f"{whole}.0.1", f"{whole}.{_BEYOND}", f"{following}.dev0")
    yield (
        f"{version.public}.post{_BEYOND}" if version.post is None and version.dev is None else f"{whole}.post{_BEYOND}"
    )
    if version.dev is not None:
        yield f"{version.public.rpartition('.dev')[0]}.dev{version.dev + 1}"
    if version.pre is not None:
        yield f"{whole}{version.pre[0]}{version.pre[1] + 1}"
    below = next((place for place in reversed(range(len(release))) if release[place]), None)
    if below is not None:
        yield epoch + ".".join(map(str, (*release[:below], release[below] - 1, _BEYOND)))


def _bound(text: str) -> Version:
    version = parse_version(text)
    if version is None:
        raise InvalidSpecifierError(f"{text!r} is not a compiled bound")
    return version


def _find_clash(
    wanted: Sequence[Requirement], narrowing: Sequence[Requirement], environment: MarkerEnvironment
) -> tuple[Requirement, ...]:
    """Return the fewest requirements that exclude each other, where some do on every Python that is possible."""
    clash: tuple[Requirement, ...] = ()
    for python in environment.pythons:
        if not any(_applies(item, environment, python) is True for item in wanted):
            continue
        certain = [item for item in (*wanted, *narrowing) if _applies(item, environment, python) is True]
        found = next(
            (
                group
                for size in range(1, _LARGEST_CLASH + 1)
                for group in combinations(certain, size)
                if not is_satisfiable(_range_of_all(group))
            ),
            None,
        )
        if found is None:
            return ()
        clash = clash or found
    return clash


def _describe_clash(name: str, clash: Sequence[Requirement]) -> Damage:
    statements = tuple(map(_range, clash))
    said = [f"{statement} ({item.source})" for statement, item in zip(statements, clash, strict=True)]
    detail = f"no release of {name} satisfies {' and '.join(said)}"
    return Damage("contradictory", name, detail, tuple(item.source for item in clash), statements)


def _pin(version: str) -> str:
    """Write a version as a clause; one that is not PEP 440 is only ever pinned with ``===``."""
    return f"=={version}" if parse_version(version) is not None else f"==={version}"


def _range(item: Requirement) -> str:
    """Return what a requirement allows; one by URL or path allows the version of its file name."""
    return _join(item.specifier, _pin(item.version)) if item.version else item.specifier


def _range_of_all(items: Iterable[Requirement]) -> str:
    joined = ""
    for item in items:
        joined = _join(joined, _range(item))
    return joined


def _group(requirements: Iterable[Requirement]) -> dict[str, list[Requirement]]:
    groups: dict[str, dict[tuple[str | None, ...], Requirement]] = {}
    for item in requirements:
        group = groups.setdefault(item.name, {})
        if len(group) < _MOST_STATEMENTS:
            key = (item.specifier, item.version, item.marker, item.details.get("extras"))
            group.setdefault(key, item)
    return {name: list(group.values()) for name, group in groups.items()}


def _settle(
    name: str,
    wanted: Sequence[Requirement],
    narrowing: Sequence[Requirement],
    environment: MarkerEnvironment,
) -> tuple[Package | None, list[str]]:
    cases: dict[tuple[int, ...], None] = {}
    undecided = False
    pythons = environment.pythons if any(item.marker for item in (*wanted, *narrowing)) else environment.pythons[:1]
    for python in pythons:
        states = [_applies(item, environment, python) for item in wanted]
        undecided = undecided or None in states
        active = tuple(index for index, state in enumerate(states) if state is not False)
        limits = [
            len(wanted) + index
            for index, item in enumerate(narrowing)
            if _applies(item, environment, python) is not False
        ]
        cases[active + tuple(limits) if active else ()] = None
    required_always = cases.pop((), 0) == 0
    if not cases:
        return None, []
    every = [*wanted, *narrowing]
    notes: list[str] = []
    outcomes: dict[tuple[str | None, str], None] = {}
    for case in cases:
        outcome, contradiction = _intersect([every[index] for index in case])
        outcomes[outcome] = None
        if contradiction:
            notes.append(f"{name}: no single release satisfies {outcome[1]}")
    used = [every[index] for index in sorted({index for case in cases for index in case})]
    details: dict[str, str] = {}
    for item in used:
        details.update(item.details)
    markers = " | ".join(dict.fromkeys(item.marker for item in used if item.marker))
    if undecided or not required_always or len(outcomes) > 1:
        details["marker"] = markers
        unknown = "the machine" if undecided else "the Python version"
        notes.append(f"{name}: kept without knowing {unknown}, on which its marker depends: {markers}")
    source = next((item.source for item in used if item.version or exact_version(item.specifier)), used[0].source)
    if len(outcomes) == 1:
        version, specifier = next(iter(outcomes))
        return Package(name, version, source, None if version else specifier, details), notes
    alternatives = " || ".join(_pin(version) if version else specifier for version, specifier in outcomes)
    if any(version is None and not specifier for version, specifier in outcomes):
        alternatives = ""
    return Package(name, None, source, alternatives, details), notes


def _applies(item: Requirement, environment: MarkerEnvironment, python: str) -> bool | None:
    if item.marker is None:
        return True
    try:
        return evaluate(item.marker, environment, python)
    except InvalidMarkerError:
        return None


def _intersect(items: Sequence[Requirement]) -> tuple[tuple[str | None, str], bool]:
    """Return (version, specifier), and whether the requirements contradict each other."""
    joined = ""
    for item in items:
        joined = _join(joined, item.specifier)
    stated = list(dict.fromkeys(item.version for item in items if item.version))
    if len(stated) > 1:
        return (None, _range_of_all(items)), True
    named = stated[0] if stated else None
    version = named or exact_version(joined)
    if "||" in joined or (version is None and joined.count(",==") + joined.startswith("==") <= 1):
        return (named, joined), False
    if version is not None and is_satisfiable(_range_of_all(items)):
        return (version, joined), False
    contradictory = version is not None or not any(part.endswith(".*") for part in joined.split(","))
    return (None, _range_of_all(items)), contradictory


def _join(left: str, right: str) -> str:
    if not left or not right:
        return left or right
    if "||" in left or "||" in right:  # distribute: (a || b), c  →  a,c || b,c
        if (left.count("||") + 1) * (right.count("||") + 1) > _MOST_ALTERNATIVES:
            return left  # alternatives multiply; the wider range is still a true one
        return " || ".join(
            _join(first.strip(), second.strip()) for first in left.split("||") for second in right.split("||")
        )
    return ",".join(dict.fromkeys((*left.split(","), *right.split(","))))


def is_ruled_out(item: Requirement) -> bool:
    """Tell whether a requirement's marker leaves it out on Linux whatever the Python: it is for other machines."""
    if item.marker is None or "extra" in item.marker:
        return False
    machine = describe_machine()
    return all(_applies(item, machine, python) is False for python in machine.pythons)
