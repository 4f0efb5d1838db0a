"""Rows of training frameworks agree with the class, option or YAML defaults that their released source states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from compatcheck.rules.expression import conjuncts, fact_names, write
from compatcheck.rules.syntax import parse
from tests.rules.dump_frameworks import ALIASES, CODE, READERS, ROOT, dump

DUMPS = sorted((ROOT / "fixtures/measurements/defaults/frameworks").glob("*.json"))
REREAD = {
    "llamafactory": ("0.7.1", "0.8.3", "0.9.1", "0.9.2", "0.9.3", "0.9.4", "0.9.5"),
    "axolotl": ("0.5.2", "0.7.0", "0.9.2", "0.12.2", "0.17.0", "0.21.0"),
    "openrlhf": ("0.5.2", "0.6.1", "0.7.5", "0.8.5", "0.9.6", "0.10.1", "0.11.2"),
    "ms-swift": ("3.0.3", "3.2.2", "3.6.4", "3.9.3", "4.0.4", "4.5.2"),
    "verl": ("0.1", "0.2", "0.3.0.post1", "0.4.1", "0.6.1", "0.8.0", "0.9.1"),
}
"""Releases whose source is fetched and parsed again."""


DECIDED = {
    "axolotl": {
        "gradient_checkpointing_kwargs.use_reentrant": "a mapping without a default; filled in by core/trainer_builder",
        "fsdp_version": "no field until 0.10, where FSDP1 is the only one there is",
        "trl.vllm_mode": "no field until 0.10, where a server is the only engine there is",
        "lora_mlp_kernel": "no field in 0.5, which has no such kernels",
    },
    "ms-swift": {
        "gradient_checkpointing_kwargs.use_reentrant": "torch's checkpoint function is replaced",
        "rlhf_type": "a file without it is one of another program, whose class has no such field",
        "bf16": "a field of transformers' class, set by _init_mixed_precision",
    },
    "openrlhf": dict.fromkeys(
        ("packing_samples", "ring_attn_size", "ds_tensor_parallel_size", "use_liger_kernel", "ds.use_liger_kernel"),
        "a program without the option does without the feature, which is what the row says",
    ),
    "verl": {
        "actor_rollout_ref.rollout.enable_sleep_mode": "a field of RolloutConfig, which the configuration of Hydra leaves out",
    },
}
"""Keys that a class or program does not have and the code decides; these rows were read, not compared."""
MANDATORY = "???"
"""Value of a key that Hydra refuses to leave out."""
LEFT = "auto"
"""Value of a key that leaves the choice to the library beneath: no row is needed where the program adds nothing."""
COMPUTED = {"bf16", "rlhf_type"}
"""Of those, the ones whose class default is of no consequence even where it is there."""


@cache
def every_row(package: str) -> list[dict[str, Any]]:
    """Return the rows about a key that a person can write."""
    path = ROOT / f"rules/_programs/{READERS[package]}.yaml"
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["rows"]  # noqa: S506
    return [row for row in rows if row["key"] is not None]


def plain_rows(package: str) -> list[dict[str, Any]]:
    """Return the rows that state a default; one with `forced` replaces what is written, others compute their value."""
    return [row for row in every_row(package) if not row.get("forced") and ("raw" in row or "value" in row)]


def speaks_of(row: Mapping[str, Any], package: str, version: str, trainer: str) -> bool:
    """Tell whether a row is about this release, and about this program where a package has several."""
    if not SpecifierSet(row["affected"].get(package, "")).contains(version, prereleases=True):
        return False
    when = row.get("when")
    if when is None or trainer == "fields":
        return True
    trainers = [write(part) for part in conjuncts(parse(when)) if fact_names(part) == {"training.trainer"}]
    if not trainers:
        return True
    training = type("training", (), {"trainer": trainer})
    return bool(eval(compile(" and ".join(trainers), "<row>", "eval"), {"__builtins__": {}}, {"training": training}))  # noqa: S307


def problems(package: str, version: str, defaults: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield every row that says something else than the source."""
    rows = plain_rows(package)
    for trainer, fields in defaults.items():
        for row in rows:
            if not speaks_of(row, package, version, trainer):
                continue
            place = f"{package} {version} {trainer}: {row['key']}"
            key = (
                row["key"]
                if fields.get(row["key"]) is not None
                else ALIASES.get(package, {}).get(row["key"], row["key"])
            )
            decided = row["key"] in DECIDED.get(package, {})
            if key not in fields:
                if not decided:
                    yield f"{place} is no field"
                continue
            expected = None if row.get("raw", row.get("value")) == "<none>" else row.get("raw", row.get("value"))
            if not same(fields[key], expected) and not (decided and row["key"] in COMPUTED):
                yield f"{place} is {fields[key]!r}, the row says {expected!r} ({row['fact']})"


def same(stated: object, expected: object) -> bool:
    """Compare a default with a row; a member of an enumeration stands for its name in lower case."""
    if isinstance(stated, str) and stated.startswith(CODE):
        member = stated.removesuffix(".value").rpartition(".")[2]
        return member.isupper() and member.lower() == expected
    if isinstance(expected, list) and not isinstance(stated, list):
        expected = expected[0] if len(expected) == 1 else expected
    return stated == expected and isinstance(stated, bool) == isinstance(expected, bool)


def left_out(package: str, version: str, defaults: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the fields of a release that have a default, a row in other releases, and none in this one."""
    older = ALIASES.get(package, {})
    for trainer, fields in defaults.items():
        spoken = {row["key"] for row in every_row(package) if speaks_of(row, package, version, trainer)}
        spoken |= {older[key] for key in spoken if key in older}
        for key in sorted(set(fields) - spoken):
            if fields[key] not in (None, MANDATORY, LEFT):
                yield f"{package} {version} {trainer}: {key} = {fields[key]!r} has no row"


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_rows_agree_with_the_released_source(path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    found = list(problems(stored["package"], stored["version"], stored["defaults"]))
    assert not found, "\n".join(found)
    missing = list(left_out(stored["package"], stored["version"], stored["defaults"]))
    assert not missing, "\n".join(missing)


def test_six_releases_of_every_framework_are_stored() -> None:
    stored = {path.stem for path in DUMPS}
    for package, versions in REREAD.items():
        assert len(versions) >= 6
        assert {f"{package}-{version}" for version in versions} <= stored


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "version"), [(package, version) for package, versions in REREAD.items() for version in versions]
)
def test_released_source_says_what_is_stored(package: str, version: str) -> None:
    now = dump(package, version)
    path = ROOT / f"fixtures/measurements/defaults/frameworks/{package}-{version}.json"
    assert now == json.loads(path.read_text(encoding="utf-8"))
    assert not list(problems(package, version, now["defaults"]))
