"""What a person names with ``--module`` for finetune/lora.py of LitGPT at 6178c7cc: its blocks, its LoRA, its loss in chunks.

Run by an interpreter that has torch and lightning, in a checkout; never imported by compatcheck.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from lit_gpt.lora import GPT, Config, mark_only_lora_as_trainable
from lit_gpt.utils import chunked_cross_entropy

_HELD: list[Any] = []


def build(name: str, micro_batch_size: int, sequence_length: int) -> Any:  # noqa: ANN401 (module, inputs, step)
    """Return the model with the adapters of the script, a micro batch, and its step."""
    config = Config.from_name(name, r=8, alpha=16, dropout=0.05, to_query=True, to_value=True)
    model = GPT(config)
    mark_only_lora_as_trainable(model)
    model.max_seq_length = sequence_length
    tokens = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return model, {"tokens": tokens, "targets": tokens.clone()}, step


def step(model: Any, batch: Any) -> Any:  # noqa: ANN401 (the loss)
    """Take the loss as the script's loop does; Fabric hands logits on in float32.

    The loop holds them through backward. The longest batch is its first, so that none of another is beside it.
    """
    _HELD.clear()
    logits = [chunk.float() for chunk in model(batch["tokens"], lm_head_chunk_size=128)]
    logits[-1] = logits[-1][..., :-1, :]
    _HELD.extend(logits)
    return chunked_cross_entropy(logits, batch["targets"][..., 1:])


phi_1_5 = partial(build, "phi-1_5")
stablelm_alpha_3b = partial(build, "stablelm-base-alpha-3b")
llama_2_7b = partial(build, "Llama-2-7b-hf")
llama_2_13b = partial(build, "Llama-2-13b-hf")
