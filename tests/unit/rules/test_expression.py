"""Expressions are decided exactly when every completion of the unknown facts agrees, and survive being written and read."""

from __future__ import annotations

import itertools
import operator
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.errors import RuleError
from compatcheck.rules.expression import MAX_EXPONENT, Unknown, conjuncts, evaluate, fact_names, write
from compatcheck.rules.syntax import parse


class DictScope:
    """A scope over plain dictionaries."""

    def __init__(self, facts: dict[str, Any], stated: frozenset[str] = frozenset()) -> None:
        self.facts = facts
        self.stated = stated

    def value(self, name: str) -> object:
        return self.facts[name] if name in self.facts else Unknown(frozenset((name,)))

    def declared(self, name: str) -> bool:
        return name in self.stated

    def installed(self, package: str, specifier: str) -> object:
        if specifier == "nonsense":
            raise ValueError(specifier)
        return self.facts.get(package, Unknown(frozenset((f"version of {package}",))))

    def version_in(self, version: str, specifier: str) -> object:
        return version in specifier

    def variable(self, name: str) -> object:
        return self.facts.get(name, Unknown(frozenset((f"env {name}",))))

    def look_up(self, table: str, keys: tuple[object, ...]) -> object:
        return self.facts.get(f"{table}{keys}", Unknown(frozenset((f"{table}{keys}",))))


def run(text: str, **facts: Any) -> object:
    return evaluate(parse(text), DictScope({name.replace("__", "."): value for name, value in facts.items()}))


# --- three values against all completions -------------------------------------------------------------------------------

BOOLS = ("f.a", "f.b", "f.c")
NUMBERS = ("f.x", "f.y")
DOMAIN = {**dict.fromkeys(BOOLS, (True, False)), **dict.fromkeys(NUMBERS, (0, 1, 3))}

numbers = st.recursive(
    st.one_of(
        st.sampled_from(NUMBERS).map(lambda name: ["fact", name]),
        st.integers(0, 4).map(lambda number: ["value", number]),
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner).map(list),
        inner.map(lambda code: ["negative", code]),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda parts: ["call", *parts]),
    ),
    max_leaves=3,
)
comparisons = st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers, numbers).map(list)
memberships = st.tuples(
    st.sampled_from(["in", "not in"]),
    numbers,
    st.lists(st.integers(0, 4).map(lambda number: ["value", number]), max_size=3).map(lambda items: ["set", *items]),
).map(list)
conditions = st.recursive(
    st.one_of(
        st.sampled_from(BOOLS).map(lambda name: ["fact", name]),
        st.booleans().map(lambda value: ["value", value]),
        comparisons,
        memberships,
    ),
    lambda inner: st.one_of(
        inner.map(lambda code: ["not", code]),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(list),
        st.tuples(inner, inner, inner).map(lambda parts: ["if", *parts]),
    ),
    max_leaves=5,
)
partial = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in DOMAIN.items()})


def plain(code: Any, facts: dict[str, Any]) -> Any:
    """Python's own meaning of an expression over known facts."""
    kind, *parts = code
    compare = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt}
    arithmetic = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    match kind:
        case "value":
            return parts[0]
        case "fact":
            return facts[parts[0]]
        case "and":
            return reduce(lambda left, part: left and bool(plain(part, facts)), parts, True)
        case "or":
            return reduce(lambda left, part: left or bool(plain(part, facts)), parts, False)
        case "not":
            return not plain(parts[0], facts)
        case "negative":
            return -plain(parts[0], facts)
        case "if":
            return plain(parts[1], facts) if plain(parts[0], facts) else plain(parts[2], facts)
        case "set":
            return {plain(part, facts) for part in parts}
        case "in":
            return plain(parts[0], facts) in plain(parts[1], facts)
        case "not in":
            return plain(parts[0], facts) not in plain(parts[1], facts)
        case "call":
            values = [plain(part, facts) for part in parts[1:]]
            return min(values) if parts[0] == "min" else max(values)
        case ">=":
            return plain(parts[0], facts) >= plain(parts[1], facts)
        case _ if kind in compare:
            return compare[kind](plain(parts[0], facts), plain(parts[1], facts))
        case _:
            return arithmetic[kind](plain(parts[0], facts), plain(parts[1], facts))


