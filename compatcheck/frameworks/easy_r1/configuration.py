"""EasyR1's configurations (``examples/config.yaml``): a fork of verl with keys of its own (``worker.actor.…``, OmegaConf).

Read at its main branch (``examples/config.yaml``, ``verl/workers/config.py``). Micro batches count sequences of one device.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.composition import merge_options, retell_counted
from compatcheck.frameworks.conversions import constant
from compatcheck.frameworks.keys import SILENT, Key, KeyTable, Names
from compatcheck.frameworks.launch.arguments import OptionMeanings, name_roles, state_forward_only
from compatcheck.frameworks.launch.interpolation import follow_all
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

READER, LABEL = "easy-r1", "EasyR1"
TABLE = KeyTable(__file__)
"""Key → meaning."""
NAMES = Names(__file__)
_BATCH, _WITHOUT_KL = "worker.actor.global_batch_size", "algorithm.disable_kl"
_OF_LOSS, _IN_LOSS = "worker.actor.kl_loss_coef", "worker.actor.use_kl_loss"
_EARLY = re.compile(
    r"worker\.actor\.(use_kl_loss|kl_loss_\w+|entropy_coeff)|worker\.\w+\.offload\.(param|optimizer)_offload"
)
"""Keys that 0.3 has no longer, nor its way with what they decide."""
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
    return tuple(retell_counted(one, whole, settled, meanings, state_fixed(whole)) for one in documents)


def make_meanings(options: Mapping[str, Argument], *, has_critic: bool) -> OptionMeanings:
    """Leave out the critic where there is none: it is there when advantages are estimated with one (``gae``).

    Batches of an update count prompts, each with ``rollout.n`` completions (``verl/workers/fsdp_workers.py``); filled up to a
    number of tokens, they are gone through in fewer forwards than they have sequences, and that is left open. Without a
    reference the KL term weighs nothing (v0.3.2 ``verl/trainer/ray_trainer.py``). Before 0.3 it stood in the loss with a
    coefficient of its own, unless that was switched off, and no batch was filled up.
    """
    table = {key: meanings for key, meanings in TABLE.items() if has_critic or not key.startswith(CRITIC)}
    n, filled = options.get("worker.rollout.n", Argument(1, None)), options.get("worker.actor.dynamic_batching")
    early, in_loss = is_early(options), options.get(_IN_LOSS, Argument(True, None))
    if early and in_loss.why is None:
        table["algorithm.kl_coef" if in_loss.value else _OF_LOSS] = SILENT
    if n.why is None and type(n.value) is int and (early if filled is None else filled.value is False):
        times = n.value
        table[_BATCH] = (Key("training.global_batch_size", lambda size: size * times, "actor"),)
    disabled = options.get(_WITHOUT_KL)
    if disabled is not None and disabled.value is True:
        table["algorithm.kl_coef"] = SILENT
        table[_WITHOUT_KL] = (*table[_WITHOUT_KL], Key("training.kl_coefficient", constant(0), "actor"))
    return OptionMeanings(READER, table, NAMES.__contains__, {MODEL: "model"})


def is_early(options: Iterable[str]) -> bool:
    """Tell whether keys are those of EasyR1 before 0.3."""
    return any(map(_EARLY.fullmatch, options))


def state_fixed(options: Iterable[str]) -> Iterator[Statement]:
    """Say what EasyR1 does without being asked: FSDP1, vLLM on the trainer's devices.

    Before 0.3 every forward of the policy computed the entropy, and no variable of NCCL was set (0.2.0.dev, as
    dvlab-research/Seg-Zero 42a3345 has it: ``verl/workers/actor/dp_actor.py``, ``verl/trainer/main.py``).
    """
    if is_early(options):
        yield Statement("program.computes_entropy", "(keys before 0.3)", "always")
        yield Statement("program.avoids_record_streams", "(keys before 0.3)", value=False)
    yield from name_roles(("actor", "reference"))
    yield Statement("training.sharding", "(program)", "fsdp")
    yield Statement("training.fsdp_version", "(program)", 1)
    yield Statement("rollout.engine", "(program)", "vllm")
    yield Statement("rollout.colocated", "(program)", True)
    yield from state_forward_only("reference")
