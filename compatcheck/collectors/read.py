"""Which collector reads which kind of file; it is imported when a file of its kind is there."""

from __future__ import annotations

from importlib import import_module

from compatcheck.collectors.python.pinned_build import with_build
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.selection import DEFAULT, Selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.environment import Environment

_READERS: Mapping[str, tuple[str, str, bool]] = {
    "requirements": ("requirements.lines", "read_requirements", True),
    "constraints": ("requirements.lines", "read_constraints", True),
    "pylock": ("locks.pylock", "read_pylock", True),
    "uv_lock": ("locks.uv_lock", "read_uv_lock", True),
    "poetry_lock": ("locks.poetry_lock", "read_poetry_lock", True),
    "pdm_lock": ("locks.pdm_lock", "read_pdm_lock", True),
    "pipfile_lock": ("locks.pipfile_lock", "read_pipfile_lock", True),
    "pip_list": ("requirements.pip_list", "read_pip_list", False),
    "pip_inspect": ("requirements.pip_list", "read_pip_inspect", False),
    "pipfile": ("locks.pipfile", "read_pipfile", True),
    "script": ("requirements.inline_script", "read_script", True),
    "pyproject": ("requirements.pyproject", "read_pyproject", True),
    "dockerfile": ("dockerfile.read", "read_dockerfile", True),
    "setup_py": ("requirements.setup_py", "read_setup_py", True),
    "setup_cfg": ("requirements.setup_cfg", "read_setup_cfg", True),
    "report": ("reports.find", "read_reports", False),
    "conda_environment": ("conda.environment_yml", "read_conda_environment", False),
    "conda_list": ("conda.listing", "read_conda_list", False),
    "conda_lock": ("conda.lock", "read_conda_lock", True),
    "pixi_lock": ("conda.pixi_lock", "read_pixi_lock", False),
    "pixi": ("conda.pixi", "read_pixi", True),
    "cyclonedx_json": ("sbom.cyclonedx", "read_cyclonedx_json", False),
    "cyclonedx_xml": ("sbom.cyclonedx", "read_cyclonedx_xml", False),
    "spdx": ("sbom.spdx", "read_spdx", False),
    "syft_json": ("sbom.syft", "read_syft_json", False),
    "node": ("machine.dump", "read_dump", False),
}
"""Kind, as `compatcheck.collectors.recognise` names it → module, function, and whether the file offers something to
choose: extras, groups, a Python, a stage."""

LOCKS = frozenset(
    {"pylock", "uv_lock", "poetry_lock", "pdm_lock", "pipfile_lock", "conda_list", "conda_lock", "pixi_lock"}
)
"""Kinds that name everything that is installed, and win over a manifest beside them."""


def read_environments(
    path: str, kind: str, files: Files = LOCAL, selection: Selection = DEFAULT
) -> tuple[Environment, ...]:
    """Read a file of packages; most hold one environment, some (pixi, conda-lock) one for each platform or name.

    What torch is built for is added where the releases and the indexes they come from tell it.

    Args:
        path: the file.
        kind: what `compatcheck.collectors.recognise` says it is.
        files: the tree it lies in, with everything that it names.
        selection: what is chosen of what the file offers. The Python is taken as that of the environment, too, where the file
            states none.

    Raises:
        InputError: it cannot be read or is malformed.
    """
    module, function, chooses = _READERS[kind]
    reader = getattr(import_module(f"compatcheck.collectors.{module}"), function)
    read = reader(path, files, selection) if chooses else reader(path, files)
    # An environment is a tuple itself, of another kind.
    environments: tuple[Environment, ...] = read if type(read) is tuple else (read,)
    if selection.python is not None:
        environments = tuple(
            environment if environment.python else environment._replace(python=selection.python)
            for environment in environments
        )
    return tuple(map(with_build, environments))
