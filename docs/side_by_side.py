"""compatcheck beside its neighbours, on one incident and on broken input; prints `docs/side-by-side.md`.

    python docs/side_by_side.py --environments DIR > docs/side-by-side.md

builds one environment per tool under DIR (those that look at the environment they live in get a CPU build of torch, found
through ``UV_FIND_LINKS`` or ``UV_INDEX``, and deepspeed 0.16.4) and runs every tool as its own documentation says. What is
printed is measured: exit codes, CPU time of the whole process (minimum of three runs), and whether words occur in the output.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import side_by_side_inputs as inputs

sys.path.insert(0, str(inputs.REPOSITORY / "benchmarks"))

import environments
from cpu import Run, clean_environment, run

OURS = "compatcheck"
PEERS = {
    "torch-preflight": "torch-preflight==0.5.0",
    "fitcheck-llm": "fitcheck-llm==0.3.1",
    "env-doctor": "env-doctor==0.3.5",
    "cuda-doctor": "cuda-doctor==0.2.0",
}
INSIDE = {"env-doctor", "cuda-doctor"}
"""Tools that look at the environment they are installed in."""
HUB_ID = "meta-llama/Meta-Llama-3-70B"
REPEATS = 3
LIMIT_SECONDS = 60.0

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Environments = dict[str, Path]


class Outcome(NamedTuple):
    """One command and what it did."""

    tool: str
    command: str
    """As a person would type it."""
    result: Run
    seconds: float
    """Minimum of the CPU times."""
    text: str
    """Output, with directories of this run taken out."""


class Workplace:
    """A directory with files, the environments of the tools, and the variables they run under."""

    def __init__(self, directory: Path, tools: Environments) -> None:
        """Prepare the variables: an empty home, no hub, no colours."""
        (directory / "home").mkdir(exist_ok=True)
        self.directory = directory
        self.tools = tools
        self.environ = {
            **clean_environment(),
            "HOME": str(directory / "home"),
            "HF_HOME": str(directory / "hub"),
            "HF_HUB_OFFLINE": "1",
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "TERM": "dumb",
        }

    def run(
        self, tool: str, program: str, *arguments: str, repeats: int = REPEATS, path: Path | None = None
    ) -> Outcome:
        """Run a tool in this directory.

        Args:
            tool: whose environment.
            program: its command.
            arguments: what follows.
            repeats: how many runs the time is the minimum of.
            path: a directory to put before ``PATH``.
        """
        binaries = self.tools[tool] / "bin"
        environ = dict(self.environ)
        if tool in INSIDE:
            environ["PATH"] = f"{binaries}{os.pathsep}{environ['PATH']}"
        if path is not None:
            environ["PATH"] = f"{path}{os.pathsep}{environ['PATH']}"
        command = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self.directory), str(binaries / program), *arguments]
        results = []
        for _ in range(repeats):
            results.append(run(command, environ=environ, timeout_seconds=LIMIT_SECONDS))
            if results[-1].timed_out:
                break
        text = results[-1].output.decode(errors="replace").replace(f"{self.directory}/", "").replace("\r", "")
        for name, location in self.tools.items():
            text = text.replace(str(location), f"ENVIRONMENT-OF-{name}")
        shown = " ".join([program, *arguments]).replace(f"{self.directory}/", "")
        for location in self.tools.values():
            shown = shown.replace(str(location / "bin" / "python"), "PYTHON")
        return Outcome(tool, shown, results[-1], min(result.cpu_seconds for result in results), text)

    def cache_model(self, name: str) -> Path:
        """Return where the hub cache keeps the `config.json` of a model, as a download would lay it out."""
        root = self.directory / "hub" / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = root / "snapshots" / "0"
        snapshot.mkdir(parents=True, exist_ok=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / "main").write_text("0", encoding="utf-8")
        return snapshot / "config.json"


def build(root: Path, uv: str) -> Environments:
    """Build the environments that are missing."""
    tools = {}
    for name in (OURS, *PEERS):
        tools[name] = root / name
        if tools[name].exists():
            continue
        if name == OURS:
            environments.build_own(uv, tools[name], environments.build_wheel(uv, root), sys.executable)
        else:
            environments.build_tool(uv, tools[name], sys.executable, PEERS[name], inside=name in INSIDE)
    return tools


def run_incident(root: Path, tools: Environments) -> list[Outcome]:
    """Run every tool on the incident, each in the ways its documentation names."""
    place = lay_out(root, tools)
    inputs.write_incident(root / "run")
    installed = str(tools["cuda-doctor"] / "bin" / "python")
    files = ("--model", "config.json", "--training", "ds_zero3.json", "--training", "trainer.yaml")
    estimate = ("estimate", "train.py", "--gpu", "a100-80gb", "--world-size", "32", "--seq-len", "2048")
    full = (
        "--no-lora",
        "--batch-size",
        "1",
        "--seq-len",
        "2048",
        "--grad-checkpoint",
        "--flash-attn",
        "--gpu",
        "a100-80",
    )
    return [
        place.run(OURS, "compatcheck", "check", "run"),
        place.run(OURS, "compatcheck", "env", "--python", installed, *files),
        place.run("torch-preflight", "torch-preflight", *estimate),
        place.run("torch-preflight", "torch-preflight", "check", "run"),
        place.run("fitcheck-llm", "fitcheck", HUB_ID, *full),
        place.run("env-doctor", "env-doctor", "check"),
        place.run("env-doctor", "env-doctor", "scan"),
        place.run("cuda-doctor", "cuda-doctor", "diagnose", "--verbose"),
    ]


QUOTES = {
    "compatcheck": r"zero3-params-kept-in-backward.*",
    "torch-preflight": r"projected peak.*|No issues found.*",
    "fitcheck": r"(DOES NOT FIT|FITS|UNCERTAIN)[^│]*",
    "env-doctor": r"Found (torch|imports).*",
    "cuda-doctor": r"Status:.*",
}
"""Command → the line that carries its verdict."""


def tabulate_incident(outcomes: list[Outcome]) -> str:
    """Write the incident's table."""
    lines = [
        "| command | exit | says `deepspeed` | says 0.16.4 | says 0.16.8 | its verdict | CPU s |",
        "|---|---:|---|---|---|---|---:|",
    ]
    for outcome in outcomes:
        words = " | ".join(
            "yes" if word in outcome.text.lower() else "no" for word in ("deepspeed", "0.16.4", "0.16.8")
        )
        found = re.search(QUOTES[outcome.command.split()[0]], outcome.text)
        quote = " ".join(found[0].split()) if found else "—"
        lines.append(f"| `{outcome.command}` | {_exit(outcome)} | {words} | {_cell(quote)} | {outcome.seconds:.2f} |")
    return "\n".join(lines)


