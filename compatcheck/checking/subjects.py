"""One subject made of its inputs: an environment, the documents beside it, and what holds for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.environment import Environment
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compatcheck.checking.shared import Shared
    from compatcheck.core.document import Document, Statement
    from compatcheck.resolution.subject import Subject


def build_subject(
    subject_id: str,
    environment: Environment | None,
    documents: Sequence[Document],
    shared: Shared,
) -> Subject:
    """Resolve one subject from its own inputs and the shared ones."""
    from compatcheck.resolution.resolve import resolve  # noqa: PLC0415 (beside its use)

    if shared.model is not None or shared.model_unread:
        documents = (*leave_out_models(documents, facts=shared.model is None), *filter(None, [shared.model]))
    if documents:
        from compatcheck.frameworks.recognise import follow_references  # noqa: PLC0415 (only with configurations)

        documents = follow_references(tuple(documents), shared.rules, shared.environ, shared.files)
    for declared in shared.environments:
        environment = merge_environments(environment, declared)
    hardware = shared.hardware
    if environment is not None and environment.hardware is not None:
        hardware = (*hardware, (environment.hardware, False))
    return resolve(
        subject_id,
        rules=shared.rules,
        environment=environment,
        documents=documents,
        hardware=hardware,
        settings=shared.settings,
    )


def with_variables(
    environment: Environment,
    variables: Mapping[str, str],
    source: Source,
    *,
    complete: bool,
) -> Environment:
    """Add environment variables and what they ask for to an environment."""
    from compatcheck.collectors.machine.variables import attach, collect_variables  # noqa: PLC0415 (beside its use)

    return attach(environment, collect_variables(variables, source), complete=complete)


def leave_out_models(documents: Iterable[Document], *, facts: bool) -> tuple[Document, ...]:
    """Leave out the models of documents, for the person named another one.

    Args:
        documents: of one subject.
        facts: whether to leave out, too, what facts files say themselves about which model it is.
    """
    from compatcheck.frameworks.model.configuration import OWN_FACTS  # noqa: PLC0415 (only with --model)

    def is_kept(document: Document, statement: Statement) -> bool:
        return not facts or document.reader != "native" or statement.fact not in OWN_FACTS

    return tuple(
        document._replace(
            statements=tuple(statement for statement in document.statements if is_kept(document, statement)),
            references=tuple(reference for reference in document.references if not reference[0].startswith("model")),
        )
        for document in documents
        if document.reader != "model"
    )


def merge_environments(base: Environment | None, declared: Environment) -> Environment:
    """Lay the packages and variables that a facts file declares over an environment; the declaration wins."""
    if base is None:
        return declared
    return base._replace(
        packages={**base.packages, **declared.packages},
        components={**base.components, **declared.components},
        python=declared.python or base.python,
        variables=base.variables if declared.variables is None else {**(base.variables or {}), **declared.variables},
        variables_complete=base.variables_complete or declared.variables_complete,
        hardware=declared.hardware or base.hardware,
        damage=(*base.damage, *declared.damage),
        skipped=(*base.skipped, *declared.skipped),
        notes=(*base.notes, *declared.notes),
        offered=base.offered | declared.offered,
        facts={**base.facts, **declared.facts},
    )


def environment_of(
    declared: Environment | None, variables: Mapping[str, str], path: str, notes: tuple[str, ...] = ()
) -> Environment | None:
    """Return what a file says about the environment: what it declares, and the variables a launch script sets."""
    if not variables and not notes:
        return declared
    base = declared or Environment(path, {}, complete=False)
    base = base._replace(notes=(*base.notes, *notes))
    return with_variables(base, variables, Source(path), complete=False) if variables else base
