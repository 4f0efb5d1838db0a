"""A command and the file that it composes from, read as the one configuration that their program makes of them.

What a key means may depend on other keys: ``critic.*`` counts where ``algorithm.adv_estimator`` asks for a critic, a batch in
sequences where no switch makes it one of tokens. Either may stand in the file and be replaced by the command.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.document import enclosing_keys
from compatcheck.core.pattern import lazy_compile
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.values import Argument
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.document import Document, Statement


def compose(documents: Sequence[Document]) -> tuple[Document, ...]:
    """Read every command or file anew that names files of its program among the documents, and these files with it."""
    result = list(documents)
    bases = {place: tuple(_find_bases(place, documents)) for place in range(len(documents))}
    named = {one for places in bases.values() for one in places}
    for head in bases:
        chain = () if head in named else tuple(dict.fromkeys(_descend(head, bases)))
        if len(chain) > 1:
            from compatcheck.frameworks.registry import find_composer  # noqa: PLC0415 (only for such documents)

            first, last = documents[head], documents[chain[-1]]
            reader = find_composer(find_program(last.reader).runs_as or last.reader)
            files = [_with_unresolved(documents[place], first) for place in chain[1:]]
            for place, document in zip(chain, reader.compose(first, *files), strict=True):
                result[place] = document
    return tuple(result)


def name_bases(document: Document) -> tuple[tuple[str, str, str], ...]:
    """Return the references to the files that a document composes from: of any program, or of its own."""
    kinds = {"config", document.reader} if document.options or document.is_command else ()
    return tuple(one for one in document.references if one[0] in kinds)


def _find_bases(place: int, documents: Sequence[Document]) -> Iterator[int]:
    """Yield where the files stand that a document composes from, what wins first."""
    for _, name, _ in reversed(name_bases(documents[place])):
        found: list[int] = []
        for other, file in enumerate(documents):
            same = os.path.basename(file.source.path) == os.path.basename(name)
            if other != place and same and file.options and not file.is_command:
                found.append(other)
        beside = os.path.normpath(os.path.join(os.path.dirname(documents[place].source.path), name))
        exact = [other for other in found if os.path.normpath(documents[other].source.path) == beside]
        yield from (exact or found)[:1]


def _descend(place: int, bases: Mapping[int, Sequence[int]], above: tuple[int, ...] = ()) -> Iterator[int]:
    """Yield a document and all that it composes from, what wins first; what names itself does so once."""
    yield place
    for base in bases[place]:
        if base not in above:
            yield from _descend(base, bases, (*above, place))


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


def _with_unresolved(file: Document, command: Document) -> Document:
    """Count values that something fills in among the options, and what was not read no more where the command replaces it."""
    filled = {entry.key: Argument(None, None, entry.why) for entry in file.unresolved if entry.key not in file.options}
    gaps = tuple(gap for gap in file.gaps if gap.key not in command.options)
    return file._replace(options={**file.options, **filled}, gaps=gaps)


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
    further = FurtherContent(tuple(known), references, skipped, (), document.gaps)
    made = make_command_document(meanings, document.source, options, further)
    named = {key for _, _, key in made.references}
    models = tuple(one for one in document.statements if one.fact == "model.name" and one.key in named)
    kept = {name: getattr(document, name) for name in ("named", "is_command", "options", "added")}
    return made._replace(statements=(*made.statements, *models), **kept)
