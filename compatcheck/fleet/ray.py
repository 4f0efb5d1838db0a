"""Nodes of a Ray cluster, each collected by one task that is pinned to it.

The task asks for no processor, so that a busy node runs it as well (one that is pinned and asks for more than is free waits for
ever), and has no ``runtime_env`` of its own, which would give it another environment than the job's: as the entry point of
``ray job submit --runtime-env-json …`` it sees what the job's own tasks see.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.installation import tell_remedy
from compatcheck.core.node import Answers, Node, read_line, write_line
from compatcheck.core.patience import wait_for
from compatcheck.core.source import Source
from compatcheck.core.textfile import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

CONNECT_SECONDS = 60.0
"""Until a cluster has taken a driver that has no limit of its own."""
_POLL_SECONDS = 0.5
_GREET_SECONDS = 10.0
_LEAVE_SECONDS = 5.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""What a client of gRPC begins with: the preface of HTTP/2 and empty settings (RFC 9113, 3.4)."""
_SETTINGS = 4
"""Type of the frame that a server of HTTP/2 answers with; it stands behind the three bytes of the frame's length."""
_REMEDY = "`ray status` shows the cluster; one that wants a token is reached with RAY_AUTH_MODE=token"
_MOST_SAID = 200
_DRAINED = frozenset({1, 4})
"""Reasons of Ray for a node that is gone on purpose: it was stopped, or drained as idle (NodeDeathInfo.Reason of gcs.proto)."""


def collect_nodes(
    address: str, options: Mapping[str, Any], timeout_seconds: float, note: Callable[[str], None] = lambda _: None
) -> Answers:
    """Collect every node of a cluster as ``compatcheck env --dump`` does there, in the interpreter that its workers run in.

    Args:
        address: of the cluster, as `ray.init` takes it.
        options: fields of a `Request`: another environment, and the configuration files of the job.
        timeout_seconds: for all nodes together; those that have said nothing by then are lost.
        note: takes what is to be said while it waits.

    Raises:
        UsageError: Ray is not there.
        InputError: no cluster answers, or it runs another release of Ray or Python.
    """
    deadline = time.monotonic() + timeout_seconds
    said: dict[str, Node | str] = {}
    with connect(address, "--address", timeout_seconds) as ray:
        try:
            wait_for(lambda: _ask(ray, options, deadline, said, note), deadline + 2 * _POLL_SECONDS - time.monotonic())
        except TimeoutError:  # the head of the cluster itself hangs
            if not said:
                why = f"it says of no node within {timeout_seconds:g} s"
                raise InputError(why, source=Source(f"--address {address}"), hint=_REMEDY) from None
    nodes = tuple(found for found in said.values() if isinstance(found, Node))
    hung = f"did not answer within {timeout_seconds:g} s"
    return Answers(nodes, tuple((name, why or hung) for name, why in said.items() if not isinstance(why, Node)))


@contextmanager
def connect(address: str, option: str, timeout_seconds: float = CONNECT_SECONDS) -> Iterator[Any]:
    """Connect to a cluster, and leave it again; standard output is for the report, so what Ray says goes to standard error.

    Args:
        address: of the cluster, as `ray.init` takes it.
        option: which names it.
        timeout_seconds: until it is connected.

    Raises:
        UsageError: Ray is not there.
        InputError: no cluster answers in time, or it runs another release of Ray or Python.
    """
    try:
        import ray  # noqa: PLC0415 (only with a cluster)
    except ImportError:
        raise UsageError(f"{option} needs Ray, which is not there", hint=tell_remedy("ray")) from None
    with redirect_stdout(sys.stderr):
        began = not ray.is_initialized()
        if began:
            place, deadline = Source(f"{option} {address}"), time.monotonic() + timeout_seconds
            _require_cluster(
                os.environ.get("RAY_ADDRESS", "") if address == "auto" else address, place, timeout_seconds
            )
            try:
                wait_for(
                    lambda: ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR),
                    deadline - time.monotonic(),
                )
            except TimeoutError:
                said = f"something answers there, and Ray did not connect to it within {timeout_seconds:g} s"
                raise InputError(said, source=place, hint=_REMEDY) from None
            except (ConnectionError, RuntimeError, ValueError) as error:
                said = " ".join(str(error).split())
                raise InputError(said, source=place, hint=_REMEDY) from None
        try:
            yield ray
        finally:
            if began:
                with suppress(TimeoutError):
                    wait_for(ray.shutdown, _LEAVE_SECONDS)


