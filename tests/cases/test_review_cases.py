"""First visits and public stacks: what a run is told, in whole commands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import Ran, run

INCIDENT = Path(__file__).parents[2] / "fixtures/cases/openrlhf-llama3-70b"
ZERO3 = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}
TRAIN = """\
model_name_or_path: Qwen/Qwen2.5-32B-Instruct
bf16: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
gradient_checkpointing: true
max_length: 8192
deepspeed: ds.json
output_dir: out
"""
SFT = """\
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", bf16=True, per_device_train_batch_size=2, gradient_checkpointing=True, max_length=8192{more})
SFTTrainer(model="Qwen/Qwen2.5-32B-Instruct", args=args, train_dataset=None).train()
"""
VERL = """\
{before}python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 data.max_prompt_length=1024 \\
    data.max_response_length=3072 actor_rollout_ref.model.path={model} actor_rollout_ref.model.use_remove_padding=True \\
    actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 trainer.n_gpus_per_node=8 trainer.nnodes=1
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def require(**versions: str) -> None:
    write("requirements.txt", "".join(f"{name.replace('_', '-')}=={version}\n" for name, version in versions.items()))


def findings(*arguments: object) -> dict[str, Mapping[str, Any]]:
    """Check, and return the findings by their rules."""
    ran = run("check", *arguments, "--format", "json")
    return {one["rule_id"]: one for one in json.loads(ran.out)["findings"]}


def affected(*arguments: object) -> set[str]:
    return {rule for rule, one in findings(*arguments).items() if one["status"] == "affected"}


def words(ran: Ran) -> str:
    """Return what a command wrote, its lines joined."""
    return re.sub(r"\s+", " ", ran.out)


def install_sft(deepspeed: str = "0.16.4") -> None:
    require(deepspeed=deepspeed, transformers="5.3.0", torch="2.9.1", trl="1.0.0", accelerate="1.12.0")
    write("ds.json", json.dumps(ZERO3))


def test_a_suggestion_says_what_the_estimate_says_of_it() -> None:
    install_sft()
    write("train.yaml", TRAIN)
    run_of = ("estimate", ".", "--gpu", "8xH100-80GB")
    suggested = words(run(*run_of, "--suggest"))
    after = words(run(*run_of, "--set", "training.offload_optimizer=cpu"))
    needs = re.search(r"does not fit: needs ([\d.]+ GiB)", after)
    assert needs is not None
    alone = re.search(
        r"(?<!\+ )optimizer states on the host saves [\d.]+ GiB, then needs ([\d.]+ GiB): (does not fit|fits)",
        suggested,
    )
    assert alone is not None
    assert alone.groups() == (needs[1], "does not fit")


def test_the_plan_of_a_run_that_does_not_fit_ends_where_it_fits() -> None:
    install_sft()
    write("train.yaml", TRAIN)
    said = words(run("check", ".", "--gpu", "8xH100-80GB"))
    assert "deepspeed 0.16.4 → 0.16.8" in said
    assert "then fits: needs" in said


def test_remedies_of_the_incident_can_be_installed_together() -> None:
    said = words(run("check", INCIDENT))
    commands = set(re.findall(r"pip install ('[^)]*?')(?= [a-z]| *$)", said))
    assert all("'deepspeed==0.16.8'" in command and "'openrlhf==0.8.1'" in command for command in commands)
    assert "openrlhf 0.6.1 requires deepspeed==0.16.4" in said
    assert commands


def test_fix_solves_the_incident_as_check_says() -> None:
    said = words(run("fix", INCIDENT, "--offline"))
    assert "+deepspeed==0.16.8" in said
    assert "+openrlhf==0.8.1" in said
    assert not re.search(r"\bsafe\b", said)
    assert "not checked by a resolver: --offline" in said


def test_a_hook_fails_where_the_model_of_a_run_is_missing() -> None:
    install_sft("0.16.8")
    write("configs/train.yaml", TRAIN.replace("ds.json", "../ds.json"))
    policy = 'lock = "requirements.txt"\ntraining = "configs/train.yaml"\nmodel = "configs/config.json"\ngpu = "8xH100-80GB"\n'
    write("compatcheck.toml", f"[runs.train]\n{policy}")
    assert run("check", "--hook", "requirements.txt").code == run("check").code == 4


