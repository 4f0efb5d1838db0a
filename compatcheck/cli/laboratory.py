"""The one seam between the product and its measuring laboratory: without `compatcheck.lab` everything else works."""

from __future__ import annotations

import os

from compatcheck.core.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compatcheck.checking.tracer import Tracer
    from compatcheck.core.report import Finding
    from compatcheck.core.source import Skipped
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet
    from compatcheck.rules.lint import CheckEvidence

COMMANDS = {
    "confirm": ("compatcheck.cli.measuring.confirm", "Measure whether a rule holds."),
    "bisect": ("compatcheck.cli.measuring.bisect", "Find the releases that broke and mended something."),
    "sweep": ("compatcheck.cli.measuring.sweep", "Measure probes over many releases and find what changed."),
    "watch": ("compatcheck.cli.measuring.watch", "Measure what came out since the last look, and write up what grew."),
    "probe": ("compatcheck.cli.measuring.probe", "Measure a memory claim in an environment."),
    "evidence": ("compatcheck.cli.measuring.evidence", "List, show, export and import measurements."),
}
"""Its commands: module that defines each, and its line of help."""


def is_installed() -> bool:
    """Tell whether the laboratory is part of this installation."""
    try:
        import compatcheck.lab.location  # noqa: F401, PLC0415 (not on the way to `env`)
    except ModuleNotFoundError:
        return False
    return True


def require_laboratory(what: str) -> None:
    """Refuse what needs the laboratory where there is none.

    Raises:
        UsageError: it is not part of this installation.
    """
    if not is_installed():
        msg = f"{what} needs the measuring laboratory (compatcheck.lab), which this installation is without"
        raise UsageError(msg, hint="install the whole package: docs/installation.md of the sources says how")


def list_probes() -> Sequence[str]:
    """List the names of probes; there are none without a laboratory."""
    if not is_installed():
        return ()
    from compatcheck.lab.probes.probe import probe_names  # noqa: PLC0415 (only when asked)

    return probe_names()


def annotate(findings: Sequence[Finding], rules: RuleSet) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    """Say on certain findings what the person's own store of measurements has about them."""
    if is_installed():
        from compatcheck.lab.location import store_path  # noqa: PLC0415 (see above)

        path = store_path(os.environ)
        if os.path.exists(path):
            from compatcheck.lab.measured_here import add_measured  # noqa: PLC0415 (only with a store)

            return add_measured(findings, rules, path)
    return tuple(findings), ()


def find_evidence_check(rules: RuleSet) -> CheckEvidence | None:
    """Return what compares rules with probes and measurements, for the linter; None without a laboratory."""
    if not is_installed():
        return None
    from compatcheck.lab.proof import make_proof  # noqa: PLC0415 (only for the linter)
    from compatcheck.lab.rule_evidence import check_evidence  # noqa: PLC0415 (only for the linter)

    proof = make_proof(rules)
    return lambda rule, root: check_evidence(rule, root, proof)


def find_tracer(python: str | None, module: str | None = None) -> Tracer:
    """Return what traces a run's training step in an interpreter with torch.

    Args:
        python: the interpreter; None finds one.
        module: the person's function that builds what is trained, as --module has it.

    Raises:
        UsageError: there is no laboratory, or --module names no function.
    """
    require_laboratory("--trace" if module is None else "--module")
    from compatcheck.cli.output import write_notice  # noqa: PLC0415 (not on the way to `env`)
    from compatcheck.lab.environments.choice import EnvironmentChoice  # noqa: PLC0415 (only when asked)
    from compatcheck.lab.tracing import find_own, trace_subject  # noqa: PLC0415 (only when asked)

    own = None if module is None else find_own(module)
    runs = EnvironmentChoice(python, None, (), None).describe(installs=own is None)
    write_notice(f"--trace {runs}" if own is None else f"--module runs {own.describe()}, and {runs}")
    return lambda subject, rules: trace_subject(subject, rules, python, own)


def find_traceability() -> Callable[[Subject, RuleSet], bool] | None:
    """Return what tells whether a run could be traced, without running anything; None without a laboratory."""
    if not is_installed():
        return None
    from compatcheck.lab.traceability import can_trace  # noqa: PLC0415 (see above)

    return can_trace
