"""Write the class defaults of transformers' configuration classes, for types that are named: ``data/README.md`` has the command.

Runs inside an environment with transformers and imports nothing of compatcheck. Only keys that dimensions or counts can
depend on are kept. The committed file came from transformers 5.23.0, named in its first line.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from typing import Any

from tests.unit.architectures.measure_counts import choose_class  # beside this script

IRRELEVANT = re.compile(
    r"drop|token_id|token_index|eps(ilon)?$|init|(?<!router_aux_loss_)coef|^transformers_version$|problem_type|label|return_dict|chunk_size_feed|^rope_|^(embedding|residual|attention|logits?|routed)_(multiplier|scaling)|"
    r"^output_hidden|^architectures$|scaling_factor|jitter|_act$|activation|final_logit_softcap|summary|pretraining_tp|"
    r"theta|_scale$|_std$|^is_decoder$|^(begin_)?suppress|^mask_|apply_spec|median_filter|^dtype$",
)


def read_defaults(cls: Any) -> dict[str, Any]:
    """Return the defaults that the class gives to keys left out, before it derives anything from other keys."""
    found: dict[str, Any] = {}
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if field.default is not dataclasses.MISSING:
                found[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                found[field.name] = field.default_factory()
    else:
        for base in reversed(cls.__mro__):
            if "__init__" in vars(base):
                parameters = inspect.signature(base.__init__).parameters.values()
                found.update({p.name: p.default for p in parameters if p.default is not p.empty})
    nested = set(getattr(cls, "sub_configs", None) or ())
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in found.items()
        if name not in nested
        and not IRRELEVANT.search(name)
        and (value is None or isinstance(value, (bool, int, float, str, list, tuple)))
    }


def read(part: Any, name: str) -> Any:
    """Return a value of a configuration, the global one where layers may differ in it, which its class refuses to tell."""
    try:
        return object.__getattribute__(part, name)
    except AttributeError:
        return None


def read_parts(cls: Any) -> dict[str, dict[str, Any]]:
    """Return, per nested configuration, its type and the keys in which the default one differs from its class."""
    parts: dict[str, dict[str, Any]] = {}
    default = cls() if getattr(cls, "sub_configs", None) else None
    for name in getattr(cls, "sub_configs", None) or ():
        nested = getattr(default, name, None)
        if nested is None or isinstance(nested, dict):
            continue
        plain = type(nested)()
        values = read_defaults(type(nested))
        # the default part may spell values its class leaves to derivation: keep what a bare instance of the class has not
        differs = {k: read(nested, k) for k in values if read(nested, k) != read(plain, k)}
        # a part without a model type is found under its parent alone, with all its defaults
        spec = getattr(cls, "sub_configs_defaults", {}).get(name)
        stated = {k: v for k, v in getattr(spec, "init_kwargs", {}).items() if k in values}
        parts[name] = {"model_type": nested.model_type, **stated, **differs} if nested.model_type else values
    return parts


def name_class(model_type: str) -> str | None:
    """Return the class that is counted for the type; None for types that occur only inside others."""
    try:
        return choose_class(model_type, None).__name__
    except LookupError:
        return None


def main() -> None:
    """Print one line per model type, nested types included."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    print(f"# transformers {transformers.__version__}")
    classes: dict[str, Any] = {}
    waiting = [CONFIG_MAPPING[model_type] for model_type in sys.argv[1:]]
    while waiting:
        cls = waiting.pop()
        if not cls.model_type or cls.model_type in classes:
            continue
        classes[cls.model_type] = cls
        if getattr(cls, "sub_configs", None):
            default = cls()
            waiting += [type(part) for name in cls.sub_configs if hasattr(part := getattr(default, name), "model_type")]
    for model_type, cls in sorted(classes.items()):
        row: dict[str, Any] = {"architecture": name_class(model_type)}
        row |= {"values": read_defaults(cls), "aliases": dict(cls.attribute_map), "parts": read_parts(cls)}
        print(json.dumps(model_type), json.dumps({k: v for k, v in row.items() if v}, separators=(",", ":")))


if __name__ == "__main__":
    main()