def test_a_run_that_does_not_fit_fails() -> None:
    install_sft("0.16.8")
    write("train.yaml", TRAIN)
    assert run("check", ".", "--gpu", "8xH100-80GB").code == 1


@pytest.mark.parametrize("form", ["text", "github", "markdown", "sarif"])
def test_the_driver_that_is_named_is_that_of_the_cuda_here(form: str) -> None:
    write("requirements.txt", "torch==2.6.0+cu124\n")
    said = run("check", "requirements.txt", "--driver", "470.57", "--format", form).out.replace("&#62;", ">")
    assert re.search(r"upgrade driver\s+to >=525", said)
    assert ">=580" not in said


def test_one_fact_brings_no_finding_that_rests_on_another() -> None:
    require(deepspeed="0.16.4", transformers="5.3.0", torch="2.9.1", trl="1.0.0", accelerate="1.12.0")
    asked = ("requirements.txt", "--model", "Qwen/Qwen2.5-32B-Instruct", "--set", "training.zero_stage=3")
    assert not affected(*asked)
    assert run("check", *asked).code == 0


@pytest.mark.parametrize("checkpointing", ["true", "false", None])
def test_a_reuse_distance_of_zero_keeps_nothing_however_it_is_checkpointed(checkpointing: str | None) -> None:
    require(deepspeed="0.16.4", transformers="5.3.0", torch="2.9.1")
    settings = ["training.zero_stage=3", "training.max_reuse_distance=0"]
    settings += [] if checkpointing is None else [f"training.gradient_checkpointing={checkpointing}"]
    asked = (
        "requirements.txt",
        "--model",
        "Qwen/Qwen2.5-32B-Instruct",
        *(part for one in settings for part in ("--set", one)),
    )
    assert "deepspeed/zero3-reuse-window-stays-gathered" not in findings(*asked)


def test_weights_that_two_rules_of_zero3_keep_are_one_finding() -> None:
    require(deepspeed="0.19.3", transformers="4.57.1", torch="2.9.0")
    settings = ["training.zero_stage=3", "training.zero_init=false", "training.gradient_checkpointing=false"]
    settings += ["training.max_reuse_distance=1000000000", "training.param_dtype=bfloat16"]
    asked = ("requirements.txt", "--model", "Qwen/Qwen2.5-0.5B", "--gpu", "8xH100-80GB")
    shown = run("check", *asked, *(part for one in settings for part in ("--set", one))).out
    assert "zero3-reuse-window-stays-gathered" in shown
    assert "zero3-linear-weights-kept-for-backward" not in shown


def test_a_model_that_trl_loads_by_name_is_float32_but_under_zero3() -> None:
    install_sft("0.16.8")
    write("sft.py", SFT.format(more=', deepspeed="ds.json"'))
    asked = ("requirements.txt", "sft.py", "--gpu", "8xH100-80GB")
    assert "trl/model-id-loads-in-float32" not in findings(*asked)
    assert "model.load_dtype = float32" in words(run("facts", *asked))


def test_the_dtype_that_a_trainer_is_told_for_its_model_is_read() -> None:
    install_sft("0.16.8")
    write("sft.py", SFT.format(more=', model_init_kwargs={"dtype": "float16"}'))
    assert "model.load_dtype = float16" in words(run("facts", "requirements.txt", "sft.py"))


def test_nothing_checked_names_what_to_add() -> None:
    write("ds.json", json.dumps(ZERO3))
    write("train.yaml", TRAIN)
    ran = run("check", ".")
    assert ran.code == 3
    assert "compatcheck check . --python" in words(ran)


def test_only_the_option_that_is_missing_is_asked_for() -> None:
    require(torch="2.6.0", transformers="4.51.3", accelerate="1.4.0")
    assert "give --training and --model" in words(run("check", "requirements.txt"))
    assert re.search(r"give --training(?! and)", words(run("check", "requirements.txt", "--model", "Qwen/Qwen2.5-7B")))


def test_a_report_ends_with_the_worst_finding() -> None:
    install_sft()
    write("train.yaml", TRAIN)
    said = words(run("check", ".", "--gpu", "8xH100-80GB"))
    assert said.rstrip().endswith("worst: critical _stack/run-does-not-fit, 81.9 GiB per rank")
    assert said.startswith("FAILS")


