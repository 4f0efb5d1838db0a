"""Where a traceback points: phase and part, from the innermost frame that tells."""

from __future__ import annotations

import pytest

from compatcheck.core.out_of_memory import Frame
from compatcheck.oom.frames import find_place
from compatcheck.oom.text import find_frames
from tests.effort import at_most

ENV = "/env/lib/python3.11/site-packages/"
MODULE = (ENV + "torch/nn/modules/module.py", 1747, "_call_impl", "return forward_call(*args, **kwargs)")
LINEAR = (ENV + "torch/nn/modules/linear.py", 125, "forward", "return F.linear(input, self.weight, self.bias)")
TRAINER = (ENV + "transformers/trainer.py", 2122, "train", "return inner_training_loop(")
BACKWARD = (ENV + "torch/autograd/__init__.py", 251, "backward", "Variable._execution_engine.run_backward(")
LLAMA = ENV + "transformers/models/llama/modeling_llama.py"


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([TRAINER, (LLAMA, 1213, "forward", "logits = logits.float()")], "forward/loss"),
        ([TRAINER, (LLAMA, 837, "forward", "logits = self.lm_head(hidden_states)"), MODULE, LINEAR], "forward/logits"),
        ([TRAINER, (LLAMA, 240, "forward", "hidden_states = self.mlp(hidden_states)"), MODULE, LINEAR], "forward/mlp"),
        ([TRAINER, (ENV + "transformers/loss/loss_utils.py", 38, "fixed_cross_entropy", "loss = nn.functional.cross_entropy(source, target)"),
          (ENV + "torch/nn/functional.py", 3104, "cross_entropy", "return torch._C._nn.cross_entropy_loss(")], "forward/loss"),
        ([TRAINER, (LLAMA, 340, "forward", "attn_weights = torch.matmul(query_states, key_states.transpose(2, 3))")], "forward/attention"),
        ([TRAINER, (LLAMA, 70, "forward", "hidden_states = hidden_states.to(torch.float32)")], "forward/norm"),
        ([TRAINER, (LLAMA, 1000, "_update_causal_mask", "causal_mask = torch.full(")], "forward/mask"),
        ([TRAINER, BACKWARD], "backward/backward"),
        ([TRAINER, BACKWARD, (ENV + "torch/utils/checkpoint.py", 300, "backward", "outputs = ctx.run_function(*detached)"),
          (LLAMA, 240, "forward", "hidden_states = self.mlp(hidden_states)"), MODULE, LINEAR], "backward/mlp"),
        ([TRAINER, (ENV + "torch/optim/adamw.py", 187, "step", "adamw("), (ENV + "torch/optim/adamw.py", 608, "_multi_tensor_adamw", "torch._foreach_sqrt(x)")], "step/optimizer"),
        ([TRAINER, (ENV + "deepspeed/runtime/zero/stage3.py", 900, "initialize_optimizer_states", "gradient_buffer = torch.zeros(")], "setup/optimizer_state"),
        ([TRAINER, (ENV + "deepspeed/runtime/zero/partition_parameters.py", 1100, "all_gather_coalesced", "torch.empty(")], "gather/parameters"),
        ([TRAINER, (ENV + "torch/distributed/fsdp/_flat_param.py", 1300, "_alloc_padded_unsharded_flat_param", "_alloc_storage(")], "gather/parameters"),
        ([TRAINER, (ENV + "transformers/modeling_utils.py", 5800, "caching_allocator_warmup", "_ = torch.empty(byte_count // factor)")], "load/warm_up"),
        ([(ENV + "torch/nn/modules/module.py", 1326, "convert", "return t.to(")], "load/cast"),
        ([(ENV + "accelerate/utils/modeling.py", 311, "set_module_tensor_to_device", "new_value = value.to(device)")], "load/weights"),
        ([(ENV + "vllm/v1/worker/gpu_model_runner.py", 2000, "initialize_kv_cache_tensors", "torch.zeros(size)")], "rollout/kv_cache"),
        ([(ENV + "vllm/model_executor/models/llama.py", 80, "forward", "gate_up, _ = self.gate_up_proj(x)")], "rollout/forward"),
        ([(ENV + "verl/workers/actor/dp_actor.py", 120, "_forward_micro_batch", "log_probs = logprobs_from_logits("),
          (ENV + "verl/utils/torch_functional.py", 60, "logprobs_from_logits_v2", "logits_labels = torch.gather(")], "forward/log_probabilities"),
        ([(ENV + "transformers/generation/utils.py", 3200, "generate", "result = self._sample("), (LLAMA, 240, "forward", "hidden_states = self.mlp(hidden_states)")], "rollout/mlp"),
        ([(ENV + "transformers/trainer.py", 4100, "evaluate", "output = eval_loop("), (ENV + "transformers/trainer_pt_utils.py", 100, "nested_concat", "torch.cat(")], "evaluation/gathered_logits"),
        ([(ENV + "deepspeed/runtime/engine.py", 3000, "save_checkpoint", "self._save_zero_checkpoint(")], "save/state"),
    ],
)  # fmt: skip
def test_frames_tell_phase_and_part(frames, place) -> None:
    found = find_place([Frame(*frame) for frame in frames])
    assert f"{found.phase}/{found.part}" == place


@pytest.mark.parametrize("frames", [[], [TRAINER], [("/job/train.py", 3, "<module>", "main()"), MODULE, LINEAR]])
def test_frames_that_tell_nothing(frames) -> None:
    assert find_place([Frame(*frame) for frame in frames]) is None


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last): File "/env/a.py", line 7, in train step(batch) File "/env/torch/optim/adam.py", line 9, in step adam( RuntimeError:',
        "File /env/a.py:7, in train(model) 6 x = 1 ----> 7 step(batch) 8 y = 2 File /env/torch/optim/adam.py:9, in step(self) 8 z ----> 9 adam( 10 a",
        "/env/a.py:7 in train 6 x = 1 ❱ 7 step(batch) 8 y = 2 /env/torch/optim/adam.py:9 in step 8 z ❱ 9 adam( 10 a",
    ],
    ids=["python", "ipython", "rich"],
)
def test_tracebacks_of_every_program_are_read(text) -> None:
    frames = find_frames(text)
    assert [(frame.file, frame.line, frame.function) for frame in frames] == [
        ("/env/a.py", 7, "train"),
        ("/env/torch/optim/adam.py", 9, "step"),
    ]
    assert [frame.code for frame in frames] == ["step(batch)", "adam("]


def test_only_the_last_traceback_counts() -> None:
    text = 'Traceback (most recent call last): File "/a.py", line 1, in f g() During handling … Traceback (most recent call last): File "/b.py", line 2, in h i()'
    assert [frame.file for frame in find_frames(text)] == ["/b.py"]


def test_windows_paths_are_read_like_others() -> None:
    (frame,) = find_frames(r'File "C:\env\torch\optim\adam.py", line 9, in step adam(')
    assert find_place([frame]).part == "optimizer"


@pytest.mark.parametrize("word", ["Aa1+/", "/a/", "a.b", 'x"'])
def test_paths_are_looked_for_behind_frames_alone(word: str) -> None:
    text = 400_000 * word
    with at_most(2):
        (frame,) = find_frames(f"{text} /home/u/train.py in f(x)")
    assert (frame.file, frame.function) == ("/home/u/train.py", "f")
