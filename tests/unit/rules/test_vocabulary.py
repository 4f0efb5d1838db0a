"""Every value has one meaning per name: it is converted exactly, or refused; and conversion is idempotent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import UsageError
from compatcheck.core.source import Source
from compatcheck.core.units import DTYPE_ALIASES, DTYPE_BYTES
from compatcheck.rules.values import allowed_values, parse_value
from compatcheck.rules.vocabulary import Term, nearest, type_of, vocabulary

PLACE = Source("--set")
TERMS = sorted(vocabulary().values())
NAMES = st.sampled_from([term.name for term in TERMS])


def parse(name: str, value: object) -> Any:
    return parse_value(name, value, PLACE)


def values_of(term: Term) -> st.SearchStrategy[Any]:
    """Draw what a fact of this term can hold."""
    if allowed := allowed_values(term):
        convert = int if term.type == "int" else str
        plain: st.SearchStrategy[Any] = st.sampled_from([convert(value) for value in allowed])
    else:
        words = st.text("abcXYZ-_./0123456789", min_size=1, max_size=8).filter(
            lambda word: word.lower() not in {"none", "null"}
        )
        plain = {
            "bool": st.booleans(),
            "int": st.integers(term.minimum, 2**63 - 1),
            "bytes": st.integers(term.minimum, 2**50),
            "float": st.floats(allow_nan=False, allow_infinity=False),
            "dtype": st.sampled_from(sorted(DTYPE_BYTES)),
            "version": st.sampled_from(["2.10", "9.1.0", "12", "2.9.0a0+git123"]),
            "set": st.lists(words, max_size=3).map(lambda names: tuple(sorted(set(names)))),
            "str": words,
        }[term.type]
    return st.one_of(st.none(), plain) if term.nullable else plain


facts = NAMES.flatmap(lambda name: st.tuples(st.just(name), values_of(vocabulary()[name])))


@settings(max_examples=500)
@given(facts)
def test_a_value_survives_json_and_being_parsed_again(fact: tuple[str, Any]) -> None:
    name, value = fact
    assert parse(name, value) == value
    assert type(parse(name, value)) is type(value)
    assert parse(name, json.loads(json.dumps(value))) == value


@settings(max_examples=400)
@given(facts)
def test_what_a_person_types_after_set_means_the_value(fact: tuple[str, Any]) -> None:
    name, value = fact
    if value == () or (isinstance(value, float) and "e" in repr(value)):
        return
    text = "none" if value is None else ",".join(value) if isinstance(value, tuple) else str(value)
    assert parse(name, text) == value


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(
        ["inf", "nan", "-1", "1e400", "1_000", "9" * 400 + "GiB", "9" * 5000, "0x10", " true ", "1.5GiB", 10**400]
    ),
    st.lists(st.one_of(st.text(max_size=3), st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)


@settings(max_examples=600)
@given(NAMES, anything)
def test_anything_is_converted_or_refused_and_stays_what_it_is(name: str, raw: Any) -> None:
    try:
        value = parse(name, raw)
    except UsageError as error:
        assert error.hint
        return
    term = vocabulary()[name]
    assert value is None if raw is None else True
    assert term.nullable or value is not None
    assert parse(name, value) == value
    if isinstance(raw, int | float) and not isinstance(raw, bool) and term.type in {"int", "bytes", "float"}:
        assert value == raw


def test_whole_numbers_keep_every_digit() -> None:
    assert parse("training.model_persistence_threshold", "9223372036854775807") == 9223372036854775807
    assert parse("hardware.memory_bytes", "9007199254740993") == 9007199254740993
    assert parse("training.reduce_bucket_size", "5e8") == 500_000_000
    assert parse("training.reduce_bucket_size", 5e8) == 500_000_000
    assert parse("training.reduce_bucket_size", "5_000") == 5000


@pytest.mark.parametrize(
    "raw", ["inf", "-inf", "nan", float("inf"), float("nan"), "1e400", 1.5, "1.5", -1, "-1", True, [], {}]
)
def test_a_count_is_a_finite_whole_number(raw: object) -> None:
    with pytest.raises(UsageError):
        parse("training.micro_batch_size", raw)


def test_a_version_that_lost_its_zero_is_refused() -> None:
    with pytest.raises(UsageError):
        parse("runtime.cudnn", 9.10)
    assert parse("runtime.cudnn", "9.10") == "9.10"
    assert parse("runtime.python", 3) == "3"


def test_the_word_no_survives_yaml() -> None:
    assert parse("training.mixed_precision", False) == "no"
    with pytest.raises(UsageError):
        parse("training.mixed_precision", True)
    with pytest.raises(UsageError):
        parse("training.peft", False)


def test_sizes_take_units() -> None:
    assert parse("hardware.memory_bytes", "80GiB") == 80 * 2**30
    assert parse("hardware.memory_bytes", "80GB") == 80 * 10**9
    assert parse("hardware.memory_bytes", "80G") == 80 * 2**30
    assert parse("hardware.memory_bytes", 5) == 5


def test_none_is_a_value_only_where_there_can_be_none() -> None:
    for word in (None, "none", "None", "null"):
        assert parse("training.peft", word) is None
        assert parse("training.fsdp_version", word) is None
        with pytest.raises(UsageError):
            parse("training.zero_stage", word)
    assert parse("training.sharding", "none") == "none"
    assert parse("run.attention_mask", "none") == "none"


def test_case_and_aliases() -> None:
    assert parse("training.peft", "LoRA") == "lora"
    assert parse("training.zero_stage", "3.0") == 3
    assert parse("training.packing", "ON") is True
    assert parse("training.packing", 0) is False
    for alias, dtype in DTYPE_ALIASES.items():
        assert parse("training.param_dtype", alias) == dtype
        assert parse("training.param_dtype", f"torch.{dtype}") == dtype


def test_errors_name_the_value_what_is_wanted_and_the_nearest_name() -> None:
    with pytest.raises(UsageError) as caught:
        parse("training.peft", "loar")
    assert "'loar'" in caught.value.message
    assert "dora" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        parse("training.zero_stgae", 3)
    assert "training.zero_stage" in (caught.value.hint or "")
    assert nearest("xyzzy", ["training.zero_stage"]) is None


def test_the_table_is_well_formed() -> None:
    kinds = {"bool", "int", "float", "str", "bytes", "dtype", "version", "set"}
    for term in TERMS:
        assert term.type in kinds
        assert term.meaning
        assert len(set(allowed_values(term))) == len(allowed_values(term))
        assert term.type == "bytes" or not term.name.endswith("_bytes")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("zero_stage", "training.zero_stage"),
        ("zero_stgae", "training.zero_stage"),
        ("gpu", "hardware.gpu"),
        ("tensor_parallel", "training.tensor_parallel"),
        ("training.zero_stge", "training.zero_stage"),
        ("nothing_of_the_kind", None),
    ],
)
def test_a_name_without_its_group_is_told_the_whole(written: str, meant: str | None) -> None:
    assert nearest(written, list(vocabulary())) == meant


def test_the_type_of_a_name_is_the_one_of_its_term():
    assert all(type_of(term.name) == term.type for term in vocabulary().values())
    assert not type_of("training.nothing")
