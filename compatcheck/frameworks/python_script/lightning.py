"""What a script says by Lightning's ``Fabric`` and ``Trainer``: precision, strategy and devices; the loop is the script's own."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.frameworks.conversions import LEAVE
from compatcheck.frameworks.keys import KeyTable
from compatcheck.frameworks.python_script.calls import Call, Given
from compatcheck.frameworks.python_script.nodes import dotted_name
from compatcheck.frameworks.translation import translate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from compatcheck.core.source import Source
    from compatcheck.frameworks.launch.values import Argument
    from compatcheck.frameworks.python_script.objects import Objects

READER = "lightning"
_PACKAGES = ("lightning", "lightning_fabric", "pytorch_lightning")
_MAKERS = ("Fabric", "Trainer")
_STRATEGIES = {
    "DDPStrategy": "ddp", "FSDPStrategy": "fsdp", "DeepSpeedStrategy": "deepspeed", "SingleDeviceStrategy": "auto",
    "ModelParallelStrategy": "model_parallel",
}  # fmt: skip
"""Classes of strategies and the names that stand for their defaults."""
_OF_DDP = {"gradient_as_bucket_view": "training.gradient_as_bucket_view"}
_OF_FSDP = {
    "sharding_strategy": "training.fsdp_sharding_strategy",
    "cpu_offload": "training.fsdp_offload_params",
    "use_orig_params": "training.fsdp_use_orig_params",
    "limit_all_gathers": "training.fsdp_limit_all_gathers",
}
_OF_DEEPSPEED = {
    "stage": "training.zero_stage",
    "offload_optimizer": "training.offload_optimizer",
    "offload_parameters": "training.offload_param",
    "allgather_bucket_size": "training.allgather_bucket_size",
    "reduce_bucket_size": "training.reduce_bucket_size",
    "overlap_comm": "training.overlap_comm",
    "contiguous_gradients": "training.contiguous_gradients",
}
OF_ACCELERATE = ("program.uses_accelerate", "program.fsdp_by_accelerate", "program.converts_outputs")
"""What a program does that leaves its model to accelerate."""
_BY_HAND = frozenset({"automatic_optimization", "manual_backward"})
"""What a module that takes its steps itself mentions."""
_SWITCHES = frozenset({"offload_optimizer", "offload_parameters"})


def _count(value: Any) -> Any:  # noqa: ANN401 (an argument)
    """Count devices: a number, or indices in a list or a text; ``auto`` and -1 are those that the machine has."""
    if isinstance(value, str) and "," in value:
        return len([part for part in value.split(",") if part.strip()])
    if isinstance(value, list | tuple):
        return len(value)
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    return number if type(number) is int and number > 0 else LEAVE


TABLE = KeyTable(__file__, "lightning.txt", {"devices": _count})
"""Argument → meaning."""


def find_package(call: Call, objects: Objects) -> str | None:
    """Return the name of what a call makes where it is Lightning's: ``Fabric``, ``Trainer``, a strategy."""
    first, _, _ = dotted_name(call.node.func).partition(".")
    path = objects.imports.get(first, "")
    known = call.name in _MAKERS or call.name in _STRATEGIES
    return call.name if known and path.partition(".")[0] in _PACKAGES else None


def read_options(options: Mapping[str, Argument], source: Source) -> Iterator[Document]:
    """Read the precision and the strategy that a launcher gives a Fabric (``LT_PRECISION``, ``LT_STRATEGY``)."""
    given = {name: options[name] for name in ("precision", "strategy") if name in options}
    known = {name: one.value for name, one in given.items() if one.why is None}
    found = translate(iter(known.items()), TABLE, irrelevant=lambda _: True, source=source)
    if given:
        lines = {name: one.line for name, one in given.items() if one.line is not None}
        yield Document(
            "launcher",
            source,
            found.statements,
            is_command=True,
            lines=lines,
            unresolved=(*found.unresolved, *_open(given)),
        )


def _open(given: Mapping[str, Given] | Mapping[str, Argument]) -> Iterator[Unresolved]:
    for key, one in given.items():
        if one.why is not None:
            yield from (Unresolved(meaning.fact, key, one.why) for meaning in TABLE[key])


