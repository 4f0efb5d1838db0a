"""The reader of accelerate's configuration file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatcheck.core.document import Document
from compatcheck.frameworks.accelerate import configuration as accelerate
from tests import ROOT
from tests.cli.run_cli import run
from tests.unit.frameworks.launch_script.written_commands import documents
from tests.unit.frameworks.reading import read_file
from tests.unit.frameworks.stated_facts import facts

CONFIGS = ROOT / "fixtures/configs/accelerate"


def read(name: str) -> tuple[Document, dict[str, object]]:
    document = read_file(accelerate, str(CONFIGS / name)).documents[0]
    return document, facts(document)


def test_fsdp_without_a_version_is_fsdp_1() -> None:
    document, found = read("fsdp1.yaml")
    assert found["training.sharding"] == "fsdp"
    assert found["training.fsdp_version"] == 1
    assert found["training.fsdp_sharding_strategy"] == "hybrid_shard"
    assert found["training.fsdp_state_dict_type"] == "full_state_dict"
    assert found["hardware.world_size"] == 16
    assert found["hardware.nodes"] == 2
    assert document.unread == ()


@pytest.mark.parametrize(
    ("key", "value", "fact", "found"),
    [
        (
            "transformer_layer_cls_to_wrap",
            "LlamaDecoderLayer,Embedding",
            "wrapped_classes",
            {"LlamaDecoderLayer", "Embedding"},
        ),
        ("transformer_layer_cls_to_wrap", ["LlamaDecoderLayer"], "wrapped_classes", {"LlamaDecoderLayer"}),
        ("min_num_params", 100000000, "wrap_above", 100000000),
        ("min_num_params", 0, "wrap_above", None),
    ],
)
def test_what_fsdp_makes_units_of(tmp_path: Path, key: str, value: object, fact: str, found: object) -> None:
    written = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "fsdp_config": {f"fsdp_{key}": value},
    }
    (tmp_path / "a.json").write_text(json.dumps(written))
    stated = facts(read_file(accelerate, str(tmp_path / "a.json")).documents[0]).get(f"training.fsdp_{fact}")
    assert (set(stated) if isinstance(stated, (tuple, set, frozenset)) else stated) == found


@pytest.mark.parametrize("key", ["backend", "fp8_backend"])
def test_the_library_of_fp8_is_read(tmp_path: Path, key: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"distributed_type: FSDP\nmixed_precision: fp8\nfp8_config:\n  {key}: TE\nfsdp_config: {{}}\n")
    assert facts(read_file(accelerate, str(file)).documents[0])["training.fp8_backend"] == "te"


def test_fsdp_2_with_ulysses_ranks() -> None:
    document, found = read("fsdp2.yaml")
    assert found["training.fsdp_version"] == 2
    assert found["training.fsdp_reshard_after_forward"] is False
    assert found["training.fsdp_activation_checkpointing"] is True
    assert found["training.context_parallel"] == 4
    assert [key for key, _ in document.unread] == ["fsdp_config.fsdp_transformer_cls_names_to_wrap"]


def test_deepspeed_section() -> None:
    document, found = read("deepspeed.yaml")
    assert found["training.zero_stage"] == 3
    assert found["training.offload_optimizer"] is None
    assert found["training.offload_param"] == "cpu"
    assert found["training.zero_init"] is True
    assert "training.fsdp_version" not in found
    assert document.unread == ()


def test_a_named_deepspeed_file_becomes_a_reference() -> None:
    document, _ = read("deepspeed-file.yaml")
    assert document.references == (
        ("deepspeed", "configs/deepspeed/zero3-auto.json", "deepspeed_config.deepspeed_config_file"),
    )


def test_megatron_degrees() -> None:
    document, found = read("megatron.yaml")
    assert found["training.sharding"] == "megatron"
    assert found["training.tensor_parallel"] == 4
    assert found["training.pipeline_parallel"] == 2
    assert document.unread == ()


@pytest.mark.parametrize(("value", "name"), [(1, "full_shard"), ("2", "shard_grad_op"), ("NO_SHARD", "no_shard")])
def test_strategies_by_number_and_by_name(tmp_path: Path, value: object, name: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(
        json.dumps(
            {"distributed_type": "FSDP", "mixed_precision": "no", "fsdp_config": {"fsdp_sharding_strategy": value}}
        )
    )
    found = {statement.fact: statement.value for statement in read_file(accelerate, str(file)).documents[0].statements}
    assert found["training.fsdp_sharding_strategy"] == name


@pytest.mark.parametrize(
    ("given", "compiled"),
    [
        ({"dynamo_config": {"dynamo_backend": "INDUCTOR"}}, True),
        ({"dynamo_backend": "INDUCTOR"}, True),
        ({"dynamo_backend": "NO"}, None),
        ({}, None),
    ],
)
def test_a_dynamo_backend_compiles_whatever_the_trainer_says(
    tmp_path: Path, given: dict[str, object], compiled: object
) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text(json.dumps({"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", **given}))
    document = read_file(accelerate, str(path)).documents[0]
    assert facts(document).get("training.compile") is compiled
    assert document.unread == ()


@pytest.mark.parametrize(("replicate", "context", "ranks"), [(2, 1, 4), (2, 2, 8), (1, 2, None)])
def test_a_shard_beside_replicas_is_of_ranks_that_split_a_sequence_too(
    tmp_path: Path, replicate: int, context: int, ranks: int | None
) -> None:
    sizes = {"dp_replicate": replicate, "dp_shard": 4, "cp": context}
    written = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "parallelism_config": {f"parallelism_config_{name}_size": size for name, size in sizes.items()},
    }
    (tmp_path / "a.json").write_text(json.dumps(written))
    assert facts(read_file(accelerate, str(tmp_path / "a.json")).documents[0]).get("training.hsdp_shard_size") == ranks


def test_replicas_on_the_command_line() -> None:
    sizes = (
        "--parallelism_config_dp_replicate_size 2 --parallelism_config_dp_shard_size 4 --parallelism_config_cp_size 2"
    )
    found = [
        facts(document) for document in documents(f"accelerate launch --use_fsdp --fsdp_version 2 {sizes} train.py")
    ]
    assert [stated["training.hsdp_shard_size"] for stated in found if "training.hsdp_shard_size" in stated] == [8]


def test_sections_of_the_wrong_type_do_not_break_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    data = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": ["FSDP"],
        "deepspeed_config": [],
        "fsdp_config": 5,
        "parallelism_config": 3,
    }
    file.write_text(json.dumps(data))
    assert read_file(accelerate, str(file)).documents[0].reader == "accelerate"


def test_what_accelerate_refuses_beside_a_deepspeed_file_is_not_proposed(tmp_path: Path) -> None:
    path = tmp_path / "acc.json"
    section = {"zero3_init_flag": True}
    for file, proposed in (({}, True), ({"deepspeed_config_file": "ds.json"}, False)):
        stated = {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": "DEEPSPEED",
            "deepspeed_config": {**section, **file},
        }
        path.write_text(json.dumps(stated))
        (document,) = read_file(accelerate, str(path)).documents
        assert ("deepspeed_config.offload_optimizer_device" in document.table) is proposed


@pytest.mark.parametrize(
    ("kind", "section", "more", "command", "refused"),
    [
        ("DEEPSPEED", {"zero_stage": 3, "zero3_init_flag": True}, {}, "", ("deepspeed_config.zero_stage",)),
        ("DEEPSPEED", {"offload_optimizer_device": "none"}, {}, "", ("deepspeed_config.offload_optimizer_device",)),
        ("DEEPSPEED", {}, {"mixed_precision": "bf16"}, "", ("mixed_precision",)),
        ("DEEPSPEED", {}, {"mixed_precision": "bf16"}, "--mixed_precision bf16 ", ()),
        ("DEEPSPEED", {"zero_stage": 3}, {}, "--zero_stage 3 ", ("deepspeed_config.zero_stage",)),
        ("DEEPSPEED", {"zero3_init_flag": True}, {"mixed_precision": None}, "", ()),
        ("MULTI_GPU", {"zero_stage": 3}, {}, "", ()),
    ],
)
def test_a_run_with_keys_that_accelerate_refuses_beside_a_deepspeed_file_cannot_start(  # noqa: PLR0917 (a row)
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    section: dict[str, object],
    more: dict[str, object],
    command: str,
    refused: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    stated: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_processes": 8,
        **more,
    }
    stated["deepspeed_config"] = {**section, "deepspeed_config_file": "ds.json"}
    Path("acc.json").write_text(json.dumps(stated))
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": "auto"}')
    Path("run.sh").write_text(
        f"accelerate launch --config_file acc.json {command}trl/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B "
        "--bf16 --gradient_accumulation_steps 8 --output_dir o\n"
    )
    Path("requirements.txt").write_text("trl==0.19.0\ntransformers==4.52.4\naccelerate==1.7.0\ndeepspeed==0.16.9\n")
    report = json.loads(run("check", ".", "--no-policy", "--format", "json").out)
    stated_facts = {fact["name"]: fact["value"] for fact in report["subjects"][0]["facts"]}
    assert tuple(stated_facts["configuration.refused"]) == refused
    failing = {one["rule_id"] for one in report["findings"] if one["status"] == "affected"}
    assert ("_stack/deepspeed-file-contradicts-trainer" in failing) is bool(refused)


_STEPS, _CLIPPING, _PRECISION = (
    "training.gradient_accumulation_steps",
    "training.gradient_clipping",
    "training.mixed_precision",
)


@pytest.mark.parametrize(
    ("kind", "section", "launcher", "arguments", "refused"),
    [
        ("DEEPSPEED", {"gradient_accumulation_steps": 1}, "", "--bf16 --gradient_accumulation_steps 16", (_STEPS,)),
        ("DEEPSPEED", {"gradient_accumulation_steps": 4}, "", "--bf16", (_STEPS,)),
        ("DEEPSPEED", {"gradient_accumulation_steps": 1}, "", "--bf16", ()),
        ("DEEPSPEED", {"gradient_accumulation_steps": "auto"}, "", "--bf16 --gradient_accumulation_steps 16", ()),
        ("DEEPSPEED", {}, "--gradient_accumulation_steps 2 ", "--bf16 --gradient_accumulation_steps 16", (_STEPS,)),
        (
            "DEEPSPEED",
            {"gradient_accumulation_steps": 2},
            "--gradient_accumulation_steps 16 ",
            "--bf16 --gradient_accumulation_steps 16",
            (),
        ),
        ("MULTI_GPU", {"gradient_accumulation_steps": 1}, "", "--bf16 --gradient_accumulation_steps 16", ()),
        ("DEEPSPEED", {"gradient_clipping": 0.5}, "", "--bf16", (_CLIPPING,)),
        ("DEEPSPEED", {"gradient_clipping": 0.5}, "", "--bf16 --max_grad_norm 0.5", ()),
        ("DEEPSPEED", {"gradient_clipping": 0.0}, "", "--bf16", ()),  # none is handed on
        ("DEEPSPEED", {"gradient_clipping": "auto"}, "", "--bf16 --max_grad_norm 0.3", ()),
        ("DEEPSPEED", {}, "", "", (_PRECISION,)),
        ("DEEPSPEED", {}, "", "--bf16 false", (_PRECISION,)),
        ("DEEPSPEED", {}, "--mixed_precision no ", "", ()),
        ("DEEPSPEED", {}, "", "--fp16", ()),  # 16 bits of the Trainer replace the file's
        ("DEEPSPEED", {}, "--mixed_precision no ", "--bf16", ()),
        ("MULTI_GPU", {}, "", "", ()),
    ],
)
def test_the_trainer_compares_itself_with_the_section_of_accelerate_as_with_a_deepspeed_file(  # noqa: PLR0917 (a row)
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    section: dict[str, object],
    launcher: str,
    arguments: str,
    refused: tuple[str, ...],
) -> None:
    # run with accelerate 1.10.1 and transformers 4.56.2: DeepSpeedPlugin(), set_mixed_precision(), trainer_config_finalize()
    monkeypatch.chdir(tmp_path)
    file = {"distributed_type": kind, "mixed_precision": "bf16", "num_processes": 8}
    file |= {"compute_environment": "LOCAL_MACHINE", "deepspeed_config": {"zero_stage": 2, **section}}
    Path("acc.json").write_text(json.dumps(file))
    Path("train.py").write_text(
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
        "Trainer(model=model, args=args).train()\n"
    )
    Path("run.sh").write_text(
        f"accelerate launch --config_file acc.json {launcher}train.py --output_dir o {arguments}\n"
    )
    Path("requirements.txt").write_text("transformers==4.56.2\naccelerate==1.10.1\ndeepspeed==0.17.6\n")
    report = json.loads(run("check", ".", "--no-policy", "--format", "json").out)
    stated = {fact["name"]: fact["value"] for fact in report["subjects"][0]["facts"]}
    assert tuple(stated["configuration.refused"]) == refused
    failing = {one["rule_id"] for one in report["findings"] if one["status"] == "affected"}
    assert ("_stack/deepspeed-file-contradicts-trainer" in failing) is bool(refused)


@pytest.mark.parametrize(("arguments", "refused"), [(" --deepspeed ds.json", True), ("", False)])
def test_accelerate_refuses_its_own_keys_beside_a_deepspeed_file_of_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, *, refused: bool
) -> None:
    # run with accelerate 1.10.1 and transformers 4.56.2: DeepSpeedPlugin(hf_ds_config=HfTrainerDeepSpeedConfig(…))
    monkeypatch.chdir(tmp_path)
    file = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 8}
    Path("acc.json").write_text(json.dumps({**file, "deepspeed_config": {"zero_stage": 2}}))
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}')
    Path("run.sh").write_text(
        "accelerate launch --config_file acc.json trl/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B "
        f"--bf16 --gradient_accumulation_steps 8 --output_dir o{arguments}\n"
    )
    Path("requirements.txt").write_text("trl==0.19.0\ntransformers==4.52.4\naccelerate==1.7.0\ndeepspeed==0.16.9\n")
    report = json.loads(run("check", ".", "--no-policy", "--format", "json").out)
    stated = {fact["name"]: fact["value"] for fact in report["subjects"][0]["facts"]}
    assert tuple(stated["configuration.refused"]) == (("deepspeed_config.zero_stage",) if refused else ())


def test_a_loop_of_ones_own_accumulates_as_the_section_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = {"zero_stage": 2, "gradient_accumulation_steps": 4}
    file = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "deepspeed_config": section}
    Path("acc.json").write_text(json.dumps({**file, "num_processes": 8}))
    Path("train.py").write_text(
        "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n"
        "accelerator = Accelerator(gradient_accumulation_steps=16)\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
        "for batch in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(**batch).loss)\n"
        "        optimizer.step()\n"
    )
    Path("run.sh").write_text("accelerate launch --config_file acc.json train.py\n")
    report = json.loads(run("check", ".", "--no-policy", "--format", "json").out)
    stated = {fact["name"]: fact["value"] for fact in report["subjects"][0]["facts"]}
    assert stated[_STEPS] == 4, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS wins"
    assert tuple(stated["configuration.conflicts"]) == (_STEPS,)
    assert tuple(stated["configuration.refused"]) == ()