SEARCH_R1 = """\
PYTHONUNBUFFERED=1 python3 -m verl.trainer.main_ppo data.train_batch_size=512 data.max_prompt_length=4096 \\
    data.max_response_length=500 data.max_start_length=2048 data.max_obs_length=500 algorithm.adv_estimator=gae \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.model.enable_gradient_checkpointing=true \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size=64 \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size=128 actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.ref.log_prob_micro_batch_size=128 \\
    actor_rollout_ref.rollout.n_agent=1 critic.model.path=Qwen/Qwen2.5-7B-Instruct critic.ppo_micro_batch_size=8 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=1 max_turns=2 retriever.url="http://127.0.0.1:8000/retrieve" retriever.topk=3
"""
OUT_OF_MEMORY = """\
(WorkerDict pid=41233) 开始训练 第 12 步
  File "/srv/verl/workers/actor/dp_actor.py", line 112, in _forward_micro_batch
    output = self.actor_module(input_ids=input_ids,
  File "/srv/site-packages/transformers/models/qwen2/modeling_qwen2.py", line 1195, in forward
    logits = logits.float()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.83 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
4.33 GiB is free. Process 41233 has 74.80 GiB memory in use. Of the allocated memory 69.90 GiB is allocated by PyTorch, and \
3.52 GiB is reserved by PyTorch but unallocated.
"""


def test_a_micro_batch_over_all_ranks_is_divided_before_it_is_looked_for_in_a_message() -> None:
    require(torch="2.4.0", transformers="4.47.1", vllm="0.6.3")
    write("train_ppo.sh", SEARCH_R1)
    write("oom.log", OUT_OF_MEMORY)
    said = words(run("oom", "oom.log", "train_ppo.sh", "requirements.txt"))
    assert "fp32 logits [8, 4596, 152064]" in said
    assert "actor_rollout_ref.actor.ppo_micro_batch_size" in said


def test_a_message_alone_names_the_code_that_it_tells() -> None:
    write("oom.log", OUT_OF_MEMORY)
    assert "qwen2" in words(run("oom", "oom.log")).partition("would help")[0]


FORMS_OF_ATTENTION = ["meta-llama/Meta-Llama-3-8B", "Qwen/Qwen2.5-7B", "google/gemma-2-9b", "Qwen/Qwen2.5-0.5B"]


@pytest.mark.parametrize("release", ["4.48.3", "4.51.3", "4.53.3", "4.55.4"])
@pytest.mark.parametrize("model", FORMS_OF_ATTENTION)
def test_a_model_alone_is_no_alarm(model: str, release: str) -> None:
    require(torch="2.6.0", transformers=release)
    assert run("check", "requirements.txt", "--model", model).code == 0


def test_a_server_is_no_training() -> None:
    require(torch="2.6.0", transformers="4.51.3", vllm="0.8.5")
    write("run.sh", "vllm serve meta-llama/Meta-Llama-3-8B\n")
    ran = run("check", ".")
    assert ran.code == 0
    assert not affected(".")


@pytest.mark.parametrize("release", ["4.48.3", "4.51.3", "4.55.4"])
@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B", "google/gemma-2-9b"])
def test_a_reference_keeps_nothing_for_backward(model: str, release: str) -> None:
    require(torch="2.6.0", transformers=release, verl="0.5.0", vllm="0.8.5", flash_attn="2.7.4")
    write("run.sh", VERL.format(before="", model=model))
    found = affected(".", "--gpu", "8xH100-80GB", "--driver", "570")
    assert not {rule for rule in found if rule.startswith("transformers/")}


def test_a_safe_setting_is_planned_before_another_release() -> None:
    require(torch="2.7.1", transformers="4.57.6", verl="0.6.1", vllm="0.10.0")
    write("run.sh", VERL.format(before="", model="Qwen/Qwen2.5-7B"))
    said = words(run("check", ".", "--gpu", "8xH100-80GB", "--driver", "570", "--fail-on", "low"))
    assert "actor_rollout_ref.rollout.enforce_eager=True" in said.partition("plan:")[2]
    assert "verl 0.6.1 →" not in said


