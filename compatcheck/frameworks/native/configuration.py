"""The native facts file: ``compatcheck: 1`` and the vocabulary's own names, by section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatcheck.core.document import Document
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.markers import canonical_name
from compatcheck.core.source import Skipped, Source
from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, parse_version
from compatcheck.frameworks.keys import Key
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.registry import find_configuration_reader
from compatcheck.frameworks.translation import flatten, translate
from compatcheck.rules.programs import trainers
from compatcheck.rules.vocabulary import vocabulary

READER, LABEL = "native", "facts"
TABLE: Mapping[str, tuple[Key, ...]] = {}
"""Its keys are the vocabulary's own names."""
VERSION = 1
SECTIONS = (
    "runtime",
    "model",
    "training",
    "rollout",
    "run",
    "hardware",
    "allocator",
    "configuration",
    "environment",
    "program",
)
COMPONENTS = {"cuda", "cudnn", "nccl", "cublas", "driver"}


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a native facts file; a job of CI may have the name, too."""
    return "compatcheck" in data and not isinstance(data["compatcheck"], dict)


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Read a parsed facts file: its facts, and the environment when it lists packages or variables.

    Raises:
        InputError: of another version.
    """
    version = data.get("compatcheck")
    if version != VERSION:
        msg = f"facts file of version {version!r}"
        raise InputError(
            msg,
            source=Source(path, "compatcheck"),
            hint=f"this release reads version {VERSION}",
        )
    document, environment = read_sections({key: value for key, value in data.items() if key != "compatcheck"}, path)
    return Reading((_refuse_unknown_names(document),), environment)


def read_sections(data: Mapping[str, Any], path: str) -> tuple[Document, Environment | None]:
    """Translate the sections of a facts file, or of a rule's example, which has the same layout.

    ``env`` lists every variable that is set, unless ``env_complete: false`` stands beside it. A ``model`` may be text (a known
    model, a path or a hub id) or a mapping with ``from``; it becomes a reference.
    """
    source = Source(path)
    references: tuple[tuple[str, str, str], ...] = ()
    facts: dict[str, Any] = {}
    for section, value in data.items():
        if section in {"packages", "env", "env_complete"}:
            continue
        if section == "model" and isinstance(value, str):
            references = (("model", value, "model"),)
            continue
        if section not in SECTIONS:
            facts[section] = value
            continue
        entries = expect_section(value, path, section)
        if section == "model" and "from" in entries:
            references = (("model", str(entries.pop("from")), "model.from"),)
        if entries:
            facts[section] = entries
    table = {name: (Key(name),) for name in vocabulary()}
    table["training.framework"] = (Key("training.framework", _framework),)
    translation = translate(flatten(facts), table, irrelevant=lambda _: False, source=source)
    document = Document(
        READER, source, translation.statements, translation.unread, translation.skipped, references, table=table
    )
    return document, _environment(data, path)


def _refuse_unknown_names(document: Document) -> Document:
    """Say what is wrong with names in a facts file that are no facts; it is the person's own statement, so that they count.

    Where a name is a key of the program the file names, as ``training.use_reentrant_gc``, the fact it sets is told.
    """
    framework = next((entry.value for entry in document.statements if entry.fact == "training.framework"), None)
    reader = find_configuration_reader(str(framework)) if document.unread else None
    skipped = list(document.skipped)
    for key, near in document.unread:
        section, _, name = key.rpartition(".")
        meanings = () if reader is None else reader.TABLE.get(name if section in SECTIONS else key, ())
        if reader is None or not meanings:
            reason, hint = "is no fact", f"did you mean {near}?" if near else "`compatcheck facts --names` lists them"
        else:
            fact = meanings[0].fact
            reason, hint = f"is a key of {reader.LABEL}; a facts file states {fact}", f"write {fact}"
        skipped.append(Skipped(document.source._replace(key=key), reason, hint, named=True))
    return document._replace(unread=(), skipped=tuple(skipped))


def _framework(value: Any) -> Any:  # noqa: ANN401 (YAML)
    """Accept a program's own spelling: LLaMA-Factory, ms-swift, HF Trainer."""
    bare = str(value).lower().translate(_SEPARATORS)
    known = {word.translate(_SEPARATORS): word for word in trainers()}
    return known.get(bare, value)


_SEPARATORS = str.maketrans("", "", "-_ ")


def expect_section(value: Any, path: str, section: str) -> dict[str, Any]:  # noqa: ANN401 (YAML)
    """Return a copy of a section's mapping.

    Raises:
        InputError: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        msg = f"section {section!r} must be a mapping"
        raise InputError(msg, source=Source(path, section), hint="write a name and its value on each line below it")
    return dict(value)


def _environment(data: Mapping[str, Any], path: str) -> Environment | None:
    packages: dict[Any, Any] = expect_section(data.get("packages"), path, "packages")
    variables = data.get("env")
    complete = data.get("env_complete", True)
    if not isinstance(complete, bool):
        msg = f"env_complete cannot be {complete!r}"
        advice = "write false where a variable that is not listed may be set, else leave it out"
        raise InputError(msg, source=Source(path, "env_complete"), hint=advice)
    if not packages and variables is None:
        return None
    distributions: dict[str, Package] = {}
    components: dict[str, Package] = {}
    python = None
    skipped: list[Skipped] = []
    unnamed = [name for name in packages if not isinstance(name, str)]
    if unnamed:
        msg = f"{unnamed[0]!r} is not the name of a package"
        raise InputError(msg, source=Source(path, "packages"), hint='write it as torch: "2.6.0"')
    for name, text in packages.items():
        if not isinstance(text, str):
            hint = f'write {name}: "{text if isinstance(text, int | float) else "2.6.0"}"'
            msg = "a version must be quoted text"
            raise InputError(msg, source=Source(path, f"packages.{name}"), hint=hint)
        package = _package(name, text.strip(), Source(path, f"packages.{name}"))
        _check_package(package)
        if package.version is not None and parse_version(package.version) is None:
            reason = f"{package.name} {package.version} is not a version that can be compared (PEP 440)"
            skipped.append(Skipped(package.source, reason, "write it as 0.16.4", named=True))
        if name == "python":
            python = text.strip()
        (components if name in COMPONENTS or name == "python" else distributions)[package.name] = package
    return Environment(
        origin=path,
        packages=distributions,
        complete=False,
        python=python,
        components=components,
        variables=None
        if variables is None
        else {str(key): str(value) for key, value in expect_section(variables, path, "env").items()},
        variables_complete=variables is not None and complete,
        variables_source=Source(path, "env"),
        skipped=tuple(skipped),
    )


def _check_package(package: Package) -> None:
    """Refuse what is neither a version nor a range; a version that is not PEP 440 is kept as it is.

    Raises:
        InputError: naming the package.
    """
    hint = 'write a version ("0.16.4"), a range (">=0.15"), present or absent'
    if package.version == "":
        msg = f"{package.name} has an empty version"
        raise InputError(msg, source=package.source, hint=hint)
    if package.specifier and package.specifier != "absent":
        try:
            compile_specifier(package.specifier)
        except InvalidSpecifierError as error:
            raise InputError(str(error), source=package.source, hint=hint) from None


def _package(name: str, text: str, source: Source) -> Package:
    canonical = canonical_name(name)
    if text in {"absent", "present"} or text[:1] in set("<>=!~"):
        return Package(canonical, None, source, "" if text == "present" else text)
    return Package(canonical, text, source)
