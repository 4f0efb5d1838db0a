"""Why a run died of memory: the tensor whose size was asked for, the phase and the cause, from its log and its inputs."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from compatcheck import __version__
from compatcheck.checking.checks import checks_of, open_criteria
from compatcheck.checking.environments import merge_environments
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.input_files import InputFile, read_blocks
from compatcheck.checking.inspection import as_inspection
from compatcheck.checking.pairing import merge_run
from compatcheck.checking.pasted_blocks import lay_blocks
from compatcheck.checking.relief import find_relief, suggest_changes
from compatcheck.checking.report import place_skipped
from compatcheck.checking.shared import read_shared
from compatcheck.checking.subjects import build_subject
from compatcheck.collectors.reports.find import find_reports
from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import EXIT_CLEAN, EXIT_NOTHING_TO_CHECK, EXIT_UNREADABLE_INPUT
from compatcheck.core.facts import Fact, Facts
from compatcheck.core.out_of_memory import WORDS, Explained, OutOfMemoryReport, ReleaseChange
from compatcheck.core.pasted_text import fold_case
from compatcheck.core.report import severity_rank
from compatcheck.core.source import Skipped, Source
from compatcheck.frameworks.lines import LineFinder
from compatcheck.matching.engine import match
from compatcheck.oom.account import read_account
from compatcheck.oom.disagreements import find_disagreements
from compatcheck.oom.explain import explain, is_of_engine
from compatcheck.oom.mentions import read_mentions
from compatcheck.oom.message import read_messages
from compatcheck.oom.sizes import UNINFORMATIVE, prints_as, segment_size
from compatcheck.oom.told import attach_frames, say_nothing, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compatcheck.checking.inspection import Inspection
    from compatcheck.checking.request import Request
    from compatcheck.checking.shared import Shared
    from compatcheck.collectors.reports.find import FoundReport
    from compatcheck.core.document import Document
    from compatcheck.core.files import Files
    from compatcheck.core.out_of_memory import Message, MessageReading
    from compatcheck.core.report import Finding
    from compatcheck.oom.mentions import Mentions
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

_FINDINGS = 12
"""Findings shown at most: those that cost the very size, then those of the phase, then others."""

_TOPIC = 5
"""Letters of a word that tells what a rule is about."""
_NO_TOPICS = frozenset(
    {
        "after", "batch", "batches", "before", "default", "device", "float32", "gradients", "labels", "layer", "layers",
        "loading", "logits", "memory", "model", "outputs", "steps", "tensor", "tensors", "training", "twice", "weights",
        "without",
    }
)  # fmt: skip
"""Words of rules' names that any thread about memory has."""


class Log:
    """A log; what it says of the environment is looked for once."""

    def __init__(self, place: str, text: str) -> None:
        self.place = place
        """What it is called."""
        self.text = text

    @cached_property
    def reports(self) -> tuple[FoundReport, ...]:
        """Environments that are pasted into it."""
        return find_reports(self.text, self.place)


