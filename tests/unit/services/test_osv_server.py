"""The OSV endpoint answers as the public service does, and stands up to clients that do not behave."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.versions import compile_specifier, contains
from compatcheck.rules.osv import Affected, Record
from compatcheck.services.osv_server import MAX_QUERIES, MAX_REQUEST_BYTES, Answers, OsvServer, QueryError


def record(name: str, package: str, specifier: str) -> Record:
    data = {"schema_version": "1.7.5", "id": name, "modified": "2026-11-21T00:00:00Z", "summary": f"About {package}"}
    return Record(
        name, name, conditional=False, affected=(Affected(package, compile_specifier(specifier), None),), data=data
    )


RECORDS = [
    record("x_A-1", "flash-attn", ">=2.4.1,<3"),
    record("x_A-2", "torch", ">=2.9,<2.9.1"),
    record("x_A-3", "torch", ">=2.8"),
    record("x_A-4", "torch", "<2"),
]


@contextmanager
def serving(answers: Answers, host: str = "127.0.0.1"):
    with OsvServer((host, 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)


@pytest.fixture(scope="module")
def server():
    with serving(Answers(RECORDS)) as running:
        yield running


def ask(server: OsvServer, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict]:
    connection = http.client.HTTPConnection(*urlsplit(server.url).netloc.split(":"), timeout=10)
    try:
        data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        assert response.getheader("Content-Type") == "application/json"
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def ids(answer: dict) -> list[str]:
    return [entry["id"] for entry in answer.get("vulns", [])]


def pypi(name: str, version: str | None = None, **more: str) -> dict:
    return {"package": {"name": name, "ecosystem": "PyPI"}, **({"version": version} if version else {}), **more}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (pypi("torch", "2.9.0"), ["x_A-2", "x_A-3"]),
        (pypi("torch", "2.9.0+cu128"), ["x_A-2", "x_A-3"]),
        (pypi("Torch", "2.9.0.post1"), ["x_A-2", "x_A-3"]),
        (pypi("torch", "2.7.1"), []),
        (pypi("torch"), ["x_A-2", "x_A-3", "x_A-4"]),
        (pypi("Flash_Attn", "2.5"), ["x_A-1"]),
        (pypi("flash.attn", "2.5"), ["x_A-1"]),
        (pypi("unknown", "1"), []),
        ({"package": {"name": "torch"}, "version": "1.13"}, ["x_A-4"]),
        ({"package": {"name": "torch", "ecosystem": "npm"}, "version": "2.9.0"}, []),
        ({"package": {"purl": "pkg:pypi/torch@2.9.0"}}, ["x_A-2", "x_A-3"]),
        ({"package": {"purl": "pkg:pypi/torch@2.9.0%2Bcu128?arch=x#sub"}}, ["x_A-2", "x_A-3"]),
        ({"package": {"purl": "pkg:PyPI/Flash_Attn"}, "version": "2.5"}, ["x_A-1"]),
        ({"package": {"purl": "pkg:npm/%40scope/torch@2.9.0"}}, []),
        ({"commit": "6879efc2c1596d11a6a6ad296f80063b558d5e0f"}, []),
    ],
)
def test_queries_are_answered(server, query, expected) -> None:
    status, answer = ask(server, "POST", "/v1/query", query)
    assert (status, ids(answer)) == (200, expected)
    assert (answer == {}) == (expected == [])
    status, answer = ask(server, "POST", "/v1/querybatch", {"queries": [query, pypi("unknown", "1")]})
    assert status == 200
    assert [ids(entry) for entry in answer["results"]] == [expected, []]
    for entry in answer["results"][0].get("vulns", []):
        assert set(entry) == {"id", "modified"}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "Invalid query."),
        ([], "Invalid query."),
        (pypi(""), "Invalid query."),
        ({"package": {"name": "torch"}}, "Invalid query."),
        ({"package": "torch"}, "Invalid query."),
        ({"package": {"name": 1, "ecosystem": "PyPI"}}, "Invalid query."),
        (pypi("torch", "1", commit="a" * 40), "Invalid query."),
        ({"package": {"name": "torch", "ecosystem": "pypi"}, "version": "1"}, "Invalid ecosystem."),
        (pypi("torch", "two"), "Invalid version."),
        (pypi("torch", "1" * 1000), "Invalid version."),
        ((pypi("torch", "2.9.0") | {"page_token": "x"}), "Invalid page token."),
        ((pypi("torch", "2.9.0") | {"page_token": "7"}), "Invalid page token."),
        ((pypi("torch", "2.9.0") | {"page_token": "²"}), "Invalid page token."),
        ({"package": {"purl": "torch"}}, "Invalid Package URL."),
        ({"package": {"purl": "pkg:pypi/torch", "name": "torch"}}, "name specified in a PURL query"),
        ({"package": {"purl": "pkg:pypi/torch", "ecosystem": "PyPI"}}, "ecosystem specified in a PURL query"),
        ({"package": {"purl": "pkg:pypi/torch@1"}, "version": "1"}, "version specified in params and PURL query"),
    ],
)
def test_what_makes_no_sense_is_refused(server, query, message) -> None:
    assert ask(server, "POST", "/v1/query", query) == (400, {"code": 3, "message": message})
    assert ask(server, "POST", "/v1/querybatch", {"queries": [query]}) == (400, {"code": 3, "message": message})


def test_one_record_is_given_by_id(server) -> None:
    assert ask(server, "GET", "/v1/vulns/x_A-1") == (200, dict(RECORDS[0].data))
    assert ask(server, "GET", "/v1/vulns/x_A-9") == (404, {"code": 5, "message": "Bug not found."})
    assert ask(server, "GET", "/v1/vulns/..%2F..%2Fetc%2Fpasswd")[0] == 404
    assert ask(server, "GET", "/")[0] == 404
    assert ask(server, "POST", "/v1/other", {})[0] == 404


def test_long_answers_come_in_pages() -> None:
    many = [record(f"x_A-{index}", "torch", ">=1") for index in range(7)]
    answers = Answers(many, page_size=3)
    found, token, pages = [], None, 0
    while pages == 0 or token is not None:
        answer = answers.query(pypi("torch", "2", **({} if token is None else {"page_token": token})))
        batch = answers.query_batch(
            {"queries": [pypi("torch", "2", **({} if token is None else {"page_token": token}))]}
        )
        assert ids(batch["results"][0]) == ids(answer)
        assert batch["results"][0].get("next_page_token") == answer.get("next_page_token")
        found += ids(answer)
        token = answer.get("next_page_token")
        pages += 1
    assert found == [entry.id for entry in many]
    assert pages == 3


def test_builds_that_may_hold_the_fix_are_told_only_where_asked_for() -> None:
    query = pypi("torch", "2.9.1rc1")
    assert contains(RECORDS[1].affected[0].bounds, "2.9.1rc1") == "boundary"
    assert ids(Answers(RECORDS[:2]).query(query)) == []
    assert ids(Answers(RECORDS[:2], uncertain=True).query(query)) == ["x_A-2"]


def test_batches_are_bounded() -> None:
    answers = Answers(RECORDS)
    assert len(answers.query_batch({"queries": [pypi("torch", "2.9.0")] * MAX_QUERIES})["results"]) == MAX_QUERIES
    with pytest.raises(QueryError, match="Too many queries"):
        answers.query_batch({"queries": [{}] * (MAX_QUERIES + 1)})
    assert answers.query_batch({"queries": []}) == {"results": []}
    assert answers.query_batch({}) == {"results": []}


def test_requests_are_bounded(server) -> None:
    body = b" " * (MAX_REQUEST_BYTES + 1)
    host, port = urlsplit(server.url).netloc.split(":")
    for length, status in ((str(len(body)), 413), ("9" * 400, 413), ("-1", 411), ("", 411)):
        with socket.create_connection((host, int(port)), timeout=10) as stream:
            head = f"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
            stream.sendall(head.encode())
            answer = stream.makefile("rb").read()
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:60]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 200_000, b"null", b'"x"', b"1e999"])
def test_bodies_that_are_no_query_are_refused(server, body) -> None:
    status, answer = ask(server, "POST", "/v1/query", body)
    assert (status, answer["code"]) == (400, 3)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["package", "name", "ecosystem", "purl", "version", "commit", "page_token", "queries"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_body_is_answered_or_refused(body) -> None:
    answers = Answers(RECORDS)
    for answer in (answers.query, answers.query_batch):
        try:
            assert isinstance(answer(body), dict)
        except QueryError as error:
            assert error.status == 400


def test_many_clients_are_served_at_once(server) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(server, "POST", "/v1/query", pypi("torch", "2.9.0")), range(200)))
    assert {tuple(ids(answer)) for _, answer in answers} == {("x_A-2", "x_A-3")}


def test_nothing_is_logged(server, capfd) -> None:
    ask(server, "POST", "/v1/query", pypi("private-name", "1"))
    ask(server, "GET", "/v1/vulns/private-name")
    ask(server, "POST", "/v1/query", b"private-name")
    host, port = urlsplit(server.url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as stream:
        stream.sendall(b"nonsense private-name\r\n\r\n")
    assert ask(server, "GET", "/")[0] == 404
    assert capfd.readouterr() == ("", "")


def test_it_stops_while_a_client_is_idle() -> None:
    with serving(Answers(RECORDS)) as running:
        host, port = urlsplit(running.url).netloc.split(":")
        idle = socket.create_connection((host, int(port)), timeout=10)
    with idle, pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=2)
