"""CPU time a lock file of `compatcheck bulk` beside programs that read lock files for known vulnerabilities, without a network.

    python benchmarks/bulk_peers.py --pip-audit PROGRAM --safety PROGRAM --safety-db DIR --syft PROGRAM [--files 40]

The locks are requirements files with every release pinned, which all of them read. They answer other questions: pip-audit and
safety ask for advisories, syft lists packages alone, which is the half that grype begins with. pip-audit asks a service on this
machine that knows of no advisory (`--osv-url`), safety a copy of its database. Each takes one file a run.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from cpu import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STACK = {"torch": "2.6.0", "deepspeed": "0.16.4", "transformers": "4.51.3", "trl": "0.16.0", "vllm": "0.8.3"}


class _NoAdvisory(BaseHTTPRequestHandler):
    """Answers as OSV does of what it knows nothing about."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"vulns": []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def write_locks(folder: Path, count: int, packages: int) -> list[str]:
    """Write requirements files that pin everything."""
    drawn, paths = random.Random(count), []  # noqa: S311 (the same draws each time)
    for number in range(count):
        path = folder / f"{number:05}" / "requirements.txt"
        path.parent.mkdir(parents=True)
        pins = {**STACK, **{f"package-{index}": f"1.{drawn.randrange(9)}.0" for index in range(packages - len(STACK))}}
        path.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        paths.append(str(path))
    return paths


def list_commands(given: argparse.Namespace, osv: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield name, the command that tells its release, and the command that is followed by a file."""
    if given.pip_audit:
        options = ["--progress-spinner", "off", "--disable-pip", "--no-deps", "-s", "osv", "--osv-url", osv, "-r"]
        yield "pip-audit", [given.pip_audit, "--version"], [given.pip_audit, *options]
    if given.safety:
        options = ["check", "--db", given.safety_db, "--output", "bare", "-r"]
        yield "safety", [given.safety, "--version"], [given.safety, *options]
    if given.syft:
        yield "syft", [given.syft, "--version"], [given.syft, "scan", "-q", "-o", "json"]


def measure_each(command: Sequence[str], paths: Sequence[str]) -> tuple[float, set[int]]:
    """Return the median of the CPU seconds over files, and the exit codes."""
    runs = [run([*command, path]) for path in paths]
    return statistics.median(one.cpu_seconds for one in runs), {one.exit_code for one in runs}


def main() -> None:
    """Write a table."""
    parser = argparse.ArgumentParser()
    for name in ("pip-audit", "safety", "safety-db", "syft"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--packages", type=int, default=100)
    given = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NoAdvisory)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("| program | CPU ms a file | exit codes |\n|---|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        paths = write_locks(Path(folder) / "locks", given.files, given.packages)
        command = [sys.executable, "-m", "compatcheck", "bulk", *paths, "--no-policy"]
        done = run(command)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(
            f"| compatcheck bulk ({peak:.0f} MiB) | {1000 * done.cpu_seconds / given.files:.0f} | {done.exit_code} |",
            flush=True,
        )
        command = [sys.executable, "-m", "compatcheck", "check", "--no-policy"]
        seconds, codes = measure_each(command, paths[:20])
        print(f"| compatcheck check, one file a run | {1000 * seconds:.0f} | {sorted(codes)} |", flush=True)
        osv = f"http://127.0.0.1:{server.server_port}"
        for name, telling, command in list_commands(given, osv):
            release = run(telling).output.decode().split()[-1]
            seconds, codes = measure_each(command, paths[:10])
            print(f"| {name} {release} | {1000 * seconds:.0f} | {sorted(codes)} |", flush=True)


if __name__ == "__main__":
    main()
