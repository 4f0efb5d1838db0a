"""What a note among the remedies advises is read where it is carried out: in the script that the rule speaks of, at the least."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import compatcheck
from compatcheck.matching.decision import SILENT, decide
from compatcheck.resolution.resolve import DAMAGE, TRAIN
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.load import load_rule, rule_files
from compatcheck.rules.locate import open_rules
from tests.rules.test_rules import RULES as FOLDER
from tests.unit.frameworks.python_script.test_changes import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.rules.rule import Rule

PACKAGE = Path(compatcheck.__file__).parent
STATES = ("frameworks", "collectors", "resolution", "checking", "fleet")
"""Packages that state facts of what was read."""
RULES = [rule for path in rule_files(FOLDER) if (rule := load_rule(path, FOLDER)).status == "active"]
LAYOUT = {"packages", "env"}
"""Sections of an example that hold no facts."""


def facts_done(rule: Rule) -> Iterator[str]:
    for remedy in rule.remedies:
        for section, values in (remedy.done or {}).items():
            yield from (f"{section}.{name}" for name in values if section not in LAYOUT)


def is_of_script(name: str) -> bool:
    """Tell whether a fact is about the script itself; what a mask holds is in the data."""
    return name.startswith(("run.", "program.")) and name != "run.attention_mask"


def test_every_fact_of_a_remedy_is_one_that_something_states() -> None:
    sources = [
        path for folder in STATES for path in (PACKAGE / folder).rglob("*") if path.suffix in {".py", ".txt", ".json"}
    ]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (*sources, *(FOLDER / "_programs").glob("*.yaml")))
    wanted = {name for rule in RULES for name in facts_done(rule) if not name.startswith("estimate.")}
    wanted |= {name for rule in RULES for one in rule.remedies if one.verb == "set" for name in one.target}
    damage = {f"environment.{kind}" for kind in DAMAGE}
    assert {name for name in wanted - damage if name not in texts} == set()


MODEL = """\
import gc, deepspeed, torch
from torch.utils.checkpoint import set_checkpoint_early_stop
from accelerate import Accelerator
from peft import AdaLoraConfig, LoraConfig, PeftModel, ShiraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
"""
PLAIN = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
LOAD = 'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")\n'
AGAIN = (
    "for trial in range(3):\n"
    "    engine, *_ = deepspeed.initialize(model=model, config='ds.json')\n"
    "    for x in data:\n"
    "        engine.backward(engine(**x).loss)\n"
    "        engine.step()\n"
    "    engine.destroy()\n"
)
ANEW = AGAIN.replace("    engine, *_", f"    {LOAD}    engine, *_").replace(
    "    engine.destroy()\n", "    engine.destroy()\n    del engine, model\n    gc.collect()\n"
)
ONCE = AGAIN.partition("\n")[2].replace("\n    ", "\n").removeprefix("    ").replace("engine.destroy()\n", "")
HOOKS = "    engine.module_forward_pre_hook.remove()\n    engine.module_forward_post_hook.remove()\n"
GRADIENTS = "    for p in model.parameters():\n        p._hp_grad = None\n"
STACK = "    deepspeed.runtime.zero.parameter_offload.FWD_MODULE_STACK.clear()\n"
ARGUMENTS = 'args = TrainingArguments(output_dir="o", per_device_train_batch_size=2, bf16=True)\n'
FP16 = ARGUMENTS.replace("bf16", "fp16")
TRAIN_IT = "trainer = Trainer(model=model, args=args, train_dataset=ds)\ntrainer.train()\n"
LORA = 'model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj"]))\n'
REENTRANT = ARGUMENTS.replace(
    ")", ', gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})'
)
CAST = "for p in model.parameters():\n    if p.requires_grad:\n        p.data = p.data.float()\n"
STEP = (
    "optimizer = torch.optim.AdamW(model.parameters())\n"
    "for x in data:\n"
    "    loss = model(**x).loss\n"
    "    loss.backward()\n"
    "    optimizer.step()\n"
)
PREPARED = (
    "accelerator = Accelerator()\n"
    "for trial in range(3):\n"
    "    engine, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))\n"
    "    for x in data:\n"
    "        accelerator.backward(engine(**x).loss)\n"
    "    accelerator.free_memory()\n"
)
OUTPUTS = (
    "accelerator = Accelerator(mixed_precision='bf16')\n"
    "model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))\n"
    "for x in data:\n"
    "    outputs = model(**x)\n"
    "    accelerator.backward(outputs.loss)\n"
    "    optimizer.step()\n"
)
STAGE_0 = {"training.zero_stage": 0, "training.mixed_precision": "bf16", "training.grad_accum_dtype": "float32"}
OFFLOADED = {"training.offload_optimizer": "cpu", "training.offload_param": None}
ON_DEVICE = {"training.offload_optimizer": None, "training.offload_param": None}
FROZEN = "model = get_peft_model(model, LoraConfig(r=8))\n"
TRAINED = "[p for p in model.parameters() if p.requires_grad]"
INITIALIZE = "engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW({}))\nengine.backward(l)\n"
BETWEEN = "{}\n    {}\n    engine.backward(loss)"
SCORE = "with torch.no_grad():\n        old = engine(**x).logits"
EARLY = {"training.gradient_checkpointing": True, "training.use_reentrant": False, "run.custom_autograd_function": True}

DONE: dict[str, list[tuple[dict[str, str], dict[str, object], str, str]]] = {
    "accelerate/free-memory-keeps-engine": [
        (
            {"accelerate": "0.29.3"},
            {"training.zero_stage": 2},
            LOAD + PREPARED,
            LOAD + PREPARED.replace("    accelerator.free", "    engine.destroy()\n    accelerator.free"),
        ),
    ],
    "accelerate/outputs-cast-to-float32": [
        (
            {"accelerate": "1.15.0"},
            {"training.sharding": "ddp"},
            LOAD + OUTPUTS,
            LOAD + OUTPUTS.replace("outputs = model(**x)", "loss = model(**x).loss").replace("outputs.loss", "loss"),
        ),
    ],
    "deepspeed/bf16-optimizer-keeps-gradients": [
        (
            {"deepspeed": "0.16.5"},
            STAGE_0,
            LOAD + ONCE,
            LOAD + ONCE.replace("    engine.b", "    engine.optimizer.clear_lp_grads(set_to_none=True)\n    engine.b"),
        ),
    ],
    "deepspeed/engine-kept-after-destroy": [
        ({"deepspeed": "0.12.6"}, {"training.zero_stage": 3}, LOAD + AGAIN, LOAD + ONCE)
    ],
    "deepspeed/engine-lives-as-long-as-its-model": [
        ({"deepspeed": "0.19.8"}, {"training.zero_stage": 2, **ON_DEVICE}, LOAD + AGAIN, LOAD + AGAIN + HOOKS),
        (
            {"deepspeed": "0.19.8"},
            {**STAGE_0, "training.zero_stage": 1, **ON_DEVICE},
            LOAD + AGAIN + HOOKS,
            LOAD + AGAIN + HOOKS + GRADIENTS,
        ),
        ({"deepspeed": "0.19.8"}, {"training.zero_stage": 2, **ON_DEVICE}, LOAD + AGAIN, ANEW),
    ],
    "deepspeed/offloaded-states-kept-after-destroy": [
        ({"deepspeed": "0.19.8"}, {"training.zero_stage": 3, **OFFLOADED}, ANEW, ANEW + STACK),
        ({"deepspeed": "0.19.8"}, {"training.zero_stage": 2, **OFFLOADED}, LOAD + AGAIN, LOAD + AGAIN + HOOKS),
        ({"deepspeed": "0.19.8"}, {"training.zero_stage": 3, **OFFLOADED}, LOAD + AGAIN, LOAD + ONCE),
    ],
    "deepspeed/stage0-trains-frozen-parameters": [
        (
            {"deepspeed": "0.19.0"},
            {
                "training.zero_stage": 0,
                "training.mixed_precision": "bf16",
                "training.grad_accum_dtype": "bfloat16",
                "model.quantization": None,
            },
            LOAD + FROZEN + INITIALIZE.format("model.parameters()"),
            LOAD + FROZEN + INITIALIZE.format(TRAINED),
        ),
    ],
    "deepspeed/zero3-linear-weights-kept-for-backward": [
        (
            {"deepspeed": "0.19.3"},
            {
                "training.zero_stage": 3,
                "training.gradient_checkpointing": False,
                "model.quantization": None,
                "training.memory_efficient_linear": True,
            },
            PLAIN + LOAD + ARGUMENTS + TRAIN_IT,
            PLAIN + ARGUMENTS + LOAD + TRAIN_IT,
        ),
    ],
    "deepspeed/zero3-model-kept-in-module-stack": [
        ({"deepspeed": "0.19.8"}, {"training.zero_stage": 3, **ON_DEVICE}, ANEW, ANEW + STACK),
        ({"deepspeed": "0.19.8"}, {"training.zero_stage": 3, **ON_DEVICE}, LOAD + AGAIN, LOAD + ONCE),
    ],
    "peft/adalora-trains-its-rank-number": [
        (
            {"peft": "0.21.2"},
            {},
            LOAD + LORA.replace("LoraConfig(r=8,", "AdaLoraConfig(") + ARGUMENTS + TRAIN_IT,
            LOAD
            + LORA.replace("LoraConfig(r=8,", "AdaLoraConfig(")
            + ARGUMENTS
            + "for name, p in model.named_parameters():\n    p.requires_grad_(p.requires_grad and 'ranknum' not in name)\n"
            + TRAIN_IT,
        ),
    ],
    "peft/adapters-untrained-beside-a-head": [
        (
            {"peft": "0.15.2"},
            {},
            LOAD + LORA.replace(")", ', modules_to_save=["lm_head"])', 1) + REENTRANT + TRAIN_IT,
            LOAD
            + "model.enable_input_require_grads()\n"
            + LORA.replace(")", ', modules_to_save=["lm_head"])', 1)
            + REENTRANT
            + TRAIN_IT,
        ),
    ],
    "peft/inputs-without-gradients": [
        (
            {"peft": "0.15.2"},
            {},
            LOAD + LORA + REENTRANT + TRAIN_IT,
            LOAD + "model.enable_input_require_grads()\n" + LORA + REENTRANT + TRAIN_IT,
        ),
    ],
    "peft/kbit-preparation-upcasts-embeddings": [
        (
            {"peft": "0.17.0"},
            {"model.quantization": "nf4"},
            LOAD + "model = prepare_model_for_kbit_training(model)\n" + LORA + ARGUMENTS + TRAIN_IT,
            LOAD + "model.gradient_checkpointing_enable()\n" + LORA + ARGUMENTS + TRAIN_IT,
        ),
    ],
    "peft/shira-layers-kept-for-good": [
        (
            {"peft": "0.21.2"},
            {"training.peft": "shira"},
            ANEW,
            ANEW + "    layer._warn_once_about_module_hooks.cache_clear()\n",
        ),
    ],
    "torch/checkpoint-early-stop-leaks-function-outputs": [
        ({"torch": "2.8.0"}, EARLY, LOAD + STEP, LOAD + STEP + "    gc.collect()\n"),
        (
            {"torch": "2.8.0"},
            EARLY,
            LOAD + STEP,
            LOAD + STEP.replace("    loss =", "    with set_checkpoint_early_stop(False):\n        loss ="),
        ),
    ],
    "torch/fsdp2-deleted-model-stays": [
        (
            {"torch": "2.5.1", "deepspeed": "0.16.0"},
            {"training.sharding": "fsdp", "training.fsdp_version": 2, "training.fsdp_offload_params": False},
            ANEW,
            LOAD + ONCE,
        ),
    ],
    "torch/grad-scaler-refuses-16-bit-gradients": [
        (
            {"peft": "0.11.1"},
            {"training.sharding": "none", "model.quantization": None, "runtime.torch_build": "cuda"},
            LOAD + LORA + FP16 + TRAIN_IT,
            LOAD + LORA + CAST + FP16 + TRAIN_IT,
        ),
    ],
    "torch/conv3d-half-precision-skips-cudnn": [
        (
            {"torch": "2.9.0"},
            {"model.has_conv3d": True, "training.compute_dtype": "bfloat16"},
            LOAD + ARGUMENTS + TRAIN_IT,
            LOAD + "model.to(memory_format=torch.channels_last_3d)\n" + ARGUMENTS + TRAIN_IT,
        ),
    ],
    "torch/flex-attention-uncompiled": [
        (
            {"torch": "2.5.0", "transformers": "4.49.0"},
            {"model.attn_implementation": "flex_attention", "program.runs_transformers": False},
            LOAD + "flex_attention(q, k, v)\n" + STEP,
            LOAD + "flex_attention = torch.compile(flex_attention)\n" + STEP,
        ),
    ],
    "deepspeed/zero3-params-kept-after-no-grad-forward": [
        (
            {"deepspeed": "0.15.4"},
            {"training.zero_stage": 3, "training.gradient_checkpointing": False},
            LOAD + ONCE.replace("engine.backward(engine(**x).loss)", BETWEEN.format("loss = engine(**x).loss", SCORE)),
            LOAD + ONCE.replace("engine.backward(engine(**x).loss)", BETWEEN.format(SCORE, "loss = engine(**x).loss")),
        ),
    ],
    "transformers/float32-logits-kept-as-output": [
        (
            {"transformers": "4.46.1"},
            {"model.model_type": "mistral", "training.compute_dtype": "bfloat16", "training.keep_fp32_outputs": False},
            LOAD + OUTPUTS,
            LOAD
            + OUTPUTS.replace(
                "    accelerator.b", "    loss = outputs.loss\n    del outputs\n    accelerator.b"
            ).replace("(outputs.loss", "(loss"),
        ),
    ],
    "transformers/adapter-loading-allocates-base-model": [
        (
            {"transformers": "5.9.0"},
            {},
            LOAD + 'model.load_adapter("folder")\n' + ARGUMENTS + TRAIN_IT,
            LOAD + 'model = PeftModel.from_pretrained(model, "folder", is_trainable=True)\n' + ARGUMENTS + TRAIN_IT,
        ),
    ],
    "transformers/checkpointing-skips-a-tower": [
        (
            {"transformers": "4.46.3"},
            {
                "model.model_type": "qwen2_vl",
                "training.gradient_checkpointing": True,
                "run.trains_tower": True,
                "training.fsdp_activation_checkpointing": False,
            },
            LOAD + ARGUMENTS + TRAIN_IT,
            LOAD
            + "model.visual.blocks = torch.nn.ModuleList(map(checkpoint_wrapper, model.visual.blocks))\n"
            + ARGUMENTS
            + TRAIN_IT,
        ),
    ],
    "transformers/predictions-pile-up-in-evaluation": [
        (
            {},
            {},
            LOAD
            + ARGUMENTS.replace(")", ', eval_strategy="steps")')
            + TRAIN_IT.replace("ds)", "ds, eval_dataset=es, compute_metrics=metrics)"),
            LOAD
            + ARGUMENTS.replace(")", ', eval_strategy="steps")')
            + TRAIN_IT.replace(
                "ds)", "ds, eval_dataset=es, compute_metrics=metrics, preprocess_logits_for_metrics=argmax)"
            ),
        ),
    ],
}
"""Rule → releases, settings, the script it speaks of, and the same with the remedy carried out."""
ELSEWHERE = {"_stack/retrieval-index-on-training-gpus"}
"""Rules about what stands in no Python script: a command of a launch script (tests/unit/frameworks/launch_script)."""


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in DONE.items() for case in cases], ids=lambda one: str(one)[:60]
)
def test_a_note_that_was_carried_out_is_read(
    name: str, case: tuple[dict[str, str], dict[str, object], str, str], tmp_path: Path
) -> None:
    releases, settings, *scripts = case
    rules = open_rules(())
    rule = rules.find(name)
    assert rule is not None
    said = []
    for script in scripts:
        subject = read(tmp_path, script if script.startswith(PLAIN) else MODEL + script, settings, **releases)
        said.append(decide(rule, FactScope(subject.roles[TRAIN], subject.environment, rules)))
    assert said[0].status != SILENT, "the rule says nothing of the script before"
    assert said[1].status == SILENT, said[1]


def test_every_note_about_a_script_has_one() -> None:
    about = {rule.id for rule in RULES if any(map(is_of_script, facts_done(rule)))}
    about |= {
        rule.id for rule in RULES for one in rule.remedies if one.verb == "set" and any(map(is_of_script, one.target))
    }
    assert about <= DONE.keys() | ELSEWHERE
