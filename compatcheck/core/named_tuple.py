"""Named tuples as `typing` has them, defined in a tenth of the time: a command defines a hundred before it does anything.

`typing.NamedTuple` compiles the annotation of every field and a constructor for every class. Here annotations stay text, and one
constructor is compiled for each number of fields, when a class of so many is first made; every class has it under its own names.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]  # as `collections.namedtuple` reads a field
from functools import cache
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 (for other modules)

    from typing_extensions import Self
else:

    class _Fields(type):
        """Makes a class of the fields that its body declares."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            made = super().__new__(cls, name, bases, {"__slots__": (), **body})
            made._fields = made.__match_args__ = fields = tuple(made.__annotations__)
            made._field_defaults = {field: body[field] for field in fields if field in body}
            for place, field in enumerate(fields):
                setattr(made, field, _tuplegetter(place, None))
            return made

    @cache
    def _compile_constructor(count: int) -> FunctionType:
        names = ", ".join(f"_{place}" for place in range(count))
        return eval(f"lambda _cls, {names}: _new(_cls, ({names},))", {"_new": tuple.__new__})  # noqa: S307 (text from here)

    class NamedTuple(tuple, metaclass=_Fields):
        """A tuple whose places have names, with the methods of `collections.namedtuple`."""

        __slots__ = ()
        __annotations__ = {}

        def __new__(cls, *values: object, **named: object) -> Self:
            """Make the constructor of this class, and the first object with it."""
            model = _compile_constructor(len(cls._fields))
            code = model.__code__.replace(co_name="__new__", co_varnames=("_cls", *cls._fields))
            cls.__new__ = FunctionType(code, model.__globals__, "__new__", tuple(cls._field_defaults.values()))
            return cls.__new__(cls, *values, **named)

        @classmethod
        def _make(cls, values: Iterable[object]) -> Self:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes: object) -> Self:
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {list(changes)!r}")
            return made

        def _asdict(self) -> dict[str, object]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self) -> tuple[object, ...]:
            return tuple(self)
