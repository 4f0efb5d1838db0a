"""A setting is changed in the run's own files, and comes to what is announced of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.checking import Request
from compatcheck.checking.gathering import gather_all
from compatcheck.checking.inspection import as_inspection
from compatcheck.fixing.files import EditableFiles
from compatcheck.fixing.settings import _list_needed, find_setting
from compatcheck.rules.locate import open_rules
from tests.cli.run_cli import run

LLAMAFACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
template: llama3
cutoff_len: 12288
output_dir: out
per_device_train_batch_size: 4
gradient_accumulation_steps: 8
bf16: true
packing: true
"""
RELEASES = "llamafactory==0.9.3\ntorch==2.7.1\ntransformers==4.52.4\naccelerate==1.7.0\npeft==0.15.2\n"
TRAINER = "bf16: true\ndeepspeed: ds.json\nper_device_train_batch_size: 2\noutput_dir: out\nmax_length: 1024\n"
STAGE3 = """\
{
  "bf16": {
    "enabled": true
  },
  "zero_optimization": {
    "stage": 3
  }
}
"""
ON_40_GB = ("--gpu", "1xA100-40GB", "--no-policy", "--offline")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def llamafactory() -> None:
    Path("requirements.txt").write_text(RELEASES)
    Path("sft.yaml").write_text(LLAMAFACTORY)


def test_the_plan_names_the_keys_of_the_file_and_comes_to_its_number() -> None:
    llamafactory()
    before = run("check", ".", *ON_40_GB[:3], "--format", "json")
    (plan,) = json.loads(before.out)["plans"]
    *written, unlisted = (text for change in plan["changes"] for text in change["written"])
    assert written == ["per_device_train_batch_size: 2", "gradient_accumulation_steps: 16", "enable_liger_kernel: true"]
    assert unlisted == "liger-kernel"
    assert run("fix", ".", *ON_40_GB, "--apply", "--unsafe").code == 0
    text = LLAMAFACTORY.replace("size: 4", "size: 2").replace("steps: 8", "steps: 16")
    assert Path("sft.yaml").read_text() == f"{text}enable_liger_kernel: true\n"
    assert Path("requirements.txt").read_text() == f"{RELEASES}liger-kernel\n"
    (subject,) = json.loads(run("check", ".", *ON_40_GB[:3], "--format", "json").out)["subjects"]
    (outcome,) = plan["outcomes"]
    assert (subject["estimate"]["needed_bytes"], subject["estimate"]["verdict"]) == (
        outcome["needed_bytes"],
        outcome["verdict"],
    )


def test_an_engine_that_is_asked_for_is_a_distribution() -> None:
    assert _list_needed({"rollout.engine": "vllm"}) == ("vllm",)
    assert _list_needed({"rollout.engine": "hf"}) == ()


@pytest.mark.parametrize("listed", ["uv.lock", "hashes"])
def test_where_no_line_can_be_added_a_hand_installs_the_distribution(listed: str) -> None:
    llamafactory()
    if listed == "uv.lock":
        Path("requirements.txt").unlink()
        rows = (line.partition("==")[::2] for line in RELEASES.split())
        tables = (f'[[package]]\nname = "{name}"\nversion = "{version}"\n' for name, version in rows)
        Path("uv.lock").write_text("version = 1\n" + "".join(tables))
    else:
        text = "".join(f"{line} --hash=sha256:{'0' * 64}\n" for line in RELEASES.split())
        Path("requirements.txt").write_text(text)
    before = {path: path.read_text() for path in Path().iterdir() if path.suffix != ".yaml"}
    said = " ".join(run("fix", ".", *ON_40_GB, "--apply", "--unsafe").out.split())
    assert "needs liger-kernel, not listed here: pip install liger-kernel" in said
    assert {path: path.read_text() for path in before} == before


