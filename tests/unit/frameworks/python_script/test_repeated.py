"""Engines that are built one after another."""

from __future__ import annotations

import ast

import pytest

from compatcheck.frameworks.python_script.repeated import builds_again, keeps_model

_BUILD = "engine, *_ = deepspeed.initialize(model=m)\n"


@pytest.mark.parametrize(
    ("script", "again"),
    [
        (f"for run in range(3):\n    {_BUILD}    engine.destroy()\n", True),
        (f"while left:\n    {_BUILD}    del engine\n", True),
        (f"for run in range(3):\n    if run:\n        {_BUILD}    engine.destroy()\n", True),
        (_BUILD, False),
        (f"def main():\n    {_BUILD}main()\n", False),
        (f"def main():\n    {_BUILD}for x in y:\n    main()\n", None),
        (f"def main():\n    {_BUILD}train(main)\n", None),
        (f"for m in models:\n    {_BUILD}    engines.append(engine)\n", None),
        (f"for m in models:\n    {_BUILD}    del batch\n", None),
        (_BUILD + "critic = deepspeed.initialize(model=c)[0]\n", None),
        ("engines = [deepspeed.initialize(model=m)[0] for m in models]\n", None),
        ("print(1)\n", None),
    ],
)
def test_an_engine_is_built_again(script: str, again: object) -> None:
    assert builds_again(ast.parse(script), "deepspeed.initialize") is again


_ROUND = f"    {_BUILD}    engine.destroy()\n"


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        (f"m = load()\nfor run in range(3):\n{_ROUND}", True),
        (f"for run in range(3):\n    m = AutoModel.from_pretrained('n')\n{_ROUND}", False),
        (f"for run in range(3):\n    m = Net(run)\n{_ROUND}", False),
        (f"for run in range(3):\n    m = load(run)\n{_ROUND}    del m\n", False),
        (f"for run in range(3):\n    m = load(run)\n{_ROUND}", None),
        (f"for m in models:\n{_ROUND}", None),
        (f"for run in range(3):\n    m = Net(run)\n    models.append(m)\n{_ROUND}", None),
        ("for x in y:\n    engine = deepspeed.initialize(model=Net(x))[0]\n    engine.destroy()\n", False),
        ("for x in y:\n    engine = deepspeed.initialize(Net(x))[0]\n    engine.destroy()\n", False),
        ("for x in y:\n    engine = deepspeed.initialize(model=self.m)[0]\n    engine.destroy()\n", None),
        (_BUILD, None),
    ],
)
def test_a_model_outlives_its_engine(script: str, kept: object) -> None:
    assert keeps_model(ast.parse(script), "deepspeed.initialize") is kept
