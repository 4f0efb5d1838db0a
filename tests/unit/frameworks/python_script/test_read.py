"""Python training scripts, read without running a line of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.environment import Environment, Package
from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.frameworks.python_script import read as python_script
from compatcheck.frameworks.python_script.calls import Script, parse_script
from compatcheck.frameworks.python_script.objects import Objects
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

    from compatcheck.core.document import Document


def read(directory: Path, text: str, *, named: bool = True) -> tuple[Document, ...]:
    path = directory / "train.py"
    path.write_text(text, encoding="utf-8")
    return python_script.read(str(path), named=named)


def facts(documents: tuple[Document, ...]) -> dict[str, Any]:
    return {
        str(entry.fact): entry.value
        for document in documents
        for entry in document.statements
        if entry.fact is not None
    }


def unresolved(documents: tuple[Document, ...]) -> dict[str | None, str]:
    return {entry.fact: entry.why for document in documents for entry in document.unresolved}


SCRIPT = """
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig as Arguments, SFTTrainer
from peft import LoraConfig
import os

BASE = 4
COMMON = dict(bf16=True, optim="adamw_torch")

def main(rank):
    length = 1024 * 2
    steps = BASE * 2
    model = AutoModelForCausalLM.from_pretrained(
        "meta-llama/Llama-3.1-8B",
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        quantization_config=BitsAndBytesConfig(load_in_4bit=True),
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    peft = LoraConfig(r=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"])
    arguments = Arguments(
        output_dir=f"out/{rank}",
        per_device_train_batch_size=BASE,
        gradient_accumulation_steps=steps,
        max_length=length,
        packing=True,
        eval_accumulation_steps=rank,
        deepspeed="ds.json",
        **COMMON,
    )
    SFTTrainer(model, args=arguments, peft_config=peft).train()

if __name__ == "__main__":
    main(int(os.environ["RANK"]))
"""


def test_literals_of_a_training_script(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT)
    assert found[0].reader == "trl"
    assert facts(found) == {
        "run.adapters_through_model": False,
        "run.repeated_initialize": False,
        "training.compute_metrics": False,
        "model.device_map": None,
        "model.load_dtype": "bfloat16",
        "model.attn_implementation": "flash_attention_2",
        "model.quantization": "fp4",
        "run.inputs_require_gradients": False,
        "model.use_cache": False,
        "training.gradient_checkpointing": True,
        "training.use_reentrant": False,
        "training.peft": "lora",
        "training.lora_rank": 16,
        "training.lora_dropout": 0.05,
        "training.lora_target_modules": ("q_proj", "v_proj"),
        "training.micro_batch_size": 4,
        "training.gradient_accumulation_steps": 8,
        "training.sequence_length": 2048,
        "training.packing": True,
        "training.mixed_precision": "bf16",
        "training.optimizer": "adamw",
        "training.optimizer_implementation": "foreach",
        "training.trainer": "sft",
    }
    assert unresolved(found) == {"training.eval_accumulation_steps": "is rank, which is no literal"}
    assert set(found[0].references) == {
        ("model", "meta-llama/Llama-3.1-8B", "from_pretrained"),
        ("deepspeed", "ds.json", "deepspeed"),
    }
    assert found[0].place("per_device_train_batch_size").line == 25


MERGED = """
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("m")
trainer = SFTTrainer(model, args=SFTConfig("o"), peft_config=LoraConfig(r=8))
trainer.train()
"""


@pytest.mark.parametrize(
    ("end", "merges"),
    [
        ("trainer.model.merge_and_unload()", True),
        ("trainer.save_model()", None),
        ("if merge:\n    trainer.model.merge_and_unload()", None),
        ("trainer.model.cpu().merge_and_unload()", None),
        ("trainer.model.to('cpu').merge_and_unload()", None),
        (
            "base = AutoModelForCausalLM.from_pretrained('n')\nPeftModel.from_pretrained(base, 'o').merge_and_unload()",
            None,
        ),
    ],
)
def test_an_adapter_is_merged_where_it_was_trained(tmp_path: Path, end: str, merges: object) -> None:
    assert facts(read(tmp_path, MERGED + end)).get("run.merges_adapter") is merges


@pytest.mark.parametrize(
    "name", ["get_fp32_state_dict_from_zero_checkpoint", "convert_zero_checkpoint_to_fp32_state_dict"]
)
def test_a_script_that_merges_a_checkpoint_of_zero_says_so(tmp_path: Path, name: str) -> None:
    merged = f"\nfrom deepspeed.utils.zero_to_fp32 import {name}\nweights = {name}('out', 'whole')\n"
    assert facts(read(tmp_path, MERGED + merged)).get("run.converts_zero_checkpoint") is True
    assert "run.converts_zero_checkpoint" not in facts(read(tmp_path, MERGED))


_LOADED = """
from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM
{}
model = model.merge_and_unload()
model.save_pretrained("o")
"""


@pytest.mark.parametrize(
    ("load", "merges"),
    [
        (
            "base = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\nmodel = PeftModel.from_pretrained(base, 'a')",
            True,
        ),
        ("base = AutoModelForCausalLM.from_pretrained('m').cuda()\nmodel = PeftModel.from_pretrained(base, 'a')", True),
        ("model = AutoPeftModelForCausalLM.from_pretrained('a', device_map={'': 0})", True),
        ("base = AutoModelForCausalLM.from_pretrained('m')\nmodel = PeftModel.from_pretrained(base, 'a')", None),
        ("model = AutoPeftModelForCausalLM.from_pretrained('a', device_map='cpu')", None),
        ("model = AutoModelForCausalLM.from_pretrained('m', device_map='auto')", None),
    ],
)
def test_an_adapter_that_is_loaded_is_merged_where_its_base_lies(tmp_path: Path, load: str, merges: object) -> None:
    stated = facts(read(tmp_path, _LOADED.format(load)))
    assert (stated.get("run.merges_adapter"), "training.peft" in stated) == (merges, False)


def test_what_is_no_literal_gets_no_default(tmp_path: Path) -> None:
    found = read(tmp_path, "Trainer(args=TrainingArguments(output_dir='o', gradient_checkpointing=flags.gc))\n")
    environment = Environment("e", {"transformers": Package("transformers", "4.48.0", Source("e"))}, complete=False)
    subject = resolve("s", rules=open_rules(), environment=environment, documents=found)
    facts_of = subject.roles["train"]
    assert "training.gradient_checkpointing" not in facts_of
    assert facts_of["training.micro_batch_size"].value == 8
    assert facts_of["training.micro_batch_size"].origin == "reader-default"
    assert [(name, why) for name, _, why in subject.unresolved] == [
        ("training.gradient_checkpointing", "is flags.gc, which is no literal")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "TrainingArguments(output_dir='o', **more)",
        "parser = HfArgumentParser(TrainingArguments)\nTrainer(model)",
    ],
)
def test_arguments_from_elsewhere_leave_no_room_for_defaults(tmp_path: Path, text: str) -> None:
    subject = resolve("s", rules=open_rules(), documents=read(tmp_path, text))
    told = {name for name, fact in subject.roles["train"].items() if fact.origin == "reader-default"}
    assert all(name.startswith("program.") for name in told)  # what its code does, whatever the arguments


def test_a_trainer_means_training(tmp_path: Path) -> None:
    assert facts(read(tmp_path, "DPOTrainer(model, beta=0.2, max_length=512)")) == {
        "training.trainer": "dpo",
        "training.kl_coefficient": 0.2,
        "training.sequence_length": 512,
        "run.adapters_through_model": False,
        "run.repeated_initialize": False,
        "training.compute_metrics": False,
    }
    assert read(tmp_path, "Trainer(model=m, compute_metrics=score)")[0].reader == "hf_trainer"


def test_branches_that_no_literal_decides_leave_facts_open(tmp_path: Path) -> None:
    text = "def f(args):\n    if args.lora:\n        LoraConfig(r=8)\n    TrainingArguments(bf16=True)\n    Trainer()\n"
    found = read(tmp_path, text)
    assert facts(found)["training.mixed_precision"] == "bf16"
    assert unresolved(found)["training.peft"] == "is set only if args.lora"
    decided = read(tmp_path, "LORA = False\nif LORA:\n    LoraConfig(r=8)\nelse:\n    TrainingArguments(bf16=True)\n")
    assert "training.peft" not in unresolved(decided) | facts(decided)


def test_two_calls_that_differ_leave_a_fact_open(tmp_path: Path) -> None:
    text = (
        "a = TrainingArguments(per_device_train_batch_size=1)\nb = TrainingArguments(per_device_train_batch_size=2)\n"
    )
    assert unresolved(read(tmp_path, text)) == {
        "training.micro_batch_size": "is set in lines 1 and 2, each time to something else"
    }
    models = "AutoModelForCausalLM.from_pretrained('a')\nAutoModelForCausalLM.from_pretrained('b')\nTrainer()\n"
    assert "model.name" in unresolved(read(tmp_path, models))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "FSDP(model, use_orig_params=True)",
            {"training.sharding": "fsdp", "training.fsdp_version": 1, "training.fsdp_use_orig_params": True},
        ),
        (
            "FSDP(model, limit_all_gathers=False)",
            {"training.sharding": "fsdp", "training.fsdp_version": 1, "training.fsdp_limit_all_gathers": False},
        ),
        (
            "fully_shard(m, reshard_after_forward=False)",
            {"training.sharding": "fsdp", "training.fsdp_version": 2, "training.fsdp_reshard_after_forward": False},
        ),
        (
            "DDP(model, gradient_as_bucket_view=True)",
            {"training.sharding": "ddp", "training.gradient_as_bucket_view": True},
        ),
        (
            "DDP(model, device_ids=[0])",
            {"training.sharding": "ddp", "training.gradient_as_bucket_view": False},
        ),
        ("DDP(model, **options)", {"training.sharding": "ddp"}),
        (
            "DistributedDataParallelKwargs(gradient_as_bucket_view=True)",
            {"training.gradient_as_bucket_view": True},
        ),
        (
            "DistributedDataParallelKwargs(find_unused_parameters=True)",
            {"training.gradient_as_bucket_view": False},
        ),
        (
            "Accelerator(mixed_precision='bf16', gradient_accumulation_steps=4)",
            {
                "training.mixed_precision": "bf16",
                "training.gradient_accumulation_steps": 4,
                "training.sync_each_batch": False,
                "run.repeated_initialize": False,
            },
        ),
        (
            "Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=4, sync_each_batch=True))",
            {
                "training.gradient_accumulation_steps": 4,
                "training.sync_each_batch": True,
                "run.repeated_initialize": False,
            },
        ),
        (
            "accelerator = Accelerator(**more)\nm = accelerator.prepare(m)\n"  # noqa: ISC004 (one text)
            "with accelerator.accumulate(m): accelerator.backward(loss)",
            {
                "training.framework": "accelerate",
                "program.uses_accelerate": True,
                "program.fsdp_by_accelerate": True,
                "program.converts_outputs": True,
                "program.accumulates_without_sync": True,
                "program.heeds_sync_each_batch": True,
                "run.repeated_initialize": False,
            },
        ),
        (
            "DeepSpeedPlugin(zero_stage=3, offload_optimizer_device='cpu')",
            {"training.zero_stage": 3, "training.offload_optimizer": "cpu"},
        ),
        (
            "FullyShardedDataParallelPlugin(fsdp_version=2, cpu_offload=True)",
            {"training.sharding": "fsdp", "training.fsdp_version": 2, "training.fsdp_offload_params": True},
        ),
        (
            "FullyShardedDataParallelPlugin(limit_all_gathers=False)",
            {"training.sharding": "fsdp", "training.fsdp_limit_all_gathers": False},
        ),
        (
            "FSDP(m)\ntorch.compile(m)",
            {"training.sharding": "fsdp", "training.fsdp_version": 1, "training.compile": True},
        ),
        (
            "deepspeed.initialize(model=m, config={'zero_optimization': {'stage': 2}})",
            {"training.zero_stage": 2, "run.repeated_initialize": False},
        ),
    ],
)
def test_sharding_without_a_trainer(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    found = read(tmp_path, text)
    assert facts(found) == expected
    assert {document.reader for document in found} <= {"script", "deepspeed"}


ACCELERATED = """
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
{between}
model, optimizer = accelerator.prepare(model, optimizer)
for batch in loader:
    accelerator.backward(model(**batch).loss)
"""


@pytest.mark.parametrize(
    ("between", "told"),
    [("", True), ("model = get_peft_model(model, make())", False), ("own.change(model)", False)],
)
def test_a_loop_of_ones_own_trains_what_it_loads(tmp_path: Path, between: str, *, told: bool) -> None:
    documents = read(tmp_path, ACCELERATED.format(between=between))
    found = facts(documents)
    assert ("training.peft" in found and found["training.peft"] is None) is told
    assert "use_liger_kernel" not in documents[0].table  # of TrainingArguments, which the loop does not have


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("torch.optim.AdamW(model.parameters(), lr=1e-5)", True),
        ("torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()))", False),
        ("torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])", False),
        ("torch.optim.AdamW(groups)", None),
        ("torch.optim.AdamW(model.parameters()) if one else torch.optim.AdamW(groups)", None),
    ],
)
def test_whether_an_optimizer_is_made_of_frozen_parameters_too(tmp_path: Path, made: str, *, told: bool | None) -> None:
    found = facts(read(tmp_path, f"import torch\n{ACCELERATED.format(between='')}optimizer = {made}\n"))
    assert found.get("program.optimizes_frozen") is told


def test_an_engine_is_given_what_its_optimizer_is_made_of(tmp_path: Path) -> None:
    found = facts(read(tmp_path, LOOP.format(before="", behind="")))
    assert found["program.optimizes_frozen"] is True


def test_an_engine_that_is_destroyed_is_not_changed(tmp_path: Path) -> None:
    found = read(tmp_path, LOOP.format(before="", behind="") + "engine.destroy()\n")
    assert not any(document.gaps for document in found)


LOOP = """
import deepspeed
import torch
from transformers import AutoModelForCausalLM
from torch.nn.attention.flex_attention import flex_attention


def compute_loss(logits, labels):
    return logits.mean()


model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
{before}
weights = model.parameters()
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=weights, config={{"zero_optimization": {{"stage": 2}}}})
{behind}
for batch in loader:
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
"""


@pytest.mark.parametrize(
    ("before", "behind", "compiled"),
    [
        ("", "engine.compile()", True),
        ("", "engine.compile(backend='inductor')", True),
        ("model.compile()", "", True),
        ("model = torch.compile(model)", "", True),
        ("", "engine.compile(backend='eager')", "open"),
        ("model.compile(disable=True)", "", None),
        ("model.model.compile()", "", "open"),
        ("for layer in model.model.layers:\n    layer.compile()", "", "open"),
        ("compute_loss = torch.compile(compute_loss)", "", "open"),
        ("flex_attention = torch.compile(flex_attention)", "", "open"),
        ("import re\npattern = re.compile('a')", "", None),
        ("", "", None),
    ],
)
def test_what_is_compiled(tmp_path: Path, before: str, behind: str, compiled: object) -> None:
    found = read(tmp_path, LOOP.format(before=before, behind=behind))
    opened = "training.compile" in unresolved(found) or any(
        change.facts is not None and "training.compile" in change.facts
        for document in found
        for change in document.gaps
    )
    assert (facts(found).get("training.compile"), opened) == (
        None if compiled == "open" else compiled,
        compiled == "open",
    )


@pytest.mark.parametrize(
    "text",
    [
        "from bitsandbytes.nn.parametrize import replace_parameter_4bit\nreplace_parameter_4bit(model.model.layers[0].mlp, 'w')",
        "import bitsandbytes as bnb\nmodel.lm_head = bnb.nn.Linear4bit(8, 8)",
        "from torchao.quantization import int4_weight_only, quantize_\nquantize_(model, int4_weight_only())",
    ],
)
def test_layers_that_a_script_quantises_itself(tmp_path: Path, text: str) -> None:
    script = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    script += (
        'model = AutoModelForCausalLM.from_pretrained("m")\n'
        + text
        + '\nTrainer(model=model, args=TrainingArguments("o"), train_dataset=ds).train()\n'
    )
    assert unresolved(read(tmp_path, script))["model.quantization"] == "is decided layer by layer"


@pytest.mark.parametrize("given", ['TorchAoConfig("int8_weight_only")', "config"])
def test_a_model_that_torchao_quantises_while_it_is_loaded(tmp_path: Path, given: str) -> None:
    script = (
        "from transformers import AutoModelForCausalLM, TorchAoConfig, Trainer, TrainingArguments\n"
        "config = TorchAoConfig(Int8WeightOnlyConfig())\n"
        f'model = AutoModelForCausalLM.from_pretrained("m", quantization_config={given})\n'
        'Trainer(model=model, args=TrainingArguments("o"), train_dataset=ds).train()\n'
    )
    documents = read(tmp_path, script)
    assert facts(documents)["model.quantization"] == "torchao"
    assert not any(document.skipped for document in documents)


def test_an_argument_that_is_set_again_leaves_its_fact_open(tmp_path: Path) -> None:
    text = "a = TrainingArguments(bf16=True, gradient_checkpointing=False)\na.gradient_checkpointing = True\na.report_to = 'x'\n"
    found = read(tmp_path, text)
    assert facts(found) == {"training.mixed_precision": "bf16"}
    assert (
        unresolved(found)["training.gradient_checkpointing"] == "is set in lines 1 and 2, each time to something else"
    )


def test_a_script_that_trains_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="starts no training"):
        read(tmp_path, "print('hello')\n")
    assert read(tmp_path, "print('hello')\n", named=False) == ()


@pytest.mark.parametrize("text", ["print 'python 2'\n", "def f(:\n", "x = (" * 5000])
def test_what_is_no_python_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        read(tmp_path, text)


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    read(tmp_path, f"open({str(mark)!r}, 'w')\n__import__('os').system('touch {mark}')\nTrainer()\n")
    assert not mark.exists()


def value(text: str) -> tuple[object, str | None]:
    calls = list(Script(parse_script(text, "x.py")).calls())
    given = next(call for call in calls if call.name == "take").keywords["x"]
    return given.value, given.why


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("take(x=-1)", -1),
        ("take(x=2**4 * 3 // 2)", 24),
        ("take(x='a' 'b')", "ab"),
        ("take(x='a' + 'b')", "ab"),
        ("take(x=torch.float16)", "float16"),
        ("take(x=dict(a=1, b=[2]))", {"a": 1, "b": [2]}),
        ("take(x=int('3'))", 3),
        ("N = 3\ndef f():\n    take(x=N)", 3),
        ("def f():\n    n = 3\n    take(x=n)", 3),
        ("D = {'a': 1}\ntake(x={**D, 'b': 2})", {"a": 1, "b": 2}),
        ("n: int = 4\ntake(x=n)", 4),
        ("take(x=not True)", False),
        # assigned anew before anything asked for it
        ("n = 1\nn = 2\ntake(x=n)", 2),
        ("n: int = 1\nn: int = 2\ntake(x=n)", 2),
        ("n = 1\nif True:\n    n = 2\ntake(x=n)", 2),
        ("LARGE = False\nif LARGE:\n    n = 1\nelse:\n    n = 2\ntake(x=n)", 2),
        ("large = None\nn = 1\nif large is not None:\n    n = 2\ntake(x=n)", 1),
        ("def f():\n    n = 1\n    with a:\n        n = 2\n    take(x=n)", 2),
        ("n = 1\nn = 2\ndef f():\n    take(x=n)", 2),
    ],
)
def test_expressions_that_are_literals(text: str, expected: object) -> None:
    assert value(text) == (expected, None)


@pytest.mark.parametrize(
    "text",
    [
        "take(x=f'{a}')",
        "take(x=args.n)",
        "n = 1\nprint(n)\nn = 2\ntake(x=n)",
        "n = 1\nn = 2 if n else 3\ntake(x=n)",
        "n = 1\nif a:\n    n = 2\ntake(x=n)",
        "n = 1\ntry:\n    n = 2\nexcept ValueError:\n    pass\ntake(x=n)",
        "n = 1\nfor a in b:\n    n = 2\ntake(x=n)",
        "def f():\n    take(x=n)\nn = 1\nf()\nn = 2",
        "LARGE = False\nfor a in b:\n    if LARGE:\n        n = 1\n    else:\n        n = 2\n    LARGE = True\n    take(x=n)",
        "LARGE = False\ndef f():\n    global LARGE\n    LARGE = True\nf()\nif LARGE:\n    n = 1\nelse:\n    n = 2\ntake(x=n)",
        "n = 1\nn += 1\ntake(x=n)",
        "for n in range(3): take(x=n)",
        "def f(n):\n    take(x=n)",
        "n = 1\ndef f(n=2):\n    take(x=n)",
        "take(x=n)",
        "take(x=1 if a else 2)",
        "take(x=10**99)",
        "take(x=os.environ.get('A', '1'))",
        "d = {}\nd['a'] = 1\ntake(x=d)",
        "n = n\ntake(x=n)",
        "take(x=1/0)",
        "take(x=[f()])",
        "d = {}\nd.update(a=1)\ntake(x=d)",
        "d = {}\ndef f():\n    d['a'] = 1\ntake(x=d)",
        "if a:\n    n = 1\nelse:\n    n = 2\ntake(x=n)",
        "def f():\n    global n\n    n = 2\nn = 1\ndef g():\n    f()\n    take(x=n)",
    ],
)
def test_expressions_that_are_none(text: str) -> None:
    found, why = value(text)
    assert found is None
    assert why is not None
    assert why.endswith("which is no literal")


@settings(max_examples=60)
@given(st.text(alphabet="()[]{}=,.:'\"\n abTrainer0+*#\\", max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        read(tmp_path_factory.getbasetemp(), text, named=False)
    except InputError as error:
        assert error.hint


@pytest.mark.parametrize(
    ("made", "method", "rank"),
    [
        ("LoraConfig(r=4)", "lora", 4),
        ("AdaLoraConfig(r=4, init_r=12, total_step=9)", "adalora", 12),
        ("BOFTConfig(boft_block_size=4)", "boft", None),
        ("ShiraConfig(r=4)", "shira", 4),
    ],
)
def test_classes_of_adapters(tmp_path: Path, made: str, method: str, rank: int | None) -> None:
    text = f"from peft import *\nfrom trl import SFTConfig, SFTTrainer\nSFTTrainer('m', args=SFTConfig(), peft_config={made})\n"
    found = facts(read(tmp_path, text))
    assert (found["training.peft"], found.get("training.lora_rank")) == (method, rank)


def test_an_adapter_may_be_decomposed(tmp_path: Path) -> None:
    text = "from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\nc = LoraConfig(r=16, use_dora=True)\n"
    documents = read(tmp_path, text + 'SFTTrainer(model="m", args=SFTConfig(output_dir="o"), peft_config=c)\n')
    stated = {(entry.fact, entry.value) for document in documents for entry in document.statements}
    assert ("training.peft", "dora") in stated
    assert ("training.peft", "lora") not in stated


def test_an_adapter_that_may_be_decomposed_is_of_an_open_kind(tmp_path: Path) -> None:
    text = "from peft import LoraConfig\nfrom trl import SFTConfig, SFTTrainer\nc = LoraConfig(r=16, use_dora=ask())\n"
    documents = read(tmp_path, text + 'SFTTrainer(model="m", args=SFTConfig(output_dir="o"), peft_config=c)\n')
    known = resolve("s", rules=open_rules(()), documents=documents).roles["train"]
    assert "training.peft" not in known
    assert known["training.lora_rank"].value == 16


def test_attentions_asked_for_at_loading(tmp_path: Path) -> None:
    script = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2", output_attentions={asked})
trainer = Trainer(model=model, args=TrainingArguments(output_dir="o", per_device_train_batch_size=1), train_dataset=data)
trainer.train()
"""
    for asked in (True, False):
        found = facts(read(tmp_path, script.format(asked=asked)))
        assert found["model.output_attentions"] is asked
        assert found["run.attentions_at_loading"] is asked


def test_classes_in_a_circle_are_looked_at_once(tmp_path: Path) -> None:
    text = f"class A({', '.join(['A'] * 300)}): ...\nTrainingArguments(output_dir='o', bf16=True)\n"
    with patch.object(Objects, "_find_base", autospec=True, side_effect=Objects._find_base) as found:
        read(tmp_path, text)
    assert found.call_count < 50


@pytest.mark.parametrize("before", ["", "def f(a): return a\n"])
def test_calls_in_one_another_are_looked_at_once(tmp_path: Path, before: str) -> None:
    text = before + ("f(" * 80 + "x" + ")" * 80 + "\n") * 20 + "TrainingArguments(output_dir='o')\n"
    with patch.object(Objects, "_kind_of_call", autospec=True, side_effect=Objects._kind_of_call) as looked:
        read(tmp_path, text)
    assert looked.call_count < 5_000


@pytest.mark.parametrize(
    ("arguments", "release", "dtype", "device_map"),
    [
        ('"Qwen/Qwen3-8B"', "4.57.1", "float32", None),
        ('"Qwen/Qwen3-8B", torch_dtype="bfloat16"', "4.57.1", "bfloat16", None),
        ('"Qwen/Qwen3-8B", device_map="cuda"', "4.57.1", "float32", "cuda"),
        ('"Qwen/Qwen3-8B", quantization_config=BitsAndBytesConfig(load_in_8bit=True)', "4.57.1", "float16", None),
        ('"Qwen/Qwen3-8B", **options', "4.57.1", "unknown", "unknown"),
    ],
)
def test_what_a_loading_leaves_out_is_the_librarys_choice(
    arguments: str, release: str, dtype: str, device_map: str | None, tmp_path: Path
) -> None:
    text = (
        "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
        f"model = AutoModelForCausalLM.from_pretrained({arguments})\n"
        'Trainer(model, TrainingArguments("out")).train()\n'
    )
    packages = {"transformers": Package("transformers", release, Source("requirements.txt"))}
    environment = Environment("requirements.txt", packages, complete=False)
    subject = resolve("x", rules=open_rules(), environment=environment, documents=read(tmp_path, text))
    stated = subject.roles["train"]
    found = [stated[name].value if name in stated else "unknown" for name in ("model.load_dtype", "model.device_map")]
    assert found == [dtype, device_map]


PLAIN = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from lib import prepare, OwnForCausalLM, make_config
{}
Trainer(model=model, args=TrainingArguments(output_dir="o")).train()
"""
LOADED = 'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")'


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (LOADED, True),
        (LOADED.replace("model = ", "model = prepare(") + ")", False),
        (f"{LOADED}\nprepare(model)", False),
        (f"{LOADED}\nmodel.add_adapter(make_config())", False),
        (LOADED.replace("AutoModel", "Own"), False),
        (f"{LOADED}\nother = OwnForCausalLM.from_pretrained('meta-llama/Llama-3.2-1B')", False),
        (
            f"{LOADED}\nfrom peft import get_peft_model\nif flag:\n    model = get_peft_model(model, make_config())",
            False,
        ),
    ],
)
def test_a_model_that_is_trained_as_it_is_loaded_has_no_adapters(tmp_path: Path, model: str, *, told: bool) -> None:
    found = facts(read(tmp_path, PLAIN.format(model)))
    assert ("training.peft" in found) is told
    assert found.get("training.peft") is None


TAUGHT = """
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import GKDConfig, GKDTrainer
from peft import LoraConfig
import torch

model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-3.1-8B",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16),
)
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-32B", torch_dtype=torch.bfloat16)
peft = LoraConfig(r=16, target_modules="all-linear", exclude_modules=["out_proj"])
GKDTrainer(model=model, {}=teacher, args=GKDConfig(output_dir="o"), peft_config=peft).train()
"""


@pytest.mark.parametrize(("keyword", "told"), [("teacher_model", True), ("other", False)])
def test_a_teacher_is_not_the_model_that_trains(tmp_path: Path, keyword: str, *, told: bool) -> None:
    documents = read(tmp_path, TAUGHT.format(keyword))
    assert ("model.name" in unresolved(documents)) is not told


def test_excluded_modules_and_the_dtype_of_4_bit_products_are_read(tmp_path: Path) -> None:
    found = facts(read(tmp_path, TAUGHT.format("teacher_model")))
    assert found["training.lora_exclude_modules"] == ("out_proj",)
    assert found["model.quantized_compute_dtype"] == "bfloat16"
