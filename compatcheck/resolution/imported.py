"""The packages that the programs of a run import: one that is not listed lies in a checkout, of an unknown release."""

from __future__ import annotations

from compatcheck.rules.programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Value
    from compatcheck.core.source import Source

FRAMEWORK = "training.framework"
UNREAD = "program.unread_release"
"""That nobody read the code of a program at its release: which one it is, in words."""


def imported_packages(documents: Sequence[Document], engines: Container[object] = ()) -> tuple[str, ...]:
    """Return the packages that the programs of these configurations import, with those of the engines that are used."""
    return tuple(
        dict.fromkeys(
            package
            for name in (*(document.reader for document in documents), *_stated(documents))
            for program in (find_program(name),)
            for package in (*program.packages, *(engine for engine in program.engines if engine in engines))
        )
    )


def _stated(documents: Sequence[Document]) -> Iterator[str]:
    """Return the programs that a facts file or a script names."""
    for document in documents:
        for statement in document.statements:
            if statement.fact == FRAMEWORK and isinstance(statement.value, str):
                yield statement.value


def with_unlisted(
    environment: Environment | None, documents: Sequence[Document], settings: Mapping[str, tuple[Value, Source]]
) -> Environment | None:
    """Add to an environment what a program of the run imports and it does not list."""
    if environment is None:
        return None
    named, _ = settings.get(FRAMEWORK, (None, None))
    imported = (*imported_packages(documents), *(find_program(named).packages if isinstance(named, str) else ()))
    unlisted = tuple(dict.fromkeys(name for name in imported if name not in environment.packages))
    return environment._replace(unlisted=unlisted) if unlisted != environment.unlisted else environment