@pytest.mark.parametrize("form", ["text", "markdown", "github", "sarif", "json"])
def test_a_run_that_does_not_fit_is_told_the_plan_in_every_format(form: str) -> None:
    llamafactory()
    ran = run("check", ".", *ON_40_GB[:3], "--format", form)
    assert ran.code == 1
    said = " ".join(ran.out.split())
    plan, price = said.index("as planned for all findings: micro batch 4 "), said.find("estimate --suggest")
    assert price < 0 or plan < price
    assert "enable_liger_kernel: true at" in said.replace("\\_", "_").replace("&#95;", "_")


def test_no_remedy_is_printed_that_the_program_has_no_key_for() -> None:
    llamafactory()
    found = json.loads(run("check", ".", "--no-policy", "--format", "json").out)["findings"]
    texts = [one["text"] for finding in found for one in finding["remedies"]]
    assert "set enable_liger_kernel to true (training.use_liger_kernel) at sft.yaml:13" in texts
    assert not any("loss_implementation" in text for text in texts)


def test_a_section_that_is_not_there_is_added_to_the_file_that_has_it() -> None:
    Path("requirements.txt").write_text("torch==2.7.1\ntransformers==4.52.4\ndeepspeed==0.17.1\n")
    Path("train.yaml").write_text(
        f"model_name_or_path: Qwen/Qwen2.5-7B-Instruct\n{TRAINER}gradient_checkpointing: true\n"
    )
    Path("ds.json").write_text(STAGE3)
    (plan, *_) = json.loads(run("check", ".", "--gpu", "2xA100-40GB", "--no-policy", "--format", "json").out)["plans"]
    written = {
        text: place for one in plan["changes"] for text, place in zip(one["written"], one["places"], strict=True)
    }
    assert written['zero_optimization.offload_optimizer.device: "cpu"'] == "ds.json:7"


def test_a_command_gets_the_option_of_its_program() -> None:
    Path("requirements.txt").write_text("torch==2.7.1\ntransformers==4.51.3\ndeepspeed==0.16.9\nopenrlhf==0.8.5\n")
    Path("train.sh").write_text(
        "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B-Instruct \\\n  --max_len 2048 --zero_stage 3 "
        "--bf16 --gradient_checkpointing \\\n  --micro_train_batch_size 2 --train_batch_size 64\n"
    )
    (plan,) = json.loads(run("check", ".", "--gpu", "2xA100-40GB", "--no-policy", "--format", "json").out)["plans"]
    assert ["--adam_offload"] in [change["written"] for change in plan["changes"]]


def test_an_option_that_stands_is_changed_where_it_stands() -> None:
    Path("requirements.txt").write_text("torch==2.9.0\ntransformers==4.57.3\nms-swift==3.12.0\ndeepspeed==0.18.2\n")
    command = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-32B --train_type full --max_length 4096 \\\n"
    Path("train.sh").write_text(f"{command}  --deepspeed zero3 --use_liger_kernel true --attn_impl flash_attn\n")
    told = run("fix", ".", "--gpu", "A100-40GB", "--no-policy", "--offline", "--format", "diff").out
    assert "+  --deepspeed zero3_offload --use_liger_kernel true --attn_impl flash_attn\n" in told


def test_a_key_with_nothing_behind_it_is_given_its_value() -> None:
    Path("requirements.txt").write_text(
        "axolotl==0.10.1\ntorch==2.6.0\ntransformers==4.52.3\npeft==0.15.2\naccelerate==1.7.0\n"
    )
    Path("sft.yml").write_text(
        "base_model: Qwen/Qwen2.5-14B\nadapter:\nsequence_len: 2048\nmicro_batch_size: 1\nbf16: true\n"
        "gradient_checkpointing: true\ndatasets: [{path: d, type: alpaca}]\nlora_target_linear: true\nlora_r: 64\n"
    )
    told = run("fix", ".", "--gpu", "1xA100-80GB", "--no-policy", "--offline")
    assert "-adapter:\n+adapter: lora\n" in told.out
    assert "adapter: lora\n" in told.out.partition("requirements.txt + sft.yml")[2]


