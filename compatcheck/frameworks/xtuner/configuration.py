"""XTuner's configurations: Python of mmengine, whose names are sections (``model``, ``train_dataloader``, ``optim_wrapper``).

Read at 0.2.0. A name outside of the sections is a variable of the file by itself: what it comes to stands in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Gap, Statement, Unresolved
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.composition import retell
from compatcheck.frameworks.conversions import LEAVE, opens
from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.launch.arguments import OptionMeanings
from compatcheck.frameworks.launch.values import Argument, value_of
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "xtuner", "XTuner"


def _last(value: Any) -> str:  # noqa: ANN401 (configuration)
    return str(value).rpartition(".")[2]


def _of_class(words: str, value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a class by its name; another one leaves the fact open."""
    return LEAVE if value is None else TABLE.words[words].get(_last(value).lower()) or opens(value)


TABLE = KeyTable(
    __file__,
    conversions={
        "adapter": lambda value: _of_class("adapters", value),
        "dtype": lambda value: LEAVE if value in (None, "auto") else _last(value),
        "optimizer": lambda value: _of_class("optimizers", value),
        "targets": lambda value: LEAVE if value is None else [value] if isinstance(value, str) else value,
        "trainer": lambda value: _of_class("trainers", value),
    },
)
"""Dotted key → meaning."""
NAMES = Names(__file__)

_SECTIONS = frozenset({"model", "optim_wrapper", "train_dataloader"})
_MODEL = "model.llm.pretrained_model_name_or_path"
_DATASET = "train_dataloader.dataset."
_LENGTHS = ("max_length", "packed_length")
_PACKS = "pack_to_max_length"
_SEQUENCE_RANKS = "sequence_parallel_size"
_BASE = "_base_"
"""Stands in what was read of a file where one that it is laid over could not be (`python_script.settings`)."""


def is_irrelevant(key: str) -> bool:
    """Tell whether a key leaves all others as they are: one that is listed, a variable, what the data sets are made of."""
    section, _, rest = key.partition(".")
    return key in NAMES or section not in _SECTIONS or rest.startswith("dataset.") or key == _MODEL


DEEPSPEED = "(deepspeed)"
"""Stands in a command for ``--deepspeed``, whose file decides about precision and sharding in place of the configuration."""


_REPLACED = ("optim_wrapper.dtype", "strategy.type", "runner_type", "model_wrapper_cfg.type")
"""The optimizer's wrapper, the strategy and the runner are DeepSpeed's then, and that strategy wraps the model."""


def make_meanings() -> OptionMeanings:
    """Return what keys mean; some count where ``--deepspeed`` does not replace what they name (tools/train.py)."""
    replaced = {key: tuple(one._replace(without=(DEEPSPEED,)) for one in TABLE[key]) for key in _REPLACED}
    return OptionMeanings(READER, {**TABLE, **replaced}, is_irrelevant, {_MODEL: "model"})


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether the names of a file are XTuner's: a model made of parts beside the wrapper of its optimizer."""
    model = data.get("model")
    if "optim_wrapper" not in data and "training_args" not in data:
        return False
    if isinstance(model, dict):
        return not {"llm", "model_path"}.isdisjoint(model)
    # what a change that nobody follows has left of it; the data sets name the package all the same
    return isinstance(model, Argument) and any(
        str(one.value).startswith("xtuner.") for one in open_options(data).values()
    )


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate the names of a file."""
    options = open_options(data)
    source = Source(path)
    if str(options.get("framework", Argument(None, None)).value).lower() == "huggingface":
        reason = "is trained by the HF Trainer that XTuner makes (framework), which is not read"
        skip = Skipped(source._replace(key="framework"), reason, "--set what it decides", by_run=True)
        return Reading((Document(READER, source, (Statement(None, "framework", "huggingface"),), skipped=(skip,)),))
    hidden = list_hidden(options)
    opened = tuple(leave_open(options))
    meanings = make_meanings()._replace(models={}) if opened else make_meanings()
    gaps = tuple(Gap(source._replace(key=key, line=options[key].line), str(options[key].why)) for key in hidden)
    options.pop(_BASE, None)
    document = retell(Document(READER, source, (), options=options, gaps=gaps), options, meanings, settle(options))
    return Reading((document._replace(unresolved=(*document.unresolved, *opened), options={}),))


def open_options(data: Mapping[str, Any]) -> dict[str, Argument]:
    """Return every value by its dotted key, those in lists of data sets among them."""
    found: dict[str, Argument] = {}
    for key, value in flatten(data):
        argument = value if isinstance(value, Argument) else Argument(value, None)
        if key.startswith(_DATASET) and isinstance(argument.value, list):
            for place, one in enumerate(argument.value):
                found |= open_options({f"{key}.{place}": one})
        found[key] = argument
    return found


def settle(options: Mapping[str, Argument]) -> Iterator[Statement]:
    """State what several keys decide together."""
    if _last(value_of(options, "optim_wrapper.type")) == "AmpOptimWrapper":
        yield Statement(None, "(amp)", value=True)
    elif value_of(options, "optim_wrapper.type") is not None:
        yield Statement("training.mixed_precision", "optim_wrapper.type", "no", None, (DEEPSPEED,))
    if any(key.startswith("model.lora.") for key in options):
        yield Statement(None, "(lora)", value=True)
    if value_of(options, "model.use_varlen_attn") is True or _splits_sequences(options):
        yield Statement(None, "(flash)", value=True)
    packed = value_of(options, f"{_DATASET}max_packed_length")
    if isinstance(packed, int) and not isinstance(packed, bool):  # one of pairs, of which both sides are counted
        yield Statement("training.sequence_length", f"{_DATASET}max_packed_length", packed // 2)
    elif not any(f"{_DATASET}{name}" in options for name in _LENGTHS):
        inner = {
            key: one.value
            for key, one in options.items()
            if key.startswith(_DATASET) and key.rpartition(".")[2] in _LENGTHS and isinstance(one.value, int)
        }
        if inner:
            longest = max(inner, key=lambda key: inner[key])
            yield Statement("training.sequence_length", longest, inner[longest])
    packs = {key: one.value for key, one in options.items() if key.startswith(_DATASET) and key.endswith(f".{_PACKS}")}
    if f"{_DATASET}{_PACKS}" not in packs and len(set(packs.values())) == 1:
        key, value = next(iter(packs.items()))
        yield Statement("training.packing", key, value)


def _splits_sequences(options: Mapping[str, Argument]) -> bool:
    """Tell whether ranks share sequences, for which flash-attn has to be there (tools/train.py check_cfg)."""
    size = value_of(options, _SEQUENCE_RANKS)
    return isinstance(size, int) and size > 1


def list_hidden(options: Mapping[str, Argument]) -> tuple[str, ...]:
    """Return sections that nobody knows and keys may stand in: of a file that could not be read, of a change not followed."""
    return tuple(
        key
        for key, one in options.items()
        if one.why is not None and (key == _BASE or any(known.startswith(f"{key}.") for known in TABLE))
    )


def leave_open(options: Mapping[str, Argument]) -> Iterator[Unresolved]:
    """List what is decided in a way that is not read: models of several parts."""
    kind = _last(value_of(options, "model.type"))
    if kind.lower() not in TABLE.words["trainers"] and value_of(options, "model.type") is not None:
        why = f"is {kind}, of whose parts some are frozen; they are not read"
        yield from (Unresolved(fact, "model.type", why) for fact in ("model.name", "training.peft"))
