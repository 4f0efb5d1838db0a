"""Print the fields of configuration classes and the values to try: a program of its own, for the interpreter under test.

``python fields.py CLASS[,CLASS] …`` prints one line of JSON: class → field → values other than the default, of those fields that
the class's own package declares. Of a boolean that is the other one, of an enumeration, a ``Literal`` or stated choices every
other one; of a number that is nothing or off (None, 0) a small one, of 1 the next or half of it. Sizes, texts and everything else
have none. A class that is not there has no fields.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import json
import sys
import types
import typing
from typing import Any

_STEPS: dict[tuple[type, Any], Any] = {
    (int, None): 2,
    (int, 0): 1,
    (int, 1): 2,
    (float, None): 0.5,
    (float, 0): 0.1,
    (float, 1): 0.5,
}


def main(names: list[str]) -> None:
    """Print what is found of each class."""
    found = {name: next(filter(None, map(_list_fields, name.split(","))), {}) for name in names}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


def _list_fields(name: str) -> dict[str, list[Any]]:
    """Return the fields of a class, ``MODULE:NAME``; none where it is not there."""
    module, _, name = name.partition(":")
    try:
        class_ = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, RuntimeError):
        return {}
    package = module.partition(".")[0]
    own = {
        field: base
        for base in reversed(class_.__mro__)
        if base.__module__.partition(".")[0] == package
        for field in getattr(base, "__annotations__", {})
    }
    return {
        field: _choose_values(hint, default, choices)
        for field, hint, default, choices in _declared(class_, own)
        if field in own
    }


def _declared(class_: Any, own: dict[str, Any]) -> typing.Iterator[tuple[str, Any, Any, Any]]:
    """Yield name, type, default and stated choices of the fields of a dataclass, or of a model of pydantic."""
    for name, one in getattr(class_, "model_fields", {}).items():
        yield name, one.annotation, one.get_default(call_default_factory=False), None
    for one in dataclasses.fields(class_) if dataclasses.is_dataclass(class_) else ():
        hint: Any = one.type
        with contextlib.suppress(Exception):  # names that are there for a type checker alone
            if isinstance(hint, str):
                hint = eval(hint, vars(sys.modules[own[one.name].__module__]))  # noqa: S307 (as typing.get_type_hints does)
        default = one.default
        if default is dataclasses.MISSING and one.default_factory is not dataclasses.MISSING:
            default = one.default_factory()
        if one.init:
            yield one.name, hint, default, one.metadata.get("choices")


def _choose_values(hint: Any, default: Any, choices: Any) -> list[Any]:
    """Return values other than the default."""
    kinds = _split_union(hint)
    values = [*(choices or ())]
    for kind in kinds:
        if typing.get_origin(kind) is typing.Literal:
            values += typing.get_args(kind)
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            values += [one.value for one in kind]
        elif kind is bool and not choices:
            values += [False, True]
        elif kind in (int, float) and not values and type(default) in (kind, type(None)) and (kind, default) in _STEPS:
            values.append(_STEPS[kind, default])
    usual = getattr(default, "value", default)
    plain = [one for one in values if isinstance(one, (bool, int, float, str))]
    return [one for one in dict.fromkeys(plain) if (type(one), one) != (type(usual), usual)]


def _split_union(hint: Any) -> tuple[Any, ...]:
    """Return the members of ``A | B``, of ``Optional`` too, else the type alone."""
    if typing.get_origin(hint) not in (typing.Union, getattr(types, "UnionType", typing.Union)):
        return (hint,)
    return tuple(part for member in typing.get_args(hint) for part in _split_union(member))


if __name__ == "__main__":
    main(sys.argv[1:])
