"""EasyR1's configurations (``examples/config.yaml``): a fork of verl with keys of its own (``worker.actor.…``, OmegaConf).

Read at its main branch (``examples/config.yaml``, ``verl/workers/config.py``). Micro batches count sequences of one device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement
from compatcheck.core.source import Source
from compatcheck.frameworks.keys import KeyTable, Names, Table
from compatcheck.frameworks.launch.arguments import name_roles, state_forward_only
from compatcheck.frameworks.reader import Reading
from compatcheck.frameworks.translation import flatten, translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READER, LABEL = "easy-r1", "EasyR1"
TABLE = KeyTable(__file__)
"""Key → meaning."""
NAMES = Names(__file__)
CRITIC, ESTIMATOR, MODEL = "worker.critic.", "algorithm.adv_estimator", "worker.actor.model.model_path"


def recognise(data: Mapping[str, Any]) -> bool:
    """Tell whether parsed data is a configuration of EasyR1."""
    worker = data.get("worker")
    return isinstance(worker, dict) and {"actor", "rollout"} <= worker.keys()


def read(data: Mapping[str, Any], path: str) -> Reading:
    """Translate a parsed configuration; one without an estimator has no critic."""
    source = Source(path)
    leaves = dict(flatten(data))
    table = table_for(has_critic=leaves.get(ESTIMATOR) == "gae")
    translation = translate(iter(leaves.items()), table, irrelevant=NAMES.__contains__, source=source)
    model = leaves.get(MODEL)
    references = (("model", model, MODEL),) if isinstance(model, str) else ()
    statements = (*translation.statements, *state_fixed())
    document = Document(READER, source, statements, translation.unread, translation.skipped, references)
    return Reading((document._replace(table=table),))


def table_for(*, has_critic: bool) -> Table:
    """Leave out the critic where there is none: it is there when advantages are estimated with one (``gae``)."""
    return {key: meanings for key, meanings in TABLE.items() if has_critic or not key.startswith(CRITIC)}


def state_fixed() -> Iterator[Statement]:
    """Say what EasyR1 does without being asked: FSDP1, vLLM on the trainer's devices."""
    yield from name_roles(("actor", "reference"))
    yield Statement("training.sharding", "(program)", "fsdp")
    yield Statement("training.fsdp_version", "(program)", 1)
    yield Statement("rollout.engine", "(program)", "vllm")
    yield Statement("rollout.colocated", "(program)", True)
    yield from state_forward_only("reference")
