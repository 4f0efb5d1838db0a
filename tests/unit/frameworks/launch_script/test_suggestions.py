"""What options of a program that nobody read seem to say."""

from __future__ import annotations

import pytest

from tests.unit.frameworks.launch_script.written_commands import runs


@pytest.mark.parametrize(
    ("options", "suggested"),
    [
        ("--base_model org/m --max_seq_length 2048", "--model org/m --set training.sequence_length=2048"),
        (
            "--micro-batch-size 4 --cutoff_len 512",
            "--set training.sequence_length=512 --set training.micro_batch_size=4",
        ),
        ("--batch_size 4", None),  # of a rank, or of all of them
        ("--ppo_micro_batch_size 4 --log_prob_micro_batch_size 8", None),
        ("--model '/m p/x'", "--model '/m p/x'"),
        ("--seq_len $LEN --batch_size -1 --model_path", None),
        ("--layers 3 --hidden 64", None),
    ],
)
def test_names_that_most_programs_share(options, suggested) -> None:
    ((_, documents),) = runs(f"torchrun --nproc_per_node 8 mine.py {options}")
    hint = documents[0].skipped[0].hint
    assert hint == "--set what they decide" + (f"; if their names say it: {suggested}" if suggested else "")
