"""Whether a script gives a model of transformers adapters by the model's own methods, and not by peft's ``PeftModel``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatcheck.frameworks.python_script.calls import Call, Script
    from compatcheck.frameworks.python_script.objects import Objects

ASKING = frozenset({
    "add_adapter", "set_adapter", "enable_adapters", "disable_adapters", "active_adapters", "delete_adapter",
    "get_adapter_state_dict", "load_adapter",
})  # fmt: skip
"""Methods of a model that look at peft's release, or have saving look at it.

Source: transformers 5.23.0 integrations/peft.py.
"""


def find_own_adapter(script: Script, objects: Objects) -> Call | None:
    """Return the call that surely gives a model of transformers an adapter.

    Its first argument is the configuration; that of ``PeftModel.add_adapter`` is a name. Models of diffusers have a method
    that looks the same.
    """
    if any(path.partition(".")[0] == "diffusers" for path in objects.imports.values()):
        return None
    for call in script.calls():
        if call.name == "add_adapter" and call.condition is None:
            named = [word.value for word in call.node.keywords if word.arg == "adapter_config"]
            if objects.is_lora([*call.node.args[:1], *named], call.scope):
                return call
    return None


def names_none(script: Script) -> bool:
    """Tell whether no method is named that an adapter of the model's own needs."""
    return ASKING.isdisjoint(script.names)
