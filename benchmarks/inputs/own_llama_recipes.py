"""llama-recipes (faae2fd8): what a person names with ``--module``, and its own loop on a CPU; run in ``src`` of a checkout of it."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import torch
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from transformers import LlamaConfig, LlamaForCausalLM


def _make(*, lora: bool) -> Any:
    """Return the model as finetuning.py makes it: without a cache, in the dtype that is usual; its adapters are `lora_config`."""
    config = LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8, vocab_size=8192, use_cache=False,
        attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    if lora:
        model = get_peft_model(
            model,
            LoraConfig(
                r=8, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.05, task_type="CAUSAL_LM"
            ),
        )
    return model.train()


def _batch(rows: int, length: int) -> Any:
    tokens = torch.zeros(rows, length, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}


def build(micro_batch_size: int, sequence_length: int, *, lora: bool) -> Any:
    """Return the model, a micro batch of the packed loader, and the loop's step, which keeps the loss alone."""
    return _make(lora=lora), _batch(micro_batch_size, sequence_length), lambda model, batch: model(**batch).loss


def loop(micro_batch_size: int, sequence_length: int, accumulation: int = 1, *, lora: bool) -> None:
    """Run `train` of utils/train_utils.py for two optimizer steps."""
    from llama_cookbook.configs import train_config
    from llama_cookbook.utils import train_utils

    model = _make(lora=lora)
    settings = train_config()
    settings.num_epochs, settings.run_validation, settings.save_model, settings.use_fp16 = 1, False, False, False
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    rows = [_batch(micro_batch_size, sequence_length) for _ in range(2 * accumulation)]
    with mock.patch.object(train_utils.MemoryTrace, "print_stats"):  # of CUDA
        train_utils.train(model, rows, None, None, optimizer, scheduler, accumulation, settings)


build_full, loop_full = (partial(one, lora=False) for one in (build, loop))
build_lora, loop_lora = (partial(one, lora=True) for one in (build, loop))


def llama_2_7b(micro_batch_size: int, sequence_length: int, *, gradient_checkpointing: bool) -> Any:
    """Return the model of llama_finetuning.py at e5970e2e: in bfloat16 before it has adapters, its blocks in wrappers of torch's."""
    assert gradient_checkpointing
    model = LlamaForCausalLM(LlamaConfig()).to(torch.bfloat16)
    adapters = LoraConfig(
        r=8, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.05, task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(model, adapters).train()
    layers = model.model.layers
    for index, layer in enumerate(layers):
        layers[index] = checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    return adapted, _batch(micro_batch_size, sequence_length)
