"""Package indexes on this machine that answer slowly, with something else, or not to the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

JSON = "application/vnd.pypi.simple.v1+json"
PORTAL = b"<!DOCTYPE html><html><body><h1>Sign in</h1><a href='/login'>to go on</a></body></html>"
LIST = b'{"files": [{"filename": "peft-99.0-py3-none-any.whl", "url": "peft-99.0-py3-none-any.whl"}]}'


class Answer(NamedTuple):
    """How every question is answered."""

    status: int = 200
    content_type: str = JSON
    body: bytes = b""
    length: int | None = None
    """Of the body, as it says; None says the truth."""
    seconds: float = 0
    """Between one byte of the headers and of the body and the next."""


ANSWERS = {
    "hangs": None,
    "drips": Answer(body=LIST, seconds=0.3),
    "a portal": Answer(content_type="text/html", body=PORTAL),
    "a portal that says it is JSON": Answer(body=PORTAL),
    "cut off": Answer(body=LIST[:40], length=len(LIST)),
    "half of it": Answer(body=LIST[:40]),
    "another shape": Answer(body=b'{"files": [1, {"filename": 2}, null]}'),
    "a list": Answer(body=b"[1, 2, 3]"),
    "bytes": Answer(body=bytes(range(256))),
    "nothing": Answer(),
    "an error": Answer(status=500, content_type="text/plain", body=b"out of order"),
    "endless": Answer(body=b"[" * 3_000_000),
}
"""Name → answer; None never answers."""


class Server(ThreadingHTTPServer):
    """Answers every question in one way, and counts them."""

    daemon_threads = True
    answer: Answer | None
    asked: list[str]
    ended: threading.Event

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"

    def handle_error(self, *_: object) -> None:
        """Say nothing of those who hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answer = self.server.answer
        if answer is None:
            self.server.ended.wait(120)
            return
        length = len(answer.body) if answer.length is None else answer.length
        head = f"HTTP/1.1 {answer.status} OK\r\nContent-Type: {answer.content_type}\r\nContent-Length: {length}\r\n\r\n"
        whole = head.encode() + answer.body
        if not answer.seconds:
            self.wfile.write(whole)
        for position in range(len(whole) if answer.seconds else 0):
            self.wfile.write(whole[position : position + 1])
            self.wfile.flush()
            if self.server.ended.wait(answer.seconds):
                return

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serve(answer: Answer | None) -> Iterator[Server]:
    """Start an index."""
    server = Server(("127.0.0.1", 0), _Handler)
    server.answer, server.asked, server.ended = answer, [], threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
