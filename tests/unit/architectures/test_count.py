"""Counts agree with real models, and bad configurations are said to be bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from compatcheck.architectures.count import (
    CLASS_DEFAULTS_RELEASE,
    ParameterCounts,
    count_parameters,
    known_model_types,
)
from compatcheck.architectures.keys import DATA, class_defaults
from compatcheck.core.errors import InputError
from tests import ROOT

MEASURED = json.loads((ROOT / "fixtures" / "measurements" / "parameter-counts.json").read_text("utf-8"))
RECORDS = MEASURED["records"]
BY_TYPE: dict[str, list[dict]] = {}
for _record in RECORDS:
    BY_TYPE.setdefault(_record["config"]["model_type"], []).append(_record)
WELL_KNOWN = yaml.safe_load((ROOT / "rules" / "_models.yaml").read_text("utf-8"))


def test_every_known_type_was_measured_with_at_least_two_counted_configurations():
    assert len(known_model_types()) >= 60
    for model_type in known_model_types():
        counted = [row for row in BY_TYPE.get(model_type, ()) if count_parameters(row["config"]) is not None]
        assert len(counted) >= 2, model_type


@pytest.mark.parametrize("model_type", known_model_types())
def test_counts_equal_those_of_the_real_model(model_type):
    for record in BY_TYPE[model_type]:
        counts = count_parameters(record["config"])
        if counts is not None:
            found = {name: getattr(counts, name) for name in MEASURED["fields"]}
            assert dict(zip(MEASURED["fields"], record["counts"], strict=True)) == found, record["config"]


def test_most_measured_configurations_are_counted():
    unknown = [row["config"]["model_type"] for row in RECORDS if count_parameters(row["config"]) is None]
    assert len(unknown) <= 0.1 * len(RECORDS), unknown


def test_components_sum_to_the_total():
    for record in RECORDS:
        counts = count_parameters(record["config"])
        if counts is not None:
            parts = counts.in_blocks + counts.embedding + counts.lm_head + counts.vision + counts.other
            assert counts.total == parts
            assert 0 <= counts.expert_per_layer <= counts.expert <= counts.in_blocks


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_well_known_models_have_the_parameters_they_state(name):
    counts = count_parameters(WELL_KNOWN[name]["config"])
    assert counts is not None
    assert counts.total == WELL_KNOWN[name]["parameters"]


def test_llama_3_70b_by_component():
    counts = count_parameters(WELL_KNOWN["llama-3-70b"]["config"])
    table = 128256 * 8192
    assert counts == ParameterCounts(70_553_706_496, 68_452_352_000, table, table, 0, 0, 0, 8192)


def test_key_value_heads_follow_the_given_heads_where_the_file_leaves_them_out():
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "vocab_size": 10, "num_hidden_layers": 1}
    counts = count_parameters({"model_type": "llama", "intermediate_size": 64, **sizes})
    assert counts.in_blocks == 4 * 128 * 128 + 3 * 128 * 64 + 2 * 128


def test_other_names_of_a_key_are_read():
    assert count_parameters({"model_type": "gpt2", "hidden_size": 96}) == count_parameters(
        {"model_type": "gpt2", "n_embd": 96}
    )


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "never-heard-of"},
        {"model_type": ""},
        {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28},
        {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]},
        {"model_type": "bert", "architectures": ["BertForNextSentencePrediction"]},
        {"model_type": "llama", "per_layer_config": {"0": {"intermediate_size": 64}}},
        {"model_type": "mt5"},
        {"model_type": "llava", "text_config": {"model_type": "never-heard-of"}},
        {"model_type": "llava", "text_config": {"model_type": "opt"}},
        {"model_type": "gemma3", "tie_word_embeddings": False},
    ],
)
def test_what_is_not_known_exactly_is_not_counted(config):
    assert count_parameters(config) is None


@pytest.mark.parametrize("model_type", ["qwen2_vl_text", "clip_vision_model", "qwen3_vl_vision"])
def test_a_part_is_not_a_model(model_type):
    assert count_parameters({"model_type": model_type}) is None


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "llama", "hidden_size": "4096"}, "hidden_size"),
        ({"model_type": "llama", "hidden_size": -4096}, "hidden_size"),
        ({"model_type": "llama", "hidden_size": 0}, "hidden_size"),
        ({"model_type": "llama", "hidden_size": None}, "hidden_size"),
        ({"model_type": "llama", "hidden_size": 4096.5}, "hidden_size"),
        ({"model_type": "llama", "hidden_size": [4096]}, "hidden_size"),
        ({"model_type": "llama", "num_attention_heads": True}, "num_attention_heads"),
        ({"model_type": "llama", "num_attention_heads": 0}, "num_attention_heads"),
        ({"model_type": "llama", "num_hidden_layers": -1}, "num_hidden_layers"),
        ({"model_type": "llama", "tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"model_type": "llama", "attention_bias": 1}, "attention_bias"),
        ({"model_type": "llama", "architectures": "LlamaForCausalLM"}, "architectures"),
        ({"model_type": "gpt2", "n_embd": "wide"}, "n_embd"),
        ({"model_type": "mixtral", "num_local_experts": -8}, "num_local_experts"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": "0"}, "mlp_only_layers"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [-1]}, "mlp_only_layers"),
        ({"model_type": "qwen3_next", "layer_types": [1, 2]}, "layer_types"),
        ({"model_type": "lfm2_moe"}, "layer_types"),
        ({"model_type": "llava", "text_config": "llama"}, "text_config"),
        ({"model_type": "llava", "text_config": {"hidden_size": -1}}, "text_config.hidden_size"),
        ({"model_type": "qwen2_vl", "vision_config": {"depth": "many"}}, "vision_config.depth"),
        ({"model_type": "dbrx", "attn_config": [1]}, "attn_config"),
        ({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 0}}, "ffn_config.moe_num_experts"),
        ({"model_type": "ernie4_5_moe", "moe_layer_end_index": -2}, "moe_layer_end_index"),
        ({"model_type": 7}, "model_type"),
    ],
)
def test_a_bad_value_is_an_error_that_names_file_and_key(config, key):
    with pytest.raises(InputError) as caught:
        count_parameters(config, "models/config.json")
    assert caught.value.source is not None
    assert caught.value.source.path == "models/config.json"
    assert caught.value.source.key == key
    assert key in caught.value.message
    assert caught.value.hint


def test_a_configuration_that_is_no_mapping_is_an_error():
    with pytest.raises(InputError, match="not a mapping"):
        count_parameters([1, 2])  # type: ignore[arg-type]


def test_any_key_of_any_type_may_hold_nonsense():
    nonsense = ("text", -1, [], [None], {}, 1.5, True, None)
    for model_type in known_model_types():
        defaults = class_defaults(model_type)
        for key in (*defaults.values, *defaults.aliases, *defaults.parts):
            for value in nonsense:
                try:
                    counts = count_parameters({"model_type": model_type, key: value})
                except InputError as error:
                    assert error.source.key
                else:
                    assert counts is None or min(counts[: len(MEASURED["fields"])]) >= 0


def test_class_defaults_are_of_the_release_that_is_stated():
    first = Path(DATA).read_text("utf-8").splitlines()[0]
    assert first == f"# transformers {CLASS_DEFAULTS_RELEASE}"


def test_counting_a_dense_model_imports_little():
    code = (
        "import sys; from compatcheck.architectures.count import count_parameters; "
        "count_parameters({'model_type': 'llama'}); "
        "print(sorted(m for m in sys.modules if m.startswith('compatcheck.architectures.') or m in {'torch', 'transformers'}))"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    names = [f"compatcheck.architectures.{name}" for name in ("count", "decoders", "keys", "parts")]
    assert run.stdout.strip() == str(names)


@pytest.mark.versions
@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "deepseek_v3", "qwen2_5_vl", "t5"])
def test_real_models_still_have_the_measured_counts(model_type, tmp_path):
    interpreter = os.environ.get("COMPATCHECK_TRANSFORMERS_PYTHON", sys.executable)
    probe = subprocess.run(
        [interpreter, "-c", "import torch, transformers; print(transformers.__version__)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if probe.returncode:
        pytest.skip("no torch and transformers; name an interpreter in COMPATCHECK_TRANSFORMERS_PYTHON")
    release = probe.stdout.strip()
    rows = [row for row in BY_TYPE[model_type] if release in row["transformers"] and len(row["config"]) > 1]
    if not rows:
        pytest.skip(f"nothing was measured with transformers {release}")
    script = Path(__file__).parent / "measure_counts.py"
    lines = "".join(json.dumps(row["config"]) + "\n" for row in rows)
    run = subprocess.run(
        [interpreter, str(script)], input=lines, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    for row, line in zip(rows, run.stdout.splitlines(), strict=True):
        assert list(json.loads(line)["counts"].values()) == row["counts"]


def test_a_t5_that_says_its_head_is_not_tied_has_one() -> None:
    base = {
        "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 768, "d_ff": 2048, "d_kv": 64,
        "num_heads": 12, "num_layers": 12, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    }  # fmt: skip
    counts = count_parameters(base)
    assert (counts.total, counts.lm_head) == (247_577_856, 768 * 32128)  # flan-t5-base, as the hub counts it
