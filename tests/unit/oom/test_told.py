"""A text without the program's message is answered by its words and by the frames that are left of a traceback."""

from __future__ import annotations

import pytest

from compatcheck.oom.explain import explain
from compatcheck.oom.message import read_messages
from compatcheck.oom.told import attach_frames, tell

ENV = "/env/lib/python3.12/site-packages/"
HEAD = "Traceback (most recent call last):\n"


def frame(file: str, function: str, code: str) -> str:
    return f'  File "{ENV}{file}", line 7, in {function}\n    {code}\n'


def reading_of(text: str):
    assert read_messages(text) == ()
    message = tell(text)
    assert message is not None
    return explain(message, {})


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (frame("vllm/v1/worker/gpu_model_runner.py", "load_model", "self.model = get_model(config)"), "load/weights"),
        (frame("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)"), "forward/forward"),
        (frame("transformers/trainer.py", "_inner_training_loop", "tr_loss_step = self.training_step(model, inputs)"), "training/training"),
        (frame("megatron/training/training.py", "train", "should_exit = checkpoint_and_decide_exit("), "save/state"),
        (frame("vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(*args)"), "rollout/engine_start"),
        (frame("vllm/v1/engine/core.py", "_process_engine_step", "outputs = self.step_fn()"), "rollout/serving"),
        (frame("vllm/v1/core/kv_cache_utils.py", "check_enough_kv_cache_memory", "raise ValueError("), "rollout/kv_cache"),
        (frame("vllm/device_allocator/cumem.py", "create_and_map", "python_create_and_map(*handle)"), "rollout/wake_up"),
        (frame("sglang/srt/model_executor/cuda_graph_runner.py", "__init__", "raise Exception("), "rollout/cuda_graphs"),
        (frame("deepspeed/runtime/engine.py", "_configure_distributed_model", "self.module.to(self.device)"), "load/cast"),
        (frame("sglang/srt/managers/scheduler.py", "run_scheduler_process", "scheduler = Scheduler("), "rollout/engine_start"),
        (frame("vllm/v1/core/sched/x.py", "anything", "self.queue.pop()"), "rollout/rollout"),
        (frame("vllm/v1/worker/gpu_model_runner.py", "execute_model", "hidden = self.model(ids)"), "rollout/forward"),
        (frame("verl/trainer/ray_trainer.py", "fit", "output = self.actor_rollout_ref_wg.update_actor(batch)"), "training/training"),
        (frame("worker.py", "get_logprobs", "token_logprobs = forward("), "forward/log_probabilities"),
    ],
)  # fmt: skip
def test_the_frames_that_are_left_tell_the_place(frames: str, place: str) -> None:
    reading = reading_of(f"# OOM on 8 cards\n{HEAD}{frames}")
    assert reading.message.form == "told"
    assert f"{reading.place.phase}/{reading.place.part}" == place
    assert reading.question
    cut = reading_of(f"{HEAD}{frames}")
    assert (cut.message.form, cut.place.phase) == ("cut-traceback", place.partition("/")[0])


def test_a_traceback_that_ends_otherwise_is_not_of_memory() -> None:
    frames = frame("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)")
    assert tell(f"{HEAD}{frames}KeyError: 'labels'\n") is None
    assert reading_of(f"{HEAD}{frames}KeyError: 'labels'\n\nbefore that it was out of memory").place is None


def test_a_call_that_may_be_of_anything_adds_no_place() -> None:
    frames = frame("vllm/model_executor/models/llama.py", "__init__", "self.mlp = LlamaMLP(")
    assert reading_of(f"oom\n{HEAD}{frames}").place.phase == "load"


@pytest.mark.parametrize(
    ("words", "memory"),
    [
        ("the OOM comes at once", "device"),
        ("训练一开始就会OOM，请问", "device"),
        ("训练几轮之后爆显存", "device"),
        ("Ray OOM after two steps", "host"),
        ("system OOM when it saves", "host"),
        ("进程自动被killed", "host"),
        ("内存不足", "host"),
        ("CUDA out of memory although the host has plenty", "device"),
    ],
)
def test_words_tell_which_memory(words: str, memory: str) -> None:
    reading = reading_of(f"a title\n{words}\n")
    assert (reading.message.form, reading.message.memory, reading.message.line) == ("told", memory, 2)


@pytest.mark.parametrize("words", ["auto_retry_on_oom: true", "the oomph of it", "a zoom lens"])
def test_what_only_looks_like_the_word_is_none(words: str) -> None:
    assert tell(words) is None


def test_a_function_that_the_words_name_is_the_place() -> None:
    reading = reading_of("OOM at optimizer.step() with one sequence")
    assert (reading.place.phase, reading.place.why) == ("step", "the text names optimizer.step()")
    assert reading_of("OOM at optimizer.step() or in loss.backward()").place is None


def test_the_frames_behind_a_title_belong_to_its_message() -> None:
    title = "# CUDA out of memory. Tried to allocate 350.00 MiB.\n"
    frames = frame("vllm/model_executor/models/llama.py", "__init__", "self.gate_up_proj = Linear(")
    text = f"{title}\nthe log:\n(EngineCore pid=3) {HEAD}{frames}"
    (message,) = attach_frames(read_messages(text), text)
    assert explain(message, {}).place.phase == "load"
    (message,) = attach_frames(read_messages(f"{text}ValueError: no"), f"{text}ValueError: no")
    assert message.frames == ()


def test_a_frame_without_its_beginning_is_read() -> None:
    text = 'qwen/modeling_x.py", line 3, in forward\n    attn_weights = torch.matmul(q, k)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.'
    (message,) = read_messages(text)
    assert explain(message, {}).place.part == "attention"
