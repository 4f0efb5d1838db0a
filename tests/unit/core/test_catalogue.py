"""The catalogues follow the code and the rules, and a sentence is never taken for another."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from compatcheck.core.catalogue import Catalogue, Entry, open_catalogue, read_entries
from compatcheck.core.estimate import KINDS
from compatcheck.core.language import LANGUAGES
from compatcheck.reporters.explanation import split_prose
from compatcheck.reporters.figure import kind_text
from compatcheck.rules.locate import open_rules
from tests import ROOT

PACKAGE = ROOT / "compatcheck"
SPOKEN = (
    "core/headline.py",
    "core/summary.py",
    *(f"reporters/{name}.py" for name in ("text", "estimate", "fix", "fleet")),
    "memory/closed_form/unpriced.py",
    "memory/closed_form/data/unpriced.txt",
)
"""Modules whose sentences all have an entry; of others those that are read most."""
SILENT = re.compile(r"^_?(describe|format_json|format_markdown|_markdown|_cells|_describe|_OF_A_CHANGE)")
"""Functions and tables for machines, or for Markdown."""
WORDS = re.compile(r"[A-Za-z]{2,}[ ,]+[a-z]{2,}")

every_language = pytest.mark.parametrize("directory", LANGUAGES.values())


def name_of(node: ast.stmt) -> str:
    """Name a function or class, or what an assignment sets."""
    targets = getattr(node, "targets", [])
    return getattr(targets[0], "id", "") if targets else getattr(node, "name", "")


def read_literals(path: Path, *, spoken: bool = False) -> set[str]:
    """Return what stands in the strings of a module, between placeholders, without docstrings; of a table its cells."""
    if path.suffix == ".txt":
        rows = path.read_text(encoding="utf-8").partition("\n\n")[2].splitlines()
        return {cell for row in rows if not row.startswith("#") for cell in row.split(" | ")}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if spoken:
        tree.body = [node for node in tree.body if not SILENT.match(name_of(node))]
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }


def split_words(message: str) -> list[str]:
    """Return the runs of two words and more of a message: between placeholders and signs."""
    runs = re.split(r"\{\w*\}|[;:()·+→=]|, ", message)
    return [run.strip() for run in runs if WORDS.search(run)]


def placeholders_of(entries: tuple[Entry, ...]) -> set[str]:
    return {word for entry in entries for name in re.findall(r"\{(\w+)\}", entry.message) for word in name.split("_")}


def texts_of(rule_id: str) -> set[str]:
    """Return what of a rule is shown and may have an entry: title, paragraphs and items of its prose, notes of remedies."""
    rules = open_rules(())
    rule = rules.find(rule_id)
    assert rule is not None, f"there is no rule {rule_id}"
    texts = rules.texts(rule)
    notes = (remedy["note"] for remedy in texts.remedies if remedy["note"])
    prose = (part for text in (texts.what, texts.why, texts.known_problems or "") for part in split_prose(text))
    return {" ".join(text.split()) for text in (rule.title, *prose, *notes)}


@every_language
def test_every_entry_is_translated_once_with_placeholders_of_its_message(directory: str):
    for name in ("messages", "rules"):
        entries = read_entries(directory, name)
        assert len({entry.message for entry in entries}) == len(entries)
        for entry in entries:
            used, known = (re.findall(r"\{(\w+)\}", text) for text in (entry.translation, entry.message))
            assert entry.translation.strip(), entry.message
            assert set(used) <= set(known) if name == "messages" else sorted(used) == sorted(known), entry.message


@every_language
def test_every_sentence_of_the_report_has_an_entry(directory: str):
    known = "\n".join(entry.message for entry in read_entries(directory, "messages"))
    missing = {
        f"{name}: {run}"
        for name in SPOKEN
        for text in read_literals(PACKAGE / name, spoken=True)
        for run in split_words(text)
        if run not in known
    }
    assert missing == set(), "give each an entry in messages.po"


@every_language
def test_no_entry_is_left_of_a_sentence_that_is_said_no_more(directory: str):
    said = "\n".join(
        [text for path in PACKAGE.rglob("*.py") for text in read_literals(path)]
        + [path.read_text(encoding="utf-8") for path in (PACKAGE / "reporters/templates").iterdir()]
        + [" ".join(path.read_text(encoding="utf-8").split()) for path in ROOT.glob("rules/_*/*.yaml")]
        + [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("data/*.txt")]
    )
    entries = read_entries(directory, "messages")
    runs = {
        run for entry in entries if entry.context not in {"composed", "library"} for run in split_words(entry.message)
    }
    words = {
        word for entry in entries if entry.context == "composed" for word in re.findall("[a-z]{3,}", entry.message)
    }
    assert {part for part in runs | (words - placeholders_of(entries)) if part not in said} == set(), (
        "no code says this"
    )


@every_language
def test_entries_of_a_rule_are_what_it_says_now(directory: str):
    changed = {
        f"{entry.context}: {entry.message}"
        for entry in read_entries(directory, "rules")
        if entry.message not in texts_of(entry.context)
    }
    assert changed == set(), "translate anew: until then the rule speaks English"


@every_language
def test_nearly_every_rule_has_a_title_in_it(directory: str):
    """A new rule may wait for a translator: until then it speaks English."""
    known = {entry.message for entry in read_entries(directory, "rules")}
    active = [rule for rule in open_rules(()).all_rules() if rule.status == "active"]
    missing = [rule.id for rule in active if " ".join(rule.title.split()) not in known]
    assert len(missing) <= len(active) / 20, missing


@every_language
def test_no_text_of_a_rule_is_taken_for_a_sentence_of_the_program(directory: str):
    catalogue = Catalogue(read_entries(directory, "messages"))
    texts = {text for rule in open_rules(()).all_rules() for text in texts_of(rule.id)}
    assert {text for text in texts if catalogue.translate(text) != text} <= {"--flash_attn, needs flash-attn"}


@every_language
def test_a_sentence_is_known_whole_or_by_its_template(directory: str):
    tell = open_catalogue(directory).translate
    assert tell("does not start") != "does not start"
    assert "deepspeed 到 0.16.8" in tell("upgrade deepspeed to 0.16.8 (nearest good release)")
    assert tell("a sentence that nobody translated") == "a sentence that nobody translated"
    assert tell("/data/what.yaml") == "/data/what.yaml"


@every_language
def test_every_word_of_a_table_or_a_legend_is_known(directory: str):
    """Single words are translated where they stand alone; `logits` is the word in every language."""
    tell = open_catalogue(directory).translate
    kinds = [kind_text(kind) for kind in (*KINDS, "whole") if kind != "logits"]
    phases = ["forward", "backward", "step", "rollout", "log probabilities", "log probabilities 2", "forward (peak)"]
    rules = [word for rule in open_rules(()).all_rules() for word in (rule.kind, rule.confidence)]
    other = [
        "NCCL",
        "role critic",
        "replays of the caching allocator",
        "alive after backward bytes over releases of deepspeed",
    ]
    assert [word for word in dict.fromkeys((*kinds, *phases, *rules, *other)) if tell(word) == word] == []


def make(*pairs: tuple[str, str]) -> Catalogue:
    return Catalogue(tuple(Entry("", *pair) for pair in pairs))


def test_a_changed_text_of_a_rule_is_said_in_english():
    catalogue = make(("It leaks 4 bytes", "泄漏 4 字节"))
    assert catalogue.translate("It leaks 8 bytes") == "It leaks 8 bytes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3 rules wait", "3 条规则在等"),
        ("no rules wait", "no rules wait"),
        ("1.50 GiB is needed", "需要 1.50 GiB"),
        ("3 rules wait; 1.50 GiB is needed (3 rules wait)", "3 条规则在等；需要 1.50 GiB（3 条规则在等）"),
        ("a (b; c) d; 3 rules wait", "a (b; c) d；3 条规则在等"),
        ("one; two", "one; two"),
        ("It waits. 3 rules wait", "It waits. 3 rules wait"),
    ],
)
def test_placeholders_take_what_their_names_say(text: str, said: str):
    catalogue = make(
        ("{count} rules wait", "{count} 条规则在等"),
        ("{size} is needed", "需要 {size}"),
        *(("; ", "；"), (" (", "（"), (")", "）")),
    )
    assert catalogue.translate(text) == said


@every_language
def test_brackets_close_with_the_sign_that_they_open_with(directory: str):
    """A name of a file keeps its own, whatever stands around it."""
    catalogue = open_catalogue(directory)
    block = "issue.md (block at line 20).sh:46 (deepspeed)"
    for text in (
        f"not read: {block}: names 'ds.json': ds.json: no such file",
        f"not checked: {block}: names 'ds.json', which is not here: the file that LLaMA-Factory ships there is assumed",
        (
            "as planned for all findings: optimizer states on the host (a.b: cpu at acc.yaml:5), deepspeed 0.16.8, "
            "fused linear cross-entropy (Liger: needs liger-kernel) (--use_liger_kernel (train.sh:6))"
        ),
    ):
        said = catalogue.translate(text)
        assert not re.search(r"\b(the|is|as|not)\b", said), said
        assert not any(opened != closed for opened, closed in pair_brackets(said)), said
    assert block in catalogue.translate(f"not read: {block}: is empty")


def pair_brackets(text: str) -> list[tuple[str, str]]:
    """Return what opens each pair of brackets, and what should by how the pair closes."""
    opened, pairs = [], []
    for sign in text:
        if sign in "(（":
            opened.append(sign)
        elif sign in ")）":
            pairs.append((opened.pop(), {")": "(", "）": "（"}[sign]))
    return pairs
