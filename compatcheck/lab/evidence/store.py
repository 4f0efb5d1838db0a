"""The store of measurements: one SQLite file that several processes may write at once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.source import Source
from compatcheck.lab.evidence.index import extend_index, is_current, write_index
from compatcheck.lab.location import VARIABLE, store_path
from compatcheck.lab.measurement import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.lab.measurement import Measurement

APPLICATION_ID = 0x636D7063
"""``cmpc`` in the header of the file: SQLite's own way to tell whose database it is."""
MIGRATIONS = (
    """
    CREATE TABLE measurement (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        probe TEXT NOT NULL,
        probe_hash TEXT NOT NULL,
        backend TEXT NOT NULL,
        accounting TEXT NOT NULL,
        status TEXT NOT NULL,
        parameters TEXT NOT NULL,
        time TEXT NOT NULL,
        data TEXT NOT NULL
    );
    CREATE INDEX measurement_by_task ON measurement (probe, probe_hash, backend, accounting, parameters);
    CREATE INDEX measurement_by_time ON measurement (time);
    """,
)
"""Scripts that lead from each schema version to the next; ``user_version`` counts those that were run."""
FINAL = ("ok", "unsupported")
"""Statuses that running again would not change."""
_BUSY_SECONDS = 30.0
_ROOM_BYTES = 2**16
_ID_DIGITS = 12
_COMPACT = (",", ":")


class Stored(NamedTuple):
    """One row."""

    id: str
    """First twelve digits of the SHA-256 of the measurement as JSON."""
    measurement: Measurement


