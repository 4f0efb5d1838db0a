"""prime-rl's command lines."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.composition import compose
from compatcheck.frameworks.prime_rl import configuration as prime_rl
from compatcheck.resolution.gaps import withhold
from tests.unit.frameworks.launch_script.written_commands import documents, facts, runs


def test_files_and_options_over_them() -> None:
    words = "--trainer.model.seq-len 4096 --no-trainer.model.compile --trainer.model.lora.target-modules q_proj k_proj"
    (document,) = documents(f"uv run rl @ base.toml @ over.toml {words}")
    found = facts(document)
    assert found["training.sequence_length"] == 4096
    assert found["training.compile"] is False
    assert found["training.lora_target_modules"] == ("k_proj", "q_proj")
    assert document.references == (("prime-rl", "base.toml", "@"), ("prime-rl", "over.toml", "@"))


@pytest.mark.parametrize("options", ["", " --orchestrator.group-size 4"])
def test_later_files_win_over_earlier_ones_and_options_over_all(options: str) -> None:
    (command,) = documents(f"rl @ a.toml @ b.toml{options}")
    first = {"trainer": {"model": {"seq_len": 1, "cp": 2}}, "orchestrator": {"group_size": 8}}
    files = [
        prime_rl.read(data, name).documents[0]
        for data, name in ((first, "a.toml"), ({"trainer": {"model": {"seq_len": 3}}}, "b.toml"))
    ]
    command, earlier, later = compose((command, *files))
    assert facts(command).get("rollout.n") == (4 if options else None)
    assert facts(later)["training.sequence_length"] == 3
    assert "training.sequence_length" not in facts(earlier)
    assert facts(earlier)["training.context_parallel"] == 2


def test_a_file_of_one_section_and_unknown_words_are_gaps() -> None:
    (document,) = documents("rl @ a.toml --trainer @ trainer.toml $MORE")
    assert {gap.source.key for gap in document.gaps} == {"--trainer", "$MORE"}


@pytest.mark.parametrize(
    "text", ["torchrun -m prime_rl.trainer.rl.train @ t.toml", "trainer @ t.toml", "sft @ t.toml --clean"]
)
def test_its_other_programs(text: str) -> None:
    assert documents(text)[0].reader == "prime-rl"


@pytest.mark.parametrize("text", ["sft --config t.toml", "python sft.py @ t.toml"])
def test_programs_of_others_are_not_its_own(text: str) -> None:
    assert not any(one.reader == "prime-rl" for run in runs(text) for one in run.documents)


@pytest.mark.parametrize(("program", "trainer"), [("rl", None), ("sft", "sft"), ("trainer", None)])
def test_the_program_tells_what_is_trained_and_not_the_keys_of_its_file(program: str, trainer: str | None) -> None:
    command, *_ = documents(f"uv run {program} @ s.toml --data.micro-batch-size 2")
    (file,) = prime_rl.read({"model": {"name": "m", "seq_len": 512}, "ckpt": {}, "optim": {}}, "s.toml").documents
    command, file = compose((command, file))
    assert facts(command).get("training.trainer") == trainer
    assert facts(command).get("training.micro_batch_size") == (2 if program == "sft" else 1)
    assert ("training.sequence_length" in facts(file)) == (program == "trainer")


def test_a_number_of_devices_that_is_left_out_may_stand_in_a_file_that_nobody_read() -> None:
    (command,) = documents("rl @ $CFG")
    ((kept, about),) = withhold((command,))
    assert ("hardware.gpus_per_node", None) in about
    assert not facts(kept).keys() & {"hardware.gpus_per_node", "training.gradient_checkpointing"}


def test_the_trainer_alone_is_one_rank_without_what_its_launchers_set() -> None:
    for words, world in (
        ("uv run trainer @ t.toml", 1),
        ("torchrun --nproc_per_node 8 -m prime_rl.trainer.rl.train @ t.toml", None),
    ):
        stated = {key: value for document in documents(words) for key, value in facts(document).items()}
        assert stated.get("hardware.world_size") == world
    marked = {one.key for one in documents("uv run trainer @ t.toml")[0].statements}
    assert "(by its launcher)" not in marked
    assert "(by its launcher)" in {one.key for one in documents("uv run rl @ t.toml")[0].statements}
