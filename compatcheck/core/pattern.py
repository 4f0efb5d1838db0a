"""Regular expressions that are compiled when they are first used: a command imports many and needs few of them."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Pattern
    from typing import Any, AnyStr


def lazy_compile(text: AnyStr, flags: int = 0, *, needs: tuple[AnyStr, ...] = ()) -> Pattern[AnyStr]:
    """Return what ``re.compile`` returns, compiled at its first use (0.1 to 2 ms each).

    Args:
        text: the expression.
        flags: as ``re.compile`` takes them.
        needs: of which a text that matches holds one at least; where none is there, nothing is compiled.
    """
    return _Guarded(text, flags, needs) if needs else _Uncompiled(text, flags)  # type: ignore[return-value]  # it answers as one


class _Uncompiled:
    """Stands for a compiled expression; each of its methods is looked up once and then its own."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (an attribute of `re.Pattern`)
        found = getattr(re.compile(self._text, self._flags), name)
        self.__dict__[name] = found
        return found


class _Guarded:
    """Stands for an expression that is asked of many texts, few of which hold a word that it needs."""

    def __init__(self, text: str | bytes, flags: int, needs: tuple[Any, ...]) -> None:
        self.needs = needs
        self.compiled: Any = _Uncompiled(text, flags)

    def search(self, text: Any) -> Any:  # noqa: ANN401 (as `re.Pattern`, of texts or bytes)
        return self.compiled.search(text) if any(word in text for word in self.needs) else None

    def match(self, text: Any) -> Any:  # noqa: ANN401 (as `re.Pattern`, of texts or bytes)
        return self.compiled.match(text) if any(word in text for word in self.needs) else None

    def fullmatch(self, text: Any) -> Any:  # noqa: ANN401 (as `re.Pattern`, of texts or bytes)
        return self.compiled.fullmatch(text) if any(word in text for word in self.needs) else None

    def sub(self, new: Any, text: Any) -> Any:  # noqa: ANN401 (as `re.Pattern`, of texts or bytes)
        return self.compiled.sub(new, text) if any(word in text for word in self.needs) else text
