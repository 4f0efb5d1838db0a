"""What holds for every subject of a command: its options, and the files they name."""

from __future__ import annotations

from compatcheck.checking.environments import environment_of
from compatcheck.core.errors import CompatcheckError, InputError, UsageError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.hardware import Hardware
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.checking.request import Request
    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment, Package
    from compatcheck.core.facts import Value
    from compatcheck.core.selection import Selection
    from compatcheck.rules.database import RuleSet


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
    manifests: dict[str, Mapping[str, Package]]
    """Packages that the projects around runs ask for, by manifest; filled as they are read."""
    checkouts: dict[tuple[str, str], Package | None]
    """Packages whose sources lie beside runs, by name and file; filled as they are read."""
    model: Document | None = None
    """What ``--model`` names, in place of every other model."""
    model_unread: bool = False
    """Whether ``--model`` could not be read: then no other model stands in for it."""
    files: Files = LOCAL
    """See `Request`."""
    hides: bool = False
    """Whether files of a checkout are read, which leads where it likes (`compatcheck.checking.elsewhere`)."""


def read_shared(request: Request, rules: RuleSet, environ: Mapping[str, str]) -> Shared:
    """Read what holds for every subject: the options, and the files they name."""
    documents: list[Document] = []
    environments: list[Environment] = []
    skipped: list[Skipped] = []
    for path in request.training:
        try:
            reading = _read_named(path, request.files, request.selection)
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
        settings=declared_settings(request),
        skipped=tuple(skipped),
        variables=variables,
        manifests={},
        checkouts={},
        model=named_model,
        model_unread=request.model is not None and named_model is None,
        files=request.files,
    )


def _read_named(path: str, files: Files, selection: Selection) -> tuple[tuple[Document, ...], tuple[Environment, ...]]:
    from compatcheck.frameworks.recognise import read_configurations  # noqa: PLC0415 (only with configurations)

    readings = read_configurations(path, files, named=True, arguments=selection.script_arguments)
    if len(readings) > 1:
        raise InputError(
            f"starts {len(readings)} trainings ({', '.join(reading.label or '' for reading in readings)})",
            source=Source(path),
            hint="`compatcheck check` reads them all; or name one, as train.sh:12",
        )
    environments = tuple(
        found
        for reading in readings
        for found in (environment_of(reading.environment, reading.variables, path, reading.notes),)
        if found is not None
    )
    return tuple(document for reading in readings for document in reading.documents), environments


def mark_named(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Mark files the person named, and their unreadable parts: what was not understood must not pass as checked."""
    return tuple(
        document._replace(
            named=document.reader != "shell",
            skipped=tuple(
                skipped._replace(
                    named=document.reader != "shell" or not skipped.passes
                )  # what a script sources lies elsewhere
                for skipped in document.skipped
            ),
        )
        for document in documents
    )


def as_skipped(error: CompatcheckError, place: str) -> Skipped:
    """Turn the error of a named input into a line of the report."""
    return Skipped(error.source or Source(place), error.message, error.hint, named=True)


def declared_settings(request: Request) -> dict[str, tuple[Value, Source]]:
    """Parse the settings of a request; its own win over those of its named run.

    Raises:
        UsageError: one makes no sense.
    """
    return {**parse_settings(request.run_settings, request.sources), **parse_settings(request.settings)}


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
            raise UsageError(f"--set {text!r} has no value", hint="write --set NAME=VALUE")
        from compatcheck.rules.values import parse_value  # noqa: PLC0415 (only with --set)

        source = (sources or {}).get(f"set.{name.strip()}") or Source("--set", name.strip())
        parsed = parse_value(name.strip(), redact(value.strip()), source)
        if name.strip() == "hardware.gpu":
            parsed = _name_gpu(str(parsed), source)
        if name.strip() in settings and settings[name.strip()][0] != parsed:
            raise UsageError(f"{name.strip()} is given two values", source=source, hint="keep one --set of it")
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
        raise UsageError(
            f"{text!r} says how many devices a node has",
            source=source,
            hint=f"write --gpu {text}, or hardware.gpus_per_node beside hardware.gpu",
        )
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
            raise UsageError(
                f"{request.gpu} is {hardware.nodes} nodes, not {request.nodes}",
                source=place("nodes"),
                hint="say the number of nodes once",
            )
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
            raise UsageError(
                f"{named} {request.driver!r} is not a version",
                source=request.sources.get("driver"),
                hint="write it as 550.54.15",
            )
        declared.append((Hardware(place("driver"), driver=request.driver), True))
    return tuple(declared)
