"""One layer: what is kept of its entries, and what it removes from the layers below; independent of those, so it can be cached.

Whiteouts are those of the OCI image specification (layer.md): ``.wh.NAME`` removes NAME of the layers below,
``.wh..wh..opq`` everything that they have in its directory. What is not kept still hides what lies below it under the same
name: a file where a directory with an environment was. Of such entries a hash of the path is kept.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from compatcheck.collectors.image.tar import DIRECTORY, FILE, HARD_LINK, LINK, TarError, TarReader
from compatcheck.collectors.image.wanted_files import judge_directory, judge_file, judge_link
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.textfile import echo
from compatcheck.core.units import MIB, format_bytes

if TYPE_CHECKING:
    from compatcheck.collectors.image.stream import Stream
    from compatcheck.collectors.image.tar import Entry
    from compatcheck.collectors.image.wanted_files import Interest

MAX_ENTRIES = 2_000_000
"""Entries that are looked at in one image (NVIDIA's largest training images have some 400,000)."""
MAX_KEPT = 100_000
"""Names kept of one image."""
MAX_NAME_BYTES = 16 * MIB
"""Length of their paths, together."""
MAX_CONTENT_BYTES = 96 * MIB
"""Content kept of one image, an rpm database included."""
MAX_STEPS = 20_000_000
"""Directories entered and hashes looked up while layers are laid over each other (a large image: some 500,000)."""
MAX_PATH_BYTES = 4096
"""PATH_MAX of Linux."""
HASH_BYTES = 8

_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_AUFS = b".wh..wh."
"""Bookkeeping of aufs in very old images."""
_SCRIPT = b"#!"
_EXAMPLES = 3
_REST = "the rest was not read"


class LimitError(ValueError):
    """Something hostile or far larger than any image: reading stops here, what came before it holds."""


NO_ROOM = f"has more than {MAX_ENTRIES:,} entries; {_REST}"


class Budget:
    """What may still be spent on the images of one input; shared by all its layers, so that many small ones count too.

    Each method counts, and raises `LimitError` where it is too much.
    """

    def __init__(self) -> None:
        self.entries = MAX_ENTRIES
        self.kept = MAX_KEPT
        self.content_bytes = MAX_CONTENT_BYTES
        self.name_bytes = MAX_NAME_BYTES
        self.steps = MAX_STEPS

    def take_steps(self, count: int) -> None:
        """Count work of laying layers over each other, which a manifest can ask for more often than there are layers."""
        self.steps -= count
        if self.steps < 0:
            raise LimitError(f"has links that lead in circles, or layers that repeat without end; {_REST}")

    def charge(self, record: LayerRecord) -> None:
        """Count a layer that was not read again."""
        self.entries -= record.entries
        if self.entries < 0:
            raise LimitError(NO_ROOM)
        for kept in record.kept:
            self.keep(kept.path, kept.content)

    def take_entry(self) -> None:
        """Count an entry."""
        self.entries -= 1
        if self.entries < 0:
            raise LimitError(NO_ROOM)

    def keep(self, path: str | bytes, content: bytes | None) -> None:
        """Count what is kept of an entry."""
        self.kept -= 1
        self.name_bytes -= len(path)
        self.content_bytes -= len(content) if content else 0
        if self.kept < 0 or self.name_bytes < 0:
            raise LimitError(f"has more than {MAX_KEPT:,} files and links to be kept (or names too long); {_REST}")
        if self.content_bytes < 0:
            raise LimitError(f"has more than {format_bytes(MAX_CONTENT_BYTES)} of metadata; {_REST}")


class Kept(NamedTuple):
    """One entry that is kept."""

    path: str
    """Inside the layer, normalised, without a leading slash."""
    kind: str
    """`FILE`, `LINK` or `DIRECTORY` of `compatcheck.collectors.image.tar`; a hard link is the file it names."""
    size_bytes: int | None
    modified: float
    content: bytes | None
    target: str = ""
    """Of a link, as written."""


class LayerRecord(NamedTuple):
    """What one layer does to the files below it."""

    kept: tuple[Kept, ...]
    """In the order of the archive: a later entry of the same path wins."""
    removed: tuple[str, ...] = ()
    """Paths below which nothing of the lower layers is left."""
    opaque: tuple[str, ...] = ()
    """Directories of which nothing of the lower layers is left."""
    hidden: bytes = b""
    """`hash_path` of every entry that was not kept and is no directory, one after the other."""
    hidden_by_directories: bytes = b""
    """`hash_path` of every directory that was not kept: it takes the place of a file or link, not of a directory."""
    entries: int = 0
    problems: tuple[str, ...] = ()
    """What could not be read, to be shown beside the name of the layer."""


class Content(Protocol):
    """Where the content of the entry that is looked at comes from."""

    def read(self, count: int) -> bytes:
        """Return its next bytes.

        Raises:
            TarError: it ends early.
            OSError: it cannot be read.
        """


def hash_path(path: bytes) -> bytes:
    """Return the hash that stands for a path that was not kept."""
    return blake2b(path, digest_size=HASH_BYTES).digest()


def scan_layer(stream: Stream, budget: Budget) -> LayerRecord:
    """Read a layer (an uncompressed tar) to its end; a damaged or hostile one as far as it goes."""
    scan = LayerScan(budget)
    reader = TarReader(stream)
    try:
        for entry in reader:
            scan.take(entry, reader)
    except (TarError, LimitError) as error:
        scan.problems.append(str(error))
    except OSError as error:
        scan.problems.append(f"could not be read: {error.strerror or error}")
    return scan.finish()


def normalise(name: bytes) -> bytes | None:
    """Return the path of an entry without ``.``, ``..`` and doubled slashes, or None when it leads out of the root."""
    if name[:2] == b"./":
        name = name[2:]
    if b"//" not in name and b"/." not in name and name[:1] not in {b"/", b"."}:
        return name[:-1] if name[-1:] == b"/" else name
    parts: list[bytes] = []
    for part in name.split(b"/"):
        if part == b"..":
            if not parts:
                return None
            parts.pop()
        elif part and part != b".":
            parts.append(part)
    return b"/".join(parts)


class LayerScan:
    """What has been seen of one layer so far."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._kept: list[Kept] = []
        self._files: dict[str, Kept] = {}
        """Files kept so far, for hard links to them."""
        self._removed: list[str] = []
        self._opaque: list[str] = []
        self._hidden = bytearray()
        self._hidden_by_directories = bytearray()
        self._entries = 0
        self._outside: list[str] = []
        self._refused = 0
        self._too_large: dict[str, str] = {}
        self.problems: list[str] = []

    def take(self, entry: Entry, reader: Content) -> None:
        """Look at one entry and keep of it what is of interest."""
        self._budget.take_entry()
        self._entries += 1
        path = normalise(entry.name) if max(len(entry.name), len(entry.target)) <= MAX_PATH_BYTES else None
        if path is None:
            self._refused += 1
            if len(self._outside) < _EXAMPLES:
                self._outside.append(echo(decode(entry.name[:200])))
            return
        if not path:
            return
        name = path[path.rfind(b"/") + 1 :]
        if name[:4] == _WHITEOUT:
            self._take_whiteout(path, name)
            return
        kind = entry.kind
        if kind == DIRECTORY:
            if judge_directory(path):
                self._keep(Kept(decode(path), DIRECTORY, 0, entry.modified, None))
            else:
                self._hidden_by_directories += hash_path(path)
            return
        if kind == FILE:
            interest = judge_file(path)
            kept = interest is not None and self._take_file(path, entry, interest, reader)
        elif kind == LINK:
            kept = judge_link(path)
            if kept:
                self._keep(Kept(decode(path), LINK, 0, entry.modified, None, decode(entry.target)))
        elif kind == HARD_LINK:
            kept = self._take_hard_link(path, entry)
        else:
            kept = judge_file(path) is not None
            if kept:  # a device or pipe where a file would be read: what it stands for is not absent
                self._keep(Kept(decode(path), FILE, 0, entry.modified, None))
        if not kept:
            self._hidden += hash_path(path)

    def finish(self) -> LayerRecord:
        """Return the record of what was seen."""
        if self._refused:
            examples = ", ".join(self._outside)
            count = "an entry leads" if self._refused == 1 else f"{self._refused:,} entries lead"
            self.problems.append(f"{count} out of the image or have impossible names, and were passed over: {examples}")
        self.problems += self._too_large.values()
        return LayerRecord(
            tuple(self._kept),
            tuple(self._removed),
            tuple(self._opaque),
            bytes(self._hidden),
            bytes(self._hidden_by_directories),
            self._entries,
            tuple(self.problems),
        )

    def _take_whiteout(self, path: bytes, name: bytes) -> None:
        folder = path[: -len(name)]
        if name == _OPAQUE:
            self._budget.keep(path, None)
            self._opaque.append(decode(folder[:-1]))
        elif not name.startswith(_AUFS) and name[4:] not in {b"", b".", b".."}:
            self._budget.keep(path, None)
            self._removed.append(decode(folder + name[4:]))

    def _take_file(self, path: bytes, entry: Entry, interest: Interest, reader: Content) -> bool:
        content: bytes | None = None
        if interest.whole and entry.size > interest.limit:
            limit = format_bytes(interest.limit)
            self.problems.append(
                f"{decode(path)} is {format_bytes(entry.size)} large, of which at most {limit} is read"
            )
        elif interest.limit and not entry.sparse:
            content = reader.read(min(len(_SCRIPT), entry.size)) if interest.script else b""
            if interest.script and content != _SCRIPT:
                return False
            content += reader.read(min(interest.limit, entry.size) - len(content))
            if interest.reduce is not None:
                content = interest.reduce(content)
                if content is None:
                    return False
        self._keep(Kept(decode(path), FILE, entry.size, entry.modified, content))
        return True

    def _take_hard_link(self, path: bytes, entry: Entry) -> bool:
        interest = judge_file(path)
        if interest is None:
            return False
        target = normalise(entry.target)
        other = self._files.get(decode(target)) if target else None
        if interest.script and (other is None or not (other.content or b"").startswith(_SCRIPT)):
            return False
        if other is not None:
            self._keep(other._replace(path=decode(path), content=other.content if interest.limit else None))
            return True
        # The file it is another name of was not kept, so neither its size nor its content is known.
        self._keep(Kept(decode(path), FILE, None, entry.modified, None))
        return True

    def _keep(self, kept: Kept) -> None:
        self._budget.keep(kept.path, kept.content)
        self._kept.append(kept)
        if kept.kind == FILE:
            self._files[kept.path] = kept


def encode(path: str) -> bytes:
    """Encode the path of an entry; half a pair of surrogates, which JSON can state and no name holds, becomes a question mark."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return path.encode("utf-8", "replace")


def decode(path: bytes) -> str:
    """Decode a path as Python does paths of the file system: every path can be, and back."""
    return path.decode("utf-8", "surrogateescape")
