"""Which collector reads which kind of file; it is imported when a file of its kind is there."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from compatcheck.collectors.python.pinned_build import with_build
from compatcheck.core.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compatcheck.core.environment import Environment

_READERS: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "requirements": ("requirements.lines", "read_requirements", {"constraints": False}),
    "constraints": ("requirements.lines", "read_requirements", {"constraints": True}),
    "pylock": ("locks.pylock", "read_pylock", {}),
    "uv_lock": ("locks.uv_lock", "read_uv_lock", {}),
    "poetry_lock": ("locks.poetry_lock", "read_poetry_lock", {}),
    "pdm_lock": ("locks.pdm_lock", "read_pdm_lock", {}),
    "pipfile_lock": ("locks.pipfile_lock", "read_pipfile_lock", {}),
    "pip_list": ("requirements.pip_list", "read_pip_list", {}),
    "pip_inspect": ("requirements.pip_list", "read_pip_inspect", {}),
    "pipfile": ("locks.pipfile", "read_pipfile", {}),
    "script": ("requirements.inline_script", "read_script", {}),
    "pyproject": ("requirements.pyproject", "read_pyproject", {}),
    "dockerfile": ("dockerfile.read", "read_dockerfile", {}),
    "setup_py": ("requirements.setup_py", "read_setup_py", {}),
    "report": ("reports.find", "read_reports", {}),
    "conda_environment": ("conda.environment_yml", "read_conda_environment", {}),
    "conda_list": ("conda.listing", "read_conda_list", {}),
    "conda_lock": ("conda.lock", "read_conda_lock", {}),
    "pixi_lock": ("conda.pixi_lock", "read_pixi_lock", {}),
    "pixi": ("conda.pixi", "read_pixi", {}),
    "cyclonedx_json": ("sbom.cyclonedx", "read_cyclonedx_json", {}),
    "cyclonedx_xml": ("sbom.cyclonedx", "read_cyclonedx_xml", {}),
    "spdx": ("sbom.spdx", "read_spdx", {}),
    "syft_json": ("sbom.syft", "read_syft_json", {}),
}
"""Kind, as `compatcheck.collectors.recognise` names it → module, function and its options."""

LOCKS = frozenset(
    {"pylock", "uv_lock", "poetry_lock", "pdm_lock", "pipfile_lock", "conda_list", "conda_lock", "pixi_lock"}
)
"""Kinds that name everything that is installed, and win over a manifest beside them."""


def read_environments(path: str, kind: str, files: Files = LOCAL) -> tuple[Environment, ...]:
    """Read a file of packages; most hold one environment, some (pixi, conda-lock) one for each platform or name.

    What torch is built for is added where the releases and the indexes they come from tell it.

    Args:
        path: the file.
        kind: what `compatcheck.collectors.recognise` says it is.
        files: the tree it lies in, with everything that it names.

    Raises:
        InputError: it cannot be read or is malformed.
    """
    module, function, options = _READERS[kind]
    reader: Callable[[str, Files], Environment | tuple[Environment, ...]]
    reader = partial(getattr(import_module(f"compatcheck.collectors.{module}"), function), **options)
    read = reader(path, files)
    # An environment is a tuple itself, of another kind.
    environments = read if type(read) is tuple else (read,)
    return tuple(map(with_build, environments))