def explain_oom(
    text: str,
    place: str,
    asked: Request | Inspection,
    rules: RuleSet,
    environ: Mapping[str, str],
    left_out: tuple[Skipped, ...] = (),
) -> OutOfMemoryReport:
    """Explain the messages about memory in a log.

    Args:
        text: the log, a traceback or a pasted issue.
        place: what the log is called.
        asked: what is known of the run; what the log itself says is used where nothing else does.
        rules: the database.
        environ: variables of this process.
        left_out: what of the log is not in its text.

    Returns:
        What each message asked for, in bytes, the tensors that print so, and the findings that may explain it.

    Raises:
        CompatcheckError: an input named beside the log makes no sense.
    """
    unread = list(left_out)
    messages = attach_frames(read_messages(text, place, unread), text)
    if not messages:
        words = tell(text)
        messages = () if words is None else (words,)
    models = {short: tuple(entry["aliases"]) for short, entry in (rules.section("models") or {}).items()}
    mentions = read_mentions(text, models)
    inspection = as_inspection(asked)
    log = Log(place, text)
    subject, skipped, lines = _gather(inspection, rules, environ, log, mentions)
    skipped = (*unread, *skipped)
    if not messages and text.strip():
        messages = (say_nothing(),)
    origin = _model_origin(subject, mentions)
    facts = _add_settings(subject, mentions, place)
    account = read_account(text)
    told = (explain(message, facts, accounted=any(account.held)) for message in messages)
    readings = tuple(_ask_for_run(reading, subject, facts) for reading in told)
    primary = choose_primary(readings)
    explained = None if primary is None else readings[primary]
    used = {name for reading in readings for match in reading.matches for name in match.facts}
    unreadable = any(entry.named for entry in skipped)
    return OutOfMemoryReport(
        version=__version__,
        log=place,
        readings=readings,
        primary=primary,
        model=origin,
        unknown_models=() if origin is not None else mentions.unknown_models,
        account=account,
        disagreements=find_disagreements(
            subject,
            messages,
            mentions.settings,
            log.reports[0].environment if len(log.reports) == 1 else None,
            place,
        )
        if _names_inputs(inspection.requests[0])
        else (),
        facts=tuple(facts[name] for name in sorted(used) if name in facts),
        findings=tuple(_findings(subject, facts, rules, explained, fold_case(text))),
        changes=tuple(_changes(inspection, rules, environ, log, mentions, subject)),
        relief=find_relief(facts, explained, lines),
        suggestions=()
        if explained is not None and explained.message.form in WORDS and not _states_run(subject)
        else suggest_changes(
            subject,
            facts,
            explained,
            open_criteria(inspection, rules, checks_of(inspection.policy)),
            of_engine=explained is not None and _is_of_engine(explained),
        ),
        skipped=skipped,
        exit_code=EXIT_UNREADABLE_INPUT
        if unreadable
        else EXIT_CLEAN
        if _says_something(messages)
        else EXIT_NOTHING_TO_CHECK,
    )


def _ask_for_run(reading: MessageReading, subject: Subject, facts: Mapping[str, Fact]) -> MessageReading:
    """Add what the estimate of a run lacks whose failure is only told: the model, the device."""
    if reading.message.form not in WORDS or not _states_run(subject):
        return reading
    wanted = {"--model": "model.hidden_size", "--gpu": "hardware.memory_bytes"}
    return reading._replace(needs=tuple(flag for flag, name in wanted.items() if name not in facts))


def _names_inputs(request: Request) -> bool:
    """Tell whether something besides the log is said to be of the run."""
    return bool(request.paths or request.run or request.python or request.prefix or request.model or request.training)


def _states_run(subject: Subject) -> bool:
    """Tell whether an input states how the run trains, and no mention of it in passing does."""
    return any(name.startswith("training.") for role in subject.roles.values() for name in role)


def _says_something(messages: Sequence[Message]) -> bool:
    return any(message.form not in WORDS for message in messages)


def _gather(
    inspection: Inspection, rules: RuleSet, environ: Mapping[str, str], log: Log, mentions: Mentions
) -> tuple[Subject, tuple[Skipped, ...], LineFinder]:
    """Resolve the run: what the person named, and what the log mentions where nothing else tells."""
    request = inspection.requests[0]
    chosen, skipped, files = None, list[Skipped](), request.files
    if request.paths or request.run or request.python or request.prefix:
        gathered = gather_all(inspection, rules, environ)
        skipped, files = list(gathered.skipped), gathered.files
        chosen = max(gathered.subjects, key=lambda entry: len(next(iter(entry.roles.values()))), default=None)
    if chosen is None or not chosen.documents:
        shared = read_shared(request._replace(files=files), rules, environ)
        chosen, more, files = _gather_log(shared, log, mentions, chosen)
        skipped.extend(entry for entry in more if entry not in skipped)
    skipped.extend(entry for entry in chosen.skipped if entry.named and entry not in skipped)
    lines = LineFinder(files)
    return chosen, place_skipped(skipped, lines), lines


