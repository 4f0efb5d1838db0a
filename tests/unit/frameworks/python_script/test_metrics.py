"""What a script's Trainer makes of the predictions of an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.frameworks.python_script.test_changes import HEAD, TRAIN, read

if TYPE_CHECKING:
    from pathlib import Path

_METRICS, _COLLECTS = "training.compute_metrics", "program.collects_predictions"


def _train(given: str) -> str:
    return HEAD + TRAIN.replace("train_dataset=ds", f"train_dataset=ds{given}")


@pytest.mark.parametrize(
    ("text", "computes", "collects"),
    [
        (_train(""), False, True),
        (_train(", compute_metrics=score"), True, True),
        (_train(", compute_metrics=None"), False, True),
        (_train(", compute_metrics=score, preprocess_logits_for_metrics=argmax"), True, False),
        (_train(", compute_metrics=score, preprocess_logits_for_metrics=None"), True, True),
        (_train(", **more()"), None, True),
        (HEAD + "Trainer(model, args, c, ds, ds, tok, None, score).train()\n", None, True),
        (_train("") + "trainer.compute_metrics = score\n", None, True),
    ],
)
def test_a_trainer_keeps_predictions(text: str, computes: object, collects: object, tmp_path: Path) -> None:
    facts = read(tmp_path, text).roles["train"]
    assert (facts[_METRICS].value if _METRICS in facts else None) is computes
    assert facts[_COLLECTS].value is collects
