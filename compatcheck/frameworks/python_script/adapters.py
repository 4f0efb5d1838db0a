"""Which configurations of adapters a script gives its model, and whether by that model's own methods or peft's ``PeftModel``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from compatcheck.frameworks.python_script.handed_over import Family, find_made
from compatcheck.frameworks.python_script.objects import ADAPTER_CONFIGS, given_to

if TYPE_CHECKING:
    from compatcheck.frameworks.python_script.calls import Call, Scope, Script
    from compatcheck.frameworks.python_script.objects import Objects

ASKING = frozenset({
    "add_adapter", "set_adapter", "enable_adapters", "disable_adapters", "active_adapters", "delete_adapter",
    "get_adapter_state_dict", "load_adapter",
})  # fmt: skip
"""Methods of a model that look at peft's release, or have saving look at it.

Source: transformers 5.23.0 integrations/peft.py.
"""
PREPARES = frozenset({"prepare_model_for_kbit_training", "prepare_model_for_int8_training"})
"""peft's function that readies a quantised base; the second name is that of releases before 0.4.0, kept up to 0.9.0."""
MODEL_OPTIONS = "ModelConfig"
"""TRL's options about the model and its adapters."""
OF_OPTIONS = "get_peft_config"
"""TRL's function that makes a configuration of them (trl 0.9.6 to 1.16.0 trainer/utils.py)."""


def _is_told(node: ast.Call, scope: Scope, objects: Objects) -> bool:
    return objects.last_name(node) != OF_OPTIONS or find_options(node, scope, objects) is not None


CONFIGS = Family(
    makers=frozenset({*ADAPTER_CONFIGS, OF_OPTIONS}),
    keywords=("peft_config", "adapter_config"),
    places={
        "get_peft_model": 1, "inject_adapter_in_model": 0, "PeftModel": 1, "PeftModelForCausalLM": 1, "add_adapter": 0,
    },
    is_told=_is_told,
)  # fmt: skip
"""Configurations of adapters, and where functions and classes take one that is not named (peft 0.21.2)."""


def find_configs(node: ast.expr | None, scope: Scope, objects: Objects) -> tuple[ast.Call, ...] | None:
    """Return the calls that may make the configuration of adapters which an expression is.

    Returns:
        None where it may be any, or one that is not read, and no call where there is none.
    """
    found = find_made(node, scope, objects, CONFIGS)
    return None if found is None or any(objects.last_name(one) not in CONFIGS.makers for one in found) else found


def find_options(node: ast.Call, scope: Scope, objects: Objects) -> ast.Call | None:
    """Return the ``ModelConfig`` of TRL that its function is given, where it is made here; None for one that a parser fills."""
    values = given_to(node)
    made = scope.find(values[0].id) if values and isinstance(values[0], ast.Name) else next(iter(values), None)
    path = (objects.path(made.func) or "") if isinstance(made, ast.Call) else ""
    return (
        made if isinstance(made, ast.Call) and path.startswith("trl.") and path.endswith(f".{MODEL_OPTIONS}") else None
    )


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
            if any(find_configs(one, call.scope, objects) for one in (*call.node.args[:1], *named)):
                return call
    return None


def names_none(script: Script) -> bool:
    """Tell whether no method is named that an adapter of the model's own needs."""
    return ASKING.isdisjoint(script.names)
