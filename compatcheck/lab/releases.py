"""The releases of a package that are measured."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from packaging.version import Version

from compatcheck.core.errors import UsageError
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, contains

if TYPE_CHECKING:
    from compatcheck.rules.database import RuleSet


def choose_releases(
    rules: RuleSet,
    package: str,
    specifier: str | None,
    good: str | None = None,
    bad: str | None = None,
) -> list[str]:
    """Return the final releases of a package in a range, oldest first; with two ends, those between them.

    Raises:
        UsageError: the package has no snapshot of releases, an end is none of them, or the range is empty.
    """
    known = [release for release in rules.releases(package) if not Version(release).is_prerelease]
    if not known:
        names = sorted(name.partition("/")[2] for base in rules.databases for name in base.sections("releases/"))
        near = get_close_matches(package, names, n=1)
        msg = f"no releases of {package!r} are known"
        raise UsageError(msg, hint=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}")
    for end in (good, bad):
        if end is not None and end not in known:
            msg = f"{end} is no release of {package}"
            raise UsageError(msg, hint=f"the newest is {known[-1]}")
    if good is not None and good == bad:
        msg = f"--good and --bad are both {good}"
        raise UsageError(msg, hint="name two releases, or one of them alone")
    if specifier is not None and not specifier.strip():
        msg = "--versions is empty"
        raise UsageError(msg, hint="as --versions '>=0.14,<0.18'; without it all releases are taken")
    try:
        bounds = compile_specifier(specifier) if specifier else None
    except InvalidSpecifierError as error:
        msg = f"--versions {specifier!r}: {error}"
        raise UsageError(msg) from None
    ends = sorted(known.index(end) for end in (good, bad) if end is not None)
    if len(ends) == 2:
        known = known[ends[0] : ends[1] + 1]
    chosen = [release for release in known if bounds is None or contains(bounds, release) == "yes"]
    if not chosen:
        msg = f"no release of {package} lies in {specifier}"
        raise UsageError(msg)
    for end in (good, bad):
        if end is not None and end not in chosen:
            msg = f"{end} does not lie in --versions {specifier}"
            raise UsageError(msg, hint="leave one of the two out")
    return chosen
