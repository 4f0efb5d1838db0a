"""Show that `env`, `check` and `facts` make no network call: count their network system calls under strace.

    python benchmarks/network.py --environments DIR

takes the environments of `startup.py` (building what is missing) and needs `strace`. A command that does use the network is run
first, so that a broken tracer does not read as a proof.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import environments
from startup import CONFIGURED, MODEL, prepare

CALL = re.compile(r"^\d+\s+(?:<\.\.\. )?(\w+)[( ]")


def network_calls(command: list[str]) -> tuple[list[str], int]:
    """Return the network system calls of a command and its children, and its exit code."""
    strace = shutil.which("strace")
    if strace is None:
        raise SystemExit("strace is not on PATH")
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as log:
        done = subprocess.run(
            [strace, "-f", "-qq", "-e", "trace=network", "-e", "signal=none", "-o", log.name, *command],
            check=False,
            capture_output=True,
        )
        found = [match[1] for match in map(CALL.match, log) if match]
    return found, done.returncode


def main() -> None:
    """Trace and print Markdown; exit 1 if compatcheck made a network call, or the tracer saw none where there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="environments of startup.py")
    parser.add_argument("--uv", help="uv's binary; found by default")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    root = arguments.environments.resolve()
    own, targets = prepare(root, arguments.uv or environments.find_uv(), sys.executable, again=False)
    ours = str(own / "bin" / "compatcheck")
    python = environments.interpreter(targets[150])
    probe = "import socket; s = socket.socket(); s.settimeout(1); s.connect_ex(('127.0.0.1', 9))"
    rows = {
        "control: a script that connects to a closed local port": [python, "-c", probe],
        "`compatcheck env`": [str(targets[150] / "bin" / "compatcheck"), "env"],
        "`compatcheck env --python`": [ours, "env", "--python", python],
        "`compatcheck env --python --model --training --training`": [ours, "env", "--python", python, *CONFIGURED],
        "`compatcheck check DIRECTORY`": [ours, "check", str(MODEL.parent)],
        "`compatcheck facts --model --training --training`": [ours, "facts", *CONFIGURED],
        "`compatcheck env --model` with a hub id that is not cached": [
            *(ours, "env", "--python", python),
            *("--model", "example/not-cached"),
        ],
    }
    print("| command | network system calls | exit |\n|---|---|---:|")
    wrong = False
    for index, (name, command) in enumerate(rows.items()):
        calls, code = network_calls(command)
        wrong |= bool(calls) == bool(index)
        counts = ", ".join(f"{call} {calls.count(call)}" for call in sorted(set(calls))) or "none"
        print(f"| {name} | {counts} | {code} |")
    raise SystemExit(int(wrong))


if __name__ == "__main__":
    main()
