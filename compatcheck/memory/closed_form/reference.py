"""The frozen copy of the policy that preference and policy trainers compare with, where it is no role of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import NOTHING, Component, Size
from compatcheck.core.facts import Fact
from compatcheck.memory.closed_form.parallel import held

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Value
    from compatcheck.memory.run import Run

NONE, MAYBE, SURE = Size(0, 0, 0), Size(0, 0, 1), Size(1, 1, 1)
PREFERENCE = frozenset({"dpo", "kto", "bco"})
"""Trainers that compare with a reference unless its log-probabilities were computed before."""
ALWAYS = frozenset({"ppo", "online_dpo", "xpo", "nash_md"})
"""Trainers of TRL that keep one whatever the KL coefficient is (ppo_trainer.py, online_dpo_trainer.py v0.19.0)."""
BY_COEFFICIENT = frozenset({"grpo", "rloo"})
"""Trainers of TRL that keep one where the KL coefficient is not 0 (grpo_trainer.py v0.19.0: ``if self.beta == 0.0``)."""
WITHOUT = frozenset({"orpo", "simpo", "cpo"})
"""Losses that have no reference."""
_KEPT_THOUGH_PRECOMPUTED = ((0, 29), (1, 2))
"""Releases of TRL whose DPO loads it all the same (rule trl/reference-model-loaded-though-precomputed)."""
_SHARDED_BY_FSDP = {"dpo": (0, 16), "grpo": (0, 18)}
"""First release of TRL that gives it to FSDP (``prepare_fsdp`` in *_trainer.py; read in all tags). Before, and in the other
trainers, ``accelerator.prepare_model(evaluation_mode=True)`` leaves it whole."""
SOURCE = "TRL dpo_trainer.py, models/utils.py prepare_deepspeed; OpenRLHF cli/train_dpo.py, get_ds_eval_config"


def count_references(facts: Mapping[str, Fact | Value], trl: tuple[int, ...] | None = None) -> Size:
    """Return how many reference models a trainer keeps beside the policy: 0 or 1 as bounds, 0 to 1 where nobody can tell.

    With adapters the policy without them is its own reference, unless the program is known to load a second one all the same.
    """

    def get(name: str) -> Value:
        fact = facts.get(name)
        return fact.value if isinstance(fact, Fact) else fact

    stated, trainer = get("training.reference_model"), get("training.trainer")
    if isinstance(stated, bool):
        return SURE if stated else NONE
    if get("training.loss_type") in WITHOUT or (
        get("program.adapters_off_is_reference") is not False and get("training.peft") not in {None, "freeze"}
    ):
        return NONE
    if trainer in PREFERENCE:
        if get("program.reference_by_script"):
            return MAYBE
        if not get("training.precompute_ref_log_probs"):
            return SURE
        first, last = _KEPT_THOUGH_PRECOMPUTED
        if trainer != "dpo" or get("program.code") != "trl":
            return NONE
        return MAYBE if trl is None else SURE if first <= trl < last else NONE
    if get("training.framework") is None or get("program.runs_trl_trainers"):
        if trainer in ALWAYS:
            return SURE
        coefficient = get("training.kl_coefficient")
        if trainer in BY_COEFFICIENT:
            return MAYBE if coefficient is None else SURE if coefficient else NONE
    return NONE


def teacher_parameters(run: Run) -> tuple[Component, ...]:
    """Return the parameters of the model that TRL's GKDTrainer distils; its dtype is the script's: 2 or 4 bytes each.

    DeepSpeed shards it at stage 3; every other preparation leaves it whole (GKDTrainer.__init__ of TRL 0.26.0 and 1.16.0).
    """
    if not run.teacher:
        return ()
    parallel = run.parallel
    ranks = parallel.shard if parallel.sharding == "zero" and parallel.stage == 3 else 1
    each = 2 if run.precision.frozen <= 2 else 4
    whole = run.teacher / ranks
    text = f"{each:g} B × {run.teacher:,}" + (f" / {ranks} ranks" if ranks > 1 else "")
    size = Size(int(2 * whole), int(each * whole), int(4 * whole))
    return (
        Component("teacher's parameters", "parameters", size, text, SOURCE, run.role, ("training.teacher_parameters",)),
    )


def reference_parameters(run: Run) -> tuple[Component, ...]:
    """Return the parameters of the reference.

    DeepSpeed shards them at stage 3 and keeps a full copy at any other (TRL models/utils.py prepare_deepspeed sets stage 0;
    OpenRLHF get_ds_eval_config likewise); FSDP shards them from the releases in `_SHARDED_BY_FSDP` on; DDP keeps a full copy.
    """
    if run.references == NOTHING:
        return ()
    parallel, precision = run.parallel, run.precision
    loaded = precision.frozen if run.reference_bytes is None else run.reference_bytes
    each = precision.stored if parallel.sharding == "zero" else loaded
    whole = each * held(run).total
    least = usual = whole
    words = ""
    if parallel.stage == 3 and parallel.shard > 1:
        part = whole / parallel.shard
        first, release = _SHARDED_BY_FSDP.get(run.trainer), run.release("trl")
        if parallel.sharding == "zero":
            least = usual = part
            whole = part
            words = f" / {parallel.shard} ranks"
        elif first is not None and (release is None or release >= first):
            least = usual = part
            whole = part if release is not None else whole
            words = f" / {parallel.shard} ranks"
        elif release is None:
            least = part
    if parallel.sharding == "zero" and parallel.stage == 3 and run.offload_param and run.reference_offloads:
        least = usual = 0.0  # the same configuration of DeepSpeed is used for it
        words += ", offloaded"
    low, expected, high = run.references
    size = Size(int(low * least), int(expected * usual), int(high * whole))
    text = f"{each:g} B × {held(run).total:,.0f}{words}"
    if not expected:
        text = f"none, or {text}: depends on the KL coefficient or the program"
    facts = (
        *("training.reference_model", "training.reference_load_dtype"),
        *("training.kl_coefficient", "training.precompute_ref_log_probs"),
    )
    return (Component("reference model's parameters", "parameters", size, text, SOURCE, run.role, facts),)
