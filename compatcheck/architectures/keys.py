"""Reads keys of a model configuration: the file's value, under any of its names, else the class default of its type."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import cast

from compatcheck.core.data_file import read_file
from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source

CLASS_DEFAULT = "class default"
"""Where a value came from that the file does not hold."""
MAX_LAYERS = 10_000
"""Most layers that are counted one by one; the deepest models have some hundred."""
MAX_DIMENSION = 2**40
"""Largest dimension that is taken for one."""
DATA = os.path.join(os.path.dirname(__file__), "data", "class_defaults.jsonl")
"""One line per model type, ``"TYPE" {…}``, written by ``tests/unit/architectures/generate_class_defaults.py``."""


class ClassDefaults(NamedTuple):
    """What a configuration class of transformers says about keys a file leaves out."""

    values: Mapping[str, object]
    """Default by key."""
    aliases: Mapping[str, str]
    """Other name → name of the field (``attribute_map``)."""
    parts: Mapping[str, Mapping[str, object]]
    """Nested configuration → its keys where the file leaves it out, ``model_type`` among them."""
    architecture: str | None = None
    """Class of transformers that the formulas count for this type."""


@cache
def _lines() -> str:
    return "\n" + read_file(DATA).decode()


def class_defaults(model_type: str) -> ClassDefaults | None:
    """Return the defaults of a model type, or None when the type is not in the data. Only its line is parsed."""
    text = _lines()
    start = text.find(f"\n{json.dumps(model_type)} ")
    if start < 0:
        return None
    start = text.index(" {", start) + 1
    row = json.loads(text[start : text.index("\n", start)])
    return ClassDefaults(row["values"], row.get("aliases", {}), row.get("parts", {}), row.get("architecture"))


class Keys:
    """The keys of one configuration, or of one nested in it."""

    def __init__(self, config: Mapping[str, object], defaults: ClassDefaults, *, path: str, prefix: str = "") -> None:
        """Take a configuration.

        Args:
            config: the parsed file, or the nested configuration.
            defaults: class defaults of its type.
            path: file name for errors.
            prefix: dotted key of the nested configuration with its final dot, empty at the top.
        """
        self.config = config
        self._defaults = defaults
        self._path = path
        self._prefix = prefix

    def find(self, name: str) -> tuple[object, str | None]:
        """Return a value and the dotted key it came from: ``class default``, or None when there is neither."""
        aliases, defaults = self._defaults.aliases, self._defaults.values
        field = aliases.get(name, name)
        names = (name, field, *(other for other, mapped in aliases.items() if mapped == field))
        # transformers assigns undeclared names after the declared ones, so that they win when a file holds both
        for candidate in sorted(names, key=defaults.__contains__):
            if candidate in self.config:
                return self.config[candidate], self._prefix + candidate
        for candidate in names:
            if candidate in defaults:
                return defaults[candidate], CLASS_DEFAULT
        return None, None

    def error(self, name: str, expected: str) -> InputError:
        """Make the error for a value that is not what the key needs."""
        value, key = self.find(name)
        key = key if key not in (None, CLASS_DEFAULT) else self._prefix + name
        shown = "is missing" if value is None and not self.has(name) else f"is {json.dumps(value, default=str)[:60]}"
        return InputError(
            f"{key} {shown}, expected {expected}",
            source=Source(self._path, key),
            hint=f"correct {key} in the model's config.json",
        )

    def has(self, name: str) -> bool:
        """Tell whether the file itself holds the key, under any of its names."""
        return self.find(name)[1] not in (None, CLASS_DEFAULT)

    def uses_alias(self, name: str) -> bool:
        """Tell whether the file gives the key under another name."""
        key = self.find(name)[1]
        return key not in (None, CLASS_DEFAULT, self._prefix + name)

    def optional(self, name: str) -> int | None:
        """Return a positive integer, or None when the key is null or unknown."""
        value, key = self.find(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and key != CLASS_DEFAULT):
            raise self.error(name, "a positive integer")
        return self.bounded(name, value)

    def size(self, name: str) -> int:
        """Return a positive integer."""
        value = self.optional(name)
        if value is None:
            raise self.error(name, "a positive integer")
        return value

    def amount(self, name: str, default: int | None = None) -> int:
        """Return an integer that may be 0; ``default`` stands for null and for a key that is nowhere."""
        value, _ = self.find(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(name, "an integer of at least 0")
        return self.bounded(name, value)

    def bounded(self, name: str, value: int) -> int:
        """Return the value when it is no larger than a model can be."""
        largest = MAX_LAYERS if name.endswith(("layer", "layers")) else MAX_DIMENSION
        if value > largest:
            raise self.error(name, f"an integer of at most {largest}")
        return value

    def number(self, name: str) -> float:
        """Return a positive number."""
        value, _ = self.find(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise self.error(name, "a positive number")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean; null is False."""
        value, key = self.find(name)
        if key is None:
            return default
        if value is not None and not isinstance(value, bool):
            raise self.error(name, "true or false")
        return bool(value)

    def text(self, name: str) -> str | None:
        """Return a string, or None when the key is null or unknown."""
        value, _ = self.find(name)
        if value is not None and not isinstance(value, str):
            raise self.error(name, "a string")
        return value

    def names(self, name: str) -> Sequence[str] | None:
        """Return a list of strings, or None when the key is null or unknown."""
        return cast("Sequence[str] | None", self._sequence(name, str, "a list of strings"))

    def numbers(self, name: str) -> Sequence[int] | None:
        """Return a list of integers of at least 0, or None when the key is null or unknown."""
        values = cast("Sequence[int] | None", self._sequence(name, int, "a list of integers"))
        if values and min(values) < 0:
            raise self.error(name, "a list of integers of at least 0")
        return values

    def _sequence(self, name: str, kind: type, expected: str) -> Sequence[object] | None:
        value, _ = self.find(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or not all(isinstance(x, kind) and type(x) is not bool for x in value):
            raise self.error(name, expected)
        return value

    def part(self, name: str, *, fixed: bool = False) -> Keys | None:
        """Return a nested configuration; None when its model type is not known.

        Args:
            name: its key.
            fixed: whether the class of the part is given by the whole, so that a model type inside it is not read.

        Raises:
            InputError: the key holds something else than a mapping.
        """
        preset = self._defaults.parts.get(name, {})
        given, key = self.find(name)
        if given is not None and not isinstance(given, Mapping):
            raise self.error(name, "a mapping")
        model_type = preset.get("model_type")
        if given is not None and not fixed:
            model_type = given.get("model_type", model_type)
        defaults = class_defaults(model_type) if isinstance(model_type, str) else None
        if defaults is None:
            return None
        prefix = f"{self._prefix}{name}."
        if given is None:
            values = {**defaults.values, **preset}
            return Keys({}, defaults._replace(values=values), path=self._path, prefix=prefix)
        return Keys({**given, "model_type": model_type}, defaults, path=self._path, prefix=prefix if key else "")

    def has_part(self, name: str) -> bool:
        """Tell whether the configuration has this nested one, in the file or by its class."""
        return self.config.get(name) is not None or name in self._defaults.parts

    def flat_part(self, name: str) -> Keys | None:
        """Return a nested configuration whose keys stand at the top, as older files of some types have it."""
        model_type = self._defaults.parts.get(name, {}).get("model_type")
        defaults = class_defaults(model_type) if isinstance(model_type, str) else None
        if defaults is None:
            return None
        return Keys({**self.config, "model_type": model_type}, defaults, path=self._path, prefix=self._prefix)

    def replace(self, **values: object) -> Keys:
        """Return the keys with some values set."""
        return Keys({**self.config, **values}, self._defaults, path=self._path, prefix=self._prefix)

    def mapping(self, name: str) -> Keys:
        """Return a nested mapping that has no model type; its class defaults stand in the data under ``parts``."""
        return self.nested(name, ClassDefaults(self._defaults.parts.get(name, {}), {}, {}))

    def nested(self, name: str, defaults: ClassDefaults) -> Keys:
        """Return a nested mapping with the defaults of a class, whatever model type it says."""
        given, _ = self.find(name)
        if given is not None and not isinstance(given, Mapping):
            raise self.error(name, "a mapping")
        return Keys(given or {}, defaults, path=self._path, prefix=f"{self._prefix}{name}.")

    @property
    def architecture(self) -> str | None:
        """Class of transformers that the formulas count."""
        return self._defaults.architecture

    @property
    def model_type(self) -> str:
        """The model type of this part."""
        return str(self.config.get("model_type") or self._defaults.values.get("model_type", ""))
