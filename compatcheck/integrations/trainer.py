"""A callback of the transformers Trainer, and of those built upon it: checked before the first step, measured until the last.

trainer = Trainer(…, callbacks=[MemoryCallback()])
"""

from __future__ import annotations

import json
import os
from typing import Any

from transformers import TrainerCallback

from compatcheck.integrations.watch import MemoryWatch, find_length

RECORD = "compatcheck.json"
"""What is written beside the checkpoints at the end."""


class MemoryCallback(TrainerCallback):  # type: ignore[misc] # no types without transformers
    """Checks the run as its Trainer was made, with what is installed; at the end the measured peak is logged beside the estimate.

    Args:
        stop: raise `compatcheck.integrations.watch.FailsError` before the first step where something fails; else it is a warning.
        settings: facts by name (``{"training.sequence_length": 4096}``) that the Trainer does not tell; they win.
        options: of `MemoryWatch` and `compatcheck.check`: ``gpu``, ``count_storages``, …
    """

    def __init__(self, *, stop: bool = False, settings: dict[str, object] | None = None, **options: Any) -> None:  # noqa: ANN401
        self._stop, self._settings, self._options = stop, settings or {}, options
        self.watch: MemoryWatch | None = None
        """The check and the measurement of the last ``train()``."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ANN401, ARG002 (its signature)
        """Check, and begin to measure."""
        files = {"trainer.json": args.to_dict()}
        settings: dict[str, object] = {"hardware.world_size": args.world_size}
        if isinstance(args.deepspeed, str):
            files["trainer.json"]["deepspeed"] = os.path.abspath(args.deepspeed)
        loader = given.get("train_dataloader")
        stated = getattr(args, "max_length", None) or getattr(args, "max_seq_length", None)
        length = stated or find_length(getattr(loader, "dataset", None))
        if length is not None:
            settings["training.sequence_length"] = length
        self.watch = MemoryWatch(
            files,
            given.get("model"),
            settings={**settings, **self._settings},
            stop=self._stop,
            told=state.is_world_process_zero,
            **self._options,
        )
        self.watch.__enter__()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ANN401, ARG002 (its signature)
        """Say what was measured, and write it."""
        if self.watch is None:
            return
        self.watch.__exit__(None, None, None)
        if state.is_world_process_zero:
            os.makedirs(args.output_dir, exist_ok=True)
            with open(os.path.join(args.output_dir, RECORD), "w", encoding="utf-8") as file:
                json.dump(self.watch.record(), file, indent=1)