def test_a_reference_scores_fewer_at_once_before_training_is_changed() -> None:
    Path("requirements.txt").write_text("verl==0.5.0\ntorch==2.7.0\ntransformers==4.53.3\nvllm==0.9.1\n")
    Path("train.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=1024 data.max_prompt_length=512 "
        "data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct actor_rollout_ref.rollout.n=5 "
        "actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.ppo_mini_batch_size=256 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.actor.use_kl_loss=True "
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=160 trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
    )
    told = run("fix", ".", "--gpu", "A100-80GB", "--no-policy", "--offline", "--format", "diff").out
    assert "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1 " in told.partition("\n+")[2]
    assert "lora_rank" not in told


def test_liger_is_not_proposed_where_the_model_is_given_no_labels() -> None:
    Path("requirements.txt").write_text("torch==2.7.1\ntransformers==4.51.3\ndeepspeed==0.16.9\nopenrlhf==0.8.5\n")
    Path("train.sh").write_text(
        "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B-Instruct --max_len 8192 --zero_stage 3 "
        "--bf16 --micro_train_batch_size 8 --train_batch_size 64\n"
    )
    ran = run("estimate", ".", "--gpu", "4xA100-40GB", "--no-policy", "--suggest", "--format", "json")
    (subject,) = json.loads(ran.out)["subjects"]
    words = [change["words"] for one in subject["suggestions"] for change in one["changes"]]
    assert words
    assert not any("Liger" in (one or "") for one in words)


def test_what_a_plan_makes_fit_is_told_to_do_as_planned() -> None:
    Path("requirements.txt").write_text("torch==2.6.0\ntransformers==4.49.0\ndeepspeed==0.16.4\naccelerate==1.4.0\n")
    Path("t.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nbf16: true\nper_device_train_batch_size: 2\nmax_length: 4096\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\noutput_dir: out\n"
        "deepspeed: ds.json\n"
    )
    Path("ds.json").write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}')
    out = json.loads(run("check", ".", "--gpu", "3xA100-80GB", "--no-policy", "--format", "json").out)
    (finding,) = (one for one in out["findings"] if one["rule_id"] == "_stack/run-may-not-fit")
    assert finding["remedies"][0]["text"] == "as planned for all findings: deepspeed 0.16.8"


GRPO = """\
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(output_dir="o", per_device_train_batch_size=4, gradient_accumulation_steps=4, num_generations=8,
                  max_prompt_length=512, max_completion_length=1024, bf16=True, gradient_checkpointing=True, use_vllm=True,
                  vllm_mode="colocate", vllm_gpu_memory_utilization=0.3)
GRPOTrainer(model="Qwen/Qwen2.5-7B", args=args, reward_funcs=lambda **k: 0).train()
"""
MULTI_GPU = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\n"
SFT = (
    "sft.py --model_name_or_path Qwen/Qwen2.5-7B --torch_dtype float32 --bf16 --gradient_checkpointing "
    "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 1024 --output_dir o\n"
)
SWIFT = {
    "model": "Qwen/Qwen2.5-14B", "train_type": "full", "dataset": "a", "torch_dtype": "bfloat16", "max_length": 2048,
    "per_device_train_batch_size": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "written"),
    [
        (
            {"run.sh": "accelerate launch --num_processes 8 grpo.py\n", "grpo.py": GRPO},
            "launch --num_processes 8 --use_deepspeed --zero_stage 3 grpo.py",
        ),
        ({"run.sh": "accelerate launch grpo.py\n", "grpo.py": GRPO}, "launch --use_deepspeed --zero_stage 3 grpo.py"),
        (
            {"run.sh": "accelerate launch --multi_gpu --num_processes 8 grpo.py\n", "grpo.py": GRPO},
            "launch --use_deepspeed --num_processes 8 --zero_stage 3 grpo.py",
        ),
        (
            {"run.sh": "accelerate launch --config_file acc.yaml grpo.py\n", "grpo.py": GRPO, "acc.yaml": MULTI_GPU},
            "distributed_type: DEEPSPEED",
        ),
        ({"run.sh": f"torchrun --nproc_per_node 8 trl/scripts/{SFT}"}, "--fsdp 'full_shard auto_wrap'"),
        (
            {"run.sh": "NPROC_PER_NODE=8 swift sft" + "".join(f" --{key} {value}" for key, value in SWIFT.items())},
            "--deepspeed zero2",
        ),
        (
            {
                "run.sh": "NPROC_PER_NODE=8 swift sft s.yaml",
                "s.yaml": "".join(f"{key}: {value}\n" for key, value in SWIFT.items()),
            },
            "deepspeed: zero2",
        ),
    ],
)
def test_plain_data_parallelism_is_spread_as_its_program_takes_it(files: dict[str, str], written: str) -> None:
    Path("requirements.txt").write_text(
        "trl==0.18.0\ntorch==2.6.0\ntransformers==4.51.3\naccelerate==1.6.0\nvllm==0.8.5\ndeepspeed==0.16.9\nms-swift==3.5.3\n"
    )
    for name, text in files.items():
        Path(name).write_text(text)
    options = (".", "--gpu", "8xH100-80GB", "--no-policy")
    report = json.loads(run("estimate", *options, "--suggest", "--format", "json").out)["subjects"][0]
    assert report["estimate"]["verdict"] == "does_not_fit"
    spread = [
        one for one in report["suggestions"] if any("DDP →" in (change["words"] or "") for change in one["changes"])
    ]
    assert "fits" in {one["verdict"] for one in spread}
    (plan,) = json.loads(run("fix", *options, "--offline", "--apply", "--unsafe", "--format", "json").out)["plans"]
    assert any(written in Path(name).read_text() for name in files)
    if not any(place.startswith("grpo.py") for change in plan["changes"] for place in change["places"]):
        after = json.loads(run("estimate", *options, "--format", "json").out)["subjects"][0]["estimate"]
        assert after["needed_bytes"] == plan["outcomes"][0]["needed_bytes"]
        assert after["verdict"] == plan["outcomes"][0]["verdict"] == "fits"


