"""Where the documents and layers of images lie: in an archive, in a directory, or in a stream that passes by once."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from typing import TYPE_CHECKING

from compatcheck.collectors.image.cache import LayerCache, identify_file
from compatcheck.collectors.image.compression import (
    NONE,
    Expansion,
    UnavailableError,
    decompress,
    recognise_compression,
)
from compatcheck.collectors.image.layers import (
    NO_ROOM,
    Budget,
    LayerRecord,
    LayerScan,
    LimitError,
    decode,
    encode,
    normalise,
    scan_layer,
)
from compatcheck.collectors.image.stream import FileStream, Hashed, Peeked, peek
from compatcheck.collectors.image.tar import BLOCK, FILE, HARD_LINK, LINK, TarError, TarReader, looks_like_tar
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.units import MIB

if TYPE_CHECKING:
    from compatcheck.collectors.image.stream import Stream
    from compatcheck.collectors.image.tar import Entry

MAX_DOCUMENT_BYTES = 4 * MIB
"""Of a manifest, index or configuration, as registries and containerd bound them."""
MAX_MEMBERS = 20_000
"""Documents and layers of one archive (an image has at most 127 layers, each up to three files)."""
MAX_DOCUMENTS_BYTES = 32 * MIB
"""All documents of a stream, which are kept until the last has come by."""

_MAX_LINKS = 40
_HEX = r"[0-9a-f]{32,128}"
_BLOB = re.compile(rf"(?:^|/)blobs/(sha(?:256|512))/({_HEX})$")
_MEMBER = re.compile(
    rf"(?:[^/]+/)?[^/]+\.(?:tar|tar\.gz|tgz|tar\.zst)|[^/]+\.json|(?:sha256:)?{_HEX}|blobs/sha(?:256|512)/{_HEX}|oci-layout"
)
"""Names that a document or layer of an archive has, whatever program wrote it; a root directory has none that matter."""


class LayerRead(NamedTuple):
    """One layer and how it was read."""

    record: LayerRecord
    size_bytes: int | None
    """Bytes it takes in the archive, compressed as it is there."""
    compression: str
    """``none``, ``gzip``, ``zstd``; ``directory`` for a root directory."""
    from_cache: bool = False
    hint: str | None = None
    """What to do about it where it could not be read."""


class Job:
    """What the reading of one input shares: its limits and the cache."""

    def __init__(self, cache: str | None) -> None:
        self.budget = Budget()
        self.expansion = Expansion()
        self.cache = LayerCache(cache) if cache is not None else None
        self.layers: dict[tuple[str | None, tuple[str, ...]], LayerRead | None] = {}
        """Layers that were read, by digest and names: images of one archive share them."""


def read_layer_stream(
    stream: Stream, size: int | None, digest: str | None, identity: str | None, job: Job
) -> LayerRead:
    """Read one layer, or find it in the cache.

    What was read under a digest stands for these bytes only when they have it, so they are hashed before it is taken: that is
    a twentieth of the work of expanding them. A pipe can be read once, and is expanded.

    Args:
        stream: the blob, from its beginning.
        size: its bytes, where they are known.
        digest: ``sha256:…`` of the blob as something else states it.
        identity: what tells the file and the place it lies in from all others (`identify_file`).
        job: limits and cache.
    """
    head, stream = peek(stream, BLOCK)
    compression = recognise_compression(head)
    if job.budget.entries < 0:  # said of the layer that it ended in
        return LayerRead(LayerRecord((), problems=(NO_ROOM,)), size, compression)
    algorithm, _, stated = (digest or "").partition(":")
    verifiable = compression != NONE and algorithm in {"sha256", "sha512"}
    # The same file may be stated to have another digest elsewhere.
    key = f"file {identity} {digest}" if identity is not None else None
    shared_key = f"digest {digest}" if verifiable else None
    record = _find(key, job)
    if record is None and isinstance(stream, FileStream) and (record := _find(shared_key, job)) is not None:
        if Hashed(stream, algorithm).finish() != stated:
            record = None
        stream.position = 0
    if record is not None:
        try:
            job.budget.charge(record)
        except LimitError as error:
            record = LayerRecord((), problems=(str(error),))
        return LayerRead(record, size, compression, from_cache=True)
    hashed = None
    try:
        if compression == NONE:
            record = scan_layer(stream, job.budget)
        else:
            hashed = Hashed(stream, algorithm) if verifiable else None
            record = scan_layer(decompress(hashed or stream, compression, job.expansion), job.budget)
    except UnavailableError as error:
        return LayerRead(LayerRecord((), problems=(str(error),)), size, compression, hint=error.hint)
    if (
        hashed is None
        and algorithm in {"sha256", "sha512"}
        and isinstance(stream, FileStream)
        and _ends_in_an_entry(stream, size)
    ):
        hashed = Hashed(stream, algorithm)
    if hashed is not None and not record.problems and hashed.finish() != stated:
        problem = f"what it holds does not have the digest that is stated ({digest}): the archive is damaged or forged"
        record = record._replace(problems=(problem,))
    for name in (key, shared_key):
        if job.cache is not None and name is not None:
            job.cache.store(name, record)
    return LayerRead(record, size, compression)


def _ends_in_an_entry(stream: FileStream, size: int | None) -> bool:
    """Tell whether an archive has no end, as one that was cut off between two entries; what it holds is then hashed whole."""
    stream.position = max(0, (size or 0) - BLOCK)
    last = stream.read(BLOCK)
    stream.position = 0
    return len(last) < BLOCK or any(last) or (size or 0) % BLOCK > 0


def _find(key: str | None, job: Job) -> LayerRecord | None:
    return job.cache.find(key) if job.cache is not None and key is not None else None


class FileBlobs:
    """A tar archive in a regular file: what is needed of it is found by its index."""

    def __init__(self, descriptor: int, size: int, job: Job) -> None:
        self._descriptor = descriptor
        self._size = size
        self.job = job
        self._identity = identify_file(descriptor) if job.cache is not None else None
        self._members: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        self.problem: str | None = None
        """Why the archive could not be read to its end."""
        stream = FileStream(descriptor, 0, size)
        members = Budget()
        try:
            for entry in TarReader(stream):
                members.take_entry()
                self._take(entry, stream.position)
        except (TarError, LimitError) as error:
            self.problem = str(error)

    def _take(self, entry: Entry, position: int) -> None:
        named = name_member(entry)
        if named is None:
            return
        if len(self._members) + len(self._links) >= MAX_MEMBERS:
            raise LimitError(f"has more than {MAX_MEMBERS:,} documents and layers; the rest was not read")
        name, target = named
        self._links.pop(name, None)  # the last one of a name counts, as where an archive is unpacked
        if target is not None:
            self._links[name] = target
        elif not entry.sparse:
            self._members[name] = (position, entry.size)

    def list_names(self) -> list[str]:
        """Return the names of what may be a document or a layer."""
        return list(self._members)

    def read_document(self, name: str) -> bytes | None:
        """Return a JSON document, or None when there is none of that name (or it is too large to be one)."""
        found = self._members.get(follow(name, self._links))
        if found is None or found[1] > MAX_DOCUMENT_BYTES:
            return None
        return FileStream(self._descriptor, *found).read(found[1])

    def read_layer(self, name: str, digest: str | None) -> LayerRead | None:
        """Return a layer by its name in the manifest, or None; a known digest is verified where that costs little."""
        real = follow(name, self._links)
        found = self._members.get(real)
        if found is None:
            return None
        start, size = found
        identity = f"{self._identity} {start} {size}" if self._identity is not None else None
        available = max(0, min(size, self._size - start))
        stream = FileStream(self._descriptor, start, available)
        return read_layer_stream(stream, size, digest or digest_of_name(real), identity, self.job)

    def read_as_root(self) -> LayerRead:
        """Read the archive itself as the files of an image, as ``docker export`` writes them."""
        stream = FileStream(self._descriptor, 0, self._size)
        return read_layer_stream(stream, self._size, None, self._identity, self.job)


class DirectoryBlobs:
    """An OCI layout, an archive that was unpacked, or what ``skopeo copy … dir:`` writes."""

    def __init__(self, folder: str, job: Job) -> None:
        self._folder = folder
        self.job = job

    def list_names(self) -> list[str]:
        """See `FileBlobs`."""
        try:
            return os.listdir(self._folder)
        except OSError:
            return []

    def read_document(self, name: str) -> bytes | None:
        """See `FileBlobs`."""
        descriptor = self._open(name)
        if descriptor is None:
            return None
        with open(descriptor, "rb") as file:
            try:
                data = file.read(MAX_DOCUMENT_BYTES + 1)
            except OSError:
                return None
        return data if len(data) <= MAX_DOCUMENT_BYTES else None

    def read_layer(self, name: str, digest: str | None) -> LayerRead | None:
        """See `FileBlobs`."""
        descriptor = self._open(name)
        if descriptor is None:
            return None
        try:
            size = os.fstat(descriptor).st_size
            identity = identify_file(descriptor) if self.job.cache is not None else None
            stream = FileStream(descriptor, 0, size)
            return read_layer_stream(stream, size, digest or digest_of_name(name), identity, self.job)
        finally:
            os.close(descriptor)

    def _open(self, name: str) -> int | None:
        """Open a regular file inside the directory; links inside it may lead elsewhere, as those of build systems do."""
        inside = normalise(encode(name))
        if not inside or name.startswith("/"):
            return None
        path = os.path.join(self._folder, os.fsdecode(inside))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor


class StreamBlobs:
    """A tar archive that passes by once: layers are read as they come, before the manifest that names them."""

    def __init__(self, stream: Stream, job: Job) -> None:
        self.job = job
        self._documents: dict[str, bytes] = {}
        self._layers: dict[str, LayerRead] = {}
        self._links: dict[str, str] = {}
        self._document_bytes = 0
        self.problem: str | None = None
        """Why the archive could not be read to its end."""
        # Whether this is an archive of layers or of a root directory is known at its end only.
        self._root = LayerScan(job.budget)
        reader = TarReader(stream)
        try:
            for entry in reader:
                self._take(entry, reader)
        except (TarError, LimitError) as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"could not be read: {error.strerror or error}"

    def _take(self, entry: Entry, reader: TarReader) -> None:
        named = name_member(entry)
        if named is None:
            self._root.take(entry, reader)
            return
        if len(self._documents) + len(self._layers) + len(self._links) >= MAX_MEMBERS:
            raise LimitError(f"has more than {MAX_MEMBERS:,} documents and layers; the rest was not read")
        name, target = named
        self._links.pop(name, None)  # see `FileBlobs`
        if target is not None:
            self._links[name] = target
            return
        member = Peeked(reader, BLOCK)
        head = member.head
        if head.lstrip()[:1] in {b"{", b"["}:
            if entry.size <= MAX_DOCUMENT_BYTES and self._document_bytes + entry.size <= MAX_DOCUMENTS_BYTES:
                self._documents[name] = member.read(entry.size)
                self._document_bytes += entry.size
        elif recognise_compression(head) != NONE or looks_like_tar(head):
            self._layers[name] = read_layer_stream(member, entry.size, digest_of_name(name), None, self.job)

    def list_names(self) -> list[str]:
        """See `FileBlobs`."""
        return [*self._documents, *self._layers]

    def read_document(self, name: str) -> bytes | None:
        """See `FileBlobs`."""
        return self._documents.get(follow(name, self._links))

    def read_layer(self, name: str, digest: str | None) -> LayerRead | None:
        """See `FileBlobs`; the digest was taken from the name, which is all that was known when the layer came by."""
        del digest
        return self._layers.get(follow(name, self._links))

    def read_as_root(self) -> LayerRead:
        """Return what was read, taken as the files of an image, as ``docker export`` writes them."""
        return LayerRead(self._root.finish(), None, NONE)


Blobs = FileBlobs | DirectoryBlobs | StreamBlobs
"""The documents and layers of an input, by the names they have in it."""


def name_member(entry: Entry) -> tuple[str, str | None] | None:
    """Return the name of an archive's member, and of a link what it leads to; None when it is no part of an image."""
    if entry.kind not in {FILE, LINK, HARD_LINK} or len(entry.name) > 1000:
        return None
    path = normalise(entry.name)
    if not path:
        return None
    name = decode(path)
    if _MEMBER.fullmatch(name) is None:
        return None
    if entry.kind == FILE:
        return name, None
    folder = posixpath.dirname(name) if entry.kind == LINK else ""
    target = normalise(encode(posixpath.join(folder, decode(entry.target[:1000]))))
    return (name, decode(target)) if target else None


def follow(name: str, links: dict[str, str]) -> str:
    """Return the member that a name stands for; older releases of docker save link layers that are the same."""
    path = normalise(encode(name))
    name = decode(path) if path else name
    for _ in range(_MAX_LINKS):
        if name not in links:
            break
        name = links[name]
    return name


def digest_of_name(name: str) -> str | None:
    """Return the digest that the name of a blob states: ``blobs/sha256/…``."""
    match = _BLOB.search(name)
    return f"{match[1]}:{match[2]}" if match else None