class Column(NamedTuple):
    """A tool and the file it reads."""

    title: str
    tool: str
    file: str
    text: str
    key: str
    """The key that is given twice, or gets a value of the wrong type."""
    negative: str
    """The key that gets a negative value; empty when there is none."""
    arguments: tuple[str, ...]
    special: Mapping[str, tuple[str, ...]]
    """Further defects → the arguments that read them."""


def columns(tools: Environments) -> list[Column]:
    """Return the columns of the table of broken input."""
    env = ("compatcheck", "env", "--python", str(tools["cuda-doctor"] / "bin" / "python"))
    fitcheck = ("--no-lora", "--gpu", "a100-80")
    script = ("torch-preflight", "estimate", "train.py", "--gpu", "a100-80gb", "--world-size", "32")
    stage, batch, width = "stage", "train_micro_batch_size_per_gpu", "hidden_size"
    return [
        Column(
            *("compatcheck, model", OURS, "config.json", inputs.CONFIG, width, width),
            (*env, "--model", "config.json"),
            {UNKNOWN: (*env, "--model", "config.json")},
        ),
        Column(
            *("compatcheck, training", OURS, "ds_zero3.json", inputs.DEEPSPEED, stage, batch),
            (*env, "--training", "ds_zero3.json"),
            {BOMB: (*env, "--training", "trainer.yaml")},
        ),
        Column(
            *(
                "torch-preflight, script and DeepSpeed",
                "torch-preflight",
                "ds_zero3.json",
                inputs.DEEPSPEED,
                stage,
                batch,
            ),
            script,
            {UNKNOWN: script},
        ),
        Column(
            *("fitcheck-llm, model", "fitcheck-llm", "config.json", inputs.CONFIG, width, width),
            ("fitcheck", HUB_ID, *fitcheck),
            {UNKNOWN: ("fitcheck", HUB_ID, *fitcheck)},
        ),
        Column(
            *("env-doctor, specification", "env-doctor", "specification.json", inputs.SPECIFICATION, "python", ""),
            ("env-doctor", "validate", "specification.json"),
            {
                UNKNOWN: ("env-doctor", "model", "never-heard-of"),
                BOMB: ("env-doctor", "docker-compose", "docker-compose.yml"),
            },
        ),
    ]


