"""Fuzz one parser with coverage-guided inputs (atheris): bytes in, and nothing but a `CompatcheckError` may come out.

    python -m benchmarks.fuzz.fuzz --list
    python -m benchmarks.fuzz.fuzz poetry_lock 600
    python -m benchmarks.fuzz.fuzz poetry_lock 600 --corpus DIR      # keeps what it finds in DIR/poetry_lock
    python -m benchmarks.fuzz.fuzz all 600                           # every target for that long, one after the other

It runs in an environment of its own that has atheris, compatcheck's dependencies and nothing else, with the checkout on
``PYTHONPATH``. A crash, a run of more than ``SECONDS_PER_INPUT`` or more than ``MEMORY_MIB`` ends it with exit code 1 and
leaves the input in the corpus directory (``crash-…``, ``timeout-…``, ``oom-…``). The inputs under ``fixtures/fuzz/TARGET`` are
seeds too: put a mended crash there.

A parser is one row of `TARGETS`.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
SECONDS_PER_INPUT = 10
MEMORY_MIB = 512
MAX_INPUT_BYTES = 64 * 1024
_LONGEST_WORD = 60
_MOST_WORDS = 4000


class Target(NamedTuple):
    """One parser."""

    function: str
    """``module:function`` below compatcheck, or of `adapters`; it gets a path, or with ``takes_bytes`` the input itself."""
    seeds: tuple[str, ...] = ()
    """Globs of valid inputs, relative to the checkout; their words are the fuzzer's dictionary."""
    name: str = "input"
    """What the file is called, where the name matters to the parser."""
    takes_bytes: bool = False
    form: str | None = None
    """``toml`` or ``json``: then three inputs in four are changed as data, which still parses (`structure`)."""


def _collector(module: str, function: str, name: str, *seeds: str) -> Target:
    form = None
    if name.endswith((".json", "Pipfile.lock")):
        form = "json"
    elif name.endswith((".toml", ".lock", "Pipfile")):
        form = "toml"
    return Target(f"collectors.{module}:{function}", seeds, name, form=form)


