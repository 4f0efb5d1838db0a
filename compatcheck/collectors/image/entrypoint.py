"""Which interpreter an image starts: from its entry point and command, else the first on its PATH.

Wrappers (``tini``, ``env``, ``gosu``), shells, start scripts that were kept, ``conda run``, ``uv run`` and the first line of
console scripts such as ``torchrun`` are looked through. Nothing is run; what only a running shell knows is a doubt.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from itertools import islice
from typing import TYPE_CHECKING

from compatcheck.collectors.image.wrappers import (
    CONDA_VALUES,
    PYTHON,
    RUNNERS,
    SHELLS,
    SPREADERS,
    UV_VALUES,
    WRAPPERS,
    is_launcher,
    is_started,
    skip_options,
)
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.core.redaction import redact_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.collectors.image.manifest import ImageConfig
    from compatcheck.collectors.image.tree import ImageTree
    from compatcheck.core.command import Command

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of a container whose image sets none (``system.DefaultPathEnvUnix`` of moby)."""

MAX_STEPS = 2000
"""Commands looked at before giving up."""
MAX_DEPTH = 10
"""Programs that start each other, looked through before giving up: scripts may do so in a circle."""
MAX_VALUE = 32768
"""Characters of a variable that are kept: a script can double one again and again."""
MAX_TEXT = 65536
"""Characters of shell text that are read; the scripts that start containers are far shorter."""
MAX_FOLDERS = 200
"""Directories of ``PATH`` that are looked into."""

_MAX_LOST = 3
"""Programs that could not be followed, as many as are said."""


class Start(NamedTuple):
    """The interpreter an image starts, as far as its configuration tells."""

    executable: str | None
    """Path in the image, links as they are; None when none was found."""
    reason: str
    """In words: ``python train.py``, ``first python on PATH``."""
    from_command: bool
    """Whether entry point or command name it; otherwise it is the one a shell in the container would find."""
    doubts: tuple[str, ...] = ()
    """What could make another interpreter the one."""


def find_start(config: ImageConfig, files: ImageTree) -> Start:
    """Find the interpreter an image starts."""
    if not (config.env or config.entrypoint or config.cmd):
        return Start(None, "nothing says what it starts", from_command=False)
    walk = _Walk(config, files)
    words = [*config.entrypoint, *config.cmd]
    executable = walk.run(words) if words else None
    said = _shorten(words)
    if executable is not None:
        return Start(executable, f"{said} starts it", from_command=True, doubts=tuple(walk.doubts))
    lost = tuple(dict.fromkeys(walk.lost[:_MAX_LOST]))
    shell = _Walk(config, files)
    for folder in shell.initial["PATH"].split(":", MAX_FOLDERS)[:MAX_FOLDERS]:
        for name in ("python", "python3"):
            candidate = shell._find_environment(posixpath.join(folder or "/", name))  # noqa: SLF001 (of this module)
            if candidate is not None:
                how = f"{said} {'could not be followed' if lost else 'starts no Python itself'}"
                how = how if words else "there is no command"
                doubts = (*dict.fromkeys((*walk.doubts, *lost, *shell.doubts)),)
                return Start(candidate, f"first on PATH; {how}", from_command=False, doubts=doubts)
    doubts = (*walk.doubts, *lost)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = walk.initial.get(variable)
        candidate = f"{prefix}/bin/python"
        if prefix and files.is_file(candidate):
            return Start(candidate, f"{variable}; PATH has no Python", from_command=False, doubts=doubts)
    return Start(None, "no Python on its PATH", from_command=False, doubts=doubts)