def test_where_nothing_makes_it_fit_this_is_said_with_what_comes_nearest() -> None:
    Path("requirements.txt").write_text("trl==0.19.0\ntransformers==4.52.4\naccelerate==1.7.0\ntorch==2.7.0\n")
    Path("train.yaml").write_text(
        "model_name_or_path: meta-llama/Llama-3.1-70B\nbf16: true\ngradient_checkpointing: true\nmax_length: 1024\n"
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 1\nuse_liger_kernel: true\noutput_dir: o\n"
    )
    options = (".", "--gpu", "RTX4090", "--no-policy")
    said = " ".join(run("check", *options).out.split())
    assert (
        "fix nothing that this tool can change makes it fit; nearest is fused AdamW (optim: adamw_torch_fused" in said
    )
    assert "estimate --suggest" not in said
    said = " ".join(run("estimate", *options, "--suggest").out.split())
    assert "nothing that costs less than a major release makes it fit for certain; nearest is fused AdamW" in said
    assert "the smallest hardware it fits on none: " in said


def test_a_run_whose_length_nobody_states_is_not_said_to_fit_with_no_change() -> None:
    Path("requirements.txt").write_text("deepspeed==0.16.4\ntransformers==5.0.0\naccelerate==1.4.0\ntorch==2.6.0\n")
    Path("train.yaml").write_text(
        "model_name_or_path: meta-llama/Llama-3.1-70B\nbf16: true\ngradient_checkpointing: true\n"
        "per_device_train_batch_size: 1\noutput_dir: o\ndeepspeed: ds.json\n"
    )
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    options = (".", "--gpu", "8xH100-80GB", "--nodes", "4", "--no-policy")
    said = " ".join(run("check", *options).out.split())
    assert "The run does not fit" in said
    assert "fix what makes it fit cannot be told: nobody states training.sequence_length" in said
    assert "nothing that this tool can change" not in said
    said = " ".join(run("estimate", *options, "--suggest").out.split())
    untold = "what makes it fit cannot be told: nobody states training.sequence_length"
    assert f"what would help {untold}" in said
    assert f"the smallest hardware it fits on {untold}" in said
    stated = " ".join(run("check", *options, "--set", "training.sequence_length=4096").out.split())
    assert "then fits: " in stated