TARGETS: Mapping[str, Target] = {
    "account": Target("adapters:read_account", takes_bytes=True),
    "baseline": Target("checking.baseline:read_baseline", name="report.json", form="json"),
    "conda_environment": _collector("conda.environment_yml", "read_conda_environment", "environment.yml"),
    "conda_list": _collector("conda.listing", "read_conda_list", "list.txt"),
    "conda_lock": _collector("conda.lock", "read_conda_lock", "conda-lock.yml"),
    "configuration": Target(
        "adapters:read_configuration",
        ("fixtures/configs/*/*.*", "fixtures/configs/*.*", "fixtures/programs/*.yaml"),
        "config.yaml",
    ),
    "cyclonedx_json": _collector("sbom.cyclonedx", "read_cyclonedx_json", "bom.json"),
    "dockerfile": _collector("dockerfile.read", "read_dockerfile", "Dockerfile"),
    "dockerfile_runs": Target("adapters:read_started", name="Dockerfile"),
    "dpkg": Target("adapters:read_dpkg", takes_bytes=True),
    "environment_variables": Target("collectors.machine.variables:read_env_file", name="run.env"),
    "expression": Target("adapters:parse_expression", takes_bytes=True),
    "hydra": Target("adapters:read_overrides", takes_bytes=True),
    "hjson": Target("adapters:parse_hjson", ("fixtures/configs/deepspeed/*",), takes_bytes=True),
    "json": Target("adapters:parse_json", ("fixtures/configs/*/*.json",), takes_bytes=True),
    "jobs": Target("adapters:read_recipes", name="job.json"),
    "launch_script": Target("adapters:read_configuration", ("fixtures/**/*.sh",), "train.sh"),
    "measurements": Target(
        "lab.measurement_files:read_measurements", ("fixtures/measurements/*/*.json",), "m.json", form="json"
    ),
    "measurement_lines": Target(
        "lab.measurement_files:read_measurements", ("fixtures/measurements/*/*.jsonl",), "m.jsonl"
    ),
    "metadata": Target("adapters:read_metadata", name="METADATA"),
    "makefile": Target("adapters:read_recipes", name="Makefile"),
    "messages": Target("adapters:read_oom", takes_bytes=True),
    "node_dump": Target("collectors.machine.dump:read_nodes", name="nodes.txt"),
    "notebook": Target("adapters:read_notebook", name="a.ipynb"),
    "pasted_blocks": Target("adapters:read_blocks", ("fixtures/fuzz/reports/*",), "thread.md"),
    "pdm_lock": _collector("locks.pdm_lock", "read_pdm_lock", "pdm.lock", "fixtures/environments/*/pdm.lock"),
    "pip_inspect": _collector(
        "requirements.pip_list", "read_pip_inspect", "inspect.json", "fixtures/environments/*/pip-inspect.json"
    ),
    "pip_list": _collector(
        "requirements.pip_list", "read_pip_list", "pip-list.txt", "fixtures/environments/*/pip-list.*"
    ),
    "pipfile": _collector("locks.pipfile", "read_pipfile", "Pipfile", "fixtures/environments/*/Pipfile"),
    "pipfile_lock": _collector(
        "locks.pipfile_lock", "read_pipfile_lock", "Pipfile.lock", "fixtures/environments/*/Pipfile.lock"
    ),
    "pixi": _collector("conda.pixi", "read_pixi", "pixi.toml"),
    "pixi_lock": _collector("conda.pixi_lock", "read_pixi_lock", "pixi-lock.yaml"),
    "poetry_lock": _collector(
        "locks.poetry_lock", "read_poetry_lock", "poetry.lock", "fixtures/environments/*/poetry.lock"
    ),
    "policy": Target("checking.policy:read_policy", (), "compatcheck.toml", form="toml"),
    "pylock": _collector("locks.pylock", "read_pylock", "pylock.toml", "fixtures/environments/*/pylock.toml"),
    "pyproject": _collector(
        "requirements.pyproject", "read_pyproject", "pyproject.toml", "fixtures/environments/*/pyproject.toml"
    ),
    "python_edit": Target("adapters:edit_script", ("fixtures/scripts/*/train.py",), takes_bytes=True),
    "python_launches": Target("adapters:read_launches", name="job.py"),
    "recognise": Target("collectors.recognise:recognise_content", ("fixtures/environments/*/*",), takes_bytes=True),
    "reports": _collector("reports.find", "read_reports", "issue.txt"),
    "requirement": Target("adapters:read_requirement", takes_bytes=True),
    "requirements": _collector(
        "requirements.lines",
        "read_requirements",
        "requirements.txt",
        "fixtures/environments/*/*.txt",
        "fixtures/cases/*/*.txt",
    ),
    "rpm": Target("adapters:read_rpm", ("fixtures/images/rpm/*.gz",), takes_bytes=True),
    "rule": Target("adapters:read_rule", ("rules/*/*.yaml",), "rule.yaml"),
    "script": _collector("requirements.inline_script", "read_script", "train.py", "fixtures/environments/*/*.py"),
    "setup_py": _collector("requirements.setup_py", "read_setup_py", "setup.py"),
    "shell": Target("adapters:read_shell", ("fixtures/**/*.sh",), takes_bytes=True),
    "spdx": _collector("sbom.spdx", "read_spdx", "sbom.spdx"),
    "syft_json": _collector("sbom.syft", "read_syft_json", "syft.json"),
    "toml": Target("adapters:parse_toml", ("fixtures/**/*.toml", "fixtures/**/uv.lock"), takes_bytes=True),
    "training_script": Target(
        "adapters:read_configuration", ("fixtures/scripts/**/*.py", "fixtures/programs/*.py"), "train.py"
    ),
    "uv_lock": _collector("locks.uv_lock", "read_uv_lock", "uv.lock", "fixtures/environments/*/uv.lock"),
    "yaml": Target("adapters:parse_yaml", ("fixtures/configs/**/*.y*ml", "fixtures/fuzz/**/*.yml"), takes_bytes=True),
}


def find_seeds(name: str) -> list[Path]:
    """List the valid inputs of a target."""
    patterns = (*TARGETS[name].seeds, f"fixtures/fuzz/{name}/*")
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()})


