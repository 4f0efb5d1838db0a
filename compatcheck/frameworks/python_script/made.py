"""What a script makes itself, beside a Trainer: models, optimizers, engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

    from compatcheck.frameworks.python_script.calls import Call, Given, Scope

OPTIMIZERS = {
    "AdamW": "adamw", "Adam": "adam", "SGD": "sgd", "Adafactor": "adafactor", "Lion": "lion", "AdamW8bit": "adamw_8bit",
    "PagedAdamW8bit": "paged_adamw_8bit", "PagedAdamW": "paged_adamw",
    "Lion8bit": "lion_8bit", "PagedLion": "paged_lion", "PagedLion8bit": "paged_lion_8bit",
    "RMSprop8bit": "rmsprop_8bit",
}  # fmt: skip
"""Classes of optimizers and the families they are of."""


class Made:
    """What a script makes itself, which counts where a loop of its own trains with it."""

    def __init__(self) -> None:
        self.loads: list[int] = []
        """Lines in which a whole model is loaded, whatever is decided before."""
        self.models: list[Call] = []
        """Calls that load the model which trains."""
        self.engines: list[tuple[str, Call]] = []
        """Calls that start an inference engine, with the reader of its server."""
        self.optimizers: list[Call] = []
        self.optimized: list[tuple[ast.expr, Scope]] = []
        """What those are made of, or the engine that makes one, each with where it stands."""
        self.teachers: dict[str, Given] = {}
        """Models that a trainer distils."""
        self.fields: set[str] = set()
        """Fields of the model's configuration that are set after it was loaded."""
