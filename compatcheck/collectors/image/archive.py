"""Image archives, layouts and root directories: what lies at a path, read into the files of each image in it."""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from typing import TYPE_CHECKING

from compatcheck.collectors.image.blobs import DirectoryBlobs, FileBlobs, Job, LayerRead, StreamBlobs
from compatcheck.collectors.image.compression import (
    GZIP,
    NONE,
    ZSTD,
    UnavailableError,
    decompress,
    recognise_compression,
)
from compatcheck.collectors.image.manifest import ImageConfig, read_documents
from compatcheck.collectors.image.rootfs import scan_directory
from compatcheck.collectors.image.stream import FileStream, PipeStream, peek
from compatcheck.collectors.image.tar import BLOCK, TarError, looks_like_tar
from compatcheck.collectors.image.tree import ImageTree
from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import STANDARD_INPUT

if TYPE_CHECKING:
    from compatcheck.collectors.image.blobs import Blobs
    from compatcheck.collectors.image.manifest import Described, Documents
    from compatcheck.collectors.image.stream import Stream

_SAVE = "write it with: docker save IMAGE -o FILE (or: skopeo copy … oci-archive:FILE)"
_ROOT_FOLDERS = frozenset({"bin", "etc", "home", "lib", "opt", "root", "usr", "var", "app", "srv"})
_DOCUMENTS = ("manifest.json", "index.json", "oci-layout")


class Image(NamedTuple):
    """One image (of one platform)."""

    name: str
    """First repository tag, else the path that was named."""
    config: ImageConfig
    files: ImageTree
    layers: tuple[LayerRead, ...]
    """From the base up."""
    skipped: tuple[Skipped, ...] = ()
    """What could not be read: a missing or damaged layer, a limit that was met. What is not here was read."""
    notes: tuple[str, ...] = ()
    origin: str = ""
    """Path that was named, ``<stdin>`` for standard input; with the image's name or platform where there are several."""


def open_images(path: str, *, cache: str | None) -> tuple[Image, ...]:
    """Read every image (of every platform whose blobs are there) at a path.

    Args:
        path: docker archive or OCI archive, plain or compressed as a whole; an archive of a root directory (``docker
            export``); OCI layout directory; root directory; ``-`` or ``<stdin>`` for an archive on standard input.
        cache: directory that results are kept in (`compatcheck.collectors.image.cache.layers_directory`), None for none.

    Raises:
        InputError: there is no image, or nothing of it can be read.
    """
    job = Job(cache)
    shown = STANDARD_INPUT if path == "-" else path
    try:
        if shown != STANDARD_INPUT and os.path.isdir(path):
            images = _read_directory(path, job)
        else:
            descriptor = _open(shown)
            try:
                images = _read_archive(descriptor, shown, job)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise InputError(
            f"could not be read: {error.strerror or error}",
            source=Source(shown),
            hint="check the path and its permissions",
        ) from None
    if job.cache is not None:
        job.cache.prune()
    return images


def _open(path: str) -> int:
    """Open a file, a pipe of this process (``<(docker save IMAGE)``), or standard input.

    Raises:
        InputError: there is no file, or it is a device, a terminal, or a pipe with a name, whose writer may never come.
    """
    source = Source(path)
    if path == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.closed:
            raise InputError("standard input is closed", source=source, hint="name a file instead")
        descriptor = os.dup(sys.stdin.fileno())
    else:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # waits for no writer
        except FileNotFoundError:
            hint = "name an archive (docker save), a layout or a root directory; images of a daemon or registry are not fetched"
            raise InputError("no such file or directory", source=source, hint=hint) from None
        except ValueError:  # a NUL in the path
            raise InputError("is no path", source=source, hint="check the path") from None
        os.set_blocking(descriptor, True)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) and path != STANDARD_INPUT and not path.startswith(("/dev/fd/", "/proc/")):
        os.close(descriptor)
        hint = "send what is written into it: compatcheck image - < PIPE"
        raise InputError("is a pipe with a name, not a file", source=source, hint=hint)
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        os.close(descriptor)
        what = "a terminal or a device" if stat.S_ISCHR(mode) else "no file and no pipe"
        raise InputError(
            f"is {what}, not an image", source=source, hint="send one: docker save IMAGE | compatcheck image -"
        )
    return descriptor


def _read_archive(descriptor: int, path: str, job: Job) -> tuple[Image, ...]:
    regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    stream: Stream
    if regular:
        size = os.fstat(descriptor).st_size
        stream = FileStream(descriptor, 0, size)
    else:
        stream = PipeStream(descriptor)
    head, stream = peek(stream, BLOCK)
    compression = recognise_compression(head)
    if compression == NONE and not looks_like_tar(head):
        what = "is empty" if not head else "is not an image archive: it does not begin as a tar archive does"
        raise InputError(what, source=Source(path), hint=_SAVE)
    if compression not in {NONE, GZIP, ZSTD}:
        program = "unzip -p" if compression == "zip" else f"{compression} -dc"
        raise InputError(
            f"is compressed with {compression}, which is not read",
            source=Source(path),
            hint=f"send it decompressed: {program} FILE | compatcheck image -",
        )
    blobs: FileBlobs | StreamBlobs
    if regular and compression == NONE:
        blobs = FileBlobs(descriptor, size, job)
    else:
        source = stream if compression == NONE else _expand(stream, compression, path, job)
        blobs = StreamBlobs(source, job)
    return _read_images(blobs, path, job)


