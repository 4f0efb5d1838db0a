"""Functions that a person could name with --module; run by an interpreter that has torch, never by the tests themselves."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A block of a decoder, as small research programs write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        heads = [part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1)]
        x = x + self.out(functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(functional.dropout(functional.gelu(self.up(x)), 0.1, self.training))


class Decoder(nn.Module):
    """Blocks between a table of tokens and a head that shares its weights."""

    def __init__(self, width: int = 64, tokens: int = 160, depth: int = 3) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(tokens, width), nn.Linear(width, tokens, bias=False)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head.weight = self.table.weight

    def forward(self, tokens: Any, labels: Any = None) -> Any:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        if labels is None:
            return logits
        return logits, functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def tokens(rows: int, length: int = 48) -> Any:
    return torch.zeros(rows, length, dtype=torch.long)


def build(micro_batch_size: int = 2) -> Any:
    """Positional inputs; the module returns logits and loss."""
    return Decoder(), (tokens(micro_batch_size), tokens(micro_batch_size))


def cleared_late(micro_batch_size: int = 8) -> Any:
    """A step whose gradients live until the next forward pass is through."""
    return build(micro_batch_size)


def longest_first(micro_batch_size: int = 2, sequence_length: int = 48) -> Any:
    """Rows as long as they are told to be."""
    rows = [tokens(micro_batch_size, sequence_length) for _ in range(2)]
    return Decoder(), tuple(rows)


def copied() -> Any:
    """Blocks that are copies of one, as those of ``nn.TransformerEncoder`` are."""
    model = Decoder(depth=1)
    model.blocks.extend(copy.deepcopy(model.blocks[0]) for _ in range(2))
    return copy.deepcopy(model), (tokens(2), tokens(2))


def cast() -> Any:
    """Converted as a whole; what is tied stays tied."""
    return Decoder().to(torch.bfloat16), {"tokens": tokens(2), "labels": tokens(2)}


def stepped() -> Any:
    """A step and an optimizer of its own, and a device that the trace has not."""

    def step(model: Any, batch: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(batch)
        return functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), batch[:, 1:].flatten())

    return Decoder(), tokens(3), step, lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def frozen() -> Any:
    """All but the last block is frozen, so that their gradients are not there."""
    model = Decoder()
    model.requires_grad_(requires_grad=False)
    model.blocks[-1].requires_grad_(requires_grad=True)
    return model, (tokens(2), tokens(2))


def on_a_gpu() -> Any:
    """Say cuda throughout."""
    batch = tokens(2).cuda()

    def step(model: Any, batch: Any) -> Any:
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            return model(batch, torch.zeros(2, 48, dtype=torch.long, device="cuda"))[1]

    return Decoder().to("cuda"), batch, step


def without_loss() -> Any:
    return Decoder(), tokens(2)


def without_inputs() -> Any:
    return Decoder()


def on_meta() -> Any:
    with torch.device("meta"):
        return Decoder(), tokens(2)


def needs_more(widths: int) -> Any:
    return Decoder(widths), tokens(2)


def masked(micro_batch_size: int = 2) -> Any:
    """A step that looks into its mask, and takes the loss of the tokens that are there."""
    mask = torch.ones(micro_batch_size, 48, dtype=torch.bool)
    mask[:, 40:] = False

    def step(module: Any, inputs: Any) -> Any:
        given, there = inputs
        if there[:, 0].sum() != there.shape[0]:
            raise ValueError("padded on the left")
        longest = int(there.sum(-1).max())
        given, there = given[:, :longest], there[:, :longest]
        return functional.cross_entropy(module(given)[there], given[there])

    return Decoder(), (tokens(micro_batch_size), mask), step


def reads_numbers() -> Any:
    def step(model: Any, batch: Any) -> Any:
        loss = model(batch, batch)[1]
        print(loss.item())
        return loss

    return Decoder(), tokens(2), step


def goes_back_itself() -> Any:
    def step(model: Any, batch: Any) -> None:
        model(batch, batch)[1].backward()

    return Decoder(), tokens(2), step


def ends() -> Any:
    raise SystemExit(2)
