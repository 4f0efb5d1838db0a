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
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.installation import tell_remedy
from compatcheck.core.node import Answers, Node, read_line, write_line
from compatcheck.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_POLL_SECONDS = 0.5
_CONNECT_SECONDS = 10.0
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
    with connect(address, "--address") as ray:
        return _collect(ray, options, timeout_seconds, note)


@contextmanager
def connect(address: str, option: str) -> Iterator[Any]:
    """Connect to a cluster, and leave it again; standard output is for the report, so what Ray says goes to standard error.

    Args:
        address: of the cluster, as `ray.init` takes it.
        option: which names it.

    Raises:
        UsageError: Ray is not there.
        InputError: no cluster answers, or it runs another release of Ray or Python.
    """
    try:
        import ray  # noqa: PLC0415 (only with a cluster)
    except ImportError:
        raise UsageError(f"{option} needs Ray, which is not there", hint=tell_remedy("ray")) from None
    with redirect_stdout(sys.stderr):
        began = not ray.is_initialized()
        if began:
            place = Source(f"{option} {address}")
            _require_listener(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address, place)
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                said = " ".join(str(error).split())
                raise InputError(said, source=place, hint="`ray status` shows the cluster") from None
        try:
            yield ray
        finally:
            if began:
                ray.shutdown()


def _require_listener(address: str, place: Source) -> None:
    """Refuse an address behind which nothing listens: Ray itself tries for a quarter of an hour.

    Raises:
        InputError: it does not, within `_CONNECT_SECONDS`.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        said = f"nothing answers there: {error}"
        raise InputError(said, source=place, hint="`ray status` shows the cluster") from None


def _collect(ray: Any, options: Mapping[str, Any], timeout_seconds: float, note: Callable[[str], None]) -> Answers:  # noqa: ANN401
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 (see above)

    deadline = time.monotonic() + timeout_seconds
    records = {record["NodeID"]: record for record in ray.nodes()}
    names = _name_nodes(records)
    task = ray.remote(num_cpus=0, max_retries=0)(_make_task())
    waiting = {}
    for key, record in records.items():
        if record["Alive"]:
            pinned = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False))
            waiting[pinned.remote(dict(options))] = key
    nodes: list[Node] = []
    lost: list[tuple[str, str]] = []
    for key, record in records.items():
        if not record["Alive"] and _is_missed(record, records.values()):
            lost.append(
                (names[key], f"died before it was asked: {record.get('DeathReasonMessage') or 'Ray says no more'}")
            )
    while waiting:
        note(f"waiting for {len(waiting)} of {len(records)} nodes")
        left = deadline - time.monotonic()
        done, _ = ray.wait(list(waiting), num_returns=1, timeout=max(0, min(left, _POLL_SECONDS)))
        for reference in done:
            key = waiting.pop(reference)
            found = _read_result(ray, reference, names[key], records[key])
            nodes.append(found) if isinstance(found, Node) else lost.append((names[key], found))
        if done:
            continue
        alive = {record["NodeID"] for record in ray.nodes() if record["Alive"]}
        for reference, key in list(waiting.items()):
            if key not in alive or left <= 0:
                del waiting[reference]
                hung = f"did not answer within {timeout_seconds:g} s"
                lost.append((names[key], hung if key in alive else "died before it answered"))
    return Answers(tuple(nodes), tuple(lost))


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
