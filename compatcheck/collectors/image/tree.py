"""The files of an image as its layers leave them: names and contents that were kept, with links resolved inside the image."""

from __future__ import annotations

import errno
import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatcheck.collectors.image.layers import HASH_BYTES, Budget, LimitError, hash_path
from compatcheck.collectors.image.tar import DIRECTORY, LINK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.collectors.image.layers import Kept, LayerRecord

MAX_LINKS = 40
"""Symbolic links followed in one path before it counts as a loop, as Linux has it (path_resolution(7))."""
MAX_NODES = 200_000
"""Files, links and directories of one tree; the directories above what is kept count too."""


class File:
    """A regular file; its content is there only where something is read from it (`wanted_files`)."""

    __slots__ = ("content", "modified", "size_bytes")

    def __init__(self, size_bytes: int | None, modified: float, content: bytes | None) -> None:
        self.size_bytes = size_bytes
        self.modified = modified
        self.content = content


class Link:
    """A symbolic link; the target is as written, absolute ones mean the root of the image."""

    __slots__ = ("modified", "target")

    def __init__(self, target: str, modified: float) -> None:
        self.target = target
        self.modified = modified


class Directory:
    """A directory with those of its entries that were kept."""

    __slots__ = ("children", "modified")

    def __init__(self, modified: float) -> None:
        self.modified = modified
        self.children: dict[str, Node] = {}


Node = File | Link | Directory


