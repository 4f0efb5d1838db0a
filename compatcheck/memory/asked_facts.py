"""Facts as a memory model asks for them, with a memory of what was assumed and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.estimate import Assumption
from compatcheck.core.facts import Fact
from compatcheck.core.units import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Value

LARGEST = 2**63 - 1
"""No count is larger: it would not fit the integers of any program that trains."""


class Given:
    """Facts with a memory of what was assumed and what is missing."""

    def __init__(self, facts: Mapping[str, Fact | Value]) -> None:
        self._facts = facts
        self.assumptions: dict[str, Assumption] = {}
        self.needs: list[str] = []

    def get(self, name: str) -> Value:
        """Return a value; None where nobody states one."""
        fact = self._facts.get(name)
        return fact.value if isinstance(fact, Fact) else fact

    def reason(self, name: str) -> str:
        """Return why a value is what it is, as its fact notes it."""
        fact = self._facts.get(name)
        return fact.note or "" if isinstance(fact, Fact) else ""

    def knows(self, name: str) -> bool:
        """Tell whether somebody states a fact, be it as None."""
        return name in self._facts

    def assume(self, name: str, value: Value, reason: str, *, is_most: bool = False) -> Value:
        """Return a value, or note that another is taken for it, be it the one that takes the most memory."""
        if name in self._facts:
            return self.get(name)
        self.assumptions[name] = Assumption(name, value, reason, is_most=is_most)
        return value

    def integer(self, name: str, default: int | None = None, reason: str = "") -> int:
        """Return a whole number; without a default it is needed, with a reason the default is noted as assumed.

        Raises:
            UsageError: it is negative or beyond `LARGEST`.
        """
        value = self.get(name) if name in self._facts else None
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value <= LARGEST:
                return value
            from compatcheck.core.errors import UsageError  # noqa: PLC0415 (on the way to an error)

            raise UsageError(f"{name} cannot be {value}", hint=f"give a whole number from 0 to {LARGEST}")
        if default is None:
            self.needs.append(name)
            return 0
        if reason:
            self.assumptions[name] = Assumption(name, default, reason)
        return default

    def positive(self, name: str, default: int | None = None, reason: str = "") -> int:
        """Return a whole number from 1 on, as `integer` does.

        Raises:
            UsageError: it is zero, negative or beyond `LARGEST`.
        """
        value = self.integer(name, default, reason)
        if value == 0 and name not in self.needs:
            from compatcheck.core.errors import UsageError  # noqa: PLC0415 (on the way to an error)

            raise UsageError(f"{name} cannot be 0", hint="give a whole number from 1 on")
        return value

    def flag(self, name: str, default: bool, reason: str = "") -> bool:  # noqa: FBT001 (as assume)
        """Return a switch; with a reason the default is noted as assumed."""
        if name in self._facts and self.get(name) is not None:
            return bool(self.get(name))
        if reason:
            self.assumptions[name] = Assumption(name, default, reason)
        return default

    def is_read(self) -> bool:
        """Tell whether somebody read the code of the program that trains; where none is named, the usual one is priced."""
        return not self.knows("training.framework") or self.knows("program.read")

    def dtype(self, name: str) -> float | None:
        """Return the bytes of a dtype, or None where nobody states one that is known."""
        value = self.get(name)
        return DTYPE_BYTES.get(value) if isinstance(value, str) else None
