"""The record of a program or library that reads a configuration, as ``rules/_programs/<name>.yaml`` compiles to it."""

from collections.abc import Mapping

from compatcheck.core.named_tuple import NamedTuple

SECTION = "programs"
"""Section of the compiled database."""
KINDS = ("program", "engine", "library", "base", "facts", "model", "script")
"""What a record is of: a program that trains; an inference engine started by itself; a library whose file several of them read
and which can run a loop itself; what they call and no file is of; a facts file; a model's own files; what a launch script says.
A reader without a record is ``unknown``."""


class Resemblance(NamedTuple):
    """Whose files a program's own can be taken for."""

    reader: str
    """Name of the other program."""
    package: str
    """Distribution that brings the program: without it the file is the other's."""
    keys: tuple[str, ...]
    """Keys that the shortest files of both hold."""


class Part(NamedTuple):
    """Defaults that hold for some of a program's files only."""

    name: str
    label: str
    keys: tuple[str, ...] = ()
    """Any of these in a configuration of the run makes it take part."""
    model_left_alone: bool = False
    """It takes part where no program of the run says by itself how the model is loaded; all documents are about it."""


class Program(NamedTuple):
    """One program or library."""

    name: str
    """As ``training.framework`` and readers name it."""
    label: str = ""
    """As people call it."""
    kind: str = "program"
    """One of `KINDS`; it decides the rank of what the configuration states."""
    packages: tuple[str, ...] = ()
    """Distributions that a run of it imports in any case, an engine's own first."""
    module: str | None = None
    """Python package of the first of them, where that is not called so."""
    pinned_in: str | None = None
    """File beside a recipe that names the release it needs of the first of them: lines ``MODE=pinned_tag`` and ``TAG=v1.2``."""
    tools: tuple[str, ...] = ()
    """Commands it installs that train, each with a sub-command: ``axolotl train``."""
    engines: tuple[str, ...] = ()
    """Distributions of engines, each of which is imported where ``rollout.engine`` names it."""
    inherits: str | None = None
    """Program it is built on: keys it leaves alone keep that one's default, and traits it states none of that one's."""
    renames: Mapping[str, str] = {}
    """Its keys that become a key of that program under another name: stating one leaves no room for its default."""
    own_keys_only: bool = False
    """It passes on only keys it has itself."""
    refuses_unknown_keys: bool = False
    """It does not start with a key that its release does not know: what reads one is another release, or a fork."""
    takes_overrides: bool = False
    """Its command line is Hydra's, which takes ``key=value`` for a key that its file has and ``++key=value`` for any."""
    takes_pairs: bool = False
    """Its command line takes ``key=value`` without dashes, and none of Hydra's signs."""
    takes_dotted_keys: bool = False
    """In its files, too, ``a.b: 1`` says what ``a: {b: 1}`` says; other parsers take it for one name."""
    ignores_unknown_keys: tuple[str, ...] = ()
    """Its keys and sections that it passes over where its release does not know them or what they hold; ``*`` for all."""
    runs_as: str | None = None
    """Program whose loop it runs, where ``training.framework`` names that one."""
    order: int = 0
    """Place among libraries, whose defaults come last, the smallest first."""
    reconciles_deepspeed: bool = False
    """It fills in ``auto`` of a DeepSpeed file, and refuses to start where the file and its own arguments differ."""
    deepspeed_keys: tuple[str, ...] = ()
    """Keys and sections of its file that it makes DeepSpeed's configuration of, which a trainer compares as it does a file."""
    drops_auto: bool = False
    """As the program that trains, it drops ``auto`` where a section has it and keeps its own default."""
    writes_deepspeed_file: bool = False
    """It makes DeepSpeed's configuration out of arguments of its own."""
    leaves_model_alone: bool = False
    """It loads a model as transformers does by default, unless its configuration says how."""
    of_scripts: bool = False
    """It is a library that a script of one's own calls: beside its arguments, that script decides how the model is made."""
    read: Mapping[str, str] = {}
    """Releases whose code was read, by distribution: what it does in others is taken to be the same, and may not be."""
    resembles: Resemblance | None = None
    parts: tuple[Part, ...] = ()

    @property
    def reads_keys(self) -> bool:
        """Whether keys of its files, left out, have defaults."""
        return self.kind in {"program", "library"}


def read_programs(section: Mapping[str, Mapping[str, object]]) -> Mapping[str, Program]:
    """Return the records of a compiled section."""
    return {name: _read(name, record) for name, record in section.items()}


def _read(name: str, record: Mapping[str, object]) -> Program:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
    resembles, parts = record.get("resembles"), record.get("parts", ())
    if isinstance(resembles, dict):
        values["resembles"] = Resemblance(**{**resembles, "keys": tuple(resembles["keys"])})
    values["parts"] = tuple(Part(**{**part, "keys": tuple(part.get("keys", ()))}) for part in parts)  # type: ignore[attr-defined]  # as compiled
    return Program(name, **values)  # type: ignore[arg-type]  # checked when it was compiled