def _gather_log(
    shared: Shared, log: Log, mentions: Mentions, known: Subject | None
) -> tuple[Subject, list[Skipped], Files]:
    """Resolve the run from what the log says itself: the report in it, its blocks of code, and what it mentions in passing.

    Args:
        shared: what holds for every subject.
        log: the log.
        mentions: what it says in passing.
        known: what is known otherwise, of which no configuration says how it ran.
    """
    skipped: list[Skipped] = []
    files, blocks = lay_blocks(log.text, log.place, shared.files)
    shared = shared._replace(files=files)
    environment, pasted = _environment(log, mentions)
    if known is not None:
        environment, shared = known.environment, shared._replace(hardware=tuple(known.hardware))
    found = list(read_blocks(blocks, files, skipped))
    launches = [item for item in found if item.is_launch]
    kept = [item for item in found if not item.is_launch or len(launches) == 1]  # of two nobody tells which it was
    run = merge_run([InputFile(log.place, pasted), *kept], "")

    def resolve(added: tuple[Document, ...]) -> Subject:
        documents = (*shared.documents, *run.documents, *added)
        declared = environment
        for entry in run.declared:
            declared = merge_environments(declared, entry)
        return build_subject("command line" if known is None else known.id, declared, documents, shared)

    subject = resolve(())
    first = next(iter(subject.roles.values()))
    if "model.hidden_size" not in first and mentions.model is not None and shared.model is None:
        from compatcheck.frameworks.model.lookup import find_model  # noqa: PLC0415 (only for a log that names one)

        subject = resolve((find_model(mentions.model, shared.rules, {}),))
    return subject, [*shared.skipped, *skipped], files


def _environment(log: Log, mentions: Mentions) -> tuple[Environment | None, tuple[Document, ...]]:
    """Return what the log says of the environment: the report pasted into it, where there is one alone, and what it mentions.

    The second is the configuration of accelerate that such a report may hold.
    """
    packages = {name: Package(name, version, Source(log.place)) for name, version in mentions.packages.items()}
    reports = log.reports
    if len(reports) == 1:
        reported = reports[0].environment
        documents: tuple[Document, ...] = ()
        if reports[0].accelerate is not None:
            from compatcheck.frameworks.accelerate import configuration as accelerate  # noqa: PLC0415 (only for a report with one)

            documents = accelerate.read(reports[0].accelerate, log.place).documents
        return reported._replace(packages={**packages, **reported.packages}), documents
    return (Environment(log.place, packages, complete=False) if packages else None), ()


def _model_origin(subject: Subject, mentions: Mentions) -> str | None:
    facts = next(iter(subject.roles.values()))
    fact = facts.get("model.hidden_size") or facts.get("model.vocab_size") or facts.get("model.parameters")
    if fact is None:
        return None
    place = fact.sources[0].path if fact.sources else fact.origin
    named = mentions.model is not None and mentions.model in place
    return f"{place}, named in the log" if named and "model.name" not in facts else place


def _add_settings(subject: Subject, mentions: Mentions, path: str) -> dict[str, Fact]:
    """Return the facts of the run, with what the log writes of them where no input tells."""
    facts: dict[str, Fact] = {}
    for (
        role
    ) in subject.roles.values():  # what only another role states, such as the rollout's limits, holds for the run
        for name, fact in role.items():
            facts.setdefault(name, fact)
    for name, value in mentions.settings.items():
        facts.setdefault(name, Fact(name, value, "declared", (Source(path),), "as the log writes it"))
    return facts


def choose_primary(readings: Sequence[MessageReading]) -> int | None:
    """Choose the message that explains the failure: a named tensor before a tie, and what has a size before what has none."""
    order = ("named", "tied", "not_derivable", "no_size")
    real = [index for index, reading in enumerate(readings) if reading.message.memory != "none"]

    def rank(index: int) -> tuple[bool, int, int]:
        reading = readings[index]
        return reading.message.memory == "unknown", order.index(reading.outcome), index

    return min(real, key=rank, default=None)


