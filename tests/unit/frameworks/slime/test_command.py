"""slime's command lines: what ``slime/utils/arguments.py`` makes of them at 624b824a."""

from __future__ import annotations

import pytest

from compatcheck.frameworks.model.lookup import find_model
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents, facts, resolved

START = "ray job submit --address=http://h:8265 -- python3 train.py --hf-checkpoint /models/Qwen3-4B --rollout-batch-size 32"
FILLED = f"{START} --n-samples-per-prompt 8 --use-dynamic-batch-size --max-tokens-per-gpu 9216"


def test_what_is_always_so_is_said() -> None:
    found = resolved(f"{START} --n-samples-per-prompt 8 --num-steps-per-rollout 4")
    assert found["training.sharding"] == "megatron"
    assert found["training.distributed_optimizer"] is True
    assert found["training.param_dtype"] == "bfloat16"
    assert found["training.grad_accum_dtype"] == "float32"
    assert found["training.trainer"] == "grpo"
    assert found["rollout.engine"] == "sglang"
    assert (found["rollout.global_batch_size"], found["training.global_batch_size"]) == (256, 64)
    assert found["rollout.tensor_parallel"] == 1


def test_the_checkpoint_of_the_engine_names_the_model_and_does_not_quantise_what_is_trained() -> None:
    document = documents(START.replace("Qwen3-4B", "Qwen3-4B-FP8"))[0]
    assert ("model", "/models/Qwen3-4B-FP8", "hf_checkpoint") in document.references
    assert facts(document)["model.quantization"] is None


def test_a_variable_of_the_job_quantises_what_is_trained() -> None:
    flag = "OPEN_TRAINING_INT4_FAKE_QAT_FLAG"
    for value, said in (("1", True), ("0", False)):
        given = f'--runtime-env-json=\'{{"env_vars": {{"{flag}": "{value}"}}}}\' -- '
        (document,) = documents(START.replace("-- ", given))
        found = resolve("s", rules=open_rules(), documents=(document,)).roles["train"]
        assert ("training.unpriced" in found) is said


@pytest.mark.parametrize(
    ("words", "asleep", "together", "engine_sleeps"),
    [
        ("", False, False, False),
        ("--colocate", True, True, True),
        ("--colocate --no-offload-train", False, True, True),
        ("--colocate --no-offload-rollout", True, True, False),
        ("--offload", True, False, True),
        ("--offload-train", True, False, False),
        ("--advantage-estimator ppo", True, False, False),  # the critic takes turns with the actor
    ],
)
def test_what_leaves_the_device(words: str, *, asleep: bool, together: bool, engine_sleeps: bool) -> None:
    found = facts(documents(f"{START} {words}")[0])
    assert found["training.sleeps_while_idle"] is asleep
    assert found.get("training.offload_param") == ("cpu" if asleep else None)
    assert found["rollout.colocated"] is together
    assert found["rollout.sleep_mode"] is engine_sleeps


def test_batches_are_filled_with_tokens_or_count_sequences() -> None:
    filled = facts(documents(f"{FILLED} --micro-batch-size 4")[0])
    assert filled["training.micro_batch_tokens"] == 9216
    assert "training.micro_batch_size" not in filled
    counted = facts(documents(f"{START} --micro-batch-size 4 --max-tokens-per-gpu 9216")[0])
    assert counted["training.micro_batch_size"] == 4
    assert "training.micro_batch_tokens" not in counted


def test_supervised_training_has_no_engine() -> None:
    found = facts(documents(f"{FILLED} --loss-type sft_loss --debug-train-only --sglang-mem-fraction-static 0.7")[0])
    assert found["training.trainer"] == "sft"
    assert {name for name in found if name.startswith("rollout.")} == {"rollout.global_batch_size", "rollout.n"}


def test_options_of_megatron_and_of_the_engine_are_read() -> None:
    document = documents(
        f"{FILLED} --tensor-model-parallel-size 2 --optimizer-cpu-offload --recompute-granularity full --swiglu "
        "--rollout-num-gpus-per-engine 8 --sglang-pp-size 2 --sglang-mem-fraction-static 0.7 --sglang-quantization fp8 "
        "--sglang-cuda-graph-bs 1 2 4 --router-log-level warn --num-layers 36"
    )[0]
    found = facts(document)
    assert found["training.tensor_parallel"] == 2
    assert found["training.offload_optimizer"] == "cpu"
    assert found["training.gradient_checkpointing"] is True
    assert found["rollout.tensor_parallel"] == 4
    assert found["rollout.gpu_memory_utilization"] == 0.7
    assert found["model.num_hidden_layers"] == 36
    assert found["model.quantization"] is None
    assert [gap.source.key for gap in document.gaps] == ["sglang_quantization"]
    assert found["rollout.max_cudagraph_capture_size"] == 4
    assert not document.unread


def test_a_critic_is_a_second_model() -> None:
    roles = {one.role for one in documents(f"{START} --advantage-estimator ppo")[0].statements}
    assert {"actor", "critic"} <= roles
    assert {one.role for one in documents(START)[0].statements} == {None}


def test_a_back_end_that_nobody_read_is_refused() -> None:
    document = documents(f"{START} --train-backend fsdp")[0]
    assert "training.sharding" not in facts(document)
    assert ["back end" in one.reason for one in document.skipped] == [True]


def test_a_script_of_that_name_alone_is_not_slime() -> None:
    assert documents("torchrun train.py --rollout-batch-size 32")[0].reader != "slime"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", True),
        ("--spec slime_plugins.models.qwen3_5 get_qwen3_5_spec", True),
        ("--spec slime_plugins.models.qwen3_5_vl get_qwen3_5_vl_model_provider", False),
        ("--custom-model-provider-path mine.build", False),
    ],
)
def test_a_model_is_built_without_towers_unless_a_provider_is_asked(words: str, *, said: bool) -> None:
    document = documents(f"{START} {words}")[0]
    assert any(entry.key == "(text alone)" for entry in document.statements) is said


def test_text_alone_has_the_parameters_of_blocks_embedding_and_head() -> None:
    rules = open_rules(())
    line = f"{START.replace('Qwen3-4B', 'Qwen3.5-27B')} --spec slime_plugins.models.qwen3_5 get_qwen3_5_spec"
    (document,) = documents(line)
    model = find_model("Qwen/Qwen3.5-27B", rules, {})
    found = resolve("x", rules=rules, documents=[document, model]).roles["train"]
    assert found["model.vision_parameters"].value == 0
    assert found["model.parameters"].value == 26_895_998_464
    assert found["model.parameters"].alternatives[0][0] == 27_356_728_560