SCRIPT = """\
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from peft import LoraConfig
from trl import SFTTrainer

bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-chat-hf", quantization_config=bnb)
args = TrainingArguments(output_dir="test", bf16=True, per_device_train_batch_size=8)
trainer = SFTTrainer(model, args=args, peft_config=LoraConfig(r=16, task_type="CAUSAL_LM"), max_seq_length=1024)
trainer.train()
"""
OF_SCRIPT = "torch==2.1.2\ntransformers==4.36.2\ntrl==0.7.7\npeft==0.7.1\nbitsandbytes==0.41.3\naccelerate==0.25.0\n"


def test_what_a_python_script_sets_is_named_by_line_and_literal_and_once() -> None:
    Path("requirements.txt").write_text(OF_SCRIPT)
    Path("finetune.py").write_text(SCRIPT)
    ran = run("check", "finetune.py", "requirements.txt", *ON_40_GB[:3])
    assert "set gradient_checkpointing to True (training.gradient_checkpointing) at finetune.py:8" in " ".join(
        ran.out.split()
    )
    assert "finetune.py:8: gradient_checkpointing=True" in ran.out
    offered = run("estimate", "finetune.py", "requirements.txt", *ON_40_GB[:3], "--suggest").out
    assert offered.count("gradient_checkpointing=True") == 1
    Path("finetune.py").write_text(
        SCRIPT.replace('output_dir="test"', 'output_dir="test", gradient_checkpointing=True')
    )
    assert run("check", "finetune.py", "requirements.txt", *ON_40_GB[:3]).code == 0


OF_TRL = """\
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

adapter = LoraConfig(r=16, task_type="CAUSAL_LM")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
args = DPOConfig(
    output_dir="out",
    per_device_train_batch_size=4,
)
DPOTrainer(model=model, args=args, processing_class=tokenizer, peft_config=adapter).train()
"""
ON_24_GB = ("--gpu", "A10-24GB", "--no-policy")


@pytest.mark.parametrize("transformers", ["4.57.1", "5.20.0"])
def test_a_script_is_edited_where_its_calls_take_a_setting(transformers: str) -> None:
    """What is advised of 4 bits is nf4, which no argument of from_pretrained asks for; a tokenizer takes nothing of it."""
    releases = {"4.57.1": ("0.24.0", "0.17.1", "1.11.0"), "5.20.0": ("1.10.0", "0.20.0", "1.14.0")}[transformers]
    pins = zip(("trl", "peft", "accelerate"), releases, strict=True)
    lines = [f"{name}=={release}\n" for name, release in pins]
    Path("requirements.txt").write_text("".join([*lines, f"torch==2.8.0\ntransformers=={transformers}\n"]))
    Path("train.py").write_text(OF_TRL)
    proposed = json.loads(run("estimate", ".", *ON_24_GB, "--suggest", "--format", "json").out)
    (subject,) = proposed["subjects"]
    written = {text for one in subject["suggestions"] for change in one["changes"] for text in change["written"]}
    assert "per_device_train_batch_size=2" in written
    assert not {text for text in written if text.startswith(("use_4bit", "load_in_4bit", "model_init_kwargs"))}
    four_bits = 'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype="bfloat16")'
    assert f"quantization_config={four_bits}, and from transformers import BitsAndBytesConfig" in written
    Path("train.py").write_text(OF_TRL.replace("import AutoModel", "import BitsAndBytesConfig, AutoModel"))
    shown = run("fix", ".", *ON_24_GB, "--offline", "--unsafe").out
    assert f", quantization_config={four_bits})" in shown
    Path("train.py").write_text(OF_TRL)
    run("fix", ".", *ON_24_GB, "--offline", "--apply", "--unsafe")
    after = Path("train.py").read_text()
    assert "per_device_train_batch_size=2,\n    gradient_accumulation_steps=2,\n" in after
    assert 'AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")\n' in after  # let alone


