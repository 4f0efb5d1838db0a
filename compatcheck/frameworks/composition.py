"""A command and the file that it composes from, read as the one configuration that their program makes of them.

What a key means may depend on other keys: ``critic.*`` counts where ``algorithm.adv_estimator`` asks for a critic, a batch in
sequences where no switch makes it one of tokens. Either may stand in the file and be replaced by the command.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.document import Gap, enclosing_keys
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.beside import find_beside, find_of_another_machine
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.placeholders import compose_filled_in
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.document import Document, Statement
    from compatcheck.frameworks.launch.values import Argument


def compose(documents: Sequence[Document], places: Places | None = None) -> tuple[Document, ...]:
    """Read every command or file anew that names files of its program among the documents, and these files with it."""
    result = list(documents)
    bases = _find_bases(documents, Places(LOCAL) if places is None else places)
    named = {one for places in bases.values() for one in places}
    loop, told = _find_loop(bases), set[int]()
    for head in (*(place for place in bases if place not in named), *loop[:1]):
        chain = () if head in told else tuple(_descend(head, bases))
        told.update(chain)
        if len(chain) > 1:
            from compatcheck.frameworks.registry import find_composer  # noqa: PLC0415 (only for such documents)

            first, last = documents[head], documents[chain[-1]]
            reader = find_composer(find_program(last.reader).runs_as or last.reader)
            replaced = [_without_replaced(documents[place], first) for place in chain[1:]]
            for place, document in zip(chain, compose_filled_in(reader, first, *replaced), strict=True):
                result[place] = document
    for place in loop[:1]:
        why = f"composes from itself by way of {documents[loop[1]].source.path}"
        gap = Gap(documents[place].source, why)
        result[place] = result[place]._replace(gaps=tuple(dict.fromkeys((*result[place].gaps, gap))))
    return tuple(result)


def name_bases(document: Document) -> tuple[tuple[str, str, str], ...]:
    """Return the references to the files that a document composes from: of any program, or of its own."""
    kinds = {"config", document.reader} if document.options or document.is_command else ()
    return tuple(one for one in document.references if one[0] in kinds)


class Places:
    """Where the files lie that others name, each looked for once."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._known: dict[tuple[str, str], tuple[str, str]] = {}
        self.taken: dict[str, str] = {}
        """Paths of another machine, with the files of the project that they are taken for."""
        self._real: dict[str, str] = {}

    def resolve(self, path: str) -> str:
        """Return a path without links."""
        if path not in self._real:
            self._real[path] = self.files.resolve(path)
        return self._real[path]

    def find(self, base: str, name: str) -> tuple[str, str]:
        """Return the path of a file that another one names, and the same without links."""
        asked = os.path.dirname(base), name
        if asked not in self._known:
            path = find_beside(base, name, self.files)
            if os.path.isabs(name) and not self.files.exists(path):
                there = find_of_another_machine(base, name, self.files)
                path = path if there is None else self.taken.setdefault(name, there)
            self._known[asked] = path, self.resolve(path)
        return self._known[asked]


def _find_bases(documents: Sequence[Document], places: Places) -> dict[int, tuple[int, ...]]:
    """Return by place where the files stand that documents compose from, what wins first.

    A file that is not where it is named is taken for one of its name that a person gave, unless that is another one's.
    """
    by_path: dict[str, int] = {}
    by_name: dict[str, list[int]] = {}
    for place, document in enumerate(documents):
        if document.options and not document.is_command:
            by_path.setdefault(places.resolve(document.source.path), place)
            by_name.setdefault(os.path.basename(document.source.path), []).append(place)
    named = {
        place: [places.find(document.source.path, name)[1] for _, name, _ in name_bases(document)]
        for place, document in enumerate(documents)
    }
    told = {by_path.get(path) for paths in named.values() for path in paths}

    def find(path: str) -> int | None:
        alike = (one for one in by_name.get(os.path.basename(path), ()) if one not in told)
        return by_path.get(path, next(alike, None))

    return {
        place: tuple(base for path in reversed(paths) if (base := find(path)) not in (None, place))
        for place, paths in named.items()
    }