def _findings(
    subject: Subject, facts: dict[str, Fact], rules: RuleSet, reading: MessageReading | None, text: str
) -> Iterator[Explained]:
    """Yield the findings that may explain a message, the likeliest first; ``text`` is the log in lower case."""
    if reading is None:
        return

    first = next(iter(subject.roles))
    outcome = match(subject._replace(roles={**subject.roles, first: Facts(facts)}), rules)
    related = [
        Explained(finding, _relate(finding, reading)) for finding in outcome.findings if _concerns(finding, reading)
    ]
    order = ("size", "tensor", "phase", "other")
    related.sort(
        key=lambda entry: (
            order.index(entry.relation),
            entry.finding.status != "affected",
            -severity_rank(entry.finding.severity),
            entry.finding.rule_id,
        )
    )
    if reading.place is not None or reading.outcome in {"named", "tied"} or reading.message.form not in WORDS:
        # what may be, and is of another place, is no explanation
        related = [entry for entry in related if entry.relation != "other" or entry.finding.status == "affected"]
    else:
        related = [entry for entry in related if entry.finding.status == "affected" or _is_named(entry.finding, text)]
    once = {entry.finding.rule_id: entry for entry in reversed(related)}
    yield from [entry for entry in related if once[entry.finding.rule_id] is entry][:_FINDINGS]


def _changes(
    inspection: Inspection,
    rules: RuleSet,
    environ: Mapping[str, str],
    log: Log,
    mentions: Mentions,
    subject: Subject,
) -> Iterator[ReleaseChange]:
    """Yield what enters between the two releases that the log names of a package, with all else as it is."""
    for package, pair in mentions.changes.items():
        if subject.environment is not None and package in subject.environment.packages:
            continue
        found = []
        for version in pair:
            said = mentions._replace(packages={**mentions.packages, package: version})
            assumed, _, _ = _gather(inspection, rules, environ, log, said)
            found.append({one.rule_id: one for one in match(assumed, rules).findings})
        before, after = found
        enter = sorted(
            (one for name, one in after.items() if name not in before),
            key=lambda one: (one.status != "affected", -severity_rank(one.severity), one.rule_id),
        )
        yield ReleaseChange(package, *pair, tuple(enter))


def _concerns(finding: Finding, reading: MessageReading) -> bool:
    impact = finding.impact
    if impact is None or impact.effect not in {"memory", "fails_to_start", "falls_back"} or impact.high_bytes == 0:
        return False
    if _is_of_engine(reading) and not any(name.startswith("rollout.") for name in _names(finding)):
        of_training = any(name.startswith("training.") for name in _names(finding))
        if of_training or impact.phase in {"forward", "backward", "step", "save"}:
            return False
    return impact.memory == reading.message.memory


def _is_named(finding: Finding, text: str) -> bool:
    """Tell whether a text in lower case names what a rule is about: a word of the rule's own name."""
    words = finding.rule_id.partition("/")[2].split("-")
    return any(
        len(word) >= _TOPIC and word not in _NO_TOPICS and re.search(rf"{word}(?<=\b{word})", text) for word in words
    )


def _is_of_engine(reading: MessageReading) -> bool:
    """Tell whether a message came from a serving engine."""
    return reading.message.form.startswith(("vllm-", "sglang-")) or is_of_engine(reading.message) is True


def _names(finding: Finding) -> set[str]:
    """Return the facts that a finding read, and those it would have read."""
    impact = finding.impact
    return {fact.name for fact in finding.facts} | {*finding.needs, *(() if impact is None else impact.needs)}


def _relate(finding: Finding, reading: MessageReading) -> str:
    impact, asked = finding.impact, reading.message.asked
    size = None if impact is None or impact.scope != "rank" else impact.expected_bytes
    if (
        asked is not None
        and size
        and segment_size(size) not in UNINFORMATIVE
        and prints_as(size, asked, reading.message.rounding)
    ):
        return "size"
    if reading.outcome in {"named", "tied"}:
        names = _names(finding)
        for tensor in reading.matches:
            dimensions = {name for name in tensor.facts if name.startswith("model.")}
            if dimensions and dimensions <= names:
                return "tensor"
    same = impact is not None and reading.place is not None and impact.phase == reading.place.phase
    return "phase" if same else "other"
