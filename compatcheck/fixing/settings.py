"""Settings that a remedy names or the memory model proposes, as changes of files; each is proved by reading the new text."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from compatcheck.core.effects import CHANGES_TRAINING, UNTIMED
from compatcheck.core.fix import SETTING, Change, write_value
from compatcheck.core.source import Source
from compatcheck.core.summary import value_text
from compatcheck.fixing.edits.configuration_text import (
    add_argument,
    add_value,
    change_option,
    change_value,
    describe_edit,
    drop_switch,
    replace_switch,
)
from compatcheck.fixing.edits.python_text import edit_argument
from compatcheck.fixing.evaluation import resolve_changed
from compatcheck.fixing.rereading import is_of_allocator, reread, reread_variables
from compatcheck.frameworks.keys import Expression, find_keys
from compatcheck.matching.engine import never_runs
from compatcheck.matching.remedies import DESCRIBED, condition_of
from compatcheck.resolution.pins import read_pins
from compatcheck.resolution.scope import FactScope
from compatcheck.resolution.settings import settings_of
from compatcheck.resolution.spelling import find_spellings, is_own_code
from compatcheck.rules.programs import lineage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from compatcheck.core.document import Document
    from compatcheck.core.facts import Fact, Value
    from compatcheck.core.fix import TextEdit
    from compatcheck.core.report import Finding
    from compatcheck.fixing.files import EditableFiles
    from compatcheck.resolution.spelling import Spelling
    from compatcheck.resolution.subject import Subject
    from compatcheck.rules.database import RuleSet

DISTANCE = (0, 0, 1)
"""A setting goes less far than any release."""

_STATED = frozenset({"configuration", "script"})
"""Origins of facts that a file of the run states."""


def find_settings(subject: Subject, finding: Finding, rules: RuleSet, files: EditableFiles) -> Iterator[Change]:
    """Yield the settings that the remedies of a finding advise and that the run has a place for."""
    rule = rules.find(finding.rule_id)
    scope = FactScope(subject.roles[finding.role], subject.environment, rules)
    for remedy in () if rule is None else rules.texts(rule).remedies:
        target = remedy["target"]
        if remedy["verb"] != "set" or any(name.startswith(DESCRIBED) for name in target):
            continue
        if not condition_of(remedy, scope):  # what is not known does not speak against it
            continue
        change = find_setting(subject, finding.role, target, remedy["safety"], remedy["note"], rules, files)
        if change is not None and change.written:
            yield change


def find_setting(  # noqa: PLR0913, PLR0917 (a remedy, and what it is written into)
    subject: Subject,
    role: str,
    target: Mapping[str, Value],
    safety: str,
    note: str | None,
    rules: RuleSet,
    files: EditableFiles,
) -> Change | None:
    """Return what a remedy sets as a change of the run's files; None where no key of the run states it."""
    from compatcheck.memory.suggest import candidates  # noqa: PLC0415 (only for what is advised)

    safe = safety == "safe"
    (name, value), *_ = target.items()
    priced = (one.effect for one in candidates(subject.roles) if safe and target.items() <= one.facts.items())
    change = Change(
        SETTING,
        name,
        None,
        value,
        frozenset({subject.id}),
        next(priced, UNTIMED if safe else CHANGES_TRAINING),
        DISTANCE,
        "the rule calls it safe" if safe else "the rule says that it changes more than memory",
        facts=tuple(target.items()),
        note=note,
        installs=_find_missing(subject, target, rules),
    )
    return find_place(subject, role, change, rules, files)


def find_smaller_settings(subject: Subject, rules: RuleSet, files: EditableFiles) -> Iterator[Change]:
    """Yield the settings of a run that may lower its peak, as the memory model proposes them, where the run has a place."""
    from compatcheck.memory.suggest import candidates  # noqa: PLC0415 (only for a run that does not fit)

    role = next((name for name in ("train", "actor") if name in subject.roles), next(iter(subject.roles)))
    for index, one in enumerate(candidates(subject.roles)):
        name = next(iter(one.facts))
        own = subject.roles.values() if one.role is None else (subject.roles[one.role],)
        facts = next((facts for facts in own if name in facts), None)
        before = None if facts is None else value_text(facts[name].value)
        why, note = "the run needs less memory", one.note or None
        distance = (0, 0, index)
        subjects, changed = frozenset({subject.id}), tuple(one.facts.items())
        value = one.facts[name]
        change = Change(
            SETTING,
            name,
            before,
            value,
            subjects,
            one.effect,
            distance,
            why,
            changed,
            one.words,
            note=note,
            role=one.role,
            installs=_find_missing(subject, one.facts, rules),
        )
        placed = find_place(subject, one.role or role, change, rules, files)
        if placed is not None and (one.role is None or placed.edits):  # a fact by itself is one of every model
            yield placed


