"""Training loops of a script's own, which are programs with a code path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.frameworks.python_script.test_changes import read

if TYPE_CHECKING:
    from pathlib import Path

_LOOP = """import torch
from contextlib import nullcontext
import torch.nn.functional as F
from transformers import AutoModel, AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    {}
    optimizer.step()
"""
_LOSS = "outputs = model(**batch); loss = outputs.loss; loss.backward()"
_AUTOCAST = "with torch.autocast('cuda'{}):\n        loss = model(**batch).loss\n    loss.backward()"
_CHOSEN = """cast = nullcontext() if cpu else torch.autocast('cuda', torch.bfloat16)
    with cast:
        loss = model(**batch).loss
    loss.backward()"""


def _facts(tmp_path: Path, text: str, *names: str) -> list[object]:
    facts = read(tmp_path, text).roles["train"]
    return [facts[name].value if name in facts else None for name in names]


def test_a_loop_is_a_program_of_its_own(tmp_path: Path) -> None:
    names = ("training.framework", "program.code", "program.read", "program.uses_accelerate", "program.makes_logits")
    assert _facts(tmp_path, _LOOP.format(_LOSS), *names) == ["custom", "custom", True, False, True]


def test_a_loop_that_runs_in_16_bit_keeps_float32_logits(tmp_path: Path) -> None:
    facts = read(tmp_path, _LOOP.format(_LOSS)).roles["train"]
    names = ("run.outputs_kept", "training.mixed_precision", "program.passes_labels", "program.drops_outputs")
    assert [facts[name].value for name in names] == [True, "no", True, False]


@pytest.mark.parametrize(
    ("lines", "labels", "loss", "casts"),
    [
        (_LOSS, True, "model", False),
        ("loss = model(**batch)[0]; loss.backward()", True, "model", False),
        ("model(x, labels=y).loss.backward()", True, "model", False),
        ("out = model(x)\n    F.cross_entropy(out.logits, y).backward()", False, "program", False),
        ("out = model(x)\n    F.cross_entropy(out.logits.float(), y).backward()", False, "program", True),
        ("out = model(x)\n    loss_of(out.logits, y).backward()", False, "program", None),
        ("out = model(**batch)\n    F.cross_entropy(out.logits, y).backward()", None, None, False),
        ("out = model(x, m, y)\n    F.cross_entropy(out.logits, y).backward()", None, None, False),
        ("loss_of(model, batch).backward()", None, None, None),
    ],
)
def test_a_loop_or_its_model_computes_the_loss(
    lines: str, labels: object, loss: object, casts: object, tmp_path: Path
) -> None:
    names = ("program.passes_labels", "program.computes_loss", "program.casts_logits")
    assert _facts(tmp_path, _LOOP.format(lines), *names) == [labels, loss, casts]


@pytest.mark.parametrize(
    ("lines", "precision"),
    [
        (_LOSS, "no"),
        (_AUTOCAST.format(", dtype=torch.bfloat16"), "bf16"),
        (_AUTOCAST.format(", torch.float16"), "fp16"),
        (_AUTOCAST.format(""), "fp16"),
        (_AUTOCAST.format(", enabled=False"), "no"),
        (_AUTOCAST.format(", enabled=asked"), None),
        (_AUTOCAST.format(", dtype=half"), None),
        ("with context():\n        loss = model(**batch).loss\n    loss.backward()", None),
        ("with torch.autocast('cuda'):\n        prepare(batch)\n    model(**batch).loss.backward()", None),
        (_CHOSEN, "bf16"),
        ("with torch.cuda.amp.autocast(dtype=torch.bfloat16):\n        model(**batch).loss.backward()", "bf16"),
        ("with torch.cuda.amp.autocast(False):\n        model(**batch).loss.backward()", "no"),
        ("loss_of(model, batch).backward()", None),
    ],
)
def test_autocast_counts_around_the_forward(lines: str, precision: object, tmp_path: Path) -> None:
    assert _facts(tmp_path, _LOOP.format(lines), "training.mixed_precision") == [precision]


@pytest.mark.parametrize(
    ("line", "sharding"),
    [
        ("", "none"),
        ("model = DDP(model)", "ddp"),
        ("model = wrap_data_parallel(model)", None),
        ("os.environ['TOKENIZERS_PARALLELISM'] = 'false'", "none"),
        ("model = AutoModelForCausalLM.from_pretrained('gpt2', device_map='auto')", None),
    ],
)
def test_nothing_spreads_a_model_where_nothing_is_named_that_does(line: str, sharding: object, tmp_path: Path) -> None:
    text = _LOOP.format(_LOSS)
    text = (
        text.replace("model = AutoModel", f"{line}#")
        if "device_map" in line
        else text.replace("for batch", f"{line}\nfor batch")
    )
    assert _facts(tmp_path, text, "training.sharding") == [sharding]


@pytest.mark.parametrize(
    ("made", "logits"),
    [
        ("AutoModelForCausalLM.from_pretrained('gpt2')", True),
        ("AutoModel.from_pretrained('bert-base-uncased')", False),
        ("AutoModel.from_pretrained('THUDM/chatglm-6b', trust_remote_code=True)", True),
    ],
)
def test_a_model_without_a_head_makes_no_logits(made: str, logits: object, tmp_path: Path) -> None:
    text = _LOOP.format(_LOSS).replace('AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16)', made)
    assert _facts(tmp_path, text, "program.makes_logits") == [logits]


@pytest.mark.parametrize(
    ("lines", "batch", "length"),
    [
        ("loader = DataLoader(data, batch_size=4)", 4, None),
        ("loader = DataLoader(data, 4)", 4, None),
        ("loader = DataLoader(data)", 1, None),
        ("loader = DataLoader(data, batch_sampler=sampler)", None, None),
        ("loader = DataLoader(data, batch_size=size)", None, None),
        ("loader = DataLoader(data, batch_size=4)\nother = DataLoader(data, batch_size=8)", 4, None),
        ("one = DataLoader(data, batch_size=4)\nother = DataLoader(data, batch_size=8)", None, None),
        ("rows = tokenizer(texts, truncation=True, max_length=512)", None, 512),
        ("rows = tokenizer(texts, max_length=512)", None, None),
        (
            "rows = tokenizer(a, truncation=True, max_length=512), tokenizer(b, truncation=True, max_length=64)",
            None,
            None,
        ),
    ],
)
def test_a_loop_takes_batches_of_its_loader(lines: str, batch: object, length: object, tmp_path: Path) -> None:
    text = _LOOP.format(_LOSS).replace("for batch", f"{lines}\nfor batch")
    assert _facts(tmp_path, text, "training.micro_batch_size", "training.sequence_length") == [batch, length]


@pytest.mark.parametrize(("given", "ranks"), [("tp_plan='auto'", None), ("tp_plan='auto', tp_size=4", 4)])
def test_a_model_whose_matrices_are_split_is_spread(given: str, ranks: object, tmp_path: Path) -> None:
    text = _LOOP.format(_LOSS).replace("torch_dtype=", f"{given}, torch_dtype=")
    assert _facts(tmp_path, text, "training.tensor_parallel", "training.sharding") == [ranks, None]


@pytest.mark.parametrize(
    ("words", "kernels"),
    [(", fused=True", "fused"), (", foreach=False", "for_loop"), (", fused=kind", None), ("", None)],
)
def test_a_switch_of_torch_s_optimizer_tells_its_kernels(tmp_path: Path, words: str, kernels: str | None) -> None:
    text = _LOOP.format(_LOSS).replace("model.parameters()", f"model.parameters(){words}")
    assert _facts(tmp_path, text, "training.optimizer_implementation") == [kernels]
