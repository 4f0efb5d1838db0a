"""An OSV endpoint on this machine: `pip-audit -s osv --osv-url …` and `uv audit --service-url …` report our rules through it.

It answers ``POST /v1/query``, ``POST /v1/querybatch`` and ``GET /v1/vulns/ID`` as the public service does, errors included
(https://google.github.io/osv.dev/api/), out of memory and for reading only. Nothing that is asked is logged or kept.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from compatcheck.core.markers import canonical_name
from compatcheck.core.versions import contains, parse_version
from compatcheck.rules.osv import ECOSYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from compatcheck.rules.osv import Record

MAX_REQUEST_BYTES = 2**20
MAX_QUERIES = 1000
"""Queries of one batch, as in the public service."""
PAGE_SIZE = 1000
"""Records of one page; pip-audit reads no second one."""
MAX_CONNECTIONS = 64
_IDLE_SECONDS = 30
_MAX_VERSION_CHARACTERS = 200

_INVALID_ARGUMENT = 3
_NOT_FOUND = 5
_PURL = re.compile(r"pkg:/*(?P<type>[A-Za-z][A-Za-z0-9.+-]*)/(?P<path>[^?#@]+)(?:@(?P<version>[^?#]+))?(?:[?#].*)?")


class QueryError(Exception):
    """A request that is answered with an error."""

    def __init__(self, message: str, status: int = 400, code: int = _INVALID_ARGUMENT) -> None:
        """Keep the HTTP status, and the code and message of the body."""
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "message": message}


class _Question(NamedTuple):
    """A query that is understood; None asks for something no record is about."""

    package: str
    version: str | None
    offset: int


class Answers:
    """The records, and what each request is answered with."""

    def __init__(self, records: Iterable[Record], *, uncertain: bool = False, page_size: int = PAGE_SIZE) -> None:
        """Index the records by package.

        Args:
            records: what is served.
            uncertain: whether a build whose number does not tell on which side of a fix it lies is reported too.
            page_size: most records of one answer.
        """
        self.records = {record.id: record for record in records}
        self.uncertain = uncertain
        self.page_size = page_size
        self.by_package: dict[str, list[Record]] = {}
        for record in self.records.values():
            for package in dict.fromkeys(entry.package for entry in record.affected):
                self.by_package.setdefault(package, []).append(record)

    def query(self, body: object) -> dict[str, Any]:
        """Answer ``/v1/query``: whole records.

        Raises:
            QueryError: the query makes no sense.
        """
        records, token = self._find(body)
        return _listed([dict(record.data) for record in records], token)

    def query_batch(self, body: object) -> dict[str, Any]:
        """Answer ``/v1/querybatch``: ids and dates, one list per query and in their order.

        Raises:
            QueryError: a query makes no sense, or there are too many.
        """
        queries = body.get("queries", []) if isinstance(body, dict) else None
        if not isinstance(queries, list):
            msg = "Invalid query."
            raise QueryError(msg)
        if len(queries) > MAX_QUERIES:
            msg = "Too many queries."
            raise QueryError(msg)
        results = []
        for query in queries:
            records, token = self._find(query)
            results.append(
                _listed([{"id": record.id, "modified": record.data["modified"]} for record in records], token)
            )
        return {"results": results}

    def vulnerability(self, identifier: str) -> Mapping[str, Any]:
        """Answer ``/v1/vulns/ID``.

        Raises:
            QueryError: there is no such record.
        """
        record = self.records.get(identifier)
        if record is None:
            msg = "Bug not found."
            raise QueryError(msg, 404, _NOT_FOUND)
        return record.data

    def _find(self, query: object) -> tuple[list[Record], str | None]:
        question = _understand(query)
        if question is None:
            return [], None
        found = [
            record
            for record in self.by_package.get(question.package, ())
            if question.version is None or self._affects(record, question.package, question.version)
        ]
        if question.offset and question.offset >= len(found):
            msg = "Invalid page token."
            raise QueryError(msg)
        end = question.offset + self.page_size
        return found[question.offset : end], str(end) if end < len(found) else None

    def _affects(self, record: Record, package: str, version: str) -> bool:
        wanted = {"yes", "boundary"} if self.uncertain else {"yes"}
        return any(contains(entry.bounds, version) in wanted for entry in record.affected if entry.package == package)


def _listed(vulnerabilities: list[dict[str, Any]], token: str | None) -> dict[str, Any]:
    if not vulnerabilities:
        return {}
    return {"vulns": vulnerabilities, **({"next_page_token": token} if token is not None else {})}


def _understand(query: object) -> _Question | None:
    """Read one query; None when it is about a commit or another ecosystem, of which there are no records."""
    if not isinstance(query, dict):
        msg = "Invalid query."
        raise QueryError(msg)
    commit, version, token = (_text(query, key) for key in ("commit", "version", "page_token"))
    if token and not (token.isascii() and token.isdigit() and len(token) <= len(str(MAX_REQUEST_BYTES))):
        msg = "Invalid page token."
        raise QueryError(msg)
    if commit and version:
        msg = "Invalid query."
        raise QueryError(msg)
    if commit:
        return None
    package = query.get("package")
    if not isinstance(package, dict):
        msg = "Invalid query."
        raise QueryError(msg)
    name, ecosystem, purl = (_text(package, key) for key in ("name", "ecosystem", "purl"))
    if purl:
        name, version, ecosystem = _read_purl(purl, name, ecosystem, version)
    if not name or not (ecosystem or version):
        msg = "Invalid query."
        raise QueryError(msg)
    if ecosystem and ecosystem != ECOSYSTEM:
        if ecosystem.partition(":")[0].lower() == ECOSYSTEM.lower():
            msg = "Invalid ecosystem."
            raise QueryError(msg)
        return None
    if version and (len(version) > _MAX_VERSION_CHARACTERS or parse_version(version) is None):
        msg = "Invalid version."  # the public service compares such texts; an empty answer would read as "not affected"
        raise QueryError(msg)
    return _Question(canonical_name(name), version or None, int(token or 0))


def _read_purl(purl: str, name: str, ecosystem: str, version: str) -> tuple[str, str, str]:
    """Return name, version and ecosystem of a package URL: ``pkg:pypi/torch@2.9.0``."""
    if name:
        msg = "name specified in a PURL query"
        raise QueryError(msg)
    if ecosystem:
        msg = "ecosystem specified in a PURL query"
        raise QueryError(msg)
    match = _PURL.fullmatch(purl)
    if match is None:
        msg = "Invalid Package URL."
        raise QueryError(msg)
    stated = unquote(match["version"] or "")
    if stated and version:
        msg = "version specified in params and PURL query"
        raise QueryError(msg)
    kind = match["type"].lower()
    return unquote(match["path"]).strip("/"), stated or version, ECOSYSTEM if kind == "pypi" else kind


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        msg = "Invalid query."
        raise QueryError(msg)
    return value


class OsvServer(ThreadingHTTPServer):
    """The HTTP server around `Answers`."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], answers: Answers) -> None:
        """Bind; `serve_forever` then answers, until `shutdown`.

        Args:
            address: host and port; 0 takes a free one.
            answers: what is served.

        Raises:
            OSError: the address cannot be taken.
        """
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.answers = answers
        self.free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Address of the service, without a path."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 (socketserver's signature)
        """Answer in a thread of its own, as long as there are not too many."""
        if not self.free.acquire(timeout=_IDLE_SECONDS):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 (socketserver's signature)
        """Answer the requests of one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 (socketserver's signature)
        """Let a connection that broke off go; anything else is a bug and shown."""
        import sys  # noqa: PLC0415 (only after an error)

        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: OsvServer
    protocol_version = "HTTP/1.1"
    server_version = "compatcheck"
    sys_version = ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer ``/v1/vulns/ID``."""
        path = self.path.partition("?")[0]
        if not path.startswith("/v1/vulns/"):
            self._send(404, {"code": _NOT_FOUND, "message": "Not Found"})
            return
        try:
            self._send(200, self.server.answers.vulnerability(unquote(path.removeprefix("/v1/vulns/"))))
        except QueryError as error:
            self._send(error.status, error.body)

    def do_POST(self) -> None:
        """Answer ``/v1/query`` and ``/v1/querybatch``."""
        answers = self.server.answers
        known = {"/v1/query": answers.query, "/v1/querybatch": answers.query_batch}
        answer = known.get(self.path.partition("?")[0])
        try:
            body = self._read()
            if answer is None:
                self._send(404, {"code": _NOT_FOUND, "message": "Not Found"})
            else:
                self._send(200, answer(body))
        except QueryError as error:
            self._send(error.status, error.body)

    def _read(self) -> object:
        """Read the body, which must say its length and be small."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            msg = "A Content-Length is needed."
            raise QueryError(msg, 411)
        if len(length) > len(str(MAX_REQUEST_BYTES)) or int(length) > MAX_REQUEST_BYTES:
            self.close_connection = True
            msg = f"The request is larger than {MAX_REQUEST_BYTES} bytes."
            raise QueryError(msg, 413)
        data = self.rfile.read(int(length))
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            msg = "Request body is not valid JSON."
            raise QueryError(msg) from None

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's signature)
        """Log nothing: what people have installed is nobody's business."""