_NEEDED: Mapping[tuple[str, Value], str] = {
    ("model.attn_implementation", "flash_attention_2"): "flash-attn",
    ("model.quantization", "nf4"): "bitsandbytes",
    ("rollout.engine", "vllm"): "vllm",
    ("training.optimizer", "adamw_8bit"): "bitsandbytes",
    ("training.sharding", "zero"): "deepspeed",
    ("training.use_liger_kernel", True): "liger-kernel",
}
"""Settings and the distribution that they need."""


def _list_needed(facts: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_NEEDED[fact] for fact in facts.items() if fact in _NEEDED))


def _find_missing(subject: Subject, facts: Mapping[str, Value], rules: RuleSet) -> tuple[str, ...]:
    """Name the distributions that settings need and that neither the environment lists nor a package in it requires."""
    needed = _list_needed(facts)
    environment = subject.environment
    if environment is None or not needed:
        return ()
    listed = environment.packages.items()
    required = {name for holder, one in listed for name in read_pins(holder, rules).get(one.version or "", ())}
    return tuple(name for name in needed if name not in environment.packages and name not in required)


def find_place(subject: Subject, role: str, change: Change, rules: RuleSet, files: EditableFiles) -> Change | None:
    """Return a setting as the run's own files state it.

    Returns:
        With the edits of its files, read again and found to state it; with the keys alone where a hand has to make them; as
        it is where options of ours or code of the user's own state it; None where nothing of the run does.
    """
    documents, facts = subject.documents, subject.roles[role]
    declared = any(
        _is_declared(fact) and not any(_propose_option(fact, value, files))
        for name, value in change.facts
        for fact in [facts.get(name)]
    )
    if declared or not documents:
        return change
    described = [facts[name] for name, _ in change.facts if name.startswith(DESCRIBED) and name in facts]
    if described:  # nodes that a key of the run asks for are asked for there
        asked = any(fact.origin in _STATED for fact in described)
        placed = _find_in_files(subject, role, change, rules, files) if asked else None
        return placed if placed is not None and placed.edits else change
    return _find_in_files(subject, role, change, rules, files)


def _find_in_files(subject: Subject, role: str, change: Change, rules: RuleSet, files: EditableFiles) -> Change | None:
    documents = subject.documents
    edits: list[TextEdit] = []
    written: list[tuple[str, str]] = []
    proved = True
    edited: dict[tuple[TextEdit, ...], Subject | None] = {(): subject}

    def states(name: str, value: Value, *edits: TextEdit) -> bool:
        """Tell whether the edited files give a fact this value, and bring in no contradiction."""
        if edits not in edited:
            read = reread(documents, edits)
            there = subject._replace(environment=reread_variables(subject.environment, edits))
            edited[edits] = None if read is None else resolve_changed(there, (), rules, read)
        after = edited[edits]
        facts = None if after is None else after.roles.get(role)
        if after is None or facts is None or name not in facts or facts[name].value != value:
            return False
        return {one.fact for one in after.conflicts} <= {one.fact for one in subject.conflicts}

    def keeps(*edits: TextEdit) -> bool:
        """Tell whether the edited files give every other fact that was stated the value it has."""
        after, own = edited[edits], {name for name, _ in change.facts}
        return after is not None and all(
            name in own or after.roles[role][name].value == fact.value
            for name, fact in subject.roles[role].items()
            if fact.origin in _STATED and name in after.roles[role] and after.roles[role][name].origin in _STATED
        )

    for name, value in change.facts:
        if states(name, value, *edits):
            continue
        proposed = list(dict.fromkeys(_propose(subject, role, name, value, rules, files)))
        stating = (some for some in _combine(proposed) if states(name, value, *edits, *some))
        first = next(stating, ())
        kept = (some for some in itertools.chain([first], stating) if keeps(*edits, *some))
        found = next(kept, first) if first else first  # rather the one that states nothing else anew
        if found:
            edits += found
            written += ((files.place_of_setting(edit), describe_edit(files.texts[edit.path], edit)) for edit in found)
            continue
        spelled = _spell_by_hand(subject, role, name, value, rules, files)
        if spelled is not None:
            proved = False
            written.append(spelled)
    stated = subject.roles[role].get(change.name)
    if not proved or not edits or not all(states(*fact, *edits) for fact in change.facts):
        if not is_own_code(documents) and (proved or not written):
            return None
        if not written and any(_has_other_key(documents, name, value, role) for name, value in change.facts):
            return None
        now = stated is not None and stated.origin in _STATED and value_text(stated.value)
        by_hand = change._replace(before=change.before or now or None)
        return by_hand._replace(places=tuple(place for place, _ in written), written=tuple(text for _, text in written))
    after = edited[tuple(edits)]
    needed = _list_needed(dict(change.facts))
    if after is None or never_runs(needed, FactScope(after.roles[role], after.environment, rules)):
        return None
    ours = stated is not None and (_is_declared(stated) or len({edit.path for edit in edits}) > 1)
    before = value_text(stated.value) if stated is not None and ours else files.text_before(edits[0])
    alone = _is_alone(change, after)
    listed = {name: edit for name in change.installs if (edit := files.list_requirement(name)) is not None}
    written += ((files.place_of_setting(edit), name) for name, edit in listed.items())
    return change._replace(
        before=change.before or before,
        role=change.role or (role if alone else None),
        edits=tuple(edits),
        listings=tuple(listed.values()),
        places=tuple(place for place, _ in written),
        written=tuple(text for _, text in written),
    )


