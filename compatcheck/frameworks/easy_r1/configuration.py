"""EasyR1's configurations (``examples/config.yaml``): a fork of verl with keys of its own (``worker.actor.…``, OmegaConf).

Read at its main branch (``examples/config.yaml``, ``verl/workers/config.py``). Micro batches count sequences of one device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.composition import merge_options, retell
from compatcheck.frameworks.conversions import constant
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names
from compatcheck.frameworks.launch.arguments import OptionMeanings, name_roles, state_forward_only
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "easy-r1", "EasyR1"
TABLE = KeyTable(__file__)
"""Key → meaning."""
NAMES = Names(__file__)
_BATCH, _WITHOUT_KL = "worker.actor.global_batch_size", "algorithm.disable_kl"
CRITIC, ESTIMATOR, MODEL = "worker.critic.", "algorithm.adv_estimator", "worker.actor.model.model_path"


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of EasyR1."""
    worker = data.get("worker")
    return isinstance(worker, dict) and {"actor", "rollout"} <= worker.keys()


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration; one without an estimator has no critic."""
    options = {key: Argument(value, None) for key, value in flatten(data)}
    return Reading(compose(Document(READER, Source(path), (), options=options)))


def compose(*documents: Document) -> tuple[Document, ...]:
    """Translate a file, or a command and its file, as one configuration: what the command says wins."""
    whole = merge_options(documents)
    settled = follow_all(whole)
    estimator = settled.get(ESTIMATOR)
    meanings = make_meanings(
        settled,
        has_critic=estimator is not None and (estimator.value == "gae" or estimator.why is not None),
    )
    return tuple(
        retell(
            document,
            {
                key: settled[key]
                for key, argument in document.options.items()
                if key in whole and whole[key] is argument
            },
            meanings,
            state_fixed(),
        )
        for document in documents
    )


def make_meanings(options: Mapping[str, Argument], *, has_critic: bool) -> OptionMeanings:
    """Leave out the critic where there is none: it is there when advantages are estimated with one (``gae``).

    Batches of an update count prompts, each with ``rollout.n`` completions (``verl/workers/fsdp_workers.py``); filled up to a
    number of tokens, they are gone through in fewer forwards than they have sequences, and that is left open. Without a
    reference the KL term weighs nothing (v0.3.2 ``verl/trainer/ray_trainer.py``).
    """
    table = {key: meanings for key, meanings in TABLE.items() if has_critic or not key.startswith(CRITIC)}
    n, filled = options.get("worker.rollout.n", Argument(1, None)), options.get("worker.actor.dynamic_batching")
    if n.why is None and type(n.value) is int and filled is not None and filled.value is False:
        times = n.value
        table[_BATCH] = (Key("training.global_batch_size", lambda size: size * times, "actor"),)
    disabled = options.get(_WITHOUT_KL)
    if disabled is not None and disabled.value is True:
        table["algorithm.kl_coef"] = SILENT
        table[_WITHOUT_KL] = (*table[_WITHOUT_KL], Key("training.kl_coefficient", constant(0), "actor"))
    return OptionMeanings(READER, table, NAMES.__contains__, {MODEL: "model"})


def state_fixed() -> Iterator[Statement]:
    """Say what EasyR1 does without being asked: FSDP1, vLLM on the trainer's devices."""
    yield from name_roles(("actor", "reference"))
    yield Statement("training.sharding", "(program)", "fsdp")
    yield Statement("training.fsdp_version", "(program)", 1)
    yield Statement("rollout.engine", "(program)", "vllm")
    yield Statement("rollout.colocated", "(program)", True)
    yield from state_forward_only("reference")
