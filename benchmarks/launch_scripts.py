"""Compare what compatcheck reads in launch scripts with what bash does with them.

    python benchmarks/launch_scripts.py DIRECTORY [--arguments 2 4 8] [--show 20]

DIRECTORY has one directory per framework with its public scripts, fetched and not committed. Every script is run by bash in a
root directory of its own that holds bash and a few plain tools, as a user without rights, without a network, without an
environment, for six seconds at most: every other command is recorded with its words and its environment instead of being run
(needs Linux, root for ``chroot`` and ``unshare``). Then every recorded command is looked for among those compatcheck reads:
a word is *equal*, or *unresolved* (compatcheck says that it does not know it), or *wrong*. A Markdown table goes to standard
output, what differs to standard error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.core.errors import InputError
from compatcheck.core.textfile import read_text
from compatcheck.shell import Script, read_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.command import Command, Word

TOOLS = ("bash", "basename", "cat", "cut", "dirname", "expr", "head", "mkdir", "seq", "tail", "tee", "tr", "wc")
PRELUDE = r"""
command_not_found_handle() {
  local out=/recorded/$EPOCHREALTIME.$BASHPID
  local -; set +xu
  local name
  for name in $(compgen -e); do printf '%s=%s\0' "$name" "${!name}"; done > $out.environment
  printf '%s\0' "$@" > $out
  return 0
}
cd() { command_not_found_handle cd "$@"; }
pushd() { command_not_found_handle pushd "$@"; }
popd() { command_not_found_handle popd "$@"; }
source() { :; }
.() { :; }
ulimit() { :; }
trap wait EXIT
exec() { if [ $# -gt 0 ]; then command_not_found_handle "$@"; builtin exit 0; fi; }
"""
"""Read by bash before the script; the recorder is what bash calls for a program it does not find."""
START = 'cd /place; ulimit -t 3 -f 2048; unset OLDPWD; export BASH_ENV=/prelude; exec /bin/bash /script "$@"'
SECONDS = 6


class Recorded(NamedTuple):
    """A command bash would have run."""

    words: tuple[str, ...]
    environment: dict[str, str]


class Sandbox:
    """A root directory for bash."""

    def __init__(self, root: Path) -> None:
        """Copy bash, the tools and their libraries into it."""
        self.root = root
        for name in ("bin", "dev"):
            (root / name).mkdir(parents=True)
        for tool in TOOLS:
            source = shutil.which(tool)
            if source is None:
                sys.exit(f"{tool} is needed")
            shutil.copy(os.path.realpath(source), root / "bin" / tool)
            listing = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
            for library in {word for word in listing.split() if word.startswith("/")}:
                target = root / library.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
        subprocess.run(["mknod", "-m", "666", str(root / "dev" / "null"), "c", "1", "3"], check=True)
        (root / "prelude").write_text(PRELUDE)

    def run(self, text: bytes, arguments: Sequence[str]) -> tuple[list[Recorded], dict[str, str]]:
        """Run a script; return its commands in order, and the files it wrote."""
        for name in ("recorded", "place", "tmp"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            (self.root / name).mkdir()
            (self.root / name).chmod(0o1777)
        (self.root / "script").write_bytes(text)
        chroot = shutil.which("chroot") or "/usr/sbin/chroot"
        command = [
            "unshare",
            "-n",
            "-m",
            "-p",
            "-f",
            "--kill-child",
            "--propagation",
            "private",
            "env",
            "-i",
            chroot,
            "--userspec=65534:65534",
        ]
        command += [str(self.root), "/bin/bash", "-c", START, "bash", *arguments]
        try:
            subprocess.run(
                ["timeout", "-k", "1", str(SECONDS), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=3 * SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [], {}
        commands = []
        for file in sorted(self.root.joinpath("recorded").iterdir()):
            words = () if file.name.endswith(".environment") else tuple(_fields(file))
            if words:  # else it was stopped while it was recorded
                pairs = _fields(file.with_name(file.name + ".environment"))
                commands.append(Recorded(words, dict(pair.partition("=")[::2] for pair in pairs)))
        files = {}
        for directory in ("place", "tmp"):
            for file in (self.root / directory).rglob("*"):
                if file.is_file():
                    name = "/tmp/" + file.name if directory == "tmp" else str(file.relative_to(self.root / "place"))  # noqa: S108
                    files[name] = file.read_bytes().decode("utf-8", "replace")
        return commands, files


def _fields(path: Path) -> list[str]:
    if not path.exists():
        return []
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


def align(words: Sequence[Word], found: Sequence[str]) -> list[tuple[Word, str | None]] | None:
    """Pair words with what bash made of them; None if a known word differs. A pair without text is an unresolved word."""
    origin: dict[tuple[int, int], tuple[int, int]] = {}
    front = {(0, 0)}
    for n, word in enumerate(words):
        following: set[tuple[int, int]] = set()
        for _, place in front:
            if word.text is not None:
                ends = [place + 1] if place < len(found) and found[place] == word.text else []
            elif word.many:
                ends = list(range(place, len(found) + 1))
            else:
                ends = [place + 1] if place < len(found) else []
            for end in ends:
                if (n + 1, end) not in origin:
                    origin[n + 1, end] = (n, place)
                    following.add((n + 1, end))
        front = following
    if (len(words), len(found)) not in front and not (not words and not found):
        return None
    pairs: list[tuple[Word, str | None]] = []
    at = (len(words), len(found))
    while at in origin:
        n, place = origin[at]
        word = words[n]
        pairs.append((word, None if word.text is None else found[place]))
        at = (n, place)
    return pairs[::-1]


class Result(NamedTuple):
    """How one script compares."""

    counts: Counter[str]
    differences: list[str]


def compare(path: Path, sandbox: Sandbox, arguments: Sequence[str] | None) -> Result:
    """Compare one script."""
    text = path.read_bytes()
    counts: Counter[str] = Counter(scripts=1)
    differences: list[str] = []
    try:
        script = read_script(str(path), read_text(str(path)), arguments=arguments)
    except InputError as error:
        return Result(counts, [str(error)])
    reasons = ("sources ", "eval of ", "export of ", "has Windows")
    syntax = [skip for skip in script.skipped if not skip.reason.startswith(reasons)]
    counts["clean"] += not syntax
    recorded, files = sandbox.run(text.replace(b"\r\n", b"\n"), arguments or ())
    left: list[Command | None] = [*script.commands, *script.queries]
    for one in recorded:
        counts["commands"] += 1
        _find(one, left, counts, differences)
    known = [one for one in left if one is not None and one in script.commands and one.certain and _comparable(one)]
    counts["not run"] += len(known)
    differences.extend(f"not run by bash: line {one.source.line}: {one.words[0].text}" for one in known)
    counts["known"] += sum(word.text is not None for one in script.commands for word in one.words)
    counts["all"] += sum(len(one.words) for one in script.commands)
    _compare_files(script, files, counts, differences)
    return Result(counts, differences)


def _comparable(command: Command) -> bool:
    """Tell whether the recorder would see a command: bash looks a name with a slash up itself."""
    name = command.words[0].text
    return bool(name) and "/" not in name and name not in TOOLS


def _find(one: Recorded, left: list[Command | None], counts: Counter[str], differences: list[str]) -> None:
    """Look a recorded command up: the one with most words known among those that agree, else the nearest."""
    best: tuple[int, int, Command, list[tuple[Word, str | None]]] | None = None
    nearest: tuple[int, int, Command] | None = None
    for n, command in enumerate(left):
        if command is None:
            continue
        pairs = align(command.words, one.words)
        if pairs is not None:
            known = sum(found is not None for _, found in pairs)
            if best is None or known > best[0]:
                best = (known, n, command, pairs)
        elif command.words and command.words[0].text == one.words[0] and command.certain:
            shared = len({word.text for word in command.words} & set(one.words))
            if nearest is None or shared > nearest[0]:
                nearest = (shared, n, command)
    if best is not None:
        known, n, command, pairs = best
        if command.certain:
            left[n] = None  # in a loop of unknown length one command stands for all rounds
        counts["equal"] += known
        counts["unresolved"] += len(pairs) - known
        _compare_environment(command, one, counts, differences)
        return
    if nearest is None or nearest[0] < len(one.words) / 2:
        counts["missing"] += 1
        differences.append(f"missing: {' '.join(one.words)[:200]}")
        return
    _, n, command = nearest
    left[n] = None
    texts = [word.text for word in command.words]
    wrong = [text for text in texts if text is not None and text not in one.words] or [
        word for word in one.words if word not in texts
    ]
    counts["wrong"] += max(len(wrong), 1)
    counts["equal"] += len(set(texts) & set(one.words))
    differences.append(f"wrong: line {command.source.line}: {wrong[:5]}\n    bash: {' '.join(one.words)[:600]}")


def _compare_environment(command: Command, one: Recorded, counts: Counter[str], differences: list[str]) -> None:
    if not one.environment:
        return  # stopped before it was recorded
    for name, word in command.variables.items():
        if word.text is None:
            counts["environment unresolved"] += 1
        elif one.environment.get(name) == word.text:
            counts["environment equal"] += 1
        else:
            counts["environment wrong"] += 1
            differences.append(
                f"environment: line {word.source.line}: {name}={word.text!r}, bash: {one.environment.get(name)!r}"
            )


def _compare_files(script: Script, files: dict[str, str], counts: Counter[str], differences: list[str]) -> None:
    for name, word in script.files.items():
        if name in files:
            kind = (
                "files unresolved"
                if word.text is None
                else "files equal"
                if word.text == files[name]
                else "files wrong"
            )
            counts[kind] += 1
            if kind == "files wrong":
                differences.append(f"file {name}: {word.text!r}, bash: {files[name]!r}")


COLUMNS = ("scripts", "clean", "commands", "equal", "unresolved", "wrong", "missing", "not run")


def _rows(totals: dict[str, Counter[str]]) -> Iterator[str]:
    yield "| framework | scripts | read cleanly | commands | words equal | unresolved | wrong | missing | not run |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, counts in totals.items():
        yield f"| {name} | " + " | ".join(str(counts[column]) for column in COLUMNS) + " |"


def main() -> None:
    """Compare every script of a directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--arguments", nargs="*", help="arguments every script is given; without, they are unknown")
    parser.add_argument("--only", default="", help="part of the paths to look at")
    parser.add_argument("--show", type=int, default=1_000_000, help="differences to print")
    options = parser.parse_args()
    totals: dict[str, Counter[str]] = {}
    shown = 0
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o755)
        sandbox = Sandbox(Path(temporary) / "root")
        for path in sorted(options.directory.rglob("*")):
            if not path.is_file() or options.only not in str(path):
                continue
            result = compare(path, sandbox, options.arguments)
            totals.setdefault(path.relative_to(options.directory).parts[0], Counter()).update(result.counts)
            for one in result.differences[: max(options.show - shown, 0)]:
                shown += 1
                print(f"{path.relative_to(options.directory)}: {one}", file=sys.stderr)
    total: Counter[str] = Counter()
    for counts in totals.values():
        total.update(counts)
    print("\n".join(_rows({**totals, "**all**": total})))
    print()
    for kind in ("environment", "files"):
        print(f"{kind}: " + ", ".join(f"{total[f'{kind} {what}']} {what}" for what in ("equal", "unresolved", "wrong")))
    print(f"words of the commands read: {total['known']} of {total['all']} known")


if __name__ == "__main__":
    main()
