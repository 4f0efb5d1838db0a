"""torchtune, EasyR1, axolotl, DeepSpeed-Chat and Megatron."""

from __future__ import annotations

from compatcheck.frameworks.easy_r1 import configuration as easy_r1
from compatcheck.frameworks.torchtune import configuration as torchtune
from tests import ROOT
from tests.unit.frameworks.launch_script.written_commands import documents, facts
from tests.unit.frameworks.reading import read_file

FULL = ROOT / "fixtures/configs/torchtune/full.yaml"


def test_a_recipe_with_a_file_and_words_over_it() -> None:
    text = (
        "tune run --nproc_per_node 8 lora_finetune_distributed --config my.yaml "
        "batch_size=2 model.lora_rank=8 tokenizer.max_seq_len=$S"
    )
    document, launcher = documents(text)
    assert document.reader == "torchtune"
    assert facts(document) == {
        "training.micro_batch_size": 2,
        "training.lora_rank": 8,
        "training.trainer": "sft",
        "training.sharding": "fsdp",
        "training.peft": "lora",
    }
    assert document.references == (("config", "my.yaml", "--config"),)
    assert [(entry.fact, entry.key) for entry in document.unresolved] == [
        ("training.sequence_length", "tokenizer.max_seq_len")
    ]
    assert facts(launcher) == {"hardware.gpus_per_node": 8, "hardware.nodes": 1}


def test_a_configuration_of_torchtune_itself_is_not_known() -> None:
    document, launcher = documents(
        "tune run full_finetune_single_device --config llama3/8B_full_single_device batch_size=4"
    )
    assert facts(document)["training.micro_batch_size"] == 4
    assert "training.gradient_checkpointing" in {entry.fact for entry in document.unresolved}
    assert "training.micro_batch_size" not in {entry.fact for entry in document.unresolved}
    assert facts(launcher) == {"hardware.world_size": 1}


def test_a_configuration_file_of_torchtune() -> None:
    document = read_file(torchtune, str(FULL)).documents[0]
    assert facts(document) == {
        "training.micro_batch_size": 2,
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "fused",
        "training.peft": None,
    }
    data = {
        "model": {"_component_": "torchtune.models.llama3.qlora_llama3_8b"},
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
    }
    found = facts(torchtune.read(data, "c.yaml").documents[0])
    assert (found["training.peft"], found["model.quantization"], found["training.loss_implementation"]) == (
        "qlora",
        "nf4",
        "chunked",
    )


def test_easy_r1() -> None:
    words = (
        "config=c.yaml data.max_response_length=2048 "
        "worker.actor.model.model_path=m trainer.n_gpus_per_node=8 worker.rollout.n=5"
    )
    document = documents(
        f"python3 -m verl.trainer.main {words} worker.actor.micro_batch_size_per_device_for_experience=2"
    )[0]
    assert document.reader == "easy-r1"
    assert facts(document)["rollout.n"] == 5
    assert facts(document, "reference")["training.micro_batch_size"] == 2
    assert set(document.references) == {("config", "c.yaml", "config"), ("model", "m", "worker.actor.model.model_path")}
    data = {
        "worker": {"actor": {"offload": {"offload_params": True}}, "rollout": {}},
        "algorithm": {"adv_estimator": "grpo"},
    }
    assert easy_r1.recognise(data)
    assert facts(easy_r1.read(data, "c.yaml").documents[0], "actor")["training.offload_param"] == "cpu"


def test_axolotl_names_its_file() -> None:
    document = documents("axolotl train a.yml --micro-batch-size 2 --launcher torchrun")[0]
    assert document.reader == "axolotl"
    assert document.references == (("config", "a.yml", "(argument)"),)
    assert facts(document) == {"training.micro_batch_size": 2}


def test_deepspeed_chat_in_one_step_and_in_reinforcement_learning() -> None:
    one = (
        "deepspeed main.py --model_name_or_path m --data_split 2,4,4 --zero_stage 2 "
        "--per_device_train_batch_size 4 --offload --lora_dim 128"
    )
    document = documents(one)[0]
    assert document.reader == "deepspeed_chat"
    found = facts(document)
    assert (found["training.zero_stage"], found["training.offload_optimizer"], found["training.mixed_precision"]) == (
        2,
        "cpu",
        "fp16",
    )
    assert (found["training.peft"], found["training.sequence_length"], found["training.gradient_checkpointing"]) == (
        "lora",
        512,
        False,
    )
    three = (
        "deepspeed main.py --actor_model_name_or_path a "
        "--critic_model_name_or_path c --actor_zero_stage 3 --critic_gradient_checkpointing"
    )
    document = documents(three)[0]
    actor, critic = facts(document, "actor"), facts(document, "critic")
    assert (actor["training.zero_stage"], critic["training.zero_stage"]) == (3, 0)
    assert (actor["training.gradient_checkpointing"], critic["training.gradient_checkpointing"]) == (False, True)
    assert [(kind, name) for kind, name, _ in document.references[:2]] == [("model", "a"), ("model:critic", "c")]


def test_megatron_describes_its_model() -> None:
    text = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py "
        "--tensor-model-parallel-size 4 --num-layers 32 --hidden-size 4096 --bf16 "
        "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 "
        "--global-batch-size 256 --train-iters 10 --recompute-granularity full"
    )
    document = documents(text)[0]
    found = facts(document)
    assert document.reader == "megatron"
    assert (found["training.tensor_parallel"], found["training.pipeline_parallel"]) == (4, 1)
    assert (found["model.num_key_value_heads"], found["training.gradient_checkpointing"]) == (32, True)
    assert found["training.sharding"] == "megatron"
