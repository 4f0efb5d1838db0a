"""A command and the file that it composes from, read as the one configuration that their program makes of them.

What a key means may depend on other keys: ``critic.*`` counts where ``algorithm.adv_estimator`` asks for a critic, a batch in
sequences where no switch makes it one of tokens. Either may stand in the file and be replaced by the command.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.values import Argument
from compatcheck.rules.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.core.document import Document, Statement


def compose(documents: Sequence[Document]) -> tuple[Document, ...]:
    """Read every command that names a file of its program among the documents anew, and the file with it."""
    result = list(documents)
    for place, command in enumerate(documents):
        names = {os.path.basename(name) for kind, name, _ in command.references if kind == "config"}
        if not command.is_command or not command.options or not names:
            continue
        for other, file in enumerate(documents):
            if not file.is_command and file.options and os.path.basename(file.source.path) in names:
                from compatcheck.frameworks.registry import find_composer  # noqa: PLC0415 (only for such commands)

                reader = find_composer(find_program(file.reader).runs_as or file.reader)
                result[place], result[other] = reader.compose(command, _with_unresolved(file, command))
    return tuple(result)


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