def test_a_plan_brings_in_nothing_that_fails_outside_of_the_selection() -> None:
    """From 1.7 label smoothing means whole logits where the loss is not chunked (`nll`), at fault of a release."""
    Path("requirements.txt").write_text("torch==2.8.0\ntrl==1.8.0\ntransformers==5.12.0\naccelerate==1.13.0\n")
    Path("train.py").write_text(
        "from trl import SFTConfig, SFTTrainer\n"
        'args = SFTConfig(output_dir="out", label_smoothing_factor=0.1, per_device_train_batch_size=4, bf16=True)\n'
        'SFTTrainer(model="meta-llama/Llama-3.1-8B", args=args).train()\n'
    )
    options = (
        ".",
        "--gpu",
        "1xH200",
        "--no-policy",
        "--format",
        "json",
        "--select",
        "trl/label-smoothing-stops-chunked-loss",
    )
    (fix,) = json.loads(run("fix", "--offline", *options).out)["plans"]
    (plan,) = json.loads(run("check", *options).out)["plans"]
    for one in (fix, plan):
        assert one["brings"] == []
        assert [(change["name"], change["after"]) for change in one["changes"]] == [("training.label_smoothing", "0")]


def test_a_setting_is_placed_where_code_decides_behind_the_command() -> None:
    Path("requirements.txt").write_text(
        "torch==2.5.1\ntransformers==4.48.3\naccelerate==1.3.0\ndeepspeed==0.16.4\ntrl==0.14.0\n"
    )
    Path("ds.json").write_text(STAGE3)
    Path("train.py").write_text(
        "from trl import SFTConfig, SFTTrainer\nfrom transformers import HfArgumentParser\n"
        "(args,) = HfArgumentParser(SFTConfig).parse_args_into_dataclasses()\n"
        'args.gradient_checkpointing_kwargs = {"use_reentrant": False}\n'
        'SFTTrainer("meta-llama/Llama-3.1-8B", args=args).train()\n'
    )
    words = "--max_seq_length 1024 --bf16 --gradient_checkpointing --per_device_train_batch_size 1 --deepspeed ds.json"
    Path("train.sh").write_text(f"torchrun --nproc_per_node 8 train.py {words} --output_dir out\n")
    (finding,) = (
        one
        for one in json.loads(run("check", ".", "--gpu", "8xH100-80GB", "--no-policy", "--format", "json").out)[
            "findings"
        ]
        if one["rule_id"] == "deepspeed/zero3-params-kept-in-backward"
    )
    texts = [one["text"] for one in finding["remedies"]]
    assert any(
        text.startswith(
            'set gradient_checkpointing_kwargs to {"use_reentrant": True} (training.use_reentrant) at train.py:4'
        )
        for text in texts
    ), texts


def test_a_section_that_an_option_names_takes_a_file_and_no_keys() -> None:
    """``--deepspeed zero3`` is a file of ms-swift's own."""
    Path("requirements.txt").write_text("ms-swift==3.8.0\ntransformers==4.55.0\ndeepspeed==0.16.4\ntorch==2.8.0\n")
    Path("run.sh").write_text(
        "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type full --dataset x "
        "--torch_dtype bfloat16 --per_device_train_batch_size 1 --max_length 2048 --deepspeed zero3\n"
    )
    said = " ".join(run("check", ".", "--no-policy").out.split())
    assert "set deepspeed to a file with zero_optimization.stage3_max_reuse_distance: 0" in said


def test_nodes_that_a_key_asks_for_are_asked_for_there() -> None:
    Path("requirements.txt").write_text("torch==2.6.0\ntransformers==4.51.3\nverl==0.4.1\nvllm==0.8.5\n")
    Path("run.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 "
        "data.max_prompt_length=1024 data.max_response_length=4096 "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-72B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=64 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.rollout.tensor_model_parallel_size=8 actor_rollout_ref.rollout.n=8 "
        "trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
    )
    said = run("estimate", ".", "--gpu", "h100-80gb", "--suggest", "--no-policy").out
    assert "run.sh:1: trainer.nnodes=4" in said
    assert "--set hardware.nodes" not in said