class Lightning:
    """What the calls of one script say, gathered by argument."""

    def __init__(self) -> None:
        """Start with no call."""
        self.made: Call | None = None
        self.several = False
        self.strategies: list[Call] = []

    def take(self, call: Call) -> None:
        """Take one call."""
        if call.name in _STRATEGIES:
            self.strategies.append(call)
        else:
            self.several = self.made is not None
            self.made = call

    def tell(self, source: Source, names: Collection[str] = ()) -> Document | None:
        """Return what they say together; None where no Fabric and no Trainer is made.

        Args:
            source: the script.
            names: what it mentions.
        """
        call = self.made
        if call is None:
            return None
        given = {name: one for name, one in call.keywords.items() if name in TABLE}
        for name in ("precision", "strategy", "devices", "num_nodes", "accumulate_grad_batches"):
            if name not in given and (call.is_open or (name == "precision" and "plugins" in call.keywords)):
                given[name] = Given(None, call.line, f"may be among the arguments of {call.name} that are no literals")
        if self.several:
            given = {key: one._replace(why=f"{call.name} is made more than once") for key, one in given.items()}
        own, lines = self._take_strategy(call, given)
        # no part of accelerate has a hand in it (fabric/connector.py, pytorch/trainer/connectors/accelerator_connector.py)
        own += [Statement(fact, call.name, value=False) for fact in OF_ACCELERATE]
        if call.name == "Fabric":  # its modules return float32 (fabric/wrappers.py _FabricModule.forward)
            own.append(Statement("program.casts_logits", call.name, value=True))
        elif _BY_HAND.isdisjoint(names):
            # pytorch/loops/optimization/automatic.py Closure.closure(): step, zero_grad, backward
            own.append(Statement("program.clears_gradients_late", call.name, value=True))
        given.setdefault("precision", Given(None, call.line))
        if given.get("strategy", Given(None, 0)).value in TABLE.words["stage"]:
            given["precision_of_deepspeed"] = given.pop("precision")
        known = {key: one.value for key, one in given.items() if one.why is None}
        translation = translate(iter(known.items()), TABLE, irrelevant=lambda _: True, source=source)
        stated = {one.fact for one in own}
        return Document(
            READER,
            source,
            (*own, *(one for one in translation.statements if one.fact not in stated)),
            skipped=translation.skipped,
            lines={call.name: call.line, **{key: one.line for key, one in given.items()}, **lines},
            unresolved=(*translation.unresolved, *_open(given)),
        )

    def _take_strategy(self, call: Call, given: dict[str, Given]) -> tuple[list[Statement], Mapping[str, int]]:
        """Put the name of the strategy that is made by its class in its place; return what this class is given."""
        strategy = given.get("strategy")
        if strategy is None or strategy.why is None:
            return [], {}
        written = call.written.get("strategy")
        value = call.scope.find(written.id) if isinstance(written, ast.Name) else written
        made = [one for one in self.strategies if one.node is value]
        if len(made) != 1 or made[0].condition is not None:
            return [], {}
        (one,) = made
        given["strategy"] = Given(_STRATEGIES[one.name], one.line)
        table = {"DDPStrategy": _OF_DDP, "FSDPStrategy": _OF_FSDP, "DeepSpeedStrategy": _OF_DEEPSPEED}.get(one.name, {})
        statements = []
        for key, fact in table.items():
            argument = one.keywords.get(key)
            if argument is not None and argument.why is None and isinstance(argument.value, str | int):
                worth = argument.value.lower() if isinstance(argument.value, str) else argument.value
                statements.append(Statement(fact, key, ("cpu" if worth else None) if key in _SWITCHES else worth))
        policy = one.keywords.get("activation_checkpointing_policy") or one.keywords.get("activation_checkpointing")
        if policy is not None and (policy.why is not None or policy.value):
            statements.append(
                Statement("training.fsdp_activation_checkpointing", "activation_checkpointing_policy", value=True)
            )
        return statements, dict.fromkeys((*table, "activation_checkpointing_policy"), one.line)
