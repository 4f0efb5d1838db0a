"""What a requirement stands for today: a release, a commit, or the content of a tree.

An overlay is kept under what is in it. A branch moves, a tree is edited and a newer release comes out under the same words, so
the words are no name for it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact
from compatcheck.lab.environments.git import find_commit
from compatcheck.lab.environments.installed import hash_tree, local_path, read_origin
from compatcheck.lab.environments.installer import UnbuildableError
from compatcheck.services.releases import fetch_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import Distribution

_STATED_HASH = re.compile(r"[#&]sha256=[0-9a-f]{64}")
_SHORT_HASH = re.compile(r"[0-9a-f]{7,40}")


class ResolvedSource(NamedTuple):
    """A requirement that means the same tomorrow."""

    requirement: str
    """With the commit that its branch stood for."""
    content: str = ""
    """Hash of the local tree or file that it names; empty for a release or a commit."""


def resolve_source(text: str) -> ResolvedSource:
    """Say what a requirement names: a commit for a branch, the content of a local tree or file.

    Raises:
        UnbuildableError: there is no such commit, tree or file.
    """
    requirement = Requirement(text)
    url = requirement.url
    if url is None:
        return ResolvedSource(text)
    if url.startswith("git+"):
        return ResolvedSource(text.replace(url, _pin_commit(url)))
    path = local_path(url.partition("#")[0])
    if path is None:
        return ResolvedSource(text, "" if _STATED_HASH.search(url) else _hash_archive(url))
    if Path(path).is_dir():
        return ResolvedSource(text, hash_tree(path))
    try:
        return ResolvedSource(text, hashlib.sha256(Path(path).read_bytes()).hexdigest())
    except OSError as error:
        msg = f"{url}: {error.strerror or error}"
        raise UnbuildableError(msg) from None


def _hash_archive(url: str) -> str:
    """Return the hash of a file elsewhere: ``main.zip`` is another one tomorrow."""
    try:
        return hashlib.sha256(fetch_file(url)).hexdigest()
    except InputError as error:
        msg = f"{redact(url)}: {error.message}"
        raise UnbuildableError(msg) from None


def _pin_commit(url: str) -> str:
    address, hash_sign, fragment = url.partition("#")
    start = address.find("/", address.find("//") + 2)
    path = address[start:]
    # A user name may have an @ of its own, and a branch slashes.
    place, at, name = path.rpartition("@") if "@" in path else (path, "", "")
    repository = address[:start] + place
    commit = find_commit(repository.removeprefix("git+"), name or "HEAD")
    if commit is None and not _SHORT_HASH.fullmatch(name):
        msg = f"{repository} lists no branch or tag {name or 'HEAD'}{'' if at else ' (is it a git repository?)'}"
        raise UnbuildableError(msg)
    return f"{repository}@{commit or name}{hash_sign}{fragment}"


def requirement_of(distribution: Distribution) -> str:
    """Return the requirement that installs what is there again: its release, its commit, or its tree."""
    name = canonicalize_name(distribution.metadata["Name"])
    origin = read_origin(distribution)
    if origin is None:
        return f"{name}=={distribution.version}"
    return _write(name, origin, (origin.get("vcs_info") or {}).get("commit_id"))


def asked_for(distribution: Distribution) -> str | None:
    """Return the requirement by which a commit or a tree came here, with the branch that was named; None for a release."""
    origin = read_origin(distribution)
    if origin is None:
        return None
    revision = (origin.get("vcs_info") or {}).get("requested_revision")
    return _write(canonicalize_name(distribution.metadata["Name"]), origin, revision)


def _write(name: str, origin: Mapping[str, Any], revision: str | None) -> str:
    vcs = (origin.get("vcs_info") or {}).get("vcs")
    where = f"{vcs}+{origin['url']}{f'@{revision}' if revision else ''}" if vcs else str(origin["url"])
    return f"{name} @ {where}" + (f"#subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else "")
