"""Take the launchers off a command until the training program and its own arguments are left.

``nohup env A=1 ray job submit … -- torchrun --nproc_per_node 8 train.py --x 1`` is ``train.py --x 1`` on 8 ranks. What the
launchers say about ranks becomes a document of its own.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.json_file import parse_json
from compatcheck.core.redaction import leave_out_words
from compatcheck.frameworks.keys import Names
from compatcheck.frameworks.launch import ranks as rank_options
from compatcheck.frameworks.launch.flags import split_flag
from compatcheck.frameworks.launch.program import Launch
from compatcheck.frameworks.launch.ranks import Ranks
from compatcheck.frameworks.launch.values import Argument, as_argument, explain
from compatcheck.frameworks.registry import FOLDERS
from compatcheck.rules.programs import installed_tools
from compatcheck.shell.wrappers import MAX_LAYERS, Layer, Shown, open_wrapper, serves_itself

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from compatcheck.core.command import Command, Word
    from compatcheck.core.document import Document


PYTHON = re.compile(r"python(\d+(\.\d+)*)?w?(\.exe)?$|pypy3?$")
_TORCHRUN = {"torchrun", "torchrun-hpu"}
_TORCHRUN_SWITCHES = {"standalone", "no_python", "run_path", "virtual_local_rank", "use_env", "legacy"}
_DEEPSPEED_SWITCHES = Names(__file__, "deepspeed_switches.txt")
_ACCELERATE_SWITCHES = Names(__file__, "accelerate_switches.txt")
_TUNE_SWITCHES = {"standalone", "no_python", "run_path"}
MODULE_OF_TORCHRUN = {"torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic_launch"}
_OTHER_TOOLS = {"xtuner"}
"""Tools with sub-commands that no program here reads."""
_TOOL_MODULES = {module: tool for folder in FOLDERS for module, tool in folder.tool_modules.items()}


class _Remainder:
    """What is left of a command, and what the launchers taken off it say."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.words = list(command.words)
        self.ranks = Ranks()
        self.launchers: list[str] = []
        self.stopped = False
        self.documents: list[Document] = []
        self.references: list[tuple[str, str, str]] = []
        self.variables = {name: word.text for name, word in command.variables.items() if word.text is not None}

    @property
    def line(self) -> int | None:
        return self.command.source.line

    def options(
        self, switches: Collection[str], *, modules: Sequence[str] = ()
    ) -> tuple[dict[str, Argument], bool, str | None]:
        """Take the options in front of the next program off the words.

        Returns:
            The options, whether what follows is a module, and why the options are not all known, if they are not.
        """
        found: dict[str, Argument] = {}
        is_module, doubt = False, None
        while self.words:
            word = self.words[0]
            text = word.text
            if text == "--":
                self.words.pop(0)
                break
            name, value = split_flag(word)
            if name is None and text is not None and re.fullmatch(r"-[A-Za-z].*", text):
                name, value = self._short(text, word)
            if name is None:
                if text is not None or doubt is not None or not self._may_be_options():
                    break
                doubt = explain(word)
                self.words.pop(0)
                continue
            self.words.pop(0)
            if name in modules:
                is_module = True
            elif value is not None:
                found[name] = value
            elif name in switches or not self.words:
                found[name] = Argument(True, word.source.line)
            else:
                found[name] = as_argument(self.words.pop(0))
        return found, is_module, doubt

    def _may_be_options(self) -> bool:
        """Tell whether an unknown word is followed by what may be a program: then it may hold options."""
        if self.words[0].written.strip("\"'").endswith(".py"):
            return False
        rest = [word.text or "" for word in self.words[1:]]
        return any(text.endswith(".py") or text == "-m" for text in rest)

    @staticmethod
    def _short(text: str, word: Word) -> tuple[str, Argument | None]:
        head, equals, value = text.lstrip("-").partition("=")
        return head.replace("-", "_"), as_argument(word, value) if equals else None


def remove_launchers(command: Command) -> Launch | None:
    """Take the launchers off: return the program a command starts in the end; None when it starts none that could train."""
    return _take_off(_Remainder(command))


def find_unknown_program(command: Command) -> tuple[Word, ...]:
    """Return the words of a command from the program on that nobody knows: ``$LAUNCHER $SCRIPT --lr 1``; none where one does."""
    state = _Remainder(command)
    launch = _take_off(state)
    return () if launch is not None or not state.words or state.words[0].text is not None else tuple(state.words)


