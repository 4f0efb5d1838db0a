"""Command lines of scripts that take the HF Trainer's arguments, told by those arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Statement
from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.hf_trainer.parser import is_file, read_launch, read_lone_rank
from compatcheck.frameworks.keys import Names
from compatcheck.frameworks.launch.flags import parse_flags

if TYPE_CHECKING:
    from compatcheck.core.document import Document
    from compatcheck.frameworks.launch.program import Launch

_STRONG = Names(__file__, "command_marks.txt")
_ENOUGH = 3
_OWN_LOOP = Names(__file__, "own_loop_marks.txt")
"""Options of scripts that run a loop of their own; the Trainer has none of them."""


_OF_LABELS = re.compile(
    r"(^|/)run_(glue|xnli|classification|ner|qa|swag|image_classification|audio_classification)\.py$"
)
"""Scripts among transformers' examples whose models end in a few labels and not in the vocabulary."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch has the Trainer's arguments."""
    if launch.kind == "tool":
        return None
    options = parse_flags(launch.arguments).options
    if options.keys() & _OWN_LOOP:
        return None
    own = {name.removeprefix("no_") for name in options}.intersection(_STRONG)
    named = any(is_file(word) for word in launch.arguments[:2]) or isinstance(
        getattr(options.get("config"), "value", None), str
    )
    known = len(own) >= _ENOUGH or "per_device_train_batch_size" in own or (named and find_algorithm(launch.program))
    return hf_trainer.READER if known else None


def find_algorithm(program: str) -> str | None:
    """Return the training algorithm that the name of a program holds."""
    name = re.split(r"[/ ]", program)[-1].removesuffix(".py")
    words = hf_trainer.ALGORITHMS.intersection(re.split(r"[^a-z]+", name.rpartition(".")[2].lower()))
    return words.pop() if len(words) == 1 else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch."""
    first, *others = read_launch(launch, hf_trainer, [read_lone_rank(launch)], takes_config=True)
    if _OF_LABELS.search(launch.program):
        head = Statement("program.makes_logits", "(a head of labels)", value=False)
        added = Statement("program.adds_head_of_labels", "(a head of labels)", value=True)
        first = first._replace(statements=(*first.statements, head, added))
    return first, *others
