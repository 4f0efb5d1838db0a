"""Which releases of its program a run's keys leave possible, where no list says which, or sources here call themselves another.

A program that refuses what it does not know has every key that its run gives it, and every key of its own configuration that
lies in its checkout. What a checkout calls itself is the last release or the next one, by the habit of the project: where a key
is of a later one, it is the key that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.environment import Package
from compatcheck.core.source import Skipped
from compatcheck.core.versions import allowed_releases
from compatcheck.resolution.known_keys import NEVER, releases_of_keys
from compatcheck.rules.programs import find_program, lineage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.document import Document
    from compatcheck.rules.database import RuleSet

_SAID = 3
"""Keys that are named."""


def narrow_by_keys(
    documents: Sequence[Document], found: Mapping[str, Package], known: Mapping[str, object], rules: RuleSet
) -> tuple[tuple[Document, ...], dict[str, Package]]:
    """Return the documents, with what is said of a release that keys contradict, and the packages that keys leave possible.

    Args:
        documents: of one subject.
        found: packages in whose checkout a run lies, and what was read of their releases.
        known: packages that a list states a release of.
        rules: the database.
    """
    told: dict[str, dict[str, tuple[str, int]]] = {}
    for place, document in enumerate(documents):
        program = find_program(document.reader)
        main = program.packages[0] if program.packages else ""
        if main and main not in known and any(one.refuses_unknown_keys for one in lineage(program.name)):
            for key, specifier in _of_keys(document, main, rules):
                told.setdefault(main, {}).setdefault(key, (specifier, place))
    narrowed: dict[str, Package] = {}
    result = list(documents)
    for main, keys in told.items():
        package, releases = found.get(main), rules.releases(main)
        stated = None if package is None else package.specifier
        allowed = allowed_releases(stated or "", releases)
        possible = set(releases).intersection(*(allowed_releases(one, releases) for one, _ in keys.values()))
        left = [one for one in allowed if one in possible] or [one for one in releases if one in possible]
        if not left or len(left) == len(allowed) == len(possible.intersection(allowed)):
            continue
        specifier = f">={left[0]}" if left[-1] == releases[-1] else f">={left[0]},<={left[-1]}"
        place = next(iter(keys.values()))[1]
        own = Package(main, None, documents[place].source) if package is None else package
        narrowed[main] = own._replace(version=None, specifier=specifier)
        if package is not None and possible.isdisjoint(allowed):
            against = [
                key for key, (one, _) in keys.items() if set(allowed).isdisjoint(allowed_releases(one, releases))
            ]
            names = ", ".join((against or [*keys])[:_SAID])
            reason = (
                f"the sources in {package.source.path} call themselves {main} {stated}, which does not know {names}: they are "
                f"taken as {main} {specifier}"
            )
            place = keys[against[0]][1] if against else place
            said = Skipped(
                documents[place].source._replace(key=None), reason, f"state the release of {main}", passes=True
            )
            result[place] = result[place]._replace(skipped=(*result[place].skipped, said))
    return tuple(result), narrowed


def _of_keys(document: Document, main: str, rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield keys of a run, and of its program's own files, that not every release of it has, with those that have them."""
    rows = releases_of_keys(document.reader, rules)
    for one in (document, *document.beneath):
        keys = one.options.keys() or {statement.key for statement in one.statements if "(" not in statement.key}
        for key in sorted(keys - one.added):
            specifier = str(rows.get(key.removeprefix(f"{document.reader}."), {}).get(main, ("", None))[0])
            if specifier and specifier != NEVER:
                yield key, specifier
