"""What a person chose of the alternatives that files offer: extras, groups, a Python, a stage, arguments of a script."""

import re
from collections.abc import Iterable, Mapping

from compatcheck.core.errors import UsageError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source


class Choice(NamedTuple):
    """An extra or a dependency group that a project offers."""

    kind: str
    """``extra`` or ``group``."""
    name: str
    """Canonical name."""

    def __str__(self) -> str:
        """Write it as the option that selects it, without its dashes."""
        return f"{self.kind} {self.name}"


class Selection(NamedTuple):
    """What is installed of what a file offers."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Dependency groups (PEP 735, poetry, pdm) and sections of a Pipfile."""
    all_extras: bool = False
    python: str | None = None
    """Version of the Python that what is installed will run on, ``3.11`` or ``3.11.7``; None where it is not known."""
    stage: str | None = None
    """Stage of a Dockerfile that the image is built from; None for the last."""
    script_arguments: tuple[str, ...] | None = None
    """What a launch script that is named is started with; None where it is not known."""

    @property
    def markers(self) -> Mapping[str, str] | None:
        """Return the marker variables that it tells."""
        return None if self.python is None else {"python_full_version": self.python}

    @property
    def named(self) -> tuple[Choice, ...]:
        """Return the extras and groups that were named."""
        from compatcheck.core.markers import canonical_name  # noqa: PLC0415 (only with a choice)

        extras, groups = (map(canonical_name, names) for names in (self.extras, self.groups))
        return (*(Choice("extra", name) for name in extras), *(Choice("group", name) for name in groups))

    def over(self, other: "Selection") -> "Selection":
        """Fill what is left open from another selection."""
        extras = other if not (self.extras or self.all_extras) else self
        return Selection(
            extras.extras,
            self.groups or other.groups,
            extras.all_extras,
            self.python or other.python,
            self.stage or other.stage,
            other.script_arguments if self.script_arguments is None else self.script_arguments,
        )

    def choose(self, offered: Iterable[Choice]) -> frozenset[Choice]:
        """Return those of the offered extras and groups that are selected."""
        named = frozenset(self.named)
        return frozenset(
            choice for choice in offered if choice in named or (self.all_extras and choice.kind == "extra")
        )


DEFAULT = Selection()
"""What a deployment installs where nothing is said."""


def offer(extras: Iterable[str], groups: Iterable[str] = ()) -> frozenset[Choice]:
    """Return the choices that a project's extras and groups are."""
    choices = [("extra", name) for name in extras] + [("group", name) for name in groups]
    from compatcheck.core.markers import canonical_name  # noqa: PLC0415 (only with a choice)

    return frozenset(Choice(kind, canonical_name(name)) for kind, name in choices)


def parse_python(text: str, source: Source | None = None) -> str:
    """Check the version of a Python.

    Raises:
        UsageError: it is none.
    """
    if re.fullmatch(r"3(\.\d{1,3}){1,2}", text, re.ASCII) is None:
        msg = f"{text!r} is no version of Python"
        raise UsageError(msg, source=source or Source("--python-version"), hint="write it as 3.11 or 3.11.7")
    return text


def split_arguments(text: str, source: Source | None = None) -> tuple[str, ...]:
    """Split the arguments of a script as a shell would.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        import shlex  # noqa: PLC0415 (only with such an option)

        return tuple(shlex.split(text))
    except ValueError as error:
        msg = f"{text!r}: {str(error).lower()}"
        raise UsageError(msg, source=source or Source("--script-args"), hint="close the quote") from None