def _take_off(state: _Remainder) -> Launch | None:
    command = state.command
    for _ in range(MAX_LAYERS):
        if not state.words:
            return None
        first = state.words[0].text
        if first is None and [word.text for word in state.words[1:2]] == ["-m"]:
            first = "python"  # nothing else is started so: $PYTHON -m torch.distributed.run
        if first is None:
            first = find_known_program(state.words[0])
        if first is None:
            return None
        layer = open_wrapper([Shown(word.text or word.written, word.text is not None) for word in state.words])
        if layer is not None:
            _unwrap(layer, state)
            continue
        name = os.path.basename(first)
        state.words.pop(0)
        found = _remove_launcher(name, state)
        if found is not None:
            program, kind = found
            if not program:
                return None  # `torchrun ''`
            if not state.launchers and kind == "script":
                rank_options.read_only_device(state.ranks, state.variables, state.line)
            launcher = state.ranks.document(command.source, tuple(state.references))
            documents = (*state.documents, *([launcher] if launcher is not None else []))
            return Launch(
                program, kind, tuple(state.words), command, tuple(state.launchers), documents, state.variables
            )
        if state.stopped:
            return None
    return None


_KNOWN_END = re.compile(r"""["']?(?:.*/([\w.-]+)|\$\((?:which|command -v|type -[pP])\s+([\w.-]+)\))["']?$""")


def find_known_program(word: Word) -> str | None:
    """Return the launcher that a program's path ends with, or that is looked for: ``$VENV/bin/python``, ``$(which torchrun)``."""
    found = _KNOWN_END.match(word.written)
    name = None if found is None else found[1] or found[2]
    return name if name is not None and is_launcher(name) else None


_OF_TRAINING = ("torchrun", "torch.distributed", "accelerate", "deepspeed", "lightning run", "fabric run")
_STARTS_ANY = ("python", "python3", "py", "ray", "srun", "mpirun")
"""Words of commands that start any program; ``py`` ends the name of a script."""


def names_launcher(text: str) -> bool:
    """Tell whether a text holds a word without which no command in it starts a training."""
    known = _pattern((*_OF_TRAINING, *_STARTS_ANY)).search(text)
    return known is not None or _MODULE.search(text) is not None or _UNKNOWN.search(text) is not None


_MODULE = re.compile(r"(?<![\w-])(?:-m|--module)(?![\w-])")
"""What follows a launcher that a variable holds: ``$PYTHON -m``."""
_UNKNOWN = re.compile(r"(?:\$\w\S{0,80}|[})`])[\"']?[ \t]+(?:\\\n[ \t]*)?--[a-z]\w*[-_]")
"""A program that a variable holds or a command prints, and an option of several words."""


def names_training(text: str) -> bool:
    """Tell whether a text holds a word of commands that start little else than trainings."""
    return _pattern(_OF_TRAINING).search(text) is not None


@cache
def _pattern(launchers: tuple[str, ...]) -> re.Pattern[str]:
    """Match these launchers, and the tools that programs install; behind the line break of a string of JSON, too."""
    return re.compile(rf"(?:\b|(?<=\\[nt]))(?:{'|'.join(map(re.escape, (*launchers, *sorted(installed_tools()))))})\b")


def is_launcher(name: str) -> bool:
    """Tell whether a program starts others, or trains by its sub-commands."""
    starts = name in _LAUNCHERS or name in _TORCHRUN or PYTHON.fullmatch(name) is not None
    return starts or name in _OTHER_TOOLS or name in installed_tools()


def _remove_launcher(name: str, state: _Remainder) -> tuple[str, str] | None:
    """Take one layer off; return the program and its kind when it is the last one."""
    if PYTHON.fullmatch(name):
        return _python(state)
    if state.words and serves_itself(name, state.words[0].text or ""):
        return "vllm serve", "tool"
    if name in _TORCHRUN:
        return _torchrun(state)
    if name in _LAUNCHERS:
        return _LAUNCHERS[name](state)
    if name in _OTHER_TOOLS or name in installed_tools():
        return _tool(name, state)
    if name in _SUBMITTERS:
        _submit(state)
        return None
    if name.endswith(".py"):
        return command_word(state, name), "script"
    state.stopped = True
    return None


