"""Parsers that do not take a path, as functions of bytes for `fuzz.py`; what each may raise ends as a `CompatcheckError`."""

from __future__ import annotations

from compatcheck.core.errors import InputError


def read_dpkg(data: bytes) -> None:
    """Read the records of dpkg."""
    from compatcheck.collectors.image.system_packages import read_dpkg as read  # noqa: PLC0415 (one target)

    read(data.decode("utf-8", "replace"), "/var/lib/dpkg/status")


def read_rpm(data: bytes) -> None:
    """Read a database of rpm."""
    from compatcheck.collectors.image.rpm import RpmError, read_rpm_packages  # noqa: PLC0415 (one target)

    try:
        read_rpm_packages(data)
    except RpmError as error:
        raise InputError(str(error), hint="rebuild the database") from None


def read_oom(data: bytes) -> None:
    """Read the messages of a log, with what it mentions."""
    from compatcheck.oom.mentions import read_mentions  # noqa: PLC0415 (one target)
    from compatcheck.oom.message import read_messages  # noqa: PLC0415 (one target)

    log = data.decode("utf-8", "replace")
    read_messages(log)
    read_mentions(log, {"llama-3-8b": ("meta-llama/Meta-Llama-3-8B",)})


def read_account(data: bytes) -> None:
    """Read what a log accounts for."""
    from compatcheck.oom.account import read_account as read  # noqa: PLC0415 (one target)

    read(data.decode("utf-8", "replace"))


def read_launches(path: str) -> None:
    """Look through a notebook, a program of Python or a file of another language, and read what it holds itself."""
    from compatcheck.core.files import LOCAL  # noqa: PLC0415 (one target)
    from compatcheck.frameworks.recognise import find_unread_launch, read_configurations  # noqa: PLC0415 (one target)

    find_unread_launch(path, LOCAL)
    read_configurations(path, named=True)


def read_notebook(path: str) -> None:
    """Look through a notebook as a program is, and read what its cells install."""
    from compatcheck.checking.notebook_environment import read_installed  # noqa: PLC0415 (one target)
    from compatcheck.core.files import LOCAL  # noqa: PLC0415 (one target)

    read_installed(path, LOCAL)
    read_launches(path)


def read_blocks(path: str) -> None:
    """Lay the blocks of a pasted text over a tree."""
    from compatcheck.checking.pasted_blocks import open_blocks  # noqa: PLC0415 (one target)
    from compatcheck.core.files import LOCAL  # noqa: PLC0415 (one target)

    open_blocks(path, LOCAL)


def read_overrides(data: bytes) -> None:
    """Read words of a command as Hydra does, and what their values refer to."""
    from compatcheck.core.command import Word  # noqa: PLC0415 (one target)
    from compatcheck.core.source import Source  # noqa: PLC0415 (one target)
    from compatcheck.frameworks.launch.hydra import gaps_of_groups, parse_overrides  # noqa: PLC0415 (one target)
    from compatcheck.frameworks.launch.interpolation import follow_all  # noqa: PLC0415 (one target)

    place = Source("run.sh", line=1)
    overrides = parse_overrides(Word(word, place, word) for word in data.decode("utf-8", "replace").splitlines())
    follow_all(overrides.values)
    gaps_of_groups(overrides, place)


def edit_script(data: bytes) -> None:
    """Change arguments of the calls in a script of Python."""
    from compatcheck.fixing.edits.python_text import edit_argument  # noqa: PLC0415 (one target)
    from compatcheck.fixing.edits.text import apply_edits  # noqa: PLC0415 (one target)

    text = data.decode("utf-8", "replace")
    for key, value, line in (
        ("bf16", False, None),
        ("torch_dtype", "bfloat16", None),
        ("gradient_checkpointing_kwargs.use_reentrant", False, None),
        ("max_length", 512, 2),
    ):
        for edit in edit_argument("train.py", text, key, value, line):
            apply_edits({"train.py": text}, [edit])


