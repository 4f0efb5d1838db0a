"""The releases of a package and what they require, as the configured package index lists them.

No index is named here: the one that pip or uv is set up for is used.
"""

from __future__ import annotations

import base64
import html.parser
import http.client
import io
import lzma
import os
import queue
import re
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from compatcheck.core.errors import InputError
from compatcheck.core.json_file import parse_json
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.services.pip_index import ask_pip, pip_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
TIMEOUT_SECONDS = 60.0
"""Of one step of an answer: until a connection is there, until more of it comes."""
TOTAL_SECONDS = 180.0
"""Of a whole answer: one that comes drop by drop ends, too."""
MOST_BYTES = 512 * 2**20
"""Of a whole answer: the longest lists of files have some tens of MB, source archives a hundred."""
_MOST_METADATA_BYTES = 16 * 2**20
_PIECE_BYTES = 1 << 16
_FAILURES = (OSError, http.client.HTTPException)
_NO_SUCH_FILE = (
    *_FAILURES,
    InputError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
)
"""What reading a file of an index may end in that is no wheel or archive, or not all of one."""
_DEFAULT_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


class IndexFile(NamedTuple):
    """One file an index offers."""

    filename: str
    url: str
    uploaded: str | None
    """ISO date, None when the index does not say."""
    yanked: bool


class Release(NamedTuple):
    """One version of a package."""

    version: str
    date: str | None
    """ISO date of the first file uploaded; None when the index does not say."""
    yanked: bool
    """Every file of it is yanked."""
    prerelease: bool


def find_index_url() -> str:
    """Return the index that pip or uv is set up for.

    Raises:
        InputError: nothing is set up and no pip can be asked for its default.
    """
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if value := os.environ.get(name):
            return value.strip()
    if stated := pip_options().get("index-url"):
        return stated
    for done in ask_pip("-c", _DEFAULT_INDEX):
        if lines := [line for line in done.output.split() if "://" in line]:
            return lines[-1]
    raise InputError("no package index is set up", hint="set PIP_INDEX_URL, or run from an interpreter that has pip")


def list_files(package: str) -> list[IndexFile]:
    """Return every file the index offers for ``package``, reading the JSON or the HTML form of the simple API.

    Raises:
        InputError: the index does not answer, answers with something else, or does not know the package.
    """
    name = canonicalize_name(package)
    base = find_index_url().rstrip("/") + f"/{name}/"
    if base.startswith("file:"):
        base += "index.html"
    try:
        answer = _fetch(base, {"Accept": _ACCEPT})
    except _FAILURES as error:
        why = getattr(error, "code", None) or (error if isinstance(error, _LimitError) else None)
        raise InputError(f"{name}: the package index did not answer" + (f" ({why})" if why else "")) from None
    try:
        text = answer.body.decode()
        found = list(_parse_json(text, base) if "json" in answer.content_type else _parse_html(text, base))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"{name}: the package index answers with something else than a list of files") from None
    if not any(release_of(file.filename, name) for file in found):
        raise InputError(f"{name}: the package index lists no file of it")
    return found


def fetch_releases(package: str) -> tuple[Release, ...]:
    """Return every release of ``package`` on the index, oldest version first, pre-releases included.

    Raises:
        InputError: the index does not answer, or does not know the package.
    """
    files: dict[Version, list[IndexFile]] = {}
    for file in list_files(package):
        version = release_of(file.filename, package)
        if version is not None:
            files.setdefault(version, []).append(file)
    return tuple(
        Release(
            str(version),
            min((file.uploaded for file in group if file.uploaded), default=None),
            all(file.yanked for file in group),
            version.is_prerelease,
        )
        for version, group in sorted(files.items())
    )


def release_of(filename: str, package: str) -> Version | None:
    """Return the version in the name of a wheel or source archive, None when it is neither or belongs to no version."""
    stem = re.sub(r"\.(whl|tar\.gz|tar\.bz2|tar\.xz|zip)$", "", filename)
    prefix = re.match(re.sub(r"-", "[-_.]+", canonicalize_name(package)) + "-", stem, re.IGNORECASE)
    if stem == filename or prefix is None:
        return None
    rest = stem[prefix.end() :]
    try:
        return Version(rest.split("-")[0] if filename.endswith(".whl") else rest)
    except InvalidVersion:
        return None