@settings(max_examples=400)
@given(conditions, partial)
def test_decided_means_that_every_completion_agrees(code: Any, known: dict[str, Any]) -> None:
    result = evaluate(code, DictScope(known))
    if isinstance(result, Unknown):
        assert result.needs
        assert result.needs <= fact_names(code)
        assert not result.needs & known.keys()
        return
    missing = sorted(fact_names(code) - known.keys())
    for values in itertools.product(*(DOMAIN[name] for name in missing)):
        assert bool(plain(code, {**known, **dict(zip(missing, values, strict=True))})) == bool(result)


@settings(max_examples=400)
@given(conditions, partial, st.fixed_dictionaries({name: st.sampled_from(values) for name, values in DOMAIN.items()}))
def test_setting_every_need_decides_as_the_full_facts_do(
    code: Any, known: dict[str, Any], full: dict[str, Any]
) -> None:
    full = {**full, **known}
    result = evaluate(code, DictScope(known))
    if isinstance(result, Unknown):
        decided = evaluate(code, DictScope({**known, **{name: full[name] for name in result.needs}}))
        assert not isinstance(decided, Unknown)
        assert bool(decided) == bool(plain(code, full))


@settings(max_examples=200)
@given(numbers, partial)
def test_sizes_are_exact_once_every_fact_is_known(code: Any, known: dict[str, Any]) -> None:
    result = evaluate(code, DictScope(known))
    missing = fact_names(code) - known.keys()
    assert isinstance(result, Unknown) == bool(missing)
    if not missing:
        assert result == plain(code, known)


# --- writing --------------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
values = st.one_of(
    st.sampled_from(["f.a", "f.b", "f.x"]).map(lambda name: ["fact", name]),
    st.one_of(st.integers(0, 10**18), st.floats(0, 1e18, allow_nan=False), texts, st.booleans(), st.none()).map(
        lambda value: ["value", value]
    ),
    texts.map(lambda name: ["call", "env", ["value", name]]),
    st.just(["call", "declared", ["value", "training.zero_stage"]]),
)
BINARY = ["==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in", "+", "-", "*", "/", "//", "%", "**"]
codes = st.recursive(
    values,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(BINARY), inner, inner).map(list),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner, inner).map(list),
        st.tuples(st.sampled_from(["not", "negative", "set"]), inner).map(list),
        st.tuples(inner, inner, inner).map(lambda parts: ["if", *parts]),
        st.lists(inner, max_size=3).map(lambda items: ["set", *items]),
        st.tuples(st.sampled_from(["ceil", "dtype_bytes"]), inner).map(lambda parts: ["call", *parts]),
        st.tuples(inner, inner).map(lambda parts: ["call", "table", *parts]),
    ),
    max_leaves=6,
)


@settings(max_examples=400)
@given(codes)
def test_written_code_reads_back_the_same(code: Any) -> None:
    assert parse(write(code)) == code


@pytest.mark.parametrize(
    "text",
    [
        "(f.a == f.b) == f.c",
        "(f.x ** f.y) ** 2",
        "f.x ** f.y ** 2",
        "(-f.x) ** 2",
        "-f.x ** 2",
        "2 ** -f.x",
        "f.a in ()",
        "f.x - (f.y - 1)",
        "not (f.a and f.b)",
        "(f.a if f.b else f.c) and f.a",
        "(f.a or f.b) and not f.c",
        'env("A") is not None',
    ],
)
def test_brackets_that_matter_survive(text: str) -> None:
    assert parse(write(parse(text))) == parse(text)


# --- meaning --------------------------------------------------------------------------------------------------------------


def test_a_guard_keeps_the_undefined_branch_from_being_evaluated() -> None:
    assert run("f.x / f.y if f.y != 0 else 0", f__x=4, f__y=0) == 0
    assert run("f.x / f.y if f.y != 0 else 0", f__x=4, f__y=2) == 2
    assert run("f.y != 0 and f.x / f.y > 1", f__x=4, f__y=0) is False