def _shorten(words: Sequence[str]) -> str:
    text = redact_command(" ".join(words))
    limit = 48
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class _Walk:
    """The state of a container that starts: its variables and directory, while one program hands over to the next."""

    def __init__(self, config: ImageConfig, files: ImageTree) -> None:
        self.files = files
        self.initial = {"PATH": DEFAULT_PATH, **dict(config.env)}
        self.variables = dict(self.initial)
        self.folder = config.working_dir or "/"
        self.doubts: list[str] = []
        self.lost: list[str] = []
        """Programs that could not be followed; of no interest once another one starts an interpreter."""
        self.steps = 0
        self.depth = 0
        self._is_tool = False
        """Whether what was found last runs a console script that may only prepare: ``pip``, ``aws``."""
        self._conda: list[str] | None = None
        self.activated: list[str] = []
        """Environments that start scripts activate, in one way or another."""

    def run(self, words: list[str]) -> str | None:
        """Follow a command until it starts an interpreter; None when it does not, or that cannot be told."""
        while words:
            self.steps += 1
            if self.steps > MAX_STEPS:
                self._doubt(f"its start scripts were followed for {MAX_STEPS} commands only")
                return None
            variable, equals, value = words[0].partition("=")
            if equals and variable.isidentifier():
                self.variables[variable] = value[:MAX_VALUE]
                words = words[1:]
                continue
            name = posixpath.basename(words[0])
            if re.fullmatch(PYTHON, name):
                self._is_tool = False
                return self._find_interpreter(words[0])
            follow = self._follower(name)
            if follow is None:
                return self._run_file(words)
            following = follow(words)
            if following is None or isinstance(following, str):
                return following
            words = following
        return None

    def _follower(self, name: str) -> Callable[[list[str]], list[str] | str | None] | None:
        if name in SHELLS:
            return self._run_shell
        if name in WRAPPERS:
            return skip_options
        if name in SPREADERS:
            return self._skip_to_program
        if name in {"conda", "mamba", "micromamba"}:
            return self._run_conda
        if name == "uv":
            return self._run_uv
        if name in RUNNERS:
            return self._run_runner
        return None

    # --- programs that start another one ---

    def _skip_to_program(self, words: list[str]) -> list[str] | None:
        """Return the command behind the options of ``mpirun`` and its like."""
        for index, word in enumerate(words[1:], 1):
            if is_started(word):
                return words[index:]
        self.lost.append(f"{words[0]} starts what could not be told from its options")
        return None

    def _run_shell(self, words: list[str]) -> list[str] | str | None:
        login = False
        rest = words[1:]
        while rest and rest[0][:1] in {"-", "+"} and len(rest[0]) > 1:
            option = rest.pop(0)
            letters = "" if option.startswith("--") else option[1:]
            login = login or option == "--login" or "l" in letters or "i" in letters
            if option in {"--rcfile", "--init-file"} or letters.endswith(("o", "O")):
                rest = rest[1:]
            if "c" in letters:
                self._doubt_profile(login=login)
                if len(rest) > 1:
                    self.variables["0"] = rest[1]
                return self.run_text(f"{words[0]} -c", rest[0], rest[2:]) if rest else None
        self._doubt_profile(login=login)
        if not rest:
            return None
        return self._run_script(self._place(rest[0]), rest)

    def _doubt_profile(self, *, login: bool) -> None:
        if login:
            self._doubt("a login shell reads profiles, which may set PATH or activate another environment")
        elif self.variables.get("BASH_ENV") or self.variables.get("ENV"):
            self._doubt("the shell reads the file that BASH_ENV names first, which may activate another environment")

    def run_text(self, path: str, text: str, arguments: list[str]) -> str | None:
        """Follow the commands of shell text; ``"$@"`` is what was handed to it.

        The last that starts an interpreter is what the text is for; console scripts before and after it (``pip``, ``aws``)
        and other interpreters prepare and clean up.
        """
        if self.depth >= MAX_DEPTH:
            self._doubt("its start scripts start each other too often to be followed")
            return None
        self.depth += 1
        given = {**self.variables, "PWD": self.folder}
        from compatcheck.shell import read_script  # noqa: PLC0415 (only for start scripts)

        script = read_script(
            path, text[:MAX_TEXT], variables=given, arguments=arguments, assuming=False, stand_in=self._stand_in
        )
        found: list[tuple[str, bool, int]] = []
        for command in script.commands:
            one = self._run_command(command)
            if one is not None:
                found.append((one, self._is_tool, len(self.doubts)))
            if self.steps > MAX_STEPS:
                break
        self.depth -= 1
        self.lost += [f"{entry.source} {entry.reason}" for entry in script.skipped[:_MAX_LOST]]
        if not found:
            return None
        main = [one for one in found if not one[1]] or found
        chosen, self._is_tool, said = main[-1]
        del self.doubts[said:]  # of what comes after it
        others = (one[0] for one in main if posixpath.dirname(one[0]) != posixpath.dirname(chosen))
        for other in islice(dict.fromkeys(others), _MAX_LOST):
            self._doubt(f"a start script runs {other}, too")
        return chosen

    def _run_command(self, command: Command) -> str | None:
        if command.words[0].text is None:
            self.lost.append(f"{command.words[0].written} is known only when the container runs")
            return None
        self.variables = {name: word.text for name, word in command.variables.items() if word.text is not None}
        self.folder = self.variables.get("PWD", self.folder)
        return self.run([word.written if word.text is None else word.text for word in command.words])

    def _stand_in(self, words: Sequence[str], look_up: Callable[[str], str | None]) -> str | None:
        """Say what activating an environment sets, and what a file of the image holds that is sourced."""
        self.folder = look_up("PWD") or self.folder
        prefix: str | None = None
        if posixpath.basename(words[0]) in {"conda", "mamba", "micromamba"} and words[1:2] == ["activate"]:
            prefix = self._find_conda(words[2] if len(words) > 2 else "base")
        elif words[0] != "source" or len(words) == 1:
            return None
        elif posixpath.basename(words[1]) == "activate" and len(words) > 2:  # conda's own script
            prefix = self._find_conda(words[2])
        elif words[1].endswith("bin/activate"):
            prefix = posixpath.dirname(posixpath.dirname(self._place(words[1])))
        else:
            try:
                return self.files.read_text(self._place(words[1]))
            except OSError:
                return ""
        if prefix is None:
            return ""
        self.activated.append(prefix)
        return f"export PATH={shlex.quote(prefix)}/bin:$PATH"

    def _run_conda(self, words: list[str]) -> list[str] | None:
        rest = words[1:]
        while rest and rest[0] != "run":
            rest = rest[1:]
        rest = rest[1:]
        while rest and rest[0].startswith("-"):
            option, equals, value = rest.pop(0).partition("=")
            if option in {"-n", "--name", "-p", "--prefix"}:
                if not equals and rest:
                    value = rest.pop(0)
                self._activate_conda(value)
            elif option in CONDA_VALUES and not equals:
                rest = rest[1:]
        return rest or None

    def _run_uv(self, words: list[str]) -> list[str] | None:
        rest = words[1:]
        folder, wanted = self.folder, self.variables.get("UV_PROJECT_ENVIRONMENT", ".venv")
        is_run = False
        while rest and (rest[0].startswith("-") or not is_run):
            option, equals, value = rest.pop(0).partition("=")
            if option == "run":
                is_run = True
            elif option in UV_VALUES and not equals and rest:
                value = rest.pop(0)
            if option in {"--directory", "--project"}:
                folder = self._place(value)
            elif option == "--active":
                wanted = self.variables.get("VIRTUAL_ENV", wanted)
            elif option in {"--with", "--isolated", "-w"}:
                self._doubt(f"uv run {option} adds packages when the container starts")
            elif option in {"-m", "--module"}:
                rest = ["python"]
        if not rest:
            return None
        self._activate_project("uv", folder, wanted)
        return ["python", *rest] if rest[0].endswith(".py") else rest

    def _run_runner(self, words: list[str]) -> list[str] | None:
        """Follow ``poetry run``, ``pdm run``, ``pixi run -e train``."""
        if "run" not in words:
            return None
        rest = words[words.index("run") + 1 :]
        name = posixpath.basename(words[0])
        wanted = ".venv"
        if name == "pixi":
            wanted = ".pixi/envs/default"
            if len(rest) > 1 and rest[0] in {"-e", "--environment"}:
                wanted = f".pixi/envs/{rest[1]}"
                rest = rest[2:]
        while rest and rest[0].startswith("-"):
            rest = rest[1:]
        if not rest:
            return None
        self._activate_project(name, self.folder, wanted)
        return rest

    def _activate_project(self, runner: str, folder: str, wanted: str) -> None:
        """Activate the environment of the project in a directory, or the nearest one above it."""
        here = folder
        while True:
            prefix = posixpath.normpath(posixpath.join(here, wanted))
            if self.files.exists(f"{prefix}/bin"):
                self._activate(prefix)
                return
            if here == posixpath.dirname(here):
                break
            here = posixpath.dirname(here)
        self._doubt(f"{runner} run starts in an environment of its own, and no {wanted} is in {folder}")

    # --- files ---

    def _run_file(self, words: list[str]) -> str | None:
        path = self._find(words[0])
        if path is None:
            self.lost.append(f"{words[0]} is not in the image, or is no script of Python")
            return None
        return self._run_script(path, words)

    def _run_script(self, path: str, words: list[str]) -> str | None:
        """Follow the first line of a script, and its text when that names a shell."""
        try:
            text = self.files.read_text(path)
        except OSError:
            text = ""
        first = text.partition("\n")[0]
        interpreter = first[2:].split() if first.startswith("#!") else []
        if interpreter and posixpath.basename(interpreter[0]) == "env":
            interpreter = skip_options(interpreter)
        if not interpreter and text and not text.startswith("\x7f"):
            interpreter = ["sh"]
        if not interpreter:
            beside = posixpath.join(posixpath.dirname(path), "python")
            if not first and self.files.is_file(beside) and is_launcher(path):
                return beside
            self.lost.append(f"{path} is a program, or was not read")
            return None
        if posixpath.basename(interpreter[0]) in SHELLS:
            self.variables["0"] = path
            return self.run_text(path, text, words[1:])
        found = self.run([*interpreter, path])
        self._is_tool = not is_launcher(path)
        return found

    def _find(self, name: str) -> str | None:
        if "/" in name:
            path = self._place(name)
            return path if self.files.is_file(path) else None
        for folder in self._folders():
            path = posixpath.join(self._place(folder), name)
            if self.files.is_file(path):
                return path
        return None

    def _find_interpreter(self, name: str) -> str | None:
        path = self._find_environment(name)
        if path is None:
            self.lost.append(f"{name} is not in the image")
        return path

    def _find_environment(self, name: str) -> str | None:
        """Return the interpreter of a name; in a virtual environment it counts though its link leads out of the image.

        Such an environment was copied without the Python it was made with. What it holds is what the image is for.
        """
        folders = [""] if "/" in name else self._folders()
        for folder in folders:
            path = posixpath.join(self._place(folder), name)
            if self.files.is_file(path):
                return path
            target = self.files.read_link(path)
            if target is not None and self.files.is_file(posixpath.join(posixpath.dirname(path), "../pyvenv.cfg")):
                self._doubt(f"{path} is a link to {target}, which leads to nothing in the image")
                return path
        return None

    def _place(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.folder, path))

    # --- variables ---

    def _folders(self) -> list[str]:
        """Return the directories of ``PATH``; where only a running container knows it, those it may begin with."""
        path = self.variables.get("PATH")
        if path is None:
            self._doubt("PATH is known only when the container runs")
            path = ":".join([*(f"{prefix}/bin" for prefix in reversed(self.activated)), self.initial["PATH"]])
        return path.split(":", MAX_FOLDERS)[:MAX_FOLDERS]

    def _activate(self, prefix: str) -> None:
        self.variables["PATH"] = ":".join([f"{prefix}/bin", *self._folders()])[:MAX_VALUE]

    def _activate_conda(self, name: str) -> None:
        prefix = self._find_conda(name)
        if prefix is not None:
            self._activate(prefix)

    def _find_conda(self, name: str) -> str | None:
        prefix = self._conda_prefix(name)
        if prefix is None:
            self._doubt(f"there is no conda environment {name}")
        return prefix

    def _conda_prefix(self, name: str) -> str | None:
        if "/" in name:
            return self._place(name)
        if self._conda is None:
            self._conda = [posixpath.dirname(path) for path in self.files.find_directories("conda-meta")]
        prefixes = self._conda
        if name == "base":
            return next((prefix for prefix in prefixes if "/envs/" not in prefix), None)
        return next((prefix for prefix in prefixes if prefix.endswith(f"/envs/{name}")), None)

    def _doubt(self, text: str) -> None:
        if text not in self.doubts:
            self.doubts.append(text)