def _is_alone(change: Change, after: Subject) -> bool:
    """Tell whether another model has not got what an edit states, which ``--set`` would state of it."""
    stated = {name: (value, Source("--set", name)) for name, value in change.facts}
    return any(
        name not in facts or facts[name].value != value
        for role, facts in after.roles.items()
        for name, (value, _) in settings_of(role, stated).items()
    )


_MOST_COMBINED = 32
"""Edits of several files that are tried together; reading the files again takes about 12 ms."""


def _combine(edits: Sequence[TextEdit]) -> Iterator[tuple[TextEdit, ...]]:
    """Yield each edit by itself, then one of each file: where two files state a fact, both may have to say something else."""
    yield from ((edit,) for edit in edits)
    by_file: dict[str, list[TextEdit]] = {}
    for edit in edits:
        by_file.setdefault(edit.path, []).append(edit)
    if len(by_file) > 1:
        yield from itertools.islice(itertools.product(*by_file.values()), _MOST_COMBINED)


def _propose_option(fact: Fact | None, value: Value, files: EditableFiles) -> Iterator[TextEdit]:
    """Yield edits of what a launch script asks of the allocator."""
    for source in () if fact is None else filter(is_of_allocator, fact.sources):
        text = files.text(source.path) if os.path.isfile(source.path) else None
        if text is not None and fact is not None:
            yield from change_option(source.path, text, source.key or "", fact.name.rpartition(".")[2], value)


def _has_other_key(documents: Iterable[Document], name: str, value: Value, role: str) -> bool:
    """Tell whether a program has a key for a fact, in a release that is not the one here: code cannot state it either.

    A facts file has a key for every fact; ``model: NAME`` has no room for one of the model's.
    """
    programs = (document for document in documents if document.reader != "native")
    return any(True for document in programs for _ in find_keys(document.table, name, value, role))


def _takes(documents: Iterable[Document], key: str, name: str, value: Value, role: str) -> bool:
    """Tell whether a fact's value is one that its key may have in a file: not of a switch that stands for another value."""
    tables = [one.table for one in documents if key in one.table]
    return not tables or any((key, value) in find_keys(one, name, value, role) for one in tables)


def _is_declared(fact: Fact | None) -> bool:
    return fact is not None and fact.origin in {"set", "declared", "installed", "measured"}


