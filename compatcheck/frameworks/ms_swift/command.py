"""ms-swift's command lines: ``swift sft``, ``swift rlhf``, ``megatron sft``, and the scripts behind them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.frameworks.hf_trainer.parser import read_launch, read_lone_rank, read_ranks
from compatcheck.frameworks.launch import ranks
from compatcheck.frameworks.ms_swift import configuration as ms_swift

if TYPE_CHECKING:
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
    """Translate a launch; ``swift`` without NPROC_PER_NODE is one process."""
    if launch.kind == "tool":
        alone = launch.program.startswith("swift ") and "NPROC_PER_NODE" not in launch.command.variables
        launcher = read_ranks(launch, (ranks.WORLD, "NPROC_PER_NODE (left out)", 1) if alone else None)
    else:
        launcher = read_lone_rank(launch)
    return read_launch(launch, ms_swift, [launcher])