def test_a_variable_that_nothing_sets_is_only_counted() -> None:
    require(torch="2.7.1", transformers="4.57.6", verl="0.5.0", vllm="0.10.0")
    write("run.sh", VERL.format(before="", model="Qwen/Qwen2.5-7B"))
    assert "sleep-mode-refuses" not in run("check", ".", "--gpu", "8xH100-80GB", "--driver", "570").out


def test_sleep_mode_is_the_engine_s_default_and_refuses_expandable_segments() -> None:
    require(torch="2.7.1", transformers="4.57.6", verl="0.5.0", vllm="0.10.0")
    export = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
    write("run.sh", VERL.format(before=export, model="Qwen/Qwen2.5-7B"))
    assert "vllm/sleep-mode-refuses-expandable-segments" in affected(".", "--gpu", "8xH100-80GB", "--driver", "570")


def test_sleep_mode_does_not_see_the_new_name_of_the_allocator_s_variable() -> None:
    require(torch="2.10.0", vllm="0.19.0")
    serve = "_ALLOC_CONF=expandable_segments:True vllm serve Qwen/Qwen2.5-7B --enable-sleep-mode\n"
    write("run.sh", "PYTORCH" + serve)
    assert "vllm/sleep-mode-refuses-expandable-segments" not in affected(".", "--gpu", "1xH100-80GB")
    write("run.sh", "PYTORCH_CUDA" + serve)
    assert "vllm/sleep-mode-refuses-expandable-segments" in affected(".", "--gpu", "1xH100-80GB")


def test_openrlhf_passes_no_labels() -> None:
    require(torch="2.5.1", transformers="4.46.3", openrlhf="0.5.2", deepspeed="0.15.0")
    write(
        "run.sh",
        "deepspeed --module openrlhf.cli.train_sft --max_len 4096 --train_batch_size 256 --micro_train_batch_size 2 "
        "--pretrain meta-llama/Meta-Llama-3-8B --zero_stage 2 --packing_samples --bf16 --gradient_checkpointing --flash_attn\n",
    )
    assert not affected(".", "--gpu", "8xH100-80GB", "--driver", "570")


@pytest.mark.parametrize("lines", ["use_peft: true\nuse_dora: true\nlora_r: 16\n", None])
def test_dora_is_read(lines: str | None) -> None:
    require(torch="2.5.1", transformers="4.46.3", trl="0.12.2", peft="0.13.2", accelerate="1.1.1")
    if lines is not None:
        model = "model_name_or_path: meta-llama/Meta-Llama-3-8B\n"
        write("train.yaml", f"{model}bf16: true\nmax_seq_length: 2048\ngradient_checkpointing: true\n{lines}")
    else:
        config = 'peft_config=LoraConfig(r=16, use_dora=True, target_modules="all-linear")'
        args = 'SFTConfig(output_dir="o", bf16=True, max_seq_length=2048)'
        call = f'SFTTrainer("meta-llama/Meta-Llama-3-8B", args={args}, train_dataset=None, {config}).train()'
        write("train.py", f"from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\n{call}\n")
    named = "train.py" if lines is None else "train.yaml"
    assert "peft/dora-saves-a-weight-copy" in affected("requirements.txt", named, "--gpu", "1xH100-80GB")


def test_the_trainer_of_a_causal_model_trains_it_causally() -> None:
    require(torch="2.4.1", transformers="4.45.2", accelerate="1.0.1")
    write(
        "train.py",
        "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'model = AutoModelForCausalLM.from_pretrained("google/gemma-2-9b", torch_dtype=torch.bfloat16)\n'
        'args = TrainingArguments("out", bf16=True, per_device_train_batch_size=1)\n'
        "Trainer(model=model, args=args, train_dataset=[]).train()\n",
    )
    found = affected("requirements.txt", "train.py", "--set", "training.sequence_length=4096")
    assert "transformers/causal-lm-loss-in-float32" in found


def test_a_tag_of_a_source_names_its_release() -> None:
    source = "deepspeed @ git+https://github.com/deepspeedai/DeepSpeed@v0.16.4"
    write("requirements.txt", f"torch==2.6.0\ntransformers==5.3.0\n{source}\n")
    write("ds.json", json.dumps(ZERO3))
    write("train.yaml", TRAIN)
    assert "deepspeed/zero3-params-kept-in-backward" in affected(".", "--gpu", "8xH100-80GB")