def test_an_undefined_branch_of_an_open_test_stays_open() -> None:
    result = run("f.x / 0 if f.a else f.y", f__x=4)
    assert isinstance(result, Unknown)
    assert result.needs == {"f.a", "f.y"}


def test_branches_that_agree_do_not_need_the_test() -> None:
    assert run("2 if f.a else 2") == 2


def test_none_differs_from_unknown_and_orders_as_false() -> None:
    assert run("f.x is None", f__x=None) is True
    assert run("f.x is not None", f__x=3) is True
    assert run("f.x > 0", f__x=None) is False
    assert run("f.x == 3", f__x=None) is False
    assert isinstance(run("f.x is None"), Unknown)


def test_is_compares_values_not_objects() -> None:
    assert run("f.x is 100000000000", f__x=int("100000000000")) is True
    assert run("f.s is 'a-b'", f__s="".join(["a", "-", "b"])) is True
    assert run("f.x is not 100000000000", f__x=int("100000000000")) is False


def test_a_set_is_in_a_set_when_any_member_is() -> None:
    assert run("f.s in {'q', 'v'}", f__s=("k", "v")) is True
    assert run("f.s not in {'q', 'v'}", f__s=("k", "o")) is True
    assert run("'k' in f.s", f__s=("k",)) is True
    assert run("f.s == {'k', 'v'}", f__s=("v", "k")) is True
    assert run("f.s in {'q'}", f__s=()) is False


def test_layers_are_recomputed_by_either_kind_of_checkpointing() -> None:
    own, of_fsdp = "training.gradient_checkpointing", "training.fsdp_activation_checkpointing"

    def ask(**facts: bool) -> object:
        known = {name: facts[key] for name, key in ((own, "own"), (of_fsdp, "of_fsdp")) if key in facts}
        return evaluate(parse("recomputed()"), DictScope(known, frozenset(known)))

    assert ask(own=True) is True
    assert ask(own=False, of_fsdp=True) is True
    assert ask(of_fsdp=True) is True
    assert ask(own=False, of_fsdp=False) is False
    assert ask(own=False) is False
    assert ask() == Unknown(frozenset({own}))
    with pytest.raises(RuleError, match="takes 0 arguments"):
        parse("recomputed(f.x)")


def test_nothing_is_kept_on_the_device_that_is_offloaded() -> None:
    own, moved = "training.gradient_checkpointing", "training.activation_offloading"

    def ask(**facts: object) -> object:
        known = {name: facts[key] for name, key in ((own, "own"), (moved, "moved")) if key in facts}
        return evaluate(parse("not_kept()"), DictScope(known, frozenset(known)))

    assert ask(own=False, moved=True) is True
    assert ask(moved=True) is True
    assert ask(own=True) is True
    assert ask(own=False) is False
    assert ask() == Unknown(frozenset({own}))


def test_what_is_shared_out_is_whole_where_nobody_says() -> None:
    def ask(text: str, **facts: object) -> object:
        known = {name.replace("__", "."): value for name, value in facts.items()}
        return evaluate(parse(text), DictScope(known, frozenset(known)))

    assert ask("8 / sequence_ranks()") == 8
    assert ask("8 / sequence_ranks()", training__context_parallel=4) == 2
    assert ask("8 / head_ranks()", training__tensor_parallel=2) == 4
    assert ask("8 / stages()", training__pipeline_parallel=2, hardware__devices_per_rank=2) == 2
    assert ask("8 / stages()") == 8
    assert ask("sequences()", training__micro_batch_size=3, program__sequences_per_sample=2) == 6
    assert ask("2 * sequences()", training__micro_batch_size=3) == 6
    assert ask("attention_layers() - 1", model__num_hidden_layers=32) == 31
    assert ask("attention_layers() - 1", model__num_hidden_layers=32, model__attention_layers=8) == 7
    assert ask("compiled()") is False


