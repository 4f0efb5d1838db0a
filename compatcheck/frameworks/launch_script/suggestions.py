"""What options of a program that nobody read seem to say, by names that programs which are read have: to ask, not to assume."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING

from compatcheck.core.data_file import read_file
from compatcheck.frameworks.hf_trainer.configuration import MODELS
from compatcheck.frameworks.launch.flags import parse_flags
from compatcheck.frameworks.registry import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.frameworks.launch.program import Launch

_FACTS = ("training.sequence_length", "training.micro_batch_size")
"""What an estimate asks for beside a model."""
_NEARLY_ALL = 0.8
"""Part of the programs; `batch_size` is that of a rank in two of three, and of all ranks in the third."""
_MODELS = (*MODELS, "model", "model_path", "base_model", "pretrain")


def suggest(launch: Launch) -> str:
    """Return options of compatcheck that say what a command's own seem to say, empty where none does; a person decides."""
    given = {
        name.replace("-", "_"): option.value
        for name, option in parse_flags(launch.arguments).options.items()
        if option.why is None
    }
    model = next((given[name] for name in _MODELS if isinstance(given.get(name), str)), None)
    found = [] if model is None else ["--model", str(model)]
    meanings = _meanings()
    for fact in _FACTS:
        value = next((value for name, value in given.items() if meanings.get(name) == fact), None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found += ["--set", f"{fact}={value}"]
    return shlex.join(found)


@cache
def _meanings() -> Mapping[str, str]:
    """Return what programs mean by the last part of a key, where nearly all of them mean the same."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    here = os.path.dirname(os.path.dirname(__file__))
    for folder in FOLDERS:
        path = os.path.join(here, folder.name, "keys.txt")
        if not os.path.exists(path):
            continue
        for line in read_file(path).decode().splitlines():
            key, fact, *_ = (*line.partition("#")[0].split(), "", "")
            if key != "words:" and fact.startswith("training."):
                counts[key.rpartition(".")[2].replace("-", "_")][fact] += 1
    meant = {name: (*found.most_common(1)[0], found.total()) for name, found in counts.items()}
    return {name: fact for name, (fact, times, total) in meant.items() if times > total * _NEARLY_ALL}