def command_word(state: _Remainder, name: str) -> str:
    """Return a program's path as the command wrote it."""
    return next((word.text for word in state.command.words if word.text and os.path.basename(word.text) == name), name)


def _unwrap(layer: Layer, state: _Remainder) -> None:
    """Take a wrapper off, with the variables it gives and what its options say about ranks."""
    words = [word.text or word.written for word in state.words]
    options: dict[str, Argument] = {}
    for name, part in layer.options:
        value = True if part is None else words[part.place][part.offset :]
        argument = Argument(value, state.line) if part is None else as_argument(state.words[part.place], str(value))
        options[name.lstrip("-").replace("-", "_")] = argument
    before = state.variables
    state.variables = {} if layer.cleared else dict(before)
    for part in layer.passed():
        name, equals, value = words[part.place][part.offset :].partition("=")
        if state.words[part.place].text is not None and (equals or name in before):
            state.variables[name] = value if equals else before[name]
    for part in layer.given("unset"):
        state.variables.pop(words[part.place], None)
    for part in layer.given("environment"):
        state.variables |= _parse_variables(words[part.place][part.offset :], str(state.command.source))
    if layer.wrapper.row in _RANKS:
        _RANKS[layer.wrapper.row](options, state.ranks)
    state.launchers.append(layer.wrapper.row)
    del state.words[: layer.start]
    if layer.is_module and state.words:
        _insert_python(state)


def _parse_variables(text: str, place: str) -> dict[str, str]:
    try:
        data = parse_json(text, place)
    except InputError:
        return {}
    variables = data.get("env_vars") if isinstance(data, dict) else None
    return {str(k): str(v) for k, v in variables.items()} if isinstance(variables, dict) else {}


_RANKS = {"srun": rank_options.read_srun, "mpirun": rank_options.read_mpirun}
"""Wrappers whose options say how many processes start."""


def _insert_python(state: _Remainder) -> None:
    word = state.words[0]
    state.words[:0] = [word._replace(text="python", written="python"), word._replace(text="-m", written="-m")]


_PYTHON_VALUED = {"-W", "-X"}


def _python(state: _Remainder) -> tuple[str, str] | None:
    while state.words:
        text = state.words[0].text
        if text is None:
            break
        if text == "-m":
            state.words.pop(0)
            module = state.words.pop(0).text if state.words else None
            if not module:
                break
            return _module(module, state)
        if text == "-c" or not text.startswith("-"):
            break
        state.words.pop(0)
        if text in _PYTHON_VALUED and state.words:
            state.words.pop(0)
    if state.words and os.path.basename(state.words[0].text or "") in _SUBMITTERS:
        _submit(state)
        return None
    program = _program(state.words[0]) if state.words else None
    if program is not None and program not in {"-c", "-"}:
        state.words.pop(0)
        return program, "script"
    state.stopped = True
    return None


def _program(word: Word) -> str | None:
    """Return the path of a program; of one in an unknown directory (``$REPO/examples/run.py``) the part that is known."""
    if word.text is not None:
        return word.text or None
    known = re.split(r"\$\{[^}]*\}|\$\w+|\$\([^)]*\)", word.written.strip("\"'"))[-1].lstrip("/\"'")
    return known if known.endswith(".py") and known != ".py" else None


_SUBMITTERS = {"mason.py"}
"""Scripts that hand the command behind ``--`` to a cluster (open-instruct)."""


_PREPARES = frozenset({"source", ".", "cd", "export"})
"""What stands in front of the command that is handed over, joined with it: ``source a.sh "&&" python b.py``."""


def _submit(state: _Remainder) -> None:
    places = [place for place, word in enumerate(state.words) if word.text == "--"]
    if not places:
        state.stopped = True
        return
    state.launchers.append("mason")
    commands: list[list[Word]] = [[]]
    for word in state.words[places[0] + 1 :]:
        if word.text is None or not word.text.startswith("&&"):
            commands[-1].append(word)
            continue
        rest = word.text.removeprefix("&&")
        commands.append([word._replace(text=rest, written=rest)] if rest else [])
    state.words[:] = next((words for words in commands if words and words[0].text not in _PREPARES), [])


def _module(module: str, state: _Remainder) -> tuple[str, str] | None:
    if module in MODULE_OF_TORCHRUN:
        return _torchrun(state)
    if module in {"accelerate.commands.launch", "accelerate.commands.accelerate_cli"}:
        if module.endswith("cli") and state.words:
            state.words.pop(0)
        return _accelerate_launch(state)
    if module in {"deepspeed.launcher.runner", "deepspeed"}:
        return _deepspeed(state)
    if module in _TOOL_MODULES:
        return _tool(_TOOL_MODULES[module], state)
    return module, "module"


