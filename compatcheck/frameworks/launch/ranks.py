"""How many ranks a launcher starts, as far as its options tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.core.units import parse_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.source import Source
    from compatcheck.frameworks.launch.values import Argument

GPUS, NODES, WORLD = "hardware.gpus_per_node", "hardware.nodes", "hardware.world_size"


class Ranks:
    """Statements about ranks, gathered while launchers are taken off; a launcher further in replaces what an outer one said."""

    def __init__(self) -> None:
        """Start with nothing known."""
        self.statements: dict[str, Statement] = {}
        self.unresolved: dict[str, Unresolved] = {}
        self.lines: dict[str, int] = {}

    def state(self, fact: str, key: str, value: object, line: int | None) -> None:
        """Take a value; anything but a whole number from one on states nothing."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return
        self.statements[fact] = Statement(fact, key, value)
        self.unresolved.pop(fact, None)
        self._locate(key, line)

    def doubt(self, fact: str, key: str, why: str, line: int | None) -> None:
        """Note that a value is given and not known."""
        self.statements.pop(fact, None)
        self.unresolved[fact] = Unresolved(fact, key, why)
        self._locate(key, line)

    def take(self, fact: str, key: str, argument: Argument | None) -> None:
        """Take an option's value, known or not."""
        if argument is None:
            return
        if argument.why is not None:
            self.doubt(fact, key, argument.why, argument.line)
        else:
            self.state(fact, key, argument.value, argument.line)

    def forget(self) -> None:
        """Drop what outer launchers said about the number of ranks."""
        self.statements.clear()
        self.unresolved.clear()

    def value(self, fact: str) -> int | None:
        """Return a known value."""
        statement = self.statements.get(fact)
        return statement.value if statement is not None and isinstance(statement.value, int) else None

    def _locate(self, key: str, line: int | None) -> None:
        if line is not None:
            self.lines[key] = line

    def document(self, source: Source, references: tuple[tuple[str, str, str], ...] = ()) -> Document | None:
        """Return what the launchers say, None when that is nothing."""
        if not (self.statements or self.unresolved or references):
            return None
        return Document(
            "launcher",
            source,
            tuple(self.statements.values()),
            references=references,
            is_command=True,
            lines=self.lines,
            unresolved=tuple(self.unresolved.values()),
        )


def read_torchrun(
    options: Mapping[str, Argument], ranks: Ranks, line: int | None, environment: Mapping[str, str]
) -> None:
    """Read ``--nproc_per_node`` and ``--nnodes``, 1 each when left out (``torch/distributed/run.py``)."""
    ranks.forget()
    for fact, name, variable in ((GPUS, "nproc_per_node", "PET_NPROC_PER_NODE"), (NODES, "nnodes", "PET_NNODES")):
        argument = options.get(name)
        key = f"--{name}"
        if argument is None:
            text = environment.get(variable)
            count = parse_count(text)
            ranks.state(fact, variable if text else f"{key} (left out)", 1 if count is None else count, line)
        elif argument.why is not None:
            ranks.doubt(fact, key, argument.why, argument.line)
        elif isinstance(argument.value, int):
            ranks.state(fact, key, argument.value, argument.line)
        else:
            low, _, high = str(argument.value).partition(":")
            if (count := parse_count(low)) is not None and (low == high or not high):
                ranks.state(fact, key, count, argument.line)
            else:
                ranks.doubt(fact, key, f"{argument.value!r} leaves the number to the machine", argument.line)


_TUNED = ("training.zero_stage", "training.micro_batch_size", "training.gradient_accumulation_steps")
"""What DeepSpeed's autotuner chooses."""


def read_deepspeed(options: Mapping[str, Argument], ranks: Ranks, line: int | None) -> None:
    """Read ``--num_gpus``, ``--num_nodes``, ``--include`` and ``--hostfile`` (``deepspeed/launcher/runner.py``).

    Without a host file all ranks are on this machine; how many devices that has, nobody tells. ``--autotuning`` tries stages and
    batches and runs the best of them (``deepspeed/autotuning/autotuner.py``).
    """
    ranks.forget()
    tuned = options.get("autotuning")
    if tuned is not None:
        for fact in _TUNED:
            ranks.doubt(fact, "--autotuning", "is what DeepSpeed's autotuner finds", tuned.line)
    included = options.get("include") or options.get("i")
    gpus = options.get("num_gpus") or options.get("num_accelerators")
    hosts = options.get("hostfile") or options.get("H")
    if included is not None and included.why is None:
        parts = [part for part in str(included.value).split("@") if part]
        sizes = {len(part.partition(":")[2].split(",")) if ":" in part else 0 for part in parts}
        ranks.state(NODES, "--include", len(parts), included.line)
        if len(sizes) == 1 and sizes != {0}:
            ranks.state(GPUS, "--include", sizes.pop(), included.line)
        return
    if included is not None:
        ranks.take(WORLD, "--include", included)
        return
    ranks.take(GPUS, "--num_gpus", gpus)
    if options.get("num_nodes") is not None:
        ranks.take(NODES, "--num_nodes", options["num_nodes"])
    elif hosts is None:
        ranks.state(NODES, "--hostfile (left out)", 1, line)
    else:
        ranks.doubt(NODES, "--hostfile", "stands in the host file", hosts.line)
    if gpus is None:
        ranks.doubt(GPUS, "--num_gpus (left out)", "is the number of devices the machine has", line)


