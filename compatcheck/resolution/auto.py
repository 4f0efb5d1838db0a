"""Fill in ``auto`` values of a DeepSpeed file the way their owner does.

Only the HF Trainer and accelerate (and TRL above them) fill them in. Source of the formulas:
``transformers/integrations/deepspeed.py``, ``HfTrainerDeepSpeedConfig.trainer_config_finalize``, and accelerate's
``DeepSpeedPlugin`` and ``Accelerator._prepare_deepspeed``, through which the Trainer goes as well: what the Trainer leaves at
``auto`` (prefetch bucket and persistence threshold below stage 3), accelerate fills in, and it refuses to start on any
``auto`` that is left then (read in accelerate 0.25.0 and 1.15.0; its ``DeepSpeedPlugin`` run in both).

DeepSpeed itself drops ``auto`` inside ``zero_optimization`` and keeps its own default (``runtime/config_utils.py``,
``DeepSpeedConfigModel``, 0.16.7); outside of it ``auto`` is an error.
"""

from __future__ import annotations

from compatcheck.core.document import AUTO
from compatcheck.core.facts import Fact
from compatcheck.rules.programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Value
    from compatcheck.core.source import Source

_TRAINER_FACTS = {
    "training.micro_batch_size",
    "training.gradient_accumulation_steps",
    "training.global_batch_size",
    "training.mixed_precision",
}
"""``auto`` means: whatever the trainer's own argument or default says."""

_PLUGIN_VALUES: dict[str, Value] = {
    "training.zero_stage": 2,
    "training.offload_optimizer": None,
    "training.offload_param": None,
    "training.gather_16bit_weights_on_save": False,
}
"""What accelerate's ``DeepSpeedPlugin`` puts in place of ``auto`` unless an ``ACCELERATE_DEEPSPEED_…`` variable says
otherwise."""

_DROPPED_IN = "zero_optimization."
"""Section in which DeepSpeed, without an owner of ``auto`` above it, keeps its own default."""

_HIDDEN_SIZE_FORMULAS: dict[str, tuple[Callable[[int], float], str]] = {
    "training.reduce_bucket_size": (lambda hidden: hidden * hidden, "hidden_size²"),
    "training.prefetch_bucket_size": (lambda hidden: 0.9 * hidden * hidden, "0.9 × hidden_size²"),
    "training.param_persistence_threshold": (lambda hidden: 10 * hidden, "10 × hidden_size"),
}
"""What ``auto`` means for sizes that depend on the model."""


def fill_in(
    automatic: Mapping[str, Source],
    facts: Mapping[str, Fact],
    readers: set[str],
) -> tuple[dict[str, Fact], dict[str, str]]:
    """Resolve ``auto`` values.

    Returns:
        Resolved facts, and for the others why nobody fills them in.
    """
    resolved: dict[str, Fact] = {}
    reasons: dict[str, str] = {}
    owned = any(find_program(reader).reconciles_deepspeed for reader in readers)
    for name, source in automatic.items():
        if not owned:
            reasons[name] = (
                "`auto` is filled in by the HF Trainer or accelerate, and no configuration of theirs was given"
            )
        elif name in _TRAINER_FACTS:  # the owner's own default row applies, as for a key left out
            reasons[name] = "`auto` takes the program's own argument, which no input states"
        elif name in _PLUGIN_VALUES:
            words = "auto in accelerate, unless an ACCELERATE_DEEPSPEED variable says otherwise"
            resolved[name] = Fact(name, _PLUGIN_VALUES[name], "derived", (source,), words)
        elif name in _HIDDEN_SIZE_FORMULAS:
            hidden = facts.get("model.hidden_size")
            if hidden is None or not isinstance(hidden.value, int):
                reasons[name] = "`auto` depends on the model's hidden_size; give --model"
                continue
            formula, words = _HIDDEN_SIZE_FORMULAS[name]
            value = int(formula(hidden.value))
            resolved[name] = Fact(
                name,
                value,
                "derived",
                (source, *hidden.sources),
                f"auto = {words} in the HF Trainer",
            )
        else:
            reasons[name] = "`auto` is not filled in for this key: accelerate refuses to start"
    return resolved, reasons


def drop_unowned(documents: Sequence[Document], facts: Mapping[str, Fact]) -> Sequence[Document]:
    """Leave out the ``auto`` values that DeepSpeed drops where a run is known to hand its file to DeepSpeed itself."""
    framework = facts.get("training.framework")
    if framework is None or not find_program(str(framework.value)).drops_auto:
        return documents
    return [
        document._replace(
            statements=tuple(
                statement
                for statement in document.statements
                if statement.value is not AUTO or not statement.key.startswith(_DROPPED_IN)
            )
        )
        if document.reader == "deepspeed"
        else document
        for document in documents
    ]