BOMB, UNKNOWN = "YAML bomb", "unknown architecture"


def lay_out(root: Path, tools: Environments) -> Workplace:
    """Write every sound file into a fresh directory."""
    inputs.write_incident(root)
    (root / "specification.json").write_text(inputs.SPECIFICATION, encoding="utf-8")
    (root / "docker-compose.yml").write_text(inputs.COMPOSE, encoding="utf-8")
    place = Workplace(root, tools)
    place.cache_model(HUB_ID).write_text(inputs.CONFIG, encoding="utf-8")
    return place


def run_sound(root: Path, tools: Environments, column: Column, defect: str) -> set[str]:
    """Return the lines a tool writes about the sound file."""
    arguments = column.special.get(defect, column.arguments) if defect == BOMB else column.arguments
    return set(_lines(lay_out(root, tools).run(column.tool, *arguments, repeats=1)))


def run_broken(root: Path, tools: Environments, column: Column, defect: str) -> Outcome | None:
    """Run one tool on one broken file in a fresh directory; None when it reads no such file."""
    place = lay_out(root, tools)
    if defect in (BOMB, UNKNOWN):
        if defect not in column.special:
            return None
        inputs.write_unknown_model(root, place.cache_model(HUB_ID), HUB_ID)
        inputs.write_bombs(root)
        return place.run(column.tool, *column.special[defect])
    path = place.cache_model(HUB_ID) if column.tool == "fitcheck-llm" else root / column.file
    path.unlink()
    if not inputs.write_broken(path, column.text, defect, key=column.key, negative=column.negative):
        return None
    return place.run(column.tool, *column.arguments)


def judge(outcome: Outcome, column: Column, sound: set[str]) -> tuple[str, str]:
    """Return what a tool said about a defect, in words of one kind for all, and the line it said it in.

    Only lines count that the tool does not write about the sound file.
    """
    new = [line for line in _lines(outcome) if line not in sound]
    text = "\n".join(new)
    quote = _quote(new, NAMES) or _quote(new, COMPLAINT) or (new[0] if new else "—")
    if outcome.result.timed_out:
        return f"**still running after {LIMIT_SECONDS:.0f} s**", quote
    if "Traceback (most recent call last)" in text:
        return "**traceback**", new[-1]
    named = [
        word
        for word, pattern in (
            ("file", NAMES),
            ("line", re.compile(r"(json|yaml|yml|py):\d+|\bline \d+", re.IGNORECASE)),
            ("key", re.compile(rf"\b({column.key}|{column.negative or column.key}|model_type)\b")),
        )
        if pattern.search(text)
    ]
    if named:
        return "names " + ", ".join(named), quote
    return ("other output, input not named" if new else "**silent**"), quote


NAMES = re.compile(r"config\.json|ds_zero3\.json|specification\.json|trainer\.yaml|docker-compose\.yml|never.heard.of")
COMPLAINT = re.compile(r"error|warn|invalid|cannot|could not|unknown", re.IGNORECASE)
DRIVER_TOOL = re.compile(r"GPU00\d|not read nvidia-smi|nvidia-smi.*(fail|unavailable|timed)")
DRIVER = re.compile(r"driver.*(detected|found|not)|no .*(driver|GPU)", re.IGNORECASE)
VARIABLE = re.compile(r" · \d+\.\d+ s$|^ *generated .*")
"""Parts of a line that differ from run to run."""


