"""An interpreter to run probes in: a program, folders in front of its own packages, and variables."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from compatcheck.core.programs import trusted_path
from compatcheck.lab.cache import cache_directory, make_folder, unwritable
from compatcheck.lab.environments.installed import hash_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NVIDIA_VISIBLE_DEVICES",
    "PATH",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "SYSTEMROOT",
    "TMPDIR",
    "USER",
)
"""What a probe inherits: enough to find a GPU; nothing that would change what is measured unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Where a probe runs."""

    python: str
    paths: tuple[str, ...] = ()
    """Folders that come before its own site-packages, first wins."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Distribution → version, as far as it was asked for."""
    requested: tuple[str, ...] = ()
    """Distributions that were asked for; their versions are part of every measurement."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Distribution of the overlay → the requirement that installs it again: a release, or the commit or tree it came from."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables of its own."""

    @property
    def fingerprint(self) -> str | None:
        """Twelve digits for all that the overlay holds, what nobody asked for included; None without an overlay."""
        if not self.pins:
            return None
        held = sorted((name, self.versions[name]) for name in self.pins)
        return hashlib.sha256(json.dumps(held).encode()).hexdigest()[:12]

    def requirements(self) -> list[str]:
        """Return what installs again what was asked for."""
        known = {name: f"{name}=={version}" for name, version in self.versions.items()} | dict(self.pins)
        return [known[name] for name in self.requested if name in known]

    def sources(self) -> Iterator[Path]:
        """Return the files of Python of what was asked for, as far as it is laid over the interpreter."""
        for one in distributions(path=list(self.paths)) if self.paths else ():
            if canonicalize_name(one.metadata["Name"] or "") in self.requested:
                yield from (Path(str(one.locate_file(file))) for file in one.files or () if file.suffix == ".py")

    def contents(self) -> dict[str, str]:
        """Return distribution → digest of its files of Python, of all that is laid over the interpreter."""
        return {
            canonicalize_name(one.metadata["Name"]): hash_installed(one, suffix=".py")
            for one in (distributions(path=list(self.paths)) if self.paths else ())
            if one.metadata["Name"]
        }

    def environment(self) -> dict[str, str]:
        """Return the variables of a process of it: no network for the libraries, no compiling, one thread."""
        cache = cache_directory()
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {
            **kept,
            "PATH": os.pathsep.join(filter(None, (trusted_path(kept.get("PATH", "")), str(_stub_programs())))),
            "PYTHONPATH": os.pathsep.join(self.paths),
            "PYTHONSAFEPATH": "1",
            "PYTHONNOUSERSITE": "1",
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(cache / "hf"),
            "TRANSFORMERS_VERBOSITY": "error",
            "DS_BUILD_OPS": "0",
            "DS_ACCELERATOR": "cpu" if "CUDA_VISIBLE_DEVICES" not in kept or not kept["CUDA_VISIBLE_DEVICES"] else "",
            # A lock left there by a killed build makes every later run wait for ever.
            "TORCH_EXTENSIONS_DIR": str(cache / "torch-extensions" / str(os.getpid())),
            **self.environ,
        }


_NUMACTL = """#!/bin/sh
echo 'available: 1 nodes (0)'
echo "node 0 cpus: 0"
echo 'node 0 size: 1024 MB'
echo 'node 0 free: 1024 MB'
echo 'node distances:'
echo 'node   0'
echo '  0:  10'
"""


def _stub_programs() -> Path:
    """Return a folder, last on the path, with stand-ins for programs that DeepSpeed's CPU side calls without need.

    DeepSpeed 0.15 asks `numactl` for the cores of a machine and fails where it is not installed.
    """
    folder = make_folder("stubs")
    stub = folder / "numactl"
    if not stub.exists():
        scratch = folder / f"numactl.{os.getpid()}"
        try:
            scratch.write_text(_NUMACTL, encoding="utf-8")
            scratch.chmod(0o755)
            scratch.replace(stub)
        except OSError as error:
            raise unwritable(folder, error) from None
    return folder
