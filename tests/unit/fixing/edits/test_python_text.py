"""Arguments of calls in Python scripts are changed or added, and nothing else in them."""

from __future__ import annotations

import pytest

from compatcheck.fixing.edits.python_text import edit_argument
from compatcheck.fixing.edits.text import apply_edits

CALL = "from trl import SFTConfig\n\nargs = SFTConfig(output_dir='out', bf16=True)\n"
DTYPE = "m = A.from_pretrained(n, torch_dtype=torch.float32)\n"
LOADED = "import torch\nm = A.from_pretrained(n)\n"
WINDOWS = "\ufeffargs = SFTConfig(\r\n    bf16=True,\r\n)\r\n"
INSIDE = 'True, model_init_kwargs={"dtype": "bfloat16"})'
LINES = 'args = SFTConfig(\n    output_dir="out",  # where\n    per_device_train_batch_size=4,  # rows\n)\n'
UNPACKED = 'kw = {"bf16": True}\nargs = SFTConfig(**kw)\n'
NESTED = 'args = SFTConfig(gradient_checkpointing_kwargs={"use_reentrant": True}, output_dir="é")\n'

MAPPING = 'args = SFTConfig(accelerator_config={"even_batches": True})\n'
TWO = 'args = SFTConfig(accelerator_config={"other": {"second": 2}})\n'
WITHIN = 'True, accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}})'


def edited(text: str, key: str, value: object, line: int | None = None) -> list[str]:
    """Return what each edit makes of a script."""
    edits = edit_argument("train.py", text, key, value, line)  # type: ignore[arg-type]
    return [apply_edits({"train.py": text}, [one])["train.py"] for one in edits]


@pytest.mark.parametrize(
    ("text", "key", "value", "line", "after"),
    [
        (CALL, "bf16", False, 3, CALL.replace("bf16=True", "bf16=False")),
        (CALL, "max_length", 512, 3, CALL.replace("bf16=True", "bf16=True, max_length=512")),
        (CALL, "optim", "adafactor", 3, CALL.replace("bf16=True", 'bf16=True, optim="adafactor"')),
        (LINES, "per_device_train_batch_size", 1, 1, LINES.replace("size=4", "size=1")),
        (LINES, "bf16", True, 1, LINES.replace("# rows\n", "# rows\n    bf16=True,\n")),
        (LINES.replace(",  # rows", ""), "bf16", True, 1, LINES.replace(",  # rows", ",\n    bf16=True")),
        (NESTED, "gradient_checkpointing_kwargs.use_reentrant", False, 1, NESTED.replace(": True", ": False")),
        (NESTED, "gradient_checkpointing_kwargs.other", 1, 1, NESTED.replace("True}", 'True, "other": 1}')),
        (CALL, "model_init_kwargs.dtype", "bfloat16", 3, CALL.replace("True)", INSIDE)),
        (CALL, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch", True, 3, CALL.replace("True)", WITHIN)),
        (MAPPING, "accelerator_config.other.name", 1, 1, MAPPING.replace("True}", 'True, "other": {"name": 1}}')),
        (TWO, "accelerator_config.other.name", 1, 1, TWO.replace("2}", '2, "name": 1}')),
        (DTYPE, "torch_dtype", "bfloat16", 1, DTYPE.replace("float32", "bfloat16")),
        (LOADED, "dtype", "bfloat16", 2, LOADED.replace("(n)", "(n, dtype=torch.bfloat16)")),
        ("c = LoraConfig(r=8)\n", "lora_r", 4, 1, "c = LoraConfig(r=4)\n"),
        ("args = SFTConfig()\n", "bf16", True, 1, "args = SFTConfig(bf16=True)\n"),
        (UNPACKED, "bf16", False, 2, UNPACKED.replace("True", "False")),
        (UNPACKED, "fp16", True, 2, UNPACKED.replace("**kw)", "**kw, fp16=True)")),
        (WINDOWS, "fp16", False, 1, WINDOWS.replace("True,\r\n", "True,\r\n    fp16=False,\r\n")),
    ],
)  # fmt: skip
def test_an_argument_is_changed_or_added(text: str, key: str, value: object, line: int, after: str) -> None:
    assert edited(text, key, value, line) == [after]


def test_every_call_that_gives_an_argument_is_a_candidate() -> None:
    """Which of them the run is configured by, reading the files again tells."""
    text = "a = SFTConfig(bf16=True)\nb = SFTConfig(bf16=True)\n"
    assert edited(text, "bf16", False, 2) == [
        "a = SFTConfig(bf16=False)\nb = SFTConfig(bf16=True)\n",
        "a = SFTConfig(bf16=True)\nb = SFTConfig(bf16=False)\n",
    ]


@pytest.mark.parametrize(
    "text", ["args = SFTConfig(\n", "print 'old'\n", "f(x for x in y)\n", "x = 1\nprint(f'{SFTConfig(bf16=False)}')\n"]
)
def test_what_cannot_be_edited_is_left(text: str) -> None:
    assert edited(text, "bf16", True, 1) == []


@pytest.mark.parametrize(
    "text",
    [
        "args = SFTConfig(**given)\n",
        "kw = load()\nargs = SFTConfig(**kw)\n",
        "kw = {**other}\nargs = SFTConfig(**kw)\n",
        "kw = {}\nkw = load()\nargs = SFTConfig(**kw)\n",
        "kw = {}\nkw['bf16'] = x\nargs = SFTConfig(**kw)\n",
        "args = SFTConfig(*given)\n",
    ],
)
def test_an_argument_that_may_be_given_already_is_not_added(text: str) -> None:
    assert edited(text, "bf16", True, text.count("\n")) == []
