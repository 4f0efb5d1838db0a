"""``torchrun … -m torchtitan.train --job.config_file FILE --section.key value …``: the file, and the options laid over it.

From 0.3.0 on ``--module NAME --config FUNCTION`` name a configuration in Python, which is not run: what it decides is listed as
not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Gap, Statement, Unresolved
from compatcheck.frameworks.launch.arguments import FurtherContent, OptionMeanings, make_command_document
from compatcheck.frameworks.launch.flags import known_values, parse_flags
from compatcheck.frameworks.registry import FOLDERS
from compatcheck.frameworks.torchtitan import configuration as torchtitan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch
    from compatcheck.frameworks.launch.values import Argument

_FILE = "job.config_file"
_LISTS = ("compile.components", "model.converters")
_SWITCHES = frozenset(
    {
        "compile.enable", "float8.enable_float8_linear", "optimizer.early_step_in_backward", "optimizer.fused",
        "parallelism.enable_sequence_parallel", "training.compile", "training.enable_cpu_offload",
    }
)  # fmt: skip
"""Options of a bool, which take no value: ``--compile.enable``, ``--compile.no-enable`` (tyro)."""


def _is_its_own(launch: Launch) -> bool:
    """Tell whether a launch starts torchtitan's own program: ``-m torchtitan.train``, ``torchtitan/train.py``, ``train.py``."""
    parts = launch.program.replace("/", ".").removesuffix(".py").split(".")
    return parts[-1] == "train" and ("torchtitan" in parts or (launch.kind != "module" and len(parts) == 1))


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch trains with torchtitan, or with a program that has its options."""
    if launch.kind == "module" and _is_its_own(launch):
        return torchtitan.READER
    return torchtitan.READER if _FILE in parse_flags(launch.arguments).options else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch."""
    negated = {f"{key.rpartition('.')[0]}.no_{key.rpartition('.')[2]}": key for key in _SWITCHES}
    flags = parse_flags(launch.arguments, switches=_SWITCHES | negated.keys(), single=True)
    several = parse_flags(launch.arguments).options
    options: dict[str, Argument] = {}
    for name, argument in flags.options.items():
        if name in negated:
            options[negated[name]] = argument._replace(value=False)
        else:
            whole = several[name] if name in _LISTS and several[name].why is None else argument
            options[name] = whole
    values = known_values(options)
    file, function = options.pop(_FILE, None), options.pop("config", None)
    options.pop("module", None)
    named = file is not None and isinstance(file.value, str) and file.why is None
    references = (("torchtitan", str(file.value), f"--{_FILE}"),) if file is not None and named else ()
    models = tuple((kind, name, f"--{key}") for kind, name, key in torchtitan.name_model(values))
    changed = next((key for key in ("model.flavor", "model.name") if key in values), None)
    if changed is not None and not models:  # not the model that the file says, and the rest of its name stands there
        models = (("model", f"{changed} {values[changed]}", f"--{changed}"),)
    meanings = OptionMeanings(torchtitan.READER, torchtitan.table_for(values), torchtitan.NAMES.__contains__)
    doubted = [key for key in torchtitan.STAGES if key in options and options[key].why is not None]
    known = (*torchtitan.settle(values), *(Statement(None, torchtitan.SEVERAL, key) for key in doubted[:1]))
    if not _is_its_own(launch):
        known += (Statement("training.framework", "(program)", "custom"),)
    further = FurtherContent(known, (*references, *models), unknown=flags.unknown)
    document = make_command_document(meanings, launch.command.source, options, further)
    if not _is_its_own(launch):
        why = f"starts {launch.program}, which is not torchtitan's own: what it does in another way is not read"
        document = document._replace(gaps=(*document.gaps, Gap(launch.command.source, why)))
    missing = tuple(torchtitan.leave_open(values, is_file=False))
    if (file is not None and not named) or function is not None:
        stated = {entry.fact for entry in document.statements}
        stated |= {entry.fact for entry in (*document.unresolved, *missing)}
        missing += tuple(_elsewhere(file or function, stated))
    return (document._replace(unresolved=(*document.unresolved, *missing)),)


def _elsewhere(argument: Argument | None, stated: set[str | None]) -> Iterator[Unresolved]:
    """List what a file or function decides that cannot be read."""
    if argument is None:
        return
    why = argument.why or f"is what the function {argument.value} of torchtitan's config_registry.py says"
    key = f"--{_FILE}" if argument.why else "--config"
    (folder,) = (folder for folder in FOLDERS if folder.name == torchtitan.READER)
    for fact in folder.decides:
        if fact not in stated:
            yield Unresolved(fact, key, why)
