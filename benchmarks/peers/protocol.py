"""How the comparison asks a peer: questions go into its own interpreter as JSON, answers come out the same way.

An adapter is one module, imported by the comparison for `express` and run by the peer's interpreter for `answer`; it imports the
peer only inside `answer`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Question(NamedTuple):
    """A run in the words of one peer."""

    inputs: dict[str, Any]
    left_out: tuple[str, ...] = ()
    """Parts of the run that the peer has no input for."""
    documented: bool = True
    """Whether its documentation leads there. False: asked through a field of its code that no documented input sets, or with an
    input used for what it is not documented for."""


class Inexpressible(NamedTuple):
    """A run that a peer cannot be asked about."""

    reason: str


MARK = "answers: "
"""Begins the line of answers; whatever else a peer prints is ignored."""


def answer_all(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the questions on stdin, one JSON object each; an exception is an answer too."""
    answers = []
    for inputs in json.load(sys.stdin):
        try:
            answers.append(answer(inputs))
        except Exception as error:  # noqa: BLE001 (what a peer raises is its answer)
            answers.append({"error": f"{type(error).__name__}: {error}"})
    print(MARK + json.dumps(answers))
