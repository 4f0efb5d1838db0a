"""Headers of safetensors files are counted, and broken ones are said to be broken."""

from __future__ import annotations

import json
import math

import pytest

from compatcheck.architectures.count import count_parameters
from compatcheck.architectures.weights import count_directory, count_safetensors, counts_from_tensors
from compatcheck.core.errors import InputError

BYTES = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I32": 4, "I64": 8, "F8_E4M3": 1}
CONFIG = {
    "model_type": "mixtral", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 30, "num_local_experts": 2,
}  # fmt: skip
LAYER = "model.layers.0."
TENSORS = {
    "model.embed_tokens.weight": [30, 8],
    LAYER + "self_attn.q_proj.weight": [8, 8],
    LAYER + "self_attn.k_proj.weight": [4, 8],
    LAYER + "self_attn.v_proj.weight": [4, 8],
    LAYER + "self_attn.o_proj.weight": [8, 8],
    LAYER + "block_sparse_moe.gate.weight": [2, 8],
    **{
        f"{LAYER}block_sparse_moe.experts.{e}.w{w}.weight": [8, 12] if w == 2 else [12, 8]
        for e in (0, 1)
        for w in (1, 2, 3)
    },
    LAYER + "input_layernorm.weight": [8],
    LAYER + "post_attention_layernorm.weight": [8],
    "model.norm.weight": [8],
    "lm_head.weight": [30, 8],
}


def write(path, tensors, dtype="BF16"):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        start, end = end, end + math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * end)


def test_a_single_file_is_counted_and_agrees_with_the_configuration(tmp_path):
    write(tmp_path / "model.safetensors", TENSORS)
    found = count_safetensors(str(tmp_path))
    counts = count_parameters(CONFIG)
    assert found.total == counts.total == sum(math.prod(shape) for shape in TENSORS.values())
    assert found.tensors["model.norm.weight"] == 8
    assert count_directory(CONFIG, str(tmp_path)) == (counts, None)


def test_shards_are_counted_through_the_index(tmp_path):
    names = list(TENSORS)
    write(tmp_path / "model-00001-of-00002.safetensors", {name: TENSORS[name] for name in names[:5]})
    write(tmp_path / "model-00002-of-00002.safetensors", {name: TENSORS[name] for name in names[5:]})
    write(tmp_path / "consolidated.safetensors", {"copy": [1000]})  # not named in the index
    weight_map = {name: f"model-0000{1 if i < 5 else 2}-of-00002.safetensors" for i, name in enumerate(names)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert count_safetensors(str(tmp_path)).total == count_parameters(CONFIG).total


def test_a_missing_shard_is_named(tmp_path):
    weight_map = {"a": "model-00001-of-00003.safetensors", "b": "model-00002-of-00003.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    write(tmp_path / "model-00001-of-00003.safetensors", {"a": [2]})
    with pytest.raises(InputError, match="model-00002-of-00003") as caught:
        count_safetensors(str(tmp_path))
    assert caught.value.source.path.endswith("model-00002-of-00003.safetensors")


@pytest.mark.parametrize(
    "index",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": "../b.safetensors"}}',
    ],
)
def test_a_broken_index_is_named(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(InputError, match="weight_map") as caught:
        count_safetensors(str(tmp_path))
    assert caught.value.source.path.endswith("index.json")


def test_a_file_cut_short_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    write(path, TENSORS)
    whole = path.read_bytes()
    for size in (0, 4, 8, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="not a complete safetensors file") as caught:
            count_safetensors(str(tmp_path))
        assert caught.value.source.path == str(path)


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[1]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": 7, "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [1]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {"dtype": "F32", "shape": [4]}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_malformed_header_is_an_error(tmp_path, header):
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 16)
    with pytest.raises(InputError) as caught:
        count_safetensors(str(tmp_path))
    assert caught.value.source.path == str(path)


def test_a_header_length_that_lies_reads_no_gigabytes(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    with pytest.raises(InputError, match="header is longer"):
        count_safetensors(str(tmp_path))


def test_a_directory_without_weights_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no safetensors"):
        count_safetensors(str(tmp_path))
    with pytest.raises(InputError, match="no safetensors"):
        count_safetensors(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("tensors", "dtype"),
    [
        ({"model.layers.0.mlp.gate_proj.qweight": [4, 4]}, "I32"),
        ({"model.layers.0.mlp.gate_proj.weight": [64, 1]}, "U8"),
        ({"model.layers.0.mlp.gate_proj.weight": [8, 8]}, "F8_E4M3"),
        ({"model.layers.0.mlp.gate_proj.weight_scale": [8]}, "BF16"),
    ],
)
def test_a_quantised_checkpoint_has_no_total(tmp_path, tensors, dtype):
    write(tmp_path / "model.safetensors", tensors, dtype)
    found = count_safetensors(str(tmp_path))
    assert found.total is None
    assert "quantised" in found.reason
    assert count_directory(CONFIG, str(tmp_path)) == (None, found.reason)


def test_buffers_and_blocks_that_are_not_loaded_are_left_out():
    numel = {name: math.prod(shape) for name, shape in TENSORS.items()}
    extra = {
        "model.layers.1.self_attn.q_proj.weight": 64,  # for multi-token prediction
        LAYER + "self_attn.rotary_emb.inv_freq": 4,
        LAYER + "block_sparse_moe.gate.e_score_correction_bias": 2,
    }
    assert counts_from_tensors(CONFIG, numel | extra, "config.json") == count_parameters(CONFIG)


def test_a_tied_head_that_is_stored_all_the_same_counts_once():
    numel = {name: math.prod(shape) for name, shape in TENSORS.items()}
    counts = counts_from_tensors({**CONFIG, "tie_word_embeddings": True}, numel, "config.json")
    assert counts == count_parameters({**CONFIG, "tie_word_embeddings": True})
    assert counts.lm_head == 0


def test_names_that_say_nothing_are_not_sorted():
    assert counts_from_tensors(CONFIG, {"a": 3, "b": 4}, "config.json") is None
