"""XTuner's configurations in Python, alone and under its command."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.checking import Request, gather, open_rules
from compatcheck.frameworks.python_script.settings import read_settings
from compatcheck.frameworks.recognise import read_configurations
from compatcheck.frameworks.xtuner import configuration as xtuner
from tests.unit.frameworks.launch_script.written_commands import facts

TEXT = """
import torch
from mmengine.optim import AmpOptimWrapper
from peft import LoraConfig
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from xtuner.dataset import ConcatDataset, process_hf_dataset
from xtuner.model import {kind}

pretrained_model_name_or_path = "internlm/internlm2-7b"
batch_size = 2
model = dict(
    type={kind},
    use_varlen_attn={varlen},
    llm=dict(type=AutoModelForCausalLM.from_pretrained, pretrained_model_name_or_path=pretrained_model_name_or_path{llm}),
    {lora}
)
data = dict(type=process_hf_dataset, max_length=2048, pack_to_max_length=True)
train_dataloader = dict(batch_size=batch_size, dataset={dataset})
optim_wrapper = dict(type=AmpOptimWrapper, optimizer=dict(type=AdamW, lr=1e-4), accumulative_counts=4, dtype="float16")
visualizer = None
"""
BITS = ", torch_dtype=torch.float16, quantization_config=dict(type=BitsAndBytesConfig, load_in_4bit=True)"
LORA = "lora=dict(type=LoraConfig, r=64, lora_alpha=16),"


def write(tmp_path: Any, llm: str = "", lora: str = "", kind: str = "SupervisedFinetune", **more: str) -> str:
    words = {"dataset": "data", "varlen": "False", **more}
    (tmp_path / "c.py").write_text(TEXT.format(llm=llm, lora=lora, kind=kind, **words), encoding="utf-8")
    return str(tmp_path / "c.py")


def resolve(*paths: str, **more: Any) -> dict[str, Any]:
    (subject,) = gather(Request(paths=paths, here=False, **more), open_rules(), {}).subjects
    return {name: fact.value for name, fact in subject.roles["train"].items()}


def test_a_configuration_is_read_and_no_script(tmp_path: Any) -> None:
    (reading,) = read_configurations(write(tmp_path, BITS, LORA), named=True)
    (document,) = reading.documents
    assert (document.reader, document.unread, document.skipped, document.gaps) == ("xtuner", (), (), ())
    found = facts(document)
    assert (found["training.micro_batch_size"], found["training.gradient_accumulation_steps"]) == (2, 4)
    assert (found["training.sequence_length"], found["training.packing"]) == (2048, True)
    assert (found["model.quantization"], found["training.peft"], found["training.lora_rank"]) == ("nf4", "lora", 64)
    assert (found["training.mixed_precision"], found["training.optimizer"]) == ("fp16", "adamw")
    assert document.place("train_dataloader.batch_size").line == 11


def test_what_is_left_out_is_what_its_code_does(tmp_path: Any) -> None:
    found = resolve(write(tmp_path, BITS, LORA), gpu="A100-80GB")
    assert found["training.gradient_checkpointing"] is True
    assert found["training.lora_target_modules"] == ("all-linear", "output")
    assert found["model.trainable_parameters"] == 157_179_904
    assert found["model.load_dtype"] == "float16"


@pytest.mark.parametrize(("gpu", "sharding"), [("8xA100-80GB", "ddp"), ("1xA100-80GB", "none")])
def test_several_devices_are_ddp(tmp_path: Any, gpu: str, sharding: str) -> None:
    assert resolve(write(tmp_path, BITS, LORA), gpu=gpu)["training.sharding"] == sharding


def test_peft_makes_a_base_that_is_not_quantised_float32(tmp_path: Any) -> None:
    assert resolve(write(tmp_path, ", torch_dtype=torch.bfloat16", LORA))["model.load_dtype"] == "float32"


def test_a_whole_model_is_16_bit_where_flash_attention_is_and_float32_elsewhere(tmp_path: Any) -> None:
    path, packages = write(tmp_path), tmp_path / "environment.txt"
    assert "model.load_dtype" not in resolve(path)
    for listed, dtype in (("flash_attn @ 2.7.4", None), ("flash-attn==2.7.4\n", "bfloat16")):
        packages.write_text(listed if dtype else "torch==2.6.0\n", encoding="utf-8")
        packages.rename(tmp_path / "requirements.txt")
        found = resolve(str(tmp_path / "requirements.txt"), path)
        assert found.get("training.param_dtype") == dtype
        packages = tmp_path / "environment.txt"
    assert resolve(write(tmp_path, varlen="True"))["training.param_dtype"] == "bfloat16"


def test_flash_attention_brings_bfloat16_whatever_the_file_says(tmp_path: Any) -> None:
    asked = ", attn_implementation='flash_attention_2', torch_dtype=torch.float16"
    assert resolve(write(tmp_path, asked))["model.load_dtype"] == "bfloat16"
    assert resolve(write(tmp_path, asked.replace("flash_attention_2", "sdpa")))["model.load_dtype"] == "float16"
    assert resolve(write(tmp_path, ", attn_implementation='sdpa'"))["model.load_dtype"] == "float32"
    (tmp_path / "requirements.txt").write_text("flash-attn==2.7.4\n", encoding="utf-8")
    found = resolve(str(tmp_path / "requirements.txt"), write(tmp_path, BITS, LORA))
    assert (found["model.load_dtype"], found["program.attn_implementation"]) == ("bfloat16", "flash_attention_2")


def test_flash_attention_is_not_taken_for_there_where_nobody_says_so(tmp_path: Any) -> None:
    assert "program.attn_implementation" not in resolve(write(tmp_path, BITS, LORA))


def test_the_longest_of_several_data_sets_counts(tmp_path: Any) -> None:
    several = "dict(type=ConcatDataset, datasets=[data, dict(type=process_hf_dataset, max_length=4096)])"
    (reading,) = read_configurations(write(tmp_path, dataset=several), named=True)
    assert facts(reading.documents[0])["training.sequence_length"] == 4096


def test_pairs_are_packed_with_both_of_their_sides(tmp_path: Any) -> None:
    pairs = "dict(max_length=2048, max_packed_length=8192)"
    (reading,) = read_configurations(write(tmp_path, kind="RewardModel", dataset=pairs), named=True)
    found = facts(reading.documents[0])
    assert (found["training.trainer"], found["training.sequence_length"]) == ("reward", 4096)


def test_a_reward_model_has_no_head(tmp_path: Any) -> None:
    found = resolve(write(tmp_path, kind="RewardModel"))
    assert found["model.lm_head_parameters"] == 0
    assert found["model.parameters"] == found["model.trainable_parameters"] < 7_737_708_544 - 379_000_000


def test_a_model_of_several_parts_is_not_taken_for_one(tmp_path: Any) -> None:
    (reading,) = read_configurations(write(tmp_path, kind="LLaVAModel"), named=True)
    document = reading.documents[0]
    assert document.references == ()
    assert {one.fact for one in document.unresolved} == {"training.trainer", "model.name", "training.peft"}


def test_a_value_that_is_not_followed_is_said(tmp_path: Any) -> None:
    (reading,) = read_configurations(write(tmp_path, ", torch_dtype=choose()", LORA), named=True)
    (open_one,) = reading.documents[0].unresolved
    assert (open_one.fact, open_one.why) == ("model.load_dtype", "is choose(), which is no literal")


def test_a_base_that_is_not_there_leaves_open_what_it_may_say(tmp_path: Any) -> None:
    path = write(tmp_path, BITS, LORA)
    text = (tmp_path / "c.py").read_text(encoding="utf-8")
    (tmp_path / "c.py").write_text(f"_base_ = 'base.py'\n{text}", encoding="utf-8")
    assert "training.gradient_checkpointing" not in resolve(path)
    (tmp_path / "base.py").write_text("model = dict(use_activation_checkpointing=False)\n", encoding="utf-8")
    assert resolve(path)["training.gradient_checkpointing"] is False


def test_changes_in_place_are_read_and_what_is_not_followed_is_said(tmp_path: Any) -> None:
    path = write(tmp_path, BITS, LORA)
    text = (tmp_path / "c.py").read_text(encoding="utf-8")
    change = "del model['lora']\nmodel['use_activation_checkpointing'] = False\ndata.update(max_length=512)\n"
    (tmp_path / "c.py").write_text(text + change, encoding="utf-8")
    found = resolve(path)
    assert (found["training.peft"], found["training.gradient_checkpointing"]) == (None, False)
    assert found["training.sequence_length"] == 512
    (tmp_path / "c.py").write_text(f"{text}tune(model)\n", encoding="utf-8")
    (reading,) = read_configurations(path, named=True)
    (gap,) = reading.documents[0].gaps
    assert (gap.source.key, gap.why) == ("model", "is changed in line 22 in a way that is not followed")
    found = resolve(path)
    assert found["training.micro_batch_size"] == 2
    assert not {"training.peft", "training.gradient_checkpointing", "model.name"} & found.keys()


def test_what_the_hf_trainer_trains_is_not_read() -> None:
    text = "framework = 'huggingface'\nmodel = dict(llm=1)\ntraining_args = dict(lr=1)\n"
    (document,) = xtuner.read(read_settings(text, "c.py"), "c.py").documents
    assert "HF Trainer" in document.skipped[0].reason


def test_a_command_names_the_file_deepspeed_and_the_ranks(tmp_path: Any) -> None:
    write(tmp_path)
    words = "NPROC_PER_NODE=4 xtuner train c.py --deepspeed deepspeed_zero3 --cfg-options train_dataloader.batch_size=8"
    (tmp_path / "t.sh").write_text(f"{words}\n", encoding="utf-8")
    found = resolve(str(tmp_path / "t.sh"))
    assert (found["training.zero_stage"], found["training.mixed_precision"], found["training.zero_init"]) == (
        3,
        "bf16",
        True,
    )
    assert (found["hardware.world_size"], found["training.micro_batch_size"]) == (4, 8)
    assert found["training.param_dtype"] == "bfloat16"


def test_each_group_of_options_adds_to_those_before(tmp_path: Any) -> None:
    write(tmp_path)
    groups = (
        "--cfg-options train_dataloader.batch_size=8 optim_wrapper.accumulative_counts=2 --seed 1 "
        "--cfg-options=train_dataloader.batch_size=3 sequence_parallel_size=2"
    )
    (tmp_path / "t.sh").write_text(f"xtuner train c.py {groups}\n", encoding="utf-8")
    found = resolve(str(tmp_path / "t.sh"))
    assert (found["training.micro_batch_size"], found["training.gradient_accumulation_steps"]) == (3, 2)
    assert found["training.context_parallel"] == 2


def test_ranks_that_a_variable_tells_are_open_and_one_where_none_does(tmp_path: Any) -> None:
    write(tmp_path)
    (tmp_path / "t.sh").write_text("export NPROC_PER_NODE=$GPUS\nxtuner train c.py\n", encoding="utf-8")
    found = resolve(str(tmp_path / "t.sh"))
    assert "hardware.gpus_per_node" not in found
    (tmp_path / "t.sh").write_text("xtuner train c.py\n", encoding="utf-8")
    assert resolve(str(tmp_path / "t.sh"))["hardware.world_size"] == 1


def test_a_file_that_is_not_there_leaves_everything_open(tmp_path: Any) -> None:
    (tmp_path / "t.sh").write_text("xtuner train c.py\nxtuner chat m\n", encoding="utf-8")
    found = resolve(str(tmp_path / "t.sh"))
    assert not {"training.gradient_checkpointing", "training.micro_batch_size", "training.sharding"} & found.keys()


def test_ranks_that_share_sequences_need_flash_attention_and_are_no_ddp(tmp_path: Any) -> None:
    path = write(tmp_path)
    (tmp_path / "c.py").write_text((tmp_path / "c.py").read_text() + "sequence_parallel_size = 8\n", encoding="utf-8")
    found = resolve(path, gpu="8xA100-80GB")
    assert (found["model.attn_implementation"], found["training.param_dtype"]) == ("flash_attention_2", "bfloat16")
    assert found["training.context_parallel"] == 8
    assert "training.sharding" not in found


@pytest.mark.parametrize(("second", "packing"), [("data", True), ("dict(type=process_hf_dataset, max_length=9)", True),
    ("dict(type=process_hf_dataset, pack_to_max_length=False)", None)])  # fmt: skip
def test_data_sets_of_which_all_are_packed(tmp_path: Any, second: str, packing: bool | None) -> None:  # noqa: FBT001
    path = write(tmp_path, dataset=f"dict(type=ConcatDataset, datasets=[data, {second}])")
    assert resolve(path).get("training.packing") is packing


@pytest.mark.parametrize(("options", "sharding"), [("", None), (" --deepspeed deepspeed_zero2", "zero")])
def test_a_strategy_of_the_file_counts_where_none_replaces_it(
    tmp_path: Any, options: str, sharding: str | None
) -> None:
    write(tmp_path)
    strategy = "strategy = dict(type='xtuner.engine.DeepSpeedStrategy')\nrunner_type = 'FlexibleRunner'\n"
    (tmp_path / "c.py").write_text((tmp_path / "c.py").read_text() + strategy, encoding="utf-8")
    (tmp_path / "t.sh").write_text(f"NPROC_PER_NODE=8 xtuner train c.py{options}\n", encoding="utf-8")
    assert resolve(str(tmp_path / "t.sh")).get("training.sharding") == sharding


@pytest.mark.parametrize(
    ("options", "sharding"), [("", "ddp"), (" --deepspeed deepspeed_zero2", "zero"), (" $MORE", None)]
)
def test_without_deepspeed_ranks_that_share_sequences_are_shards_of_nothing(
    tmp_path: Any, options: str, sharding: str | None
) -> None:
    write(tmp_path)
    words = f"c.py{options} --cfg-options sequence_parallel_size=4"
    (tmp_path / "t.sh").write_text(f"NPROC_PER_NODE=8 xtuner train {words}\n", encoding="utf-8")
    found = resolve(str(tmp_path / "t.sh"))
    assert found["training.context_parallel"] == 4
    assert found.get("training.sharding") == sharding
