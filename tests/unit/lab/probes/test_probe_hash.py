"""The hash of a probe: what it does, not what is said about it."""

from __future__ import annotations

import pytest

from compatcheck.lab.probes.fingerprint import hash_code

PROBE = '''"""What is measured."""

SIZES = ({}, {"layers": 2})
CHOICES: dict = {"mask": ("none",)}


def run(parameters, recorder):
    """Run it."""
    text = f"{parameters['layers']:>{4}} a" "b"
    recorder.result("bytes", 1.5 if parameters else None)  # a note
    return text
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What is measured.", "What is really measured."),
        ('    """Run it."""\n', ""),
        ("  # a note", ""),
        ('{"layers": 2}', '{"layers": 3}'),
        ('("none",)', '("none", "ones")'),
        ("\n\ndef", "\n\n\n\ndef"),
        ("SIZES = ({}, {", "SIZES = (\n    {},\n    {"),
    ],
)
def test_words_and_what_may_be_asked_for_do_not_count(old: str, new: str) -> None:
    assert old in PROBE
    assert hash_code([PROBE.replace(old, new)]) == hash_code([PROBE])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1.5", "1"),
        ("None", '"None"'),
        (">{4}", "<{4}"),
        ("recorder.result", "recorder.note"),
        ('"bytes"', '""'),
        ("SIZES =", "STEPS ="),
    ],
)
def test_what_runs_counts(old: str, new: str) -> None:
    assert old in PROBE
    assert hash_code([PROBE.replace(old, new)]) != hash_code([PROBE])


def test_shared_files_count_and_so_does_their_order() -> None:
    assert len({hash_code(sources) for sources in (["a = 1"], ["a = 1", "b = 1"], ["b = 1", "a = 1"])}) == 3


def test_every_python_finds_the_same_hash() -> None:
    """Found with CPython 3.10.13, 3.11.2, 3.12.1 and 3.13.0, whose ``ast.dump`` differ."""
    assert hash_code([PROBE]) == "07c4d3264679"
