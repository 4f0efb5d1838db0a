"""nanoGPT (3adf61e): what a person names with ``--module``, and its own ``train.py`` on a CPU; run in a checkout of it."""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import tempfile
from functools import partial
from typing import Any

import numpy
import torch
from model import GPT, GPTConfig


def build(micro_batch_size: int, sequence_length: int, vocab: int = 50304, **sizes: Any) -> Any:
    """Return the model of ``train.py``, one micro batch, its step, and its own optimizer."""
    model = GPT(GPTConfig(block_size=sequence_length, vocab_size=vocab, bias=False, **sizes))
    tokens = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return model, (tokens, tokens.clone()), None, optimizer


def optimizer(model: Any) -> Any:
    """Return what ``train.py`` makes on a CPU."""
    return model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cpu")


def loop(micro_batch_size: int, sequence_length: int, vocab: int = 50304, accumulation: int = 1, **sizes: Any) -> None:
    """Run ``train.py`` for two steps on random tokens."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "data/random"))
        rows = numpy.random.default_rng(0).integers(0, 60, 40 * sequence_length, dtype=numpy.uint16)
        for split in ("train", "val"):
            rows.tofile(os.path.join(folder, f"data/random/{split}.bin"))
        script = os.path.join(os.getcwd(), "train.py")
        with open(os.path.join(folder, "data/random/meta.pkl"), "wb") as meta:
            pickle.dump({"vocab_size": vocab}, meta)
        os.symlink(os.path.join(os.getcwd(), "configurator.py"), os.path.join(folder, "configurator.py"))
        options = {
            "dataset": "random", "device": "cpu", "compile": False, "eval_iters": 1, "max_iters": 1, "dtype": "float32",
            "batch_size": micro_batch_size, "block_size": sequence_length, "gradient_accumulation_steps": accumulation, **sizes,
        }  # fmt: skip
        sys.argv = [script, *(f"--{name}={value}" for name, value in options.items())]
        os.chdir(folder)
        runpy.run_path(script, run_name="__main__")


_CPU = {"vocab": 65, "n_layer": 4, "n_head": 4, "n_embd": 128, "dropout": 0.0}
_CHARACTERS = {"vocab": 65, "n_layer": 6, "n_head": 6, "n_embd": 384, "dropout": 0.2}
build_cpu, loop_cpu = partial(build, **_CPU), partial(loop, **_CPU)
build_characters, loop_characters = partial(build, **_CHARACTERS), partial(loop, **_CHARACTERS)
_GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "dropout": 0.0}
"""Of the README's command for a CPU, of config/train_shakespeare_char.py, and of train.py itself."""
build_gpt2, loop_gpt2 = partial(build, **_GPT2), partial(loop, accumulation=2, **_GPT2)