def test_a_facts_file_that_names_its_model_alone_is_advised_about_the_model() -> None:
    Path("facts.yaml").write_text(
        'compatcheck: 1\npackages: {transformers: "4.57.6", torch: "2.8.0"}\nmodel: falcon-7b\n'
        "training: {micro_batch_size: 1, sequence_length: 2048, gradient_checkpointing: false, compute_dtype: bfloat16}\n"
    )
    assert "set model.attn_implementation to flash_attention_2" in run("check", "facts.yaml", "--no-policy").out


def test_a_key_that_hydra_may_not_have_is_added_with_its_signs() -> None:
    """``enable_sleep_mode`` is a field of verl's RolloutConfig, and in none of its YAML files: Hydra refuses it bare."""
    Path("requirements.txt").write_text("torch==2.10.0\ntransformers==5.5.0\nverl==0.9.0\nvllm==0.22.1\n")
    Path("run.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 "
        "data.max_prompt_length=1024 data.max_response_length=1024 "
        "actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B actor_rollout_ref.actor.ppo_mini_batch_size=64 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.rollout.free_cache_engine=True "
        "actor_rollout_ref.rollout.tensor_model_parallel_size=4 trainer.n_gpus_per_node=8 trainer.nnodes=4\n"
    )
    told = " ".join(run("check", ".", "--gpu", "8xB200", "--no-policy").out.split())
    assert (
        "set ++actor_rollout_ref.rollout.enable_sleep_mode to false (rollout.sleep_mode), "
        "actor_rollout_ref.rollout.free_cache_engine to false (rollout.free_cache_engine)" in told
    )


@pytest.mark.parametrize(("release", "counts"), [("1.9.0", False), ("1.14.1", True)])
def test_trl_commands_put_their_own_arguments_of_loading_in_the_place_of_a_files(release: str, counts: object) -> None:
    Path("requirements.txt").write_text(f"trl=={release}\ntransformers==5.5.0\ntorch==2.8.0\n")
    Path("run.sh").write_text("trl sft --config c.yaml\n")
    arguments = (
        "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: x\nbf16: true\noptim: adamw_torch\nmax_length: 2048\n"
    )
    Path("c.yaml").write_text(arguments + "model_init_kwargs: {dtype: bfloat16}\n")
    found = run("check", ".", "--gpu", "1xH100-80GB", "--no-policy").out
    assert ("trl/model-id-loads-in-float32" not in found) is counts
    Path("c.yaml").write_text(arguments)
    told = run("fix", ".", "--offline", "--gpu", "1xH100-80GB", "--no-policy").out
    assert counts or "\n+dtype: bfloat16\n" in told


def test_no_plan_goes_back_behind_a_default_that_is_advised_against_by_no_release() -> None:
    """Before DeepSpeed 0.18 such a run can wait for ever (DeepSpeed#7461)."""
    Path("requirements.txt").write_text("deepspeed==0.18.0\ntransformers==4.57.6\ntorch==2.8.0\n")
    Path("facts.yaml").write_text(
        "compatcheck: 1\nmodel: mixtral-8x7b\nhardware: {world_size: 8}\n"
        "training: {framework: hf_trainer, zero_stage: 3, sharding: zero, param_dtype: bfloat16, peft: null}\n"
    )
    said = " ".join(
        run("fix", ".", "--offline", "--no-policy", "--select", "deepspeed/zero3-moe-block-gathered-whole").out.split()
    )
    assert "no change that is known here clears anything" in said
    assert "stays deepspeed/zero3-moe-block-gathered-whole" in said