def test_the_remedy_for_missing_kernels_is_the_one_of_this_device() -> None:
    write("requirements.txt", "torch==2.6.0+cu124\n")
    found = findings("requirements.txt", "--gpu", "RTX5090")["torch/no-kernels-for-gpu"]
    assert [one["text"] for one in found["remedies"]] == [
        "for Blackwell: torch 2.7 or newer built for CUDA 12.8 or newer"
    ]


def test_a_remedy_is_named_only_where_it_helps() -> None:
    require(torch="2.6.0", deepspeed="0.16.8")
    settings = ("zero_stage=3", "contiguous_gradients=true", "overlap_comm=true", "reduce_bucket_size=500000000")
    asked = [part for one in (*settings, "param_dtype=bfloat16") for part in ("--set", f"training.{one}")]
    found = findings("requirements.txt", "--model", "Qwen/Qwen2.5-0.5B", *asked)["deepspeed/large-reduce-bucket"]
    assert not any("overlap_comm" in one["text"] for one in found["remedies"])


def test_a_pitfall_of_every_release_is_advice_where_the_run_fits() -> None:
    require(torch="2.5.1", transformers="4.46.1", llamafactory="0.9.1", peft="0.12.0", bitsandbytes="0.44.1")
    write(
        "train.yaml",
        "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
        "quantization_bit: 4\ncutoff_len: 2048\noutput_dir: out\nper_device_train_batch_size: 1\nbf16: true\ntemplate: llama3\n"
        "dataset: identity\n",
    )
    ran = run("check", ".", "--gpu", "1xRTX4090")
    assert ran.code == 0
    assert "ADVICE (high) transformers/causal-lm-loss-in-float32" in ran.out


def test_kilobytes_are_only_counted() -> None:
    require(torch="2.9.1", transformers="4.57.1")
    settings = (
        "model.model_type=qwen2_vl",
        "model.has_conv3d=true",
        "training.compute_dtype=bfloat16",
        "runtime.cudnn=9.10.2",
    )
    ran = run("check", "requirements.txt", *(part for one in settings for part in ("--set", one)))
    assert "conv3d" not in ran.out
    assert "less than 1 MiB" in words(ran)


@pytest.mark.parametrize(
    "lines",
    [
        "vllm==0.11.0\ntorch==2.8.0\ntransformers==4.57.1\n",
        "langchain==0.3.1\nfaiss-cpu==1.9.0\nsentence-transformers==3.2.0\ntorch==2.5.1\ntransformers==4.46.3\n",
        "torch==2.9.1+cpu\ntransformers==4.57.1\naccelerate==1.11.0\n",
        "mlx==0.20.0\ntransformers==4.46.3\n",
        "torch==2.5.1\nlightning==2.4.0\ntimm==1.0.11\n",
        "torch==2.8.0\ntransformers==4.57.0\nsglang==0.5.3\n",
    ],
)
def test_few_possible_findings_are_shown_of_stacks_that_nobody_described(lines: str) -> None:
    write("requirements.txt", lines)
    ran = run("check", "requirements.txt")
    assert ran.code == 0
    shown = re.findall(r"(?m)^POSSIBLE .*", ran.out)
    assert len(shown) <= 3
    assert not any("checkpoint-early-stop" in line or "predictions-pile-up" in line for line in shown)


def test_one_device_has_no_finding_of_fsdp() -> None:
    require(torch="2.9.1", transformers="4.57.1", accelerate="1.11.0")
    found = findings("requirements.txt", "--gpu", "1xMI300X", "--model", "Qwen/Qwen2.5-7B")
    assert not {rule for rule in found if "fsdp" in rule}


def test_a_run_that_may_not_fit_is_told_by_its_range() -> None:
    ran = run("check", INCIDENT.parent / "qwen1.5-32b-8xa800")
    assert re.search(r"may not fit: needs [\d.]+ GiB \([\d.]+ to [\d.]+\) of 80.0 GiB", words(ran))


