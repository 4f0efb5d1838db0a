"""Which releases of its program a run's keys leave possible, where the program's sources lie here and no list says which.

A program that refuses what it does not know has every key that its run gives it, and every key of its own configuration that
lies in its checkout. A development version is called as the last release or the next one, by the habit of the project (verl was
0.2.0.dev from 0.2.0 on until after 0.3.0): where a key is of a later one, it is the key that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.environment import DEVELOPMENT
from compatcheck.core.source import Skipped
from compatcheck.core.versions import allowed_releases
from compatcheck.resolution.known_keys import NEVER, releases_of_keys
from compatcheck.rules.programs import find_program, lineage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Package
    from compatcheck.rules.database import RuleSet

_SAID = 3
"""Keys that are named."""


def narrow_by_keys(
    documents: Sequence[Document], found: Mapping[str, Package], rules: RuleSet
) -> tuple[tuple[Document, ...], dict[str, Package]]:
    """Return the documents, with what is said of a release that keys contradict, and the packages that keys leave possible.

    Args:
        documents: of one subject.
        found: packages in whose checkout a run lies, and what was read of their releases.
        rules: the database.
    """
    told: dict[str, dict[str, tuple[str, int]]] = {}
    for place, document in enumerate(documents):
        program = find_program(document.reader)
        main = program.packages[0] if program.packages else ""
        if (
            main in found
            and found[main].version is None
            and any(one.refuses_unknown_keys for one in lineage(program.name))
        ):
            for key, specifier in _of_keys(document, main, rules):
                told.setdefault(main, {}).setdefault(key, (specifier, place))
    narrowed: dict[str, Package] = {}
    result = list(documents)
    for main, keys in told.items():
        package, releases = found[main], rules.releases(main)
        allowed = allowed_releases(package.specifier or "", releases)
        possible = set(releases).intersection(*(allowed_releases(one, releases) for one, _ in keys.values()))
        contradicts = possible.isdisjoint(allowed)
        left = [one for one in (releases if contradicts else allowed) if one in possible]
        if not left or len(left) == len(allowed) or (contradicts and DEVELOPMENT not in package.details):
            continue
        specifier = f">={left[0]}" if left[-1] == releases[-1] else f">={left[0]},<={left[-1]}"
        narrowed[main] = package._replace(specifier=specifier)
        if contradicts:
            against = [
                key for key, (one, _) in keys.items() if set(allowed).isdisjoint(allowed_releases(one, releases))
            ]
            place = keys[(against or [*keys])[0]][1]
            names = ", ".join((against or [*keys])[:_SAID])
            reason = (
                f"the sources in {package.source.path} call themselves {main} {package.specifier}, which does not know "
                f"{names}: they are taken as {main} {specifier}"
            )
            said = Skipped(
                documents[place].source._replace(key=None), reason, f"state the release of {main}", passes=True
            )
            result[place] = result[place]._replace(skipped=(*result[place].skipped, said))
    return tuple(result), narrowed


def _of_keys(document: Document, main: str, rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield keys of a run, and of its program's own files, that not every release of it has, with those that have them."""
    rows = releases_of_keys(document, rules)
    for one in (document, *document.beneath):
        keys = one.options.keys() or {statement.key for statement in one.statements if "(" not in statement.key}
        for key in sorted(keys - one.added):
            specifier = str(rows.get(key.removeprefix(f"{document.reader}."), {}).get(main, ("", None))[0])
            if specifier and specifier != NEVER:
                yield key, specifier
