"""What is known of one node of a job, and the line of JSON that carries it to where the nodes are compared.

A line, so that what stands around it does not matter: labels of `srun --label`, `pdsh` and `kubectl logs --prefix` in front, a
greeting of a shell above.
"""

import json
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from compatcheck.core.environment import Environment
from compatcheck.core.hardware import Hardware
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.selection import Choice
from compatcheck.core.source import Skipped, Source

FORMAT = 1
"""Number of the form of the line; fields that are added do not change it."""
MARK = f'{{"compatcheck_node": {FORMAT}, '
"""What the line begins with."""

CUT = "is cut off, or mixed with what others wrote"


class Node(NamedTuple):
    """One node of a job, as it was collected there."""

    name: str
    """As the scheduler calls it, else its host name."""
    tool: str
    """Release of compatcheck that collected it."""
    environment: Environment
    """What the job's interpreter has installed there, with variables and devices."""
    editable: Mapping[str, Mapping[str, str]] = {}
    """Files of source trees that are imported in place: package → path in the tree → first 12 hex digits of its SHA-256."""
    configuration: Mapping[str, str | None] = {}
    """Configuration files of the job by path: the first 12 hex digits of the SHA-256; None where there is none."""
    devices_offered: int | None = None
    """Devices the scheduler hands out there; None where it was not asked."""


class Answers(NamedTuple):
    """What the nodes of one job said."""

    nodes: tuple[Node, ...]
    lost: tuple[tuple[str, str], ...] = ()
    """Nodes that said nothing of themselves, and why."""
    unread: tuple[Skipped, ...] = ()
    """Lines of their output that are no node."""


def write_line(node: Node) -> str:
    """Write a node as one line."""
    plain = {"compatcheck_node": FORMAT, **_plain(node)}
    return json.dumps(plain, ensure_ascii=True) + "\n"


def read_line(text: str) -> Node:
    """Read a node from its line, from `MARK` on.

    Raises:
        ValueError: it is cut off or is none, in words.
    """
    try:
        data, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        raise ValueError(CUT) from None
    try:
        node: Node = _shape(Node, data)
    except (TypeError, KeyError, ValueError):
        raise ValueError("is no node as compatcheck writes it") from None
    return node


def _plain(value: Any) -> Any:  # noqa: ANN401 (any field)
    """Return a value as JSON can hold it; fields that have their default are left out."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        defaults: Mapping[str, object] = getattr(value, "_field_defaults", {})
        return {
            name: _plain(item)
            for name, item in zip(getattr(value, "_fields", ()), value, strict=True)
            if name not in defaults or item != defaults[name]
        }
    if isinstance(value, tuple | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


_NAMES = {kind.__name__: kind for kind in (Choice, Hardware, Mapping, Skipped, Source)}
"""What annotations of a node's parts name; their modules import it for type checkers only."""


@lru_cache
def _fields(kind: Any) -> Mapping[str, Any]:  # noqa: ANN401 (a type)
    return get_type_hints(kind, localns=_NAMES)


def _shape(kind: Any, value: Any) -> Any:  # noqa: ANN401 (one line for each form a field can have)
    """Return plain data as the type that a field is declared with.

    Raises:
        TypeError, KeyError, ValueError: it is something else.
    """
    if hasattr(kind, "_fields"):
        if not isinstance(value, dict):
            raise TypeError
        given = {name: _shape(hint, value[name]) for name, hint in _fields(kind).items() if name in value}
        return kind(**given)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        if value is None and type(None) in inner:
            return None
        (kind,) = (arm for arm in inner if arm is not type(None))
        return _shape(kind, value)
    if origin in {tuple, frozenset}:
        if not isinstance(value, list):
            raise TypeError
        if origin is tuple and inner[-1] is not Ellipsis:
            return tuple(_shape(arm, item) for arm, item in zip(inner, value, strict=True))
        return origin(_shape(inner[0], item) for item in value)
    if origin is not None:  # a mapping
        if not isinstance(value, dict):
            raise TypeError
        return {str(key): _shape(inner[1], item) for key, item in value.items()}
    if kind is object:
        if isinstance(value, dict):
            raise TypeError
        return tuple(map(str, value)) if isinstance(value, list) else value
    if kind is float and isinstance(value, int):
        return float(value)
    if type(value) is not kind:
        raise TypeError
    return value
