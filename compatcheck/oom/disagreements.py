"""Where a log and the inputs beside it tell of two runs: a model's code, a batch, releases, ranks or a device differ."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.core.out_of_memory import Disagreement
from compatcheck.core.units import format_bytes
from compatcheck.oom.frames import find_model_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Fact
    from compatcheck.core.out_of_memory import Message
    from compatcheck.resolution.subject import Subject

_COMPARED = ("training.micro_batch_size", "training.eval_batch_size")
"""Settings whose one value in a log is that of the run; a length there may be an engine's."""
_RANK = re.compile(r"\[(?:rank|default)\s?(\d{1,5})\]")
_LEAST_OF_DEVICE, _MOST_OF_DEVICE = 0.85, 1.03
"""What PyTorch sees of a device, as a share of what the catalogue or a person says: ECC and the driver take some."""


def find_disagreements(
    subject: Subject,
    messages: Sequence[Message],
    settings: Mapping[str, int],
    reported: Environment | None,
    place: str,
) -> tuple[Disagreement, ...]:
    """Find what a log says otherwise than the inputs do.

    Args:
        subject: the run as the inputs have it.
        messages: of the log.
        settings: facts that the log writes.
        reported: the environment that is pasted into the log.
        place: what the log is called; what it says itself is no other word.
    """
    return tuple(_find(subject, messages, settings, reported, place))


def _find(
    subject: Subject,
    messages: Sequence[Message],
    settings: Mapping[str, int],
    reported: Environment | None,
    place: str,
) -> Iterator[Disagreement]:
    types = {name for message in messages for name in find_model_types(message.frames)}
    stated = list(_stated(subject, "model.model_type", place))
    if types and stated and not types & {str(fact.value) for fact in stated}:
        yield _tell(stated[0], " and ".join(sorted(types)))
    for name in _COMPARED:
        facts = list(_stated(subject, name, place))
        if name in settings and facts and all(fact.value != settings[name] for fact in facts):
            yield _tell(facts[0], str(settings[name]))
    ranks = [int(found) for message in messages for found in _RANK.findall(message.stream)]
    for fact in _stated(subject, "hardware.world_size", place):
        if ranks and isinstance(fact.value, int) and max(ranks) >= fact.value:
            yield _tell(fact, f"a rank {max(ranks)}")
            break
    total = next((message.total for message in messages if message.memory == "device" and message.total), None)
    for fact in _stated(subject, "hardware.memory_bytes", place):
        if total is None or not isinstance(fact.value, int):
            continue
        if total.high_bytes < _LEAST_OF_DEVICE * fact.value or total.low_bytes > _MOST_OF_DEVICE * fact.value:
            source = fact.sources[0] if fact.sources else None
            yield Disagreement(fact.name, total.text, format_bytes(fact.value), source)
        break
    installed = {} if subject.environment is None else subject.environment.packages
    for name, package in sorted({} if reported is None else reported.packages.items()):
        other = installed.get(name)
        if other is None or other.source.path.startswith(place) or None in (other.version, package.version):
            continue
        if other.version != package.version:
            yield Disagreement(name, str(package.version), str(other.version), other.source)


def _stated(subject: Subject, name: str, place: str) -> Iterator[Fact]:
    """Yield what the inputs state of a fact, for every role; neither defaults nor what the log says itself."""
    for role in subject.roles.values():
        fact = role.get(name)
        if fact is not None and fact.sources and not any(source.path.startswith(place) for source in fact.sources):
            yield fact


def _tell(fact: Fact, logged: str) -> Disagreement:
    return Disagreement(fact.name, logged, str(fact.value), fact.sources[0])
