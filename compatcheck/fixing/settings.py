"""Settings that a remedy names or the memory model proposes, as changes of files; each is proved by reading the new text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.effects import CHANGES_TRAINING, SLOWER
from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Overlay
from compatcheck.core.fix import SETTING, Change
from compatcheck.core.summary import value_text
from compatcheck.fixing.edits.configuration_text import add_value, change_value
from compatcheck.fixing.edits.text import apply_edits
from compatcheck.fixing.evaluation import resolve_changed
from compatcheck.frameworks.recognise import read_configurations
from compatcheck.matching.remedies import key_of
from compatcheck.memory.suggest import candidates
from compatcheck.resolution.scope import FactScope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Value
    from compatcheck.core.fix import TextEdit
    from compatcheck.core.report import Finding
    from compatcheck.fixing.files import EditableFiles
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

DISTANCE = (0, 0, 1)
"""A setting goes less far than any release."""

DESCRIBED = ("run.", "hardware.", "environment.")
"""Facts that say how things are: a file that states them describes the run, and another value would only describe it wrongly."""

NATIVE_NOTE = "the facts file describes the run: change it where the run is configured too"


def find_settings(subject: Subject, finding: Finding, rules: RuleSet, files: EditableFiles) -> Iterator[Change]:
    """Yield the settings that the remedies of a finding advise and that a file of its subject can be given."""
    rule = rules.find(finding.rule_id)
    for remedy in () if rule is None else rules.texts(rule).remedies:
        target = remedy["target"]
        # One fact at a time: two would have to be proved together, and no remedy has two that are keys of a file.
        if remedy["verb"] != "set" or len(target) != 1:
            continue
        ((name, value),) = target.items()
        if name.startswith(DESCRIBED):
            continue
        safe = remedy["safety"] == "safe"
        change = Change(
            SETTING,
            name,
            None,
            value,
            frozenset({subject.id}),
            SLOWER if safe else CHANGES_TRAINING,
            DISTANCE,
            "the rule calls it safe" if safe else "the rule says that it changes more than memory",
            facts=((name, value),),
            note=remedy["note"],
        )
        change = find_edit(subject, finding.role, change, rules, files)
        if change.edits or key_of(name, FactScope(subject.roles[finding.role], subject.environment, rules)):
            yield change


def find_smaller_settings(subject: Subject) -> Iterator[Change]:
    """Yield the settings of a run that may lower its peak, as the memory model proposes them."""
    for index, one in enumerate(candidates(subject.roles)):
        name = next(iter(one.facts))
        facts = next((facts for facts in subject.roles.values() if name in facts), None)
        before = None if facts is None else value_text(facts[name].value)
        why, note = "the run needs less memory", one.note or None
        distance = (0, 0, index)
        subjects, changed = frozenset({subject.id}), tuple(one.facts.items())
        value = one.facts[name]
        yield Change(SETTING, name, before, value, subjects, one.effect, distance, why, changed, one.words, note=note)


def find_edit(subject: Subject, role: str, change: Change, rules: RuleSet, files: EditableFiles) -> Change:
    """Return a setting with its place in a file and the text that states it there; as it is where no file can."""
    if len(change.facts) != 1:
        return change
    name, value = change.name, change.value
    proposed = _propose(subject, role, name, value, rules, files)
    edit = next((edit for edit in proposed if _proves(subject, role, name, value, edit, rules, files)), None)
    if edit is None:
        return change
    place, before = files.place_of_setting(edit)
    native = any(one.reader == "native" and one.source.path == edit.path for one in subject.documents)
    note = "; ".join(filter(None, [change.note, NATIVE_NOTE if native else None])) or None
    return change._replace(before=before, edits=(edit,), places=(place,), note=note)


def _propose(
    subject: Subject, role: str, name: str, value: Value, rules: RuleSet, files: EditableFiles
) -> Iterator[TextEdit]:
    facts = subject.roles[role]
    values: Sequence[Value] = (value, not value) if isinstance(value, bool) else (value,)
    fact = facts.get(name)
    for source in () if fact is None or fact.origin in {"set", "installed", "measured", "declared"} else fact.sources:
        text = files.text(source.path) if source.key and os.path.isfile(source.path) else None
        for new in values if text is not None else ():
            for key in dict.fromkeys((source.key or "", (source.key or "").removeprefix("deepspeed."))):
                edit = change_value(source.path, text or "", key, new, source.line)
                if edit is not None:
                    yield edit
    own = key_of(name, FactScope(facts, subject.environment, rules))
    for document in subject.documents:
        path = document.source.path
        content = files.text(path) if os.path.isfile(path) and document.reader != "model" else None
        written = name if document.reader == "native" else own
        if content is not None and written is not None:
            edit = add_value(path, content, written, value)
            if edit is not None:
                yield edit


def _proves(  # noqa: PLR0913, PLR0917 (what is changed, and what it takes to read it again)
    subject: Subject, role: str, name: str, value: Value, edit: TextEdit, rules: RuleSet, files: EditableFiles
) -> bool:
    after = apply_edits({edit.path: files.texts[edit.path]}, [edit])
    try:
        readings = read_configurations(
            edit.path, Overlay(LOCAL, {path: text.encode("utf-8") for path, text in after.items()}), named=True
        )
    except InputError:
        return False
    new = [document for reading in readings for document in reading.documents]
    documents = _exchange(subject.documents, edit.path, new)
    if documents is None:
        return False
    facts = resolve_changed(subject, (), rules, documents).roles.get(role)
    return facts is not None and name in facts and facts[name].value == value


def _exchange(documents: Sequence[Document], path: str, new: Sequence[Document]) -> tuple[Document, ...] | None:
    """Put what a file reads as now in the place of what it read as; None where it reads as something else."""
    result = []
    for document in documents:
        if document.source.path != path:
            result.append(document)
            continue
        place = (document.reader, document.source.line)
        match = [one for one in new if (one.reader, one.source.line) == place]
        if len(match) != 1:
            return None
        result.append(match[0])
    return tuple(result)
