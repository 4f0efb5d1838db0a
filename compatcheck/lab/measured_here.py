"""What the person's own store of measurements says about findings: imported only where there is a store and a finding."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.errors import CompatcheckError, InputError
from compatcheck.core.source import Skipped, Source
from compatcheck.lab.evidence.index import holds_any
from compatcheck.matching.decision import SILENT, decide
from compatcheck.resolution.scope import COMPONENT_FACTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.core.facts import Fact
    from compatcheck.core.report import Finding
    from compatcheck.lab.measurement import Measurement
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.rules.database import CompiledRule, RuleSet


def add_measured(
    findings: Sequence[Finding], rules: RuleSet, path: str
) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    """Say on each certain finding whose rule has a probe what that probe measured here under the very releases it is about.

    A measurement counts when it is the newest that succeeded, of the probe's present text, of a run that the rule's condition
    does not leave out, and with exactly the installed releases of the packages the rule names.

    Args:
        findings: of one report.
        rules: the database they come from.
        path: the store.

    Returns:
        The findings, and the store when it could not be read.
    """
    asked = list(_asked(findings, rules))
    if not asked or holds_any(path, [(use["name"] or "", versions) for _, versions, _, use in asked]) is False:
        return tuple(findings), ()
    from compatcheck.lab.evidence.store import EvidenceStore  # noqa: PLC0415 (SQLite)
    from compatcheck.lab.probes.probe import find_probe, probe_names  # noqa: PLC0415 (only with a measurement to judge)

    changed = list(findings)
    try:
        with EvidenceStore(path, read_only=True, follows=False) as store:
            for index, versions, rule, use in asked:
                if use["name"] not in probe_names():
                    continue
                probe = find_probe(use["name"])
                for _, measurement in store.list(probe=probe.name, status="ok", versions=versions):
                    current = (
                        measurement.probe_hash == probe.hash_for(measurement.parameters)
                        and not measurement.beside_a_mode
                    )
                    if current and concerns(measurement, probe, rule, rules, use["metric"]):
                        described = describe(measurement, probe, use["metric"])
                        if described is not None:
                            changed[index] = findings[index]._replace(measured_here=described)
                            break
    except InputError as error:
        return tuple(changed), (Skipped(error.source or Source(path), error.message, error.hint),)
    return tuple(changed), ()


def _asked(
    findings: Sequence[Finding], rules: RuleSet
) -> Iterator[tuple[int, Mapping[str, str], CompiledRule, Mapping[str, str | None]]]:
    """Yield what could have been measured: the position of a certain finding, its releases, its rule and the rule's probe."""
    for index, finding in enumerate(findings):
        versions = installed_versions(finding) if finding.status == "affected" else {}
        found = _probe_of(finding, rules) if versions else None
        if found is not None:
            yield index, versions, *found


def installed_versions(finding: Finding) -> dict[str, str]:
    """Return the releases of the distributions a finding is about, as they are installed: a commit is not its release."""
    return {
        fact.name: _identify(fact)
        for fact in finding.facts
        if "." not in fact.name and fact.name not in COMPONENT_FACTS
    }


def _identify(fact: Fact) -> str:
    """Return the version as a measurement names it (`environments.installed`); a tree that may change is like none."""
    place = next((one.path for one in fact.sources if one.path.endswith((".dist-info", ".egg-info"))), None)
    if place is None or not (place.endswith(".egg-info") or os.path.exists(os.path.join(place, "direct_url.json"))):
        return str(fact.value)
    from importlib.metadata import PathDistribution  # noqa: PLC0415 (20 ms; only of what came from no index)
    from pathlib import Path  # noqa: PLC0415 (see above)

    from compatcheck.lab.environments.installed import find_tree, identify, read_origin  # noqa: PLC0415 (see above)

    distribution = PathDistribution(Path(place))
    origin = read_origin(distribution)
    # An editable tree would have to be read whole, wherever it lies.
    if find_tree(place) is not None or ((origin or {}).get("dir_info") or {}).get("editable"):
        return f"{fact.value}+tree"
    return str(fact.value) if origin is None else identify(distribution)


def _probe_of(finding: Finding, rules: RuleSet) -> tuple[CompiledRule, Mapping[str, str | None]] | None:
    rule = rules.find(finding.rule_id)
    use = None if rule is None else rules.texts(rule).probe
    return None if rule is None or use is None else (rule, use)


def concerns(
    measurement: Measurement, probe: Probe, rule: CompiledRule, rules: RuleSet, metric: str | None = None
) -> bool:
    """Tell whether the rule may be about the measured run: one without checkpointing says nothing about checkpointing."""
    from compatcheck.lab.probes.metric_facts import metric_facts  # noqa: PLC0415 (see above)
    from compatcheck.lab.proof import as_example  # noqa: PLC0415 (see above)
    from compatcheck.matching.examples import example_scope  # noqa: PLC0415 (reads configurations)

    try:
        facts = metric_facts(probe, measurement.parameters, metric)
        scope = example_scope(as_example(facts, measurement.versions), rules, "measurement")
        return decide(rule, scope).status != SILENT
    except (CompatcheckError, LookupError, TypeError, ValueError):
        return False


def describe(measurement: Measurement, probe: Probe, metric: str | None) -> dict[str, object] | None:
    """Describe a measurement beside the prediction for a healthy release; None when it has not got the metric."""
    verdict, value, predicted = probe.judge(measurement, metric)
    if verdict == "skipped":
        return None
    return {
        "probe": measurement.probe,
        "metric": metric or probe.module.METRIC,
        "value": value,
        "predicted": predicted,
        "verdict": verdict,
        "backend": measurement.backend,
        "accounting": measurement.accounting,
        "device": measurement.device,
        "date": None if measurement.time is None else measurement.time[:10],
        "versions": dict(measurement.versions),
        "parameters": dict(measurement.parameters),
    }