def _next_program(state: _Remainder, launcher: str, *, is_module: bool, plain: bool = False) -> tuple[str, str] | None:
    state.launchers.append(launcher)
    program = _program(state.words[0]) or leave_out_words(state.words[0].written) if state.words else None
    if program is None:
        state.stopped = True
        return None
    if plain:
        return None
    state.words.pop(0)
    if is_module:
        return _module(program, state)
    return program, "script"


def _torchrun(state: _Remainder) -> tuple[str, str] | None:
    options, is_module, doubt = state.options(_TORCHRUN_SWITCHES, modules=("m", "module"))
    rank_options.read_torchrun(options, state.ranks, state.line, state.variables)
    if doubt is not None:
        for fact, name in ((rank_options.GPUS, "nproc_per_node"), (rank_options.NODES, "nnodes")):
            if name not in options:
                state.ranks.doubt(fact, f"--{name}", doubt, state.line)
    return _next_program(state, "torchrun", is_module=is_module, plain="no_python" in options)


def _deepspeed(state: _Remainder) -> tuple[str, str] | None:
    options, is_module, doubt = state.options(_DEEPSPEED_SWITCHES, modules=("module",))
    rank_options.read_deepspeed(options, state.ranks, state.line)
    if doubt is not None:
        state.ranks.doubt(rank_options.WORLD, "--num_gpus", doubt, state.line)
    return _next_program(state, "deepspeed", is_module=is_module, plain="no_python" in options)


def _accelerate(state: _Remainder) -> tuple[str, str] | None:
    if not state.words or state.words.pop(0).text != "launch":
        state.stopped = True
        return None
    return _accelerate_launch(state)


def _accelerate_launch(state: _Remainder) -> tuple[str, str] | None:
    options, is_module, doubt = state.options(_ACCELERATE_SWITCHES, modules=("m", "module"))
    from compatcheck.frameworks.accelerate.launcher import read_options  # noqa: PLC0415 (only where accelerate launches)

    read_options(options, state.ranks, state.documents, state.references, state.command)
    if doubt is not None and "num_processes" not in options:
        state.ranks.doubt(rank_options.WORLD, "--num_processes", doubt, state.line)
    return _next_program(state, "accelerate", is_module=is_module, plain="no_python" in options)


def _tune(state: _Remainder) -> tuple[str, str] | None:
    if not state.words or state.words.pop(0).text != "run":
        state.stopped = True
        return None
    options, _, doubt = state.options(_TUNE_SWITCHES)
    if options or doubt:
        rank_options.read_torchrun(options, state.ranks, state.line, state.variables)
    else:
        state.ranks.state(rank_options.WORLD, "tune run (without --nproc_per_node)", 1, state.line)
    state.launchers.append("tune")
    if not state.words or state.words[0].text is None:
        state.stopped = True
        return None
    return f"tune run {state.words.pop(0).text}", "tool"


def _tool(name: str, state: _Remainder) -> tuple[str, str] | None:
    if name == "tune":
        return _tune(state)
    if not state.words or state.words[0].text is None:
        state.stopped = True
        return None
    return f"{name} {state.words.pop(0).text}", "tool"


def _lightning(state: _Remainder) -> tuple[str, str] | None:
    """Read ``lightning run model`` (2.0 to 2.2) and ``fabric run``: what they say a Fabric takes that is made without it."""
    if not state.words or state.words.pop(0).text != "run":
        state.stopped = True
        return None
    if state.words and state.words[0].text == "model":
        state.words.pop(0)
    options, _, doubt = state.options(())
    from compatcheck.frameworks.python_script.lightning import read_options  # noqa: PLC0415 (only where it launches)

    rank_options.read_lightning(options, state.ranks, state.line, doubt)
    state.documents += read_options(options, state.command.source)
    return _next_program(state, "lightning", is_module=False)


_LAUNCHERS = {
    "lightning": _lightning,
    "fabric": _lightning,
    "accelerate": _accelerate,
    "accelerate-launch": _accelerate_launch,
    "deepspeed": _deepspeed,
    "ds": _deepspeed,
}
"""Launchers by the name of their program."""