@pytest.mark.parametrize(
    ("precision", "dtype", "sharding", "version", "expected"),
    [
        ("no", "float32", "zero", None, True),
        ("no", "bfloat16", "ddp", None, False),
        ("bf16", "bfloat16", "ddp", None, True),
        ("bf16", "float32", "zero", None, False),
        ("bf16", "float32", "fsdp", 1, True),
        ("bf16", "float32", "fsdp", 2, False),
    ],
)
def test_outputs_are_float32_by_weights_or_by_accelerate(
    *, precision: str, dtype: str, sharding: str, version: int | None, expected: bool
) -> None:
    known = {
        "training.mixed_precision": precision,
        "model.load_dtype": dtype,
        "training.sharding": sharding,
        "training.fsdp_version": version,
    }
    assert evaluate(parse("float32_outputs()"), DictScope(known, frozenset(known))) is expected


def test_states_frozen_weights_and_shards_are_counted_as_they_are() -> None:
    def ask(text: str, **facts: object) -> object:
        known = {name.replace("__", "."): value for name, value in facts.items()}
        return evaluate(parse(text), DictScope(known, frozenset(known)))

    assert ask("4 + moment_bytes()") == 12
    assert ask("4 + moment_bytes()", training__optimizer="sgd") == 4
    assert ask("4 + moment_bytes()", training__optimizer="adamw_8bit") == 6 + 2 * 4 / 256
    sizes: dict[str, object] = {"model__parameters": 8, "model__trainable_parameters": 2}
    assert ask("min(6, reached_parameters())", training__peft=None, **sizes) == 2
    assert ask("min(6, reached_parameters())", training__peft="freeze", **sizes) == 2
    assert ask("min(6, reached_parameters())", training__peft="lora", **sizes) == 6
    assert ask("min(6, reached_parameters())", **sizes) == 6
    assert ask("trained_parameters()", **sizes) == 2
    assert ask("trained_parameters()", model__parameters=8) == 8
    assert ask("trained_parameters()", model__parameters=8, training__peft="lora") == 0
    ranks: dict[str, object] = {"hardware__world_size": 16, "hardware__gpus_per_node": 8}
    assert ask("16 / shard_ranks()", training__fsdp_version=2, **ranks) == 1
    assert (
        ask("16 / shard_ranks()", training__fsdp_version=1, training__fsdp_sharding_strategy="hybrid_shard", **ranks)
        == 2
    )
    mesh: dict[str, object] = {"training__hsdp_shard_size": 2, "training__tensor_parallel": 4}
    assert ask("16 / shard_ranks()", training__fsdp_version=2, **mesh, **ranks) == 2
    rows: dict[str, object] = {
        "training__micro_batch_size": 2,
        "training__gradient_accumulation_steps": 64,
        "training__framework": "trl",
        "training__rollout_forward_batch_size": 64,
    }
    assert ask("generated_together()", training__micro_batch_size=2) == 2
    counts = {"micro_batch": 2, "pairs": 4, "step": 128, "step_by_rows": 64}
    for at_once, count in counts.items():
        assert ask("generated_together()", program__generates_at_once=at_once, **rows) == count
    few = rows | {"training__gradient_accumulation_steps": 4, "training__mini_batches": 4}
    ppo: dict[str, object] = {"program__generates_at_once": "step_by_rows", "training__trainer": "ppo", **few}
    assert ask("generated_together()", trl=True, **ppo) == 32
    assert ask("generated_together()", trl=False, **ppo) == 8
    rows_told: dict[str, object] = {**ppo, "training__rollout_forward_batch_size": 4}
    assert ask("generated_together()", trl=False, **rows_told) == 4
    step: dict[str, object] = {"program__generates_at_once": "step", "training__steps_per_generation": 8, **few}
    assert ask("generated_together()", **step) == 16
    share: dict[str, object] = {"rollout__global_batch_size": 64, "program__generates_at_once": "share"}
    assert ask("generated_together()", hardware__world_size=16, **share, **rows) == 4
    assert isinstance(ask("generated_together()", **rows), Unknown)
    assert ask("fused_experts()", model__expert_parameters=0) is False
    cell = "expert-parameters('experts', 'qwen3_moe')"
    experts: dict[str, object] = {"model__expert_parameters": 4, "model__model_type": "qwen3_moe", cell: ">=5.0.0"}
    assert ask("fused_experts()", transformers=True, **experts) is True
    assert ask("fused_experts()", transformers=False, **experts) is False
    assert ask("16 / shard_ranks()", training__fsdp_version=2, training__pipeline_parallel=2, **mesh, **ranks) == 1
    hybrid = {"training__fsdp_version": 1, "training__fsdp_sharding_strategy": "hybrid_shard"}
    assert ask("16 / shard_ranks()", training__hsdp_shard_size=4, **hybrid, **ranks) == 4


