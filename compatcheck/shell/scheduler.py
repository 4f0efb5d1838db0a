"""What the header of a batch job sets: the variables that Slurm takes from ``#SBATCH`` lines."""

from __future__ import annotations

import re

_NODES = re.compile(r"^#SBATCH\s+(?:--nodes[= ]|-N\s*)(\d+)\s*(?:#.*)?$", re.MULTILINE)


def variables_of_header(text: str) -> dict[str, str]:
    """Return the variables Slurm sets from a script's own header: the number of nodes."""
    nodes = _NODES.search(text)
    return {} if nodes is None else dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes[1])
