"""llm-foundry (8c8dd48f): what a person names with ``--module``, and Composer's Trainer on a CPU; run in a checkout of it.

torchvision, which Composer imports for models of pictures, is not installed beside a CPU's torch: it stands empty.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from functools import partial
from typing import Any

import torch


class _Classes(types.ModuleType):
    """A module in which every name is a class of its own."""

    __path__: tuple[str, ...] = ()
    __version__ = "0.0"

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        mine = name.partition(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if mine else None

    def create_module(self, spec: Any) -> Any:
        return _Classes(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


sys.meta_path.append(_Empty())
from llmfoundry.models.mpt.modeling_mpt import ComposerMPTCausalLM
from llmfoundry.optim import DecoupledLionW


def _make(attn_impl: str) -> Any:
    """Return a model of yamls/pretrain/mpt-125m.yaml in small, with the loss that is left without a GPU's kernels."""
    return ComposerMPTCausalLM(
        d_model=256, n_heads=4, n_layers=4, expansion_ratio=4, max_seq_len=256, vocab_size=8192, attn_config={"attn_impl": attn_impl},
        loss_fn="torch_crossentropy", use_train_metrics=False, init_config={"name": "baseline_", "init_std": 0.02},
    ).train()  # fmt: skip


def _batch(rows: int, length: int) -> dict[str, Any]:
    tokens = torch.zeros(rows, length, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens, dtype=torch.bool)}


def build(attn_impl: str, micro_batch_size: int, sequence_length: int, *, lion: bool = False) -> Any:
    """Return the model, a micro batch, and Composer's step: forward, loss, and outputs that stay in the state."""

    def step(model: Any, batch: Any) -> Any:
        outputs = model(batch)
        return model.loss(outputs, batch), outputs

    optimizer = (lambda model: DecoupledLionW(model.parameters(), lr=1e-4)) if lion else None
    return _make(attn_impl), _batch(micro_batch_size, sequence_length), step, optimizer


def loop(
    attn_impl: str, micro_batch_size: int, sequence_length: int, accumulation: int = 1, *, lion: bool = False
) -> None:
    """Fit with Composer for three batches."""
    from composer import DataSpec, Trainer

    model = _make(attn_impl)
    data = [_batch(accumulation * micro_batch_size, sequence_length) for _ in range(3)]
    optimizer = DecoupledLionW(model.parameters(), lr=1e-4) if lion else torch.optim.AdamW(model.parameters(), lr=1e-4)
    trainer = Trainer(
        model=model, train_dataloader=DataSpec(data), max_duration="3ba", optimizers=optimizer, device="cpu", precision="fp32",
        device_train_microbatch_size=micro_batch_size, progress_bar=False, dist_timeout=60.0,
    )  # fmt: skip
    trainer.fit()


build_mpt, loop_mpt = partial(build, "torch"), partial(loop, "torch")
build_lion, loop_lion = partial(build, "torch", lion=True), partial(loop, "torch", lion=True)