def test_a_switch_of_attention_is_put_in_the_place_of_another() -> None:
    """``sdp_attention: flash_attention_2`` is no switch: a key takes the values of its own meaning."""
    Path("requirements.txt").write_text("axolotl==0.9.2\ntransformers==4.52.4\ntorch==2.6.0\n")
    Path("a.yaml").write_text(
        "base_model: Qwen/Qwen2.5-VL-7B-Instruct\nprocessor_type: AutoProcessor\nsdp_attention: true\n"
        "datasets: [{path: x, type: chat_template}]\nmicro_batch_size: 1\nsequence_len: 4096\nbf16: true\n"
    )
    told = run("fix", ".", "--gpu", "8xH100-80GB", "--no-policy", "--offline").out
    assert "\n-sdp_attention: true\n+flash_attention: true\n" in told


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        (
            "run.sh",
            "trl sft --model_name_or_path Qwen/Qwen2.5-7B --output_dir out",
            """ --accelerator_config '{"gradient_accumulation_kwargs": {"sync_each_batch": true}}'""",
        ),
        (
            "train.py",
            "from trl import SFTConfig, SFTTrainer\nSFTTrainer('Qwen/Qwen2.5-7B', SFTConfig(output_dir='out')",
            ", accelerator_config={'gradient_accumulation_kwargs': {'sync_each_batch': True}})",
        ),
    ],
)
def test_a_mapping_within_a_mapping_is_written_as_one(name: str, text: str, after: str) -> None:
    """Its parser knows no dotted name: with ``{"gradient_accumulation_kwargs.sync_each_batch": true}`` the run does not start."""
    Path("requirements.txt").write_text("trl==1.6.0\ntransformers==5.3.0\ntorch==2.9.0\naccelerate==1.13.0\n")
    Path(name).write_text(f"{text})\n" if name.endswith(".py") else f"{text}\n")
    rules = open_rules()
    request = Request(paths=(".",), here=False)
    (subject,) = gather_all(as_inspection(request), rules, {}).subjects
    (role,) = subject.roles
    files = EditableFiles([subject])
    change = find_setting(subject, role, {"training.sync_each_batch": True}, "safe", None, rules, files)
    assert change is not None
    (edit,) = change.edits
    assert edit.new.replace('"', "'") == after.replace('"', "'").removesuffix(")")


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        (
            "train.py",
            "TrainingArguments(output_dir='out', bf16=True)",
            "TrainingArguments(output_dir='out', fp16=True)",
        ),
        ("train.py", "TrainingArguments(output_dir='out')", "TrainingArguments(output_dir='out', fp16=True)"),
        ("sft.yaml", "bf16: true\n", "fp16: true\n"),
        ("sft.sh", "swift sft --model Qwen/Qwen2.5-7B --dataset a --bf16 true\n", " --dataset a --fp16 true\n"),
    ],
)
def test_a_precision_is_written_as_the_switch_of_its_trainer(name: str, text: str, after: str) -> None:
    if name.endswith(".py"):
        text = f"from transformers import *\nargs = {text}\nTrainer(model='Qwen/Qwen2.5-7B', args=args).train()\n"
    elif name.endswith(".yaml"):
        text = LLAMAFACTORY.replace("bf16: true\n", text)
    Path(name).write_text(text)
    (subject,) = gather_all(as_inspection(Request(paths=(name,), here=False)), open_rules(), {}).subjects
    change = find_setting(
        subject, "train", {"training.mixed_precision": "fp16"}, "safe", None, open_rules(), EditableFiles([subject])
    )
    assert change is not None
    (edit,) = change.edits
    assert not change.written[0].startswith("a ")
    assert after in text[: edit.start] + edit.new + text[edit.end :]


@pytest.mark.parametrize(
    ("command", "fact", "written"),
    [
        ("trl sft --config missing.yaml", "training.gradient_checkpointing", "--gradient_checkpointing true"),
        (
            "tune run full_finetune_single_device --config missing.yaml",
            "training.gradient_checkpointing",
            "enable_activation_checkpointing=true",
        ),
    ],
)
def test_an_option_is_named_by_hand_as_its_command_takes_it(command: str, fact: str, written: str) -> None:
    Path("run.sh").write_text(f"{command}\n")
    Path("requirements.txt").write_text("trl==0.24.0\ntorchtune==0.6.1\ntransformers==4.57.1\ntorch==2.9.0\n")
    rules = open_rules()
    (subject,) = gather_all(as_inspection(Request(paths=(".",), here=False)), rules, {}).subjects
    change = find_setting(subject, "train", {fact: True}, "safe", None, rules, EditableFiles([subject]))
    assert change is not None
    assert (change.written, change.edits) == ((written,), ())
