"""TRL's command lines: ``trl sft --config FILE``, and scripts whose arguments or names are those of a trainer of TRL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Statement
from compatcheck.frameworks.accelerate.launcher import read_options
from compatcheck.frameworks.hf_trainer import command as hf_trainer
from compatcheck.frameworks.hf_trainer.parser import read_launch, read_lone_rank
from compatcheck.frameworks.launch.flags import known_values, parse_flags
from compatcheck.frameworks.launch.ranks import Ranks
from compatcheck.frameworks.trl import configuration as trl

if TYPE_CHECKING:
    from compatcheck.frameworks.launch.program import Launch

_OF_TRL = re.compile(r"\btrl\b|^scripts/(run_)?sft\.py$")
"""Scripts called ``sft`` that are TRL's; others need not be."""

_OWN = re.compile(r"(?:^trl |(?:^|/)trl/scripts/|^trl\.scripts\.)(\w+)")
"""The scripts that the commands of ``trl`` start."""

_ACCELERATE = "accelerate_config"
"""Option of ``trl sft``: a file, or the name of one that TRL ships (``trl/cli/accelerate_config.py``)."""


def recognise(launch: Launch) -> str | None:
    """Tell whether a launch starts a trainer of TRL."""
    if launch.kind == "tool":
        tool, _, action = launch.program.partition(" ")
        return trl.READER if tool == "trl" and action in trl.TRAINERS else None
    algorithm = hf_trainer.find_algorithm(launch.program)
    if algorithm is not None and _OWN.search(launch.program):
        return trl.READER
    if hf_trainer.recognise(launch) is None:
        return None
    named = algorithm is not None and (algorithm != "sft" or _OF_TRL.search(launch.program))
    return trl.READER if named or trl.is_marked(known_values(parse_flags(launch.arguments).options)) else None


def read(launch: Launch, _: str) -> tuple[Document, ...]:
    """Translate a launch; the program names the trainer where it can."""
    options = dict(parse_flags(launch.arguments).options)
    if launch.kind == "tool" and _ACCELERATE in options:
        options["config_file"] = options[_ACCELERATE]
    documents: list[Document | None] = [read_lone_rank(launch)]
    references: list[tuple[str, str, str]] = []
    if launch.kind == "tool" and options.keys() & {"num_processes", "config_file"}:
        found, settings = Ranks(), list[Document]()
        read_options(options, found, settings, references, launch.command)
        documents += [*settings, found.document(launch.command.source)]
    main, *rest = read_launch(launch, trl, documents, references=references, takes_config=True)
    algorithm = hf_trainer.find_algorithm(launch.program)
    stated = {statement.value for statement in main.statements if statement.fact == "training.trainer"}
    if algorithm is not None and algorithm not in stated:
        kept = tuple(statement for statement in main.statements if statement.fact != "training.trainer")
        main = main._replace(statements=(*kept, Statement("training.trainer", "(program)", algorithm)))
    if launch.kind == "tool":
        main = main._replace(statements=(*main.statements, Statement("run.trl_command", "(program)", value=True)))
    own = _OWN.search(launch.program)
    if own is not None:
        main = main._replace(statements=(*main.statements, Statement("run.trl_script", "(program)", own[1])))
    return main, *rest
