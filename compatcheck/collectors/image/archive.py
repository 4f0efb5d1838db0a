"""Image archives, layouts and root directories: what lies at a path, read into the files of each image in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from compatcheck.collectors.image.tree import ImageTree
from compatcheck.core.source import Skipped


class ImageConfig(NamedTuple):
    """What the configuration of an image says (OCI image specification, config.md); empty for a root directory."""

    architecture: str | None = None
    """``amd64``, ``arm64``: GOARCH."""
    os: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the process the image starts, in order; credentials are the reader's to remove when it shows them."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str | None = None
    user: str | None = None
    labels: Mapping[str, str] = {}
    created: str | None = None
    """RFC 3339, as written."""


class Layer(NamedTuple):
    """One layer and how it was read."""

    digest: str | None
    """``sha256:…`` as the manifest or configuration states it: of the blob where that is known, else of its content."""
    size_bytes: int | None
    """Bytes it takes in the archive, compressed as it is there."""
    compression: str
    """``none``, ``gzip``, ``zstd``; ``directory`` for a root directory."""
    entries: int
    """Files, directories and links in it, kept or not."""
    from_cache: bool


class Image(NamedTuple):
    """One image (of one platform)."""

    name: str
    """First repository tag, else the path that was named."""
    config: ImageConfig
    files: ImageTree
    layers: tuple[Layer, ...]
    """From the base up."""
    skipped: tuple[Skipped, ...] = ()
    """What could not be read: a missing or damaged layer, a limit that was met. What is not here was read."""
    notes: tuple[str, ...] = ()
    origin: str = ""
    """Path that was named, ``<stdin>`` for standard input; with the platform where there are several."""


def open_images(path: str, *, cache: str | None) -> tuple[Image, ...]:
    """Read every image (of every platform whose blobs are there) at a path.

    Args:
        path: docker archive or OCI archive (plain or compressed), OCI layout directory, root directory, or ``-``.
        cache: directory that results are kept in (`compatcheck.collectors.image.cache.layers_directory`), None for none.

    Raises:
        InputError: there is no image, or nothing of it can be read.
    """
    raise NotImplementedError


def open_image(path: str, *, cache: str | None) -> Image:
    """Read the image at a path; the first, with a note, where there are several.

    Raises:
        InputError: see `open_images`.
    """
    images = open_images(path, cache=cache)
    if len(images) == 1:
        return images[0]
    note = "has several images; only the first was looked at: " + ", ".join(image.name for image in images)
    return images[0]._replace(notes=(*images[0].notes, note))
