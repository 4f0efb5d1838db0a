"""How the names of adapted layers reach the experts of a model, by what is known of the releases of peft and transformers."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from compatcheck.architectures.adapters import Layout
from compatcheck.core.versions import compile_specifier, contains
from compatcheck.rules.locate import open_builtin

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    table = open_builtin().section("tables/expert-parameters") or {}

    def holds(of: str, release: tuple[int, ...], usual: str) -> bool:
        text = (table.get(of) or {}).get(model_type, usual)
        return contains(compile_specifier(text), ".".join(map(str, release))) == "yes"

    found = []
    given = (
        (versions[name],) if name in versions else usual
        for name, usual in (("transformers", _TRANSFORMERS), ("peft", _PEFT))
    )
    for transformers, peft in product(*given):
        turned = lora and peft >= (0, 19) and holds("turned", transformers, "==0")
        found.append(
            Layout(
                fused=holds("experts", transformers, ">=5.0.0"),
                router_apart=holds("router", transformers, ">=5.0.0"),
                turned=turned,
                all_turned=turned and peft >= (0, 20),
                listed=listed,
            )
        )
    return tuple(dict.fromkeys(found))
