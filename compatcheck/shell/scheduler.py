"""What the header of a batch job sets: the variables, and the directory, that Slurm takes from ``#SBATCH`` lines."""

from __future__ import annotations

import re

_NODES = re.compile(r"^#SBATCH\s+(?:--nodes[= ]|-N\s*)(\d+)\s*(?:#.*)?$", re.MULTILINE)


_DIRECTORY = re.compile(r"^#SBATCH\s+(?:--chdir[= ]|-D\s*)([^\s#%]+)", re.MULTILINE)


def variables_of_header(text: str) -> dict[str, str]:
    """Return the variables Slurm sets from a script's own header: the number of nodes, the directory it starts in."""
    nodes, directory = _NODES.search(text), _DIRECTORY.search(text)
    said = {} if nodes is None else dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes[1])
    return said if directory is None else {**said, "PWD": directory[1]}
