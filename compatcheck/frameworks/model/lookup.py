"""A model by the name it is given: ``config.json``, a model directory, a hub id in the local cache, or a well-known name."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from compatcheck.architectures.count import count_parameters
from compatcheck.architectures.dimensions import OF_MODEL_OPTIMIZER
from compatcheck.core.document import Statement
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.json_file import parse_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.nearest import find_nearest
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.model.configuration import make_model_document, recognise
from compatcheck.frameworks.text import expect_mapping, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.core.document import Document
    from compatcheck.rules.database import RuleSet

_WELL_KNOWN = "well-known model "
"""Stands in front of a well-known model's name where its source is shown."""
_STORED_AS: Mapping[str, tuple[str | None, str | None]] = {
    "bf16": ("bfloat16", None),
    "fp16": ("float16", None),
    "bnb-nf4": (None, "nf4"),
    "bnb-4bit": (None, "nf4"),  # or fp4, which takes the same memory
    "bnb-8bit": (None, "int8"),
    "awq": (None, "awq"),
    "gptq": (None, "gptq"),
    "int4": (None, "gptq"),  # or packed by compressed-tensors, which takes the same memory
    "fp8": (None, "fp8"),
    "mxfp4": (None, "mxfp4"),
    "nvfp4": (None, "nvfp4"),
}
"""How a name ends → the dtype and the quantisation that it says weights are stored with."""
_STORED = re.compile(
    r"(?i)(?P<base>.+?)(?:-unsloth|_dist_ckpt)?[-_.](?P<stored>bnb-nf4|bnb-[48]bit|awq|gptq|gptq-int8|int4|fp8|nvfp4|mxfp4|gguf|bf16|fp16|mcore)"
    r"(?:-int4|-dynamic|-block|-bf16)?"
)
"""Splits a name that ends with how weights are stored from the model whose dimensions they have."""
_CACHED_AS = re.compile(r"models--[^/]+?--([^/]+)(?:/snapshots/[^/]+)?$")
"""How the hub's cache names the directory of a model."""
_STORAGE_FACTS = frozenset({"model.stored_dtype", "model.quantization", "model.stored_quantization"})


def find_model(
    name: str,
    rules: RuleSet,
    environ: Mapping[str, str],
    origin: Source | None = None,
    files: Files = LOCAL,
) -> Document:
    """Read a model by path, cached hub id or well-known name.

    A configuration names directories of another machine: one that ends in a well-known name is taken for that model, which its
    document says. A name that ends with how weights are stored (``-AWQ``) has the dimensions of the model without that ending.

    Args:
        name: what the person or a configuration calls the model.
        rules: holds the well-known models.
        environ: environment variables; the hub cache is found through them.
        origin: the configuration that names the model, None when a person does.
        files: the tree that the path, or the cache, lies in.

    Raises:
        InputError: it is nowhere to be found, or its files are broken.
    """
    if files.exists(name):
        return _read_path(name, files)
    known = _find_known(name, rules, alike=False)
    cached = None if known is not None and known.stored is None else _cached(name, environ, files)
    if cached is not None:
        return _read_path(cached, files)
    known = known or (None if origin is None else _find_known(name, rules, alike=True))
    if known is not None:
        return _make_known(known, name, origin)
    models = rules.section("models") or {}
    near = find_nearest(name, [*models, *(alias for entry in models.values() for alias in entry["aliases"])])
    what = "is neither a file nor a directory, nor in the local hub cache, nor a well-known model"
    hint = "give --model with a config.json or a model directory" + (f"; did you mean {near!r}?" if near else "")
    msg = f"model {name!r} {what}"
    raise InputError(msg, source=origin, hint=hint)


def find_config(documents: Iterable[Document], rules: RuleSet) -> Mapping[str, Any] | None:
    """Return the parsed config.json behind the model of a subject, or None when no document is about one.

    Args:
        documents: of one subject.
        rules: holds the well-known models.
    """
    for document in documents:
        if document.reader != "model":
            continue
        short = document.source.path.removeprefix(_WELL_KNOWN)
        if short != document.source.path:
            known = _find_known(short, rules, alike=False)
            return None if known is None else known.config
        return expect_mapping(
            parse_json(read_text(document.source.path), document.source.path),
            document.source.path,
            "a model configuration",
        )
    return None


def is_path(name: str) -> bool:
    """Tell whether a name can only be a path, not a hub id or a well-known model."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith(".json") or os.path.exists(name)


def find_cache(environ: Mapping[str, str]) -> str:
    """Return the directory of the hub's cache, whether it is there or not."""
    home = environ.get("HF_HOME") or os.path.join(
        environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
        "huggingface",
    )
    return environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")


def _translate(config: Mapping[str, Any], path: str) -> Document:
    return make_model_document(config, path, count_parameters(config, path))