def _lines(outcome: Outcome) -> list[str]:
    lines = (" ".join(VARIABLE.sub("", line).strip(" │╭╮╰╯─\t").split()) for line in outcome.text.splitlines())
    return [line for line in lines if line]


def _quote(lines: list[str], pattern: re.Pattern[str]) -> str | None:
    """Return the first line that matches, and what follows it: tools wrap their lines."""
    for index, line in enumerate(lines):
        if pattern.search(line):
            return " ".join(lines[index : index + 3])
    return None


def run_drivers(fresh: Callable[[], Path], tools: Environments) -> list[tuple[str, Outcome]]:
    """Run the tools that ask the driver, with an `nvidia-smi` that hangs, and with one that prints garbage."""
    rows = []
    python = str(tools["cuda-doctor"] / "bin" / "python")
    for name, program in {"hangs": inputs.HANGING_DRIVER, "prints garbage": inputs.GARBAGE_DRIVER}.items():
        place = lay_out(fresh(), tools)
        folder = place.directory / "fake"
        folder.mkdir()
        (folder / "nvidia-smi").write_text(program, encoding="utf-8")
        (folder / "nvidia-smi").chmod(0o755)
        for tool, command in (
            (OURS, ("compatcheck", "env", "--python", python)),
            ("env-doctor", ("env-doctor", "check")),
            ("cuda-doctor", ("cuda-doctor", "diagnose", "--verbose")),
        ):
            rows.append((name, place.run(tool, *command, repeats=1, path=folder)))
    return rows


def tabulate_broken(fresh: Callable[[], Path], tools: Environments) -> tuple[str, str]:
    """Run every tool on every broken input and write the table, and the lines the tools said it in."""
    heads = columns(tools)
    sound = {
        (column.title, defect == BOMB): run_sound(fresh(), tools, column, defect)
        for column in heads
        for defect in ("", BOMB)
    }
    lines = ["| input | " + " | ".join(column.title for column in heads) + " |", "|---" * (len(heads) + 1) + "|"]
    quotes = ["| input | read by | its line |", "|---|---|---|"]
    for defect in (*inputs.DEFECTS, UNKNOWN, BOMB):
        cells = []
        for column in heads:
            outcome = run_broken(fresh(), tools, column, defect)
            if outcome is None:
                cells.append("n.a.")
                continue
            verdict, quote = judge(outcome, column, sound[column.title, defect == BOMB])
            cells.append(f"{verdict}; exit {_exit(outcome)}; {outcome.seconds:.2f} s")
            quotes.append(f"| {defect} | {column.title} | {_cell(quote)} |")
        lines.append(f"| {defect} | " + " | ".join(cells) + " |")
        print(defect, file=sys.stderr)
    return "\n".join(lines), "\n".join(quotes)


def tabulate_drivers(rows: list[tuple[str, Outcome]]) -> str:
    """Write the table of driver tools that hang or lie."""
    lines = ["| `nvidia-smi` | command | exit | elapsed s | CPU s | its line |", "|---|---|---:|---:|---:|---|"]
    for name, outcome in rows:
        written = _lines(outcome)
        found = _quote(written, DRIVER_TOOL) or _quote(written, DRIVER) or "—"
        if "Traceback (most recent call last)" in outcome.text:
            found = "Traceback … " + written[-1]
        elapsed = (
            f"over {LIMIT_SECONDS:.0f}, killed" if outcome.result.timed_out else f"{outcome.result.elapsed_seconds:.1f}"
        )
        lines.append(
            f"| {name} | `{outcome.command}` | {_exit(outcome)} | {elapsed} | {outcome.seconds:.2f} | {_cell(found)} |"
        )
    return "\n".join(lines)


def _exit(outcome: Outcome) -> str:
    return "—" if outcome.result.timed_out else str(outcome.result.exit_code)


