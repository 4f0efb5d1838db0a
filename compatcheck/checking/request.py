"""Turn what the person named on the command line into subjects."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from compatcheck.core.document import Document, Statement
from compatcheck.core.environment import Environment
from compatcheck.core.errors import CompatcheckError, InputError, UsageError
from compatcheck.core.facts import Value
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.hardware import Hardware
from compatcheck.core.source import Skipped, Source
from compatcheck.resolution.subject import Subject
from compatcheck.rules.database import RuleSet


class Request(NamedTuple):
    """The inputs of one command, as given."""

    python: str | None = None
    prefix: str | None = None
    paths: tuple[str, ...] = ()
    """Files and directories of `check`; empty for an installed environment."""
    model: str | None = None
    training: tuple[str, ...] = ()
    gpu: str | None = None
    nodes: int | None = None
    driver: str | None = None
    settings: tuple[str, ...] = ()
    env_file: str | None = None
    hook: bool = False
    """Whether the paths are files a commit touches: what belongs to them is read, files of other kinds are passed over."""
    here: bool = True
    """Whether the run is on this machine: then its devices and environment variables take part."""
    run: str | None = None
    """Named run of the policy that fills what the command line leaves open."""
    target: str | None = None
    """Name of the policy's target that says what the machine is, where there are several."""
    image: str | None = None
    """Container image: archive, layout or root directory, ``-`` for standard input."""
    image_environments: tuple[str, ...] = ()
    """Prefixes inside the image; empty for the one it starts, or all of them."""
    every_environment: bool = False
    """Whether all environments of the image are subjects where none is named, not only the one it starts."""
    all_environments: bool = False
    """Whether findings count in environments that the image does not start, too."""
    no_cache: bool = False
    """Whether to read every layer of an image again."""
    run_settings: tuple[str, ...] = ()
    """The run's own ``NAME=VALUE``; ``settings`` win over them."""
    manifests: bool = False
    """Whether manifests of a directory count beside their lock: who changes the one changes the other."""
    sources: Mapping[str, Source] = {}
    """Where the keys of the run and the target stand in the policy, settings as ``set.NAME``."""
    files: Files = LOCAL
    """Tree that the paths lie in; a change of it is checked before it is written."""


class Gathered(NamedTuple):
    """The subjects of one command, and what could not be read."""

    subjects: tuple[Subject, ...]
    skipped: tuple[Skipped, ...]
    chosen: str | None = None
    """How the environment came to be the one inspected."""
    aside: frozenset[str] = frozenset()
    """Subjects whose findings are shown and do not fail the run."""
    reasons: Mapping[str, str] = {}
    """How each subject came to be inspected, where that differs between them."""
    files: Files = LOCAL
    """Tree that the sources lie in, what standard input gave among them."""


class Shared(NamedTuple):
    """What holds for every subject of a command."""

    rules: RuleSet
    environ: Mapping[str, str]
    documents: tuple[Document, ...]
    environments: tuple[Environment, ...]
    hardware: tuple[tuple[Hardware, bool], ...]
    settings: Mapping[str, tuple[Value, Source]]
    skipped: tuple[Skipped, ...]
    variables: Mapping[str, str] | None
    """Declared variables (``--env-file``)."""
    model: Document | None = None
    """What ``--model`` names, in place of every other model."""
    model_unread: bool = False
    """Whether ``--model`` could not be read: then no other model stands in for it."""
    files: Files = LOCAL
    """See `Request`."""


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
        facts={**base.facts, **declared.facts},
    )


def read_shared(request: Request, rules: RuleSet, environ: Mapping[str, str]) -> Shared:
    """Read what holds for every subject: the options, and the files they name."""
    documents: list[Document] = []
    environments: list[Environment] = []
    skipped: list[Skipped] = []
    for path in request.training:
        try:
            reading = _read_named(path, request.files)
        except InputError as error:
            skipped.append(as_skipped(error, path))
            continue
        documents.extend(mark_named(reading[0]))
        environments.extend(reading[1])
    named_model = None
    if request.model is not None:
        try:
            from compatcheck.frameworks.model.lookup import find_model  # noqa: PLC0415 (only with a model)

            (named_model,) = mark_named((find_model(request.model, rules, environ, files=request.files),))
        except InputError as error:
            skipped.append(as_skipped(error, "--model"))
    variables = None
    if request.env_file is not None:
        from compatcheck.collectors.machine.variables import read_env_file  # noqa: PLC0415 (only with a file)

        try:
            variables = read_env_file(request.env_file, request.files)
        except InputError as error:
            skipped.append(as_skipped(error, "--env-file"))
    return Shared(
        rules=rules,
        environ=environ,
        documents=tuple(documents),
        environments=tuple(environments),
        hardware=declared_hardware(request),
        settings={**parse_settings(request.run_settings, request.sources), **parse_settings(request.settings)},
        skipped=tuple(skipped),
        variables=variables,
        model=named_model,
        model_unread=request.model is not None and named_model is None,
        files=request.files,
    )