class EvidenceStore:
    """Measurements in a SQLite file; an object may be used from several threads, a file from several processes."""

    def __init__(self, path: str | None = None, *, read_only: bool = False, follows: bool = True) -> None:
        """Name a file; it is opened, and made where it is missing, at the first use.

        Args:
            path: the file, by default where the environment says (see `store_path`).
            read_only: never write; a file that is missing reads as an empty one.
            follows: with ``read_only``, whether what others add meanwhile is to be seen; else the file is read as it is,
                and nothing is made beside it.
        """
        self.path = store_path(os.environ) if path is None else path
        self.read_only = read_only
        self.follows = follows
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> EvidenceStore:  # noqa: PYI034 (Self came with Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @property
    def exists(self) -> bool:
        """Whether there is a file with something in it.

        Raises:
            InputError: there cannot be one: its folder is a file, or may not be looked into.
        """
        try:
            return os.stat(self.path).st_size > 0
        except FileNotFoundError:
            return False
        except OSError as error:
            message = f"cannot be a store of measurements: {error.strerror or error}"
            raise self._error(message, f"name another file with {VARIABLE}") from None

    def add(self, measurement: Measurement) -> None:
        """Keep a measurement; one that is there already, to the second of its time, is not kept twice.

        Raises:
            InputError: the file cannot be written or is no store.
        """
        self.add_all((measurement,))

    def add_all(self, measurements: Iterable[Measurement]) -> int:
        """Keep several measurements at once and return how many were new.

        Raises:
            InputError: the file cannot be written or is no store.
        """
        measurements = tuple(measurements)
        rows = [
            (
                identify(measurement),
                measurement.probe,
                measurement.probe_hash,
                measurement.backend,
                measurement.accounting,
                measurement.status,
                _canonical(measurement.parameters),
                measurement.time or "",
                json.dumps(to_json(measurement), separators=_COMPACT, ensure_ascii=False),
            )
            for measurement in measurements
        ]
        with self._guarded() as connection:
            before = connection.total_changes
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT OR IGNORE INTO measurement (id, probe, probe_hash, backend, accounting, status, parameters, time,"
                " data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            added = connection.total_changes - before
            self._index(connection, measurements)  # before the end of the transaction, so one process at a time
            connection.execute("COMMIT")
            return added

    def _index(self, connection: sqlite3.Connection, measurements: Sequence[Measurement]) -> None:
        """Say in the index what was just kept; of a file that has none, everything that succeeded."""
        # Without an index the store is asked itself, so one that cannot be written loses nothing but time.
        with contextlib.suppress(OSError):
            if is_current(self.path):
                extend_index(self.path, [(one.probe, one.versions) for one in measurements if one.succeeded])
                return
            query = "SELECT probe, data FROM measurement WHERE status = 'ok'"
            held = connection.execute(query).fetchall()
            write_index(self.path, [(probe, json.loads(data).get("versions") or {}) for probe, data in held])

    def find(  # noqa: PLR0913 (what identifies a measurement)
        self,
        *,
        probe: str,
        probe_hash: str,
        backend: str,
        accounting: str,
        parameters: Mapping[str, Any],
        versions: Mapping[str, str],
        environment: str | None = None,
    ) -> Measurement | None:
        """Return the newest result of exactly this task under these releases, or None: what resuming asks.

        A result is ``ok`` or ``unsupported``; what failed, hung or was interrupted is run again.

        Args:
            probe: name of the probe.
            probe_hash: of its text.
            backend: ``fake``, ``cpu`` or ``cuda``.
            accounting: what is counted.
            parameters: all of them.
            versions: releases that must be the same; a measurement may name more.
            environment: of all packages; what was measured before it was recorded is measured again.
        """
        condition = (
            "probe = ? AND probe_hash = ? AND backend = ? AND accounting = ? AND parameters = ? AND status IN (?, ?)"
        )
        values = (probe, probe_hash, backend, accounting, _canonical(parameters), *FINAL)
        for row in self._rows(condition + _NAMES_RELEASE * len(versions), (*values, *_entries(versions))):
            if includes(row.measurement.versions, versions) and row.measurement.environment == environment:
                return row.measurement
        return None

    def list(
        self,
        *,
        probe: str | None = None,
        backend: str | None = None,
        status: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        since: str | None = None,
    ) -> Iterator[Stored]:
        """Yield measurements, the newest first.

        Args:
            probe: a name, with ``*`` and ``?`` as in file names.
            backend: ``fake``, ``cpu`` or ``cuda``.
            status: one of `compatcheck.lab.measurement.STATUSES`.
            parameters: parameters that must have these values.
            versions: releases that must be these.
            since: earliest time, ``2026-11-21`` or with hours.
        """
        conditions, values = ["1"], []
        for condition, value in (
            ("probe GLOB ?", probe),
            ("backend = ?", backend),
            ("status = ?", status),
            ("time >= ?", since),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        releases = versions or {}
        condition = " AND ".join(conditions) + _NAMES_RELEASE * len(releases)
        for row in self._rows(condition, (*values, *_entries(releases))):
            if includes(row.measurement.parameters, parameters or {}) and includes(row.measurement.versions, releases):
                yield row

    def get(self, start: str) -> tuple[Stored, ...]:
        """Return the measurements whose id starts so; more than one when the start is too short."""
        if not start or not set(start.lower()) <= set("0123456789abcdef"):
            return ()
        return tuple(self._rows("id GLOB ?", (f"{start.lower()}*",)))

    def __len__(self) -> int:
        return sum(count for (count,) in self._select("SELECT count(*) FROM measurement", ()))

    def _rows(self, condition: str, values: Iterable[str]) -> Iterator[Stored]:
        query = f"SELECT id, data FROM measurement WHERE {condition} ORDER BY time DESC, number DESC"  # noqa: S608 (conditions are this module's)
        for name, data in self._select(query, tuple(values)):
            try:
                yield Stored(name, from_json(json.loads(data)))
            except (ValueError, RecursionError) as error:
                message = f"measurement {name} cannot be read: {error}"
                raise self._error(message) from None

    def _select(self, query: str, values: tuple[str, ...]) -> Sequence[Any]:
        if not self.exists:
            return []
        with self._guarded() as connection:
            # Whoever is just making the file has not told its schema yet.
            if self.read_only and not _number(connection, "user_version"):
                return []
            return connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        """Give the open connection to one thread, and name the file in whatever goes wrong."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                yield self._connection
            except sqlite3.Error as error:
                if self._connection is not None and self._connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise self._error(*_explain(error, self.path)) from None
            except OSError as error:
                message = f"the measurements cannot be kept here: {error.strerror or error}"
                raise self._error(message) from None

    def _error(self, message: str, hint: str | None = None) -> InputError:
        return InputError(
            message, source=Source(self.path), hint=hint or f"move it aside, or name another file with {VARIABLE}"
        )

    def _open(self) -> sqlite3.Connection:
        if os.path.isdir(self.path):
            message = "is a directory, not a store of measurements"
            raise self._error(message, f"name a file with {VARIABLE}")
        connection = self._connect_to_read() if self.read_only else self._connect_to_write()
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """Open without writing; a directory that is not writable holds no shared memory, and then the file is taken as it is.

        With nothing in a write-ahead log nobody is writing, and the file is taken as it is at once: else SQLite makes both
        files of the log beside it, only to read.
        """
        quoted = _quote(self.path)
        choices = ("mode=ro", "mode=ro&immutable=1")
        for options in choices if self.follows or _holds_bytes(f"{self.path}-wal") else choices[1:]:
            connection = _connect(f"file:{quoted}?{options}", uri=True)
            try:
                connection.execute("PRAGMA user_version").fetchone()
            except sqlite3.Error as error:
                connection.close()
                if options != choices[0] or not isinstance(error, sqlite3.OperationalError):
                    raise
            else:
                return connection
        raise AssertionError

    def _connect_to_write(self) -> sqlite3.Connection:
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        return _connect(self.path)

    def _check(self, connection: sqlite3.Connection) -> None:
        """Tell a store from other files, and bring it to this schema.

        Raises:
            InputError: another program's file, or of a newer release.
        """
        if _number(connection, "application_id") != APPLICATION_ID:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._refuse_foreign(connection)
            if not self.read_only:
                _use_write_ahead_log(connection)
        version = _number(connection, "user_version")
        if version > len(MIGRATIONS):
            message = (
                f"was written by a newer release of compatcheck (schema {version}, this one reads {len(MIGRATIONS)})"
            )
            raise self._error(message, f"upgrade compatcheck, or name another file with {VARIABLE}")
        if self.read_only:
            return
        # With the write-ahead log a power cut may lose the last measurement, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        if version == len(MIGRATIONS):
            return
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have done it meanwhile.
        for script in MIGRATIONS[_number(connection, "user_version") :]:
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        # A process that is just making the file has the lock until it says whose it is.
        if not self.read_only:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
        if _number(connection, "application_id") != APPLICATION_ID:
            message = "is a database of another program, not a store of measurements"
            raise self._error(message)


def identify(measurement: Measurement) -> str:
    """Return the id of a measurement: twelve digits of the SHA-256 of its JSON."""
    return hashlib.sha256(_canonical(to_json(measurement)).encode()).hexdigest()[:_ID_DIGITS]


def includes(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Tell whether a mapping holds all of another."""
    return all(name in values and values[name] == value for name, value in wanted.items())


_NAMES_RELEASE = " AND instr(data, ?)"
"""Leaves out at once what does not name a release; that it is named among the versions is checked on what is left."""


def _entries(versions: Mapping[str, str]) -> list[str]:
    return [f"{_canonical(name)}:{_canonical(version)}" for name, version in versions.items()]


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=_COMPACT, ensure_ascii=False, default=dict)


def _holds_bytes(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False


def _quote(path: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415 (beside its use)

    return quote(os.path.abspath(path))


def _connect(path: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers and one writer work at once; the busy timeout does not cover this change of mode, so it is tried again."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _is_full(path: str) -> bool:
    """Tell whether there is no room for what SQLite keeps beside a file: it does not always say that this is what it lacks."""
    try:
        room = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except (OSError, AttributeError):  # not on every system
        return False
    return room.f_bavail * room.f_frsize < _ROOM_BYTES


def _explain(error: sqlite3.Error, path: str) -> tuple[str, str | None]:
    """Say what SQLite found, and what to do where moving the file aside is not it."""
    text = str(error)
    if "I/O error" in text and _is_full(path):
        text = "the disk is full"
    if "not a database" in text:
        return "is not a store of measurements", None
    if "malformed" in text or "corrupt" in text:
        return f"is damaged: {text}", "`sqlite3 FILE .recover` may save what is in it; move it aside to start anew"
    if "locked" in text or "busy" in text:
        return f"is held by another process for more than {_BUSY_SECONDS:g} s", "let that process end, then try again"
    if "full" in text:
        return f"cannot be written: {text}", "make room on this disk; what was measured before is kept"
    if "readonly" in text or "unable to open" in text:
        return f"cannot be opened: {text}", f"check its permissions, or name another file with {VARIABLE}"
    return f"cannot be used: {text}", None
