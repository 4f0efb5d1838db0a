"""Read the defaults of training frameworks out of their released source: dataclasses, pydantic models, options, YAML.

Nothing is imported: the files of the wheel or source archive are parsed. Written for ``fixtures/measurements/defaults``:

    PYTHONPATH=. python tests/rules/dump_frameworks.py llamafactory 0.9.5
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from compatcheck.services.releases import list_files, open_wheel, release_of
from tests import ROOT

READERS = {
    "llamafactory": "llamafactory",
    "axolotl": "axolotl",
    "openrlhf": "openrlhf",
    "ms-swift": "ms_swift",
    "verl": "verl",
}
"""Package → file of its rows in ``rules/_programs``."""
FILES = {
    "llamafactory": r"llamafactory/hparams/\w+\.py",
    "axolotl": r"axolotl/utils/(schemas|config/models/input/v0_4_1)/\w+\.py",
    "openrlhf": r"openrlhf/cli/train_\w+\.py",
    "ms-swift": r"swift/(llm/argument|arguments|trainers|rlhf_trainers)/(base_args/)?\w+\.py",
    "verl": r"verl/trainer/config/(_generated_)?ppo_trainer\.yaml",
}
"""Which files hold the defaults, below the package's top directory."""
TOPS = {
    "llamafactory": (
        "ModelArguments",
        "DataArguments",
        "FinetuningArguments",
        "GeneratingArguments",
        "TrainingArguments",
    ),
    "axolotl": ("AxolotlInputConfig",),
    "ms-swift": ("RLHFArguments",),
}
"""Classes whose fields, own and inherited, are the keys of a configuration."""
NESTED = {"axolotl": {"trl": ("TRLConfig", "TrlConfig"), "vllm": ("VllmConfig",)}}
"""Sections of a configuration and the class that reads them."""
SCRIPTS = {"sft": "sft", "dpo": "dpo", "rm": "reward", "kto": "kto", "prm": "prm", "ppo_ray": "ppo"}
"""Programs of OpenRLHF and the trainer they are."""
ALIASES = {"ms-swift": {"tuner_type": "train_type", "use_liger_kernel": "use_liger"}}
"""Key of a row and its name in releases before it was renamed."""
CODE = "code: "
"""Starts a default that is not a literal; the expression follows."""
REQUIRED = "<required>"


class Default(NamedTuple):
    """The default of one field as its class states it."""

    name: str
    value: Any


def read_source(package: str, version: str) -> dict[str, str]:
    """Return the files of a release that hold defaults, by path below the package's top directory."""
    wanted = re.compile(rf"(?:.*/)?({FILES[package]})")
    files = [
        file
        for file in list_files(package)
        if file.filename.endswith((".whl", ".tar.gz")) and str(release_of(file.filename, package)) == version
    ]
    file = min(files, key=lambda file: not file.filename.endswith(".whl"))
    if file.filename.endswith(".whl"):
        with open_wheel(file.url) as wheel:
            return {
                match[1]: wheel.read(name).decode() for name in wheel.namelist() if (match := wanted.fullmatch(name))
            }
    with urllib.request.urlopen(file.url, timeout=120) as answer:  # noqa: S310 (an address of the index)
        data = io.BytesIO(answer.read())
    with tarfile.open(fileobj=data) as archive:
        return {
            match[1]: stream.read().decode()
            for member in archive.getmembers()
            if (match := wanted.fullmatch(member.name)) and (stream := archive.extractfile(member)) is not None
        }


