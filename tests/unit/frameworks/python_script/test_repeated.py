"""Engines that are built one after another."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from compatcheck.frameworks.python_script.repeated import builds_again, keeps_model
from tests.unit.frameworks.python_script.test_changes import HEAD, read

if TYPE_CHECKING:
    from pathlib import Path

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
    assert builds_again(ast.parse(script), {"deepspeed.initialize"}) is again


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
    assert keeps_model(ast.parse(script), {"deepspeed.initialize"}) is kept


_ACCELERATOR = "from accelerate import Accelerator\nfrom peft import get_peft_model\n"
_MADE, _PREPARED = "accelerator = Accelerator()\n", "m, o = accelerator.prepare(m, o)\n"
_RUN = f"def run(rate):\n    {_MADE}    {_PREPARED}    accelerator.backward(m(x).loss)\n"
_TRAINER = "Trainer(model=m, args=TrainingArguments('o'), train_dataset=d)"


@pytest.mark.parametrize(
    ("script", "again"),
    [
        (f"for rate in rates:\n    {_MADE}    {_PREPARED}", True),
        (f"{_MADE}for rate in rates:\n    {_PREPARED}    accelerator.free_memory()\n", True),
        (f"{_MADE}for rate in rates:\n    m = accelerator.prepare(m)\n    accelerator.clear()\n", True),
        (f"{_RUN}for rate in rates:\n    run(rate)\n", True),
        (f"{_RUN}def main():\n    run(1)\nfor rate in rates:\n    main()\n", True),
        (f"{_RUN}def main():\n    run(1)\nmain()\n", False),
        (f"{_MADE}{_PREPARED}l = accelerator.prepare(l)\naccelerator.free_memory()\n", False),
        (f"{_RUN}notebook_launcher(run, (1,))\n", None),
        (f"{_RUN}@find_executable_batch_size\ndef main():\n    run(1)\nmain()\n", None),
        (f"{_MADE}for name in loaders:\n    loaders[name] = accelerator.prepare(loaders[name])\n", None),
        (f"{_TRAINER}.train()\n", False),
        (f"def main():\n    t = {_TRAINER}\n    t.train()\nif __name__ == '__main__':\n    main()\n", False),
        (f"for d in data:\n    t = {_TRAINER}\n    t.train()\n", True),
        (f"for d in data:\n    t = {_TRAINER}\n    ts.append(t)\n", None),
        (f"def objective(trial):\n    t = {_TRAINER}\nstudy.optimize(objective)\n", None),
    ],
)
def test_what_trains_is_built_again(script: str, again: object, tmp_path: Path) -> None:
    fact = read(tmp_path, HEAD + _ACCELERATOR + script).roles["train"].get("run.repeated_initialize")
    assert (None if fact is None else fact.value) is again
