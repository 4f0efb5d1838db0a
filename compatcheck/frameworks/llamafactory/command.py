"""LLaMA-Factory's command lines: ``llamafactory-cli train FILE``, and its scripts with options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement
from compatcheck.frameworks.hf_trainer.parser import read_launch, read_lone_rank, read_ranks
from compatcheck.frameworks.launch import ranks
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.llamafactory import configuration as llamafactory

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch

_TOOLS = {"llamafactory-cli", "lmf", "llmtuner"}
_SCRIPT = re.compile(
    r"(^|/)(train_bash|train_exp_args)\.py$|(^|/)(llamafactory|llmtuner)/[\w/]+\.py$|^(llamafactory|llmtuner)(\.\w+)*$"
    r"|(^|/)LLaMA-Factory/src/train\.py$"
)
_LAUNCHED = "(by another launcher)"
_MARKS = {"finetuning_type", "template", "prompt_template"}
"""Options that no script has which is only called as its own first ones were (``train_sft.py``) or has stages."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch trains with LLaMA-Factory."""
    if launch.kind == "tool":
        tool, _, action = launch.program.partition(" ")
        return llamafactory.READER if tool in _TOOLS and action == "train" else None
    options = parse_flags(launch.arguments).options.keys()
    marked = ("stage" in options or launch.program.endswith("train_sft.py")) and not _MARKS.isdisjoint(options)
    return llamafactory.READER if marked or _SCRIPT.search(launch.program) else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch; ``llamafactory-cli`` starts one rank per visible device."""
    if launch.program.startswith("llamafactory-cli "):
        count = ranks.count_visible(launch.variables)
        launcher = read_ranks(launch, None if count is None else (ranks.GPUS, "CUDA_VISIBLE_DEVICES", count))
    else:
        launcher = read_lone_rank(launch)
    first, *others = read_launch(launch, llamafactory, [launcher], translate=llamafactory.read_arguments)
    if launch.kind != "tool":  # the variables are those of its own launcher (cli.py of 0.9.3, launcher.py of 0.9.4)
        said = (
            Statement(None, _LAUNCHED, value=True),
            Statement("program.avoids_record_streams", _LAUNCHED, value=False),
        )
        first = first._replace(statements=(*first.statements, *said))
    return first, *others
