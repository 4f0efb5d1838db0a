"""One subject made of its inputs: an environment, the documents beside it, and what holds for all of them."""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compatcheck.checking.shared import Shared
    from compatcheck.core.document import Document, Statement
    from compatcheck.core.environment import Environment, Package
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
        from compatcheck.checking.environments import merge_environments  # noqa: PLC0415 (only where a file declares one)

        environment = merge_environments(environment, declared)
    if documents:
        documents, environment = _with_checkouts(environment, documents, shared)
    if shared.hides:
        from compatcheck.checking.elsewhere import hide_lines, hide_words  # noqa: PLC0415 (only for files)

        documents, environment = tuple(map(hide_words, documents)), hide_lines(environment)
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


def _with_checkouts(
    environment: Environment | None, documents: Sequence[Document], shared: Shared
) -> tuple[Sequence[Document], Environment | None]:
    """Add the packages in whose checkout a command or a configuration lies, or that its project pins, where no list says which.

    A list that names a package and no release of it (``dependencies = ["trl"]``) takes the one in the checkout as well as any.
    """
    from compatcheck.collectors.python.checkout import read_pin, read_release  # noqa: PLC0415 (only beside configurations)
    from compatcheck.core.environment import Environment  # noqa: PLC0415 (as above)
    from compatcheck.frameworks.beside import find_beside  # noqa: PLC0415 (as above)
    from compatcheck.resolution.imported import imported_packages  # noqa: PLC0415 (as above)
    from compatcheck.resolution.releases_of_keys import narrow_by_keys  # noqa: PLC0415 (as above)
    from compatcheck.rules.programs import find_program, lineage  # noqa: PLC0415 (as above)

    listed = {} if environment is None else environment.packages
    known = {name for name, one in listed.items() if one.version is not None or one.specifier}
    found: dict[str, Package] = {}
    for document in documents:
        program = find_program(document.reader)
        if program.kind != "program" and not document.is_command:
            continue
        wanted = [name for name in imported_packages((document,)) if name not in known and name not in found]
        pins = next((one.pinned_in for one in lineage(program.name) if one.pinned_in is not None), None)
        if pins is not None and program.packages[0] in wanted:
            place = find_beside(document.source.path, pins, shared.files)
            pinned = read_pin(program.packages[0], place, shared.files)
            found.update({} if pinned is None else {pinned.name: pinned})
        for name in wanted:
            if name in found:
                continue
            own = program.module if name == program.packages[0] else None
            module = own or name.replace("-", "_")
            # beside it, in a checkout beneath its own (a submodule), or a namespace
            places = (*(f"{one}{module}/__init__.py" for one in ("", "src/", f"{module}/")), f"src/{module}")
            files = (find_beside(document.source.path, place, shared.files) for place in places)
            file = next(filter(shared.files.exists, files), None)
            if file is None:
                continue
            if (name, file) not in shared.checkouts:
                folder = os.path.dirname(file.removesuffix("/__init__.py"))
                releases = shared.rules.releases(name)
                shared.checkouts[name, file] = read_release(name, module, folder, releases, shared.files)
            package = shared.checkouts[name, file]
            if package is not None:
                found[name] = package
        if program.packages[:1] and program.packages[0] in wanted and program.packages[0] not in found:
            beneath = [name for name in imported_packages(documents) if name not in known and name not in found]
            found.update(_pinned_by_project(document.source.path, beneath, program.packages[0], shared))
    documents, narrowed = narrow_by_keys(documents, found, shared.rules)
    found |= narrowed
    if not found:
        return documents, environment
    base = environment or Environment(next(iter(found.values())).source.path, {}, complete=False)
    return documents, base._replace(packages={**base.packages, **found})


def _pinned_by_project(path: str, wanted: Sequence[str], main: str, shared: Shared) -> dict[str, Package]:
    """Return the releases that the project around a file asks for, where it asks for one of the program that reads the file.

    Whether what an extra or a dependency group alone brings is there is unknown, and so it is here.
    """
    from compatcheck.collectors.requirements.pyproject import read_pyproject  # noqa: PLC0415 (only beside configurations)
    from compatcheck.collectors.requirements.setup_py import read_setup_py  # noqa: PLC0415 (as above)
    from compatcheck.core.errors import CompatcheckError  # noqa: PLC0415 (as above)
    from compatcheck.frameworks.beside import find_beside  # noqa: PLC0415 (as above)

    for manifest, read in (("pyproject.toml", read_pyproject), ("setup.py", read_setup_py)):
        file = find_beside(path, manifest, shared.files)
        if file not in shared.manifests:
            shared.manifests[file] = {}
            with suppress(CompatcheckError):
                shared.manifests[file] = read(file, shared.files).packages if shared.files.is_file(file) else {}
        packages = shared.manifests[file]
        pinned = {name: packages[name] for name in wanted if name in packages}
        pinned = {name: one for name, one in pinned.items() if one.version is not None or one.specifier}
        if main in pinned:
            return pinned
    return {}


def leave_out_models(documents: Iterable[Document], *, facts: bool) -> tuple[Document, ...]:
    """Leave out the models of documents, for the person named another one.

    Args:
        documents: of one subject.
        facts: whether to leave out, too, what facts files say themselves about which model it is.
    """
    from compatcheck.frameworks.model.configuration import OWN_FACTS  # noqa: PLC0415 (only with --model)

    def is_kept(document: Document, statement: Statement) -> bool:
        return not facts or document.reader != "native" or statement.fact not in OWN_FACTS

    def leave_out(document: Document) -> Document:
        named = {key for kind, _, key in document.references if kind.startswith("model")}
        return document._replace(
            statements=tuple(statement for statement in document.statements if is_kept(document, statement)),
            references=tuple(reference for reference in document.references if not reference[0].startswith("model")),
            options={key: value for key, value in document.options.items() if key not in named},
        )

    return tuple(leave_out(document) for document in documents if document.reader != "model")
