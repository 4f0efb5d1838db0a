"""ms-swift's command lines: ``swift sft``, ``swift rlhf``, ``megatron sft``, and the scripts behind them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import LEFT_OUT, SPREADING, Statement, Unresolved
from compatcheck.core.source import Skipped
from compatcheck.core.units import parse_count
from compatcheck.frameworks.hf_trainer.parser import read_launch, read_lone_rank, read_ranks
from compatcheck.frameworks.launch import ranks
from compatcheck.frameworks.launch.values import explain
from compatcheck.frameworks.ms_swift import configuration as ms_swift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch

_SCRIPT = re.compile(r"(^|/)swift/cli/(_?megatron/)?(sft|pt|rlhf)\.py$|(^|/)llm_(sft|dpo|pt|rlhf)\.py$|swift\.cli\.")


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch trains with ms-swift."""
    if launch.kind == "tool":
        tool, _, action = launch.program.partition(" ")
        return ms_swift.READER if tool in {"swift", "megatron"} and action in {"sft", "pt", "rlhf"} else None
    return ms_swift.READER if _SCRIPT.search(launch.program) else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch; ``swift`` without NPROC_PER_NODE is one process, on all devices that it sees."""
    if launch.kind == "tool":
        alone = launch.program.startswith("swift ") and "NPROC_PER_NODE" not in launch.command.variables
        launcher = read_ranks(launch, (ranks.WORLD, "NPROC_PER_NODE (left out)", 1) if alone else None)
    else:
        launcher = read_lone_rank(launch)
    documents = read_launch(launch, ms_swift, [launcher])
    if launch.program in _SUPERVISED and "training.trainer" not in {one.fact for one in _entries(documents[0])}:
        said = Statement("training.trainer", launch.program, "sft")  # whatever its task: preferences are for `rlhf`
        documents = (documents[0]._replace(statements=(*documents[0].statements, said)), *documents[1:])
    if launch.program.startswith("megatron "):
        return documents
    if _PRETRAINING.search(launch.program):
        documents = (_label_all(documents[0], launch), *documents[1:])
    documents = (_leave_loss(documents[0], launch), *documents[1:])
    if launcher is None:
        return documents
    return (_spread(documents, launch), *documents[1:])


_PRETRAINING = re.compile(r"^swift pt$|(^|[/._])pt(\.py)?$")


def _label_all(document: Document, launch: Launch) -> Document:
    """Say of pretraining that every position has a label (``loss_scale`` all): no logits are left out, whatever is asked.

    Source: v3.5.3, v3.8.2 swift/llm/train/pt.py, v4.6.0 swift/arguments/pretrain_args.py.
    """
    fact = "program.skips_unlabelled_logits"
    kept = (one for one in document.statements if one.fact != fact)
    return document._replace(statements=(*kept, Statement(fact, f"({launch.program})", value=False)))


_SUPERVISED = frozenset({"swift sft", "megatron sft"})


def _entries(document: Document) -> Iterator[Statement | Unresolved]:
    yield from document.statements
    yield from document.unresolved


def _leave_loss(document: Document, launch: Launch) -> Document:
    """Leave open how a loss in chunks, over logits that are there as a whole, takes memory: ranks of a sequence can have it.

    Source: v3.7.0 trainers/sequence_parallel/utils.py, v3.9.0 and v4.5.2 trainers/utils.py per_token_loss_func_sp().
    """
    word = launch.variables.get(_CHUNK)
    ranks = next((one.value for one in document.statements if one.key == "sequence_parallel_size"), 1)
    if word in {None, "", "0"} or ranks == 1:
        return document
    why = f"computes the loss of {word} tokens at a time"
    left = Unresolved("training.loss_implementation", _CHUNK, why)
    return document._replace(unresolved=(*document.unresolved, left))


_CHUNK = "CELOSS_PARALLEL_SIZE"


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict) or str(value).lstrip().startswith("{")


def _spread(documents: tuple[Document, ...], launch: Launch) -> Document:
    """Say over how many devices each process spreads its model (``is_mp`` of ``swift/utils/env.py``, v3.0.0 to v4.5.2)."""
    fact, key = "hardware.devices_per_rank", "CUDA_VISIBLE_DEVICES"
    document, line = documents[0], launch.command.source.line
    word, per_node = (launch.command.variables.get(name) for name in (key, "NPROC_PER_NODE"))
    visible, local = ranks.count_visible(launch.variables), parse_count(launch.variables.get("NPROC_PER_NODE", "1"))
    document = document._replace(lines=document.lines if line is None else {**document.lines, key: line})
    by_deepspeed = any(one.reader == "deepspeed" for one in documents) or any(
        kind == "deepspeed" for kind, _, _ in document.references
    )
    placed = next((one.value for one in document.statements if one.key == "device_map"), "auto")
    if word is not None and word.text is None:
        return document._replace(unresolved=(*document.unresolved, Unresolved(fact, key, explain(word))))
    if not isinstance(placed, str) or placed not in SPREADING:
        mapped = Unresolved(fact, "device_map", "places modules one by one")
        return document._replace(unresolved=(*document.unresolved, mapped)) if _is_mapping(placed) else document
    if word is None and per_node is None and not by_deepspeed:
        auto = Statement("model.device_map", f"{key}{LEFT_OUT}", placed, None, ("device_map", "deepspeed"))
        return document._replace(statements=(*document.statements, auto))
    if visible is None or local is None or visible < local:
        return document
    each = visible // local
    document = document._replace(statements=(*document.statements, Statement(fact, key, each)))
    if each > 1 and by_deepspeed:
        source = launch.command.source._replace(key=key, line=line)
        why = f"ms-swift refuses DeepSpeed where a process has {each} devices; the run does not start"
        document = document._replace(skipped=(*document.skipped, Skipped(source, why, f"set NPROC_PER_NODE={visible}")))
    return document
