"""Settings that a rule's remedy names, as changes of the file that has them; each is proved by reading the new text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Overlay
from compatcheck.fixing.edits.configuration_text import add_value, change_value
from compatcheck.fixing.edits.text import apply_edits
from compatcheck.fixing.problem import Setting
from compatcheck.frameworks.recognise import read_configurations
from compatcheck.matching.remedies import key_of
from compatcheck.resolution.scope import FactScope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Value
    from compatcheck.core.report import Finding
    from compatcheck.fixing.edits.text import TextEdit
    from compatcheck.fixing.files import Files
    from compatcheck.fixing.problem import Case
    from compatcheck.rules.database import RuleSet


DESCRIBED = ("run.", "hardware.", "environment.")
"""Facts that say how things are: a file that states them describes the run, and another value would only describe it wrongly."""

NATIVE_NOTE = "the facts file describes the run: change it where the run is configured too"


def find_settings(
    case: Case, findings: Iterable[Finding], rules: RuleSet, files: Files
) -> Iterator[tuple[Setting, tuple[TextEdit, ...]]]:
    """Yield the settings that the remedies of these findings advise and that a file of the subject can be given."""
    seen: set[str] = set()
    for finding in findings:
        rule = rules.find(finding.rule_id)
        for remedy in () if rule is None else rules.texts(rule).remedies:
            target = remedy["target"]
            # One fact at a time: two would have to be proved together, and no remedy has two that are keys of a file.
            if remedy["verb"] != "set" or len(target) != 1:
                continue
            ((name, value),) = target.items()
            if name.startswith(DESCRIBED):
                continue
            edit = _find_edit(case, finding.role, name, value, rules, files)
            if edit is None:
                continue
            axis = f"{edit.path}#{edit.start}={edit.new.strip()}"
            if axis not in seen:
                seen.add(axis)
                subjects = frozenset({case.subject.id})
                native = any(one.reader == "native" and one.source.path == edit.path for one in case.subject.documents)
                note = "; ".join(filter(None, [remedy["note"], NATIVE_NOTE if native else None])) or None
                yield Setting(axis, {name: value}, subjects, remedy["safety"] == "safe", note), (edit,)


def _find_edit(case: Case, role: str, name: str, value: Value, rules: RuleSet, files: Files) -> TextEdit | None:
    """Return the first edit that gives a fact a value, as reading the file again shows."""
    for edit in _propose(case, role, name, value, rules, files):
        if _proves(case, role, name, value, edit, rules, files):
            return edit
    return None


def _propose(case: Case, role: str, name: str, value: Value, rules: RuleSet, files: Files) -> Iterator[TextEdit]:
    facts = case.subject.roles[role]
    values: Sequence[Value] = (value, not value) if isinstance(value, bool) else (value,)
    fact = facts.get(name)
    for source in () if fact is None or fact.origin in {"set", "installed", "measured", "declared"} else fact.sources:
        text = files.text(source.path) if source.key and os.path.isfile(source.path) else None
        for new in values if text is not None else ():
            for key in dict.fromkeys((source.key or "", (source.key or "").removeprefix("deepspeed."))):
                edit = change_value(source.path, text or "", key, new, source.line)
                if edit is not None:
                    yield edit
    own = key_of(name, FactScope(facts, case.subject.environment, rules))
    for document in case.subject.documents:
        path = document.source.path
        content = files.text(path) if os.path.isfile(path) and document.reader != "model" else None
        written = name if document.reader == "native" else own
        if content is not None and written is not None:
            edit = add_value(path, content, written, value)
            if edit is not None:
                yield edit


def _proves(  # noqa: PLR0913, PLR0917 (what is changed, and what it takes to read it again)
    case: Case, role: str, name: str, value: Value, edit: TextEdit, rules: RuleSet, files: Files
) -> bool:
    after = apply_edits({edit.path: files.texts[edit.path]}, [edit])
    try:
        readings = read_configurations(
            edit.path, Overlay(LOCAL, {path: text.encode("utf-8") for path, text in after.items()}), named=True
        )
    except InputError:
        return False
    new = [document for reading in readings for document in reading.documents]
    documents = _exchange(case.subject.documents, edit.path, new)
    if documents is None:
        return False
    changed = case._replace(subject=case.subject._replace(documents=documents)).change(rules, {}, {})
    facts = changed.roles.get(role)
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
