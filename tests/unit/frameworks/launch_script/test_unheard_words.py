"""Words of commands that set something: of every program each is read, or is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.frameworks.launch_script.written_commands import runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.document import Document

COMMANDS = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m {}",
    "torchrun -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=m {}",
    "torchrun -m verl.trainer.sft_trainer model.path=m {}",
    "python3 -m verl.trainer.main config=c.yaml worker.actor.model.model_path=m {}",
    "deepspeed --module openrlhf.cli.train_sft {} --pretrain m",
    "python3 -m openrlhf.cli.train_ppo_ray {} --pretrain m",
    "python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=m {}",
    "deepspeed training/step1_supervised_finetuning/main.py {} --model_name_or_path m --data_path d --zero_stage 2 --deepspeed",
    "accelerate launch open_instruct/finetune.py {} --model_name_or_path m",
    "swift sft {} --model m",
    "torchrun pretrain_gpt.py {} --num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --micro-batch-size 1",
    "python3 train.py {} --actor-num-nodes 1 --rollout-batch-size 4 --hf-checkpoint m",
    "vllm serve m {}",
    "python examples/start_rlvr_pipeline.py {} --config_path a --config_name b",
    "python examples/run_grpo.py --config c.yaml {}",
    "python3 train.py --config c.yaml actor.path=m {}",
    "rl @ rl.toml {}",
    "torchrun -m torchtitan.train {} --job.config_file t.toml",
    "litgpt finetune_lora m {}",
    "axolotl train c.yaml {}",
    "llamafactory-cli train c.yaml {}",
    "tune run full_finetune_single_device --config c.yaml {}",
    "xtuner train c.py {}",
    "torchrun run_train.py {} --config-file c.yaml",
    "python train.py {} --output_dir o --per_device_train_batch_size 1 --learning_rate 1e-5 --model_name_or_path m",
    "trl sft {} --output_dir o --model_name_or_path m",
)


def said(document: Document) -> Iterator[str]:
    """Yield every key that a document speaks of, whether or not it was understood."""
    for found in (document.statements, document.unresolved):
        yield from (one.key for one in found)
    for left in (document.gaps, document.skipped):
        yield from (str(one.source.key) for one in left)
    yield from (key for key, _ in document.unread)
    yield from (f"{key} {name}" for _, name, key in document.references)


@pytest.mark.parametrize("text", COMMANDS)
@pytest.mark.parametrize("word", ["~zzz.k", "+zzz/k=v", "++zzz.k=1", "zzz.k=1", "+zzz=1", "-zzz"])
def test_a_word_that_sets_something_is_read_or_said(text: str, word: str) -> None:
    keys = [key for run in runs(text.format(word)) for document in run.documents for key in said(document)]
    assert any("zzz" in key for key in keys), keys


def test_a_model_of_several_words_is_unknown() -> None:
    (run,) = runs("python -m openrlhf.cli.train_ppo_ray --pretrain m zzz")
    assert [(one.fact, one.why) for one in run.documents[0].unresolved if one.fact == "model.name"] == [
        ("model.name", "is given several words: m zzz")
    ]