def _expand(stream: Stream, compression: str, path: str, job: Job) -> Stream:
    """Return the archive that a compressed file holds.

    Raises:
        InputError: it holds something else, or cannot be expanded.
    """
    try:
        head, expanded = peek(decompress(stream, compression, job.expansion), BLOCK)
    except UnavailableError as error:
        raise InputError(str(error), source=Source(path), hint=error.hint) from None
    except TarError as error:
        raise InputError(str(error), source=Source(path), hint=_SAVE) from None
    if not looks_like_tar(head):
        message = f"is {compression} data, but what it expands to is not an image archive"
        raise InputError(message, source=Source(path), hint=_SAVE)
    return expanded


def _read_images(blobs: FileBlobs | StreamBlobs, path: str, job: Job) -> tuple[Image, ...]:
    documents = read_documents(blobs)
    cut = (Skipped(Source(path), blobs.problem),) if blobs.problem is not None else ()
    said = cut + tuple(Skipped(Source(path), problem) for problem in documents.problems)
    if documents.images:
        return _assemble(blobs, documents, path, said)
    names = set(blobs.list_names())
    if not names.isdisjoint(_DOCUMENTS) or documents.problems:
        reasons = "; ".join(skipped.reason for skipped in said) or "its manifest names no image"
        raise InputError(f"holds no image that can be read: {reasons}", source=Source(path), hint=_SAVE)
    read = blobs.read_as_root()
    if not read.record.kept:
        if blobs.problem is not None:
            message = f"holds no manifest, and {blobs.problem}"
        elif "repositories" in names or any(name.endswith("/layer.tar") for name in names):
            message = "has layers and no manifest.json: it was written by docker before 1.10, or cut off"
        else:
            message = "is a tar archive with no image in it: no manifest.json, no index.json, and no root directory"
        raise InputError(message, source=Source(path), hint=_SAVE)
    return (_root_image(read, path, cut, job),)


def _read_directory(path: str, job: Job) -> tuple[Image, ...]:
    blobs = DirectoryBlobs(path, job)
    names = os.listdir(path)
    if not set(names).isdisjoint(_DOCUMENTS):
        documents = read_documents(blobs)
        said = tuple(Skipped(Source(path), problem) for problem in documents.problems)
        if documents.images:
            return _assemble(blobs, documents, path, said)
        if "oci-layout" in names:
            reasons = "; ".join(documents.problems) or "its index names no image"
            raise InputError(
                f"is an OCI layout without an image that can be read: {reasons}", source=Source(path), hint=_SAVE
            )
    record = scan_directory(path, job.budget)
    if not record.kept and _ROOT_FOLDERS.isdisjoint(names):
        hint = f"name the root of an unpacked image, an OCI layout, or an archive; {_SAVE}"
        raise InputError("is no image: neither an OCI layout nor a root directory", source=Source(path), hint=hint)
    return (_root_image(LayerRead(record, None, "directory"), path, (), job),)


def _root_image(read: LayerRead, path: str, said: tuple[Skipped, ...], job: Job) -> Image:
    tree = ImageTree()
    problems = (*read.record.problems, *tree.apply(read.record, job.budget))
    skipped = said + tuple(Skipped(Source(path), problem) for problem in dict.fromkeys(problems))
    notes = ("a root directory states no environment and no entry point of its image",)
    return Image(path, ImageConfig(), tree, (read,), tuple(dict.fromkeys(skipped)), notes, path)


def _assemble(blobs: Blobs, documents: Documents, path: str, said: tuple[Skipped, ...]) -> tuple[Image, ...]:
    described = documents.images
    images = []
    missing: list[Skipped] = []
    absent: list[Skipped] = []
    names = Counter(image.name for image in described)
    for number, image in enumerate(described, 1):
        words = [image.name, image.platform if names[image.name] > 1 else None]
        label = ", ".join(word for word in words if word) or f"image {number}"
        built = _build(blobs, image, path, label if len(described) > 1 else None)
        if image.layers and not built.layers:
            entry = Skipped(Source(path, label), "none of its layers is in the archive")
            (absent if image.is_choice else missing).append(entry)
        else:
            images.append(built)
    if not images:
        reasons = "; ".join(skipped.reason for skipped in (*said, *missing, *absent))
        raise InputError(f"holds no image that can be read: {reasons}", source=Source(path), hint=_SAVE)
    first = images[0]
    notes = (*first.notes, *documents.notes, *(f"{entry.source}: {entry.reason}" for entry in absent))
    images[0] = first._replace(skipped=(*said, *missing, *first.skipped), notes=notes)
    return tuple(images)


def _build(blobs: Blobs, image: Described, path: str, label: str | None) -> Image:
    tree = ImageTree()
    layers = []
    known = blobs.job.layers
    place = path if label is None else f"{path} ({label})"
    skipped = [Skipped(Source(place), problem) for problem in image.problems]
    for number, layer in enumerate(image.layers, 1):
        source = Source(place, f"layer {number} of {len(image.layers)}, {layer.label[:80]}")
        if "encrypted" in layer.media_type:
            skipped.append(Skipped(source, "is encrypted"))
            continue
        key = (layer.digest, tuple(layer.names))
        if key not in known:
            known[key] = next((read for name in layer.names if (read := blobs.read_layer(name, layer.digest))), None)
        read = known[key]
        if read is None:
            skipped.append(Skipped(source, "is not in the archive", "save the image again, with all its layers"))
            continue
        problems = [*read.record.problems, *tree.apply(read.record, blobs.job.budget)]
        skipped += [Skipped(source, problem, read.hint) for problem in problems]
        layers.append(read)
    return Image(image.name or path, image.config, tree, tuple(layers), tuple(skipped), (), place)