def _require_cluster(address: str, place: Source, timeout_seconds: float) -> None:
    """Refuse an address behind which nothing listens, or nothing that speaks gRPC, and say what does.

    Raises:
        InputError: it does not, within the time and `_GREET_SECONDS`.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit() or os.environ.get("RAY_USE_TLS", "0") not in {"", "0"}:
        return
    limit = max(0.1, min(_GREET_SECONDS, timeout_seconds))
    try:
        with socket.create_connection((host.strip("[]"), int(port)), limit) as there:
            there.settimeout(limit)
            there.sendall(_GREETING)
            try:
                answer = there.recv(256)
            except TimeoutError:
                said = f"no Ray is there: what listens says nothing within {limit:g} s"
                raise InputError(said, source=place, hint=_REMEDY) from None
    except (OSError, OverflowError) as error:
        said = f"nothing answers there: {error}"
    else:
        if answer[3:4] == bytes([_SETTINGS]):
            return
        first = echo(answer.decode("utf-8", "replace").partition("\n")[0].strip())
        said = f"no Ray is there: it answers {first}" if answer else "no Ray is there: it hangs up"
    raise InputError(said, source=place, hint=_REMEDY)


def _ask(
    ray: Any,  # noqa: ANN401 (Ray's module)
    options: Mapping[str, Any],
    deadline: float,
    said: dict[str, Node | str],
    note: Callable[[str], None],
) -> None:
    """Ask each node, and write down under its name what it says, or why it cannot; an empty reason: nothing yet."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 (see above)

    records = {record["NodeID"]: record for record in ray.nodes()}
    names = _name_nodes(records)
    for key, record in records.items():
        if record["Alive"]:
            said[names[key]] = ""
        elif _is_missed(record, records.values()):
            said[names[key]] = f"died before it was asked: {record.get('DeathReasonMessage') or 'Ray says no more'}"
    task = ray.remote(num_cpus=0, max_retries=0)(_make_task())
    waiting = {}
    for key, record in records.items():
        if record["Alive"]:
            pinned = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False))
            waiting[pinned.remote(dict(options))] = key
    while waiting and time.monotonic() < deadline:
        note(f"waiting for {len(waiting)} of {len(records)} nodes")
        left = min(deadline - time.monotonic(), _POLL_SECONDS)
        done, _ = ray.wait(list(waiting), num_returns=1, timeout=max(0, left))
        for reference in done:
            key = waiting.pop(reference)
            said[names[key]] = _read_result(ray, reference, names[key], records[key])
        if done:
            continue
        alive = {record["NodeID"] for record in ray.nodes() if record["Alive"]}
        for reference, key in list(waiting.items()):
            if key not in alive:
                del waiting[reference]
                said[names[key]] = "died before it answered"


def _is_missed(dead: Any, records: Iterable[Any]) -> bool:  # noqa: ANN401 (a record of Ray's)
    """Tell whether a node that Ray remembers as dead belongs to the job: it was not drained, and its host has no other since."""
    at_its_host = [record for record in records if record["Alive"] and _host(record) == _host(dead)]
    return dead.get("DeathReason") not in _DRAINED and len(at_its_host) != 1


def _host(record: Any) -> Any:  # noqa: ANN401
    return record.get("NodeManagerAddress")


def _name_nodes(records: dict[str, Any]) -> dict[str, str]:
    """Name nodes by their hosts; where a host or a name has several, by the name that Ray has for each, then by its id."""
    names: dict[str, str] = {}
    for field in ("NodeManagerHostname", "NodeName", "NodeID"):
        for key, record in records.items():
            alike = [other for other in records.values() if other.get(field) == record.get(field)]
            if key not in names and record.get(field) and len(alike) == 1:
                names[key] = str(record[field])
    return names


def _read_result(ray: Any, reference: Any, name: str, record: Any) -> Node | str:  # noqa: ANN401 (Ray's)
    """Return the node that a task collected, or why there is none."""
    try:
        node = read_line(ray.get(reference))
    except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
        return "died before it answered"
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        said = " ".join(str(cause or error).split())[:_MOST_SAID]
        absent = isinstance(cause, ImportError)
        return f"compatcheck is not installed there, or is of another release: {said}" if absent else said
    except ValueError as error:
        return str(error)
    offered: int = int(record["Resources"].get("GPU", 0))
    return node._replace(name=name, devices_offered=offered)


def _make_task() -> Callable[[Mapping[str, Any]], str]:
    """Return what runs on a node: sent whole, for compatcheck may be missing there."""

    def dump(options: Mapping[str, Any]) -> str:
        from compatcheck.fleet.ray import describe_worker  # noqa: PLC0415 (on the node)

        return describe_worker(options)

    return dump


def describe_worker(options: Mapping[str, Any]) -> str:
    """Return the line of the node that this runs on, for the interpreter that it runs in unless another one is named."""
    from compatcheck.checking.request import Request  # noqa: PLC0415 (on the node)
    from compatcheck.fleet.dump import describe_node  # noqa: PLC0415
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415

    environ = dict(os.environ)
    if (
        environ.get("CUDA_VISIBLE_DEVICES") == ""
    ):  # by Ray, for a task that asks for no device, and not for those of the job
        del environ["CUDA_VISIBLE_DEVICES"]
    request = Request(**options)
    if request.python is None and request.prefix is None:
        environ["VIRTUAL_ENV"] = sys.prefix
        request = request._replace(python=sys.executable)
    return write_line(describe_node(request, open_rules(()), environ))
