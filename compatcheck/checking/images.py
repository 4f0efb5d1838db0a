"""Turn a container image into subjects: one per environment in it, the one the image starts first."""

from __future__ import annotations

import posixpath
from collections import Counter
from typing import TYPE_CHECKING

from compatcheck.checking.request import Gathered, Request
from compatcheck.checking.subjects import build_subject
from compatcheck.collectors.image.archive import open_images
from compatcheck.collectors.image.environments import ImageEnvironment, ImageReading, read_image
from compatcheck.core.errors import InputError, NothingToCheckError, UsageError
from compatcheck.core.source import Skipped, Source
from compatcheck.core.terminal import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.checking.shared import Shared
    from compatcheck.collectors.image.archive import Image
    from compatcheck.core.environment import Environment
    from compatcheck.resolution.subject import Subject


def gather_image(request: Request, shared: Shared) -> Gathered:
    """Read the environments of an image that a command is about.

    Where nothing is installed in it, it is about the projects in its working directory.

    Raises:
        InputError: there is no image, or nothing of it can be read.
        NothingToCheckError: it holds no Python environment and no project, and all of it was read.
        UsageError: the person named an environment that it does not hold.
    """
    subjects: list[Subject] = []
    skipped = list(shared.skipped)
    aside = set()
    reasons: dict[str, str] = {}
    readings = read_images(request, shared)
    for image, reading in readings:
        if not request.image_environments and all(entry.is_empty for entry in reading.environments):
            from compatcheck.checking.image_projects import LOCKED, gather_projects  # noqa: PLC0415 (only where nothing is installed)

            projects = list(gather_projects(image, request, shared, skipped))
            reasons.update((subject.id, LOCKED) for subject in projects)
            subjects += projects
        # The person named the image: what of it could not be read must not pass as checked.
        skipped += (entry._replace(named=True) for entry in reading.skipped)
        chosen = choose(reading, image, request)
        empty = [entry for entry in reading.environments if entry not in chosen and entry.is_empty]
        notes = (*reading.notes, *(f"{entry.name} holds nothing but {_packages_of(entry)}" for entry in empty))
        if sum(not entry.is_empty for entry in reading.environments) > 1 and not request.image_environments:
            skipped += _doubts(image, reading)
        # A guess decides nothing: then all of them count, as where nothing says what is started.
        starts = any(entry.is_started for entry in chosen) and not reading.start.doubts
        for entry in chosen:
            environment = entry.environment
            if entry is chosen[0]:
                environment = environment._replace(notes=(*environment.notes, *notes))
            reasons[entry.name] = _describe(entry, reading)
            subjects.append(build_subject(entry.name, environment, shared.documents, shared))
            if starts and not entry.is_started and not (request.all_environments or request.image_environments):
                aside.add(entry.name)
    if not subjects:
        raise _find_nothing(readings)
    return Gathered(tuple(subjects), tuple(skipped), aside=frozenset(aside), reasons=reasons, files=shared.files)


def read_images(request: Request, shared: Shared) -> list[tuple[Image, ImageReading]]:
    """Read every image (of every platform) at the place that a command names.

    Raises:
        InputError: there is no image, or nothing of it can be read.
    """
    from compatcheck.collectors.image.cache import layers_directory  # noqa: PLC0415 (beside its use)

    cache = None if request.no_cache else layers_directory(shared.environ)
    images = open_images(str(request.image), cache=cache)
    names = Counter(image.name for image in images)
    readings = []
    for image in images:
        platform = f"{image.config.os}/{image.config.architecture}"
        label = f"{image.name} ({platform})" if names[image.name] > 1 else image.name
        label = label.removeprefix("docker.io/").removeprefix("library/")
        named = image._replace(name=escape_name(label))
        readings.append((named, read_image(named, shared.rules.packages, shared.variables)))
    return readings


def _find_nothing(readings: Iterable[tuple[Image, ImageReading]]) -> InputError | NothingToCheckError:
    """Return the error that says that no image holds an environment, or what may hold one and could not be read."""
    readings = list(readings)
    for _, reading in readings:
        for entry in reading.skipped:
            return InputError(entry.reason, source=entry.source, hint=entry.hint)
    hint = "name an image with Python in it"
    return NothingToCheckError("holds no Python environment", source=Source(readings[0][0].name), hint=hint)


def choose(reading: ImageReading, image: Image, request: Request) -> list[ImageEnvironment]:
    """Return the environments that are checked: those named, else all that are started or hold something.

    Raises:
        UsageError: one that is named is not there.
    """
    if not request.image_environments:
        kept = [entry for entry in reading.environments if entry.is_started or not entry.is_empty]
        if not request.every_environment:
            kept = [entry for entry in kept if entry.is_started] or kept
        return kept or list(reading.environments)
    chosen = []
    for name in request.image_environments:
        wanted = "/" + posixpath.normpath(name).strip("/")
        found = [entry for entry in reading.environments if wanted in {entry.place.name, entry.place.layout.prefix}]
        if not found:
            there = ", ".join(entry.place.name for entry in reading.environments)
            raise UsageError(
                f"{image.name} holds no environment {name}",
                source=Source("--environment"),
                hint=f"it holds {there or 'none'}",
            )
        chosen += [entry for entry in found if entry not in chosen]
    return chosen


def find_started(request: Request, shared: Shared) -> tuple[Environment, tuple[Skipped, ...]]:
    """Return the one environment of an image that a run would be in: the one named, else the one it starts.

    Raises:
        NothingToCheckError: it holds none.
        UsageError: that cannot be told.
    """
    readings = read_images(request, shared)
    found = [
        (entry, reading)
        for image, reading in readings
        for entry in choose(reading, image, request._replace(every_environment=False))
    ]
    if not found:
        raise _find_nothing(readings)
    if len(found) > 1:
        names = ", ".join(entry.name for entry, _ in found)
        raise UsageError(
            f"{request.image} holds {len(found)} environments and does not say which one it starts",
            hint=f"name one with --environment: {names}",
        )
    entry, reading = found[0]
    return entry.environment, tuple(skipped._replace(named=True) for skipped in reading.skipped)


def _describe(entry: ImageEnvironment, reading: ImageReading) -> str:
    if entry.is_started:
        return reading.start.reason
    if not any(other.is_started for other in reading.environments):
        return "what the image starts is not known"
    if reading.start.doubts:
        return "may be what the image starts"
    return "not what the image starts"


def _doubts(image: Image, reading: ImageReading) -> Iterable[Skipped]:
    """Say why another environment may be the one that the image starts."""
    hint = "name the environment that counts: --environment PREFIX"
    return [
        Skipped(Source(image.name, key="(entry point)"), f"which Python it starts is a guess: {doubt}", hint)
        for doubt in reading.start.doubts
    ]


def _packages_of(entry: ImageEnvironment) -> str:
    return ", ".join(sorted(entry.environment.packages)) or "Python itself"
