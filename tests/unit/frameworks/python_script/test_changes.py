"""What may change a model, its Trainer or its arguments unread leaves open what it may set, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.python_script import read as python_script
from compatcheck.frameworks.python_script.calls import Script, parse_script
from compatcheck.frameworks.python_script.changes import OF_MODEL, Changes
from compatcheck.frameworks.python_script.meanings import ARGUMENTS, TAKERS, TRAINERS
from compatcheck.frameworks.python_script.objects import Objects
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.fixing.test_evaluation import read as read_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from compatcheck.core.facts import Value
    from compatcheck.resolution.subject import Subject

RELEASES = {"transformers": "4.51.3", "trl": "0.17.0", "peft": "0.15.2", "accelerate": "1.6.0", "torch": "2.6.0"}
HEAD = """\
import os, json, torch, bitsandbytes as bnb
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")
args = TrainingArguments(output_dir="o", per_device_train_batch_size=2, bf16=True, optim="adafactor")
"""
TRAIN = "trainer = Trainer(model=model, args=args, train_dataset=ds)\ntrainer.train()\n"
OPTIMIZER, PEFT, LOSS = "training.optimizer", "training.peft", "training.loss_implementation"
CHECKPOINTING, LIGER, SHARDING = "training.gradient_checkpointing", "training.use_liger_kernel", "training.sharding"
BATCH, PRECISION = "training.micro_batch_size", "training.mixed_precision"


def read(directory: Path, text: str, settings: Mapping[str, Value] | None = None, **releases: str) -> Subject:
    path = directory / "t.py"
    path.write_text(text, encoding="utf-8")
    known = {name: Package(name, version, Source("env")) for name, version in {**RELEASES, **releases}.items()}
    return resolve(
        "s",
        rules=open_rules(()),
        environment=Environment("env", known, complete=False),
        documents=python_script.read(str(path)),
        settings={name: (value, Source("--set")) for name, value in (settings or {}).items()},
    )


def changes(text: str) -> list[tuple[int, frozenset[str] | None]]:
    script = Script(parse_script(text, "t.py"))
    objects = Objects(script, trainers=TRAINERS, arguments=ARGUMENTS, known=TAKERS.keys())
    return [(one.line, one.facts) for one in Changes(objects).find()]


@pytest.mark.parametrize(
    ("between", "opened", "kept"),
    [
        ("from mylib import add_lora\nmodel = add_lora(model)", {PEFT, CHECKPOINTING, "model.load_dtype"}, {BATCH}),
        ("enable_checkpointing(model)", {CHECKPOINTING, LIGER}, {BATCH, PRECISION}),
        ("from lib import tune\nprepared = tune(0, [model])", {PEFT}, {BATCH}),
        ("def grow(one):\n    wrap(one)\ngrow(model)", {PEFT}, {BATCH}),
        ("model.requires_grad_(False)\nmodel.lm_head.requires_grad_(True)", {PEFT}, {CHECKPOINTING, BATCH}),
        ("for p in model.parameters():\n    p.requires_grad = False", {PEFT}, {CHECKPOINTING, BATCH}),
        ("def f(m):\n    for _, p in m.named_parameters():\n        p.requires_grad = False\nf(model)", {PEFT}, {BATCH}),
        ("model = PeftModel.from_pretrained(model, 'ck', is_trainable=True)", {PEFT, "training.lora_rank"}, {CHECKPOINTING}),
        ("model = get_peft_model(model, make_config())", {PEFT}, {CHECKPOINTING, BATCH}),
        ("model = model.merge_and_unload()", {PEFT}, {CHECKPOINTING, BATCH}),
        ("model.half()", {"model.load_dtype"}, {CHECKPOINTING, BATCH}),
        ("model.vision_tower.surprise()", {PEFT}, {BATCH}),
        ("model.forward = other", {LOSS}, {BATCH}),
        ("model.config._attn_implementation = chosen", {"model.attn_implementation"}, {CHECKPOINTING, PEFT}),
        ("import patches\npatches.go()", {CHECKPOINTING, LIGER}, {BATCH}),
        ("from liger_kernel.transformers import apply_liger_kernel_to_llama as f\nf()", {LIGER, LOSS}, {BATCH}),
        ("from liger_kernel.transformers import _apply_liger_kernel_to_instance as f\nf(model=model)", {LIGER, LOSS}, {BATCH}),
        ("import transformers\ntransformers.models.llama.modeling_llama.LlamaMLP.forward = mine", {CHECKPOINTING}, {BATCH}),
        ("os.environ['ACCELERATE_USE_FSDP'] = 'true'", {SHARDING}, {CHECKPOINTING, BATCH}),
        ("os.environ.update({'FSDP_VERSION': '2'})", {SHARDING}, {CHECKPOINTING, BATCH}),
        ("patch_args(args)", {BATCH, CHECKPOINTING, OPTIMIZER}, {"model.load_dtype"}),
        ("from lib import finish\nfinish(args)", {BATCH, CHECKPOINTING, OPTIMIZER}, {"model.load_dtype"}),
        ("args.set_training(batch_size=1)", {BATCH, CHECKPOINTING, OPTIMIZER}, {"model.load_dtype"}),
        ("args.__dict__.update(json.load(open('a.json')))", {BATCH, CHECKPOINTING, OPTIMIZER}, {"model.load_dtype"}),
        ("for k, v in EXTRA.items():\n    setattr(args, k, v)", {BATCH, CHECKPOINTING, OPTIMIZER}, {"model.load_dtype"}),
    ],
)  # fmt: skip
def test_what_is_given_to_code_that_is_not_read_is_open(
    tmp_path: Path, between: str, opened: set[str], kept: set[str]
) -> None:
    subject = read(tmp_path, f"{HEAD}{between}\n{TRAIN}")
    facts = subject.roles["train"]
    assert not opened & facts.keys()
    assert kept - {PEFT} <= facts.keys()
    assert subject.gaps
    assert all(gap.source.line and gap.source.line > HEAD.count("\n") for gap in subject.gaps)


@pytest.mark.parametrize(
    ("trainer", "opened", "kept"),
    [
        ("Trainer(model, args, optimizers=(make_opt(1), None))", {OPTIMIZER}, {CHECKPOINTING, BATCH}),
        ("Trainer(model, args, optimizer_cls_and_kwargs=(Mine, {}))", {OPTIMIZER}, {CHECKPOINTING, BATCH}),
        ("Trainer(**dict(model=model, args=args, optimizers=(make(1), None)))", {OPTIMIZER}, {CHECKPOINTING, BATCH}),
        ("Trainer(model, args, **more)", {OPTIMIZER, LOSS}, {CHECKPOINTING, BATCH}),
        ("Trainer(model, args, compute_loss_func=mine)", {LOSS}, {CHECKPOINTING, OPTIMIZER}),
        ("Trainer(model, args, callbacks=[TurnOnCheckpointing()])", {CHECKPOINTING, OPTIMIZER}, {BATCH}),
        ("Trainer(model, args)\ntrainer.add_callback(MyCallback)", {CHECKPOINTING, OPTIMIZER}, {BATCH}),
        ("Trainer(model, args)\ntrainer.optimizer = make_opt(1)", {OPTIMIZER}, {CHECKPOINTING, BATCH}),
        ("Trainer(model, args)\ntrainer.compute_loss = mine", {LOSS}, {CHECKPOINTING, BATCH}),
        ("Trainer(model, args)\nfrom lib import f\nf(trainer)", {OPTIMIZER, BATCH}, {"model.load_dtype"}),
        ("Trainer(model, args)\ntrainer.speed_up()", {OPTIMIZER, BATCH}, {"model.load_dtype"}),
        ("Trainer(model, args)\ntrainer.args.per_device_train_batch_size = 1", {BATCH}, {OPTIMIZER}),
        ("MyTrainer(model=model, args=args)", {CHECKPOINTING}, {BATCH, "model.load_dtype"}),
    ],
)
def test_what_a_trainer_is_given_may_take_the_place_of_its_own(
    tmp_path: Path, trainer: str, opened: set[str], kept: set[str]
) -> None:
    facts = read(tmp_path, f"{HEAD}trainer = {trainer}\ntrainer.train()\n").roles["train"]
    assert not opened & facts.keys()
    assert kept <= facts.keys()


def test_arguments_that_are_set_on_the_trainer_are_read(tmp_path: Path) -> None:
    text = f"{HEAD}trainer = Trainer(model, args)\ntrainer.args.gradient_checkpointing = True\ntrainer.train()\n"
    subject = read(tmp_path, text)
    assert subject.roles["train"][CHECKPOINTING].value is True
    assert not subject.gaps


def test_an_optimizer_that_is_told_is_read(tmp_path: Path) -> None:
    made = "opt = bnb.optim.AdamW8bit(model.parameters(), lr=1e-5)\n"
    facts = read(tmp_path, f"{HEAD}{made}Trainer(model, args, optimizers=(opt, None)).train()\n").roles["train"]
    assert facts[OPTIMIZER].value == "adamw_8bit"
    assert "training.optimizer_implementation" not in facts


OWN_OPTIMIZER = "def create_optimizer(self):\n        self.optimizer = mine(self.model.parameters())"
OWN_LOSS = "def compute_loss(self, model, inputs, **more):\n        return chunked(model, inputs)"
OWN_INIT = "def __init__(self, model, args):\n        args.gradient_checkpointing = True\n        super().__init__(model, args)"


@pytest.mark.parametrize(("method", "opened"), [(OWN_OPTIMIZER, OPTIMIZER), (OWN_LOSS, LOSS), (OWN_INIT, None)])
def test_an_own_trainer_is_one_of_its_base(tmp_path: Path, method: str, opened: str | None) -> None:
    own = f"class Own(Trainer):\n    {method}\n"
    subject = read(tmp_path, f"{HEAD}{own}trainer = Own(model=model, args=args)\ntrainer.train()\n")
    facts = subject.roles["train"]
    assert opened not in facts
    assert facts["training.framework"].value == "hf_trainer"
    assert facts[BATCH].value == 2
    if opened is None:
        assert facts[CHECKPOINTING].value is True


QUIET = """\
import logging, numpy as np, wandb
from datasets import load_dataset
from accelerate import Accelerator
from transformers import DataCollatorForSeq2Seq, EarlyStoppingCallback, set_seed
from trl import setup_chat_format
from mylib import load_data, setup_logging, log_model, evaluate_model, CheckpointCallback
logger = logging.getLogger(__name__)
setup_logging()
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = True
set_seed(args.seed)
tokenizer = AutoTokenizer.from_pretrained("x")
tokenizer.pad_token = tokenizer.eos_token
model, tokenizer = setup_chat_format(model, tokenizer)
model.config.pad_token_id = tokenizer.pad_token_id
model.config.use_cache = False
model.config.pretraining_tp = 1
model.resize_token_embeddings(len(tokenizer))
print(model, len(list(model.parameters())), model.config.hidden_size, isinstance(model, torch.nn.Module))
model.print_trainable_parameters()
logger.info(model)
log_model(model)
wandb.watch(model)
wandb.config.update(vars(args))
model.train()
model.eval()
model = model.to("cuda")
model.enable_input_require_grads()
ds = load_data(args).map(lambda row: tokenizer(row["text"]))
collator = DataCollatorForSeq2Seq(tokenizer, model=model)
def count(m):
    return sum(p.numel() for p in m.parameters())
