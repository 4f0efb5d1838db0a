"""ms-swift's command lines."""

from __future__ import annotations

import pytest

from tests.unit.frameworks.launch_script.written_commands import LINE, documents, facts


def test_options_are_those_of_its_files() -> None:
    swift = documents(
        "swift sft --model m --train_type lora --per_device_train_batch_size 2 --max_length 4096 --deepspeed zero3"
    )[0]
    assert swift.reader == "ms_swift"
    assert facts(swift)["training.sequence_length"] == 4096


TUNE = "swift sft --model m --train_type lora --per_device_train_batch_size 2 --max_length 4096"


def spread(text: str, **variables: str) -> object:
    """Return over how many devices each process spreads its model; `auto` over all of them, None where nobody says."""
    first = documents(text, **variables)[0]
    if any(entry.fact == "hardware.devices_per_rank" for entry in first.unresolved):
        return "unknown"
    stated = facts(first)
    return stated.get("hardware.devices_per_rank", stated.get("model.device_map"))


def test_one_process_has_all_devices_that_it_sees() -> None:
    assert spread(TUNE, CUDA_VISIBLE_DEVICES="0,1") == 2
    assert spread(TUNE, CUDA_VISIBLE_DEVICES="0") == 1
    assert spread(TUNE) == "auto"
    assert spread(TUNE, CUDA_VISIBLE_DEVICES="$DEVICES") == "unknown"
    assert spread(TUNE, CUDA_VISIBLE_DEVICES="0,1,2,3", NPROC_PER_NODE="2") == 2
    assert spread(TUNE, NPROC_PER_NODE="4") is None
    assert spread(TUNE + " --device_map cuda:0", CUDA_VISIBLE_DEVICES="0,1") == "cuda:0"
    assert spread(TUNE + " --max_memory {0:'20GB',1:'60GB'}", CUDA_VISIBLE_DEVICES="0,1") == "unknown"
    assert spread("torchrun --nproc_per_node 2 swift/cli/sft.py --model m --train_type lora") is None


def test_deepspeed_is_refused_where_a_process_has_several_devices() -> None:
    refused = documents(TUNE + " --deepspeed zero2", CUDA_VISIBLE_DEVICES="0,1")[0].skipped
    assert [entry.reason for entry in refused] == [
        "ms-swift refuses DeepSpeed where a process has 2 devices; the run does not start"
    ]
    assert not documents(TUNE + " --deepspeed zero2", CUDA_VISIBLE_DEVICES="0,1", NPROC_PER_NODE="2")[0].skipped
    assert not documents("megatron sft --model m --max_length 1", CUDA_VISIBLE_DEVICES="0,1")[0].skipped


def test_code_of_ones_own_is_an_assumption() -> None:
    gaps = documents(TUNE + " --external_plugins mine.py --custom_register_path data.py")[0].gaps
    assert [(gap.source.key, gap.source.line, gap.assumed) for gap in gaps] == [
        ("external_plugins", LINE, True),
        ("custom_register_path", LINE, True),
    ]


def test_stored_arguments_leave_open_what_they_fill_in() -> None:
    opened = {entry.fact for entry in documents(TUNE + " --load_args true --resume_from_checkpoint ck")[0].unresolved}
    assert {"training.peft", "model.load_dtype", "model.quantization"} <= opened
    assert not documents(TUNE + " --load_args false")[0].unresolved


def test_a_loss_in_chunks_over_whole_logits_is_left_open_where_ranks_share_a_sequence() -> None:
    for size, ranks, opened in (("2048", 8, True), ("0", 8, False), ("2048", 1, False)):
        words = f"{TUNE} --sequence_parallel_size {ranks}"
        (document, *_) = documents(words, CELOSS_PARALLEL_SIZE=size, NPROC_PER_NODE="8")
        assert ("training.loss_implementation" in {one.fact for one in document.unresolved}) is opened


@pytest.mark.parametrize("command", ["swift sft", "llamafactory-cli train", "trl sft"])
def test_what_every_unknown_option_may_have_meant_is_not_searched(command: str) -> None:
    first, *_ = documents(command + "".join(f" --per_device_train_batch_size{number} 1" for number in range(300)))
    near = [guess for _, guess in first.unread]
    assert near == ["per_device_train_batch_size"] * 100 + [None] * 200


@pytest.mark.parametrize(
    ("command", "skips"),
    [
        ("swift pt --model m", False),
        ("python swift/cli/pt.py --model m --use_logits_to_keep true", False),
        ("swift sft --model m", None),
        ("swift sft --model m --use_logits_to_keep true", True),
    ],
)
def test_pretraining_labels_every_position(command: str, skips: object) -> None:
    assert facts(documents(command)[0]).get("program.skips_unlabelled_logits") is skips