def _spell_by_hand(
    subject: Subject, role: str, name: str, value: Value, rules: RuleSet, files: EditableFiles
) -> tuple[str, str] | None:
    """Return where a person states a fact, and in which words: in the file that states it now, if there is one.

    Stated in another, the two would disagree, as a DeepSpeed file and the trainer's own arguments do.
    """
    facts = subject.roles[role]
    fact = facts.get(name)
    stated = set() if fact is None else {source.path for source in fact.sources}
    keys = set() if fact is None else {(source.path, source.key) for source in fact.sources}
    scope = FactScope(facts, subject.environment, rules)
    documents = [one for one in subject.documents if one.reader not in {"native", "model"}]
    spellings = find_spellings(documents, name, value, role, scope)
    known = [
        one
        for one in spellings
        if (one.document.source.path, one.key) in keys or not (one.is_inside and _takes_options(one.document, files))
    ]
    if fact is not None and fact.origin in _STATED:
        stated_by_others = stated - {one.document.source.path for one in known}
        if stated_by_others:
            return None  # what stands there holds, whatever another file says

    def rank(one: Spelling) -> tuple[bool, bool]:
        """Put the key that states it now first, then others of its file."""
        path = one.document.source.path
        return (path, one.key) not in keys, path not in stated

    spelled = min(known, key=rank, default=None)
    if spelled is None:
        return None
    source = next((one for one in fact.sources if one.path == spelled.document.source.path), None) if fact else None
    source = source or spelled.document.place(spelled.key)
    place = source.path if source.line is None else f"{source.path}:{source.line}"
    if source.path.endswith(".py"):
        needed = f", and {spelled.value.imports}" if isinstance(spelled.value, Expression) else ""
        return place, "=".join(spelled.written) + needed
    if _takes_options(spelled.document, files) and not spelled.is_entry:
        key, value = spelled.written if spelled.is_inside else (spelled.key, write_value(spelled.value))
        return place, f"--{key} {value}"
    sign = "=" if spelled.document.is_command and not spelled.is_inside else ": "
    return place, f"{spelled.name}{sign}{write_value(spelled.value)}"


def _takes_options(document: Document, files: EditableFiles) -> bool:
    """Tell whether a command is given ``--key value``, not ``key=value``: as it is written, or as its program takes it."""
    path = document.source.path
    if not document.is_command or not os.path.isfile(path):
        return False
    text = (files.text(path) or "").replace("-", "_")
    if any(f"__{key}" in text for key in document.lines):
        return True
    pairs = any(one.takes_overrides or one.takes_pairs for one in lineage(document.reader))
    return not (pairs or any(f"{key}=" in text for key in document.lines))


def _propose(
    subject: Subject, role: str, name: str, value: Value, rules: RuleSet, files: EditableFiles
) -> Iterator[TextEdit]:
    """Yield edits that may state a fact: of the value where it stands, then of each key that can."""
    facts = subject.roles[role]
    fact = facts.get(name)
    spellings = list(find_spellings(subject.documents, name, value, role, FactScope(facts, subject.environment, rules)))
    values = list(dict.fromkeys((spelled.key, spelled.value) for spelled in spellings))
    yield from _propose_option(fact, value, files)
    for source in () if fact is None else fact.sources:
        text = files.text(source.path) if source.key and os.path.isfile(source.path) else None
        for key in dict.fromkeys((source.key or "", (source.key or "").removeprefix("deepspeed."))):
            own = [value] if _takes(subject.documents, key, name, value, role) else []
            for new in dict.fromkeys([*(given for known, given in values if known == key), *own]):
                edit = None if text is None else change_value(source.path, text, key, new, source.line)
                if edit is not None:
                    yield edit
        if text is not None and value is False:
            yield from drop_switch(source.path, text, source.key or "", source.line)
        for spelled in spellings:
            if text is not None and spelled.value is True and spelled.document.source.path == source.path:
                edit = replace_switch(source.path, text, source.key or "", spelled.key, source.line)
                yield from () if edit is None else (edit,)
    for spelled in spellings:
        path = spelled.document.source.path
        text = files.text(path) if os.path.isfile(path) else None
        if text is not None and path.endswith(".py"):
            calls, key = spelled.document.calls, spelled.key
            line = calls.get(key.partition(".")[0], calls.get(""))
            yield from edit_argument(path, text, key, spelled.value, line)
        elif text is not None:
            line = spelled.document.lines.get(spelled.key)
            stands = line is not None or not spelled.document.is_command
            edit = change_value(path, text, spelled.key, spelled.value, line) if stands else None
            yield from () if edit is None else (edit,)
            edit = add_value(path, text, spelled.key, spelled.value)
            yield from (
                add_argument(path, text, spelled.name, spelled.value, spelled.document) if edit is None else (edit,)
            )
