"""A Dockerfile: what the image it builds will hold, by the names of its base images and the installs it pins.

Nothing is built, run or fetched. What an image's name promises, what a command installs and what a requirement file
beside the Dockerfile asks for become packages; what cannot be told (a variable that is not known, a condition, a file that is
not there) is listed. The result is that of the last stage, or of the one that is named.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from compatcheck.collectors.dockerfile.base_images import read_image_name
from compatcheck.collectors.dockerfile.install_commands import Install, read_install
from compatcheck.collectors.dockerfile.stage import CHECK_IMAGE, Stage
from compatcheck.collectors.dockerfile.text import (
    INSTRUCTIONS,
    MAX_VALUE,
    MAX_VARIABLES,
    Instruction,
    Text,
    read_assignments,
    read_instructions,
    reads_documents,
    split_options,
    substitute,
    unquote,
)
from compatcheck.core.command import Word
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError, UsageError
from compatcheck.core.files import LOCAL, Files, Overlay
from compatcheck.core.markers import canonical_name
from compatcheck.core.redaction import leave_out_words
from compatcheck.core.requirement import InvalidRequirementError, Requirement, parse_requirement, read_url
from compatcheck.core.selection import DEFAULT, Selection
from compatcheck.core.source import Skipped, Source
from compatcheck.core.textfile import MAX_BYTES, STANDARD_INPUT, advise_mending, echo, read_text, read_utf8
from compatcheck.core.units import parse_count
from compatcheck.shell import read_script
from compatcheck.shell.script import MAX_BYTES as SCRIPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compatcheck.core.command import Command

LIMIT_BYTES = min(4 << 20, MAX_BYTES)
_PREDEFINED = {
    "TARGETPLATFORM": "linux/amd64",
    "TARGETOS": "linux",
    "TARGETARCH": "amd64",
    "BUILDPLATFORM": "linux/amd64",
}
_LOCAL_ARCHIVE = re.compile(r"(?:^\.{0,2}/|^\.$|^\.\[|^/).*|.*\.(?:whl|tar\.gz|zip)$")
_ENVIRONMENTS = re.compile(
    r"(?:^|/)(?:\.?venv|[\w.-]*[-_]?env|virtualenv|site-packages|dist-packages|\w*conda\d?|install|\.local|python[\d.]*)/?$"
    r"|^(?:/usr/local|/opt|/app|/workspace|/usr/local/lib|/)/?$"
)
"""Paths that hold a Python environment, copied as a whole."""

MAX_STAGES = 500
_MAX_PATH = 4_096
"""Characters of a path: ``PATH_MAX`` of Linux, beyond which no image is built."""
_SHELLS = r"(?:ba|da|a|z|k)?sh"
_PARENTS = 3
"""How many directories above the Dockerfile are tried as the build context."""


def read_dockerfile(path: str, files: Files = LOCAL, selection: Selection = DEFAULT) -> Environment:
    """Read a Dockerfile.

    Args:
        path: the file; its directory and those above it are looked in for the requirement files it installs.
        files: the tree it lies in.
        selection: names the stage the image is built from; the last one by default, as docker builds it.
    """
    text = read_utf8(path, files, limit=LIMIT_BYTES)
    reader = _Reader(path, files)
    refused: list[Instruction] = []
    for instruction in read_instructions(text):
        if instruction.name not in INSTRUCTIONS:
            refused.append(instruction)
        if len(reader.stages) >= MAX_STAGES and instruction.name == "FROM":
            message = f"has more than {MAX_STAGES} stages"
            raise InputError(message, source=Source(path, "FROM", instruction.line), hint="name a Dockerfile")
        reader.read(instruction)
    if not reader.stages:
        message = "has no FROM: it is not a Dockerfile"
        raise InputError(message, source=Source(path), hint="name a Dockerfile")
    chosen = _find_stage(path, reader.stages, selection.stage)
    from compatcheck.collectors.machine.variables import attach, collect_variables  # noqa: PLC0415 (beside its use)

    named = [entry.name for entry in reader.stages if entry.name and entry is not chosen]
    notes = [*chosen.notes, "read from a Dockerfile: releases are by the names of images and the commands in it"]
    if named:
        notes.append(f"other stages, which are left out where nothing is taken from them: {', '.join(named)}")
    environment = Environment(
        path,
        chosen.packages,
        complete=False,
        python=chosen.python,
        facts=chosen.facts,
        damage=(*chosen.damage.values(), *chosen.contradictions),
        skipped=(*_name_refused(path, text, refused), *chosen.skipped),
        notes=tuple(dict.fromkeys(notes)),
    )
    collected = collect_variables(chosen.variables, Source(path, "ENV"))
    environment = attach(environment, collected, complete=False)
    return environment._replace(facts={**collected.facts, **chosen.facts})


def _name_refused(path: str, text: str, lines: Sequence[Instruction]) -> Iterator[Skipped]:
    """Yield that lines are no instructions: a builder refuses the file, and what a template becomes is open."""
    if lines:
        more = f"; {len(lines) - 1} more are none either" if len(lines) > 1 else ""
        hint = advise_mending(text, "write an instruction, or check what the template becomes")
        yield Skipped(Source(path, line=lines[0].line), f"is no instruction of a Dockerfile{more}", hint, named=True)


def read_installs(path: str, lines: Iterable[tuple[int, str]], files: Files = LOCAL) -> Environment:
    """Read what the cells of a notebook install over packages that nobody lists.

    Args:
        path: the notebook.
        lines: of the shell, with the lines of the file that they stand in; one that is indented may not run.
        files: the tree it lies in.
    """
    reader = _Reader(path, files)
    reader.stages.append(stage := Stage(None))
    for number, line in lines:
        # `{name}` is a variable of Python, `-q` of the magic `%pip` an option of pip.
        text = Text(re.sub(r"\{(\w+)\}", r"$\1", line.strip()), ((0, number),))
        for command in reader.commands(text.content, text):
            reader.take(command._replace(certain=command.certain and not line[:1].isspace()))
    hint = "what it runs in tells: compatcheck env"
    return Environment(
        path,
        {name: one._replace(source=one.source._replace(key="install")) for name, one in stage.packages.items()},
        complete=False,
        facts={name: (value, place._replace(key="install")) for name, (value, place) in stage.facts.items()},
        skipped=tuple(
            Skipped(one.source._replace(key="install"), one.reason, hint, passes=True) for one in stage.skipped
        ),
        notes=("releases are by the commands of its cells that install packages",),
    )


def _find_stage(path: str, stages: Sequence[Stage], name: str | None) -> Stage:
    """Return the stage that is built: by its name or number, as ``docker build --target`` takes it.

    Raises:
        UsageError: there is none of that name.
    """
    if name is None:
        return stages[-1]
    for number, stage in enumerate(stages):
        if name == str(number) or (stage.name or "").lower() == name.lower():
            return stage
    known = [stage.name for stage in stages if stage.name]
    message = f"has no stage {echo(name)}"
    hint = f"stages: {', '.join(known)}" if known else f"its stages have no names: give a number below {len(stages)}"
    raise UsageError(message, source=Source(path, "FROM"), hint=hint)


class _Reader:
    def __init__(self, path: str, files: Files) -> None:
        self.files = files
        self.path = path
        self.directory = os.path.dirname(path) if path != STANDARD_INPUT else ""
        self.globals: dict[str, str | None] = {**_PREDEFINED}
        self.stages: list[Stage] = []
        self.effort = 0.0
        """How much of what is read of one script was read; all ``RUN`` together are read as one."""
        self.opened = 0
        """Characters of the scripts they started."""

    def read(self, instruction: Instruction) -> None:
        """Take one instruction."""
        name = instruction.name
        if name == "FROM":
            self.begin(instruction)
        elif not self.stages:
            if name == "ARG":
                self.argue(instruction, self.globals, self.globals.get)
        elif name == "ARG":
            self.argue(instruction, self.stages[-1].arguments, self.stages[-1].value)
        elif name == "ENV":
            self.set_variables(instruction)
        elif name == "WORKDIR":
            self.enter(instruction)
        elif name in {"COPY", "ADD"}:
            self.copy(instruction)
        elif name == "SHELL":
            names = re.findall(r"[\w.-]+(?=[\"'])", instruction.text.content)
            self.stages[-1].is_posix = any(re.fullmatch(_SHELLS, one) for one in names)
        elif name == "RUN":
            self.run(instruction)
        elif (
            name in {"CMD", "ENTRYPOINT"}
            and _INSTALLS.search(f" {re.sub(_LISTED, ' ', instruction.text.content)}") is not None
        ):
            source = Source(self.path, name, instruction.line)
            self.stages[-1].skip(source, "installs packages when the container starts, which is not read")

    def argue(self, instruction: Instruction, into: dict[str, str | None], value: object) -> None:
        """Read ``ARG``: a default, or in a stage the global one of this name."""
        look_up = value if callable(value) else self.globals.get
        for part in re.findall(r"[A-Za-z_]\w*(?:=(?:\"[^\"]*\"|'[^']*'|\S)*)?", instruction.text.content):
            name, equals, default = part.partition("=")
            if equals:
                into[name] = substitute(unquote(default), look_up)
            else:
                into[name] = self.globals.get(name)

    def begin(self, instruction: Instruction) -> None:
        """Read ``FROM [--platform=…] IMAGE [AS NAME]``."""
        words = [word for word in instruction.text.content.split() if not word.startswith("--")]
        alias = words[2] if len(words) > 2 and words[1].lower() == "as" else None
        stage = Stage(alias)
        written = unquote(words[0]) if words else ""
        image = substitute(written, self.globals.get)
        earlier = next(
            (entry for entry in reversed(self.stages) if entry.name and image and entry.name.lower() == image.lower()),
            None,
        )
        self.stages.append(stage)
        if earlier is not None:
            for field in ("packages", "facts", "variables", "damage"):
                setattr(stage, field, dict(getattr(earlier, field)))
            stage.python, stage.directory, stage.is_posix = earlier.python, earlier.directory, earlier.is_posix
            stage.is_cut_off = earlier.is_cut_off
            stage.copies, stage.skipped, stage.notes = list(earlier.copies), list(earlier.skipped), list(earlier.notes)
            stage.contradictions = list(earlier.contradictions)
            return
        source = Source(self.path, "FROM", instruction.line)
        if image is None:
            stage.skip(source, f"the base image {echo(written)} depends on a build argument")
            return
        found = read_image_name(image)
        if found is None:
            if image != "scratch":
                stage.notes.append(f"what the base image {image} holds is not known")
            return
        if not found.packages and not found.bare:
            stage.notes.append(f"what this release of the base image {image} holds is not known")
        place = Source(self.path, f"by the tag {image}", instruction.line)
        for package, version in found.packages.items():
            stage.packages[package] = Package(package, version, place, details={"base_image": image})
        if found.build == "rocm" or (found.build is not None and "torch" in found.packages):
            stage.facts["runtime.torch_build"] = (found.build, place)
            stage.facts["runtime.torch_cuda"] = (found.cuda, place)
        if found.compat is not None:
            stage.facts["runtime.cuda_compat"] = (found.compat, place)
        stage.python = found.python

    def set_variables(self, instruction: Instruction) -> None:
        stage = self.stages[-1]
        for name, raw in read_assignments(instruction.text.content):
            known = substitute(raw, stage.value) if len(stage.variables) < MAX_VARIABLES else None
            if known is None:
                stage.variables.pop(name, None)
                stage.arguments[name] = None
            else:
                stage.variables[name] = known

    def enter(self, instruction: Instruction) -> None:
        stage = self.stages[-1]
        known = substitute(unquote(instruction.text.content), stage.value)
        if known is None:
            return
        joined = os.path.join(stage.directory, known)
        if len(joined) > _MAX_PATH:
            message = f"has a working directory of more than {_MAX_PATH} characters"
            raise InputError(message, source=Source(self.path, "WORKDIR", instruction.line), hint="name a Dockerfile")
        stage.directory = os.path.normpath(joined)

    def copy(self, instruction: Instruction) -> None:
        """Note where files of the context go, and take what another stage has installed along with its files."""
        stage = self.stages[-1]
        words = instruction.text.content.split()
        origin = next((word.partition("=")[2] for word in words if word.startswith("--from=")), None)
        words = [word.strip("[],\"'") for word in words if not word.startswith("--")]
        if len(words) < 2:
            return
        *sources, target = [substitute(word, stage.value) or word for word in words]
        if origin is not None:
            self.take_over(origin, sources)
            return
        folder = target.endswith("/") or target in {".", ".."} or len(sources) > 1
        destination = os.path.normpath(os.path.join(stage.directory, target))
        for entry in sources:
            is_folder = entry in {".", "./"} or entry.endswith("/") or self.is_directory(entry)
            inside = folder and not is_folder
            stage.copies.append((entry, os.path.join(destination, os.path.basename(entry)) if inside else destination))

    def take_over(self, origin: str, sources: list[str]) -> None:
        stage = self.stages[-1]
        other = next((entry for entry in self.stages[:-1] if entry.name and entry.name.lower() == origin.lower()), None)
        if other is None and (place := parse_count(origin)) is not None and place < len(self.stages) - 1:
            other = self.stages[place]
        if (
            other is None
            or not other.packages
            or not any(len(entry) < MAX_VALUE and _ENVIRONMENTS.search(entry) for entry in sources)
        ):
            return
        stage.packages = {**stage.packages, **other.packages}
        stage.damage = {**stage.damage, **other.damage}
        stage.facts = {**stage.facts, **{k: v for k, v in other.facts.items() if k != "runtime.cuda_compat"}}
        stage.python = stage.python or other.python
        stage.skipped += [entry for entry in other.skipped if entry not in stage.skipped]
        stage.notes.append(f"packages of the stage {origin} are taken to come along with {', '.join(sources)}")

    def is_directory(self, entry: str) -> bool:
        return any(self.files.is_directory(os.path.join(context, entry)) for context in self.contexts())

    def contexts(self) -> list[str]:
        """List the directories that may be the build context: the Dockerfile's own, and those above it."""
        if self.path == STANDARD_INPUT:
            return []
        found = [self.directory or os.curdir]
        for _ in range(_PARENTS):
            if self.files.exists(os.path.join(found[-1], ".git")):
                break
            found.append(os.path.join(found[-1], os.pardir))
        return found

    def run(self, instruction: Instruction) -> None:
        """Read the commands of ``RUN``: shell form, the list form, and a shell here-document."""
        stage = self.stages[-1]
        if self.effort + self.opened / SCRIPT_BYTES > 1:
            if not stage.is_cut_off:
                where = Source(self.path, "RUN", instruction.line)
                stage.skip(where, "more is run than is read of one Dockerfile; the rest is not read")
            stage.is_cut_off = True
            return
        text = instruction.text
        options = text.content[: split_options(text.content)]
        for mount in re.findall(r"--mount=(\S+)", options):
            fields = dict(part.partition("=")[::2] for part in mount.split(","))
            target = fields.get("target") or fields.get("dst") or fields.get("destination")
            source = fields.get("source") or fields.get("src") or ""
            if target and fields.get("type", "bind") == "bind" and "from" not in fields:
                stage.copies.append((source or ".", os.path.normpath(os.path.join(stage.directory, target))))
        words, documents = reads_documents(instruction)
        for part in (*([text] if words else []), *(instruction.documents if documents else ())):
            content = part.content
            if part is text:
                content = " " * len(options) + content[len(options) :]
                if content.lstrip().startswith("["):
                    content = _shell_of_list(content)
            if not (stage.is_posix or text.content[len(options) :].lstrip().startswith("[")):
                source = Source(self.path, "RUN", instruction.line)
                stage.skip(source, "is run by a shell that is not read")
                return
            for command in self.commands(content, part):
                self.take(command)

    def take(self, command: Command) -> None:
        """Take one command of a build."""
        stage = self.stages[-1]
        install = read_install(command)
        if install is not None and install.kind == "uninstall":
            stage.uninstall(install)
        elif install is not None:
            self.install(install)
        elif (other := _other_installer(command.words)) is not None:
            text_of = f"{other} installs what a lock or manifest beside the Dockerfile says: check that too"
            stage.refer(Source(self.path, "RUN", command.source.line), text_of)
        elif (recipe := self.find_installing_recipe(command.words)) is not None:
            where = Source(self.path, "RUN", command.source.line)
            stage.skip(where, f"runs a recipe of {recipe} that installs packages, which is not read")

    def commands(self, content: str, text: Text) -> tuple[Command, ...]:
        """Read the commands of a shell text, whose variables are those of the stage that it names."""
        stage = self.stages[-1]
        known = {
            name: held for name in set(re.findall(r"[A-Za-z_]\w*", content)) if (held := stage.value(name)) is not None
        }
        try:
            script = read_script(
                self.path,
                content,
                variables=known,
                assuming=False,
                stand_in=_pass_over,
                place=text.line,
                open_file=self.open_script,
            )
        except InputError as error:
            stage.skip(Source(self.path, "RUN", text.line(0)), error.message)
            return ()
        self.effort += script.effort
        stage.skipped += [entry._replace(hint=CHECK_IMAGE) for entry in script.skipped]
        for name, word in script.files.items():
            stage.written[os.path.normpath(os.path.join(stage.directory, name))] = word.text
        return script.commands

    def open_script(self, name: str) -> tuple[str, str] | None:
        """Return the path and the text of a script of the build context."""
        found = self.find(name)
        try:
            text = "" if found is None else read_text(found, self.files)
        except InputError:
            return None
        self.opened += len(text)
        return None if found is None else (found, text)

    def install(self, install: Install) -> None:
        """Read what a command installs, and apply it to the stage."""
        wanted: list[Requirement] = []
        for word in install.requirements:
            wanted += self.requirement(word, install)
        for word in install.files:
            wanted += self.file(word)
        names = {one.name for one in wanted}
        first = next(iter((*install.requirements, *install.files)), None)
        variables = ("UV_CONSTRAINT", "UV_OVERRIDE") if install.is_uv else ("PIP_CONSTRAINT",)
        given = [
            install.settings.get(name) or self.stages[-1].value(name) or "" for name in variables if first is not None
        ]
        stated = [Word(name, first.source, name) for name in " ".join(given).split() if first is not None]
        for word in (*stated, *install.constraints):
            wanted += [one for one in self.file(word) if one.name in names]
        self.stages[-1].install(wanted, install)

    def requirement(self, word: Word, install: Install) -> list[Requirement]:
        stage = self.stages[-1]
        source = word.source._replace(key="RUN")
        if word.text is None:
            stage.skip(
                source, f"{echo(leave_out_words(word.written))} holds something that is known only where it runs"
            )
            return []
        location = word.text.partition("[")[0]
        by_name = re.match(r"[\w.-]+\s*(?:\[[^\]]*\])?\s*@\s", word.text)
        is_url = "://" in word.text and "@" not in word.text.partition("://")[0]
        if by_name is None and (is_url or word.text.endswith(".whl")):
            name, version, details = read_url(word.text)
            if name is not None:
                return [Requirement(canonical_name(name), "", source, version, None, details)]
            hint = "write it as 'name @ URL'" if is_url else CHECK_IMAGE
            stage.skip(source, f"{echo(word.text)} does not name its package", hint)
            return []
        if by_name is None and (_LOCAL_ARCHIVE.fullmatch(word.text) or os.sep in location):
            if location.rstrip("/") in {".", "./", ""} or not location.endswith((".whl", ".gz", ".zip")):
                stage.refer(source, f"{word.text} is installed from the build context: check its pyproject.toml too")
            return []
        if install.kind == "conda":
            cuda = re.fullmatch(r"(?:pytorch-cuda|cudatoolkit|cuda-version)==([\d]+\.[\d]+)(?:\..*)?", word.text)
            if cuda is not None:
                stage.facts["runtime.torch_build"] = ("cuda", source)
                stage.facts["runtime.torch_cuda"] = (cuda[1], source)
                return []
            if re.fullmatch(r"python==([\d.]+?)(?:\.\*)?", word.text):
                stage.python = word.text.partition("==")[2].removesuffix(".*")
                return []
        try:
            return [parse_requirement(word.text, source)]
        except InvalidRequirementError as error:
            stage.skip(source, str(error), "write it as 'name' or 'name==1.2.3'")
            return []

    def file(self, word: Word) -> list[Requirement]:
        """Read a requirement file that lies in the build context."""
        stage = self.stages[-1]
        source = word.source._replace(key="RUN")
        if word.text is None:
            stage.skip(source, f"which file {echo(leave_out_words(word.written))} is, only the build knows")
            return []
        written = stage.written.get(os.path.normpath(os.path.join(stage.directory, word.text)), "")
        if written is None:
            reason = f"installs {echo(word.text)}, which the build writes or changes on the way"
            stage.skip(source, reason, CHECK_IMAGE)
            return []
        found = self.find(word.text)
        if found is None and not written:
            reason = f"installs {echo(word.text)}, which does not lie beside the Dockerfile"
            stage.skip(source, reason, "check the requirement file by its own path")
            return []
        from compatcheck.collectors.requirements.lines import read_requirements  # noqa: PLC0415 (only with such a file)

        try:
            path = found or word.text
            files = Overlay(self.files, {path: written.encode()}) if written else self.files
            environment = read_requirements(path, files)
        except InputError as error:
            stage.skip(error.source or source, error.message, error.hint)
            return []
        stage.skipped += environment.skipped
        return [
            Requirement(name, package.specifier or "", package.source, package.version, None, package.details)
            for name, package in environment.packages.items()
        ]

    def find_installing_recipe(self, words: Sequence[Word]) -> str | None:
        """Return the Makefile or justfile of a command ``make TARGET`` where a recipe of it installs Python packages."""
        if not words or os.path.basename(words[0].text or "") not in {"make", "just"}:
            return None
        for name in ("Makefile", "makefile", "GNUmakefile", "justfile"):
            found = self.find(name)
            with suppress(InputError):
                if found is not None and _INSTALLS.search(read_utf8(found, self.files, limit=LIMIT_BYTES)) is not None:
                    return os.path.relpath(found) if not os.path.isabs(self.path) else found
        return None

    def find(self, name: str) -> str | None:
        """Find a file of the image in the build context: by the ``COPY`` that put it there, else beside the Dockerfile."""
        stage = self.stages[-1]
        wanted = os.path.normpath(os.path.join(stage.directory, name))
        candidates = []
        for source, destination in reversed(stage.copies):
            if wanted == destination:
                candidates.append(source)
            elif wanted.startswith(destination.rstrip("/") + "/"):
                candidates.append(os.path.join(source, wanted[len(destination.rstrip("/")) + 1 :]))
        if not candidates and not os.path.isabs(name):
            candidates.append(name)
        for context in self.contexts():
            for candidate in candidates:
                path = os.path.normpath(os.path.join(context, candidate.lstrip("/")))
                if self.files.is_file(path):
                    return path
        return None


