"""Write the table of conda packages that install a distribution of another name, or none.

    python benchmarks/conda_names.py MAPPING.json DIRECTORY > compatcheck/collectors/python/data/conda_names.json

MAPPING.json is ``files/v0/conda-forge/compressed_mapping.json`` of https://github.com/prefix-dev/parselmouth, which says for
every package of conda-forge which distributions lie in it. Of its 33,909 packages those are taken that stand in the public
files under DIRECTORY (environments, lists and locks of conda), and those that rules and components name.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compatcheck.collectors.conda.environment_yml import read_file
from compatcheck.collectors.conda.listing import read_list
from compatcheck.collectors.conda.lock import list_packages
from compatcheck.collectors.conda.pixi_lock import list_environments
from compatcheck.collectors.python.components import CONDA_COMPONENTS
from compatcheck.core.errors import InputError
from compatcheck.core.markers import canonical_name
from compatcheck.core.yaml import read_yaml

STATED = {
    "pytorch": ("torch", "the distribution of the channels pytorch and conda-forge"),
    "torchtriton": ("triton", "the channel pytorch builds OpenAI's triton under this name"),
    "pytorch-triton": ("triton", "the channel pytorch builds OpenAI's triton under this name"),
    "tables": ("tables", "the channel defaults"),
    "numpy-base": ("numpy", "the channel defaults splits numpy: AnacondaRecipes/numpy-feedstock"),
    "tensorflow-base": ("tensorflow", "the metadata lies in this part of conda-forge/tensorflow-feedstock"),
    "msgpack-python": ("msgpack", "renamed on PyPI, in the mapping under both names"),
    "docker-py": ("docker", "renamed on PyPI, in the mapping under both names"),
    "python-igraph": ("igraph", "renamed on PyPI, in the mapping under both names"),
    "ray-core": ("ray", "the metadata lies in this part of conda-forge/ray-packages-feedstock"),
}
"""What the mapping does not hold, because the package is of another channel, or in which it names a part."""
NOT_PYTHON = {
    "pytorch-cuda",
    "pytorch-mutex",
    "cpuonly",
    "cuda",
    "cuda-toolkit",
    "cuda-runtime",
    "cuda-libraries",
    "intel-openmp",
    "mkl",
    "blas",
    "libgcc",
    "libgcc-ng",
    "libstdcxx-ng",
    "_libgcc_mutex",
    "_openmp_mutex",
}
RULES = (
    "accelerate bitsandbytes deepspeed flash-attn liger-kernel openrlhf peft torch transformer-engine transformers trl "
    "verl vllm"
)


def names_in(directory: Path) -> set[str]:
    """Collect conda's names from every file that can be read."""
    names: set[str] = set()
    for path in sorted(item for item in directory.rglob("*") if item.is_file()):
        for read in (_of_environment, _of_list, _of_lock, _of_pixi):
            try:
                names |= read(str(path))
            except (InputError, ValueError):
                continue
            break
    return names


def _of_environment(path: str) -> set[str]:
    return {spec.name for spec, _ in read_file(path).specs}


def _of_lock(path: str) -> set[str]:
    return {entry.name.lower() for entry in list_packages(read_yaml(path))[0] if entry.manager == "conda"}


def _of_pixi(path: str) -> set[str]:
    environments = list(list_environments(read_yaml(path)))
    return {package.name.lower() for item in environments for package in item.packages if package.kind == "conda"}


def _of_list(path: str) -> set[str]:
    listed = read_list(path)
    if listed.skipped:
        raise ValueError(path)
    return {record.name for record in listed.records}


def _alike(conda: str, distribution: str) -> bool:
    """Tell whether two names have a word in common."""
    first, second = canonical_name(conda), canonical_name(distribution)
    words = set(first.split("-")) & set(second.split("-")) - {"python", "py"}
    return bool(words) or second in first or first in second


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mapping", type=Path)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    mapping = json.loads(options.mapping.read_text())
    names = names_in(options.directory) | set(RULES.split()) | {"transformer-engine-torch", "py-opencv", "nvidia-apex"}
    names |= {name for several in CONDA_COMPONENTS.values() for name in several}
    distributions = {}
    others = set(NOT_PYTHON) | {name for several in CONDA_COMPONENTS.values() for name in several}
    for name in sorted(names):
        found = mapping.get(name, "unknown")
        if name in STATED or found == "unknown":
            continue
        if not found or not any(_alike(name, one) for one in found):
            others.add(name)  # none, or one that a program carries inside: pip in nsight-compute, future in qgis
        elif canonical_name(name) not in map(canonical_name, found):
            distributions[name] = canonical_name(found[0])
    distributions.update({name: distribution for name, (distribution, _) in STATED.items()})
    table = {
        "source": "prefix-dev/parselmouth files/v0/conda-forge/compressed_mapping.json at 345e9bfb (2026-08-19), "
        "for the names in public files of conda; see benchmarks/conda_names.py",
        "distributions": dict(sorted(distributions.items())),
        "others": sorted(others - set(distributions)),
    }
    json.dump(table, sys.stdout, indent=1)
    print()
    print(f"{len(names)} names: {len(distributions)} of another name, {len(others)} of none", file=sys.stderr)


if __name__ == "__main__":
    main()
