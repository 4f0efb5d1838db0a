"""What a message and the rules of the stack say together: the rule about the tensor first, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking.out_of_memory import explain_oom
from compatcheck.checking.request import Request
from compatcheck.core.out_of_memory import OutOfMemoryReport
from compatcheck.reporters.out_of_memory import describe_report, format_markdown, format_text
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

RULES = open_rules(())
SIZES = (
    "GPU 0 has a total capacity of 79.15 GiB of which 0.50 GiB is free. Process 7 has 78.60 GiB memory in use. "
    "Of the allocated memory 71.00 GiB is allocated by PyTorch, and 6.50 GiB is reserved by PyTorch but unallocated."
)
LOSS = (
    '  File "/env/transformers/models/qwen2/modeling_qwen2.py", line 8, in forward\n    loss = self.loss_function(logits)\n'
    '  File "/env/transformers/loss/loss_utils.py", line 36, in ForCausalLMLoss\n    logits = logits.float()\n'
)
WARM_UP = (
    '  File "/env/transformers/modeling_utils.py", line 6000, in caching_allocator_warmup\n'
    "    _ = torch.empty(byte_count // factor, dtype=torch.float16, device=device)\n"
)


def read(text: str, *settings: str, **request) -> OutOfMemoryReport:
    return explain_oom(text, "log", Request(settings=settings, **request), RULES, {})


def print_log(frames: str, asked: str, packages: str) -> str:
    return (
        f"{packages}\nTraceback (most recent call last):\n{frames}"
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. {SIZES}"
    )


def test_the_rule_about_the_tensor_comes_first() -> None:
    log = print_log(LOSS, "9.28 GiB", "transformers==4.49.0\ntorch==2.6.0")
    report = read(log, model="qwen2.5-7b")
    assert report.readings[0].outcome == "named"
    first = report.findings[0]
    assert (first.finding.rule_id, first.relation) == ("transformers/causal-lm-loss-in-float32", "tensor")
    assert len({entry.finding.rule_id for entry in report.findings}) == len(report.findings)


def test_the_rule_about_the_loader_comes_first() -> None:
    log = print_log(WARM_UP, "56.74 GiB", "transformers==4.50.0\ntorch==2.6.0")
    report = read(log, "model.device_map=auto", model="qwen2.5-7b")
    assert report.readings[0].matches[0].name.endswith("loader's warm-up buffer, 8 bytes per parameter")
    assert report.findings[0].finding.rule_id == "transformers/warmup-takes-95-percent"


def test_rules_about_training_do_not_explain_the_start_of_an_engine() -> None:
    log = (
        "vllm==0.8.5\ntransformers==4.49.0\ntorch==2.6.0\n"
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering"
    )
    report = read(log)
    assert report.readings[0].message.form == "vllm-sampler"
    for entry in report.findings:
        assert entry.finding.impact.phase not in {"forward", "backward", "step"}


def test_what_costs_nothing_explains_nothing() -> None:
    log = print_log(LOSS, "9.28 GiB", "transformers==4.49.0\ntorch==2.6.0")
    report = read(log, "training.micro_batch_size=1", "training.sequence_length=16384", model="qwen2.5-7b")
    assert all(entry.finding.impact.high_bytes != 0 for entry in report.findings)


def test_settings_the_tensor_grows_with_are_named() -> None:
    log = print_log(LOSS, "9.28 GiB", "transformers==4.49.0\ntorch==2.6.0")
    report = read(log, "training.micro_batch_size=2", "training.sequence_length=8192", model="qwen2.5-7b")
    words = [relief.words for relief in report.relief]
    assert "lower training.micro_batch_size, 2 now" in words
    assert "lower training.sequence_length, 8,192 now" in words


def test_expandable_segments_are_named_where_pieces_would_do() -> None:
    log = print_log(LOSS, "6.90 GiB", "torch==2.6.0")
    (relief, *_) = read(log).relief
    assert relief.words.startswith("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    assert not any("expandable" in entry.words for entry in read(log, "allocator.expandable_segments=true").relief)
    refused = (
        "CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform (function operator())\n"
    )
    assert not any("expandable" in entry.words for entry in read(refused + log).relief), "it was asked for already"


def test_the_estimate_suggests_for_the_device_of_the_message(tmp_path) -> None:
    (tmp_path / "train.sh").write_text(
        "accelerate launch --num_processes 1 sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 8 "
        "--max_seq_length 8192 --bf16 True\n"
    )
    log = print_log(LOSS, "37.12 GiB", "transformers==4.49.0\ntorch==2.6.0\ntrl==0.15.0")
    report = read(log, paths=(str(tmp_path / "train.sh"),))
    assert report.suggestions
    assert all(one.saved_bytes > 0 and one.effect != "more hardware" for one in report.suggestions)
    (first, *_) = [relief for relief in report.relief if "micro_batch_size" in relief.words]
    assert first.source.path.endswith("train.sh")


FENCE = "```"


def test_blocks_of_the_log_say_how_it_ran_where_only_packages_are_named(tmp_path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.49.0\ntorch==2.6.0\ntrl==0.15.0\n")
    options = "--per_device_train_batch_size 4 --max_seq_length 8192"
    command = f"accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-7B {options}"
    log = f"{FENCE}bash\n{command}\n{FENCE}\n{print_log(LOSS, '18.56 GiB', '')}"
    for paths in ((), (str(tmp_path / "requirements.txt"),)):
        report = read(log, paths=paths)
        assert report.readings[0].matches[0].shape == (4, 8192, 152064)
        assert {fact.name for fact in report.facts} >= {"training.micro_batch_size", "training.sequence_length"}
    assert report.findings[0].relation == "tensor"


def test_of_two_commands_nobody_tells_which_one_died() -> None:
    block = f"{FENCE}bash\ntorchrun sft.py --per_device_train_batch_size {{}} --max_seq_length 8192\n{FENCE}\n"
    report = read(block.format(4) + block.format(2) + print_log(LOSS, "18.56 GiB", ""), model="qwen2.5-7b")
    assert "training.micro_batch_size" not in {fact.name for fact in report.facts}


def test_a_command_of_reinforcement_learning_in_a_block_is_read() -> None:
    command = (
        "python3 -m verl.trainer.main_ppo data.max_prompt_length=4096 data.max_response_length=500 "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 "
        "actor_rollout_ref.rollout.name=vllm trainer.n_gpus_per_node=8 trainer.nnodes=1"
    )
    report = read(f"{FENCE}bash\n{command}\n{FENCE}\n{print_log(LOSS, '20.83 GiB', '')}")
    assert report.readings[0].matches[0].shape == (8, 4596, 152064)


def test_a_budget_of_tokens_is_lowered_and_nothing_else_asked_for() -> None:
    log = print_log(LOSS, "9.28 GiB", "transformers==4.49.0\ntorch==2.6.0")
    for budget, full in (("16384", True), ("24000", False)):
        report = read(log, f"training.micro_batch_tokens={budget}", model="qwen2.5-7b")
        assert f"lower training.micro_batch_tokens, {int(budget):,} now" in [relief.words for relief in report.relief]
        assert not any("no input states" in relief.words for relief in report.relief)
        assert "training.micro_batch_size" not in report.readings[0].needs
        if full:
            (match,) = report.readings[0].matches
            assert (match.name, match.shape, match.facts[0]) == (
                "fp32 logits",
                (16384, 152064),
                "training.micro_batch_tokens",
            )


def test_a_batch_that_is_stated_is_lowered_where_the_tokens_are_solved_for() -> None:
    log = print_log(LOSS, "9.28 GiB", "transformers==4.49.0\ntorch==2.6.0")
    words = [relief.words for relief in read(log, "training.micro_batch_size=8", model="qwen2.5-7b").relief]
    assert "lower training.micro_batch_size, 8 now" in words


def test_numbers_that_the_size_contradicts_are_not_lowered(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    arguments = "--stage sft --do_train --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1"
    path.write_text(f"llamafactory-cli train {arguments} --cutoff_len 12000 --bf16\n", encoding="utf-8")
    log = print_log(LOSS, "9.28 GiB", "transformers==4.49.0\ntorch==2.6.0")
    words = [relief.words for relief in read(log, paths=(str(path),)).relief]
    assert words == ["fewer sequences in a micro batch, or shorter ones: the inputs state other numbers"]


@pytest.mark.parametrize(
    "said",
    [
        "I upgraded transformers from 4.52.4 to 4.54.0.",
        "transformers从4.52.4升级到4.54.0后报错",
        "`transformers==4.52.4` works, `transformers==4.53.0` too, with `transformers==4.54.0` it dies",
    ],
)
def test_what_enters_between_two_releases_that_are_named_is_said(said: str) -> None:
    log = f"{said}\nmodel_name_or_path: Qwen/Qwen2.5-7B\n" + print_log(LOSS, "9.28 GiB", "torch==2.6.0")
    report = read(log)
    (change,) = report.changes
    assert change[:3] == ("transformers", "4.52.4", "4.54.0")
    assert "transformers/padding-mask-copied-per-layer" in {finding.rule_id for finding in change.enter}
    assert "may enter between transformers 4.52.4 and 4.54.0, both named here" in format_text(report)
    assert format_markdown(report).count("padding-mask-copied-per-layer") == 1


def test_a_release_that_an_input_states_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.54.0\n", encoding="utf-8")
    log = "transformers from 4.52.4 to 4.54.0\n" + print_log(LOSS, "9.28 GiB", "torch==2.6.0")
    assert read(log, paths=(str(tmp_path / "requirements.txt"),)).changes == ()
    assert read(print_log(LOSS, "9.28 GiB", "torch==2.6.0\ntransformers==4.54.0")).changes == ()


def test_the_start_of_an_engine_is_not_helped_by_what_trains() -> None:
    log = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
    report = read(log, "training.sequence_length=8192", model="llama-3-8b", gpu="A100-40GB")
    assert report.readings[0].message.form.startswith("vllm-")
    assert all(change.name.startswith("rollout.") for one in report.suggestions for change in one.changes)


UTILIZATION = (
    "ValueError: Free memory on device ({free}/80.0 GiB) on startup is less than desired GPU memory utilization "
    "(0.9, 72.0 GiB). Decrease GPU memory utilization"
)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (UTILIZATION.format(free="67.24"), "lower gpu_memory_utilization to 0.84"),
        (UTILIZATION.format(free="0.49"), "free the device"),
        ("CUDA out of memory occurred when warming up sampler with 1024 dummy requests.", "lower max_num_seqs, 1024 now"),
        ("No available memory for the cache blocks. Try", "raise gpu_memory_utilization, where"),
        ("CUDA Error: out of memory at /w/cumem_allocator.cpp:62", "lower gpu_memory_utilization of the engine"),
        ("[torch_memory_saver.cpp] cuMemCreate CUDA_ERROR_OUT_OF_MEMORY", "lower --mem-fraction-static of the engine"),
        ("Not enough memory. Please try to increase --mem-fraction-static.", "raise --mem-fraction-static"),
        ("exitcode: -9", "fewer processes and data-loader workers"),
    ],
)  # fmt: skip
def test_messages_of_engines_and_of_the_host_end_with_a_plan(log: str, words: str) -> None:
    assert read(log).relief[0].words.startswith(words)


def test_what_an_input_states_is_what_is_lowered() -> None:
    wakes = read("CUDA Error: out of memory at /w/cumem_allocator.cpp:62", "rollout.gpu_memory_utilization=0.6")
    assert wakes.relief[0].words == "lower rollout.gpu_memory_utilization, 0.6 now"
    killed = read("exitcode: -9", "training.offload_optimizer=cpu", "training.offload_param=none")
    assert [relief.words for relief in killed.relief][:-1] == ["keep it off the host: training.offload_optimizer"]


def test_what_is_left_over_is_not_offered_to_the_allocator() -> None:
    log = (
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 2 has a total capacity of 14.62 GiB of which 3.31 MiB is free. "
        "Including non-PyTorch memory, this process has 14.61 GiB memory in use. Of the allocated memory 14.42 GiB is allocated "
        "by PyTorch, and 23.14 MiB is reserved by PyTorch but unallocated."
    )
    assert not any("expandable" in relief.words for relief in read(log).relief)


@pytest.mark.parametrize(
    ("text", "messages"), [("transformers==4.51.2 is installed", 0), ("the run is out of memory", 1)]
)
def test_a_text_without_a_message_is_answered_with_a_question(text: str, messages: int) -> None:
    report = read(text)
    assert report.exit_code == 3
    assert report.readings[0].question
    assert len(describe_report(report)["messages"]) == messages


def test_an_engine_that_starts_is_no_training_of_its_longest_sequence() -> None:
    log = "Insufficient memory when vLLM starts\nINFO: config: model='meta-llama/Llama-3.1-8B', max_seq_len=131072"
    assert read(log, gpu="A100-80GB").suggestions == ()


def test_a_cut_traceback_in_the_trainer_hides_no_tensor() -> None:
    frames = '  File "/env/transformers/trainer.py", line 8, in training_step\n    loss = self.do(model)\n'
    log = print_log(frames, "9.28 GiB", "torch==2.6.0")
    report = read(log, "training.micro_batch_size=1", "training.sequence_length=16384", model="qwen2.5-7b")
    assert report.readings[0].place.phase == "training"
    assert report.readings[0].outcome == "named"


def test_a_rule_that_may_apply_explains_words_that_name_what_it_is_about() -> None:
    packages = "transformers==4.51.3\ntorch==2.7.0\ntrl==0.17.0\npeft==0.15.2\naccelerate==1.10.1\n"
    assert all(entry.finding.status == "affected" for entry in read(f"{packages}OOM in the first step").findings)
    named = read(f"{packages}OOM: FSDP2 takes more than FSDP with LoRA").findings
    assert "accelerate/fsdp2-upcasts-frozen-weights" in {entry.finding.rule_id for entry in named}


def test_a_change_of_releases_is_read_of_the_package_as_people_call_it() -> None:
    report = read("将transformer从4.52.4升级到4.54.0后OOM，模型 Qwen/Qwen2.5-7B")
    assert [change[:3] for change in report.changes] == [("transformers", "4.52.4", "4.54.0")]