count(model)
class Note(TrainerCallback):
    def on_log(self, args, state, control, model=None, **kwargs):
        logger.info(args.output_dir)
print(args.output_dir, args.to_dict())
trainer = Trainer(model=model, args=args, data_collator=collator,
                  callbacks=[EarlyStoppingCallback(3), Note(), CheckpointCallback()])
if trainer.is_world_process_zero():
    trainer.log({})
trainer.processing_class(text, max_length=trainer.max_prompt_length)
trainer.train(resume_from_checkpoint=True)
trainer.save_model(args.output_dir)
evaluate_model(model)
merged = publish(trainer.model.merge_and_unload())
"""


def test_calls_that_leave_the_objects_alone_open_nothing(tmp_path: Path) -> None:
    subject = read(tmp_path, HEAD + QUIET)
    assert [(gap.source.line, gap.why) for gap in subject.gaps] == []
    facts = subject.roles["train"]
    assert facts[CHECKPOINTING].value is False
    assert facts[OPTIMIZER].value == "adafactor"


_ENGINE = """\
import deepspeed
engine, *_ = deepspeed.initialize(model=model, config={{"zero_optimization": {{"stage": 2}}}})
engine.backward(engine(batch).loss)
{}
"""


@pytest.mark.parametrize(
    "line",
    [
        "engine.destroy()",
        "if engine.zero_optimization_stage() == 3:\n    print(engine.gradient_accumulation_steps())",
        "engine.set_gradient_accumulation_boundary(True)\nengine.allreduce_gradients()",
        "torch.save(engine.module_state_dict(), 'x')",
    ],
)
def test_what_an_engine_answers_and_its_end_open_nothing(tmp_path: Path, line: str) -> None:
    subject = read(tmp_path, HEAD[: HEAD.index("args =")] + _ENGINE.format(line))
    assert [gap.why for gap in subject.gaps] == []
    assert subject.roles["train"]["training.zero_stage"].value == 2


def test_states_that_an_engine_moves_to_the_host_are_open(tmp_path: Path) -> None:
    subject = read(tmp_path, HEAD[: HEAD.index("args =")] + _ENGINE.format("engine.offload_states()"))
    assert [gap.why for gap in subject.gaps] == ["may change the model: engine.offload_states()"]


def test_adapters_that_are_read_open_nothing(tmp_path: Path) -> None:
    text = "model = prepare_model_for_kbit_training(model)\nmodel = get_peft_model(model, LoraConfig(r=8))\n"
    subject = read(tmp_path, f"{HEAD}for p in model.parameters():\n    p.requires_grad = False\n{text}{TRAIN}")
    facts = subject.roles["train"]
    assert (facts[PEFT].value, facts["training.lora_rank"].value) == ("lora", 8)
    assert not subject.gaps  # all else is frozen by peft
    config = "config = LoraConfig(r=8)\nmodel.add_adapter(config)\n"
    assert read(tmp_path, f"{HEAD}{config}{TRAIN}").roles["train"][PEFT].value == "lora"


def test_the_older_name_of_peft_prepares_a_base_as_the_newer_does(tmp_path: Path) -> None:
    head = HEAD.replace("prepare_model_for_kbit_training", "prepare_model_for_int8_training")
    text = (
        f"{head}model = prepare_model_for_int8_training(model)\nmodel = get_peft_model(model, LoraConfig(r=8))\n{TRAIN}"
    )
    subject = read(tmp_path, text, peft="0.3.0")
    assert not subject.gaps
    assert subject.roles["train"][CHECKPOINTING].value is True


def test_a_script_says_whether_peft_makes_what_is_not_quantised_float32(tmp_path: Path) -> None:
    adapters = "model = get_peft_model(model, LoraConfig(r=8))\n"
    prepared = "model = prepare_model_for_kbit_training(model)\n"
    upcasts = "program.upcasts_unquantised"
    assert read(tmp_path, HEAD + prepared + adapters + TRAIN).roles["train"][upcasts].value is True
    never = HEAD.replace(", prepare_model_for_kbit_training", "")
    assert read(tmp_path, never + adapters + TRAIN).roles["train"][upcasts].value is False
    asked = f"{HEAD}if os.environ.get('BITS'):\n    {prepared}{adapters}{TRAIN}"
    assert upcasts not in read(tmp_path, asked).roles["train"]


_ARGUMENTS = 'args = TrainingArguments(output_dir="o", bf16=True, deepspeed={"zero_optimization": {"stage": 3}})\n'
_MODEL = 'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype="bfloat16")\n'
_IMPORTS = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"


@pytest.mark.parametrize(
    ("text", "built_inside"),
    [
        (_ARGUMENTS + _MODEL, True),
        (_MODEL + _ARGUMENTS, False),
        (f"def load():\n    {_MODEL}    return model\n{_ARGUMENTS}model = load()\n", None),
        (f"kept = HfDeepSpeedConfig('zero3.json')\n{_MODEL}{_ARGUMENTS}", None),
    ],
)
def test_a_model_is_built_inside_of_zero_init_where_the_arguments_are_there_before(
    tmp_path: Path, text: str, built_inside: object
) -> None:
    subject = read(tmp_path, _IMPORTS + text + TRAIN, {"model.quantization": None}, deepspeed="0.16.9")
    fact = subject.roles["train"].get("training.zero_init")
    assert (None if fact is None else fact.value) is built_inside


def test_a_loop_of_ones_own_hands_deepspeed_a_model_that_is_there(tmp_path: Path) -> None:
    text = "engine, *_ = deepspeed.initialize(model=model, config={'zero_optimization': {'stage': 3}})\n"
    subject = read(tmp_path, f"import deepspeed\n{_IMPORTS}{_MODEL}{text}", deepspeed="0.16.9")
    assert subject.roles["train"]["training.zero_init"].value is False


_LOOP = """\
accelerator = Accelerator(mixed_precision="bf16")
model, loader = accelerator.prepare(model, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
"""
_OWN = "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n"


@pytest.mark.parametrize(
    ("between", "peft", "checkpointing"),
    [
        ("", (None,), (False,)),
        ("model.gradient_checkpointing_enable()\n", (None,), (True,)),
        ("if args.gradient_checkpointing:\n    model.gradient_checkpointing_enable()\n", (None,), ()),
        ("model = get_peft_model(model, config)\n", (), (False,)),
        ("model = theirs.prepare_model(model)\n", (), ()),
        ("critic = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B')\n", (), ()),
    ],
)
def test_a_loop_trains_the_model_that_it_loads_as_it_is(
    tmp_path: Path, between: str, peft: tuple[object, ...], checkpointing: tuple[object, ...]
) -> None:
    head = "import theirs\n" if "theirs" in between else ""
    facts = read(tmp_path, f"{head}{_OWN}{_MODEL}{between}{_LOOP}").roles["train"]
    assert tuple(facts[name].value for name in (PEFT,) if name in facts) == peft
    assert tuple(facts[name].value for name in (CHECKPOINTING,) if name in facts) == checkpointing


@pytest.mark.parametrize(
    ("written", "release", "dtype"),
    [
        ("", "4.51.3", "float32"),
        ("", "5.0.0", "bfloat16"),
        (", torch_dtype='float16'", "4.51.3", "float16"),
        (", torch_dtype=args.dtype", "4.51.3", None),
    ],
)
def test_a_loop_loads_in_the_dtype_that_transformers_takes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, release: str, dtype: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text(_OWN + _MODEL.replace(', torch_dtype="bfloat16"', written) + _LOOP)
    (tmp_path / "requirements.txt").write_text(f"transformers=={release}\naccelerate==1.6.0\n")
    fact = read_files("requirements.txt", "t.py").roles["train"].get("model.load_dtype")
    assert (None if fact is None else fact.value) == dtype


_DPO = """\
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", dtype="bfloat16")
"""


@pytest.mark.parametrize(
    ("head", "model", "options", "more", "dtype"),
    [
        (_DPO, "model", "", "", "float32"),
        (
            _DPO.partition("model =")[0],
            '"Qwen/Qwen2.5-7B-Instruct"',
            ", model_init_kwargs={'dtype': 'float16'}",
            "",
            "float16",
        ),
        (_DPO.replace("model =", "ref ="), '"Qwen/Qwen2.5-7B-Instruct"', "", "", "float32"),
        (
            _DPO + _DPO.replace("model =", "ref =").replace("bfloat16", "float16"),
            "model",
            "",
            ", ref_model=ref",
            "float16",
        ),
        (_DPO, "model", "", ", ref_model=None", "float32"),
        (_DPO, "model", "", ", ref_model=make()", None),
    ],
)
def test_the_reference_of_dpo_has_the_dtype_it_is_loaded_in_and_not_that_of_the_policy(
    tmp_path: Path, head: str, model: str, options: str, more: str, dtype: str | None
) -> None:
    options = f"args = DPOConfig(output_dir='o'{options})\n"
    text = f"{head}{options}DPOTrainer(model={model}, args=args, train_dataset=ds{more}).train()\n"
    fact = read(tmp_path, text, trl="1.2.0", transformers="5.5.0").roles["train"].get("training.reference_load_dtype")
    assert (fact.value if fact is not None else None) == dtype


@pytest.mark.parametrize(
    ("trainer", "trl", "transformers", "dtype"),
    [
        ("GRPO", "1.2.0", "5.5.0", "float32"),
        ("GRPO", "0.25.0", "4.57.1", "float32"),
        ("GRPO", "0.18.2", "4.52.4", None),
        ("RLOO", "0.26.0", "4.57.1", "float32"),
        ("RLOO", "0.21.0", "4.53.0", None),
        ("KTO", "1.2.0", "5.5.0", "float32"),
        ("KTO", "1.1.0", "5.5.0", None),
    ],
)
def test_a_trainer_that_loads_its_reference_anew_takes_no_dtype_of_the_policy(
    tmp_path: Path, trainer: str, trl: str, transformers: str, dtype: str | None
) -> None:
    text = (
        f"import torch\nfrom trl import {trainer}Config, {trainer}Trainer\n"
        "from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', torch_dtype=torch.bfloat16)\n"
        f"{trainer}Trainer(model=model, args={trainer}Config(output_dir='o', beta=0.1), train_dataset=ds).train()\n"
    )
    facts = read(tmp_path, text, trl=trl, transformers=transformers).roles["train"]
    assert facts["model.load_dtype"].value == "bfloat16"
    fact = facts.get("training.reference_load_dtype")
    assert (fact.value if fact is not None else None) == dtype


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("", None),
        (", ref_model=None", None),
        (", ref_model=AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B-Instruct')", True),
        (", ref_model=create_reference_model(model)", True),
        (", ref_model=make()", None),
    ],
)
def test_a_reference_that_is_handed_over_is_there_though_its_log_probabilities_are_computed_before(
    tmp_path: Path,
    given: str,
    value: bool | None,  # noqa: FBT001
) -> None:
    args = "args = DPOConfig(output_dir='o', precompute_ref_log_probs=True)"
    text = f"{_DPO}{args}\nDPOTrainer(model=model, args=args{given}).train()\n"
    subject = read(tmp_path, text, trl="1.2.0", transformers="5.5.0")
    fact = subject.roles["train"].get("training.reference_model")
    assert (fact.value if fact is not None else None) is value
    assert ("make()" in given) is any("training.reference_model" in one.facts for one in subject.gaps)


@pytest.mark.parametrize(
    ("given", "value"), [("", True), (", autocast_adapter_dtype=False", False), (", autocast_adapter_dtype=f()", None)]
)
def test_the_dtype_of_adapters_is_read_of_the_call_that_makes_them(
    tmp_path: Path,
    given: str,
    value: bool | None,  # noqa: FBT001
) -> None:
    text = f"{HEAD}model = get_peft_model(model, LoraConfig(r=8){given})\n{TRAIN}"
    fact = read(tmp_path, text, peft="0.18.0").roles["train"].get("training.autocast_adapter_dtype")
    assert (fact.value if fact is not None else None) is value


LORA = "lora = LoraConfig(r=8)\n"


@pytest.mark.parametrize(
    "text",
    [
        "if len(sys.argv) > 1:\n    model = get_peft_model(model, lora)\nTrainer(model, args).train()",
        "from trl import SFTTrainer\nSFTTrainer(model, args, peft_config=lora if sys.argv else None).train()",
    ],
)
def test_adapters_under_a_condition_are_open(tmp_path: Path, text: str) -> None:
    subject = read(tmp_path, f"{HEAD}{LORA}{text}\n")
    assert not {PEFT, "training.lora_rank"} & subject.roles["train"].keys()
    assert subject.gaps


@pytest.mark.parametrize(
    ("given", "is_open"), [("make()", True), ("BitsAndBytesConfig(load_in_4bit=True)", False), ("None", False)]
)
def test_a_quantization_that_is_not_told_is_open(tmp_path: Path, given: str, *, is_open: bool) -> None:
    text = HEAD.replace("torch_dtype=", f"quantization_config={given}, torch_dtype=")
    subject = read(tmp_path, f"{text}{TRAIN}")
    assert bool(subject.gaps) is is_open
    assert ("model.quantization" in subject.roles["train"]) is ("4bit" in given)


def test_what_a_function_states_behind_a_change_stands(tmp_path: Path) -> None:
    made = HEAD.rpartition("args =")[2].strip()
    lines = ["model.half()", "from lib import tune", "tune(model)", "model = get_peft_model(model, LoraConfig(r=8))"]
    body = "".join(f"    {line}\n" for line in (*lines, f"args = {made}", "Trainer(model, args).train()"))
    facts = read(tmp_path, f"{HEAD.rpartition('args =')[0]}def main():\n{body}main()\n").roles["train"]
    assert facts[PEFT].value == "lora"
    assert "model.load_dtype" not in facts


def test_what_comes_behind_training_changes_nothing() -> None:
    assert changes(f"{HEAD}{TRAIN}mystery(model)\nmystery(args)\nmodel.surprise()\n") == []
    assert changes(f"{HEAD}mystery(model)\n{TRAIN}") == [(HEAD.count("\n") + 1, OF_MODEL)]


def test_a_device_map_that_spreads_layers_leaves_sharding_open(tmp_path: Path) -> None:
    spread = HEAD.replace("torch_dtype=", 'device_map="auto", torch_dtype=')
    assert SHARDING not in read(tmp_path, f"{spread}{TRAIN}").roles["train"]
    one = HEAD.replace("torch_dtype=", 'device_map={"": 0}, torch_dtype=')
    assert not read(tmp_path, f"{one}{TRAIN}").gaps


UNSLOTH = """\
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Meta-Llama-3.1-8B", max_seq_length=2048{load})
model = FastLanguageModel.get_peft_model(model, {more})
SFTTrainer(model=model, args=SFTConfig(output_dir="o", bf16=True)).train()
"""


UNSLOTH_OFFLOADS = 'r=32, use_gradient_checkpointing="unsloth"'


@pytest.mark.parametrize(
    ("load", "more", "rank"),
    [(", load_in_4bit=True", UNSLOTH_OFFLOADS, 32), ("", "lora_alpha=16", 16), ("", "r=8, lora_dropout=0.05", 8)],
)
def test_what_is_plain_of_unsloth_is_read(tmp_path: Path, load: str, more: str, rank: int) -> None:
    subject = read(tmp_path, UNSLOTH.format(load=load, more=more))
    facts = subject.roles["train"]
    assert facts["model.quantization"].value == "nf4"
    assert facts[PEFT].value == "lora"
    assert facts["training.lora_rank"].value == rank
    assert "down_proj" in facts["training.lora_target_modules"].value
    assert facts[CHECKPOINTING].value is True
    assert ("program.calls_4bit_linears" in facts) is ("lora_dropout" not in more)
    assert not {"model.attn_implementation", LIGER, "training.use_reentrant", "training.padding_free"} & facts.keys()
    assert facts["training.sequence_length"].value == 2048
    assert ["unsloth" in gap.why for gap in subject.gaps] == [True]


@pytest.mark.parametrize(
    ("how", "offloads"),
    [("", True), (', use_gradient_checkpointing="unsloth"', True), (", use_gradient_checkpointing=True", False)],
)
def test_unsloth_has_defaults_of_its_own_for_trls_trainers(tmp_path: Path, how: str, *, offloads: bool) -> None:
    facts = read(tmp_path, UNSLOTH.format(load="", more=f"r=8{how}"), unsloth="2025.11.1", trl="0.23.0").roles["train"]
    own = {
        BATCH: 4, "training.gradient_accumulation_steps": 2, OPTIMIZER: "adamw_8bit", "training.eval_batch_size": 4,
        "training.empty_cache_steps": 250, "training.sequence_length": 2048, LOSS: "fused_linear",
    }  # fmt: skip
    assert {name: facts[name].value for name in own} == own
    assert (facts["program.code"].value, facts["program.offloads_by_trl"].value) == ("trl", False)
    assert facts["training.activation_offloading"].value is offloads


def test_unsloths_losses_of_preferences_stay_open(tmp_path: Path) -> None:
    text = UNSLOTH.format(load="", more="r=8").replace("SFT", "DPO")
    facts = read(tmp_path, text, unsloth="2025.11.1", trl="0.23.0").roles["train"]
    assert facts[BATCH].value == 4
    assert not {LOSS, "training.loss_type"} & facts.keys()


@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.parametrize(("capability", "expected"), [(9.0, ("bfloat16", "no")), (7.5, ("float16", "fp16"))])
def test_unsloth_trains_all_weights_without_autocast_where_they_are_bfloat16(
    tmp_path: Path, capability: float, expected: tuple[str, str], *, adapters: bool
) -> None:
    """Adapters that a script then asks for, it does not get."""
    text = UNSLOTH.format(load=", full_finetuning=True", more="r=8")
    text = text.replace(", bf16=True", "")
    if not adapters:
        text = "".join(line for line in text.splitlines(keepends=True) if "get_peft_model" not in line)
    device = {"hardware.compute_capability": capability, "model.model_type": "llama"}
    facts = read(tmp_path, text, device, unsloth="2025.11.1", trl="0.23.0").roles["train"]
    assert PEFT not in facts or facts[PEFT].value is None
    assert not {"training.lora_rank", "training.lora_target_modules"} & facts.keys()
    assert (facts["model.load_dtype"].value, facts[PRECISION].value) == expected
    assert facts[CHECKPOINTING].value is True


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("class T(SFTTrainer):\n    pass\nt = T(model=m)\nt.train()\n", True),
        ("args = SFTConfig(output_dir='o')\nMine(m, args).train()\n", True),
        ("from transformers import (\n    Trainer,\n)\nmain()\n", False),
    ],
)
def test_a_script_with_a_trainer_of_its_own_starts_training(tmp_path: Path, text: str, *, starts: bool) -> None:
    path = tmp_path / "run.py"
    path.write_text(text, encoding="utf-8")
    assert python_script.starts_training(str(path), told=False) is starts


def test_a_trainer_of_another_package_is_none_of_the_same_name(tmp_path: Path) -> None:
    subject = read(tmp_path, f"{HEAD}from mylib import SFTTrainer\nSFTTrainer(model=model, args=args).train()\n")
    facts = subject.roles["train"]
    assert not {CHECKPOINTING, LOSS, "training.trainer"} & facts.keys()
    assert facts[BATCH].value == 2
    assert {gap.facts is None for gap in subject.gaps} == {
        True,
        False,
    }  # may set any argument, and decides what a trainer does


@pytest.mark.parametrize(
    "made", ["from .mine import TrainingArguments", "class TrainingArguments(Base):\n    bf16 = True"]
)
def test_arguments_of_another_class_are_none_of_the_same_name(tmp_path: Path, made: str) -> None:
    head = HEAD.replace(", TrainingArguments", "").rpartition("args =")[0]
    subject = read(tmp_path, f"{head}{made}\nargs = TrainingArguments(output_dir='o')\nTrainer(model, args).train()\n")
    assert not {CHECKPOINTING, OPTIMIZER, BATCH} & subject.roles["train"].keys()
    assert subject.gaps


@pytest.mark.parametrize(
    ("load", "engine", "share"),
    [
        (", fast_inference=True, max_lora_rank=32, gpu_memory_utilization=0.9", "vllm", 0.9),
        (", fast_inference=True", "vllm", 0.5),
        (", fast_inference=False, gpu_memory_utilization=0.9", None, None),
        (", fast_inference=FAST", None, None),
    ],
)
def test_the_engine_that_unsloth_starts_is_read(
    tmp_path: Path, load: str, engine: str | None, share: float | None
) -> None:
    subject = read(tmp_path, UNSLOTH.format(load=load, more="r=32"))
    facts = subject.roles["train"]
    assert (facts["rollout.engine"].value if "rollout.engine" in facts else None) == engine
    stated = facts.get("rollout.gpu_memory_utilization")
    assert (None if stated is None else stated.value) == share
    assert ("program.engine_shares_weights" in facts) is (engine is not None)
    assert ("rollout.engine" in {name for name, _, _ in subject.unresolved}) is ("FAST" in load)


@pytest.mark.parametrize(
    ("standby", "share"), [("", 0.6), ('import os\nos.environ["UNSLOTH_VLLM_STANDBY"] = "1"\n', 0.87875)]
)
def test_unsloths_engine_sleeps_where_a_variable_says_so(tmp_path: Path, standby: str, share: float) -> None:
    load = ", fast_inference=True, gpu_memory_utilization=0.6"
    text = standby + UNSLOTH.format(load=load, more="r=32").replace("SFT", "GRPO")
    device = {"hardware.memory_bytes": 80 * 2**30, "runtime.torch_build": "cuda"}
    facts = read(tmp_path, text, device, unsloth="2026.10.9", trl="0.24.0", vllm="0.12.0").roles["train"]
    assert facts["rollout.sleep_mode"].value is bool(standby)
    assert facts["rollout.gpu_memory_utilization"].value == share
    assert ("allocator.expandable_segments" in facts) is not bool(standby)


ADAPTED = "from trl import SFTConfig, SFTTrainer\nSFTTrainer(model='m', args=SFTConfig('o'), peft_config={}).train()\n"


@pytest.mark.parametrize(("made", "rank", "dropout"), [("", 8, 0.0), ("r=16, lora_dropout=0.1", 16, 0.1)])
def test_adapters_made_in_a_script_have_pefts_own_defaults(
    tmp_path: Path, made: str, rank: int, dropout: float
) -> None:
    text = f"from peft import LoraConfig\n{ADAPTED.format(f'LoraConfig({made})')}"
    facts = read(tmp_path, text, trl="0.24.0").roles["train"]
    assert (facts["training.lora_rank"].value, facts["training.lora_dropout"].value) == (rank, dropout)


VISION = """\
from unsloth import FastVisionModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastVisionModel.from_pretrained("unsloth/Qwen2.5-VL-7B-Instruct"{load})
model = FastVisionModel.get_peft_model(model{more})
SFTTrainer(model=model, args=SFTConfig(output_dir="o", bf16=True)).train()
"""
BOTH = {"all-attention", "all-mlp"}


@pytest.mark.parametrize(
    ("more", "targets"),
    [
        ("", BOTH | {f"vision:{name}" for name in BOTH}),
        (", finetune_vision_layers=False", BOTH),
        (", finetune_language_layers=False", {f"vision:{name}" for name in BOTH}),
        (", finetune_mlp_modules=False, finetune_vision_layers=False", {"all-attention"}),
        (", target_modules=['q_proj', 'fc1']", {"q_proj", "fc1", "vision:q_proj", "vision:fc1"}),
        (", target_modules=['q_proj'], finetune_vision_layers=False", {"q_proj"}),
        (", target_modules='all-linear', finetune_vision_layers=False", BOTH | {f"vision:{name}" for name in BOTH}),
        (", finetune_vision_layers=images", None),
        (", **more", None),
    ],
)
def test_adapters_of_unsloths_models_with_towers_lie_in_both(
    tmp_path: Path, more: str, targets: set[str] | None
) -> None:
    facts = read(tmp_path, VISION.format(load="", more=more), unsloth="2025.9.1").roles["train"]
    found = facts.get("training.lora_target_modules")
    assert (None if found is None else set(found.value)) == targets
    assert "program.calls_4bit_linears" not in facts  # its linears are peft's


@pytest.mark.parametrize(
    ("load", "more", "offloads", "checkpoints"),
    [
        ("", "", True, True),
        ("", ", use_gradient_checkpointing=True", True, True),
        (", use_gradient_checkpointing=True", "", False, True),
        ("", ", use_gradient_checkpointing=False", None, False),
    ],
)
def test_what_loading_patches_decides_where_unsloths_models_with_towers_keep_activations(
    tmp_path: Path, load: str, more: str, *, offloads: bool | None, checkpoints: bool
) -> None:
    facts = read(tmp_path, VISION.format(load=load, more=more), unsloth="2025.9.1").roles["train"]
    found = facts.get("training.activation_offloading")
    assert (found and found.value) is offloads
    assert facts[CHECKPOINTING].value is checkpoints


def test_unsloths_adapters_have_float32_also_on_a_4_bit_base(tmp_path: Path) -> None:
    facts = read(tmp_path, VISION.format(load="", more=""), unsloth="2025.9.1", trl="0.22.2").roles["train"]
    assert facts["program.adapter_dtype"].value == "float32"


def test_a_method_that_is_bound_to_a_model_changes_nothing_by_itself() -> None:
    saved = "(lambda self, *_, **__: get_peft_model_state_dict(self, old())).__get__(model, type(model))"
    assert changes(f"{HEAD}old = model.state_dict\nmodel.state_dict = {saved}\n{TRAIN}") == []
    assert changes(f"{HEAD}model.forward = (lambda self: wrap(self)).__get__(model, type(model))\n{TRAIN}") != []


def test_a_loop_at_the_left_edge_starts_where_the_name_tells(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("model = make()\nfor batch in loader:\n    model(**batch).loss.backward()\n")
    assert python_script.starts_training(str(path), told=True)
    assert not python_script.starts_training(str(path), told=False)
    path.write_text("def step(batch):\n    model(**batch).loss.backward()\n")
    assert not python_script.starts_training(str(path), told=True)
