"""Runs whose peak a script measured: facts of `fixtures/estimates/peaks`, priced as `compatcheck estimate` prices a facts file.

A file is one source: `source`, `url`, `file`, `counted` (what was measured, and how), `device`, `program` (what of its loop the
facts rest on), `packages`, `facts` of all runs, `models` (dimensions without their ``model.``) and `runs`. A run has a `model`,
what is `set` beside the shared facts, releases of its own, and what was measured in bytes (`allocated`, `reserved`,
`device_use`; `forward` and `backward` of a step) or its `outcome`. `apart` says which input of its runs is not published; such
sources do not enter the headline. `frozen` is the commit of the model that none of its runs had been held against when they were
gathered. `module` is the file of `inputs` whose functions, called as the models, build what is traced. `unclear` says why a run's outcome is told and not counted: it is priced and printed, and enters no table.
"""  # noqa: E501

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compatcheck.checking import Request, gather, open_rules
from compatcheck.checking.checks import Checks, open_criteria
from compatcheck.checking.fit import price
from compatcheck.checking.inspection import Inspection
from compatcheck.checking.verdict import judge
from compatcheck.matching.engine import match
from compatcheck.rules.strict_yaml import load_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.estimate import Estimate
    from compatcheck.core.report import Finding
    from compatcheck.resolution.subject import Subject

FOLDER = Path(__file__).parents[1] / "fixtures/estimates/peaks"
COUNTS = ("allocated", "reserved", "device_use")


class Measured(NamedTuple):
    """One run of a source."""

    source: str
    model: str
    name: str
    facts: Mapping[str, Any]
    packages: Mapping[str, str]
    outcome: str
    """``fits`` or ``oom``."""
    counted: Mapping[str, int]
    """Bytes by what was measured, of `COUNTS`; those of a step's phases too."""
    apart: str
    """Which input is not published; empty where the facts are those of the run."""
    frozen: str
    """Commit of the model before the source was gathered; empty where runs of it were known."""
    unclear: str
    """Why the outcome is not counted; empty where it is."""
    module: str
    """What builds the model of its program; empty where it is one of transformers."""


def read_peaks(folder: Path = FOLDER) -> Iterator[Measured]:
    """Read the measured runs of all sources."""
    for path in sorted(folder.glob("*.yaml")):
        source = load_strict(path)[0]
        for run in source["runs"]:
            model = {f"model.{name}": value for name, value in source["models"][run["model"]].items()}
            facts = {**source["facts"], **model, **run["set"]}
            counted = {name: run[name] for name in (*COUNTS, "forward", "backward") if name in run}
            words = [str(value) for value in run["set"].values()]
            name = run.get("name") or " ".join([run["model"], *words])
            packages = {**source["packages"], **run.get("packages", {})}
            outcome = run.get("outcome", "fits")
            yield Measured(
                source["source"],
                run["model"],
                name,
                facts,
                packages,
                outcome,
                counted,
                source.get("apart", ""),
                source.get("frozen", ""),
                run.get("unclear", ""),
                source.get("module", ""),
            )


def open_measured(run: Measured) -> tuple[Subject, list[Finding]]:
    """Read a run as its facts file is read, with what rules find in the releases it names."""
    words: dict[str, Any] = {"compatcheck": 1, "packages": dict(run.packages)}
    for name, value in run.facts.items():
        section, _, key = name.partition(".")
        words.setdefault(section, {})[key] = value
    rules = open_rules()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.yaml")
        path.write_text(json.dumps(words), encoding="utf-8")
        (subject,) = gather(Request(paths=(str(path),), here=False), rules, {}).subjects
    return subject, list(match(subject, rules).findings)


def estimate_measured(run: Measured) -> Estimate:
    """Judge a run as its facts file is judged."""
    subject, _ = open_measured(run)
    found = judge_subject(subject)
    if not found.phases:
        raise ValueError(f"{run.source}, {run.name}: needs {found.needs} {found.verdict.primary or ''}")
    return found


def judge_subject(subject: Subject) -> Estimate:
    """Price what was read as `compatcheck estimate` does: what nobody states supposed at its worst, too."""
    criteria = open_criteria(Inspection((Request(here=False),)), open_rules(), Checks())
    found = judge(subject, criteria)
    return found.estimate or price(subject, found.findings)