def _cell(text: str) -> str:
    text = " ".join(text.split())
    text = text if len(text) <= QUOTE_WIDTH else text[: QUOTE_WIDTH - 1] + "…"
    return "`" + text.replace("`", "'").replace("|", "¦") + "`"


QUOTE_WIDTH = 140

PAGE = """\
# Side by side

Made by `docs/side_by_side.py` on {date} with {versions}, each in an
environment of its own, without a GPU. Nothing in the tables is edited by hand: exit codes, CPU time of the whole process
(minimum of {repeats} runs; a busy machine adds some tens of per cent), whether words occur in the output, and a line of it.

Not run: what needs a GPU, a dashboard or the network (env-doctor fetches newer data when it can, and said it used the data it
ships; fitcheck-llm takes parameter counts from the hub, and said it derived them from `config.json`).

## An incident: DeepSpeed 0.16.4, ZeRO-3, checkpointing without reentry, Llama-3-70B

The run of [OpenRLHF#776](https://github.com/OpenRLHF/OpenRLHF/issues/776) went out of memory in backward because
DeepSpeed 0.16.0 to 0.16.7 keeps gathered parameters; 0.16.8 has the repair
([DeepSpeed#7258](https://github.com/deepspeedai/DeepSpeed/pull/7258)). Every tool gets the same files: `requirements.txt`,
`config.json`, `ds_zero3.json`, `trainer.yaml`, and a script for those that read scripts. PYTHON has deepspeed 0.16.4
installed, and so have the environments of env-doctor and cuda-doctor, which look at the environment they are installed in.
A tool that names the cause says `deepspeed` and 0.16.8.

{incident}

What the others are for is another question than ours, and they answer theirs: torch-preflight lints training code and sums up
memory from the script, fitcheck-llm sizes training on one GPU (its verdict is right for one), env-doctor and cuda-doctor
match driver, CUDA and torch (the CPU build of torch is what they find here). None looks at the release of deepspeed.

## Broken input

The sound file is one of the incident's (env-doctor: a specification as its `export` writes it). Only lines count that
the tool does not write about the sound file: *names file, line, key* says which of the three occur in them; *other output* is
a report with other figures or words that names neither; *silent* is the same report as for the sound file. cuda-doctor reads
no file. n.a.: the tool reads no such file, or the file has no such value. torch-preflight follows `config="ds_zero3.json"` in the
script; fitcheck-llm reads `config.json` from the hub cache, offline, and says about every such model that it takes it for a
dense one of Llama's shape. To be silent about a YAML bomb is no fault in a tool that takes no longer over it.

{broken}

<details>
<summary>The lines</summary>

{quotes}

</details>

## A driver tool that hangs or lies

An `nvidia-smi` first on PATH sleeps for an hour, or prints bytes that are no table and exits with 0. torch-preflight and
fitcheck-llm ask no driver. Limit: {limit:.0f} s.

{drivers}
"""


def main() -> None:
    """Build what is missing, run everything, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, required=True, help="where environments are built and kept")
    parser.add_argument("--uv", help="uv's binary; found by default")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    root = arguments.environments.resolve()
    root.mkdir(parents=True, exist_ok=True)
    tools = build(root, arguments.uv or environments.find_uv())
    with tempfile.TemporaryDirectory() as scratch:
        counter = iter(range(1000))

        def fresh() -> Path:
            return Path(scratch, f"case{next(counter)}")

        incident = tabulate_incident(run_incident(fresh(), tools))
        broken, quotes = tabulate_broken(fresh, tools)
        drivers = tabulate_drivers(run_drivers(fresh, tools))
    page = PAGE.format(
        date=f"{datetime.now(tz=timezone.utc):%Y-%m-%d}",
        versions="compatcheck and " + ", ".join(requirement.replace("==", " ") for requirement in PEERS.values()),
        repeats=REPEATS,
        incident=incident,
        broken=broken,
        quotes=quotes,
        drivers=drivers,
        limit=LIMIT_SECONDS,
    )
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