def read_requirements(package: str, version: str) -> tuple[str, ...]:
    """Return the ``Requires-Dist`` lines of one release without installing or running it.

    Of a wheel only its directory and its METADATA are transferred (range requests). Of a source archive the ``requires.txt``
    or ``requirements.txt`` that its build recorded is read.

    Raises:
        InputError: the release has no file, or none that states its requirements.
    """
    wanted = Version(version)
    files = [file for file in list_files(package) if release_of(file.filename, package) == wanted]
    for file in sorted(files, key=_metadata_cost):
        try:
            lines = _wheel_requirements(file.url) if file.filename.endswith(".whl") else _sdist_requirements(file.url)
        except _NO_SUCH_FILE:  # another one may be whole
            continue
        if lines is not None:
            return lines
    raise InputError(f"{package} {version}: no file states its requirements", hint="read them in the source tag")


def fetch_file(url: str) -> bytes:
    """Return what lies at an address.

    Raises:
        InputError: nothing does, or more than may.
    """
    try:
        return _fetch(url, {}).body
    except _FAILURES as error:
        why = getattr(error, "code", None) or error
        raise InputError(f"there is no file ({why})") from None


class _LimitError(OSError):
    """An answer is too slow or too long."""


class _Answer(NamedTuple):
    """A whole answer of an index."""

    body: bytes
    content_type: str = ""
    span: str | None = None
    """``Content-Range``."""