def _read_path(path: str, files: Files) -> Document:
    directory = path if files.is_directory(path) else None
    file = os.path.join(path, "config.json") if directory else path
    if directory and not files.exists(file):
        msg = "holds no config.json"
        raise InputError(
            msg,
            source=Source(path),
            hint="name the model's directory or its config.json",
        )
    config = expect_mapping(parse_json(read_text(file, files), file), file, "a model configuration")
    if not recognise(config):
        msg = "has no model_type, so it is not a model configuration"
        raise InputError(msg, source=Source(file, "model_type"), hint="name the config.json that save_pretrained wrote")
    beside = os.path.join(os.path.dirname(file), OF_MODEL_OPTIMIZER)
    if files.exists(beside):
        config = {**config, OF_MODEL_OPTIMIZER: parse_json(read_text(beside, files), beside)}
    if directory is not None and _holds_weights(directory, files):
        return _with_weights(config, file, directory, files)
    return _translate(config, file)


def _holds_weights(directory: str, files: Files) -> bool:
    return any(name.endswith((".safetensors", ".safetensors.index.json")) for name in files.list_names(directory))


def _with_weights(config: Mapping[str, Any], file: str, directory: str, files: Files) -> Document:
    """Count from the weights' headers, which win over the formula."""
    from compatcheck.architectures.weights import count_directory  # noqa: PLC0415 (only for directories with weights)

    try:
        counts, reason = count_directory(config, directory, files)
    except InputError as error:
        document = _translate(config, file)
        skipped = Skipped(error.source or Source(directory), error.message, error.hint)
        return document._replace(skipped=(*document.skipped, skipped))
    if counts is None:
        document = _translate(config, file)
        return document._replace(
            skipped=(*document.skipped, Skipped(Source(directory), reason or "weights not counted")),
        )
    return make_model_document(config, file, counts, "counted from the headers of the weights")


class _Known(NamedTuple):
    """A well-known model that a name stands for."""

    short: str
    """Its own name."""
    config: Mapping[str, Any]
    """Keys of its config.json."""
    alike: bool
    """Whether only the last part of the name is its."""
    stored: str | None = None
    """How the name ends where that says how the weights are stored, in lower case."""


def _find_known(name: str, rules: RuleSet, *, alike: bool) -> _Known | None:
    """Find the well-known model that a name stands for, or that a name without its storage does.

    Args:
        name: what the person or a configuration calls the model.
        rules: holds the well-known models.
        alike: whether the last part of a path, or of another owner's hub id, is enough.
    """
    models = rules.section("models") or {}
    split = _STORED.fullmatch(name.rstrip("/"))
    for base, stored in ((name, None), *(() if split is None else ((split["base"], split["stored"].lower()),))):
        if alike:
            last = _fold(_CACHED_AS.sub(r"\1", base.rstrip("/"))).rpartition("/")[2]
            found = [
                (short, entry)
                for short, entry in models.items()
                if "/" in name and last in {short, *(_fold(alias).rpartition("/")[2] for alias in entry["aliases"])}
            ]
        else:
            found = [(short, row) for short, row in models.items() if base.lower() == short or base in row["aliases"]]
        if len(found) == 1:
            short, entry = found[0]
            config = entry["config"]
            if base in entry.get("finetunes", ()):
                config = {key: value for key, value in config.items() if key not in {"torch_dtype", "dtype"}}
            return _Known(short, config, alike, stored)
    return None


def _fold(name: str) -> str:
    """Lower a name; directories write ``2_5`` for ``2.5``."""
    return re.sub(r"(?<=\d)_(?=\d)", ".", name.lower())


def _make_known(known: _Known, name: str, origin: Source | None) -> Document:
    """Translate a well-known model; what is assumed of it since the name is not its own is said."""
    document = _translate(known.config, _WELL_KNOWN + known.short)
    if not known.alike and known.stored is None:
        return document
    where, held = (", which is not here", "") if known.alike else ("", "")
    if known.stored is not None:
        statements = [one for one in document.statements if one.fact not in _STORAGE_FACTS]
        if known.stored in _STORED_AS:
            dtype, quantization = _STORED_AS[known.stored]
            said = {"model.quantization": quantization, "model.stored_quantization": quantization}
            said |= {} if dtype is None else {"model.stored_dtype": dtype}
            statements.extend(Statement(fact, "as its name says", value) for fact, value in said.items())
            held = f", its weights stored in {dtype or quantization}"
        elif known.stored != "mcore":
            statements.append(Statement("model.stored_quantization", "as its name says", known.stored))
            held = f"; weights stored as {known.stored} are counted as not quantised"
        document = document._replace(statements=tuple(statements))
    reason = f"names {name!r}{where}: the dimensions of the well-known model {known.short} are assumed{held}"
    assumed = Skipped(origin or Source(name), reason, "--model with its config.json says otherwise", passes=True)
    return document._replace(skipped=(*document.skipped, assumed))


def _cached(name: str, environ: Mapping[str, str], files: Files) -> str | None:
    """Find the newest snapshot of a hub id in the local cache, without the network."""
    if is_path(name):
        return None
    repository = os.path.join(find_cache(environ), "models--" + name.replace("/", "--"))
    try:
        snapshots = [files.read_text(os.path.join(repository, "refs", "main")).strip()]
    except (OSError, ValueError):  # ValueError: a NUL in the name
        try:
            snapshots = sorted(files.list_names(os.path.join(repository, "snapshots")))
        except (OSError, ValueError):
            return None
    for snapshot in reversed(snapshots):
        directory = os.path.join(repository, "snapshots", snapshot)
        if files.exists(os.path.join(directory, "config.json")):
            return directory
    return None
