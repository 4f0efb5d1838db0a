"""The environment of a notebook: what its cells install, and what its recorded output says that it had."""

from __future__ import annotations

from compatcheck.core.errors import InputError
from compatcheck.core.pattern import lazy_compile
from compatcheck.core.source import Skipped
from compatcheck.core.textfile import read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.core.environment import Environment
    from compatcheck.core.files import Files


def with_installs(recorded: Environment, installed: Environment) -> Environment:
    """Lay what the cells of a notebook install under the releases that its output says it had.

    Where a pin contradicts these, the cells were changed since, and they alone say what the next run has.
    """
    packages = {**installed.packages, **recorded.packages}
    skipped = (*recorded.skipped, *installed.skipped)
    pinned = [one for one in installed.packages.values() if one.version and not one.is_optional]
    changed = [one for one in pinned if packages[one.name].version != one.version]
    if changed:
        there, wanted = packages[changed[0].name], changed[0]
        reason = (
            f"{there.name} {there.version} is in the recorded output, and the cells install {wanted.version}: "
            "the releases of the output are left out"
        )
        skipped += (Skipped(there.source, reason, "run the notebook again, or compatcheck env", passes=True),)
        packages = dict(installed.packages)
    return recorded._replace(
        packages=packages,
        facts={**installed.facts, **recorded.facts},
        skipped=skipped,
        notes=(*recorded.notes, *installed.notes),
    )


def read_installed(path: str, files: Files) -> Environment | None:
    """Read what the cells of a notebook install; None where they install nothing."""
    from compatcheck.collectors.dockerfile.read import read_installs  # noqa: PLC0415 (only for notebooks)
    from compatcheck.frameworks.python_script.notebook import find_installs  # noqa: PLC0415 (as above)

    try:
        lines = list(find_installs(path, read_bytes(path, files).decode("utf-8", "replace")))
    except InputError:
        return None  # its reader says why
    return read_installs(path, lines, files) if lines else None


BUILD = "runtime.torch_build"
_ROCM_INDEX = lazy_compile(
    rb"(?s)\brocm.{0,2000}download\.pytorch\.org/whl/|download\.pytorch\.org/whl/(?:nightly/)?rocm"
)


def is_of_another_machine(environment: Environment, path: str, files: Files) -> bool:
    """Tell whether a notebook installs torch for other devices than those that its recorded output is of."""
    if not path.endswith(".ipynb") or environment.facts.get(BUILD, ("",))[0] != "cuda":
        return False
    from compatcheck.frameworks.python_script.notebook import find_cells  # noqa: PLC0415 (only for notebooks)

    cells = find_cells(path, read_bytes(path, files).decode("utf-8", "replace"))
    return any(_ROCM_INDEX.search("".join(line for _, line in cell).encode()) for cell in cells)
