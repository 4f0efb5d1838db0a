"""ms-swift's command lines."""

from __future__ import annotations

from tests.unit.frameworks.launch_script.written_commands import documents, facts


def test_options_are_those_of_its_files() -> None:
    swift = documents(
        "swift sft --model m --train_type lora --per_device_train_batch_size 2 --max_length 4096 --deepspeed zero3"
    )[0]
    assert swift.reader == "ms_swift"
    assert facts(swift)["training.sequence_length"] == 4096
