"""prime-rl's configurations (TOML): for ``rl``, with sections of its three parts, for ``sft`` and for ``trainer`` alone.

Read at 559b447 (0.8.0). A section that is there is on with its defaults, and the text ``None`` turns one off. The engine has
devices of its own. Micro batches of ``rl`` are filled up to the sequence length, which context-parallel ranks share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import LEFT_OUT, Document, Statement, Unresolved
from compatcheck.core.source import Source
from compatcheck.frameworks.composition import merge_options, retell_counted
from compatcheck.frameworks.conversions import is_off
from compatcheck.frameworks.keys import SILENT, KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import OptionMeanings
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "prime-rl", "prime-rl"
_RL = ("trainer.", "orchestrator.", "inference.")
_SFT = ("data.name", "data.seq_len", "data.batch_size", "data.micro_batch_size", "data.type")
_TRAINER, _DATA, _ENGINE, _ORCHESTRATOR = "trainer.", "data.", "inference.", "orchestrator."
_SECTIONS = {"ckpt", "data", "deployment", "max_steps", "model", "optim", "renderer", "scheduler", "val"}
_ENOUGH = 4


def _section(value: Any) -> Any:  # noqa: ANN401 (configuration)
    """Read a section as a switch: on where it is there, with keys or without, off where it is ``None``."""
    return value is not None and not is_off(value)


TABLE = KeyTable(__file__, conversions={"section": _section})
"""Key of files for ``rl`` → meaning."""
NAMES = Names(__file__)


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of prime-rl that trains."""
    if "orchestrator" in data and ("trainer" in data or "inference" in data):
        return True
    model = data.get("model")
    named = isinstance(model, dict) and isinstance(model.get("name"), str) and "flavor" not in model
    source = data.get("data")
    batched = isinstance(source, dict) and source.get("type") in {"fake", "sft"}
    return named and (batched or len(_SECTIONS & data.keys()) >= _ENOUGH)


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration."""
    options = {key: Argument(None if value == "None" else value, None) for key, value in flatten(data)}
    return Reading(compose(Document(READER, Source(path), (), options=options)))


def compose(*documents: Document) -> tuple[Document, ...]:
    """Translate a file, or a command and the files that it names, as one configuration; what comes first wins."""
    whole = merge_options(documents)
    kind = _tell_kind(whole)
    whole.pop(PROGRAM, None)
    values = {key: one.value for key, one in whole.items() if one.why is None}
    table = _table_for(values, kind)
    inside = "" if kind != "rl" else _TRAINER
    models = {f"{inside}model.name": "model"}
    if kind == "rl" and "trainer.model.name" not in whole:
        models = {"model.name": "model"}
    meanings = OptionMeanings(READER, table, lambda key: _is_plain(key, kind), models)
    known, missing = tuple(_infer(values, kind)), tuple(_leave_open(values, inside))
    made = []
    for document in documents:
        first = document is documents[0]
        retold = retell_counted(document, whole, whole, meanings, known if first else ())
        made.append(retold._replace(unresolved=(*retold.unresolved, *missing)) if first else retold)
    return tuple(made)


PROGRAM = "(program)"
"""Stands among the options of a command for the program that it starts."""


def _tell_kind(options: Mapping[str, Argument]) -> str:
    """Tell which program reads a configuration, ``rl``, ``sft`` or ``trainer``: by its keys where no command names it."""
    if PROGRAM in options:
        return str(options[PROGRAM].value)
    if any(key.startswith(_RL) for key in options):
        return "rl"
    return "sft" if any(key in options for key in _SFT) else "trainer"


def _is_plain(key: str, kind: str) -> bool:
    """Tell whether a key is known and has no bearing."""
    return key in NAMES or (kind != "rl" and f"{_TRAINER}{key}" in NAMES)


def _table_for(values: Mapping[str, Any], kind: str) -> Table:
    """Return what keys mean in files of a kind."""
    if kind == "rl":
        table = {key: meanings for key, meanings in TABLE.items() if not key.startswith(_DATA)}
        if "trainer.model.seq_len" in values:
            table["seq_len"] = SILENT
        if _offloads_all(values, _TRAINER):
            table["trainer.model.optimization_dtype"] = table["trainer.model.optim_cpu_offload"] = SILENT
        return table
    table = {
        key.removeprefix(_TRAINER): meanings
        for key, meanings in TABLE.items()
        if not key.startswith((_ORCHESTRATOR, _ENGINE))
    }
    if _offloads_all(values, ""):
        table["model.optimization_dtype"] = table["model.optim_cpu_offload"] = SILENT
    if kind == "sft":
        return {key: meanings for key, meanings in table.items() if key not in {"model.seq_len", "seq_len"}}
    return {
        key: meanings
        for key, meanings in table.items()
        if key != "seq_len" and not key.startswith((_DATA, "deployment."))
    }


def _offloads_all(values: Mapping[str, Any], inside: str) -> bool:
    """Tell whether masters, moments and gradients are on the host, and the step runs there (``full_offload``)."""
    key = f"{inside}model.full_offload"
    return any(_section(value) for name, value in values.items() if name == key or name.startswith(f"{key}."))


def _infer(values: Mapping[str, Any], kind: str) -> Iterator[Statement]:
    """Say what follows from several keys, or from the program that reads them."""
    inside = f"{_TRAINER if kind == 'rl' else ''}model."
    if kind == "sft":
        yield Statement("training.trainer", "(program)", "sft")
    else:
        yield Statement(None, "(for rl)", value=True)
        yield Statement("training.micro_batch_size", "(program)", 1)
        yield Statement("training.packing", "(program)", value=True)
    if _offloads_all(values, inside.removesuffix("model.")):
        yield Statement("training.offload_optimizer", f"{inside}full_offload", "cpu")
        yield Statement("training.param_dtype", f"{inside}full_offload", "bfloat16")
        yield Statement("training.master_dtype", f"{inside}full_offload", "float32")
    lora = [key for key in values if key == f"{inside}lora" or key.startswith(f"{inside}lora.")]
    if any(_section(values[key]) for key in lora):
        yield Statement("training.peft", f"{inside}lora", "lora")
        yield Statement(None, "(adapters)", value=True)
    elif lora:
        yield Statement("training.peft", f"{inside}lora", None)
    ac, freq, mode = (values.get(f"{inside}ac{part}") for part in ("", ".freq", ".mode"))
    kept = f"{inside}ac" in values and not _section(ac)
    offloads = f"{inside}ac_offloading" not in values or _section(values[f"{inside}ac_offloading"])
    if freq in {None, 1} and mode in {None, "full"}:  # offloading turns checkpointing on (ac_offloading_requires_ac)
        there = any(key == f"{inside}ac" or key.startswith(f"{inside}ac.") for key in values)
        yield Statement(
            "training.gradient_checkpointing", f"{inside}ac{'' if there else LEFT_OUT}", not kept or offloads
        )
    for name, fact in (("ac_offloading", "training.activation_offloading"), ("compile", "training.compile")):
        key = next((key for key in values if key.startswith(f"{inside}{name}.")), None)
        if key is not None and f"{inside}{name}" not in values:
            yield Statement(fact, key, value=True)
    if kind == "rl" and any(key.startswith(_ENGINE) or key == "inference" for key in values):
        yield Statement("rollout.engine", "inference", "vllm")
        yield Statement("rollout.colocated", "(program)", value=False)
        data, tensor = (values.get(f"inference.vllm.{name}_parallel_size", 1) for name in ("data", "tensor"))
        spread = values.get("inference.vllm.enable_expert_parallel") is True and not _is_disaggregated(values)
        if spread and type(data) is int and type(tensor) is int:
            yield Statement("rollout.data_parallel", "inference.vllm.data_parallel_size", data)
            yield Statement("rollout.expert_parallel", "inference.vllm.enable_expert_parallel", data * tensor)
        served = values.get("inference.vllm.model")
        if served is not None and served not in {values.get("model.name"), values.get("trainer.model.name")}:
            yield Statement(None, "(another model is served)", value=True)
    if kind != "trainer":
        yield Statement(None, "(by its launcher)", value=True)
        yield from _count_devices(values, kind)


def _count_devices(values: Mapping[str, Any], kind: str) -> Iterator[Statement]:
    """Count the devices that train: those of one node, of which one does unless more are named, or of whole nodes."""
    usual = {
        "type": "single_node",
        "num_train_gpus": 1,
        "gpus_per_node": 8,
        "num_train_nodes": 2 if kind == "sft" else None,
    }

    def given(name: str) -> object:
        return values.get(f"deployment.{name}", usual[name])

    def state(fact: str, name: str, value: object = None) -> Statement:
        left_out = "" if f"deployment.{name}" in values else LEFT_OUT
        return Statement(fact, f"deployment.{name}{left_out}", given(name) if value is None else value)

    nodes, groups = given("num_train_nodes"), values.get("deployment.nodes_per_fsdp_group")
    if given("type") == "single_node":
        yield state("hardware.nodes", "type", 1)
        yield state("hardware.gpus_per_node", "num_train_gpus")
    elif type(nodes) is int and type(given("gpus_per_node")) is int:
        yield state("hardware.nodes", "num_train_nodes")
        yield state("hardware.gpus_per_node", "gpus_per_node")
        if type(groups) is int and groups > 0:
            yield Statement("training.replicas", "deployment.nodes_per_fsdp_group", max(1, nodes // groups))


def _is_disaggregated(values: Mapping[str, Any]) -> bool:
    """Tell whether engines of two kinds serve, some of them prompts and some answers."""
    return values.get("inference.deployment.type") == "disaggregated"


def _leave_open(values: Mapping[str, Any], inside: str) -> Iterator[Unresolved]:
    """List what a configuration decides in a way that no fact tells."""
    if _is_disaggregated(values):
        for fact in ("rollout.data_parallel", "rollout.expert_parallel"):
            yield Unresolved(
                fact, "inference.deployment.type", "is 'disaggregated': engines for prompts and answers differ"
            )
    freq, mode = (values.get(f"{inside}model.ac.{part}") for part in ("freq", "mode"))
    if freq not in {None, 1}:
        why = f"is {freq}: one block of so many is checkpointed, the others are kept"
        yield Unresolved("training.gradient_checkpointing", f"{inside}model.ac.freq", why)
    elif mode not in {None, "full"}:
        why = f"is {mode!r}: parts of blocks are checkpointed, which were not read"
        yield Unresolved("training.gradient_checkpointing", f"{inside}model.ac.mode", why)
        yield Unresolved("training.checkpointing_policy", f"{inside}model.ac.mode", why)