def _pass_over(words: Sequence[str], _look_up: object) -> str | None:
    """Stand in for files that a command sources: they set up programs, and none installs anything."""
    return "" if words[0] == "source" else None


def _shell_of_list(content: str) -> str:
    """Write ``["pip", "install", "torch"]`` as a shell would read it, every word quoted, at the same length or longer."""
    import shlex  # noqa: PLC0415 (few commands are written as lists)

    from compatcheck.core.json_file import parse_json  # noqa: PLC0415 (as above)

    try:
        words = parse_json(content, "")
    except InputError:
        return content
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return content
    if len(words) == 3 and words[0].rpartition("/")[2] in {"sh", "bash"} and words[1].startswith("-"):
        return str(words[2])
    return " ".join(map(shlex.quote, words))


_INSTALLS = re.compile(
    r"^\s[^#\n]*\b(?:pip3? +install|uv +(?:pip|sync|add)|poetry +install|conda +install|pip-sync)\b", re.MULTILINE
)
_LISTED = r"[\[\]\",']+"
"""What stands between words in the list form."""
_OTHER = {
    ("uv", "sync"),
    ("poetry", "install"),
    ("pdm", "install"),
    ("pdm", "sync"),
    ("pipenv", "install"),
    ("pipenv", "sync"),
    ("pixi", "install"),
    ("conda", "env"),
    ("mamba", "env"),
}


def _other_installer(words: tuple[Word, ...]) -> str | None:
    """Return a command that installs from a lock or manifest: ``uv sync``."""
    plain = [word.written for word in words]
    for first, second in pairwise(plain):
        if (first.rpartition("/")[2], second) in _OTHER:
            return f"{first} {second}"
    return None