def read_recipes(path: str) -> None:
    """Read the commands in a file of make, a container or an editor."""
    from compatcheck.frameworks.recognise import read_embedded  # noqa: PLC0415 (one target)

    read_embedded(path, named=True)


def read_started(path: str) -> None:
    """Read what a Dockerfile builds and starts."""
    from compatcheck.collectors.dockerfile.started import find_started  # noqa: PLC0415 (one target)
    from compatcheck.core.files import LOCAL  # noqa: PLC0415 (one target)
    from compatcheck.core.selection import DEFAULT  # noqa: PLC0415 (one target)
    from compatcheck.frameworks.embedded import Piece  # noqa: PLC0415 (one target)
    from compatcheck.frameworks.recognise import read_pieces  # noqa: PLC0415 (one target)

    read_pieces(path, (Piece(*one) for one in find_started(path, LOCAL, DEFAULT)), named=True)


def read_configuration(path: str) -> None:
    """Read a configuration of any framework, a launch script or a training script, as one that a person named."""
    from compatcheck.frameworks.recognise import read_configurations  # noqa: PLC0415 (one target)

    read_configurations(path, named=True)


def read_shell(data: bytes) -> None:
    """Read a script of bash by itself."""
    from compatcheck.shell.script import read_script  # noqa: PLC0415 (one target)

    read_script("train.sh", data.decode("utf-8", "replace"))


def parse_json(data: bytes) -> None:
    """Parse JSON."""
    from compatcheck.core.json_file import parse_json as parse  # noqa: PLC0415 (one target)

    parse(data.decode("utf-8", "replace"), "a.json")


def parse_toml(data: bytes) -> None:
    """Parse TOML, and find the lines of its keys."""
    from compatcheck.core import toml  # noqa: PLC0415 (one target)

    text = data.decode("utf-8", "replace")
    toml.parse_toml(text, "a.toml")
    toml.locate_lines(text)
    toml.locate_key(text, "project", "dependencies", "torch")


def parse_yaml(data: bytes) -> None:
    """Parse YAML as locks and as configurations are, and find the places of its keys."""
    from compatcheck.core import yaml  # noqa: PLC0415 (one target)

    text = data.decode("utf-8", "replace")
    yaml.parse_yaml(text, "a.yaml")
    yaml.locate_keys(text, "a.yaml")
    yaml.parse_yaml(text, "a.yaml", yaml.YAML_1_1)


def parse_hjson(data: bytes) -> None:
    """Parse Hjson, and find the places of its keys."""
    from compatcheck.core import hjson  # noqa: PLC0415 (one target)

    text = data.decode("utf-8", "replace")
    hjson.parse_hjson(text, "a.hjson")
    hjson.locate_keys(text, "a.hjson")


def read_requirement(data: bytes) -> None:
    """Read one requirement, its ranges and its marker."""
    from compatcheck.core import markers, requirement  # noqa: PLC0415 (one target)
    from compatcheck.core.source import Source  # noqa: PLC0415 (one target)

    try:
        item = requirement.parse_requirement(data.decode("utf-8", "replace"), Source("requirements.txt", line=1))
        requirement.is_satisfiable(item.specifier)
        markers.evaluate(item.marker or "os_name == 'posix'", markers.describe_machine(), "3.11.4")
    except (requirement.InvalidRequirementError, markers.InvalidMarkerError) as error:
        raise InputError(str(error), hint="mend the line") from None


def read_metadata(path: str) -> None:
    """Read the name and version of an installed package, and its file of versions."""
    from compatcheck.collectors.python import distributions, version_files  # noqa: PLC0415 (one target)

    distributions.read_name_and_version(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        version_files.read_assignments(file.read())


def read_rule(path: str) -> None:
    """Read a rule."""
    from pathlib import Path  # noqa: PLC0415 (one target)

    from compatcheck.rules.load import load_rule  # noqa: PLC0415 (one target)

    load_rule(Path(path), Path(path).parent)


def parse_expression(data: bytes) -> None:
    """Parse an expression of a rule."""
    from compatcheck.rules.syntax import parse  # noqa: PLC0415 (one target)

    parse(data.decode("utf-8", "replace"))
