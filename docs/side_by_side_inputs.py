"""The files of the side-by-side comparison: one incident, and the same files broken in the usual ways."""

from __future__ import annotations

import json
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIG = (REPOSITORY / "fixtures/cases/openrlhf-llama3-70b/config.json").read_text(encoding="utf-8")

REQUIREMENTS = """\
torch==2.5.1
transformers==4.48.3
accelerate==1.4.0
deepspeed==0.16.4
"""

DEEPSPEED = """\
{
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "overlap_comm": true
  },
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4
}
"""

TRAINER = """\
output_dir: checkpoints
deepspeed: ds_zero3.json
bf16: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
"""

SCRIPT = """\
import deepspeed
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from data import load_tokens

model = AutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-70B", torch_dtype=torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
loader = DataLoader(load_tokens(max_length=2048), batch_size=1, num_workers=4, pin_memory=True)
engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds_zero3.json")
engine.train()
for batch in loader:
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
"""

SPECIFICATION = """\
{
  "spec_version": "1.0",
  "environment": {
    "python": "3.11.7",
    "libraries": {"torch": {"version": "2.5.1", "cuda_version": "12.4"}}
  }
}
"""
"""A specification as `env-doctor export` writes it, shortened."""

COMPOSE = """\
services:
  train:
    image: pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel
"""

YAML_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Nine levels of aliases: some 400 million items once expanded."""

HANGING_DRIVER = "#!/bin/sh\nexec sleep 3600\n"
GARBAGE_DRIVER = "#!/bin/sh\nprintf '\\001\\377garbage, more garbage\\n\\n???\\n'\n"


def write_incident(directory: Path) -> None:
    """Write the files of the incident: requirements, model, DeepSpeed and trainer configuration, and a script."""
    directory.mkdir(parents=True)
    for name, text in {
        "requirements.txt": REQUIREMENTS,
        "config.json": CONFIG,
        "ds_zero3.json": DEEPSPEED,
        "trainer.yaml": TRAINER,
        "train.py": SCRIPT,
    }.items():
        (directory / name).write_text(text, encoding="utf-8")


def write_unknown_model(directory: Path, cached: Path, hub_id: str) -> None:
    """Turn model and script to an architecture that nobody knows."""
    config = json.loads(CONFIG) | {"model_type": "never_heard_of", "architectures": ["NeverHeardOfForCausalLM"]}
    for path in (directory / "config.json", cached):
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    (directory / "train.py").write_text(SCRIPT.replace(hub_id, "example/never-heard-of"), encoding="utf-8")


def write_bombs(directory: Path) -> None:
    """Put a YAML bomb where YAML is read."""
    (directory / "trainer.yaml").write_text(YAML_BOMB + TRAINER, encoding="utf-8")
    (directory / "docker-compose.yml").write_text(YAML_BOMB + COMPOSE, encoding="utf-8")


def write_broken(path: Path, text: str, defect: str, *, key: str, negative: str) -> bool:
    """Write a JSON file with one defect.

    Args:
        path: where to.
        text: the sound file.
        defect: what is wrong with it; see `DEFECTS`.
        key: the key that is repeated with another value, or gets a list for a value.
        negative: the key that gets a negative value.

    Returns:
        Whether the defect makes sense for this file.
    """
    match defect:
        case "truncated":
            path.write_text(text[: len(text) * 2 // 3], encoding="utf-8")
        case "key given twice":
            first = _find(json.loads(text), key)
            second = first // 2 if isinstance(first, int) else "3.9.1"
            path.write_text(
                _replace(text, key, f'{json.dumps(first)}, "{key}": {json.dumps(second)}'), encoding="utf-8"
            )
        case "wrong type":
            path.write_text(_replace(text, key, '["three"]'), encoding="utf-8")
        case "negative size":
            if not negative:
                return False
            path.write_text(_replace(text, negative, "-8"), encoding="utf-8")
        case "not UTF-8":
            path.write_bytes(text.replace(key, key + "\xe9").encode("latin-1"))
        case "directory for a file":
            path.mkdir()
        case "missing file":
            pass
        case "empty file":
            path.write_text("", encoding="utf-8")
        case _:
            raise ValueError(defect)
    return True


DEFECTS = (
    "truncated",
    "key given twice",
    "wrong type",
    "negative size",
    "not UTF-8",
    "directory for a file",
    "missing file",
    "empty file",
)


def _replace(text: str, key: str, value: str) -> str:
    old = f'"{key}": {json.dumps(_find(json.loads(text), key))}'
    if old not in text:
        msg = f"{old} is not in the file"
        raise ValueError(msg)
    return text.replace(old, f'"{key}": {value}', 1)


def _find(data: object, key: str) -> object:
    if isinstance(data, dict):
        if key in data:
            return data[key]
        for value in data.values():
            found = _find(value, key)
            if found is not None:
                return found
    return None