def test_a_row_that_a_table_lacks_is_told_in_words() -> None:
    require(torch="2.6.0", transformers="4.57.1")
    settings = ("model.model_type=glm4v", "model.num_hidden_layers=28", "training.gradient_checkpointing=false")
    said = words(run("check", "requirements.txt", "-v", *(part for one in settings for part in ("--set", one))))
    assert "glm4v in the table sdpa-support" in said
    assert "sdpa-support[" not in said


def test_no_device_is_proposed_that_the_stack_does_not_start_on() -> None:
    ran = run("estimate", INCIDENT, "--suggest", "--format", "json")
    (one,) = json.loads(ran.out)["subjects"]
    assert not [place["gpu"] for place in one["placements"] if place["gpu"].startswith(("B200", "B300", "GB"))]
    assert "flash-attn/gpu-after-hopper" in affected(INCIDENT, "--gpu", "8xB200")


SCRIPT = """\
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
args = SFTConfig(output_dir="o", per_device_train_batch_size=4, gradient_accumulation_steps=2, {options})
SFTTrainer(model, args=args, train_dataset=None).train()
"""


def test_what_a_script_states_is_changed_in_the_script() -> None:
    require(trl="0.15.2", torch="2.6.0", transformers="4.49.0", deepspeed="0.16.5", accelerate="1.4.0")
    own = dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    write("ds.json", json.dumps({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}, **own}))
    options = 'max_length=4096, bf16=True, gradient_checkpointing=True, deepspeed="ds.json"'
    write("sft.py", SCRIPT.format(options=options))
    write("run.sh", "deepspeed --num_gpus 4 sft.py\n")
    said = words(run("fix", ".", "--offline", "--gpu", "4xA100-40GB"))
    assert "sft.py:5: per_device_train_batch_size=" in said
    assert "train_micro_batch_size_per_gpu: " not in said
    assert "chunked_nll" not in said  # of trl 1.4.0 and newer


def test_arguments_that_are_not_known_may_state_what_a_rule_takes_for_left_out() -> None:
    require(trl="0.16.0", torch="2.6.0", transformers="4.50.0")
    rule = "trl/checkpointing-off-by-default"
    for options, status in (("bf16=True", "affected"), ("bf16=True, **extra", None)):
        write("sft.py", SCRIPT.format(options=options))
        found = findings("requirements.txt", "sft.py").get(rule)
        assert (None if found is None or found["status"] == "possible" else found["status"]) == status


def test_the_first_screen_names_what_the_plan_does() -> None:
    require(llamafactory="0.9.1", torch="2.4.0", transformers="4.46.1", deepspeed="0.15.4")
    write("ds.json", json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}))
    write(
        "run.sh",
        "ARGS=(--model_name_or_path Qwen/Qwen2.5-7B --deepspeed ds.json --stage sft --do_train true --finetuning_type full\n"
        "  --cutoff_len 8192 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 true)\n"
        'llamafactory-cli train "${ARGS[@]}"\n',
    )
    ran = run("check", ".", "--gpu", "8xA100-80GB")
    first, _, plan = words(ran).partition("plan: clears")
    assert "enable_liger_kernel true" in plan
    assert re.search(
        r"worst: medium transformers/loss-shift-copies-logits, [\d.]+ GiB per rank: set enable_liger_kernel", first
    )


def test_weights_are_copied_for_the_engine_from_the_actor_alone() -> None:
    require(verl="0.3.0.post1", torch="2.6.0", vllm="0.8.4", transformers="4.51.0")
    write("run.sh", VERL.format(before="", model="Qwen/Qwen2.5-7B-Instruct"))
    ran = run("check", ".", "--gpu", "8xH100-80GB", "--format", "json")
    rule = "verl/kv-cache-woken-beside-the-training-copy"
    assert [one["role"] for one in json.loads(ran.out)["findings"] if one["rule_id"] == rule] == ["actor"]


def test_no_option_is_made_up_for_a_section_that_an_option_names() -> None:
    require(ms_swift="3.2.0", torch="2.5.1", transformers="4.49.0", deepspeed="0.16.5")
    write(
        "run.sh",
        "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-32B-Instruct --train_type full --torch_dtype bfloat16 --dataset x "
        "--per_device_train_batch_size 1 --gradient_accumulation_steps 2 --max_length 16384 --deepspeed zero3 "
        "--attn_impl flash_attn\n",
    )
    ran = run("estimate", ".", "--suggest", "--gpu", "8xH100-80GB", "--nodes", "2")
    assert "--max_length 8192" in ran.out
    assert "--deepspeed." not in ran.out