class ImageTree:
    """The kept files of one image; implements `compatcheck.core.files.Files`.

    Paths are absolute inside the image (``/usr/lib/python3.11``). A path that was not kept does not exist here: only
    what `wanted_files` names is there, and the directories above it. Links never lead out of the image: ``..`` of the root
    is the root, an absolute link begins at it.
    """

    def __init__(self) -> None:
        self.root = Directory(0.0)
        self._index: dict[bytes, tuple[Directory, str]] = {}
        """`hash_path` → the directory and the name there, of all that was ever added."""
        self._parents: dict[str, tuple[Directory, str]] = {}
        """Directories of the layer that is being applied, with their real path, by their path as it is written there."""
        self._steps = 0
        """Directories entered since they were last counted."""

    # --- layers ---

    def apply(self, layer: LayerRecord, budget: Budget | None = None) -> list[str]:
        """Lay the next layer over the tree.

        Parents are resolved inside the image, links included, as containerd does it; an entry takes the place of
        whatever had its name, except that a directory leaves a directory as it is.

        Returns:
            What could not be applied, in words.
        """
        budget = budget or Budget()
        self._parents = {}
        lost: list[str] = []
        try:
            budget.take_steps((len(layer.hidden) + len(layer.hidden_by_directories)) // HASH_BYTES)
            for path in layer.removed:
                self._remove(path)
                self._spend(budget)
            for path in layer.opaque:
                node = self._node_or_none(path)
                self._spend(budget)
                if isinstance(node, Directory):
                    node.children.clear()
            if self._index:
                self._hide(layer.hidden, directories=True)
                self._hide(layer.hidden_by_directories, directories=False)
            for kept in layer.kept:
                try:
                    self._add(kept)
                except OSError as error:
                    lost.append(f"{kept.path}: {error.strerror}")
                self._spend(budget)
        except LimitError as error:
            return [str(error)]
        finally:
            self._parents = {}
        more = f", and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        return [f"{lost[0]}{more}"] if lost else []

    def _spend(self, budget: Budget) -> None:
        budget.take_steps(self._steps + 1)
        self._steps = 0

    def _remove(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        parent = self._node_or_none(folder)
        if isinstance(parent, Directory):
            parent.children.pop(name, None)

    def _hide(self, hashes: bytes, *, directories: bool) -> None:
        """Remove what has the path of an entry that was not kept."""
        for start in range(0, len(hashes), HASH_BYTES):
            found = self._index.get(hashes[start : start + HASH_BYTES])
            if found is not None:
                parent, name = found
                if directories or not isinstance(parent.children.get(name), Directory):
                    parent.children.pop(name, None)

    def _add(self, kept: Kept) -> None:
        folder, _, name = kept.path.rpartition("/")
        known = self._parents.get(folder)
        if known is None:
            known = self._parents[folder] = self._make_directory(folder)
        parent, real = known
        old = parent.children.get(name)
        if kept.kind == DIRECTORY:
            if isinstance(old, Directory):
                old.modified = kept.modified
                return
            new: Node = Directory(kept.modified)
        elif kept.kind == LINK:
            new = Link(kept.target, kept.modified)
        else:
            new = File(kept.size_bytes, kept.modified, kept.content)
        if isinstance(new, Link) or isinstance(old, Link | Directory):
            self._parents = {}
        self._put(parent, name, new, f"{real}/{name}" if real else name)

    def _make_directory(self, path: str) -> tuple[Directory, str]:
        """Return the directory at a path, made with those above it where it is missing, and its real path.

        Raises:
            OSError: ELOOP.
        """
        real = self._walk("/" + path, follow=True)[0]
        self._steps += real.count("/") + 1
        node = self.root
        made = ""
        for name in real.split("/"):
            if not name:
                continue
            made = f"{made}/{name}" if made else name
            child = node.children.get(name)
            if not isinstance(child, Directory):
                child = Directory(0.0)
                self._put(node, name, child, made)
            node = child
        return node, made

    def _put(self, parent: Directory, name: str, node: Node, path: str) -> None:
        if len(self._index) >= MAX_NODES:
            raise LimitError(f"has more than {MAX_NODES:,} files and directories to be kept; the rest was left out")
        parent.children[name] = node
        self._index[hash_path(path.encode("utf-8", "surrogateescape"))] = parent, name

    # --- Files ---

    def list_names(self, folder: str) -> list[str]:
        """See `Files`."""
        node = self._node(folder)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, folder)
        return list(node.children)

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return self._node_or_none(path) is not None

    def is_file(self, path: str) -> bool:
        """See `Files`."""
        return isinstance(self._node_or_none(path), File)

    def is_program(self, path: str) -> bool:
        """See `Files`; the contents of programs are not kept."""
        return self.is_file(path)

    def is_directory(self, path: str) -> bool:
        """See `Files`."""
        return isinstance(self._node_or_none(path), Directory)

    def read_text(self, path: str, limit: int = 65536) -> str:
        """See `Files`; of a METADATA file only the headers were kept, of a conda record its scalar fields and metadata files."""
        # A character has at most four bytes.
        return self.read_bytes(path, 4 * limit).decode("utf-8", errors="replace")[:limit]

    def size_bytes(self, path: str) -> int:
        """See `Files`; the true size, also where less of the content was kept."""
        node = self._node(path)
        if isinstance(node, Directory):
            return 0
        if node.size_bytes is None:
            raise _error(errno.ENODATA, path)
        return node.size_bytes

    def modified(self, path: str) -> float:
        """See `Files`."""
        return self._node(path).modified

    def identify(self, path: str) -> object:
        """See `Files`."""
        self._node(path)
        return self.resolve(path)

    def resolve(self, path: str) -> str:
        """See `Files`."""
        try:
            return self._walk(path, follow=True)[0]
        except OSError:
            return os.path.normpath(path)

    # --- further questions about an image ---

    def read_bytes(self, path: str, limit: int | None = None) -> bytes:
        """Return the first bytes of what was kept of a file.

        Raises:
            OSError: there is no such file (ENOENT, EISDIR, ELOOP), or its content was not kept (ENODATA).
        """
        node = self._node(path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        if not isinstance(node, File) or node.content is None:
            raise _error(errno.ENODATA, path)
        return node.content if limit is None else node.content[:limit]

    def read_link(self, path: str) -> str | None:
        """Return the target of a symbolic link as it is written, or None when the path is none."""
        try:
            node = self._walk(path, follow=False)[1]
        except OSError:
            return None
        return node.target if isinstance(node, Link) else None

    def find(self, *patterns: str) -> Iterator[str]:
        """List the paths of everything whose name matches one of the patterns (fnmatch), sorted by path within a directory.

        Links are listed when their own name matches, and not followed: everything is found under its real path only.
        """
        plain = {pattern for pattern in patterns if not any(sign in pattern for sign in "*?[")}
        globs = [pattern for pattern in patterns if pattern not in plain]
        waiting: list[tuple[str, Directory]] = [("", self.root)]
        while waiting:
            folder, directory = waiting.pop()
            below = []
            for name in sorted(directory.children):
                path = f"{folder}/{name}"
                if name in plain or any(fnmatchcase(name, pattern) for pattern in globs):
                    yield path
                child = directory.children[name]
                if isinstance(child, Directory):
                    below.append((path, child))
            waiting += reversed(below)

    def find_directories(self, *patterns: str) -> Iterator[str]:
        """List directories by name, as `find` does: ``site-packages``, ``dist-packages``, ``conda-meta``."""
        return (path for path in self.find(*patterns) if self.read_link(path) is None and self.is_directory(path))

    def find_files(self, *patterns: str) -> Iterator[str]:
        """List regular files by name, as `find` does: ``pyvenv.cfg``, ``python3*``."""
        return (path for path in self.find(*patterns) if self.read_link(path) is None and self.is_file(path))

    def glob(self, pattern: str) -> list[str]:
        """Return the existing paths that match an absolute pattern, segment by segment: ``/usr/local/cuda*/version.json``.

        Links are followed on the way.
        """
        paths = ["/"]
        for segment in pattern.strip("/").split("/"):
            found = []
            for path in paths:
                base = path.rstrip("/")
                if not any(sign in segment for sign in "*?["):
                    if self.exists(f"{base}/{segment}"):
                        found.append(f"{base}/{segment}")
                    continue
                node = self._node_or_none(path)
                if isinstance(node, Directory):
                    found += [f"{base}/{name}" for name in sorted(node.children) if fnmatchcase(name, segment)]
            paths = found
        return [path for path in paths if self.exists(path)]

    # --- resolution ---

    def _node(self, path: str) -> File | Directory:
        node = self._walk(path, follow=True)[1]
        if node is None or isinstance(node, Link):
            raise _error(errno.ENOENT, path)
        return node

    def _node_or_none(self, path: str) -> File | Directory | None:
        try:
            return self._node(path)
        except OSError:
            return None

    def _walk(self, path: str, *, follow: bool) -> tuple[str, Node | None]:
        """Return the real path and what is there; a part that does not exist, and what follows it, stay as they are written.

        Raises:
            OSError: ELOOP after too many links.
        """
        waiting = [part for part in reversed(path.split("/")) if part not in {"", "."}]
        names: list[str] = []
        nodes: list[Node | None] = [self.root]
        links = 0
        while waiting:
            self._steps += 1
            name = waiting.pop()
            if name == "..":
                if names:
                    names.pop()
                    nodes.pop()
                continue
            above = nodes[-1]
            node = above.children.get(name) if isinstance(above, Directory) else None
            if isinstance(node, Link) and (follow or waiting):
                links += 1
                if links > MAX_LINKS:
                    raise _error(errno.ELOOP, path)
                if node.target.startswith("/"):
                    names, nodes = [], [self.root]
                waiting += [part for part in reversed(node.target.split("/")) if part not in {"", "."}]
                continue
            names.append(name)
            nodes.append(node)
        return "/" + "/".join(names), nodes[-1]


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
