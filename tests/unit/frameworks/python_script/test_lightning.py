"""Fabric and Trainer of Lightning in a script of one's own; values as Lightning 2.6.1 makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.frameworks.python_script.read import read
from tests.unit.frameworks.stated_facts import facts

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.document import Document

MADE = "import lightning as L\nfabric = L.Fabric({})\nmodel = fabric.setup(model)\nfabric.backward(loss)\n"
TRAINER = "import pytorch_lightning as pl\ntrainer = pl.Trainer({})\ntrainer.fit(model)\n"
WEIGHTS, COMPUTED, MIXED = "training.param_dtype", "training.compute_dtype", "training.mixed_precision"


def read_one(folder: Path, text: str) -> Document:
    (folder / "train.py").write_text(text)
    (document,) = (one for one in read(str(folder / "train.py")) if one.reader == "lightning")
    return document


@pytest.mark.parametrize("made", [MADE, TRAINER])
@pytest.mark.parametrize(
    ("precision", "weights", "computed", "mixed"),
    [
        ("precision='bf16-true'", "bfloat16", "bfloat16", "no"),
        ("precision='16-true'", "float16", "float16", "no"),
        ("precision='bf16-mixed'", None, "bfloat16", "bf16"),  # weights are as they were made or loaded
        ("precision='bf16'", None, "bfloat16", "bf16"),
        ("precision=16", None, "float16", "fp16"),
        ("precision='32-true'", None, "float32", "no"),
        ("", None, "float32", "no"),
        ("strategy='deepspeed_stage_2', precision='bf16-mixed'", None, None, "bf16"),
    ],
)
def test_a_precision_says_what_weights_and_products_are(
    tmp_path: Path, made: str, precision: str, weights: str | None, computed: str | None, mixed: str
) -> None:
    found = facts(read_one(tmp_path, made.format(precision)))
    assert (found.get(WEIGHTS), found.get(COMPUTED), found[MIXED]) == (weights, computed, mixed)


@pytest.mark.parametrize(
    ("text", "late"),
    [
        (TRAINER.format(""), True),
        (MADE.format(""), None),  # a loop of one's own under Fabric
        (
            "class Own:\n    def __init__(self):\n        self.automatic_optimization = False\n" + TRAINER.format(""),
            None,
        ),
    ],
)
def test_trainer_clears_gradients_behind_the_next_forward_pass(tmp_path: Path, text: str, late: bool | None) -> None:  # noqa: FBT001
    assert facts(read_one(tmp_path, text)).get("program.clears_gradients_late") is late


@pytest.mark.parametrize(
    "given", ["precision=asked()", "**more", "plugins=[own]", "precision='transformer-engine'", "precision='64-true'"]
)
def test_a_precision_that_is_not_told_is_open(tmp_path: Path, given: str) -> None:
    document = read_one(tmp_path, MADE.format(given))
    assert WEIGHTS not in facts(document)
    assert {WEIGHTS, MIXED} <= {one.fact for one in document.unresolved}


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ("strategy='ddp'", {"training.sharding": "ddp"}),
        ("strategy='fsdp_cpu_offload'", {"training.sharding": "fsdp", "training.fsdp_offload_params": True}),
        (
            "strategy='deepspeed_stage_3_offload'",
            {"training.zero_stage": 3, "training.offload_optimizer": "cpu", "training.offload_param": "cpu"},
        ),
        (
            "strategy=FSDPStrategy(sharding_strategy='SHARD_GRAD_OP')",
            {"training.fsdp_sharding_strategy": "shard_grad_op"},
        ),
        ("strategy=DeepSpeedStrategy(stage=1)", {"training.sharding": "zero", "training.zero_stage": 1}),
        (
            "strategy=DDPStrategy(gradient_as_bucket_view=True)",
            {"training.sharding": "ddp", "training.gradient_as_bucket_view": True},
        ),
        ("devices=[0, 1], num_nodes=2", {"hardware.gpus_per_node": 2, "hardware.nodes": 2}),
        ("devices='0,1,2'", {"hardware.gpus_per_node": 3}),
    ],
)
def test_strategies_and_devices(tmp_path: Path, given: str, stated: dict[str, object]) -> None:
    imports = "from lightning.fabric.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy\n"
    found = facts(read_one(tmp_path, imports + MADE.format(given)))
    assert {fact: found.get(fact) for fact in stated} == stated


def test_a_strategy_that_one_way_alone_makes_is_open(tmp_path: Path) -> None:
    text = (
        "import lightning as L\nfrom lightning.fabric.strategies import FSDPStrategy\ndef setup(devices=4):\n"
        "    if devices > 1:\n        strategy = FSDPStrategy()\n    else:\n        strategy = 'auto'\n"
        "    fabric = L.Fabric(devices=devices, strategy=strategy)\n"
    )
    document = read_one(tmp_path, text)
    assert "training.sharding" not in facts(document)
    assert "training.sharding" in {one.fact for one in document.unresolved}


def test_its_trainer_is_not_that_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER.format("accumulate_grad_batches=4"))
    main, own = read(str(tmp_path / "train.py"))
    assert (main.reader, main.gaps) == ("script", ())
    assert facts(own)["training.gradient_accumulation_steps"] == 4


def test_a_trainer_of_another_package_is_no_trainer_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import lib\nlib.Trainer(model, args).train()\n")
    assert read(str(tmp_path / "train.py"), named=False) == ()
