"""What was not read, and which keys it may set."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.core.document import LEFT_OUT, Document, Gap, Statement
from compatcheck.core.source import Source
from compatcheck.resolution.gaps import Gaps, find_gaps, is_worth_a_word, may_set, withhold


def gap(key: str | None) -> Gap:
    return Gap(Source("run.sh", key, 3), "is not understood", key)


@pytest.mark.parametrize(
    ("unread", "key", "fact", "answer"),
    [
        (None, "optim", "training.optimizer", True),
        ("hidden_option", "optim", "training.optimizer", True),
        ("image_folder", "optim", "training.optimizer", False),
        ("my_beta", "beta", "training.kl_coefficient", True),
        ("new.optim", "trainer.optim", "training.optimizer", True),
        ("new.lora_depth", "model.lora_rank", "training.peft", True),
        ("new.thing", "model.lora_rank", "training.peft", False),
        ("model.thing", "model.lora_rank", "training.peft", True),
    ],
)
def test_what_something_not_read_may_set(unread: str | None, key: str, fact: str, answer: bool) -> None:  # noqa: FBT001
    assert may_set(gap(unread), key, fact) is answer


def test_a_key_about_something_else_is_not_worth_a_word() -> None:
    assert [is_worth_a_word(gap(key)) for key in (None, "hidden_option", "wandb_colour")] == [True, True, False]


def test_statements_that_rest_on_keys_left_out_are_withheld() -> None:
    statements = (
        Statement("training.trainer", "estimator (left out)", "ppo"),
        Statement("training.global_batch_size", "batch", 64, "actor", ("n",)),
        Statement("training.micro_batch_size", "micro", 2),
    )
    whole = Document("verl", Source("run.sh"), statements)
    (kept,) = withhold((whole,))
    assert kept == (whole, frozenset())
    ((left, about),) = withhold((whole._replace(gaps=(gap(None),)),))
    assert left.statements == statements[2:]
    assert about == {("training.trainer", None), ("training.global_batch_size", "actor")}


def test_what_is_taken_as_empty_sets_nothing() -> None:
    gap = Gap(Source("run.sh"), 'passes on "$@"', None, assumed=True)
    assert not may_set(gap, "gradient_checkpointing", "training.gradient_checkpointing")
    assert may_set(gap._replace(assumed=False), "gradient_checkpointing", "training.gradient_checkpointing")


def test_of_more_keys_than_are_weighed_any_may_be_set() -> None:
    def gaps(count: int) -> tuple[Gap, ...]:
        unread = tuple((f"image_folder{n}", 1) for n in range(count))
        return tuple(find_gaps([Document("hf_trainer", Source("a.yaml"), (), unread)]))

    assert len(gaps(1_000)) == 1_000
    (every,) = gaps(30_000)
    assert every.why == "holds more than 1000 keys that are not understood"
    assert may_set(every, "optim", "training.optimizer")


_WORDS = st.lists(st.sampled_from(["lora", "rank", "batch", "seed", "image", "x", "optim"]), min_size=1, max_size=3)
_KEYS = st.lists(_WORDS.map("_".join), max_size=3).map(".".join)
_FACTS = st.sampled_from(["", "training.lora_rank", "training.optimizer", "model.name"])


@given(
    st.lists(
        st.builds(
            Gap,
            st.just(Source("a.yaml")),
            st.just("why"),
            _KEYS.map(lambda key: key or None),
            st.booleans(),
            st.booleans(),
            st.sampled_from([None, frozenset({"training.optimizer"}), frozenset({""})]),
        ),
        max_size=4,
    ),
    _KEYS,
    _FACTS,
)
def test_many_gaps_together_may_set_what_any_of_them_may(gaps: list[Gap], key: str, fact: str) -> None:
    assert Gaps(gaps).may_set(key, fact) == any(may_set(one, key, fact) for one in gaps)


def test_a_key_of_another_document_of_the_program_is_not_left_out() -> None:
    one = Document("verl", Source("run.sh"), (Statement("training.micro_batch_size", f"micro{LEFT_OUT}", 2),))
    other = Document("verl", Source("b.yaml"), (Statement(None, "micro", 4),))
    assert [len(document.statements) for document, _ in withhold((one, one))] == [1, 1]
    assert [len(document.statements) for document, _ in withhold((one, other))] == [0, 1]
    assert [len(document.statements) for document, _ in withhold((one, other._replace(reader="trl")))] == [1, 1]


def test_the_work_grows_with_documents_and_gaps_and_no_faster() -> None:
    statement = Statement("training.micro_batch_size", f"micro{LEFT_OUT}", 2)

    def work(count: int) -> float:
        unread = tuple((f"folder{n}.image{n}", None) for n in range(400))
        documents = [Document("verl", Source(f"{n}.yaml"), (statement,), unread) for n in range(count)]
        begin = time.process_time()
        assert len(tuple(withhold(documents))) == count
        return time.process_time() - begin

    work(10)
    assert any(work(400) < 40 * max(work(40), 0.02) for _ in range(3))  # a busy machine may take its time from one


def test_a_statement_is_listed_where_a_key_that_it_takes_to_be_left_out_may_be_there() -> None:
    statement = Statement("training.global_batch_size", "mini_batch", 8, None, ("rollout.more",))
    (read, about), *_ = withhold([Document("verl", Source("run.sh"), (statement,), gaps=(gap("rollout.unheard"),))])
    assert read.statements == ()
    assert [(one.fact, one.key) for one in read.unresolved] == [("training.global_batch_size", "mini_batch")]
    assert about == {("training.global_batch_size", None)}
    (read, _), *_ = withhold([Document("verl", Source("run.sh"), (statement,), gaps=(gap("data.unheard"),))])
    assert (read.statements, read.unresolved) == ((statement,), ())
