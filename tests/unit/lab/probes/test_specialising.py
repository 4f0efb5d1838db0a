"""A program of one run does what the whole one does with these parameters."""

from __future__ import annotations

import contextlib
import io

import pytest

from compatcheck.lab.probes.shortening import shorten
from compatcheck.lab.probes.specialising import specialise

PROGRAM = """
_KNOWN = ("sft", "dpo")

def run(parameters):
    begin = {"loop": _loop, "free": _free}.get(parameters["trainer"], _train)
    shown = list(begin(parameters))
    if parameters["trainer"] == "loop":
        return shown + ["a loop"]
    return shown + [_part(parameters), _size(parameters), _other({**parameters, "trainer": "free"}), _changed(parameters)]

def _train(parameters):
    kind, twice = parameters["trainer"], 2
    if kind in (*_KNOWN, "hf"):
        yield f"{kind} is known" if not parameters["fast"] else "fast"
    elif kind == "none":
        return
    else:
        for _ in range(twice):
            yield "unknown"
    for name in ("a", "b"):
        yield name

def _loop(parameters):
    if parameters["fast"]:
        return
    yield "slow loop"

def _free(parameters):
    return ["free"] if parameters["trainer"] == "free" and parameters["size"] > 1 else []

def _part(parameters):
    if parameters["size"] > 2:
        return "many"
    start = parameters["trainer"][:1]
    return ["a"][0], {"sft": "chosen", "hf": "other"}.get(start, ""), {"s": 1, "h": 2, "n": 3, "l": 4, "f": 5, "e": 6}[start]

def _size(parameters):
    def inner(trainer):
        return trainer == parameters["trainer"] or parameters["fast"]
    return inner("dpo"), parameters["size"] and not parameters["fast"]

def _other(parameters):
    return parameters["trainer"]

def _changed(parameters):
    parameters = {**parameters, "trainer": "changed"}
    return parameters["trainer"]

if __name__ == "__main__":
    parameters = dict(VALUES)
    print(run(parameters))
"""


def run(source: str, values: dict[str, object]) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(source, "program", "exec"), {"__name__": "__main__", "VALUES": values})  # noqa: S102
    return shown.getvalue()


@pytest.mark.parametrize("trainer", ["sft", "hf", "none", "loop", "free", "else"])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("size", [0, 2])
def test_it_does_what_the_whole_one_does(trainer: str, size: int, *, fast: bool) -> None:
    values: dict[str, object] = {"trainer": trainer, "fast": fast, "size": size}
    assert run(shorten(specialise(PROGRAM, "parameters", values)), values) == run(PROGRAM, values)


def test_what_the_parameters_decide_against_is_gone() -> None:
    short = shorten(specialise(PROGRAM, "parameters", {"trainer": "sft", "fast": False, "size": 2}))
    assert "_loop" not in short
    assert "_free" not in short
    assert "(['a'][0], '', 1)" in short.replace('"', "'")
    assert "many" not in short
    assert "yield f'{'sft'} is known'" in short.replace('"', "'")
    assert "unknown" not in short
    assert "parameters['trainer']" in short.partition("def _other")[2], "it is called with others"