def read_accelerate(options: Mapping[str, Argument], ranks: Ranks, *, has_file: bool, line: int | None) -> None:
    """Read ``--num_processes``, over all machines, and ``--num_machines`` (``accelerate/commands/launch.py``)."""
    ranks.forget()
    ranks.take(WORLD, "--num_processes", options.get("num_processes"))
    ranks.take(NODES, "--num_machines", options.get("num_machines"))
    world, machines = ranks.value(WORLD), options.get("num_machines")
    if "num_processes" not in options and not has_file:
        why = "is in accelerate's default configuration file, or the number of devices the machine has"
        ranks.doubt(WORLD, "--num_processes (left out)", why, line)
    if world is not None and machines is None and not has_file:
        ranks.state(NODES, "--num_machines (left out)", 1, line)


def read_lightning(options: Mapping[str, Argument], ranks: Ranks, line: int | None, doubt: str | None) -> None:
    """Read ``--devices``, a number or indices, and ``--num-nodes``; 1 each when left out (``lightning/fabric/cli.py``)."""
    ranks.forget()
    for fact, name in ((GPUS, "devices"), (NODES, "num_nodes")):
        argument, key = options.get(name), f"--{name.replace('_', '-')}"
        if argument is None:
            ranks.state(fact, f"{key} (left out)", 1, line)
        elif argument.why is None and "," in str(argument.value):
            ranks.state(fact, key, len(str(argument.value).strip(",").split(",")), argument.line)
        elif argument.value in {"auto", -1, "-1"}:
            ranks.doubt(fact, key, "is the number of devices the machine has", argument.line)
        else:
            ranks.take(fact, key, argument)
        if argument is None and doubt is not None:
            ranks.doubt(fact, key, doubt, line)


def read_srun(options: Mapping[str, Argument], ranks: Ranks) -> None:
    """Read nodes, tasks and GPUs of a Slurm step."""
    ranks.take(NODES, "--nodes", options.get("nodes") or options.get("N"))
    tasks = options.get("ntasks") or options.get("n")
    per_node = options.get("ntasks_per_node")
    if tasks is not None:
        ranks.take(WORLD, "--ntasks", tasks)
    elif per_node is not None and per_node.why is None and isinstance(per_node.value, int) and ranks.value(NODES):
        ranks.state(WORLD, "--ntasks-per-node", per_node.value * (ranks.value(NODES) or 0), per_node.line)
    gpus = options.get("gpus_per_node") or options.get("gres")
    if gpus is not None and gpus.why is None:
        ranks.state(GPUS, "--gres", parse_count(str(gpus.value).rpartition(":")[2]), gpus.line)


def read_mpirun(options: Mapping[str, Argument], ranks: Ranks) -> None:
    """Read the number of processes of ``mpirun``, ``mpiexec`` or ``horovodrun``."""
    for name in ("np", "n", "c", "num_proc"):
        if name in options:
            ranks.take(WORLD, f"-{name}", options[name])
            return


def read_only_device(ranks: Ranks, environment: Mapping[str, str], line: int | None) -> None:
    """Read the one device that a script without a launcher may see; it is its only rank."""
    if count_visible(environment) == 1 and not (ranks.statements or ranks.unresolved):
        ranks.state(GPUS, "CUDA_VISIBLE_DEVICES", 1, line)
        ranks.state(WORLD, "CUDA_VISIBLE_DEVICES", 1, line)


def count_visible(environment: Mapping[str, str]) -> int | None:
    """Count the devices of CUDA_VISIBLE_DEVICES."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    devices = [part for part in (text or "").split(",") if part.strip()]
    return len(devices) or None
