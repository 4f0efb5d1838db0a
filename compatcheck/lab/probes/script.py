"""A probe as one file that runs without compatcheck: what a maintainer can read, run and change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from compatcheck.lab.probes.probe import find_shared
from compatcheck.lab.probes.shortening import shorten
from compatcheck.lab.probes.specialising import specialise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.lab.probes.runner import Task

_WORKER = Path(__file__).with_name("worker")
_SHARED = '''
SHARED = {sources!r}
"""What several probes share."""


class SharingRecorder(Recorder):
    """Has what several probes share in this very file."""

    def load(self, name):
        """Make a module of a text."""
        import types

        if "probe_shared_" + name not in sys.modules:
            module = types.ModuleType("probe_shared_" + name)
            sys.modules[module.__name__] = module
            exec(SHARED[name], module.__dict__)
        return sys.modules["probe_shared_" + name]
'''
_REQUIRE = """import importlib.util
import sys

for _package, _module in {packages!r}:
    if importlib.util.find_spec(_module) is None:
        sys.stderr.write(_package + " is not installed here: pip install " + _package + "\\n")
        sys.exit(2)
"""
_FUTURE = "from __future__ import annotations\n"
_ATTRIBUTE = re.compile(r"\.(\w+)")
_RELATIVE = re.compile(r"^( *)from \.(\w+) import [^\n]*\n", re.MULTILINE)


def make_script(task: Task, *, brief: bool = False, healthy: tuple[str, float] | None = None) -> str:
    """Return a program that runs one task and prints what it measures beside what is predicted.

    The probe stands first and unchanged; what measures follows. Several ranks are started by the program itself. Where
    the allocator is counted, tensor storages are counted instead: the counter would have to be compiled.

    Args:
        task: what is run.
        brief: leave out all that this task does not reach, and what only explains.
        healthy: metric and its highest healthy value; by default the probe's own and what it predicts.
    """
    needed = task.probe.needs(task.parameters)
    probe = Path(task.probe.path).read_text(encoding="utf-8").replace(_FUTURE, "")
    documentation, rest = _split_docstring(probe)
    parts = [
        f'"""{documentation}"""\n',
        _FUTURE,
        *_variables(task),
        rest.strip() + "\n",
        "\n# What follows measures; nothing below is about the probe.\n",
        _REQUIRE.format(packages=_importable(needed)),
    ]
    names = ["accounting", "recorder"]
    if task.world_size > 1:
        names.append("ranks")
    folder = Path(task.probe.path).parent
    shared = {
        name: (folder / find_shared(str(folder), name)).read_text(encoding="utf-8")
        for name in task.probe.shares(task.parameters)
    }
    if "deepspeed" in needed:
        names.append("deepspeed_cpu")
    if "recorder.decisions(" in probe:
        names.append("fake_decisions")
    for name in names:
        text = (_WORKER / f"{name}.py").read_text(encoding="utf-8").replace(_FUTURE, "")
        parts.append(_RELATIVE.sub("", _split_docstring(text)[1]).strip() + "\n")
    if brief:
        used = set(_ATTRIBUTE.findall(probe))
        shared = {name: shorten(text, used) for name, text in shared.items()}
    if shared:
        parts.append(_SHARED.format(sources=shared))
    parts.append(_main(task, "SharingRecorder" if shared else "Recorder", healthy))
    program = "\n".join(parts)
    if not brief:
        return program
    return f'"""{task.probe.title}"""\n\n{shorten(specialise(program, "parameters", task.parameters))}'


def _importable(packages: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return distribution and module of torch and of what a probe imports; the libraries of CUDA are no modules."""
    names = (name for name in dict.fromkeys(("torch", *packages)) if not name.startswith("nvidia-"))
    return tuple((name, name.replace("-", "_")) for name in names)


def _variables(task: Task) -> Iterator[str]:
    """Yield what sets the variables that must be there before torch starts."""
    lines = [
        f"os.environ.pop({name!r}, None)" if value is None else f"os.environ[{name!r}] = {value!r}"
        for name, value in task.probe.environ(task.parameters).items()
    ]
    if lines:
        yield "\n".join(("import os\n", *lines)) + "\n"


def _split_docstring(text: str) -> tuple[str, str]:
    """Return a module's docstring, without quotes, and what follows it."""
    _, documentation, rest = text.split('"""', 2)
    return documentation, rest


def _main(task: Task, recorder: str, healthy: tuple[str, float] | None) -> str:
    parameters = json.dumps(dict(task.parameters))
    module = task.probe.module
    if healthy is None:
        metric, predicted, allowed = (
            module.METRIC,
            module.predict(task.parameters)[module.METRIC],
            module.tolerance(task.parameters),
        )
    else:
        (metric, predicted), allowed = healthy, 0
    ranks = ""
    if task.world_size > 1:
        ranks = (
            f'    if "RANK" not in os.environ:\n        return launch([__file__], {task.world_size})\n'
            '    rank = int(os.environ["RANK"])\n'
        )
    else:
        ranks = "    rank = 0\n"
    cuda, accounting = "", "StorageAccounting"
    if task.backend == "cuda":
        accounting = "CudaAccounting"
        cuda = (
            "    if not torch.cuda.is_available():\n"
            '        sys.stderr.write("torch sees no CUDA device\\n")\n        return 2\n'
        )
        if "cpu" in module.BACKENDS:  # as the worker has it
            cuda += '    take_workspaces("cuda")\n'
    fake = "FakeTensorMode(), " if task.backend == "fake" else ""
    if fake:
        ranks += "    from torch._subclasses.fake_tensor import FakeTensorMode\n\n"
    return f'''
def reproduce() -> int:
    """Run the probe, print what it measures, and return 1 when that is more than a healthy release, 2 when it cannot run."""
    import json
    import os

{ranks}    parameters = json.loads({parameters!r})
    torch.manual_seed(0)
    torch.set_num_threads(1)
    results = {{}}

    def write(event):
        if rank == 0:
            if event["event"] == "phase":
                print(event["phase"])
                results.update({{f"{{event['phase']['name']}}.{{key}}": value for key, value in event["phase"].items()}})
            elif event["event"] == "result":
                results[event["name"]] = event["value"]

{cuda}    accounting = {accounting}()
    with {fake}accounting:
        recorder = {recorder}(
            backend={task.backend!r}, accounting=accounting, write=write, rank=rank, world_size={task.world_size}
        )
        try:
            run(parameters, recorder)
        except (UnsupportedError, ModuleNotFoundError) as error:
            if rank == 0:
                sys.stderr.write(f"it cannot be measured here: {{error}}\\n")
            return 2
    if rank:
        return 0
    value = results[{metric!r}]
    print(f"{metric}: {{value:,}}; a healthy release: {predicted!r}")
    return int(value > {predicted + allowed!r})


if __name__ == "__main__":
    sys.exit(reproduce())
'''
