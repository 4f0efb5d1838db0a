"""Lightning's guides to FSDP: what a person names with ``--module``, and loops of Trainer and Fabric on a CPU, with the transformer of its demos."""

from __future__ import annotations

from functools import partial
from typing import Any

import lightning
import torch
from lightning.pytorch.demos import Transformer
from torch.nn import functional

_SMALL = {"vocab_size": 4096, "nlayers": 2, "nhid": 512, "ninp": 128, "nhead": 8}
_GUIDE = {"vocab_size": 33278, "nlayers": 32, "nhid": 4096, "ninp": 1024, "nhead": 64}


class LanguageModel(lightning.LightningModule):
    """The module of the guide."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        self.model = Transformer(**sizes)

    def training_step(self, batch: Any) -> Any:  # the loss
        """Take the loss of one batch."""
        inputs, target = batch
        output = self.model(inputs, target)
        return functional.nll_loss(output, target.view(-1))

    def configure_optimizers(self) -> Any:  # an optimizer
        """Return the guide's optimizer."""
        return torch.optim.Adam(self.parameters(), lr=0.1)


def build(sizes: Any, micro_batch_size: int = 1, sequence_length: int = 35) -> Any:
    """Return the module, a batch, and Trainer's step, of which the loss alone stays."""
    tokens = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return LanguageModel(**sizes), (tokens, tokens.clone()), LanguageModel.training_step


def build_fabric(micro_batch_size: int = 1, sequence_length: int = 35) -> Any:
    """Return the model and the step of the Fabric loop, which holds its output until the next."""
    tokens = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)

    def step(model: Any, batch: Any) -> Any:
        output = model(*batch).float()
        return functional.nll_loss(output, batch[1].view(-1)), output

    return Transformer(**_SMALL), (tokens, tokens.clone()), step


def _rows(number: int, length: int) -> Any:
    tokens = torch.zeros(number, length, dtype=torch.long)
    return torch.utils.data.TensorDataset(tokens, tokens.clone())


def loop_trainer(
    micro_batch_size: int, sequence_length: int, accumulation: int = 1, precision: str = "32-true"
) -> None:
    """Fit with Trainer for three optimizer steps."""
    data = torch.utils.data.DataLoader(_rows(3 * accumulation * micro_batch_size, sequence_length), micro_batch_size)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, accumulate_grad_batches=accumulation, precision=precision, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, barebones=False,
    )  # fmt: skip
    trainer.fit(LanguageModel(**_SMALL), data)


def loop_fabric(micro_batch_size: int, sequence_length: int, precision: str = "32-true") -> None:
    """Run the loop of Fabric's guide for three steps."""
    fabric = lightning.Fabric(accelerator="cpu", devices=1, precision=precision)
    model = fabric.setup(Transformer(**_SMALL))
    optimizer = fabric.setup_optimizers(torch.optim.Adam(model.parameters(), lr=0.1))
    for _ in range(3):
        inputs = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
        target = inputs.clone()
        output = model(inputs, target)
        loss = functional.nll_loss(output, target.view(-1))
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


build_trainer, transformer = partial(build, _SMALL), partial(build, _GUIDE)