def _find_loop(bases: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Return a file that composes from itself and the one by way of which it does; nothing where none does."""
    if not any(bases.values()):
        return ()
    from graphlib import CycleError, TopologicalSorter  # noqa: PLC0415 (only for such documents)

    try:
        TopologicalSorter(bases).prepare()
    except CycleError as error:
        circle = error.args[1][1:]  # each composes from the one before it
        first = circle.index(min(circle))
        return circle[first], circle[first - 1]
    return ()


def _descend(head: int, bases: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Yield a document and all that it composes from, each once, what wins first."""
    seen: set[int] = set()
    pending = [head]
    while pending:
        place = pending.pop()
        if place not in seen:
            seen.add(place)
            yield place
            pending.extend(reversed(bases[place]))


def merge_options(documents: Sequence[Document]) -> dict[str, Argument]:
    """Merge the options of documents, what wins first, as OmegaConf merges files: a value replaces a section, a list a list.

    A section of the first level with ``_override_: true`` replaces that of the files below (NeMo RL 7ea279a utils/config.py).
    """
    whole: dict[str, Argument] = {}
    for document in reversed(documents):
        replaced = {key for key, one in document.options.items() if one.value != {}}
        replaced |= {key.partition(".")[0] for key in document.options if _OVERRIDES.fullmatch(key)}
        sections = {outer for key in document.options for outer in enclosing_keys(key)}
        kept = (key for key in whole if key not in sections and replaced.isdisjoint(enclosing_keys(key)))
        whole = {**{key: whole[key] for key in kept}, **document.options}
    return whole


_OVERRIDES = lazy_compile(r"\w+\._override_")
"""Key by which a section replaces what is below instead of being merged with it."""


def _without_replaced(file: Document, command: Document) -> Document:
    """Count what was not read of a file no more where the command replaces it."""
    return file._replace(gaps=tuple(gap for gap in file.gaps if gap.key not in command.options))


def retell_counted(
    document: Document,
    whole: Mapping[str, Argument],
    settled: Mapping[str, Argument],
    meanings: OptionMeanings,
    known: Iterable[Statement] = (),
    unused: tuple[str, ...] = (),
) -> Document:
    """Translate anew the options of a document that count; see `retell`.

    Args:
        document: of a command or a file.
        whole: the options of the whole configuration.
        settled: those of them that mean something, with their values.
        meanings: of the program's keys in that configuration.
        known: what follows for this document beside the meaning of single keys.
        unused: beginnings of keys that the program passes over.
    """
    own = {
        key: settled[key]
        for key, one in document.options.items()
        if key in settled and whole[key] is one and not key.startswith(unused)
    }
    return retell(document, own, meanings, known)


def retell(
    document: Document, options: Mapping[str, Argument], meanings: OptionMeanings, known: Iterable[Statement]
) -> Document:
    """Translate the options of a document anew; what else it holds stays.

    Args:
        document: of a command or a file.
        options: those of it that count, with their values in the whole configuration.
        meanings: of the program's keys in that configuration.
        known: what follows for this document beside the meaning of single keys.
    """
    references = tuple(one for one in document.references if not one[0].startswith("model"))
    skipped = tuple(one for one in document.skipped if one.source.key not in document.options)
    gaps = dict.fromkeys(gap for gap in document.gaps if not gap.assumed or gap.source.key not in document.options)
    further = FurtherContent(tuple(known), references, skipped, (), tuple(gaps))
    made = make_command_document(meanings, document.source, options, further)
    named = {key for _, _, key in made.references}
    models = tuple(one for one in document.statements if one.fact == "model.name" and one.key in named)
    kept = {name: getattr(document, name) for name in ("named", "is_command", "options", "added", "searched")}
    return made._replace(statements=(*made.statements, *models), **kept)