def read_defaults(package: str, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the defaults of the keys that rows are about: ``fields``, or one entry per program."""
    keys = row_keys(package)
    if package == "openrlhf":
        found = {
            trainer: dict(_options(files.get(f"openrlhf/cli/train_{name}.py", ""))) for name, trainer in SCRIPTS.items()
        }
        entries = {trainer: values for trainer, values in found.items() if values}
    elif package == "verl":
        name = "_generated_ppo_trainer.yaml" if any("_generated" in path for path in files) else "ppo_trainer.yaml"
        entries = {"fields": dict(_flatten(yaml.safe_load(files[f"verl/trainer/config/{name}"])))}
    else:
        classes = _classes(package, files)
        values: dict[str, Any] = {}
        for top in TOPS[package]:
            values = {**_fields(top, classes), **values}
        for section, names in NESTED.get(package, {}).items():
            for name in names:
                values.update({f"{section}.{key}": value for key, value in _fields(name, classes).items()})
        entries = {"fields": values}
    return {
        entry: {key: value for key, value in sorted(values.items()) if key in keys} for entry, values in entries.items()
    }


def row_keys(package: str) -> set[str]:
    """Return the keys that rows of a framework name."""
    path = ROOT / f"rules/_programs/{READERS[package]}.yaml"
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))["rows"]
    return {row["key"] for row in rows if row["key"] is not None} | set(ALIASES.get(package, {}).values())


class Class(NamedTuple):
    """One class definition and the names its file knows."""

    node: ast.ClassDef
    foreign: frozenset[str]
    """Names its file imports from other packages."""
    renamed: Mapping[str, str]
    """Names its file imports under another one."""


def _classes(package: str, files: Mapping[str, str]) -> dict[str, Class]:
    """Collect class definitions by name, the first file of the package's own order winning."""
    top = FILES[package].partition("/")[0]
    found: dict[str, Class] = {}
    for _, text in sorted(files.items()):
        tree = ast.parse(text)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        foreign, renamed = set(), {}
        for node in imports:
            own = node.level > 0 or str(node.module).partition(".")[0] == top
            for alias in node.names:
                if not own:
                    foreign.add(alias.asname or alias.name)
                elif alias.asname:
                    renamed[alias.asname] = alias.name
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, Class(node, frozenset(foreign), renamed))
    return found


def _fields(name: str, classes: Mapping[str, Class]) -> dict[str, Any]:
    """Return a class's fields, inherited ones included, in Python's own order of resolution."""
    values: dict[str, Any] = {}
    if name not in classes:
        return values
    for kind in reversed(_shape(name, classes, {}).__mro__[:-1]):
        for statement in classes[kind.__name__].node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                values[statement.target.id] = _default(statement)
    return values


def _shape(name: str, classes: Mapping[str, Class], known: dict[str, type]) -> type:
    """Make an empty class with the bases of this name, so that Python itself orders them."""
    if name not in known:
        found = classes[name]
        bases = []
        for base in found.node.bases:
            called = getattr(base, "id", "")
            called = found.renamed.get(called, called)
            if called in classes and called not in found.foreign:
                bases.append(_shape(called, classes, known))
        known[name] = type(name, tuple(bases), {})
    return known[name]


def _default(statement: ast.AnnAssign) -> Any:
    """Read ``= literal``, ``= field(default=…)``, ``= Field(…)`` or ``Annotated[…, Field(…)]``."""
    value = statement.value
    if value is None:
        return REQUIRED
    if isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) in {"field", "Field"}:
        keywords = {keyword.arg: keyword.value for keyword in value.keywords}
        if "default" in keywords:
            return _literal(keywords["default"])
        if "default_factory" in keywords:
            factory = keywords["default_factory"]
            return _literal(factory.body if isinstance(factory, ast.Lambda) else factory)
        return _literal(value.args[0]) if value.args else REQUIRED
    return _literal(value)


def _literal(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return CODE + ast.unparse(node)
    return list(value) if isinstance(value, tuple | set) else value


def _options(text: str) -> Iterator[tuple[str, Any]]:
    """Yield what ``add_argument`` calls give an option that is left out."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument" or not node.args:
            continue
        option = _literal(node.args[0])
        keywords = {keyword.arg: _literal(keyword.value) for keyword in node.keywords}
        action = keywords.get("action")
        missing = {"store_true": False, "store_false": True}.get(str(action))
        yield str(option).lstrip("-"), keywords.get("default", missing)


def _flatten(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _flatten(value, f"{prefix}{key}.")
    else:
        yield prefix[:-1], node


def dump(package: str, version: str) -> dict[str, Any]:
    """Return what one release says, as it is stored."""
    return {"package": package, "version": version, "defaults": read_defaults(package, read_source(package, version))}


if __name__ == "__main__":
    for wanted in sys.argv[2:]:
        target = ROOT / f"fixtures/measurements/defaults/frameworks/{sys.argv[1]}-{wanted}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(dump(sys.argv[1], wanted), indent=1, sort_keys=True) + "\n", encoding="utf-8")
