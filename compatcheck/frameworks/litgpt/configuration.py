"""Configurations of LitGPT (YAML), whose keys are the options of its commands too.

``litgpt finetune_lora|finetune_full|pretrain --config FILE --key value …`` lays what stands behind ``--config`` over the file,
and the file over what stands before it (jsonargparse). Keys as in the releases 0.4.0 to 0.5.13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import LEFT_OUT, Document, Statement, Unresolved, enclosing_keys
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.composition import retell_counted
from compatcheck.frameworks.conversions import LEAVE, opens
from compatcheck.frameworks.keys import KeyTable, Names
from compatcheck.frameworks.launch.arguments import OptionMeanings
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping

READER, LABEL = "litgpt", "LitGPT"


def _optimizer(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read the class of an optimizer by its last part."""
    if not isinstance(value, str) or not value:
        return LEAVE
    return TABLE.words["optimizers"].get(value.rpartition(".")[2].lower()) or opens(value)


TABLE = KeyTable(__file__, conversions={"optimizer": _optimizer})
"""Dotted key → meaning."""
NAMES = Names(__file__)

COMMAND = "(command)"
"""Stands among the options of a command for the one of LitGPT's commands that it is."""
LORA, FULL, PRETRAIN = "finetune_lora", "finetune_full", "pretrain"
_LAYERS = {
    "lora_query": (True, ("q_proj",)),
    "lora_key": (False, ("k_proj",)),
    "lora_value": (True, ("v_proj",)),
    "lora_projection": (False, ("o_proj",)),
    "lora_mlp": (False, ("gate_proj", "up_proj", "down_proj")),
    "lora_head": (False, ("lm_head",)),
}
"""Switches of the layers that get an adapter: whether they are on when left out, and what the layers are called elsewhere."""
_ON = frozenset({"on", "true", "yes"})
"""What of YAML is true on a command line."""
_TRAIN = frozenset(
    {
        "epochs", "global_batch_size", "lr_warmup_steps", "max_norm", "max_seq_length", "max_steps", "max_tokens",
        "micro_batch_size", "tie_embeddings",
    }
)  # fmt: skip
"""Keys of its section about training (class TrainArgs)."""


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of LitGPT: its section about training beside a model, or its switches."""
    train = data.get("train")
    trains = isinstance(train, dict) and not _TRAIN.isdisjoint(train)
    return (trains and not {"checkpoint_dir", "model_name"}.isdisjoint(data)) or len(_LAYERS.keys() & data.keys()) > 1


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration."""
    options = open_options({key: Argument(value, None) for key, value in flatten(data)})
    return Reading(compose(Document(READER, Source(path), (), options=options)))


def open_options(options: Mapping[str, Argument]) -> dict[str, Argument]:
    """Return options with a model by its hub id; ``null`` on a command line is none."""
    known = TABLE.words["models"]

    def read_one(key: str, value: object) -> object:
        return known.get(str(value), value) if key == "model_name" else None if value == "null" else value

    return {key: one._replace(value=read_one(key, one.value)) for key, one in options.items()}


def compose(*documents: Document) -> tuple[Document, ...]:
    """Translate a file, or a command and its file, as one configuration: what the command says behind ``--config`` wins."""
    whole: dict[str, Argument] = {}
    for document in reversed(documents):
        late = {key: one for key, one in document.options.items() if key not in document.added or key not in whole}
        whole = {key: one for key, one in whole.items() if late.keys().isdisjoint(enclosing_keys(key))} | late
    kind = find_kind(whole)
    meanings = make_meanings(whole)
    first, *files = (retell_counted(document, whole, whole, meanings) for document in documents)
    kept = (tuple(one for one in file.skipped if one.source.key != COMMAND) for file in files)
    files = [file._replace(skipped=skipped) for file, skipped in zip(files, kept, strict=True)]
    return (tell_kind(first, whole, kind), *files)


def find_kind(options: Mapping[str, Argument]) -> str:
    """Return the command; of a file that no command names, the one whose arguments it holds."""
    if COMMAND in options:
        return str(options[COMMAND].value)
    if "model_name" in options:
        return PRETRAIN
    if any(key.startswith("lora_") for key in options):
        return LORA
    return "finetune_adapter" if "quantize" in options else FULL


def make_meanings(options: Mapping[str, Argument]) -> OptionMeanings:
    """Return what keys mean; the model is the one that is named unless its sizes are given."""
    models = {"checkpoint_dir": "model", "model_name": "model"}
    if any(key.startswith("model_config.") for key in options):
        del models["model_name"]
    return OptionMeanings(READER, TABLE, lambda key: key in NAMES or key in {COMMAND, *models, "model_name"}, models)


def tell_kind(document: Document, options: Mapping[str, Argument], kind: str) -> Document:
    """Add to a document what its command decides, in view of all options."""
    statements, unresolved, skipped = [*document.statements], [*document.unresolved], [*document.skipped]
    statements += [Statement(None, f"({kind})", value=True), Statement("training.trainer", f"({kind})", _TRAINS[kind])]
    if kind == LORA:
        statements.append(Statement("training.peft", "(finetune_lora)", "lora"))
        layers = {key: options.get(key, Argument(on, None)) for key, (on, _) in _LAYERS.items()}
        why = next((one.why for one in layers.values() if one.why is not None), None)
        names = tuple(name for key, one in layers.items() if str(one.value).lower() in _ON for name in _LAYERS[key][1])
        given = next((key for key in _LAYERS if key in options), f"lora_query{LEFT_OUT}")
        if why is None:
            left_out = tuple(key for key in _LAYERS if key not in options)
            statements.append(Statement("training.lora_target_modules", given, names, None, left_out))
        else:
            unresolved.append(Unresolved("training.lora_target_modules", given, why))
    elif kind in {FULL, PRETRAIN}:
        statements.append(Statement("training.peft", f"({kind})", None))
    else:
        unresolved.append(Unresolved("training.peft", f"({kind})", "is an adapter of LitGPT's own, which was not read"))
    if kind == FULL and COMMAND not in options:
        reason = "has no key of an adapter: `litgpt finetune_full` is assumed to read it"
        skipped.append(
            Skipped(document.source._replace(key=COMMAND), reason, "name the command, or a script with it", passes=True)
        )
    for key, fact in (("devices", "hardware.gpus_per_node"), ("num_nodes", "hardware.nodes")):
        if key not in options and (key, kind) != ("devices", PRETRAIN):
            statements.append(Statement(fact, f"{key}{LEFT_OUT}", 1))
    return document._replace(statements=tuple(statements), unresolved=tuple(unresolved), skipped=tuple(skipped))


_TRAINS = {LORA: "sft", FULL: "sft", "finetune_adapter": "sft", PRETRAIN: "pretrain"}
"""What the commands train."""