def test_functions() -> None:
    assert run("dtype_bytes(f.d)", f__d="bfloat16") == 2
    assert run("dtype_bytes(f.d)", f__d="nf4") == 0.5
    assert run("dtype_bytes(f.d)", f__d=None) == 0
    assert [run("pow2_ceil(f.x)", f__x=number) for number in (0, 1, 2, 3, 4, 5, 4.5)] == [0, 1, 2, 4, 4, 8, 8]
    assert run("ceil(f.x / 2)", f__x=5) == 3
    assert run("max(1, f.x, 3)", f__x=5) == 5
    assert run('version_in(f.v, ">=9.1")', f__v=None) is None
    assert run('table("t", f.x)', f__x=1, **{"t(1,)": 7}) == 7


def test_needs_name_variables_packages_and_table_cells() -> None:
    for text, need in (
        ('env("A") == "1"', "env A"),
        ('installed("torch", ">=2")', "version of torch"),
        ('table("t", 1)', "t(1,)"),
    ):
        result = run(text)
        assert isinstance(result, Unknown)
        assert result.needs == {need}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("f.x * 2", {"f__x": "a"}),
        ("f.x / 0", {"f__x": 1}),
        ("f.x in f.y", {"f__x": 1, "f__y": 1}),
        ("f.x < f.y", {"f__x": 1, "f__y": "a"}),
        ("dtype_bytes(f.x)", {"f__x": "bf17"}),
        ("f.x ** 65", {"f__x": 2}),
        ("f.x ** -65", {"f__x": 2}),
        ("(0 - f.x) ** 0.5", {"f__x": 8}),
        ("1e18 ** f.x", {"f__x": 60}),
        ("0 ** -1", {}),
        ('installed("torch", "nonsense")', {}),
        ("ceil(f.x)", {"f__x": float("inf")}),
    ],
)
def test_values_that_do_not_fit_are_rule_errors(text: str, facts: dict[str, Any]) -> None:
    with pytest.raises(RuleError):
        run(text, **facts)


def test_a_tower_of_powers_ends_at_once() -> None:
    with pytest.raises(RuleError):
        run(f"(((f.x ** {MAX_EXPONENT}) ** {MAX_EXPONENT}) ** {MAX_EXPONENT}) ** {MAX_EXPONENT}", f__x=10)


def test_conjuncts_are_the_atoms_of_a_condition() -> None:
    assert [write(part) for part in conjuncts(parse("f.a and not f.b and f.x in (1, 2)"))] == [
        "f.a",
        "not f.b",
        "f.x in {1, 2}",
    ]
    assert conjuncts(parse("f.a or f.b")) == [parse("f.a or f.b")]


def test_declared_names_count_as_read() -> None:
    assert fact_names(parse("declared('f.a') and table('t', f.x) > min(f.y, 1)")) == {"f.a", "f.x", "f.y"}


def test_a_choice_that_decides_the_same_either_way_is_decided() -> None:
    assert (
        run("1e9 >= (3 if training.gradient_checkpointing else 2) * model.parameters", **{"model.parameters": 8})
        is True
    )
    assert run("not (2 if training.packing else 1)") is False
    assert run("(4 if training.packing else 0) and training.packing") == Unknown(frozenset({"training.packing"}))


def test_a_range_that_is_one_of_two_is_asked_for_both() -> None:
    asked = "installed('torch', '>=2' if training.packing else '<1') or f.a"
    assert run(asked, torch=False, **{"f.a": False}) is False
    assert run(asked, torch=True, **{"f.a": False}) is True
    assert run(asked, **{"f.a": False}) == Unknown(frozenset({"training.packing", "version of torch"}))
