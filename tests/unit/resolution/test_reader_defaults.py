"""Which program's defaults a file gets."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.document import Document, Statement
from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Facts
from compatcheck.core.source import Source
from compatcheck.frameworks.accelerate import configuration as accelerate
from compatcheck.frameworks.llamafactory import configuration as llama_factory
from compatcheck.frameworks.model import configuration as model
from compatcheck.frameworks.ms_swift import configuration as ms_swift
from compatcheck.frameworks.native import configuration as native
from compatcheck.frameworks.trl import configuration as trl
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import LINE
from tests.unit.frameworks.launch_script.written_commands import documents as written
from tests.unit.frameworks.reading import read_file, read_trainer_arguments


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules(())


def facts_of(rules: RuleSet, documents: list[Document], **versions: str) -> Facts:
    packages = {name: Package(name, version, Source("requirements.txt")) for name, version in versions.items()}
    environment = Environment(origin="requirements.txt", packages=packages, complete=False)
    return resolve("x", rules=rules, environment=environment, documents=documents).roles["train"]


STEPS, PRECISION = "training.gradient_accumulation_steps", "training.mixed_precision"

SHORT: dict[str, Any] = {
    "model_name_or_path": "somewhere/else",
    "dataset_name": "mine",
    "learning_rate": 1e-4,
    "lr_scheduler_type": "cosine",
}


def test_a_file_that_trl_or_a_script_may_read_has_no_default_that_trl_changes(rules: RuleSet) -> None:
    documents = list(read_trainer_arguments(SHORT, "config.yaml"))
    facts = facts_of(rules, documents, trl="1.8.0", transformers="4.56.2", torch="2.8.0")
    assert "training.gradient_checkpointing" not in facts
    assert facts["training.eval_batch_size"].value == 8


def test_without_trl_it_is_the_trainers(rules: RuleSet) -> None:
    documents = list(read_trainer_arguments(SHORT, "config.yaml"))
    facts = facts_of(rules, documents, transformers="4.56.2", torch="2.8.0")
    assert facts["training.gradient_checkpointing"].value is False


def test_the_reference_of_a_script_that_loads_its_policy_takes_no_dtype_of_it(rules: RuleSet) -> None:
    line = "trl dpo --model_name_or_path gpt2 --dtype bfloat16 --precompute_ref_log_probs true\n"
    facts = facts_of(rules, written(line), trl="1.1.0")
    assert facts["model.load_dtype"].value == "bfloat16"
    assert facts["training.reference_load_dtype"].value == "float32"
    assert "training.reference_load_dtype" not in facts_of(rules, written(line), trl="0.28.0")


def test_trl_file_that_names_a_model_has_no_adapter_by_default(rules: RuleSet) -> None:
    documents = list(read_trainer_arguments({**SHORT, "packing": True}, "config.yaml"))
    facts = facts_of(rules, documents, trl="1.8.0", transformers="4.56.2")
    assert facts["training.peft"].value is None
    assert "model.quantization" not in facts


@pytest.mark.parametrize(("transformers", "dtype"), [("4.57.1", None), ("5.0.0", "bfloat16")])
def test_a_model_is_loaded_as_stored_only_from_transformers_5(
    rules: RuleSet, transformers: str, dtype: str | None
) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "vocab_size": 100, "torch_dtype": "bfloat16"}
    documents = [*read_trainer_arguments(SHORT, "config.yaml"), model.read(config, "config.json").documents[0]]
    facts = facts_of(rules, documents, transformers=transformers)
    assert facts["model.stored_dtype"].value == "bfloat16"
    assert (facts["model.load_dtype"].value if "model.load_dtype" in facts else None) == dtype


def test_how_a_model_is_loaded_is_open_where_no_release_of_transformers_is_known(rules: RuleSet) -> None:
    documents = list(read_trainer_arguments(SHORT, "config.yaml"))
    assert "model.load_dtype" not in facts_of(rules, [*documents, stored("bfloat16")])


@pytest.mark.parametrize(
    ("releases", "written", "dtype"),
    [
        ({"trl": "1.8.0", "transformers": "5.0.0"}, {}, "float32"),
        ({"trl": "0.26.2", "transformers": "4.57.1"}, {}, "float32"),
        ({"trl": "0.26.2", "transformers": "4.57.1"}, {"load_in_4bit": True}, "float16"),
        ({"trl": "0.26.2", "transformers": "5.0.0"}, {}, "bfloat16"),
        ({"transformers": "5.0.0"}, {}, None),
        ({"trl": "1.8.0"}, {"dtype": "bfloat16"}, "bfloat16"),
    ],
)
def test_trl_loads_a_model_it_is_given_by_name_in_float32(
    rules: RuleSet, releases: dict[str, str], written: dict[str, str], dtype: str | None
) -> None:
    documents = list(read_trainer_arguments({**SHORT, **written, "packing": True}, "config.yaml"))
    facts = facts_of(rules, [*documents, stored("bfloat16")], **releases)
    assert (facts["model.load_dtype"].value if "model.load_dtype" in facts else None) == dtype


@pytest.mark.parametrize("kind", ["MULTI_GPU", "DEEPSPEED"])
def test_fsdp_has_no_version_where_something_else_shards(rules: RuleSet, kind: str, tmp_path: Any) -> None:
    file = tmp_path / "accelerate.yaml"
    file.write_text(
        f"distributed_type: {kind}\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config: {{}}\n"
        + ("deepspeed_config: {zero_stage: 3}\n" if kind == "DEEPSPEED" else "")
    )
    facts = facts_of(rules, [read_file(accelerate, str(file)).documents[0]], accelerate="1.10.0", transformers="4.56.2")
    assert facts["training.fsdp_version"].value is None
    assert "training.fsdp_sharding_strategy" not in facts


LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "vocab_size": 100}


@pytest.mark.parametrize(
    ("model_type", "transformers", "torch", "attention"),
    [
        ("llama", "4.35.2", None, "eager"),
        ("llama", "4.36.0", "2.1.0", "eager"),
        ("llama", "4.36.0", "2.1.1", "sdpa"),
        ("llama", "4.55.4", None, None),
        ("llama", "4.56.0", None, "sdpa"),
        ("llama", "5.23.0", "2.13.0", "sdpa"),
        ("mixtral", "4.36.2", "2.2.0", "eager"),
        ("mixtral", "4.37.0", "2.2.0", "sdpa"),
        ("gpt_oss", "5.0.0", None, "eager"),
        ("falcon", "4.35.2", None, "sdpa"),
        ("mamba", "5.0.0", None, None),
        ("qwen2_vl", "4.57.1", "2.8.0", "sdpa"),
        ("qwen2_vl", "4.44.2", "2.8.0", "eager"),
        ("glm4v", "4.57.1", "2.8.0", None),
    ],
)
def test_attention_left_open_is_what_the_release_of_transformers_takes(
    rules: RuleSet, model_type: str, transformers: str, torch: str | None, attention: str | None
) -> None:
    document = model.read({**LLAMA, "model_type": model_type}, "config.json").documents[0]
    versions = {"transformers": transformers} | ({} if torch is None else {"torch": torch})
    facts = facts_of(rules, [document], **versions)
    found = facts.get("model.attn_implementation")
    assert (None if found is None else found.value) == attention
    if found is not None:
        assert found.origin == "library-default"
        assert f"default of transformers (transformers {transformers}" in str(found.sources[0])


def test_attention_is_open_without_a_model_or_a_release(rules: RuleSet) -> None:
    documents = list(read_trainer_arguments(SHORT, "config.yaml"))
    assert "model.attn_implementation" not in facts_of(rules, documents, transformers="4.57.1", torch="2.8.0")
    assert "model.attn_implementation" not in facts_of(
        rules, [model.read(LLAMA, "config.json").documents[0]], torch="2.8.0"
    )


@pytest.mark.parametrize(
    "said",
    [{"attn_implementation": "someone/attention"}, {"model_init_kwargs": {"attn_implementation": "paged"}}],
)
def test_attention_that_is_said_in_words_not_known_is_open(rules: RuleSet, said: dict[str, Any]) -> None:
    documents = [
        *read_trainer_arguments({**SHORT, **said}, "config.yaml"),
        model.read(LLAMA, "config.json").documents[0],
    ]
    assert "model.attn_implementation" not in facts_of(rules, documents, transformers="4.57.1", torch="2.8.0")


@pytest.mark.parametrize("framework", ["llamafactory", "ms_swift", "axolotl"])
def test_attention_left_out_is_that_of_transformers(rules: RuleSet, framework: str) -> None:
    stated, _ = native.read_sections({"training": {"framework": framework}}, "facts.yaml")
    documents = [stated, model.read(LLAMA, "config.json").documents[0]]
    assert facts_of(rules, documents, transformers="4.57.1", torch="2.8.0")["model.attn_implementation"].value == "sdpa"


@pytest.mark.parametrize("framework", ["torchtune", "megatron"])
def test_attention_is_open_where_a_program_chooses_it(rules: RuleSet, framework: str) -> None:
    stated, _ = native.read_sections({"training": {"framework": framework}}, "facts.yaml")
    documents = [stated, model.read(LLAMA, "config.json").documents[0]]
    assert "model.attn_implementation" not in facts_of(rules, documents, transformers="4.57.1", torch="2.8.0")


FACTORY: dict[str, Any] = {
    "model_name_or_path": "m",
    "stage": "sft",
    "template": "qwen",
    "do_train": True,
    "bf16": True,
}


def swift_facts(rules: RuleSet, release: str, *more: Document, **keys: Any) -> Facts:
    data = {"model": "m", "dataset": "mine", "split_dataset_ratio": 0, **keys}
    documents = ms_swift.read(data, "sft.yaml").documents
    return facts_of(
        rules, [*documents, *more], **{"ms-swift": release, "transformers": "4.57.1", "deepspeed": "0.17.6"}
    )


def stored(dtype: str) -> Document:
    return Document("model", Source("config.json"), (Statement("model.stored_dtype", "torch_dtype", dtype),))


def test_llamafactory_defaults_come_before_the_trainers(rules: RuleSet) -> None:
    documents = list(llama_factory.read({**FACTORY, "finetuning_type": "full"}, "train.yaml").documents)
    facts = facts_of(rules, documents, llamafactory="0.9.4", transformers="4.57.1")
    assert facts["training.framework"].value == "llamafactory"
    assert facts["training.gradient_checkpointing"].value is True
    assert facts["training.sequence_length"].value == 2048
    assert facts["training.packing"].value is False
    assert facts["training.micro_batch_size"].value == 8
    assert "training.peft" in facts
    assert facts["training.peft"].value is None


@pytest.mark.parametrize(
    ("kind", "release", "sharding", "dtype"),
    [
        ("full", "0.9.4", "fsdp", "float32"),
        ("full", "0.9.2", "fsdp", None),
        ("full", "0.9.2", "ddp", "float32"),
        ("lora", "0.9.4", "ddp", "bfloat16"),
        ("full", "0.9.4", "zero", "bfloat16"),
    ],
)
def test_llamafactory_casts_what_it_trains_to_float32(
    rules: RuleSet, kind: str, release: str, sharding: str, dtype: str | None
) -> None:
    (document,) = llama_factory.read({**FACTORY, "finetuning_type": kind}, "train.yaml").documents
    given = [Statement("training.sharding", "sharding", sharding)]
    if sharding == "zero":
        given.append(Statement("training.zero_stage", "stage", 3))
    extra = Document("native", Source("facts.yaml"), tuple(given))
    facts = facts_of(rules, [document, extra, stored("bfloat16")], llamafactory=release, transformers="4.57.1")
    fact = facts.get("model.load_dtype")
    assert (fact.value if fact else None) == dtype


def test_llamafactory_under_fsdp2_is_not_reentrant_even_when_told_so(rules: RuleSet) -> None:
    (document,) = llama_factory.read({**FACTORY, "use_reentrant_gc": True}, "train.yaml").documents
    given = (Statement("training.sharding", "a", "fsdp"), Statement("training.fsdp_version", "b", 2))
    extra = Document("accelerate", Source("fsdp.yaml"), given)
    facts = facts_of(rules, [document, extra], llamafactory="0.9.4", transformers="4.57.1")
    assert facts["training.use_reentrant"].value is False


@pytest.mark.parametrize(
    ("release", "told", "reentrant"),
    [("0.9.5", None, True), ("0.9.5", False, False), ("0.9.6.dev0", True, False), (None, None, None)],
)
def test_llamafactory_with_ktransformers_is_not_reentrant_after_its_releases(
    rules: RuleSet, release: str | None, told: object, reentrant: object
) -> None:
    keys = {**FACTORY, "use_kt": True} | ({} if told is None else {"use_reentrant_gc": told})
    versions = {} if release is None else {"llamafactory": release}
    extra = Document("native", Source("facts.yaml"), (Statement("training.sharding", "a", "none"),))
    facts = facts_of(rules, [*llama_factory.read(keys, "train.yaml").documents, extra], **versions)
    fact = facts.get("training.use_reentrant")
    assert (None if fact is None else fact.value) is reentrant
    assert facts["training.unpriced"].value == ("experts_on_host",)


@pytest.mark.parametrize(("loss", "resident"), [("sigmoid", True), ("orpo", False)])
def test_llamafactory_keeps_a_reference_model_for_full_preference_training(
    rules: RuleSet, loss: str, resident: object
) -> None:
    keys = {**FACTORY, "stage": "dpo", "finetuning_type": "full", "pref_loss": loss}
    facts = facts_of(rules, list(llama_factory.read(keys, "train.yaml").documents), llamafactory="0.9.4")
    assert facts["training.reference_model"].value is resident


@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp16")])
def test_ms_swift_takes_the_precision_from_the_model(rules: RuleSet, dtype: str, precision: str) -> None:
    assert swift_facts(rules, "4.5.2", stored(dtype))["training.mixed_precision"].value == precision


def test_ms_swift_leaves_the_precision_open_without_the_model(rules: RuleSet) -> None:
    assert "training.mixed_precision" not in swift_facts(rules, "4.5.2")


@pytest.mark.parametrize(
    ("keys", "loss"),
    [
        ({}, "fused_linear"),
        ({"sequence_parallel_size": 4}, "cross_entropy"),
        ({"enable_dft_loss": True}, "cross_entropy"),
        ({"enable_channel_loss": True}, "cross_entropy"),
        ({"label_smoothing_factor": 0.1}, "smoothed"),
        ({"label_smoothing_factor": 0}, "fused_linear"),
    ],
)
def test_ms_swift_takes_labels_from_the_model_for_losses_of_its_own(
    rules: RuleSet, keys: dict[str, Any], loss: str
) -> None:
    facts = swift_facts(rules, "4.5.2", use_liger_kernel=True, **keys)
    assert facts["training.loss_implementation"].value == loss


@pytest.mark.parametrize(
    ("release", "name", "overlaps"), [("3.2.1", "zero3", True), ("3.2.2", "zero3", False), ("4.5.2", "zero2", False)]
)
def test_ms_swift_built_in_files_by_release(rules: RuleSet, release: str, name: str, overlaps: object) -> None:
    facts = swift_facts(rules, release, deepspeed=name)
    assert facts["training.overlap_comm"].value is overlaps
    assert facts["training.offload_optimizer"].value is None


@pytest.mark.parametrize(
    ("release", "sharding", "reentrant"), [("3.5.3", "ddp", True), ("3.6.0", "ddp", False), ("4.5.2", "fsdp", True)]
)
def test_ms_swift_checkpointing_by_release(rules: RuleSet, release: str, sharding: str, reentrant: object) -> None:
    extra = Document("native", Source("facts.yaml"), (Statement("training.sharding", "a", sharding),))
    facts = swift_facts(rules, release, extra)
    assert facts["training.gradient_checkpointing"].value is True
    assert facts["training.use_reentrant"].value is reentrant


@pytest.mark.parametrize(("kind", "steps"), [(None, 2), ("grpo", 1)])
def test_ms_swift_accumulates_to_sixteen_sequences(rules: RuleSet, kind: str | None, steps: int) -> None:
    extra = Document("native", Source("facts.yaml"), (Statement("hardware.world_size", "a", 8),))
    facts = swift_facts(rules, "4.5.2", extra, **({} if kind is None else {"rlhf_type": kind}))
    assert facts["training.micro_batch_size"].value == 1
    assert facts["training.gradient_accumulation_steps"].value == steps


def test_one_stated_fact_brings_no_defaults_of_another_program() -> None:
    package = Package("deepspeed", "0.18.4", Source("requirements.txt"))
    stack = Environment("requirements.txt", {"deepspeed": package}, complete=False)
    stated = {"training.zero_stage": (3, Source("--set"))}
    named = {**stated, "training.framework": ("deepspeed", Source("--set"))}
    alone, of_program = (
        resolve("s", rules=open_rules(()), environment=stack, settings=settings).roles["train"]
        for settings in (stated, named)
    )
    assert "training.mixed_precision" not in alone
    assert "training.param_dtype" not in alone
    assert of_program["training.mixed_precision"].origin == "library-default"


def test_a_default_that_rests_on_written_keys_names_their_lines(rules: RuleSet) -> None:
    words = "actor_rollout_ref.actor.use_kl_loss=False algorithm.use_kl_in_reward=False"
    (document,) = written(f"python3 -m verl.trainer.main_ppo {words}")
    packages = {"verl": Package("verl", "0.6.1", Source("r.txt"))}
    environment = Environment(origin="r.txt", packages=packages, complete=False)
    subject = resolve("x", rules=rules, environment=environment, documents=[document])
    fact = subject.roles["actor"]["training.reference_model"]
    assert (fact.value, fact.origin) == (False, "reader-default")
    assert [source.key for source in fact.sources] == [
        "actor_rollout_ref.actor.use_kl_loss",
        "algorithm.use_kl_in_reward",
        None,
    ]
    assert fact.sources[0].line == LINE


@pytest.mark.parametrize(
    ("framework", "trainer", "known"),
    [
        ("trl", "sft", {"code": "trl", "drops_outputs": True, "takes_default_reentrant": True, "use_cache": False}),
        ("axolotl", "sft", {"code": "axolotl", "takes_default_optimizer": False, "collects_predictions": False}),
        ("axolotl", "dpo", {"code": "trl", "passes_labels": False, "computes_loss": "program"}),
        ("axolotl", "reward", {"code": "trl", "runs_trl_trainers": True}),
        ("ms_swift", "sft", {"code": "ms_swift", "skips_unlabelled_logits": True, "passes_labels": True}),
        ("openrlhf", "sft", {"runs_transformers": True, "passes_labels": False, "drops_outputs": False}),
        ("verl", "grpo", {"code": "verl", "passes_max_num_seqs": True, "batches_count_prompts": False}),
        ("verl", "sft", {"code": "verl-sft"}),
        ("search-r1", "ppo", {"code": "verl", "batches_count_prompts": True, "asks_retriever": True}),
        ("torchtune", "sft", {"code": "torchtune", "runs_transformers": False, "asks_retriever": False}),
        ("custom", "sft", {"code": "custom", "runs_transformers": None, "collects_predictions": False}),
    ],
)
def test_what_the_code_of_a_program_does(rules: RuleSet, framework: str, trainer: str, known: dict[str, Any]) -> None:
    training = {"framework": framework, "trainer": trainer, "gradient_checkpointing": True}
    document, _ = native.read_sections({"training": training}, "facts.yaml")
    facts = facts_of(rules, [document], trl="0.16.1", transformers="4.51.3", verl="0.6.1", **{"ms-swift": "3.5.0"})
    for name, value in known.items():
        fact = facts.get(f"program.{name}")
        assert (None if fact is None else fact.value) == value, name


@pytest.mark.parametrize(
    ("trainer", "release", "engine", "peft", "merges"),
    [
        ("grpo", "0.15.0", "vllm", "lora", True),
        ("grpo", "0.14.0", "vllm", "lora", None),
        ("grpo", "0.15.0", "hf", "lora", None),
        ("grpo", "0.15.0", "vllm", None, None),
        ("rloo", "0.22.0", "vllm", "lora", True),
        ("online_dpo", "0.23.0", "vllm", "lora", True),
        ("sft", "0.23.0", "vllm", "lora", None),
    ],
)
def test_trl_merges_adapters_for_the_engine(
    rules: RuleSet, trainer: str, release: str, engine: str, peft: str | None, merges: object
) -> None:
    training = {"framework": "trl", "trainer": trainer, "peft": peft}
    document, _ = native.read_sections({"training": training, "rollout": {"engine": engine}}, "facts.yaml")
    fact = facts_of(rules, [document], trl=release).get("run.merges_adapter")
    assert (None if fact is None else fact.value) is merges


@pytest.mark.parametrize(
    ("framework", "trainer", "trl_release", "at_once"),
    [
        ("trl", "grpo", "0.16.1", "micro_batch"),
        ("trl", "grpo", "0.17.0", "step"),
        ("trl", "grpo", "0.18.0", "step"),
        ("axolotl", "grpo", "0.18.0", "step"),
        ("trl", "rloo", "0.9.2", "micro_batch"),
        ("trl", "rloo", "0.21.0", "step_by_rows"),
        ("trl", "rloo", "0.22.0", "step"),
        ("trl", "ppo", "0.11.4", "micro_batch"),
        ("trl", "ppo", "0.12.0", "step_by_rows"),
        ("trl", "online_dpo", "0.16.1", "pairs"),
        ("verl", "grpo", "0.16.1", "share"),
        ("tinyzero", "ppo", "0.16.1", "share"),
        ("llamafactory", "ppo", "0.16.1", "micro_batch"),
    ],
)
def test_what_one_call_of_generate_takes(
    rules: RuleSet, framework: str, trainer: str, trl_release: str, at_once: str
) -> None:
    document, _ = native.read_sections({"training": {"framework": framework, "trainer": trainer}}, "facts.yaml")
    facts = facts_of(rules, [document], trl=trl_release, transformers="4.51.3", verl="0.6.1")
    assert facts["program.generates_at_once"].value == at_once


def test_an_engine_alone_does_what_no_program_adds(rules: RuleSet) -> None:
    served = Document("vllm", Source("serve.sh"), (Statement("rollout.engine", "(program)", "vllm"),), is_command=True)
    facts = facts_of(rules, [served], vllm="0.8.3")
    assert facts["program.passes_max_num_seqs"].value is False
    assert "program.code" not in facts


def test_liger_leaves_the_loss_to_a_program_that_computes_it_itself(rules: RuleSet) -> None:
    text = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B --zero_stage 3 --use_liger_kernel\n"
    assert facts_of(rules, written(text), openrlhf="0.6.4")["training.loss_implementation"].value == "cross_entropy"


@pytest.mark.parametrize(
    ("trl", "trainer", "key", "loss"),
    [
        ("0.22.2", "dpo", "use_liger_kernel", "cross_entropy"),
        ("0.22.2", "grpo", "use_liger_kernel", "cross_entropy"),
        ("0.22.2", "kto", "use_liger_loss", "fused_linear"),
        ("0.25.0", "dpo", "use_liger_kernel", "fused_linear"),
        ("1.0.0", "rloo", "use_liger_kernel", "cross_entropy"),
        ("0.22.2", "rloo", "use_liger_loss", "cross_entropy"),
    ],
)
def test_a_model_that_liger_patches_gives_logits_to_a_loss_outside(
    rules: RuleSet, trl: str, trainer: str, key: str, loss: str
) -> None:
    facts = facts_of(rules, written(f"trl {trainer} --model_name_or_path gpt2 --{key} true\n"), trl=trl)
    assert facts["training.loss_implementation"].value == loss


@pytest.mark.parametrize(
    ("keys", "alone"),
    [
        ("--use_liger_loss true", True),
        ("--use_liger_kernel true", False),
        ("--use_liger_loss true --use_liger_kernel true", None),
    ],
)
def test_ligers_loss_alone_patches_nothing(rules: RuleSet, keys: str, alone: object) -> None:
    command = written(f"trl dpo --model_name_or_path gpt2 {keys}\n")
    fact = facts_of(rules, command, trl="0.18.0", transformers="4.52.4").get("run.liger_loss_alone")
    assert (fact.value if fact is not None else None) is alone


@pytest.mark.parametrize(
    ("launch", "stated"),
    [
        ("--config_file acc.yaml ./mine/run_all --x 1", {}),
        ("--use_deepspeed --zero_stage 3 ./mine/run_all --x 1", {}),
        ("--use_deepspeed --zero_stage 3 --gradient_accumulation_steps 4 ./mine/run_all --x 1", {STEPS: 4}),
        (
            "--use_deepspeed --zero_stage 3 t.py --bf16 True --per_device_train_batch_size 2",
            {STEPS: 1, PRECISION: "bf16"},
        ),
    ],
)
def test_what_a_script_gives_accelerate_is_no_default_of_deepspeed(
    rules: RuleSet, launch: str, stated: dict[str, object]
) -> None:
    documents = list(written(f"accelerate launch --num_processes 8 {launch}"))
    if "acc.yaml" in launch:
        section = {"zero_stage": 3, "zero3_init_flag": True}
        data = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "deepspeed_config": section}
        documents += accelerate.read(data, "acc.yaml").documents
    facts = facts_of(rules, documents, accelerate="1.10.0", deepspeed="0.17.5", transformers="4.56.0")
    assert facts["training.reduce_bucket_size"].value == 500_000_000  # what accelerate leaves to DeepSpeed
    assert {name: facts[name].value for name in (STEPS, PRECISION) if name in facts} == stated


def test_a_default_that_ended_is_none_of_an_unknown_release(rules: RuleSet) -> None:
    (document,) = written("python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.use_dynamic_bsz=True")
    subject = resolve("x", rules=rules, environment=None, documents=[document])
    assert not {"training.micro_batch_size", "training.micro_batch_is_global"} & subject.roles["actor"].keys()


@pytest.mark.parametrize(("release", "degree"), [("0.2.0.post2", 4), ("0.3.0.post1", 4), ("0.4.0", 1), ("0.8.0", 1)])
def test_degrees_that_a_megatron_script_of_verl_leaves_out(rules: RuleSet, release: str, degree: int) -> None:
    (document,) = written("python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer")
    packages = {"verl": Package("verl", release, Source("r.txt"))}
    environment = Environment(origin="r.txt", packages=packages, complete=False)
    facts = resolve("x", rules=rules, environment=environment, documents=[document]).roles["actor"]
    assert (facts["training.tensor_parallel"].value, facts["training.pipeline_parallel"].value) == (degree, 1)


@pytest.mark.parametrize(("release", "version"), [("0.3.0.post1", 1), ("0.4.0", 2), (None, None)])
def test_supervised_training_of_verl_came_to_fsdp2_with_a_release(
    rules: RuleSet, release: str | None, version: int | None
) -> None:
    documents = written("torchrun -m verl.trainer.fsdp_sft_trainer data.micro_batch_size=8")
    packages = {} if release is None else {"verl": Package("verl", release, Source("r.txt"))}
    environment = Environment(origin="r.txt", packages=packages, complete=False)
    found = resolve("x", rules=rules, environment=environment, documents=documents).roles["train"]
    assert ("training.fsdp_version" in found and found["training.fsdp_version"].value) == (version or False)


@pytest.mark.parametrize(("sequences", "tokens"), [(64, None), (None, 16384)])
def test_batches_of_a_fork_count_sequences_or_tokens(rules: RuleSet, sequences: int | None, tokens: int | None) -> None:
    dynamic = "" if tokens is None else " actor_rollout_ref.actor.use_dynamic_bsz=True"
    (document,) = written(f"python3 -m verl.trainer.main_ppo trainer.project_name=TinyZero{dynamic}")
    facts = resolve("x", rules=rules, environment=None, documents=[document]).roles["actor"]
    names = ("training.micro_batch_size", "training.micro_batch_tokens", "training.micro_batch_is_global")
    assert [facts[name].value if name in facts else None for name in names] == [sequences, tokens, tokens is None]


@pytest.mark.parametrize(("release", "limited"), [("0.25.0", False), ("0.26.0", True)])
def test_the_trainers_own_fsdp_is_the_first_and_limited_by_accelerate(
    rules: RuleSet, *, release: str, limited: bool
) -> None:
    documents = list(read_trainer_arguments({"output_dir": "o", "fsdp": "full_shard auto_wrap"}, "train.json"))
    facts = facts_of(rules, documents, transformers="4.46.0", accelerate=release)
    assert facts["training.fsdp_version"].value == 1
    assert facts["training.fsdp_limit_all_gathers"].value is limited


@pytest.mark.parametrize(("release", "share"), [("0.19.1", 0.9), ("0.20.0", 0.92)])
def test_an_engine_that_is_started_by_itself_has_defaults_too(rules: RuleSet, release: str, share: float) -> None:
    facts = facts_of(rules, written("vllm serve somewhere/else --max-num-seqs 64"), vllm=release)
    assert [facts[f"rollout.{name}"].value for name in ("enforce_eager", "sleep_mode", "tensor_parallel")] == [
        False,
        False,
        1,
    ]
    assert facts["rollout.gpu_memory_utilization"].value == share
    asked = facts_of(rules, written("vllm serve somewhere/else --enable-sleep-mode --enforce-eager"), vllm=release)
    assert asked["rollout.sleep_mode"].value is True
    assert asked["rollout.enforce_eager"].value is True


@pytest.mark.parametrize(("release", "sequences"), [("0.7.1", 1024), ("0.8.0", 1024), ("0.9.0", 256), (None, None)])
def test_what_a_development_state_says_otherwise_is_open_between_releases(
    rules: RuleSet, release: str | None, sequences: int | None
) -> None:
    (document,) = written("python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm")
    between = Package("verl", release, Source("r.txt"), None if release else ">=0.7.0,<=0.8.0")
    environment = Environment(origin="r.txt", packages={"verl": between}, complete=False)
    found = resolve("x", rules=rules, environment=environment, documents=[document]).roles["actor"]
    assert (found["rollout.max_num_seqs"].value if "rollout.max_num_seqs" in found else None) == sequences
    assert found["rollout.max_num_batched_tokens"].value == 8192


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ("0.15.2", (False, 0.9)),  # the next device
        ("0.17.0", (False, None)),  # a server
        ("0.18.0", (False, 0.3)),
        ("1.0.0", (True, 0.3)),
        (None, (None, None)),
    ],
)
def test_where_the_engine_of_trl_is_by_release(
    rules: RuleSet, release: str | None, found: tuple[bool | None, float | None]
) -> None:
    data = {**SHORT, "reward_funcs": ["accuracy"], "num_generations": 8, "max_completion_length": 64, "use_vllm": True}
    documents = [*read_trainer_arguments(data, "grpo.yaml"), *written("accelerate launch --num_processes 4 train.py")]
    facts = facts_of(rules, documents, **({} if release is None else {"trl": release}))
    names = ("rollout.colocated", "rollout.gpu_memory_utilization")
    assert tuple(facts[name].value if name in facts else None for name in names) == found


@pytest.mark.parametrize(
    ("trl", "trainer", "options", "loss"),
    [
        ("1.16.0", "sft", "", "fused_linear"),
        ("1.16.0", "sft", "--loss_type nll", "fused_linear"),
        ("1.16.0", "sft", "--label_smoothing_factor 0.1", "smoothed"),
        ("1.16.0", "sft", "--label_smoothing_factor 0.1 --loss_type dft", "fused_linear"),
        ("1.14.2", "sft", "--label_smoothing_factor 0.1 --loss_type nll", "smoothed"),
        ("1.14.2", "sft", "--label_smoothing_factor 0.1 --loss_type dft", "cross_entropy"),
        ("0.22.2", "sft", "--label_smoothing_factor 0.1 --use_liger_kernel true", "smoothed"),
        ("1.15.0", "sft", "--use_liger_kernel true", "fused_linear"),
        ("1.16.0", "dpo", "", "fused_linear"),
        ("1.16.0", "grpo", "", "fused_linear"),
        ("1.16.0", "reward", "", "cross_entropy"),
        ("1.14.2", "sft", "--loss_type nll", "cross_entropy"),
        ("1.14.2", "sft", "", "chunked"),
        ("1.14.2", "dpo", "", "cross_entropy"),
        ("0.24.0", "sft", "", "cross_entropy"),
        ("0.22.2", "sft", "", "cross_entropy"),
    ],
)
def test_what_trl_makes_of_logits_is_its_releases_own(
    rules: RuleSet, trl: str, trainer: str, options: str, loss: str
) -> None:
    text = f"trl {trainer} --model_name_or_path gpt2 --use_liger_kernel false {options}\n"
    found = facts_of(rules, written(text), trl=trl, transformers="4.57.6")
    assert found["training.loss_implementation"].value == loss


def test_easy_r1_fuses_its_optimizer(rules: RuleSet) -> None:
    text = (
        "python3 -m verl.trainer.main worker.actor.model.model_path=Qwen/Qwen2.5-7B worker.actor.optim.strategy=adamw\n"
    )
    environment = Environment(origin="requirements.txt", packages={}, complete=False)
    roles = resolve("x", rules=rules, environment=environment, documents=written(text)).roles
    assert roles["actor"]["training.optimizer_implementation"].value == "fused"
    assert {role["rollout.max_num_batched_tokens"].value for role in roles.values()} == {8192}


SEGMENTS = "allocator.expandable_segments"


@pytest.mark.parametrize(
    ("reader", "release", "world", "segments"),
    [
        ("axolotl", {"axolotl": "0.9.0"}, 1, True),
        ("torchtune", {"torchtune": "0.6.1"}, 8, None),
        ("torchtune", {"torchtune": "0.7.0"}, 8, True),
        ("llamafactory", {"llamafactory": "0.9.2"}, 8, None),
        ("llamafactory", {"llamafactory": "0.9.3"}, 8, True),
        ("llamafactory", {"llamafactory": "0.9.3"}, 1, None),
        ("roll", {"roll": "0.3.0"}, 8, True),
    ],
)
def test_programs_that_ask_for_expandable_segments_by_themselves(
    rules: RuleSet, reader: str, release: dict[str, str], world: int, *, segments: bool | None
) -> None:
    source = Source("config.yaml")
    document = Document(reader, source, (Statement("hardware.world_size", "n", world),))
    fact = facts_of(rules, [document], **release).get(SEGMENTS)
    assert (None if fact is None else fact.value) is segments


def test_adapters_of_trls_own_scripts_have_the_defaults_of_its_options(rules: RuleSet) -> None:
    (document,) = written("trl sft --model_name_or_path m --dataset_name d --use_peft --load_in_4bit")
    facts = facts_of(rules, [document], trl="1.0.0", transformers="4.56.2", torch="2.8.0")
    assert facts["training.lora_rank"].value == 16
    assert facts["training.lora_dropout"].value == 0.05
    assert facts["model.double_quantization"].value is False


@pytest.mark.parametrize(
    ("more", "engine"),
    [
        ({}, "hf"),
        ({"use_vllm": False}, "hf"),
        ({"use_vllm": False, "diffusion_steps": 3}, "hf"),
        ({"use_vllm": True}, "vllm"),
    ],
)
def test_a_switch_that_is_written_as_it_is_where_it_is_left_out(
    rules: RuleSet, more: dict[str, Any], engine: str
) -> None:
    data = {"model_name_or_path": "m", "num_generations": 8, "per_device_train_batch_size": 8, **more}
    found = facts_of(rules, [*trl.read(data, "grpo.yaml").documents])
    assert found["rollout.engine"].value == engine
