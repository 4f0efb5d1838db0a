"""LitGPT 0.5.13 (2685705): what a person names with ``--module``, and its own loops on a CPU; run in a checkout of it."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import lightning
import torch
from lightning.fabric.wrappers import _FabricModule
from litgpt.args import EvalArgs, TrainArgs
from litgpt.utils import chunked_cross_entropy

_SIZES = {"block_size": 512, "n_layer": 4, "n_head": 8, "n_embd": 256, "padded_vocab_size": 8192}


def _make(name: str, *, lora: bool, **sizes: Any) -> Any:
    import litgpt.lora
    import litgpt.model

    if not lora:
        return litgpt.model.GPT(litgpt.model.Config.from_name(name, **sizes))
    adapters = {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_query": True, "lora_value": True}
    model = litgpt.lora.GPT(litgpt.lora.Config.from_name(name, **sizes, **adapters))
    litgpt.lora.mark_only_lora_as_trainable(model)
    return model


def build(name: str, micro_batch_size: int, sequence_length: int, *, lora: bool) -> Any:
    """Return the model, a micro batch, and the step of pretrain.py or finetune/lora.py; Fabric hands on logits in float32."""
    model = _make(name, lora=lora, **_SIZES)
    model.max_seq_length = sequence_length
    tokens = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return model, (tokens, tokens.clone()), partial(_step, lora=lora)


def _step(model: Any, batch: Any, *, lora: bool) -> Any:  # logits and loss
    if not lora:
        logits = model(batch[0]).float()
        return logits, chunked_cross_entropy(logits, batch[1])
    chunks = [chunk.float() for chunk in model(batch[0], lm_head_chunk_size=128)]
    chunks[-1] = chunks[-1][..., :-1, :]
    return chunked_cross_entropy(chunks, batch[1][..., 1:]), chunks


class _Rows(torch.utils.data.Dataset):
    def __init__(self, length: int, *, lora: bool) -> None:
        self.length, self.lora = length, lora

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        row = torch.arange(self.length + (not self.lora)) % 100
        counts = {name: torch.tensor([1]) for name in ("raw", "raw_plus_prompt_template")}
        return {"input_ids": row, "labels": row.clone(), "token_counts": counts} if self.lora else row


def loop(
    name: str, micro_batch_size: int, sequence_length: int, *, lora: bool, precision: str, accumulation: int = 1
) -> None:
    """Run `fit` of pretrain.py or finetune/lora.py for two optimizer steps."""
    from litgpt import pretrain
    from litgpt.finetune import lora as finetune

    fabric = lightning.Fabric(devices=1, accelerator="cpu", precision=precision)
    with fabric.init_module():
        model = _make(name, lora=lora, **_SIZES)
    model.max_seq_length = sequence_length
    model = fabric.setup(model)
    assert isinstance(model, _FabricModule)
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters()))
    data = torch.utils.data.DataLoader(_Rows(sequence_length, lora=lora), batch_size=micro_batch_size)
    data = fabric.setup_dataloaders(data)
    batch = micro_batch_size * accumulation
    train = TrainArgs(
        save_interval=None, log_interval=1, global_batch_size=batch, micro_batch_size=micro_batch_size, lr_warmup_steps=1,
        max_steps=2 if lora else None, epochs=9, max_tokens=2 * batch * sequence_length, max_seq_length=sequence_length, max_norm=None if lora else 1.0,
    )  # fmt: skip
    judge = EvalArgs(interval=100, max_iters=1, initial_validation=False, final_validation=False)
    shared = {
        "fabric": fabric,
        "devices": 1,
        "train_dataloader": data,
        "val_dataloader": data,
        "train": train,
        "eval": judge,
    }
    with tempfile.TemporaryDirectory() as folder:
        if not lora:
            state = {"model": model, "optimizer": optimizer, "iter_num": 0, "step_count": 0}
            pretrain.fit(**shared, state=state, out_dir=Path(folder), tokenizer_dir=None)
            return
        with mock.patch.object(finetune, "Tokenizer"):  # there is none of random tokens
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
            more = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "data": None}
            finetune.fit(**shared, **more, checkpoint_dir=Path(folder), out_dir=Path(folder))


build_pythia, loop_pythia = (partial(one, "pythia-14m", lora=False) for one in (build, loop))
build_llama, loop_llama = (partial(one, "Llama-3.2-1B", lora=False) for one in (build, loop))
build_lora, loop_lora = (partial(one, "Llama-3.2-1B", lora=True) for one in (build, loop))
