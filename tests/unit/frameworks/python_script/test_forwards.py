"""What a script's own calls of its model are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.frameworks.python_script import read as python_script
from tests.unit.frameworks.python_script.test_changes import HEAD, TRAIN, read

if TYPE_CHECKING:
    from pathlib import Path

_LOOP = """import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    {}
    optimizer.step()
"""
_BACKWARD = "model({}).loss.backward()"
_OVERRIDE = """class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        out = model(**inputs, {})
        return out.loss
"""
_ASKED = {"transformers": "4.52.4"}
_ATTENTIONS, _STATES = "model.output_attentions", "model.output_hidden_states"


@pytest.mark.parametrize(
    "text",
    [
        _LOOP.format(_BACKWARD.format("**batch, output_attentions=True")),
        _LOOP.format("more = dict(output_attentions=True)\n    " + _BACKWARD.format("**batch, **more")),
        HEAD + _OVERRIDE.format("output_attentions=True") + TRAIN.replace(" Trainer(", " Own("),
        HEAD.replace('"bfloat16"', '"bfloat16", output_attentions=False')
        + _OVERRIDE.format("output_attentions=True")
        + TRAIN.replace(" Trainer(", " Own("),
    ],
)
def test_a_forward_asks_for_attentions(text: str, tmp_path: Path) -> None:
    facts = read(tmp_path, text, {"model.output_hidden_states": False}, **_ASKED).roles["train"]
    assert facts[_ATTENTIONS].value is True


def test_a_forward_asks_for_hidden_states(tmp_path: Path) -> None:
    text = _LOOP.format(_BACKWARD.format("**batch, output_hidden_states=True"))
    assert read(tmp_path, text, **_ASKED).roles["train"][_STATES].value is True


@pytest.mark.parametrize("given", ["output_attentions=bool(batch)", "output_attentions=asked"])
def test_a_forward_may_ask_for_attentions(given: str, tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_text(_LOOP.format(_BACKWARD.format(f"**batch, {given}")))
    assert _ATTENTIONS in {one.fact for document in python_script.read(str(path)) for one in document.unresolved}


@pytest.mark.parametrize(
    "text",
    [
        _LOOP.format(_BACKWARD.format("**batch"))
        + "with torch.no_grad():\n    model(**batch, output_attentions=True)\n",
        "import torch\n@torch.inference_mode()\ndef test(model):\n    model(x, output_attentions=True)\n"
        + _LOOP.format(_BACKWARD.format("**batch")),
        _LOOP.format(_BACKWARD.format("**batch")) + "model.generate(x, output_attentions=True)\n",
        HEAD + TRAIN + "model(**batch, output_attentions=True)\n",
    ],
)
def test_what_is_no_forward_that_trains_asks_for_nothing(text: str, tmp_path: Path) -> None:
    fact = read(tmp_path, text, **_ASKED).roles["train"].get(_ATTENTIONS)
    assert fact is None or fact.value is False


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("out = model(**batch); out.loss.backward()", True),
        ("out = model(**batch); loss = out.loss; loss.backward()", True),
        ("out = model(**batch)\n    loss = out.loss\n    del out\n    loss.backward()", False),
        ("out = model(**batch)\n    out = out.loss\n    out.backward()", False),
        ("loss = model(**batch).loss; loss.backward()", False),
        ("loss = model(**batch)[0]\n    loss.backward()", False),
        ("model(**batch).loss.backward()", False),
        ("logits = model(**batch).logits\n    loss_of(logits).backward()", True),
        ("logits = model(**batch).logits\n    logits = logits.float()\n    loss_of(logits).backward()", None),
        ("loss, logits = model(**batch)[:2]\n    loss.backward()", True),
        ("with torch.no_grad():\n        out = model(**batch)\n    model(**batch).loss.backward()", False),
        ("loss_of(model, batch).backward()", None),
    ],
)
def test_a_loop_keeps_what_its_forward_returned(lines: str, kept: object, tmp_path: Path) -> None:
    fact = read(tmp_path, _LOOP.format(lines)).roles["train"].get("run.outputs_kept")
    assert (None if fact is None else fact.value) is kept


@pytest.mark.parametrize(
    ("given", "mask", "flattened"),
    [
        ("input_ids=batch['input_ids'], labels=batch['labels']", "none", False),
        ("batch['input_ids'], labels=batch['labels']", "none", False),
        ("input_ids=x, attention_mask=None, labels=y", "none", False),
        ("input_ids=x, attention_mask=m, labels=y", None, False),
        ("x, m, labels=y", None, False),
        ("input_ids=x, position_ids=p, labels=y", "none", None),
        ("**batch", None, None),
        ("input_ids=x, **more", None, None),
    ],
)
def test_a_loop_gives_its_forward_a_mask_or_none(given: str, mask: object, flattened: object, tmp_path: Path) -> None:
    facts = read(tmp_path, _LOOP.format(_BACKWARD.format(given))).roles["train"]
    found = [facts[name].value if name in facts else None for name in ("run.attention_mask", "training.padding_free")]
    assert found == [mask, flattened]
