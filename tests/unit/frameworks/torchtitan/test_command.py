"""torchtitan: its command lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.frameworks.registry import find_folder
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents, facts

if TYPE_CHECKING:
    from pathlib import Path

DECIDES = find_folder("torchtitan").decides


def test_options_over_a_file() -> None:
    document, launcher = documents(
        "torchrun --nproc_per_node=8 --nnodes 2 -m torchtitan.train --job.config-file=my.toml "
        "--training.local_batch_size 4 --parallelism.data-parallel-shard-degree 8 --activation_checkpoint.mode full "
        "--compile.enable --training.no-enable-cpu-offload --model.converters float8 mx --training.seq_len $LENGTH $EXTRA"
    )
    assert document.reader == "torchtitan"
    assert document.references == (("torchtitan", "my.toml", "--job.config_file"),)
    assert facts(document) == {
        "training.micro_batch_size": 4,
        "training.sharding": "fsdp",
        "training.gradient_checkpointing": True,
        "training.checkpointing_policy": "full",
        "training.checkpoint_every": 1,
        "training.compile": True,
        "training.fsdp_offload_params": False,
        "training.mixed_precision": "fp8",
        "training.trainer": "pretrain",
    }
    assert [(entry.fact, entry.key) for entry in document.unresolved] == [
        ("training.sequence_length", "training.seq_len")
    ]
    assert [gap.source.key for gap in document.gaps] == ["$EXTRA"]
    assert facts(launcher) == {"hardware.gpus_per_node": 8, "hardware.nodes": 2}


def test_stages_cut_the_batch_of_the_file() -> None:
    document, _ = documents(
        "torchrun -m torchtitan.train --job.config_file f.toml --parallelism.pipeline_parallel_degree 4"
    )
    assert facts(document)["training.micro_batch_size"] == 1
    assert document.unresolved == ()


def test_a_script_that_takes_the_same_options() -> None:
    document = documents("torchrun --nproc_per_node=8 train.py --job.config_file f.toml --training.batch_size 2")[0]
    assert document.reader == "torchtitan"
    assert facts(document)["training.micro_batch_size"] == 2


def test_a_configuration_in_python_is_not_known() -> None:
    document, _ = documents(
        "torchrun -m torchtitan.train --module llama3 --config llama3_8b --training.local_batch_size 2"
    )
    assert facts(document)["training.micro_batch_size"] == 2
    left = {entry.fact for entry in document.unresolved}
    assert left == set(DECIDES) - {"training.micro_batch_size"}
    assert document.unread == ()


def test_a_file_that_nobody_names_is_not_known() -> None:
    document, _ = documents("torchrun -m torchtitan.train --job.config_file $CONFIG_FILE")
    assert {entry.fact for entry in document.unresolved} == set(DECIDES)
    assert document.references == ()


def test_other_modules_of_torchtitan_do_not_train() -> None:
    assert documents("torchrun -m torchtitan.tools.estimate")[0].reader == "script"


def test_a_flavor_over_that_of_the_file() -> None:
    start = "torchrun -m torchtitan.train --job.config_file f.toml"
    document, _ = documents(f"{start} --model.flavor 70B")
    assert document.references[1:] == (("model", "model.flavor 70B", "--model.flavor"),), "no model, and not the file's"
    document, _ = documents(f"{start} --model.name llama3 --model.flavor 70B")
    assert document.references[1:] == (("model", "meta-llama/Llama-3.1-70B", "--model.flavor"),)
    assert document.unresolved == ()


def test_a_batch_of_the_command_counts_over_a_file_that_states_one_stage(tmp_path: Path) -> None:
    def micro_batch(degree: int, options: str = "") -> object:
        text = f"[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = {degree}\n"
        (tmp_path / "f.toml").write_text(text, encoding="utf-8")
        words = f"-m torchtitan.train --job.config_file f.toml --training.local_batch_size 4{options}"
        (tmp_path / "r.sh").write_text(f"torchrun --nproc_per_node 8 {words}\n", encoding="utf-8")
        (reading,) = read_configurations(str(tmp_path / "r.sh"), named=True)
        rules = open_rules(())
        subject = resolve("s", rules=rules, documents=follow_references(reading.documents, rules, {}))
        fact = subject.roles["train"].get("training.micro_batch_size")
        return None if fact is None else fact.value

    assert micro_batch(1) == 4
    assert micro_batch(2) == 1
    assert micro_batch(1, " --parallelism.pipeline_parallel_degree $STAGES") != 8


def test_another_program_with_its_options_is_one_of_its_own() -> None:
    for program, own in (("-m flame.train", False), ("-m torchtitan.train", True), ("train.py", True)):
        document = documents(f"torchrun --nproc_per_node 8 {program} --job.config_file f.toml")[0]
        assert facts(document).get("training.framework") == (None if own else "custom")
        assert bool(document.gaps) is not own
