"""How many parameters low-rank adapters have, and what of it hangs on releases and programs that nobody names or read."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from compatcheck.architectures import adapters
from compatcheck.architectures.adapters import HEADS, LOW_RANK, OF_TOWER, Layout, count_adapted, list_adapted
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.rules.locate import open_builtin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.architectures.adapters import Adapted
    from compatcheck.memory.asked_facts import Given
    from compatcheck.memory.run import Model


class AdapterCount(NamedTuple):
    """What low-rank adapters lie beside."""

    targets: tuple[str, ...]
    """Those of the run; behind ``vision:`` again where they are looked for in the tower, too."""
    layers: tuple[Adapted, ...] = ()
    """Adapted layers, where the model's are listed."""
    parameters: int = 0
    fewer: int = 0
    """How many of them may be missing."""
    more: int = 0
    """How many more there may be."""


def count_adapters(
    source: Given,
    model: Model,
    peft: str | None,
    rank: int,
    targets: tuple[str, ...],
    versions: Mapping[str, tuple[int, ...]],
) -> AdapterCount:
    """Count the parameters of low-rank adapters beside modules, as far as their names tell; none of other methods.

    Where several releases or places are possible, the likeliest is counted.
    """
    if peft not in LOW_RANK:
        return AdapterCount(targets)
    reached = _reach_towers(source, model, targets)
    dora, named = peft == "dora", not HEADS.isdisjoint(targets)
    if not model.listed or model.linears != model.model_type:
        counts = [
            adapters.count_adapters(model, rank, names, decomposed=dora)
            + adapters.count_tower_adapters(model.tower, rank, names, decomposed=dora)
            for names in reached
        ]
        return AdapterCount(reached[0], (), counts[0], *_spread(source, counts))
    listed = source.get("program.lists_linears") is True
    layouts = list_layouts(model.model_type, versions, lora=peft != "adalora", listed=listed)
    found = [list_adapted(model.listed, names, one, tower=model.tower) for names in reached for one in layouts]
    head = rank * (model.hidden + model.vocab) + (model.vocab if dora else 0) if named else 0
    counts = [count_adapted(layers, rank, decomposed=dora) + head for layers in found]
    return AdapterCount(reached[0], found[0], counts[0], *_spread(source, counts))


def _spread(source: Given, counts: list[int]) -> tuple[int, int]:
    """Return how far the least and the most are from the likeliest; nothing where the number is stated."""
    if source.get("model.trainable_parameters") is not None:
        return 0, 0
    return counts[0] - min(counts), max(counts) - counts[0]


def _reach_towers(source: Given, model: Model, targets: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the targets, with those in the tower where its layers are meant, too; both where nobody read whether they are."""
    reaches = source.get("program.adapts_towers")
    if not model.tower or reaches is False or any(name.startswith(OF_TOWER) for name in targets):
        return (targets,)
    both = (*targets, *(f"{OF_TOWER}{name}" for name in targets))
    return (both,) if reaches else (targets, both)


_NEWEST = (999,)
_PEFT = (_NEWEST, (0, 19), (0, 18))
_TRANSFORMERS = (_NEWEST, (5, 0), (4, 57))
"""What a release that nobody names may be, the newest first: one from before and after each change."""


def list_layouts(
    model_type: str, versions: Mapping[str, tuple[int, ...]], *, lora: bool = True, listed: bool = False
) -> tuple[Layout, ...]:
    """Return what the layout may be, the likeliest first; one where both releases are known.

    Args:
        model_type: the model's type in transformers.
        versions: known releases by distribution.
        lora: whether peft knows the adapters as LoRA's, which alone it turns.
        listed: whether a program lists all linear layers itself.
    """
    found = []
    given = (
        (versions[name],) if name in versions else usual
        for name, usual in (("transformers", _TRANSFORMERS), ("peft", _PEFT))
    )
    for transformers, peft in product(*given):
        turned = lora and peft >= (0, 19) and _holds("turned", model_type, transformers)
        found.append(
            Layout(
                fused=has_fused_experts(model_type, transformers),
                router_apart=_holds("router", model_type, transformers),
                turned=turned,
                all_turned=turned and peft >= (0, 20),
                listed=listed,
            )
        )
    return tuple(dict.fromkeys(found))


def has_fused_experts(model_type: str, release: tuple[int, ...]) -> bool:
    """Tell whether the routed experts of a layer are parameters of several dimensions, and no linear layers, in a release."""
    return _holds("experts", model_type, release)


def _holds(of: str, model_type: str, release: tuple[int, ...]) -> bool:
    """Tell whether a release of transformers is one of those of the table of experts for a type."""
    rows = (open_builtin().section("tables/expert-parameters") or {}).get(of) or {}
    text = rows.get(model_type, rows.get("*", "==0"))
    return contains(compile_specifier(text), ".".join(map(str, release))) == "yes"


def usual_targets(model_type: str) -> tuple[str, ...]:
    """Return the layers that peft adapts for a model type where nobody names any; all linear ones of a type that it refuses."""
    names = (open_builtin().section("tables/peft-lora-targets") or {}).get("names") or {}
    return tuple(names.get(model_type, ("all-linear",)))
