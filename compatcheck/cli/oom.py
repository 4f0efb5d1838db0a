"""`compatcheck oom`: why a run died of memory, from its log."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from compatcheck import __version__
from compatcheck.cli import options
from compatcheck.core.errors import EXIT_CLEAN, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT, InputError
from compatcheck.core.source import Source
from compatcheck.core.terminal import escape_controls
from compatcheck.core.textfile import STANDARD_INPUT, read_bytes, read_standard_input
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.environment import Environment
    from compatcheck.core.facts import Fact
    from compatcheck.core.out_of_memory import Explained, OutOfMemoryReport, Reading
    from compatcheck.core.report import Finding
    from compatcheck.core.source import Skipped
    from compatcheck.oom.mentions import Mentions
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_FINDINGS = 12
"""Findings shown at most: those that cost the very size, then those of the phase, then others."""


@click.command("oom", cls=options.GroupedCommand, short_help="Explain an out-of-memory message.")
@click.argument("log", metavar="LOG")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@options.environment_options
@options.input_options
@options.rule_directory_option
@click.option(
    "--format", "format_name", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
def command(log: str, rule_directories: tuple[str, ...], format_name: str, **given: Any) -> int:  # noqa: ANN401 (click's signature)
    """Find the tensor whose size was asked for, the phase and the cause in LOG.

    LOG is a log, a traceback or a pasted issue; `-` reads it from standard input.

    The more is known of the run (--model, --training, --set, or PATHs as `check` reads them) the more tensors are tried. What
    the log itself says of it is used where nothing else does.
    """
    from compatcheck.reporters.out_of_memory import FORMATTERS  # noqa: PLC0415 (beside its use)

    rules = open_rules(rule_directories)
    report = explain_log(log, given, rules)
    click.echo(escape_controls(FORMATTERS[format_name](report)), nl=False)
    if not report.readings:
        name = "standard input" if log == "-" else log
        sys.stderr.write(f"error: {name}: no message about memory found\n")
    return report.exit_code


def explain_log(log: str, given: dict[str, Any], rules: RuleSet) -> OutOfMemoryReport:
    """Read a log and everything named beside it, and explain its messages.

    Raises:
        InputError: the log cannot be read.
        CompatcheckError: another option makes no sense.
    """
    from compatcheck.core.out_of_memory import OutOfMemoryReport  # noqa: PLC0415 (beside its use)
    from compatcheck.oom.explain import explain  # noqa: PLC0415 (beside its use)
    from compatcheck.oom.mentions import read_mentions  # noqa: PLC0415 (beside its use)
    from compatcheck.oom.message import read_messages  # noqa: PLC0415 (beside its use)

    path = STANDARD_INPUT if log == "-" else log
    text = _decode(read_standard_input() if log == "-" else read_bytes(path))
    messages = read_messages(text)
    models = {short: tuple(entry["aliases"]) for short, entry in (rules.section("models") or {}).items()}
    mentions = read_mentions(text, models)
    subject, skipped, origin = _gather(given, rules, mentions, path, text)
    facts = _add_settings(subject, mentions, path)
    readings = tuple(explain(message, facts) for message in messages)
    primary = choose_primary(readings)
    used = {name for reading in readings for match in reading.matches for name in match.facts}
    unreadable = any(entry.named for entry in skipped)
    return OutOfMemoryReport(
        version=__version__,
        log=path,
        readings=readings,
        primary=primary,
        model=origin,
        unknown_models=() if origin is not None else mentions.unknown_models,
        facts=tuple(facts[name] for name in sorted(used) if name in facts),
        findings=tuple(_findings(subject, facts, rules, None if primary is None else readings[primary])),
        skipped=skipped,
        exit_code=EXIT_UNREADABLE_INPUT if unreadable else EXIT_CLEAN if readings else EXIT_NOTHING_TO_CHECK,
    )


def _decode(data: bytes) -> str:
    """Decode a log: what is not UTF-8 in it (2.3's index of the device is a bare byte) is replaced.

    Raises:
        InputError: it is binary.
    """
    if data.count(b"\x00") * 10 > len(data):
        if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
            return data.decode("utf-16", errors="replace")
        msg = "is not a text"
        raise InputError(msg, source=Source("LOG"), hint="name the log that holds the message")
    return data.decode("utf-8-sig", errors="replace")


def _gather(
    given: dict[str, Any], rules: RuleSet, mentions: Mentions, path: str, text: str
) -> tuple[Subject, tuple[Skipped, ...], str | None]:
    """Resolve the run: what the person named, and what the log mentions where nothing else tells."""
    from compatcheck.checking.report import place_skipped  # noqa: PLC0415 (beside its use)
    from compatcheck.checking.request import build_subject, read_shared  # noqa: PLC0415 (beside its use)
    from compatcheck.checking.runs import gather_all, make_plan  # noqa: PLC0415 (beside its use)
    from compatcheck.frameworks.lines import LineFinder  # noqa: PLC0415 (beside its use)
    from compatcheck.resolution.subject import Subject  # noqa: PLC0415 (beside its use)

    subjects: Sequence[Subject] = ()
    skipped: list[Skipped] = []
    files = bool(given["paths"] or given["run"])
    plan = make_plan(given, files=files, on_targets=False)
    if files or given["python"] or given["prefix"]:
        gathered = gather_all(plan, rules, os.environ)
        subjects, skipped, tree = gathered.subjects, list(gathered.skipped), gathered.files
    else:
        shared = read_shared(plan.requests[0], rules, os.environ)
        skipped, tree = list(shared.skipped), shared.files
        documents: tuple[Document, ...] = shared.documents
        environment, reported = _environment(mentions, path, text)
        documents = (*documents, *reported)
        subject = build_subject("command line", environment, documents, shared)
        if "model.hidden_size" not in subject.roles["train"] and mentions.model is not None and shared.model is None:
            documents = (*documents, _model_document(mentions.model, rules))
            subject = build_subject("command line", environment, documents, shared)
        subjects = (subject,)
    chosen = max(subjects, key=lambda entry: len(next(iter(entry.roles.values()))), default=None)
    if chosen is None:
        chosen = Subject("command line", None, {"train": _no_facts()})
    skipped.extend(entry for entry in chosen.skipped if entry.named)
    return chosen, place_skipped(skipped, LineFinder(tree)), _model_origin(chosen, mentions)


def _environment(mentions: Mentions, path: str, text: str) -> tuple[Environment | None, tuple[Document, ...]]:
    """Return what the log says of the environment: the report pasted into it, where there is one alone, and what it mentions.

    The second is the configuration of accelerate that such a report may hold.
    """
    from compatcheck.collectors.reports.find import find_reports  # noqa: PLC0415 (beside its use)
    from compatcheck.core.environment import Environment, Package  # noqa: PLC0415 (beside its use)

    packages = {name: Package(name, version, Source(path)) for name, version in mentions.packages.items()}
    reports = find_reports(text, path)
    if len(reports) == 1:
        reported = reports[0].environment
        documents: tuple[Document, ...] = ()
        if reports[0].accelerate is not None:
            from compatcheck.frameworks.accelerate import configuration as accelerate  # noqa: PLC0415 (only for a report with one)

            documents = accelerate.read(reports[0].accelerate, path).documents
        return reported._replace(packages={**packages, **reported.packages}), documents
    return (Environment(path, packages, complete=False) if packages else None), ()


def _model_document(name: str, rules: RuleSet) -> Document:
    from compatcheck.frameworks.model.lookup import find_model  # noqa: PLC0415 (only for a log that names one)

    return find_model(name, rules, {})


def _model_origin(subject: Subject, mentions: Mentions) -> str | None:
    facts = next(iter(subject.roles.values()))
    fact = facts.get("model.hidden_size") or facts.get("model.vocab_size") or facts.get("model.parameters")
    if fact is None:
        return None
    place = fact.sources[0].path if fact.sources else fact.origin
    named = mentions.model is not None and mentions.model in place
    return f"{place}, named in the log" if named and "model.name" not in facts else place


def _no_facts() -> Any:  # noqa: ANN401 (Facts; imported where it is made)
    from compatcheck.core.facts import Facts  # noqa: PLC0415 (rare)

    return Facts({})


def _add_settings(subject: Subject, mentions: Mentions, path: str) -> dict[str, Fact]:
    """Return the facts of the run, with what the log writes of them where no input tells."""
    from compatcheck.core.facts import Fact  # noqa: PLC0415 (beside its use)

    facts: dict[str, Fact] = {}
    for (
        role
    ) in subject.roles.values():  # what only another role states, such as the rollout's limits, holds for the run
        for name, fact in role.items():
            facts.setdefault(name, fact)
    for name, value in mentions.settings.items():
        facts.setdefault(name, Fact(name, value, "declared", (Source(path),), "as the log writes it"))
    return facts


def choose_primary(readings: Sequence[Reading]) -> int | None:
    """Choose the message that explains the failure: a named tensor before a tie, and what has a size before what has none."""
    order = ("named", "tied", "not_derivable", "no_size")
    real = [index for index, reading in enumerate(readings) if reading.message.memory != "none"]
    return min(real, key=lambda index: (order.index(readings[index].outcome), index), default=None)


def _findings(subject: Subject, facts: dict[str, Fact], rules: RuleSet, reading: Reading | None) -> Iterator[Explained]:
    """Yield the findings that may explain a message, the likeliest first."""
    if reading is None:
        return
    from compatcheck.core.facts import Facts  # noqa: PLC0415 (beside its use)
    from compatcheck.core.out_of_memory import Explained  # noqa: PLC0415 (beside its use)
    from compatcheck.core.report import severity_rank  # noqa: PLC0415 (beside its use)
    from compatcheck.matching.engine import match  # noqa: PLC0415 (beside its use)

    first = next(iter(subject.roles))
    outcome = match(subject._replace(roles={**subject.roles, first: Facts(facts)}), rules)
    related = [
        Explained(finding, _relate(finding, reading)) for finding in outcome.findings if _concerns(finding, reading)
    ]
    order = ("size", "phase", "other")
    related.sort(
        key=lambda entry: (
            order.index(entry.relation),
            entry.finding.status != "affected",
            -severity_rank(entry.finding.severity),
            entry.finding.rule_id,
        )
    )
    yield from related[:_FINDINGS]


def _concerns(finding: Finding, reading: Reading) -> bool:
    impact = finding.impact
    if impact is None or impact.effect not in {"memory", "fails_to_start", "falls_back"}:
        return False
    return impact.memory == reading.message.memory


def _relate(finding: Finding, reading: Reading) -> str:
    from compatcheck.oom.sizes import UNINFORMATIVE, prints_as, segment_size  # noqa: PLC0415 (beside its use)

    impact, asked = finding.impact, reading.message.asked
    size = None if impact is None or impact.scope != "rank" else impact.expected_bytes
    if (
        asked is not None
        and size
        and segment_size(size) not in UNINFORMATIVE
        and prints_as(size, asked, reading.message.rounding)
    ):
        return "size"
    same = impact is not None and reading.place is not None and impact.phase == reading.place.phase
    return "phase" if same else "other"
