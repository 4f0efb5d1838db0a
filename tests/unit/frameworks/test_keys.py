"""Key files: what a line may say, and how a wrong one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compatcheck.frameworks.conversions import LEAVE, OPEN, stated
from compatcheck.frameworks.keys import Key, KeyTable, Names, Table, parse_key_file


def parse(text: str, **conversions: Any) -> Table:
    return parse_key_file(text, "keys.txt", conversions)[0]


def convert(text: str, value: object) -> object:
    ((key,),) = parse(text).values()
    assert key.convert is not None
    return key.convert(value)


def test_lines_are_keys_with_their_meanings() -> None:
    text = """
    # comment
    stage  training.zero_stage
    rank   training.lora_rank   role=actor,critic   # two models
    rank   training.peft        lora_of_rank        role=actor
    """
    table = parse(text)
    assert table["stage"] == (Key("training.zero_stage"),)
    assert [(key.fact, key.role) for key in table["rank"]] == [
        ("training.lora_rank", "actor"),
        ("training.lora_rank", "critic"),
        ("training.peft", "actor"),
    ]
    assert parse("fsdp -") == {"fsdp": ()}


def test_words_of_the_file_may_follow_the_lines_that_use_them() -> None:
    text = "strategy training.sharding sharding\nwords: sharding fsdp=fsdp\nwords: sharding fsdp2=fsdp mcore=megatron"
    assert [convert(text, word) for word in ("fsdp2", "FSDP", "mcore")] == ["fsdp", "fsdp", "megatron"]
    assert convert(text, "ddp") is OPEN


@pytest.mark.parametrize(
    ("otherwise", "found"),
    [("same", "X"), ("lower", "x"), ("null", None), ("true", True), ("7", 7), ("leave", LEAVE), ("hf", "hf")],
)
def test_what_another_word_is_can_be_stated(otherwise: str, found: object) -> None:
    result = convert(f"k f w\nwords: w a=b otherwise={otherwise}", "X")
    assert result is found or result == found


def test_another_word_may_be_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"known: a, c$"):
        convert("k f w\nwords: w a=b c=null auto=leave otherwise=error", "d")


@pytest.mark.parametrize(
    ("conversion", "value", "found"),
    [
        ("on:nf4", True, "nf4"),
        ("on:nf4", "true", "nf4"),
        ("on:nf4", False, LEAVE),
        ("given:false", 3, False),
        ("given:false", None, LEAVE),
        ("non_empty:true", "a", True),
        ("non_empty:true", "", LEAVE),
        ("stated", None, LEAVE),
        ("unless_auto", "auto", LEAVE),
        ("kernel", "kernels-community/flash-attn", "flash_attention_2"),
        ("kernel", "kernels-community/flash-attn2", "flash_attention_2"),
        ("kernel", "kernels-community/vllm-flash-attn3@main:flash_attn", "flash_attention_3"),
        ("kernel", "kernels-community/metal-flash-sdpa", "kernels-community/metal-flash-sdpa"),
        ("kernel", "sdpa", "sdpa"),
        ("kernel", None, LEAVE),
        ("lora_of_rank", 0, None),
        ("lora_of_rank", 8, "lora"),
        ("sole_text", ["a"], "a"),
        ("names", "a", ["a"]),
    ],
)
def test_common_conversions(conversion: str, value: object, found: object) -> None:
    result = convert(f"k f {conversion}", value)
    assert result is found or result == found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stage", "keys.txt:2: expected `KEY FACT"),
        ("stage training.zero_stage a b", "keys.txt:2: expected `KEY FACT"),
        ("stage training.zero_stage statd", "keys.txt:2: statd is no conversion; known: .*stated"),
        ("stage training.zero_stage of:cpu", "keys.txt:2: of:cpu is no conversion"),
        ("words: host", "keys.txt:2: expected `words: NAME"),
        ("words: host cpu", "keys.txt:2: expected `words: NAME"),
    ],
)
def test_a_wrong_line_is_told_by_its_place(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(f"# first\n{line}")


def test_a_table_lies_over_the_one_it_is_built_upon(tmp_path: Path) -> None:
    (tmp_path / "below.txt").write_text("a f.below\nb f.below\n")
    (tmp_path / "keys.txt").write_text("b f.own double\n")
    below = KeyTable(str(tmp_path / "reader.py"), "below.txt")
    table = KeyTable(str(tmp_path / "reader.py"), conversions={"double": lambda value: value * 2}, beneath=(below,))
    assert {key: [meaning.fact for meaning in meanings] for key, meanings in table.items()} == {
        "a": ["f.below"],
        "b": ["f.own"],
    }
    assert dict(table)["b"][0].convert(2) == 4


def test_fields_of_the_model_stand_behind_what_a_program_calls_them(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("over.use_cache -\n")
    table = KeyTable(str(tmp_path / "reader.py"), fields={"over.": None, "critic.over.": "critic"})
    assert table["over.output_router_logits"] == (Key("model.output_router_logits", stated),)
    assert table["critic.over.output_router_logits"][0].role == "critic"
    assert table["over.use_cache"] == ()  # its own line wins


def test_names_may_stand_for_sections(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("# known\nfp16 fp16.enabled\naio.*\n")
    names = Names(str(tmp_path / "reader.py"))
    assert [key for key in ("fp16", "fp16.enabled", "aio.a.b", "fp16.x", "aio", "bf16") if key in names] == [
        "fp16",
        "fp16.enabled",
        "aio.a.b",
    ]
    assert list(names) == ["fp16", "fp16.enabled", "aio.*"]
