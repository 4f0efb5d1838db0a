"""NeMo RL's command lines."""

from __future__ import annotations

import pytest

from tests.unit.frameworks.launch_script.written_commands import documents, facts, runs


def test_a_file_and_words_over_it() -> None:
    words = (
        "--config examples/configs/sft.yaml policy.model_name=m ++policy.train_micro_batch_size=2 cluster.num_nodes=$N"
    )
    (document,) = [one for one in documents(f"uv run examples/run_sft.py {words}") if one.reader == "nemo-rl"]
    assert facts(document)["training.micro_batch_size"] == 2
    named = {entry for entry in document.references if entry[0] != "program"}
    assert named == {("nemo-rl", "examples/configs/sft.yaml", "--config"), ("model", "m", "policy.model_name")}


def test_without_a_file_the_script_has_one_of_its_own() -> None:
    (document,) = [
        one
        for one in documents("uv run python examples/run_vlm_grpo.py grpo.max_num_steps=1 policy.precision=float16")
        if one.reader == "nemo-rl"
    ]
    assert ("nemo-rl", "examples/configs/vlm_grpo_3B.yaml", "--config (left out)") in document.references
    assert facts(document, "actor")["training.mixed_precision"] == "fp16"


def test_words_and_files_that_nobody_can_tell_are_gaps() -> None:
    (document,) = [
        one
        for one in documents("python examples/run_dpo.py --config $F policy.precision=float32 $MORE")
        if one.reader == "nemo-rl"
    ]
    assert [gap.source.key for gap in document.gaps] == ["$MORE", "--config"]


@pytest.mark.parametrize("text", ["python run_sft.py --model m --lr 1", "python train/run_dpo.py --config c.yaml"])
def test_scripts_of_others_with_such_names_are_not_its_own(text: str) -> None:
    assert not any(one.reader == "nemo-rl" for run in runs(text) for one in run.documents)