def read_seed(path: Path) -> bytes:
    """Return a valid input; one that is large is kept compressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def write_dictionary(seeds: list[Path], path: Path) -> None:
    """Write the words of the seeds as a dictionary of libFuzzer."""
    words: dict[bytes, None] = {}
    for seed in seeds:
        for word in re.findall(
            rb"\[\[?[\w.-]+\]\]?|[\w-]+ = |\"[\w.-]+\":|[A-Za-z_][\w.-]*|[<>=!~|&]=?|\S", read_seed(seed)
        ):
            if len(word) <= _LONGEST_WORD:
                words[word] = None
    lines = []
    for word in list(words)[:_MOST_WORDS]:
        quoted = "".join(
            chr(byte) if byte > 0x20 and byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word
        )
        lines.append(f'"{quoted}"\n')
    path.write_text("".join(lines))


def load(name: str, place: Path, kept: Path) -> Callable[[bytes], None]:
    """Import a parser, instrumented, and make a function of bytes of it, which keeps what it crashes on."""
    import importlib  # noqa: PLC0415

    import atheris  # noqa: PLC0415 (only where it is installed)

    target = TARGETS[name]
    module, _, function = target.function.partition(":")
    file = place / target.name

    def give(data: bytes) -> bytes | str:
        if target.takes_bytes:
            return data
        file.write_bytes(data)
        return str(file)

    with atheris.instrument_imports(
        include=["benchmarks.fuzz.adapters", "compatcheck", "packaging", "tomllib", "json"],
        enable_loader_override=False,
    ):
        parse = getattr(
            importlib.import_module(f"{'benchmarks.fuzz' if module == 'adapters' else 'compatcheck'}.{module}"),
            function,
        )
        expected: type[Exception] = importlib.import_module("compatcheck.core.errors").CompatcheckError
        for seed in find_seeds(name):  # what is imported late is instrumented too
            with contextlib.suppress(Exception):
                parse(give(read_seed(seed)))

    def run(data: bytes) -> None:
        try:
            parse(give(data))
        except expected:
            return
        except BaseException:
            # libFuzzer writes it too, but not when it is stopped while Python formats the exception.
            kept.joinpath(f"crash-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    return run


def fuzz(name: str, seconds: int, corpus: Path | None) -> None:
    """Fuzz one target in this process; libFuzzer ends it."""
    import atheris  # noqa: PLC0415 (see above)

    from benchmarks.fuzz.structure import mutate_structure  # noqa: PLC0415 (only with atheris)

    seeds = find_seeds(name)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as temporary:  # noqa: S108
        place = Path(temporary)
        found = (corpus or place / "corpus") / name
        found.mkdir(parents=True, exist_ok=True)
        given = place / "seeds"
        given.mkdir()
        for number, seed in enumerate(seeds):
            given.joinpath(f"{number}").write_bytes(read_seed(seed)[:MAX_INPUT_BYTES])
        dictionary = place / "words"
        write_dictionary(seeds, dictionary)
        options = [
            f"-max_total_time={seconds}",
            f"-timeout={SECONDS_PER_INPUT}",
            f"-rss_limit_mb={MEMORY_MIB}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-dict={dictionary}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
        ]
        run = load(name, place, found)
        form = TARGETS[name].form
        arguments = [sys.argv[0], *options, str(found), str(given)]
        if form is None:
            atheris.Setup(arguments, run)
        else:

            def mutate(data: bytes, limit: int, seed: int) -> bytes:
                # Looked up late: atheris.Mutate is another function once Fuzz() has begun.
                return mutate_structure(data, limit, seed, form=form, mutate=atheris.Mutate)

            atheris.Setup(arguments, run, custom_mutator=mutate)
        atheris.Fuzz()


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", choices=[*TARGETS, "all"])
    parser.add_argument("seconds", nargs="?", type=int, default=600)
    parser.add_argument("--corpus", type=Path, help="directory that keeps what is found")
    parser.add_argument("--list", action="store_true", help="list the targets with their seeds")
    options = parser.parse_args()
    if options.list or options.target is None:
        for name in TARGETS:
            print(f"{name}: {TARGETS[name].function}, {len(find_seeds(name))} seeds")
    elif options.target == "all":
        kept = [] if options.corpus is None else ["--corpus", str(options.corpus)]
        codes = {
            name: subprocess.run(
                [sys.executable, "-m", "benchmarks.fuzz.fuzz", name, str(options.seconds), *kept], check=False
            ).returncode
            for name in TARGETS
        }
        for name, code in codes.items():
            print(f"{name}: {'no crash' if code == 0 else f'exit code {code}'}")
        sys.exit(any(codes.values()))
    else:
        fuzz(options.target, options.seconds, options.corpus)


if __name__ == "__main__":
    main()