def _read_named(path: str, files: Files) -> tuple[tuple[Document, ...], tuple[Environment, ...]]:
    from compatcheck.frameworks.recognise import read_configurations  # noqa: PLC0415 (only with configurations)

    readings = read_configurations(path, files, named=True)
    if len(readings) > 1:
        msg = f"starts {len(readings)} trainings ({', '.join(reading.label or '' for reading in readings)})"
        raise InputError(
            msg, source=Source(path), hint="`compatcheck check` reads them all; or name one, as train.sh:12"
        )
    environments = tuple(
        found
        for reading in readings
        for found in (environment_of(reading.environment, reading.variables, path, reading.notes),)
        if found is not None
    )
    return tuple(document for reading in readings for document in reading.documents), environments


def environment_of(
    declared: Environment | None, variables: Mapping[str, str], path: str, notes: tuple[str, ...] = ()
) -> Environment | None:
    """Return what a file says about the environment: what it declares, and the variables a launch script sets."""
    if not variables and not notes:
        return declared
    base = declared or Environment(path, {}, complete=False)
    base = base._replace(notes=(*base.notes, *notes))
    return with_variables(base, variables, Source(path), complete=False) if variables else base


def mark_named(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Mark files the person named, and their unreadable parts: what was not understood must not pass as checked."""
    return tuple(
        document
        if document.reader == "shell"  # what a script sources lies elsewhere
        else document._replace(named=True, skipped=tuple(skipped._replace(named=True) for skipped in document.skipped))
        for document in documents
    )


def as_skipped(error: CompatcheckError, place: str) -> Skipped:
    """Turn the error of a named input into a line of the report."""
    return Skipped(error.source or Source(place), error.message, error.hint, named=True)


def parse_settings(
    texts: Iterable[str], sources: Mapping[str, Source] | None = None
) -> dict[str, tuple[Value, Source]]:
    """Parse ``--set NAME=VALUE`` options.

    Args:
        texts: the options.
        sources: where settings of a named run stand, as ``set.NAME``.

    Raises:
        UsageError: no equals sign, an unknown name, a value that does not fit, or two values of one fact.
    """
    settings: dict[str, tuple[Value, Source]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            msg = f"--set {text!r} has no value"
            raise UsageError(msg, hint="write --set NAME=VALUE")
        from compatcheck.rules.vocabulary import parse_value  # noqa: PLC0415 (only with --set)

        source = (sources or {}).get(f"set.{name.strip()}") or Source("--set", name.strip())
        parsed = parse_value(name.strip(), value.strip(), source)
        if name.strip() == "hardware.gpu":
            parsed = _name_gpu(str(parsed), source)
        if name.strip() in settings and settings[name.strip()][0] != parsed:
            msg = f"{name.strip()} is given two values"
            raise UsageError(msg, source=source, hint="keep one --set of it")
        settings[name.strip()] = (parsed, source)
    return settings


def _name_gpu(text: str, source: Source) -> str:
    """Return the catalogue's name of a device.

    Raises:
        UsageError: unknown, of several sizes, or more than a device: with a count in front, or an instance.
    """
    from compatcheck.collectors.machine.instances import parse_hardware  # noqa: PLC0415 (only with a device)

    hardware = parse_hardware(text, source=source)
    if hardware.gpus_per_node is not None:
        msg = f"{text!r} says how many devices a node has"
        raise UsageError(msg, source=source, hint=f"write --gpu {text}, or hardware.gpus_per_node beside hardware.gpu")
    return str(hardware.gpu)


def declared_hardware(request: Request) -> tuple[tuple[Hardware, bool], ...]:
    """Describe the devices and nodes that ``--gpu``, ``--nodes`` and ``--driver`` name."""
    declared: list[tuple[Hardware, bool]] = []

    def place(option: str) -> Source:
        return request.sources.get(option) or Source(f"--{option}")

    if request.gpu is not None:
        from compatcheck.collectors.machine.instances import parse_hardware  # noqa: PLC0415 (only with --gpu)

        hardware = parse_hardware(request.gpu, source=place("gpu"))
        if request.nodes is not None and hardware.nodes not in {None, request.nodes}:
            msg = f"{request.gpu} is {hardware.nodes} nodes, not {request.nodes}"
            raise UsageError(msg, source=place("nodes"), hint="say the number of nodes once")
        nodes = request.nodes or hardware.nodes or (1 if hardware.gpus_per_node else None)
        sources = hardware.sources if request.nodes is None else {**hardware.sources, "nodes": place("nodes")}
        implied = frozenset() if request.nodes or hardware.nodes else frozenset({"nodes"})
        declared.append(
            (hardware._replace(nodes=nodes, sources=sources, catalogued=hardware.catalogued | implied), True)
        )
    elif request.nodes is not None:
        declared.append((Hardware(place("nodes"), nodes=request.nodes), True))
    if request.driver is not None:
        from compatcheck.core.versions import parse_version  # noqa: PLC0415 (only with --driver)

        if parse_version(request.driver) is None:
            named = "driver" if "driver" in request.sources else "--driver"
            msg = f"{named} {request.driver!r} is not a version"
            raise UsageError(msg, source=request.sources.get("driver"), hint="write it as 550.54.15")
        declared.append((Hardware(place("driver"), driver=request.driver), True))
    return tuple(declared)
