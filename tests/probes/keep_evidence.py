"""Keep the evidence of runs that a change of a probe's code does not reach: `python -m tests.probes.keep_evidence COMMIT`.

What was measured with the probes of COMMIT stays as it is where its run, with its own parameters, is the same code today: the
program of that one run, with what its parameters decide decided and what it does not reach left out (`specialise`, `shorten`), is
the same text on both sides. Of the tables of a shared file an entry that one side lacks is not reached unless a parameter names
it. What is the same gets today's hash. Of everything else the command that measures it again is printed.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatcheck.lab.evidence.files import write_measurements
from compatcheck.lab.measurement_files import read_measurements
from compatcheck.lab.probes.probe import Probe, find_probe, find_shared, probe_names
from compatcheck.lab.probes.shortening import shorten
from compatcheck.lab.probes.specialising import specialise
from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.lab.measurement import Measurement

CATALOG = "compatcheck/lab/probes/catalog"
_CALLED = ("run", "prepare", "environ", "ALONE", "FORKS")
"""What a worker uses of a probe."""
_LOADED = re.compile(r"\.load\(['\"](\w+)['\"]\)")
_ATTRIBUTE = re.compile(r"\.(\w+)")


def is_same(before: Probe, after: Probe, parameters: Mapping[str, Any]) -> bool:
    """Tell whether a run with these parameters is the same code with both; of a file that is the same, all of it is."""
    return _read(before, parameters, after) == _read(after, parameters, before)


def _read(probe: Probe, parameters: Mapping[str, Any], other: Probe) -> dict[str, str]:
    """Return the code that a run reaches, by file."""
    complete = json.dumps({**probe.module.DEFAULTS, **parameters}, sort_keys=True)
    own = os.path.basename(probe.path)
    found: dict[str, str] = {own: ""}
    while True:
        reached = dict(found)
        text = "\n".join(found.values())
        names = frozenset(_ATTRIBUTE.findall(text))
        # No run loads what its setting does not share (`Recorder.load`).
        loaded = {*_LOADED.findall(text)} & {*probe.shares(parameters)}
        for name in (own, *(find_shared(os.path.dirname(probe.path), one) for one in sorted(loaded))):
            source = _source(probe, name)
            if source == _source(other, name):
                reached[name] = source
            elif name == own:
                reached[name] = _decide(source, complete)
            else:
                reached[name] = _shorten(_leave_out(source, _source(other, name), complete), names)
        if reached == found:
            return found
        found = reached


def _source(probe: Probe, name: str) -> str:
    path = Path(probe.path).with_name(name)
    return path.read_text(encoding="utf-8") if path.exists() else ""


@cache
def _leave_out(source: str, other: str, parameters: str) -> str:
    """Leave out the entries of tables that the other side lacks and no parameter names: a run looks up what it is told."""
    tree, named = ast.parse(source), {repr(value) for value in json.loads(parameters).values()}
    theirs = {target: _keys(table) for target, table in _tables(ast.parse(other))}
    for target, table in _tables(tree):
        kept = theirs.get(target, frozenset()) | named
        both = [(key, value) for key, value in zip(table.keys, table.values, strict=True) if _key(key) in kept]
        if target in theirs:
            table.keys, table.values = [key for key, _ in both], [value for _, value in both]
    return ast.unparse(tree)


def _tables(tree: ast.Module) -> Iterator[tuple[str, ast.Dict]]:
    """Yield the names at the top that are tables, and these."""
    for one in tree.body:
        if isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(one.value, ast.Dict):
            yield ast.unparse(one.targets[0] if isinstance(one, ast.Assign) else one.target), one.value


def _keys(table: ast.Dict) -> frozenset[str]:
    return frozenset(map(_key, table.keys))


def _key(key: ast.expr | None) -> str:
    """Return the key of an entry, ``**`` for a table that is spread in."""
    return "**" if key is None else ast.unparse(key)


@cache
def _decide(source: str, parameters: str) -> str:
    return shorten(specialise(source, "parameters", json.loads(parameters)), _CALLED)


@cache
def _shorten(source: str, names: frozenset[str]) -> str:
    return shorten(source, names)


def keep(one: Measurement, before: Probe, after: Probe) -> Measurement:
    """Return a measurement as one of today's code where its run is the same, else as it is."""
    if one.probe_hash == before.hash_for(one.parameters) and is_same(before, after, one.parameters):
        return replace(one, probe_hash=after.hash_for(one.parameters))
    return one


def _check_out(commit: str, folder: str) -> dict[str, Probe]:
    """Return the probes as they were."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, CATALOG],
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    names = probe_names()
    files = {path.stem: str(path) for path in Path(folder, CATALOG).glob("[!_]*.py")}
    return {name: find_probe(files[name]) for name in names if name in files}


def _stored() -> Iterator[tuple[Path, list[Measurement]]]:
    """Yield the files of evidence that hold a measurement of other code than today's."""
    names = set(probe_names())
    folders = (*(ROOT / "fixtures" / "measurements" / name for name in names), *ROOT.glob("fixtures/backtest/*/"))
    for path in (path for folder in sorted(folders) for path in sorted(folder.glob("*.json*"))):
        found = list(read_measurements(str(path)))
        if any(
            one.probe in names and one.probe_hash != find_probe(one.probe).hash_for(one.parameters) for one in found
        ):
            yield path, found


def main(commit: str) -> None:
    """Write the files anew, and print what is to be measured again."""
    with tempfile.TemporaryDirectory() as folder:
        earlier = _check_out(commit, folder)
        for path, found in _stored():
            kept = [
                keep(one, earlier[one.probe], find_probe(one.probe)) if one.probe in earlier else one for one in found
            ]
            if kept != found:
                write_measurements(str(path), kept)
            count = sum(one != other for one, other in zip(found, kept, strict=True))
            sys.stderr.write(f"{path.relative_to(ROOT)}: {count} of {len(found)} kept\n")
            if path.is_relative_to(ROOT / "fixtures" / "measurements"):
                for one in kept:
                    if one.probe_hash != find_probe(one.probe).hash_for(one.parameters):
                        print(one.command)


if __name__ == "__main__":
    main(*sys.argv[1:])