def _fetch(url: str, headers: dict[str, str], most_bytes: int = MOST_BYTES) -> _Answer:
    """Return what an address of the index answers.

    Raises:
        OSError: it does not, not within `TOTAL_SECONDS`, or with more than it may.
        HTTPException: the answer ends too early.
        InputError: it is none of https, http and file.
    """
    results: queue.SimpleQueue[_Answer | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            results.put(_read(url, headers, most_bytes))
        except Exception as error:  # noqa: BLE001 (raised where it was asked)
            results.put(error)

    # Time limits of sockets are for each step; headers that come drop by drop would never end.
    threading.Thread(target=ask, daemon=True).start()
    try:
        result = results.get(timeout=TOTAL_SECONDS)
    except queue.Empty:
        raise _LimitError(f"not within {TOTAL_SECONDS:g} s") from None
    if isinstance(result, Exception):
        raise result
    return result


def _read(url: str, headers: dict[str, str], most_bytes: int) -> _Answer:
    deadline = time.monotonic() + TOTAL_SECONDS
    body = bytearray()
    with _open(url, headers) as answer:
        while piece := answer.read1(_PIECE_BYTES) if hasattr(answer, "read1") else answer.read(_PIECE_BYTES):
            body += piece
            if len(body) > most_bytes:
                raise _LimitError(f"more than {most_bytes} bytes")
            if time.monotonic() > deadline:
                raise _LimitError(f"not within {TOTAL_SECONDS:g} s")
        length = answer.headers.get("Content-Length")
        if length is not None and length.isdecimal() and int(length) > len(body):
            raise http.client.IncompleteRead(bytes(body))  # read1() itself takes an early end for the end
        return _Answer(bytes(body), answer.headers.get("Content-Type") or "", answer.headers.get("Content-Range"))


def _open(url: str, headers: dict[str, str]) -> HTTPResponse:
    """Open an address of the index: https, http or file, as pip would; its credentials go to that host alone."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"https", "http", "file"}:
        raise InputError("the package index has an address that is neither https, http nor file")
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers=headers)  # noqa: S310 (checked above)
    if at:
        name, _, password = map(urllib.parse.unquote, user.partition(":"))
        token = base64.b64encode(f"{name}:{password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # type: ignore[no-any-return]  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise


def _parse_json(text: str, base: str) -> Iterator[IndexFile]:
    for file in parse_json(text, base).get("files", []):
        uploaded = file.get("upload-time")
        yield IndexFile(
            file["filename"],
            urllib.parse.urljoin(base, file["url"]),
            uploaded[:10] if uploaded else None,
            bool(file.get("yanked")),
        )


def _parse_html(text: str, base: str) -> Iterator[IndexFile]:
    page = _SimplePage()
    page.feed(text)
    for attributes in page.anchors:
        url = urllib.parse.urljoin(base, attributes.get("href") or "").split("#")[0]
        filename = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])
        uploaded = attributes.get("data-upload-time")
        yield IndexFile(filename, url, uploaded[:10] if uploaded else None, "data-yanked" in attributes)


class _SimplePage(html.parser.HTMLParser):
    """Collects the attributes of every link."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a link's attributes."""
        if tag == "a":
            self.anchors.append(dict(attrs))


def _metadata_cost(file: IndexFile) -> tuple[int, str]:
    """Order files: Linux wheels first (other platforms may require less), then any wheel, then archives."""
    if not file.filename.endswith(".whl"):
        return (3, file.filename)
    x86 = "x86_64" in file.filename and "linux" in file.filename
    return (0 if x86 and "cp311" in file.filename else 1 if x86 or "any" in file.filename else 2, file.filename)


class RangeFile(io.RawIOBase):
    """A remote file read by HTTP range requests, so that ``zipfile`` can open a wheel without fetching it."""

    def __init__(self, url: str) -> None:
        """Ask for the size of the file at ``url``."""
        self._url = url
        self._position = 0
        span = _fetch(url, {"Range": "bytes=-1"}, most_bytes=1).span
        if span is None:
            raise InputError("the package index does not answer range requests")
        self._size = int(span.rsplit("/", 1)[1])

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to ``offset`` and return the new position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = min(max(start + offset, 0), self._size)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the typeshed buffer protocol is wider
        """Fill ``buffer`` from the current position and return the number of bytes read."""
        last = min(self._position + len(buffer), self._size) - 1
        if last < self._position:
            return 0
        data = _fetch(self._url, {"Range": f"bytes={self._position}-{last}"}, most_bytes=len(buffer)).body
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def open_wheel(url: str) -> zipfile.ZipFile:
    """Open the wheel at ``url``, transferring only what is read of it."""
    if url.startswith("file:"):
        return zipfile.ZipFile(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
    return zipfile.ZipFile(io.BufferedReader(RangeFile(url), buffer_size=1 << 16))


def _wheel_requirements(url: str) -> tuple[str, ...] | None:
    with open_wheel(url) as wheel:
        names = [name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        if not names:
            return None
        with wheel.open(names[0]) as stream:
            text = stream.read(_MOST_METADATA_BYTES).decode()
        return tuple(HeaderParser().parsestr(text).get_all("Requires-Dist") or ())


def _sdist_requirements(url: str) -> tuple[str, ...] | None:
    if not url.endswith(".tar.gz"):
        return None
    data = io.BytesIO(_fetch(url, {}).body)
    with tarfile.open(fileobj=data, mode="r:gz") as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers() if member.isfile()}
        for name, member in members.items():
            if name.endswith(".egg-info/requires.txt") and (stream := archive.extractfile(member)) is not None:
                return tuple(_parse_requires(stream.read(_MOST_METADATA_BYTES).decode()))
        if "requirements.txt" in members and (stream := archive.extractfile(members["requirements.txt"])) is not None:
            text = stream.read(_MOST_METADATA_BYTES).decode()
            return tuple(line.split("#")[0].strip() for line in text.splitlines() if line.split("#")[0].strip())
    return None


def _parse_requires(text: str) -> Iterator[str]:
    """Turn setuptools' ``requires.txt`` (sections ``[extra:marker]``) into ``Requires-Dist`` lines."""
    condition = ""
    for raw in text.splitlines():
        line = raw.strip()
        if match := re.fullmatch(r"\[([^:\]]*)(?::(.*))?\]", line):
            extra, marker = match.groups()
            parts = [f"({marker})"] if marker else []
            parts += [f'extra == "{extra}"'] if extra else []
            condition = " and ".join(parts)
        elif line:
            yield f"{line}; {condition}" if condition else line