def test_a_script_that_is_started_without_options_is_read_whole() -> None:
    require(trl="0.15.2", torch="2.6.0", transformers="4.49.0", accelerate="1.4.0")
    write("sft.py", SCRIPT.format(options="max_length=512, bf16=True, gradient_checkpointing=True"))
    for command, code in (("sft.py", 0), ("sft.py --seed 3", 4), ("other.py", 4)):
        write("run.sh", f"accelerate launch --num_processes 4 {command}\n")
        ran = run("check", "requirements.txt", "run.sh", "--gpu", "4xH200")
        assert ran.code == code, command
        assert ("not read" in ran.out) is (code == 4)


@pytest.mark.parametrize("here", ["$PWD", "$(pwd)", "${PWD}", "."])
def test_what_lies_where_a_script_is_started_is_read(here: str) -> None:
    require(verl="0.5.0", vllm="0.8.5", torch="2.6.0")
    write(
        "my.yaml",
        "actor_rollout_ref:\n  actor:\n    ppo_micro_batch_size_per_gpu: 2\n  model:\n    path: Qwen/Qwen2.5-3B\n",
    )
    write("run.sh", f"python3 -m verl.trainer.main_ppo --config-path={here} --config-name=my trainer.nnodes=1\n")
    said = run("facts", "requirements.txt", "run.sh").out
    assert "training.micro_batch_size = 2" in said
    assert "not at hand" not in said


SPREAD = """\
CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-VL-72B-Instruct --train_type lora --torch_dtype bfloat16 --dataset x \\
    --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --max_length 2048 --lora_rank 8{more}
"""


def test_layers_that_one_process_spreads_over_two_devices_are_shared_out() -> None:
    require(ms_swift="3.7.0", torch="2.7.1", transformers="4.54.1", accelerate="1.9.0", peft="0.16.0")
    write("train.sh", SPREAD.format(more=""))
    for gpu in ("2xA100-80GB", "A100-80GB"):
        ran = run("check", ".", "--gpu", gpu, "--no-policy")
        assert ran.code == 0
        assert "may not fit: needs 74.5 GiB" in ran.out
    write("train.sh", SPREAD.format(more="").replace("0,1", "0"))
    assert "does not fit: needs 14" in run("check", ".", "--gpu", "A100-80GB", "--no-policy").out
    write("train.sh", SPREAD.format(more="").replace("CUDA_VISIBLE_DEVICES=0,1 ", ""))
    assert "fits: needs 39.3 GiB" in run("check", ".", "--gpu", "4xA100-80GB", "--no-policy").out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (" --freeze_parameters_ratio 0.9", "fits: needs 26.8 GiB"),
        (" --lisa_activated_layers 2", "fits: needs 31.2 GiB"),
        (" --freeze_parameters_ratio 1 --trainable_parameters lm_head", "it needs --set model.trainable_parameters"),
        (
            " --external_plugins mine.py",
            "(external_plugins): may change what the run needs; assumed: it changes nothing",
        ),
        (" --load_args true", "(load_args): decides it in a way that was not read"),
    ],
)
def test_what_decides_what_ms_swift_trains_is_read_or_said(more: str, said: str) -> None:
    require(ms_swift="3.7.0", torch="2.6.0", transformers="4.53.0", accelerate="1.7.0", peft="0.15.2")
    options = "--dataset x --torch_dtype bfloat16 --max_length 4096 --per_device_train_batch_size 1 --train_type full"
    write("train.sh", f"CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B-Instruct {options}{more}\n")
    assert said in " ".join(run("check", ".", "--gpu", "H100-80GB", "--no-policy").out.split())


def test_what_one_process_spreads_needs_as_many_devices_as_it_has() -> None:
    require(ms_swift="3.7.0", torch="2.7.1", transformers="4.54.1", accelerate="1.9.0", peft="0.16.0")
    write("train.sh", SPREAD.format(more=""))
    out = run("estimate", ".", "--gpu", "2xA100-80GB", "--no-policy", "--suggest").out
    assert "2 × H100-94GB-NVL" in out
    assert "Liger" not in out
