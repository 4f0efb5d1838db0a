"""axolotl's command lines."""

from __future__ import annotations

from tests.unit.frameworks.launch_script.written_commands import documents, facts


def test_axolotl_names_its_file() -> None:
    document = documents("axolotl train a.yml --micro-batch-size 2 --launcher torchrun")[0]
    assert document.reader == "axolotl"
    assert document.references == (("config", "a.yml", "(argument)"),)
    assert facts(document) == {"training.micro_batch_size": 2}


def test_losses_of_reinforcement_learning_are_no_option_to_propose() -> None:
    assert "dpo_use_liger_kernel" not in documents("axolotl train a.yml --micro-batch-size 2")[0].table
    given = documents("axolotl train a.yml --dpo-use-liger-kernel true")[0]
    assert facts(given) == {"training.use_liger_kernel": True}


def test_one_process_alone_spreads_its_model_over_the_devices_it_sees() -> None:
    alone, launcher = documents("python -m axolotl.cli.train a.yml", CUDA_VISIBLE_DEVICES="0,1")
    assert facts(alone) == {"model.device_map": "auto", "hardware.devices_per_rank": 2}
    assert facts(launcher) == {"hardware.world_size": 1}
    assert facts(documents("python -m axolotl.cli.train a.yml")[0]) == {"model.device_map": "auto"}
    for launched in ("axolotl train a.yml", "accelerate launch --num_processes 2 -m axolotl.cli.train a.yml"):
        assert facts(documents(launched, CUDA_VISIBLE_DEVICES="0,1")[0]) == {}
